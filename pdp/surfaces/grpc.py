"""gRPC: `pdp.v1.DecisionService` with health and reflection. Only maps messages and errors; holds no policy."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import grpc
import structlog
from google.protobuf.message import Message
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from pdp import errors
from pdp.codec import MAX_EXPLAINED, Draft, bound_checks
from pdp.config import Limits
from pdp.identity import Callers
from pdp.loads import ViewSecurity
from pdp.model import AtLeast, Batch, Caller, Decision, Rejected, Trace
from pdp.service import Pdp
from pdp.surfaces.admission import Admission
from pdp.surfaces.messages import change_response, load_response, parse, read_change, read_check, read_load
from pdp.wire import decision_pb2 as wire

# what cannot be listened on is said once, by us
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
SERVICE: Final = "pdp.v1.DecisionService"
log = structlog.get_logger()

STATUS: Final[tuple[tuple[type[errors.PdpError], grpc.StatusCode], ...]] = (
    (errors.InvalidArgument, grpc.StatusCode.INVALID_ARGUMENT),
    (errors.Unauthenticated, grpc.StatusCode.UNAUTHENTICATED),
    (errors.Forbidden, grpc.StatusCode.PERMISSION_DENIED),
    (errors.PayloadTooLarge, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (errors.Overloaded, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (errors.Unavailable, grpc.StatusCode.UNAVAILABLE),
)
"""The error table: exception to status; the details start with the stable code."""


class DecisionService:
    """The service on the wire."""

    def __init__(self, pdp: Pdp, views: ViewSecurity, callers: Callers, admission: Admission, limits: Limits) -> None:
        self._pdp = pdp
        self._views = views
        self._callers = callers
        self._admission = admission
        self._limits = limits

    def handlers(self) -> grpc.GenericRpcHandler:
        """The methods. They take bytes, so that bytes that are no message are an error of ours, too."""
        methods: dict[str, Any] = {
            "Check": self._method(self.check),
            "CheckLoad": self._method(self.check_load),
            "CheckViewCommit": self._method(self.check_view_commit),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def check(self, body: bytes, caller: Caller) -> wire.CheckResponse:
        """Decide a batch."""
        answer = await self._pdp.check(self._batch(parse(body, wire.CheckRequest), caller))
        decisions = [_decision(answer.decision(at)) for at in range(len(answer.allowed))]
        return wire.CheckResponse(decisions=decisions, revision=answer.revision, decision_id=answer.id)

    async def check_load(self, body: bytes, caller: Caller) -> wire.CheckLoadResponse:
        """Decide a load through a chain of views."""
        request = read_load(parse(body, wire.CheckLoadRequest))
        return load_response(await self._views.load(request, caller, "grpc"))

    async def check_view_commit(self, body: bytes, caller: Caller) -> wire.CheckViewCommitResponse:
        """Decide a change of a view."""
        request = read_change(parse(body, wire.CheckViewCommitRequest))
        return change_response(await self._views.change(request, caller, "grpc"))

    def _method(self, answer: Callable[[bytes, Caller], Awaitable[Message]]) -> Any:
        """A method with limits, caller, deadline and the error table around it."""

        async def run(body: bytes, context: Any) -> Message:
            try:
                caller = self._callers.of_peer(_host(context.peer()))
                with self._admission.enter(caller, len(body)):
                    async with asyncio.timeout(self._limits.request_timeout_seconds):
                        response = await answer(body, caller)
            except errors.PdpError as error:
                return await self._abort(context, _status(error), f"{error.code}: {error}")
            except TimeoutError:
                return await self._abort(context, grpc.StatusCode.UNAVAILABLE, "unavailable: not answered in time")
            except Exception:
                log.exception("request failed", surface="grpc")
                return await self._abort(context, grpc.StatusCode.INTERNAL, "internal: see the service's log")
            self._pdp.telemetry.answered("grpc", "OK")
            return response

        return grpc.unary_unary_rpc_method_handler(run, response_serializer=_serialize)

    def _batch(self, request: wire.CheckRequest, caller: Caller) -> Batch:
        limit = self._limits.max_checks
        bound_checks(len(request.checks), min(limit, MAX_EXPLAINED) if request.explain else limit)
        draft = Draft(caller)
        for check in request.checks:
            try:
                draft.put(read_check(check))
            except errors.InvalidArgument as error:
                draft.reject(Rejected(error.code, str(error)))
        return draft.batch("grpc", _consistency(request.consistency), request.explain)

    async def _abort(self, context: Any, code: grpc.StatusCode, details: str) -> Message:
        self._pdp.telemetry.answered("grpc", code.name)
        await context.abort(code, details)
        raise AssertionError("abort raises")


class GrpcServer:
    """The listening server. `start` returns the port; a port in use is a ConfigError."""

    def __init__(self, service: DecisionService, limits: Limits) -> None:
        self._health = health.aio.HealthServicer()
        self._server = grpc.aio.server(
            options=(
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", limits.max_body_bytes),
                ("grpc.max_send_message_length", -1),
                ("grpc.max_concurrent_streams", min(limits.max_in_flight, 1024)),
                ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
                ("grpc.http2.max_ping_strikes", 2),
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.max_metadata_size", 16_384),
            ),
        )
        self._server.add_generic_rpc_handlers((service.handlers(),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server)

    async def start(self, address: str) -> int:
        """Listen; raises ConfigError where the address cannot be had."""
        try:
            port = self._server.add_insecure_port(address)
        except RuntimeError:
            port = 0
        if not port:
            raise errors.ConfigError(f"cannot listen on `{address}` (server.grpc): is it in use?")
        await self._server.start()
        return port

    async def set_ready(self, ready: bool) -> None:
        """What grpc.health.v1 answers."""
        serving = health_pb2.HealthCheckResponse.SERVING
        status = serving if ready else health_pb2.HealthCheckResponse.NOT_SERVING
        for service in ("", SERVICE):
            await self._health.set(service, status)

    async def stop(self, grace: float) -> None:
        """Refuse new calls, wait for those in flight."""
        await self._server.stop(grace)


def _host(peer: str) -> str:
    """The host of gRPC's peer string, such as `ipv4:127.0.0.1:4711` or `ipv6:%5B::1%5D:4711`."""
    family, _, rest = peer.partition(":")
    if family not in ("ipv4", "ipv6"):
        return peer
    return rest.rpartition(":")[0].replace("%5B", "").replace("%5D", "").strip("[]")


def _consistency(consistency: wire.Consistency) -> str | AtLeast:
    chosen = consistency.WhichOneof("requirement")
    if chosen == "at_least":
        return AtLeast(consistency.at_least)
    return chosen or "minimize_latency"


def _decision(decision: Decision) -> wire.Decision:
    message = wire.Decision(allowed=decision.allowed, by=decision.by, errors=decision.errors, cached=decision.cached)
    if decision.trace:
        message.trace.CopyFrom(_trace(decision.trace))
    if decision.error:
        message.error.CopyFrom(wire.Error(code=decision.error.code, message=decision.error.message))
    return message


def _trace(trace: Trace) -> wire.Trace:
    parts: Iterable[wire.Trace] = map(_trace, trace.parts)
    return wire.Trace(what=trace.what, outcome=trace.outcome, why=trace.why, parts=parts)


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()


def _status(error: errors.PdpError) -> grpc.StatusCode:
    return next((status for kind, status in STATUS if isinstance(error, kind)), grpc.StatusCode.INTERNAL)
