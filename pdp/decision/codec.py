"""Native JSON form of checks and decisions, for HTTP, the command line and case files.

Decoding is pure: it knows no caller and checks no evidence. A check with a syntax error is rejected at its own position
and does not affect the others. `pdp.identity.evidence` turns the decoded request into a batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from pdp.decision.batch_builder import BatchBuilder
from pdp.decision.bodies import CheckBody, ErrorBody, JsonBody
from pdp.errors import InvalidArgument, TooManyChecks
from pdp.model.checks import Answer, AtLeast, BatchRequest, Decision, Rejection
from pdp.strict import decode, parse


class CheckRequest(JsonBody):
    """Body of POST /v1/check."""

    checks: list[CheckBody]
    consistency: str | AtLeast = "minimize_latency"
    explain: bool = False


class CheckTexts(JsonBody):
    """Body of POST /v1/check whose checks are still text."""

    checks: list[msgspec.Raw]
    consistency: str | AtLeast = "minimize_latency"
    explain: bool = False


class CheckExtent(msgspec.Struct):
    """Number of resources of a check that does not decode."""

    resources: list[msgspec.Raw] | UnsetType = UNSET


class DecisionBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """Decision as written in JSON. `allowed` and `by` are always present."""

    allowed: bool
    by: tuple[str, ...]
    errors: tuple[str, ...] | msgspec.UnsetType = UNSET
    cached: bool | msgspec.UnsetType = UNSET
    trace: Any = UNSET
    error: ErrorBody | msgspec.UnsetType = UNSET


MAX_EXPLAINED = 500
"""Most checks in one request that asks for traces."""
_REQUEST = msgspec.json.Decoder(CheckRequest)
_TEXTS = msgspec.json.Decoder(CheckTexts)
_CHECK = msgspec.json.Decoder(CheckBody)
_EXTENT = msgspec.json.Decoder(CheckExtent)


def decode_batch(body: bytes, max_checks: int, surface: str = "http") -> BatchRequest:
    """Return the request in a POST /v1/check body.

    Raise InvalidArgument if the body as a whole is invalid, TooManyChecks above the limit.
    """
    try:
        request = decode(body, _REQUEST, typed=True)
    except InvalidArgument:
        return _decode_texts(body, max_checks, surface)
    bound_bodies(request.checks, _limit(request, max_checks))
    builder = BatchBuilder()
    builder.add_bodies(request.checks)
    return builder.request(surface, request.consistency, explain=request.explain)


def _decode_texts(body: bytes, max_checks: int, surface: str) -> BatchRequest:
    """Return the request in a body with a malformed check: decode each check on its own. Raise as `decode_batch`."""
    request = decode(body, _TEXTS)
    limit = _limit(request, max_checks)
    bound_checks(len(request.checks), limit)
    builder = decode_checks(request.checks)
    bound_checks(builder.size, limit)
    return builder.request(surface, request.consistency, explain=request.explain)


def _limit(request: CheckRequest | CheckTexts, max_checks: int) -> int:
    return min(max_checks, MAX_EXPLAINED) if request.explain else max_checks


def bound_bodies(bodies: Sequence[CheckBody], max_checks: int) -> None:
    """Raise TooManyChecks if bodies ask about more resources than the limit."""
    lists = [body.resources for body in bodies if body.resources is not UNSET]
    bound_checks(len(bodies) - len(lists) + sum(map(len, lists)), max_checks)


def bound_checks(count: int, max_checks: int) -> None:
    """Raise TooManyChecks above the limit."""
    if count > max_checks:
        raise TooManyChecks(f"{count} checks in one request, the limit is {max_checks}")


def decode_checks(checks: Iterable[msgspec.Raw | bytes], *, unique_keys: bool = False) -> BatchBuilder:
    """Return a builder with checks from JSON texts. A text with an error rejects the positions of its resources.

    `unique_keys` rejects duplicate keys. Set `unique_keys` unless a search of the whole body excludes duplicates.
    """
    read = partial(decode, typed=True) if unique_keys else parse
    builder = BatchBuilder()
    for text in checks:
        try:
            builder.add_body(read(bytes(text), _CHECK))
        except InvalidArgument as error:
            builder.reject(Rejection(error.code, str(error)), _extent(text))
    return builder


def _extent(text: msgspec.Raw | bytes) -> int:
    """Return the number of positions of a check with an error: those of its list of resources, otherwise one."""
    try:
        resources = _EXTENT.decode(text).resources
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return 1
    return 1 if resources is UNSET else len(resources)


def decision_body(decision: Decision) -> DecisionBody:
    """Return a decision in its JSON form."""
    error = ErrorBody(decision.error.code, decision.error.message) if decision.error else UNSET
    if decision.error:
        return DecisionBody(False, decision.by, error=error)
    trace = UNSET if decision.trace is None else decision.trace
    return DecisionBody(decision.allowed, decision.by, decision.errors, decision.cached, trace)


def encode_answer(answer: Answer) -> bytes:
    """Return the answer of POST /v1/check as JSON."""
    decisions = [decision_body(answer.decision(at)) for at in range(len(answer.allowed))]
    return msgspec.json.encode({"decisions": decisions, "revision": answer.revision, "decisionId": answer.id})
