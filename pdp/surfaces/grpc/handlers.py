"""gRPC machinery of all methods: limits, caller, deadline and error table.

Bounds the calls whose request message has not arrived.

A handler of unary calls begins with the message, so a stream that never sends one would stay for ever. The handlers of
this service begin with the head of the call, and read the message here. A call that waits holds nothing that others
need: beyond the bound, the oldest call is ended, and a client that sends its message at once is never the oldest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import grpc
import msgspec
import structlog
from google.protobuf.message import Message
from grpc.aio import AbortError

from pdp import errors
from pdp.errors import InvalidArgument
from pdp.identity.callers import Callers, Peer
from pdp.model.question import Caller
from pdp.model.redaction import without_text
from pdp.surfaces.admission import Admission, AdmittedRequest, BodyLimits
from pdp.surfaces.peers import grpc_peer
from pdp.surfaces.refusals import DECISION_ID, REQUEST_ID, Refusal, RefusalRecorder, Sender, stranger, with_ids
from pdp.telemetry import Telemetry

log = structlog.get_logger()
MOST_ARRIVING: Final = 1024
"""Calls of all connections that wait for their message at the same time."""
_SWEEP_SECONDS: Final = 0.5
"""Seconds between two looks for calls that wait too long."""
STATUS: Final[tuple[tuple[type[errors.PdpError], grpc.StatusCode], ...]] = (
    (errors.InvalidArgument, grpc.StatusCode.INVALID_ARGUMENT),
    (errors.Unauthenticated, grpc.StatusCode.UNAUTHENTICATED),
    (errors.Forbidden, grpc.StatusCode.PERMISSION_DENIED),
    (errors.NotFound, grpc.StatusCode.NOT_FOUND),
    (errors.AlreadyExists, grpc.StatusCode.ALREADY_EXISTS),
    (errors.Conflict, grpc.StatusCode.ABORTED),
    (errors.PayloadTooLarge, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (errors.Overloaded, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (errors.Unavailable, grpc.StatusCode.UNAVAILABLE),
)
"""Error table: exception class -> gRPC status. The details begin with the stable error code."""


class RpcAnswer(msgspec.Struct, frozen=True):
    """The response message or its bytes, and the id of the decision behind it."""

    message: Message | bytes
    decision_id: str


GrpcMethod = Callable[[bytes, Caller], Awaitable[RpcAnswer]]
"""Method of a service: (bytes of the request message, caller) -> response.

The method parses the bytes, so that bytes that do not parse also go through the error table.
"""
ImmediateMethod = Callable[[bytes, Caller], RpcAnswer | None]
"""Method that answers without waiting: (request bytes, caller) -> response; None if it must wait."""
_DETAILS_BYTES: Final = 512
"""Longest details. Metadata carries up to 2,048 bytes of a value, and three bytes for each that is not printable."""
_REQUEST_ID: Final = REQUEST_ID.lower()
_DECISION_ID: Final = DECISION_ID.lower()
_NONE: Final[Mapping[str, ImmediateMethod]] = MappingProxyType({})


class _Call:
    """One call. Its sender is a stranger until the caller is known."""

    __slots__ = ("admitted", "caller", "context", "ids", "path", "peer", "token")

    def __init__(self, context: Any, path: str, *, certified: bool) -> None:
        self.context = context
        self.path = path
        self.peer, self.ids = grpc_peer(context, certified=certified)
        self.caller: Caller | None = None
        self.token: errors.UnverifiedToken | None = None
        """Names in a refused token."""
        self.admitted: AdmittedRequest | None = None
        """Place in flight, until the answer leaves."""

    @property
    def sender(self) -> Sender:
        """Return the sender that a refusal names."""
        return self.caller or stranger(self.peer.host, self.ids, self.token)


class GrpcHandlers:
    """Factory of gRPC handlers: wraps methods with limits, caller, deadline and the error table.

    `timeout` is in seconds: once from the head of a call to its whole message, and once from there to the response.
    """

    def __init__(
        self,
        callers: Callers,
        admission: Admission,
        telemetry: Telemetry,
        timeout: float,
        *,
        arrivals: Arrivals,
        limits: BodyLimits,
        certified: bool,
        refusals: RefusalRecorder,
    ) -> None:
        self._arrivals = arrivals
        self._limits = limits
        self._longest_uncounted = limits.values
        self._certified = certified
        self._refusals = refusals
        self._gate = refusals.gate
        self._callers = callers
        self._admission = admission
        self._telemetry = telemetry
        self._timeout = timeout

    def service(
        self, name: str, methods: Mapping[str, GrpcMethod], immediate: Mapping[str, ImmediateMethod] = _NONE
    ) -> grpc.GenericRpcHandler:
        """Return the handler of a service. `name` is the full name, `methods` are by name.

        `immediate` has methods that give the same answers without waiting, or None.
        """
        handlers = {
            method: self._handler(f"/{name}/{method}", answer, immediate.get(method))
            for method, answer in methods.items()
        }
        return grpc.method_handlers_generic_handler(name, handlers)

    def _handler(self, path: str, answer: GrpcMethod, immediate: ImmediateMethod | None) -> Any:
        async def handle(_: Any, context: Any) -> Message | bytes:
            call = _Call(context, path, certified=self._certified)
            try:
                response = await self._answer(call, answer, immediate)
            except grpc.aio.AbortError:
                self._count(call, grpc.StatusCode.UNAVAILABLE, "unavailable: the message did not arrive in time")
                raise  # the message did not arrive, and the status has been sent
            except errors.PdpError as error:
                call.token = error.unverified if isinstance(error, errors.Unauthenticated) else None
                return await self._refuse_settled(call, error)
            except TimeoutError:
                return self._refuse(call, grpc.StatusCode.UNAVAILABLE, "unavailable: not answered in time")
            except Exception as error:
                log.exception("request failed", surface="grpc", exc_info=without_text(error))
                return self._refuse(call, grpc.StatusCode.INTERNAL, "internal: see the service's log")
            finally:
                if call.admitted:
                    call.admitted.release()
            self._telemetry.count_request("grpc", "OK")
            if call.ids.request_id or not immediate:  # an immediate answer has its decision id in the message
                context.set_trailing_metadata(_ids(call.ids.request_id, response.decision_id))
            return response.message

        # a handler of a stream begins with the head of the call, and reads the one message itself
        return grpc.stream_unary_rpc_method_handler(handle, response_serializer=as_bytes)

    async def _answer(self, call: _Call, answer: GrpcMethod, immediate: ImmediateMethod | None) -> RpcAnswer:
        peer = call.peer
        known = self._callers.known(peer)
        caller = known.caller if known else await self._identify(peer)
        call.caller = caller = with_ids(caller, call.ids)
        body = await self._arrivals.receive(call.context)
        if immediate and len(body) <= self._longest_uncounted:
            if self._gate.holds:
                call.admitted = self._admission.admit(caller, len(body))
            elif overload := self._admission.overload(caller, len(body)):
                raise overload
            response = None if self._gate.crowded else immediate(body, caller)
            if response is not None:
                await self._settle()
                return response
        call.admitted = call.admitted or self._admission.admit(caller, len(body))
        async with asyncio.timeout(self._timeout):
            await self._gate.room()
            await self._limits.check_message(body)
            response = await answer(body, caller)
            await self._settle()
            return response

    async def _identify(self, peer: Peer) -> Caller:
        async with asyncio.timeout(self._timeout):
            return await self._callers.identify(peer)

    def _count(self, call: _Call, code: grpc.StatusCode, details: str) -> str:
        """Count and record a refused call; return the id of its record."""
        self._telemetry.count_request("grpc", code.name)
        reason, _, message = details.partition(": ")
        return self._refusals.record(Refusal("grpc", call.path, code.name, reason, message), call.sender)

    async def _settle(self) -> None:
        """Wait until the record of an answer is safe; raise Unavailable or TimeoutError if no answer may leave."""
        if self._gate.holds:
            async with asyncio.timeout(self._timeout):
                await self._gate.durable()

    async def _refuse_settled(self, call: _Call, error: errors.PdpError) -> bytes:
        """Refuse a call, once the record of the refusal is safe. Failures of the service wait for nothing."""
        code, details = _status(error), f"{error.code}: {error}"
        refused = self._refuse(call, code, details, error.record_id)
        if code != grpc.StatusCode.UNAVAILABLE:
            try:
                await self._settle()
            except (errors.Unavailable, TimeoutError):
                return self._refuse(call, grpc.StatusCode.UNAVAILABLE, "unavailable: the audit cannot be written")
        return refused

    def _refuse(self, call: _Call, code: grpc.StatusCode, details: str, recorded: str = "") -> bytes:
        """Set the status of a refused call; return a response that is not sent.

        Never call `context.abort`: gRPC then keeps the exception, whose traceback keeps the body of the request.
        """
        if recorded:
            self._telemetry.count_request("grpc", code.name)
        id = recorded or self._count(call, code, details)
        call.context.set_trailing_metadata(_ids(call.sender.request_id or id, recorded))
        call.context.set_code(code)
        call.context.set_details(_bounded(details))
        return b""


def _ids(request_id: str, decision_id: str) -> tuple[tuple[str, str], ...]:
    """Return the trailing metadata of a call: the ids of the request and of the decision, if there is one."""
    request = (_REQUEST_ID, request_id or decision_id)
    return (request, (_DECISION_ID, decision_id)) if decision_id else (request,)


def _bounded(details: str) -> str:
    """Return the beginning of details that is small enough for metadata. The record has the whole text."""
    text = details.encode(errors="backslashreplace")
    return details if len(text) <= _DETAILS_BYTES else text[:_DETAILS_BYTES].decode(errors="ignore") + "..."


def as_bytes(message: Message | bytes) -> bytes:
    """Return the bytes of a response message."""
    return message if isinstance(message, bytes) else message.SerializeToString()


def _status(error: errors.PdpError) -> grpc.StatusCode:
    return next((status for kind, status in STATUS if isinstance(error, kind)), grpc.StatusCode.INTERNAL)


class Arrivals:
    """Calls that wait for their message: `most` of them, each for `seconds`."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most = most
        self._seconds = seconds
        self._waiting: dict[Any, float] = {}
        """Deadlines by the context of the call, in the order of both."""
        self._sweeper: asyncio.TimerHandle | None = None
        self._ends: set[asyncio.Task[None]] = set()

    async def receive(self, context: Any) -> bytes:
        """Return the request message of a call; raise InvalidArgument if the call ends without one.

        A call that waits too long gets its status here; then `AbortError` is raised.
        """
        loop = asyncio.get_running_loop()
        if len(self._waiting) >= self._most:
            self._end(next(iter(self._waiting)), grpc.StatusCode.RESOURCE_EXHAUSTED, "overloaded: too many calls wait")
        if self._sweeper is None:
            self._sweeper = loop.call_later(_SWEEP_SECONDS, self._sweep)
        self._waiting[context] = loop.time() + self._seconds
        try:
            message = await context.read()
        finally:
            self._waiting.pop(context, None)
        if message is grpc.aio.EOF:
            raise InvalidArgument("the call has no message")
        body: bytes = message
        return body

    def _sweep(self) -> None:
        """End the calls that wait too long, again and again while calls wait."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._waiting and next(iter(self._waiting.values())) < now:
            status = grpc.StatusCode.UNAVAILABLE
            self._end(next(iter(self._waiting)), status, "unavailable: the message did not arrive in time")
        self._sweeper = loop.call_later(_SWEEP_SECONDS, self._sweep) if self._waiting else None

    def _end(self, context: Any, status: grpc.StatusCode, details: str) -> None:
        del self._waiting[context]
        task = asyncio.get_running_loop().create_task(_abort(context, status, details))
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)


async def _abort(context: Any, status: grpc.StatusCode, details: str) -> None:
    """Send the status of a call while its handler reads. The handler then gets the same AbortError.

    The read is never cancelled: gRPC would keep its memory, because the core may still write to it.
    """
    try:
        await context.abort(status, details)
    except AbortError as error:
        error.with_traceback(None)
    except (grpc.aio.UsageError, grpc.aio.InternalError):
        return  # the call has just ended by itself
