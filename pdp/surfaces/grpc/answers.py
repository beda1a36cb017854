"""Method Check of gRPC, and its answers: the bytes of a CheckResponse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from itertools import compress
from typing import Final

import grpc

from pdp.config.server import LimitSettings
from pdp.decision.bodies import AnswerForm
from pdp.decision.codec import (
    bound_checks,
    cached_positions,
    call_limit,
    permitted_positions,
    raised_positions,
    rejected_positions,
)
from pdp.decision.scopes import ScopeService
from pdp.decision.service import Pdp
from pdp.decision.turns import LONGEST_IMMEDIATE, converted, run_aside
from pdp.errors import InvalidArgument
from pdp.identity.evidence import admit
from pdp.management.service import Management
from pdp.model.answer import DEFAULT_DENY, Answer, Decision, Reason, Trace
from pdp.model.question import Batch, BatchRequest, Caller, Consistency
from pdp.row_access.service import StatementService
from pdp.surfaces.grpc.checks import SHORT, is_dense, read_checks, read_single
from pdp.surfaces.grpc.handlers import GrpcHandlers, GrpcMethod, RpcAnswer
from pdp.surfaces.grpc.management import check_scopes, list_objects, rewrite, row_filter
from pdp.surfaces.grpc.messages import (
    change_response,
    load_response,
    parse,
    read_answer_form,
    read_change,
    read_consistency,
    read_load,
)
from pdp.surfaces.wire import decision_pb2 as wire
from pdp.views.loads import ViewSecurity


class DecisionService:
    """Methods of the decision service. Each maps a request message to a call and the result to a response message."""

    name: Final = "pdp.v1.DecisionService"

    def __init__(
        self, pdp: Pdp, views: ViewSecurity, management: Management, rewriting: StatementService, scopes: ScopeService,
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
        if is_dense(body):
            batch, form = await run_aside(self._admit, body, caller)
        else:
            batch, form = await converted(body, self._admit, caller)
        answer = (await self._pdp.decide(batch)).answer
        return RpcAnswer(check_response(answer, form), answer.id)

    def check_now(self, body: bytes, caller: Caller) -> RpcAnswer | None:
        """Decide a batch of checks without waiting; return None if that is not possible."""
        if len(body) > LONGEST_IMMEDIATE or is_dense(body):
            return None
        batch, form = self._admit(body, caller)
        result = self._pdp.decide_now(batch)
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

    def _admit(self, body: bytes, caller: Caller) -> tuple[Batch, AnswerForm]:
        request, form = self._decode(body)
        return admit(request, caller), form

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
        if not builder.size:  # protobuf cannot tell an empty list from none
            raise InvalidArgument("`checks` is missing or empty")
        return builder.request(self._surface, _consistency(request), explain=request.explain), form


def _form(request: wire.CheckRequest, limit: int) -> tuple[AnswerForm, int]:
    """Return the form of the answer, and the most checks of the call; raise InvalidArgument."""
    if not request.answer and not request.explain:
        return "decisions", limit
    form = read_answer_form(request.answer)
    return form, call_limit(limit, explain=request.explain, form=form)


def _consistency(request: wire.CheckRequest) -> Consistency:
    return read_consistency(request.consistency) if request.HasField("consistency") else "minimize_latency"


_LONGEST_REASON: Final = 512
"""Characters of a reason whose encoded decision is remembered. A reason may hold a name of the request."""


def _decision_field(allowed: int, reason: Reason | None) -> bytes:
    """Return the encoded field `decisions` of a decision without errors and traces."""
    long = reason is not None and len(reason) > _LONGEST_REASON
    return (_encode_field if long else _encode_field_once)(allowed, reason)


class _DecisionFields(dict[tuple[int, Reason | None], bytes]):
    """Encoded decisions of one answer by (allowed, reason)."""

    def __missing__(self, key: tuple[int, Reason | None]) -> bytes:
        field = self[key] = _decision_field(*key)
        return field


class _ReasonFields(dict[Reason | None, bytes]):
    """Encoded decisions of one answer by the reason of a permit. None stands for a denial without a reason."""

    def __missing__(self, reason: Reason | None) -> bytes:
        field = self[reason] = _decision_field(reason is not None, reason)
        return field


@lru_cache(maxsize=16)
def _revision_field(revision: str) -> bytes:
    return wire.CheckResponse(revision=revision).SerializeToString()


@lru_cache(maxsize=1024)  # rules and grants give the same few reasons again and again
def _encode_field_once(allowed: int, reason: Reason | None) -> bytes:
    return _encode_field(allowed, reason)


def _encode_field(allowed: int, reason: Reason | None) -> bytes:
    decision = wire.Decision(allowed=bool(allowed), by=(reason or DEFAULT_DENY,))
    return wire.CheckResponse(decisions=(decision,)).SerializeToString()


def check_response(answer: Answer, form: AnswerForm) -> bytes:
    """Return the response to checks. Each distinct decision is encoded once: messages join by concatenation."""
    if form == "indices":
        return _indices(answer).SerializeToString()
    tail = _revision_field(answer.revision) + wire.CheckResponse(decision_id=answer.id).SerializeToString()
    if len(answer.allowed) == 1 and not (answer.rejected or answer.errors or answer.traces or answer.cached):
        return _decision_field(answer.allowed[0], answer.by[0]) + tail
    fields = _decision_fields(answer.allowed, answer.by)
    for at in {*answer.rejected, *answer.errors, *answer.traces, *cached_positions(answer)}:
        fields[at] = wire.CheckResponse(decisions=(_decision(answer.decision(at)),)).SerializeToString()
    fields.append(tail)
    return b"".join(fields)


def _decision_fields(allowed: bytes, by: Sequence[Reason | None]) -> list[bytes]:
    """Return the encoded decisions of an answer, without errors and traces."""
    # If no permit lacks a reason, and as many reasons are missing as there are denials, then these are the denials.
    # This is usual, and then the reason alone tells the decision.
    if by.count(None) == allowed.count(0) and None not in compress(by, allowed):
        return list(map(_ReasonFields().__getitem__, by))
    return list(map(_DecisionFields().__getitem__, zip(allowed, by, strict=True)))


def _indices(answer: Answer) -> wire.CheckResponse:
    return wire.CheckResponse(
        allowed=permitted_positions(answer),
        size=len(answer.allowed),
        rejected=[
            wire.RejectedPositions(at=at, error=wire.Error(code=code, message=message))
            for (code, message), at in rejected_positions(answer).items()
        ],
        errors=[wire.RaisedPositions(at=at, errors=errors) for errors, at in raised_positions(answer).items()],
        revision=answer.revision,
        decision_id=answer.id,
    )


def _decision(decision: Decision) -> wire.Decision:
    message = wire.Decision(allowed=decision.allowed, by=decision.by, errors=decision.errors, cached=decision.cached)
    if decision.trace:
        message.trace.CopyFrom(_trace(decision.trace))
    if decision.error:
        message.error.CopyFrom(wire.Error(code=decision.error.code, message=decision.error.message))
    return message


def _trace(trace: Trace) -> wire.Trace:
    return wire.Trace(what=trace.what, outcome=trace.outcome, why=trace.why, parts=map(_trace, trace.parts))
