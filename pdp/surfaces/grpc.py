"""gRPC: `pdp.v1.DecisionService` with health and reflection. Only maps messages and errors; holds no policy."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from pdp import errors
from pdp.config.settings import Limits
from pdp.decision.codec import MAX_EXPLAINED, BatchBuilder, bound_checks
from pdp.decision.service import Pdp
from pdp.identity.tls import Certificates
from pdp.identity.tokens import MAX_TOKEN
from pdp.management.service import Management
from pdp.model.checks import Batch, Caller, Decision, Rejected, Trace
from pdp.surfaces.calls import Calls
from pdp.surfaces.grpc_grants import SERVICE as GRANTS
from pdp.surfaces.grpc_grants import list_objects
from pdp.surfaces.messages import (
    change_response,
    load_response,
    parse,
    read_change,
    read_check,
    read_consistency,
    read_load,
)
from pdp.views.loads import ViewSecurity
from pdp.wire import decision_pb2 as wire

# what cannot be listened on is said once, by us
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
SERVICE: Final = "pdp.v1.DecisionService"
SERVICES: Final = (SERVICE, GRANTS)


class DecisionService:
    """The service on the wire."""

    def __init__(self, pdp: Pdp, views: ViewSecurity, management: Management, limits: Limits) -> None:
        self._pdp = pdp
        self._views = views
        self._management = management
        self._limits = limits

    def handlers(self, calls: Calls) -> grpc.GenericRpcHandler:
        """The methods."""
        return calls.service(
            SERVICE,
            {
                "Check": self.check,
                "CheckLoad": self.check_load,
                "CheckViewCommit": self.check_view_commit,
                "List": partial(list_objects, self._management),
            },
        )

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

    def _batch(self, request: wire.CheckRequest, caller: Caller) -> Batch:
        limit = self._limits.max_checks
        bound_checks(len(request.checks), min(limit, MAX_EXPLAINED) if request.explain else limit)
        draft = BatchBuilder(caller)
        for check in request.checks:
            try:
                draft.put(read_check(check))
            except errors.InvalidArgument as error:
                draft.reject(Rejected(error.code, str(error)))
        return draft.batch("grpc", read_consistency(request.consistency), request.explain)


class GrpcServer:
    """The listening server. `start` returns the port; a port in use is a ConfigError."""

    def __init__(
        self, services: Sequence[grpc.GenericRpcHandler], limits: Limits, certificates: Certificates | None = None
    ) -> None:
        self._certificates = certificates
        self._health = health.aio.HealthServicer()
        self._server = grpc.aio.server(
            maximum_concurrent_rpcs=limits.max_in_flight + 64,  # a little above what admission turns away by itself
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
        self._server.add_generic_rpc_handlers(services)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection((*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server)

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
        for service in ("", *SERVICES):
            await self._health.set(service, status)

    async def stop(self, grace: float) -> None:
        """Refuse new calls, wait for those in flight."""
        await self._server.stop(grace)


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
