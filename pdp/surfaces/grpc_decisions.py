"""gRPC for decisions: the methods of `pdp.v1.DecisionService`. Only maps messages; holds no policy."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

import grpc

from pdp.config.server import LimitSettings
from pdp.decision.bodies import AnswerForm
from pdp.decision.codec import bound_checks, call_limit
from pdp.decision.scopes import ScopeService
from pdp.decision.service import Pdp
from pdp.decision.turns import LONGEST_IMMEDIATE, converted, run_aside
from pdp.identity.evidence import admit
from pdp.management.service import Management
from pdp.model.question import BatchRequest, Caller, Consistency
from pdp.row_access.service import SqlRewriting
from pdp.surfaces.grpc_answers import check_response
from pdp.surfaces.grpc_checks import SHORT, is_dense, read_checks, read_single
from pdp.surfaces.grpc_handlers import GrpcHandlers, GrpcMethod, RpcAnswer
from pdp.surfaces.grpc_management import list_objects
from pdp.surfaces.grpc_messages import (
    change_response,
    load_response,
    parse,
    read_answer_form,
    read_change,
    read_consistency,
    read_load,
)
from pdp.surfaces.grpc_rewriting import rewrite, row_filter
from pdp.surfaces.grpc_scopes import check_scopes
from pdp.views.loads import ViewSecurity
from pdp.wire import decision_pb2 as wire


class DecisionService:
    """Methods of the decision service. Each maps a request message to a call and the result to a response message."""

    name: Final = "pdp.v1.DecisionService"

    def __init__(
        self, pdp: Pdp, views: ViewSecurity, management: Management, rewriting: SqlRewriting, scopes: ScopeService,
        limits: LimitSettings, surface: str = "grpc",
    ) -> None:  # fmt: skip
        self._surface = surface
        self._pdp = pdp
        self._views = views
        self._management = management
        self._rewriting = rewriting
        self._scopes = scopes
        self._limits = limits

    @property
    def methods(self) -> Mapping[str, GrpcMethod]:
        """Return the methods by name."""
        return {
            "Check": self.check,
            "CheckLoad": self.check_load,
            "CheckViewCommit": self.check_view_commit,
            "CheckScopes": partial(check_scopes, self._scopes, self._surface),
            "List": partial(list_objects, self._management),
            "RowFilter": partial(row_filter, self._rewriting, self._surface),
            "Rewrite": partial(rewrite, self._rewriting, self._surface),
        }

    def handler(self, handlers: GrpcHandlers) -> grpc.GenericRpcHandler:
        """Return the handler of all methods."""
        return handlers.service(self.name, self.methods, {"Check": self.check_now})

    async def check(self, body: bytes, caller: Caller) -> RpcAnswer:
        """Decide a batch of checks."""
        decoded = run_aside(self._decode, body) if is_dense(body) else converted(body, self._decode)
        request, form = await decoded
        answer = (await self._pdp.decide(admit(request, caller))).answer
        return RpcAnswer(check_response(answer, form), answer.id)

    def check_now(self, body: bytes, caller: Caller) -> RpcAnswer | None:
        """Decide a batch of checks without waiting; return None if that is not possible."""
        if len(body) > LONGEST_IMMEDIATE or is_dense(body):
            return None
        request, form = self._decode(body)
        result = self._pdp.decide_now(admit(request, caller))
        return RpcAnswer(check_response(result.answer, form), result.answer.id) if result else None

    async def check_load(self, body: bytes, caller: Caller) -> RpcAnswer:
        """Decide a load through a chain of views."""
        request = await converted(body, lambda body: read_load(parse(body, wire.CheckLoadRequest)))
        result = await self._views.load(request, caller, self._surface)
        return RpcAnswer(load_response(result), result.id)

    async def check_view_commit(self, body: bytes, caller: Caller) -> RpcAnswer:
        """Decide a view commit."""
        request = await converted(body, lambda body: read_change(parse(body, wire.CheckViewCommitRequest)))
        result = await self._views.change(request, caller, self._surface)
        return RpcAnswer(change_response(result), result.id)

    def _decode(self, body: bytes) -> tuple[BatchRequest, AnswerForm]:
        limit = self._limits.max_checks
        if len(body) <= SHORT and limit:
            request = parse(body, wire.CheckRequest)
            check = read_single(request)
            if check:
                form = _form(request, limit)[0]
                return BatchRequest(self._surface, 1, (check,), {}, (), _consistency(request), request.explain), form
        builder, request = read_checks(body, limit)
        form, limit = _form(request, limit)
        bound_checks(builder.size, limit)
        return builder.request(self._surface, _consistency(request), explain=request.explain), form


def _form(request: wire.CheckRequest, limit: int) -> tuple[AnswerForm, int]:
    """Return the form of the answer, and the most checks of the call; raise InvalidArgument."""
    if not request.answer and not request.explain:
        return "decisions", limit
    form = read_answer_form(request.answer)
    return form, call_limit(limit, explain=request.explain, form=form)


def _consistency(request: wire.CheckRequest) -> Consistency:
    return read_consistency(request.consistency) if request.HasField("consistency") else "minimize_latency"
