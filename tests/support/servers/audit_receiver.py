"""Real HTTP receiver of pushed audit records, which misbehaves on demand."""

from __future__ import annotations

import gzip
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

Conduct = Callable[[int], str]
"""Number of a request -> what the receiver does: `ok`, a status such as `503`, or a word of `CONDUCTS`."""
CONDUCTS = ("hang", "close", "close before the answer", "close in the answer", "garbage")


class Batch(NamedTuple):
    """A batch that was taken."""

    id: str
    headers: dict[str, str]
    body: bytes


class AuditReceiver:
    """Receiver with a port of its own. It may stop and start again on the same port."""

    def __init__(self, conduct: Conduct = lambda number: "ok", tls: ssl.SSLContext | None = None) -> None:
        self.conduct = conduct
        self.refuses: Callable[[bytes], str] = lambda body: ""
        """Body of a batch -> the status that refuses it; empty to take it."""
        self.answer = b""
        self.answer_headers: dict[str, str] = {}
        self.batches: list[Batch] = []
        self.refused: list[Batch] = []
        self.requests = 0
        self.port = 0
        self._tls = tls
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._server: ThreadingHTTPServer | None = None
        self._open: set[socket.socket] = set()
        self.start()

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}/audit?x=1"

    def start(self) -> None:
        receiver = self
        self._stopped.clear()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                receiver.take(self)

            def log_message(self, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: Any) -> None:
                pass

        self._server = Server(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_address[1]
        if self._tls:
            self._server.socket = self._tls.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()
        if self._server:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        for connection in list(self._open):
            connection.close()

    def take(self, handler: BaseHTTPRequestHandler) -> None:
        with self._lock:
            number, self.requests = self.requests, self.requests + 1
        conduct = self.conduct(number)
        length = int(handler.headers["Content-Length"])
        handler.close_connection = conduct in CONDUCTS
        if conduct == "close":
            handler.rfile.read(min(length, 10))
            return
        body = handler.rfile.read(length)
        if len(body) < length:
            return
        headers = {name.lower(): value for name, value in handler.headers.items()}
        raw = gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body
        batch = Batch(headers["x-batch-id"], headers, raw)
        conduct = (conduct == "ok" and self.refuses(raw)) or conduct
        if conduct == "hang":
            self._stopped.wait(30)
        elif conduct == "garbage":
            handler.wfile.write(b"\x00\xffnonsense\r\n\r\n")
        elif conduct in ("ok", "close before the answer", "close in the answer"):
            with self._lock:
                self.batches.append(batch)
            if conduct == "ok":
                self._answer(handler, 200, self.answer)
            elif conduct == "close in the answer":
                handler.wfile.write(b"HTTP/1.1 200 O")
        else:
            with self._lock:
                self.refused.append(batch)
            self._answer(handler, int(conduct), b"no")

    def _answer(self, handler: BaseHTTPRequestHandler, status: int, body: bytes) -> None:
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        for name, value in self.answer_headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    def lines(self) -> list[bytes]:
        """Return the lines of all batches, in the order of their arrival."""
        with self._lock:
            batches = list(self.batches)
        return [line for batch in batches for line in lines_of(batch)]

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines()]


def lines_of(batch: Batch) -> list[bytes]:
    """Return the lines of a batch, in either form."""
    if batch.headers["content-type"] == "application/x-ndjson":
        assert batch.body.endswith(b"\n")
        return batch.body.splitlines()
    (resource,) = json.loads(batch.body)["resourceLogs"]
    (scope,) = resource["scopeLogs"]
    return [record["body"]["stringValue"].encode() for record in scope["logRecords"]]


@contextmanager
def receiving(conduct: Conduct = lambda number: "ok", tls: ssl.SSLContext | None = None) -> Iterator[AuditReceiver]:
    receiver = AuditReceiver(conduct, tls)
    try:
        yield receiver
    finally:
        receiver.stop()
