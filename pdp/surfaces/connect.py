"""Connect protocol: the methods of the gRPC services as unary calls over HTTP POST, in protobuf or JSON.

Only maps heads, bodies and errors: the methods are those of gRPC, so both protocols answer alike. The protocol is
described at https://connectrpc.com/docs/protocol.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

import msgspec
import structlog
from google.protobuf.json_format import MessageToDict, Parse, ParseError
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.struct_pb2 import Struct

from pdp import errors
from pdp.config.server import LimitSettings
from pdp.decision.turns import converted
from pdp.identity.callers import Callers
from pdp.model.redaction import without_text
from pdp.model.strict import sentence
from pdp.surfaces.admission import Admission, BodyLimits
from pdp.surfaces.grpc.handlers import GrpcMethod, as_bytes
from pdp.surfaces.http.answers import JSON, EndpointAnswer, extra_headers, id_headers
from pdp.surfaces.http.handlers import Routes, ids_of, make_response, read_body
from pdp.surfaces.http.routes import Handler
from pdp.surfaces.peers import http_peer
from pdp.surfaces.refusals import Refusal, RefusalRecorder, Sender, stranger, with_ids, with_token
from pdp.surfaces.wire import decision_pb2 as wire
from pdp.telemetry import Telemetry

if TYPE_CHECKING:
    from aiohttp import web
    from multidict import CIMultiDictProxy

M = TypeVar("M", bound=Message)

PROTO: Final = "application/proto"
_TIMEOUT: Final = re.compile(r"[0-9]{1,10}", re.ASCII)
CODES: Final[tuple[tuple[type[Exception], str], ...]] = (
    (errors.InvalidArgument, "invalid_argument"),
    (errors.Unauthenticated, "unauthenticated"),
    (errors.Forbidden, "permission_denied"),
    (errors.NotFound, "not_found"),
    (errors.AlreadyExists, "already_exists"),
    (errors.Conflict, "aborted"),
    (errors.PayloadTooLarge, "resource_exhausted"),
    (errors.Overloaded, "resource_exhausted"),
    (errors.Unavailable, "unavailable"),
)
"""Error table: exception class -> code of Connect. The message begins with the stable error code, as in gRPC."""
STATUS: Final[Mapping[str, int]] = {
    "invalid_argument": 400,
    "unauthenticated": 401,
    "permission_denied": 403,
    "not_found": 404,
    "already_exists": 409,
    "aborted": 409,
    "resource_exhausted": 429,
    "internal": 500,
    "unimplemented": 501,
    "unavailable": 503,
    "deadline_exceeded": 504,
}
"""Code of Connect -> HTTP status."""
_OBJECTS: Final = 1000
_OBJECTS_PER_CHECK: Final = 8
"""JSON objects in a body outside of checks (properties of views included), and in a check with all its parts."""
log = structlog.get_logger()


class RpcService(Protocol):
    """Service of gRPC: the full name, and the methods by name."""

    @property
    def name(self) -> str:
        """Return the full name."""
        ...

    @property
    def methods(self) -> Mapping[str, GrpcMethod]:
        """Return the methods by name."""
        ...


class ConnectHandlers:
    """Factory of routes: wraps the methods of a service with limits, caller, deadline and the error table.

    `timeout` is in seconds and covers reading the body and computing the answer.
    """

    def __init__(
        self, callers: Callers, admission: Admission, telemetry: Telemetry, timeout: float, *, refusals: RefusalRecorder
    ) -> None:
        self._refusals = refusals
        self._gate = refusals.gate
        self._callers = callers
        self._admission = admission
        self._telemetry = telemetry
        self._timeout = timeout

    def routes(self, service: RpcService, limits: LimitSettings) -> Routes:
        """Return the routes of a service, one for each method."""
        described = wire.DESCRIPTOR.services_by_name[service.name.rpartition(".")[2]].methods_by_name
        return {
            ("POST", f"/{service.name}/{name}"): self._handler(
                _Codec(described[name], _OBJECTS + _OBJECTS_PER_CHECK * limits.max_checks),
                method,
                BodyLimits.of_native(limits),
            )
            for name, method in service.methods.items()
        }

    def _handler(self, codec: _Codec, method: GrpcMethod, limits: BodyLimits) -> Handler:
        async def handle(request: web.BaseRequest) -> web.Response:
            with ExitStack() as places:
                call = _Call(request, codec, method, limits, places)
                deadline = asyncio.get_running_loop().time() + self._timeout
                return await self._settled(await respond(call), call, deadline)

        async def respond(call: _Call) -> web.Response:
            request = call.request
            try:
                head = read_head(request.headers, request.content_type)
                if head is None:
                    id = self._record(call, 415, "unsupported_media_type", "the content type is of another protocol")
                    headers = {"Accept-Post": f"{JSON}, {PROTO}", **id_headers(call.sender.request_id or id, "")}
                    return self._answer(415, b"", headers)
                found = await self._call(call, head)
            except ConnectionError:
                raise  # the client is gone: aiohttp closes the connection
            except Exception as error:  # noqa: BLE001  the failure is the answer
                recorded = error.record_id if isinstance(error, errors.PdpError) else ""
                call.sender = with_token(call.sender, error)
                return self._refuse(_as_connect(error), call, recorded)
            ids = id_headers(call.sender.request_id or found.decision_id, found.decision_id)
            return self._answer(200, found.body, ids, JSON if head.json else PROTO)

        return handle

    async def _settled(self, response: web.Response, call: _Call, deadline: float) -> web.Response:
        """Return a response once its record is safe. Failures of the service wait for nothing."""
        if not self._gate.holds or response.status >= STATUS["internal"]:
            return response
        try:
            async with asyncio.timeout_at(deadline):
                await self._gate.durable()
        except (errors.Unavailable, TimeoutError) as error:
            return self._refuse(_as_connect(error), call, "")
        return response

    async def _call(self, call: _Call, head: ConnectHead) -> EndpointAnswer:
        """Return the answer to a call."""
        request, limits, codec = call.request, call.limits, call.codec
        announced = request.content_length or 0
        if announced > limits.size:
            raise errors.PayloadTooLarge(f"the body is larger than {limits.size} bytes")
        caller = await self._callers.identify(http_peer(request, (JSON, PROTO)))
        call.sender = caller = with_ids(caller, call.ids)
        timeout = self._timeout if head.timeout is None else min(head.timeout, self._timeout)
        admitted = call.places.enter_context(self._admission.arriving(caller))
        try:
            async with asyncio.timeout(timeout):
                await self._gate.room()
                body = await read_body(request, limits.size, admitted)
                await (limits.check(body) if head.json else limits.check_message(body))
                message = await converted(body, codec.decode) if head.json else body
                response = await call.method(message, caller)
                answer = as_bytes(response.message)
                return EndpointAnswer(
                    await converted(answer, codec.encode) if head.json else answer, response.decision_id
                )
        except TimeoutError:
            if timeout < self._timeout:
                raise ConnectError("deadline_exceeded", "the deadline of the call passed") from None
            raise

    def _record(self, call: _Call, status: int, code: str, message: str) -> str:
        """Record a refused call; return the id of the record."""
        return self._refusals.record(Refusal("connect", call.request.path, str(status), code, message), call.sender)

    def _refuse(self, error: ConnectError, call: _Call, recorded: str) -> web.Response:
        body = msgspec.json.encode({"code": error.code, "message": str(error)})
        status = STATUS[error.code]
        code, _, message = str(error).partition(": ")
        id = recorded or self._record(call, status, code if message else error.code, message or str(error))
        ids = id_headers(call.sender.request_id or id, recorded)
        return self._answer(status, body, {**extra_headers(status), **ids})

    def _answer(self, status: int, body: bytes, headers: Mapping[str, str], content_type: str = JSON) -> web.Response:
        self._telemetry.count_request("connect", str(status))
        return make_response(status, body, headers, content_type)


class _Call:
    """One call: its sender is a stranger until the caller is known. `places` ends when the answer leaves."""

    __slots__ = ("codec", "ids", "limits", "method", "places", "request", "sender")

    def __init__(
        self, request: web.BaseRequest, codec: _Codec, method: GrpcMethod, limits: BodyLimits, places: ExitStack
    ) -> None:
        self.places = places
        self.request = request
        self.codec = codec
        self.method = method
        self.limits = limits
        self.ids = ids_of(request)
        self.sender: Sender = stranger(request.remote or "", self.ids)


class _Codec:
    """JSON form of the messages of one method. A body with more than `max_objects` objects is refused unread."""

    def __init__(self, method: Any, max_objects: int) -> None:
        self._max_objects = max_objects
        self._request: type[Message] = GetMessageClass(method.input_type)
        self._response: type[Message] = GetMessageClass(method.output_type)

    def decode(self, body: bytes) -> bytes:
        """Return the bytes of the request message that a JSON body writes; raise ConnectError or TooManyChecks."""
        if body.count(b"{") > self._max_objects:
            raise errors.TooManyChecks(f"more than {self._max_objects} objects in one request")
        return from_json(body, self._request).SerializeToString()

    def encode(self, response: bytes) -> bytes:
        """Return the JSON form of the bytes of a response message."""
        return to_json(self._response.FromString(response))


def _as_connect(error: Exception) -> ConnectError:
    """Return an error in the form of Connect. An error that is no answer of the product is logged."""
    if isinstance(error, ConnectError):
        return error
    if isinstance(error, errors.PdpError):
        code = next((code for kind, code in CODES if isinstance(error, kind)), "internal")
        return ConnectError(code, f"{error.code}: {error}")
    if isinstance(error, TimeoutError):
        return ConnectError("unavailable", "unavailable: not answered in time")
    log.error("request failed", surface="connect", exc_info=without_text(error))
    return ConnectError("internal", "internal: see the service's log")


class ConnectHead(NamedTuple):
    """Head of a call: whether the bodies are JSON, and the timeout in seconds, None without one."""

    json: bool
    timeout: float | None


class ConnectError(Exception):
    """Answer other than a success, by a code of Connect."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def read_head(headers: CIMultiDictProxy[str], content_type: str) -> ConnectHead | None:
    """Return the head of a call; None for a content type of another protocol. Raise ConnectError if it is refused."""
    if content_type not in (JSON, PROTO):
        return None
    if headers.get("Connect-Protocol-Version", "1") != "1":
        raise ConnectError("invalid_argument", "invalid_argument: the only Connect-Protocol-Version is 1")
    for encoding in headers.getall("Content-Encoding", ()):
        if encoding.lower() != "identity":
            raise ConnectError("unimplemented", "unsupported_media_type: the only supported encoding is identity")
    return ConnectHead(content_type == JSON, _timeout(headers.get("Connect-Timeout-Ms")))


def from_json(body: bytes, kind: type[M]) -> M:
    """Return the message that a body writes in proto3 JSON; raise ConnectError.

    Unknown fields are refused, and so is a null: JSON over HTTP refuses it, and here it would ask for the default.
    """
    try:
        if not body.lstrip().startswith(b"{"):
            raise ParseError("the body is no JSON object")
        message = Parse(body, kind())
        place = _find_null(json.loads(body), kind.DESCRIPTOR) if b"null" in body else ""
        if place:
            raise ParseError(f"`{place}` is null: leave it out, or give a value")
    except (ParseError, ValueError, RecursionError) as error:
        first_line = str(error).partition("\n")[0]
        text = sentence(first_line.replace(f"{kind.DESCRIPTOR.file.package}.", ""))
        raise ConnectError("invalid_argument", f"invalid_argument: {text}") from None
    return message


_NULLABLE: Final = frozenset(
    {
        "pdp.v1.CheckLoadRequest.caller",
        "pdp.v1.CheckScopesRequest.current_user",
        "pdp.v1.CheckScopesRequest.scopes",
        "pdp.v1.CheckViewCommitRequest.caller",
        "pdp.v1.Resource.properties",
        "pdp.v1.Resource.ref",
    }
)
"""Fields that may be null over HTTP, too, which means the same as absent."""


def _find_null(fields: Mapping[str, Any], kind: Any) -> str:
    """Return the place of a null in place of a field of a kind of message; empty without one.

    A null inside of a Struct is a value.
    """
    known = {name: field for field in kind.fields for name in (field.json_name, field.name)}
    for name, value in fields.items():
        field = known[name]
        if value is None and field.full_name not in _NULLABLE:
            return name
        inner = field.message_type
        if value is None or inner is None or inner.full_name == Struct.DESCRIPTOR.full_name:
            continue
        parts = value if isinstance(value, list) else [value]
        if inner.GetOptions().map_entry:
            inner, parts = inner.fields_by_name["value"].message_type, list(value.values())
        places = (_find_null(part, inner) for part in parts if isinstance(part, dict))
        if place := next(filter(None, places), ""):
            return f"{name}.{place}"
    return ""


def to_json(message: Message) -> bytes:
    """Return a message in proto3 JSON, with all fields that have a default."""
    return msgspec.json.encode(MessageToDict(message, always_print_fields_with_no_presence=True))


def _timeout(text: str | None) -> float | None:
    """Return the seconds of a timeout in milliseconds; raise ConnectError unless it is a positive number."""
    if text is None:
        return None
    if not _TIMEOUT.fullmatch(text) or not int(text):
        raise ConnectError("invalid_argument", "invalid_argument: Connect-Timeout-Ms is no number of 1 to 10 digits")
    return int(text) / 1000
