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
from pdp.model.redaction import without_text
from pdp.surfaces.refusals import DECISION_ID, REQUEST_ID

JSON: Final = "application/json"
"""Content type of every answer."""
STATUS: Final[tuple[tuple[type[errors.PdpError], int], ...]] = (
    (errors.InvalidArgument, 400),
    (errors.Unauthenticated, 401),
    (errors.Forbidden, 403),
    (errors.NotFound, 404),
    (errors.AlreadyExists, 409),
    (errors.Conflict, 409),
    (errors.PayloadTooLarge, 413),
    (errors.UnsupportedMedia, 415),
    (errors.Overloaded, 429),
    (errors.Unavailable, 503),
)
"""Error table: exception class -> HTTP status. The first matching row applies."""
log = structlog.get_logger()


class EndpointAnswer(msgspec.Struct, frozen=True, gc=False):
    """The body of a success, and the id of the decision behind it."""

    body: bytes
    decision_id: str


class HttpAnswer(msgspec.Struct, frozen=True, gc=False):
    """The status, the body and the ids of an answer. Without a decision, `decision_id` is empty."""

    status: int
    body: bytes
    request_id: str
    decision_id: str = ""


class HttpFailure(msgspec.Struct, frozen=True):
    """An error as HTTP says it. `surface` has the form of the body."""

    status: int
    code: str
    message: str
    surface: str = ""

    @property
    def body(self) -> bytes:
        """Return the body in the form of the surface: that of Iceberg's REST catalogs, or our own."""
        if self.surface not in _ICEBERG_SURFACES:
            return msgspec.json.encode({"error": ErrorBody(self.code, self.message)})
        type = _ICEBERG_TYPES.get(self.status, "InternalServerError")
        return msgspec.json.encode({"error": {"message": self.message, "type": type, "code": self.status}})


_ICEBERG_SURFACES: Final = frozenset({"lakekeeper"})
_ICEBERG_TYPES: Final = {
    400: "BadRequestException", 401: "NotAuthorizedException", 403: "ForbiddenException",
    404: "NoSuchWarehouseException", 503: "ServiceUnavailableException",
}  # fmt: skip
"""Status -> the type of an error in the specification of Iceberg's REST catalogs."""


def failure_of(error: Exception, surface: str, timeout: float) -> HttpFailure:
    """Return the failure of a request. `timeout` is the service's, in seconds, for a TimeoutError."""
    if isinstance(error, errors.PdpError):
        return HttpFailure(_status(error), error.code, str(error), surface)
    if isinstance(error, TimeoutError):
        return HttpFailure(503, "unavailable", f"not answered within {timeout:g} seconds", surface)
    log.error("request failed", surface=surface, exc_info=without_text(error))
    return HttpFailure(500, "internal", "internal error, see the service's log", surface)


def extra_headers(status: int) -> dict[str, str]:
    """Return the headers that only answers of this status have."""
    return {"WWW-Authenticate": "Bearer"} if status == 401 else {}


def id_headers(request_id: str, decision_id: str) -> dict[str, str]:
    """Return the headers with the ids of an answer. Without a decision, `decision_id` is empty."""
    return {REQUEST_ID: request_id, DECISION_ID: decision_id} if decision_id else {REQUEST_ID: request_id}


class ResponseHeads(dict[int, str]):
    """Heads of responses by status, up to the number of their Content-Length. Decisions name no server software."""

    def __init__(self) -> None:
        self.until = 0.0
        """Time of the event loop at which the heads become old: the second of their date ends."""
        self._second = 0.0
        self._closes = False

    def begin_second(self, now: float) -> None:
        """Make all heads anew. `now` is the time of the event loop."""
        self._second = time.time()
        self.until = now + 1 - self._second % 1
        self.clear()

    def announce_close(self) -> None:
        """Tell clients from now on that the connection closes after the response."""
        self._closes = True
        self.clear()

    def __missing__(self, status: int) -> str:
        close = {"Connection": "close"} if self._closes else {}
        headers = {
            "Content-Type": JSON,
            **extra_headers(status),
            **close,
            "Date": formatdate(self._second, usegmt=True),
        }
        fields = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = self[status] = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n{fields}Content-Length: "
        return head


def _status(error: errors.PdpError) -> int:
    return next((status for kind, status in STATUS if isinstance(error, kind)), 500)
