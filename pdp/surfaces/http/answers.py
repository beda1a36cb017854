"""Answers of HTTP: the error table, the form of errors, and the heads of responses. Knows no server and no endpoint."""

from __future__ import annotations

import time
from collections.abc import Callable
from email.utils import formatdate
from http import HTTPStatus
from typing import Final, NamedTuple, TypeAlias

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
    """An error of a request over HTTP."""

    status: int
    code: str
    message: str

    @property
    def body(self) -> bytes:
        """Return the body in the form of the native API."""
        return msgspec.json.encode({"error": ErrorBody(self.code, self.message)})


ErrorForm: TypeAlias = Callable[[HttpFailure], bytes]
"""Body of a failure."""


def native_error(failure: HttpFailure) -> bytes:
    """Return the body of a failure in the form of the native API."""
    return failure.body


class HttpSurface(NamedTuple):
    """A protocol over HTTP: the name in records and metrics, and the differences from the native API."""

    name: str
    encode_error: ErrorForm = native_error
    changes_nothing: bool = False
    """True if no route changes anything. Then any content type is taken, or none, and Node's `fetch`."""
    any_parameter: bool = False
    """True if unknown query parameters are ignored."""
    only_json: bool = False
    """True if every caller must name the content type of JSON, and another type is a bad request: status 400."""
    denial: bytes = b""
    """Answer with status 200 to a request that the service does not decide, for senders that show errors to users."""


NATIVE: Final = HttpSurface("http")


def failure_of(error: Exception, surface: str, timeout: float) -> HttpFailure:
    """Return the failure of a request. `timeout` is the service's, in seconds, for a TimeoutError."""
    if isinstance(error, errors.PdpError):
        return HttpFailure(_status(error), error.code, str(error))
    if isinstance(error, TimeoutError):
        return HttpFailure(503, "unavailable", f"not answered within {timeout:g} seconds")
    log.error("request failed", surface=surface, exc_info=without_text(error))
    return HttpFailure(500, "internal", "internal error, see the service's log")


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
