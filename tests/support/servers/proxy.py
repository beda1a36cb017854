"""Proxies: one of TCP, which can stop forwarding without closing anything, and one of HTTP that knows CONNECT alone."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager


class Proxy:
    """Listens on `port`. While frozen, connections stay open and are accepted, and nothing comes through."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._flowing = threading.Event()
        self._flowing.set()
        self._sockets: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def freeze(self) -> None:
        self._flowing.clear()

    def thaw(self) -> None:
        self._flowing.set()

    def close(self) -> None:
        self._listening.close()
        for end in self._sockets:
            end.close()
        self._flowing.set()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                return
            self._sockets += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                self._flowing.wait()
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            return


@contextmanager
def proxied(target: int) -> Iterator[Proxy]:
    """A proxy to a port of this machine."""
    with closing(Proxy(target)) as proxy:
        yield proxy


class ConnectProxy:
    """Proxy that answers CONNECT. Every name leads to this machine. `heads` has the requests as they came."""

    def __init__(self, answer: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n") -> None:
        self.answer = answer
        self.heads: list[str] = []
        self._sockets: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def targets(self) -> list[str]:
        """Return the request lines."""
        return [head.partition("\r\n")[0] for head in self.heads]

    def close(self) -> None:
        self._listening.close()
        for end in self._sockets:
            end.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            self._sockets.append(near)
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n") and (part := near.recv(1)):
            head += part
        self.heads.append(head.decode())
        near.sendall(self.answer)
        if not head.startswith(b"CONNECT ") or b" 200 " not in self.answer:
            near.close()
            return
        far = socket.create_connection(("127.0.0.1", int(head.split()[1].rpartition(b":")[2])))
        self._sockets.append(far)
        threading.Thread(target=_pump, args=(far, near), daemon=True).start()
        _pump(near, far)


def _pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        return


@contextmanager
def connecting(**options: bytes) -> Iterator[ConnectProxy]:
    """A proxy of HTTP that knows CONNECT alone."""
    with closing(ConnectProxy(**options)) as proxy:
        yield proxy
