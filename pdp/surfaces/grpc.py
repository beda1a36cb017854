"""gRPC: `pdp.v1.DecisionService` with health and reflection. Only maps messages and errors; holds no policy."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable
from typing import Any, Final

import grpc
import msgspec
import structlog
from google.protobuf.json_format import MessageToDict, SerializeToJsonError
from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import Struct
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from pdp import errors
from pdp.codec import (
    MAX_EXPLAINED,
    ApiBody,
    CheckBody,
    ContextBody,
    Draft,
    PrincipalBody,
    ResourceBody,
    bound_checks,
)
from pdp.config import Limits
from pdp.identity import Callers
from pdp.model import AtLeast, Batch, Caller, Decision, Rejected, Trace
from pdp.service import Pdp
from pdp.surfaces.admission import Admission
from pdp.surfaces.peers import grpc_peer
from pdp.tls import Certificates
from pdp.tokens import MAX_TOKEN
from pdp.wire import decision_pb2 as wire

# what cannot be listened on is said once, by us
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
SERVICE: Final = "pdp.v1.DecisionService"
log = structlog.get_logger()

STATUS: Final[tuple[tuple[type[errors.PdpError], grpc.StatusCode], ...]] = (
    (errors.InvalidArgument, grpc.StatusCode.INVALID_ARGUMENT),
    (errors.Unauthenticated, grpc.StatusCode.UNAUTHENTICATED),
    (errors.Forbidden, grpc.StatusCode.PERMISSION_DENIED),
    (errors.AssertionNotAllowed, grpc.StatusCode.PERMISSION_DENIED),
    (errors.PayloadTooLarge, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (errors.Overloaded, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (errors.Unavailable, grpc.StatusCode.UNAVAILABLE),
)
"""The error table: exception to status; the details start with the stable code."""


class DecisionService:
    """The service on the wire."""

    def __init__(self, pdp: Pdp, callers: Callers, admission: Admission, limits: Limits) -> None:
        self._pdp = pdp
        self._callers = callers
        self._admission = admission
        self._limits = limits

    def handlers(self) -> grpc.GenericRpcHandler:
        """The methods. They take bytes, so that bytes that are no message are an error of ours, too."""
        check: Any = grpc.unary_unary_rpc_method_handler(
            self.check, response_serializer=wire.CheckResponse.SerializeToString
        )
        return grpc.method_handlers_generic_handler(SERVICE, {"Check": check})

    async def check(self, body: bytes, context: Any) -> wire.CheckResponse:
        """Decide a batch."""
        try:
            caller = await self._callers.of(grpc_peer(context))
            with self._admission.enter(caller, len(body)):
                async with asyncio.timeout(self._limits.request_timeout_seconds):
                    answer = await self._pdp.check(self._batch(_parse(body), caller))
        except errors.PdpError as error:
            return await self._abort(context, _status(error), f"{error.code}: {error}")
        except TimeoutError:
            return await self._abort(context, grpc.StatusCode.UNAVAILABLE, "unavailable: not answered in time")
        except Exception:
            log.exception("request failed", surface="grpc")
            return await self._abort(context, grpc.StatusCode.INTERNAL, "internal: see the service's log")
        self._pdp.telemetry.answered("grpc", "OK")
        decisions = [_decision(answer.decision(at)) for at in range(len(answer.allowed))]
        return wire.CheckResponse(decisions=decisions, revision=answer.revision, decision_id=answer.id)

    def _batch(self, request: wire.CheckRequest, caller: Caller) -> Batch:
        limit = self._limits.max_checks
        bound_checks(len(request.checks), min(limit, MAX_EXPLAINED) if request.explain else limit)
        draft = Draft(caller)
        for check in request.checks:
            try:
                draft.put(_check(check))
            except errors.InvalidArgument as error:
                draft.reject(Rejected(error.code, str(error)))
        return draft.batch("grpc", _consistency(request.consistency), request.explain)

    async def _abort(self, context: Any, code: grpc.StatusCode, details: str) -> wire.CheckResponse:
        self._pdp.telemetry.answered("grpc", code.name)
        await context.abort(code, details)
        raise AssertionError("abort raises")


class GrpcServer:
    """The listening server. `start` returns the port; a port in use is a ConfigError."""

    def __init__(self, service: DecisionService, limits: Limits, certificates: Certificates | None = None) -> None:
        self._certificates = certificates
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
                ("grpc.max_metadata_size", 2 * MAX_TOKEN),
            ),
        )
        self._server.add_generic_rpc_handlers((service.handlers(),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server)

    async def start(self, address: str) -> int:
        """Listen; raises ConfigError where the address cannot be had."""
        try:
            port = self._listen(address)
        except RuntimeError:
            port = 0
        if not port:
            raise errors.ConfigError(f"cannot listen on `{address}` (server.grpc): is it in use?")
        await self._server.start()
        return port

    def _listen(self, address: str) -> int:
        found = self._certificates
        if found is None:
            return self._server.add_insecure_port(address)
        demanded = found.client_ca is not None  # gRPC knows no certificate that a client may leave out
        credentials = grpc.ssl_server_credentials([(found.key, found.cert)], found.client_ca, demanded)
        return self._server.add_secure_port(address, credentials)

    async def set_ready(self, ready: bool) -> None:
        """What grpc.health.v1 answers."""
        serving = health_pb2.HealthCheckResponse.SERVING
        status = serving if ready else health_pb2.HealthCheckResponse.NOT_SERVING
        for service in ("", SERVICE):
            await self._health.set(service, status)

    async def stop(self, grace: float) -> None:
        """Refuse new calls, wait for those in flight."""
        await self._server.stop(grace)


def _check(check: wire.Check) -> CheckBody:
    context = check.context
    return CheckBody(
        check.action,
        _resource(check.resource),
        _principal(check.principal) if check.HasField("principal") else msgspec.UNSET,
        check.delegated,
        check.acting_role if check.HasField("acting_role") else msgspec.UNSET,
        ContextBody(
            ApiBody(context.api.name, context.api.version),
            tuple(context.actions),
            _struct(context.arguments),
            context.query_id,
        ),
    )


def _principal(principal: wire.Principal) -> PrincipalBody:
    return PrincipalBody(principal.id, tuple(principal.roles), tuple(principal.groups), _struct(principal.attributes))


def _resource(resource: wire.Resource) -> ResourceBody:
    return ResourceBody(
        resource.type,
        resource.warehouse,
        tuple(resource.path),
        resource.name,
        resource.ref or None,
        resource.ref_type,
        resource.content_type,
        _struct(resource.properties) or None,
        resource.id,
        resource.reference,
    )


def _parse(body: bytes) -> wire.CheckRequest:
    try:
        return wire.CheckRequest.FromString(body)
    except DecodeError:
        raise errors.InvalidArgument("the bytes are no CheckRequest") from None


def _struct(struct: Struct) -> dict[str, Any]:
    if not struct.fields:
        return {}
    try:
        found = MessageToDict(struct)
        json.dumps(found, allow_nan=False)
    except (ValueError, SerializeToJsonError):
        raise errors.InvalidArgument("a number is not finite") from None
    return found


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


def _status(error: errors.PdpError) -> grpc.StatusCode:
    return next((status for kind, status in STATUS if isinstance(error, kind)), grpc.StatusCode.INTERNAL)
