"""Answers of HTTP servers within a size and a time, for clients that wait in threads.

`http.client` bounds neither: the timeout of its socket bounds one wait, so an answer of a byte a second takes hours,
and chunks, trailers and interim answers may come for ever. A shut socket goes on delivering what arrives.
"""

from __future__ import annotations

import http.client
import io
import socket
import time
from functools import partial
from typing import Any, cast


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

    `deadline` is a time of the monotonic clock. A silent server is bounded by the timeout of the connection.
    """
    connection.response_class = cast(Any, partial(_BoundedResponse, most_bytes, deadline))
