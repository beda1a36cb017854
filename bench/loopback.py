"""Minimal HTTP client for loopback, so that a benchmark measures the server and not the client."""

from __future__ import annotations

import re
import socket
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

_STATUS = re.compile(rb"HTTP/1.1 (\d+)")
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class Connection:
    """One keep-alive connection. `request` builds the bytes in advance, `send` only sends them."""

    def __init__(self, url: str, timeout: float = 100) -> None:
        parts = urlsplit(url)
        self._authority = parts.netloc
        self._socket = socket.create_connection((parts.hostname, parts.port), timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._socket.close()

    @staticmethod
    def request(url: str, body: bytes) -> bytes:
        """Return the bytes of a POST of JSON."""
        parts = urlsplit(url)
        head = f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

    def send(self, request: bytes) -> bytes:
        """Send a request and return the body of the response; exit for an error status."""
        self._socket.sendall(request)
        received = b""
        while b"\r\n\r\n" not in received:
            received += self._some()
        head, _, body = received.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if length:
            while len(body) < int(length[1]):
                body += self._some()
        else:
            body = self._chunks(body)
        status = _STATUS.match(head)
        if status is None or status[1] not in (b"200", b"201"):
            raise SystemExit(f"{head.decode()}\n\n{body.decode()}")
        return body

    def _chunks(self, received: bytes) -> bytes:
        """Return the rest of a chunked body."""
        while not received.endswith(b"0\r\n\r\n"):
            received += self._some()
        found: list[bytes] = []
        at = 0
        while True:
            line = received.index(b"\r\n", at)
            size = int(received[at:line], 16)
            if not size:
                return b"".join(found)
            found.append(received[line + 2 : line + 2 + size])
            at = line + 4 + size

    def _some(self) -> bytes:
        try:
            some = self._socket.recv(1 << 18)
        except TimeoutError:
            raise SystemExit(f"{self._authority} did not answer in time: too busy to measure anything") from None
        if not some:
            raise SystemExit(f"{self._authority} closed the connection")
        return some
