"""Native JSON form of answers, for HTTP, the command line and case files."""

from __future__ import annotations

from itertools import compress
from typing import Any, Final

import msgspec
from msgspec import UNSET

from pdp.decision.bodies import AnswerForm, ErrorBody
from pdp.model.question import DEFAULT_DENY, Answer, Decision, Reason, Rejection


class DecisionBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """Decision as written in JSON. `allowed` and `by` are always present."""

    allowed: bool
    by: tuple[str, ...]
    errors: tuple[str, ...] | msgspec.UnsetType = UNSET
    cached: bool | msgspec.UnsetType = UNSET
    trace: Any = UNSET
    error: ErrorBody | msgspec.UnsetType = UNSET


class RejectedBody(msgspec.Struct, frozen=True):
    """Positions that were rejected for the same reason."""

    at: list[int]
    error: ErrorBody


class RaisedBody(msgspec.Struct, frozen=True):
    """Denied positions at which the same rules raised."""

    at: list[int]
    errors: tuple[str, ...]


class IndicesBody(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Answer in indices: the permitted positions among `size`. Every position that is not in `allowed` is denied."""

    allowed: list[int]
    size: int
    revision: str
    decision_id: str
    rejected: list[RejectedBody] = []
    errors: list[RaisedBody] = []


_MAX_TEXTS: Final = 4096
_LONGEST_TEXT: Final = 512
"""Encoded decisions that are remembered, and bytes of a remembered one."""


class _DecisionTexts(dict[tuple[int, Reason | None], bytes]):
    """Encoded decisions without errors and traces, by (allowed, reason). Each distinct decision is encoded once."""

    def __init__(self, *, cached: bool) -> None:
        super().__init__()
        self._cached = cached

    def __missing__(self, key: tuple[int, Reason | None]) -> bytes:
        allowed, reason = key
        text = msgspec.json.encode(DecisionBody(bool(allowed), (reason or DEFAULT_DENY,), (), self._cached))
        if len(self) >= _MAX_TEXTS:
            self.clear()
        if len(text) <= _LONGEST_TEXT:
            self[key] = text
        return text


_texts: Final = _DecisionTexts(cached=False)
_cached_texts: Final = _DecisionTexts(cached=True)
_encode: Final = msgspec.json.Encoder().encode


def decision_body(decision: Decision) -> DecisionBody:
    """Return a decision in its JSON form."""
    if decision.error:
        return DecisionBody(False, decision.by, error=_error(decision.error))
    trace = UNSET if decision.trace is None else decision.trace
    return DecisionBody(decision.allowed, decision.by, decision.errors, decision.cached, trace)


def encode_answer(answer: Answer, form: AnswerForm = "decisions") -> bytes:
    """Return the answer of POST /v1/check as JSON."""
    if form == "indices":
        return msgspec.json.encode(indices_body(answer))
    allowed, by = answer.allowed, answer.by
    if len(allowed) == 1 and not (answer.rejected or answer.errors or answer.traces or answer.cached):
        return b'{"decisions":[%b],"revision":%b,"decisionId":%b}' % (
            _texts[allowed[0], by[0]],
            _encode(answer.revision),
            _encode(answer.id),
        )
    texts = list(map(_texts.__getitem__, zip(allowed, by, strict=True)))
    for at in cached_positions(answer):
        texts[at] = _cached_texts[allowed[at], by[at]]
    for at in {*answer.rejected, *answer.errors, *answer.traces}:
        texts[at] = msgspec.json.encode(decision_body(answer.decision(at)))
    tail = msgspec.json.encode({"revision": answer.revision, "decisionId": answer.id})
    return b"".join((b'{"decisions":[', b",".join(texts), b"],", tail[1:]))


def cached_positions(answer: Answer) -> list[int]:
    """Return the positions whose decision rests on a cached verdict, in order."""
    return list(compress(range(len(answer.cached)), answer.cached))


def permitted_positions(answer: Answer) -> list[int]:
    """Return the permitted positions of an answer, in order. A rejected position is never among them."""
    positions = list(compress(range(len(answer.allowed)), answer.allowed))
    return [at for at in positions if at not in answer.rejected] if answer.rejected else positions


def rejected_positions(answer: Answer) -> dict[tuple[str, str], list[int]]:
    """Return the rejected positions by the code and the message of the rejection."""
    found: dict[tuple[str, str], list[int]] = {}
    for at, rejection in sorted(answer.rejected.items()):
        found.setdefault((rejection.code, rejection.message), []).append(at)
    return found


def raised_positions(answer: Answer) -> dict[tuple[str, ...], list[int]]:
    """Return the denied positions by the ids of the rules that raised."""
    found: dict[tuple[str, ...], list[int]] = {}
    for at, errors in sorted(answer.errors.items()):
        if errors and not answer.allowed[at] and at not in answer.rejected:
            found.setdefault(errors, []).append(at)
    return found


def indices_body(answer: Answer) -> IndicesBody:
    """Return an answer in indices."""
    return IndicesBody(
        permitted_positions(answer),
        len(answer.allowed),
        answer.revision,
        answer.id,
        [RejectedBody(at, ErrorBody(code, message)) for (code, message), at in rejected_positions(answer).items()],
        [RaisedBody(at, errors) for errors, at in raised_positions(answer).items()],
    )


def _error(rejection: Rejection) -> ErrorBody:
    return ErrorBody(rejection.code, rejection.message)
