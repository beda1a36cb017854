"""A TCP proxy between a client and a server, which can stop forwarding without closing anything."""

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
