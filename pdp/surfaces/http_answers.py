"""Answers of HTTP: the error table, the form of errors, and the heads of responses. Knows no server and no endpoint."""

from __future__ import annotations

import time
from email.utils import formatdate
from http import HTTPStatus
from typing import Final

import msgspec
import structlog

from pdp import errors
from pdp.decision.bodies import ErrorBody

JSON: Final = "application/json"
"""Content type of every answer."""
STATUS: Final[tuple[tuple[type[errors.PdpError], int], ...]] = (
    (errors.InvalidArgument, 400),
    (errors.Unauthenticated, 401),
    (errors.Forbidden, 403),
    (errors.PayloadTooLarge, 413),
    (errors.UnsupportedMedia, 415),
    (errors.Overloaded, 429),
    (errors.Unavailable, 503),
)
"""Error table: exception class -> HTTP status. The first matching row applies."""
log = structlog.get_logger()


class HttpAnswer(msgspec.Struct, frozen=True, gc=False):
    """The status and the body of an answer."""

    status: int
    body: bytes


def error_answer(status: int, code: str, message: str) -> HttpAnswer:
    """Return an error in the form of every HTTP surface."""
    return HttpAnswer(status, msgspec.json.encode({"error": ErrorBody(code, message)}))


def answer_to_failure(error: Exception, surface: str, timeout: float) -> HttpAnswer:
    """Return the answer to a request that failed. `timeout` is the service's, in seconds, for a TimeoutError."""
    if isinstance(error, errors.PdpError):
        return error_answer(_status(error), error.code, str(error))
    if isinstance(error, TimeoutError):
        return error_answer(503, "unavailable", f"not answered within {timeout:g} seconds")
    log.error("request failed", surface=surface, exc_info=error)
    return error_answer(500, "internal", "internal error, see the service's log")


def extra_headers(status: int) -> dict[str, str]:
    """Return the headers that only answers of this status have."""
    return {"WWW-Authenticate": "Bearer"} if status == 401 else {}


class ResponseHeads:
    """Heads of responses, made once per second and status. Decisions name no server software."""

    def __init__(self) -> None:
        self._second = 0
        self._closes = False
        self._heads: dict[int, bytes] = {}

    def before_length(self, status: int) -> bytes:
        """Return the head of a response, up to the number of its Content-Length."""
        second = int(time.time())
        if second != self._second:
            self._second = second
            self._heads.clear()
        return self._heads.get(status) or self._add(status)

    def announce_close(self) -> None:
        """Tell clients from now on that the connection closes after the response."""
        self._closes = True
        self._heads.clear()

    def _add(self, status: int) -> bytes:
        close = {"Connection": "close"} if self._closes else {}
        headers = {
            "Content-Type": JSON,
            **extra_headers(status),
            **close,
            "Date": formatdate(self._second, usegmt=True),
        }
        fields = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n{fields}Content-Length: ".encode()
        self._heads[status] = head
        return head


def _status(error: errors.PdpError) -> int:
    return next((status for kind, status in STATUS if isinstance(error, kind)), 500)
