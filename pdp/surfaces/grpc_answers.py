"""Answers of checks as gRPC messages: the bytes of a CheckResponse."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import compress
from typing import Final

from pdp.decision.bodies import AnswerForm
from pdp.decision.codec import cached_positions, permitted_positions, raised_positions, rejected_positions
from pdp.model.question import DEFAULT_DENY, Answer, Decision, Reason, Trace
from pdp.wire import decision_pb2 as wire

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
