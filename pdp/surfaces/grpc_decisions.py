"""gRPC for decisions: the methods of `pdp.v1.DecisionService`. Only maps messages; holds no policy."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

import grpc

from pdp import errors
from pdp.config.server import LimitSettings
from pdp.decision.batch_builder import BatchBuilder
from pdp.decision.codec import MAX_EXPLAINED, bound_checks
from pdp.decision.service import Pdp
from pdp.identity.evidence import admit
from pdp.management.service import Management
from pdp.model.checks import BatchRequest, Caller, Decision, Rejection, Trace
from pdp.surfaces.grpc_handlers import GrpcHandlers
from pdp.surfaces.grpc_management import list_objects
from pdp.surfaces.grpc_messages import (
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


class DecisionService:
    """Methods of the decision service. Each maps a request message to a call and the result to a response message."""

    name: Final = "pdp.v1.DecisionService"

    def __init__(self, pdp: Pdp, views: ViewSecurity, management: Management, limits: LimitSettings) -> None:
        self._pdp = pdp
        self._views = views
        self._management = management
        self._limits = limits

    def handler(self, handlers: GrpcHandlers) -> grpc.GenericRpcHandler:
        """Return the handler of all methods."""
        return handlers.service(
            self.name,
            {
                "Check": self.check,
                "CheckLoad": self.check_load,
                "CheckViewCommit": self.check_view_commit,
                "List": partial(list_objects, self._management),
            },
        )

    async def check(self, body: bytes, caller: Caller) -> wire.CheckResponse:
        """Decide a batch of checks."""
        answer = await self._pdp.check(admit(self._decode(parse(body, wire.CheckRequest)), caller))
        decisions = [_decision(answer.decision(at)) for at in range(len(answer.allowed))]
        return wire.CheckResponse(decisions=decisions, revision=answer.revision, decision_id=answer.id)

    async def check_load(self, body: bytes, caller: Caller) -> wire.CheckLoadResponse:
        """Decide a load through a chain of views."""
        request = read_load(parse(body, wire.CheckLoadRequest))
        return load_response(await self._views.load(request, caller, "grpc"))

    async def check_view_commit(self, body: bytes, caller: Caller) -> wire.CheckViewCommitResponse:
        """Decide a view commit."""
        request = read_change(parse(body, wire.CheckViewCommitRequest))
        return change_response(await self._views.change(request, caller, "grpc"))

    def _decode(self, request: wire.CheckRequest) -> BatchRequest:
        limit = self._limits.max_checks
        bound_checks(len(request.checks), min(limit, MAX_EXPLAINED) if request.explain else limit)
        builder = BatchBuilder()
        for check in request.checks:
            try:
                builder.add_body(read_check(check))
            except errors.InvalidArgument as error:
                builder.reject(Rejection(error.code, str(error)))
        consistency = read_consistency(request.consistency)
        return builder.request("grpc", consistency, explain=request.explain)


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
