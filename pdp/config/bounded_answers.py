"""Connections to HTTP servers, with answers within a size and a time, for clients that wait in threads.

`http.client` bounds neither: the timeout of its socket bounds one wait, so an answer of a byte a second takes hours,
and chunks, trailers and interim answers may come for ever. A shut socket goes on delivering what arrives.
"""

from __future__ import annotations

import http.client
import io
import re
import socket
import time
from base64 import b64encode
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import unquote, urlsplit

from pdp.config.server import WayOut

if TYPE_CHECKING:
    import ssl

_REFUSED: Final = re.compile(r"Tunnel connection failed: (\d{3})\b")
"""Message of `http.client` about the answer of a proxy."""


class AnswerTooLong(http.client.HTTPException):
    """Answer beyond the limit of head and body together."""


class _BoundedSocket(io.RawIOBase):
    """Bytes of a connection, up to a size and a time of the monotonic clock."""

    def __init__(self, raw: Any, most_bytes: int, deadline: float) -> None:
        self._raw = raw
        self._left = most_bytes
        self._deadline = deadline

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read; raise AnswerTooLong beyond the size, TimeoutError beyond the time."""
        if time.monotonic() > self._deadline:
            raise TimeoutError("the answer comes too slowly")
        count: int | None = self._raw.readinto(buffer)
        self._left -= count or 0
        if self._left < 0:
            raise AnswerTooLong("the answer is too long")
        return count

    def close(self) -> None:
        """Close the connection's file."""
        self._raw.close()
        super().close()


class _BoundedResponse(http.client.HTTPResponse):
    def __init__(self, most_bytes: int, deadline: float, sock: socket.socket, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        raw = self.fp.detach()
        self.fp = io.BufferedReader(_BoundedSocket(raw, most_bytes, deadline))


def bound_answer(connection: http.client.HTTPConnection, most_bytes: int, deadline: float) -> None:
    """Let the next answer on a connection end in AnswerTooLong beyond a size, in TimeoutError beyond a time.

    So does the answer of its proxy. `deadline` is a time of the monotonic clock. The timeout of the connection bounds a
    silent server.
    """
    connection.response_class = cast(Any, partial(_BoundedResponse, most_bytes, deadline))


def open_connection(
    url: str, way: WayOut, timeout: float, context: ssl.SSLContext | None = None
) -> http.client.HTTPConnection:
    """Return a connection to the host of a URL, which connects with the first request; raise ConfigError.

    `context` is the trust of the way, if the caller has made it before.
    """
    to = urlsplit(url)
    host = to.hostname or ""
    if to.scheme != "https":
        return http.client.HTTPConnection(host, to.port, timeout=timeout)
    context = context or way.context()
    proxy = way.proxy_to(url)
    if proxy is None:
        return http.client.HTTPSConnection(host, to.port, timeout=timeout, context=context)
    by = urlsplit(proxy)
    connection = http.client.HTTPSConnection(by.hostname or "", by.port or 80, timeout=timeout, context=context)
    connection.set_tunnel(host, to.port or 443, _credentials(by.username, by.password))
    return connection


def _credentials(user: str | None, password: str | None) -> dict[str, str]:
    if user is None:
        return {}
    pair = b64encode(f"{unquote(user)}:{unquote(password or '')}".encode()).decode()
    return {"Proxy-Authorization": f"Basic {pair}"}


def failure(error: Exception) -> str:
    """Return the cause why a connection failed, without anything that was sent or received but a status."""
    refused = _REFUSED.match(str(error))
    return f"the proxy answers {refused[1]}" if refused else getattr(error, "strerror", None) or type(error).__name__
