"""Native JSON form of checks and decisions, for HTTP, the command line and case files.

Decoding is pure: it knows no caller and checks no evidence. A check with a syntax error is rejected at its own position
and does not affect the others. `pdp.identity.evidence` turns the decoded request into a batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import msgspec
from msgspec import UNSET, UnsetType

from pdp.decision.batch_builder import BatchBuilder, make_check
from pdp.decision.bodies import AnswerForm, CheckBody, JsonBody
from pdp.decision.shared_text import shared_message
from pdp.errors import InvalidArgument, TooManyChecks, TooMuchRepeated
from pdp.model.question import AtLeast, BatchRequest, Rejection
from pdp.model.strict import decode, parse


class CheckRequest(JsonBody):
    """Body of POST /v1/check."""

    checks: list[CheckBody]
    consistency: str | AtLeast = "minimize_latency"
    explain: bool = False
    answer: AnswerForm = "decisions"


class CheckTexts(JsonBody):
    """Body of POST /v1/check whose checks are still text."""

    checks: list[msgspec.Raw]
    consistency: str | AtLeast = "minimize_latency"
    explain: bool = False
    answer: AnswerForm = "decisions"


class CheckExtent(msgspec.Struct):
    """Number of resources of a check that does not decode."""

    resources: list[msgspec.Raw] | UnsetType = UNSET


MAX_EXPLAINED = 500
"""Most checks in one request that asks for traces."""
_REQUEST = msgspec.json.Decoder(CheckRequest)
_TEXTS = msgspec.json.Decoder(CheckTexts)
_CHECK = msgspec.json.Decoder(CheckBody)
_EXTENT = msgspec.json.Decoder(CheckExtent)


def decode_call(body: bytes, max_checks: int, surface: str = "http") -> tuple[BatchRequest, AnswerForm]:
    """Return the request in a POST /v1/check body, and the form of the answer.

    Raise InvalidArgument if the body as a whole is invalid, TooManyChecks above the limit, and TooMuchRepeated if many
    resources share long arguments.
    """
    try:
        call: CheckRequest | CheckTexts = decode(body, _REQUEST, typed=True)
    except InvalidArgument:  # perhaps of one check alone, which must not affect the others
        call = decode(body, _TEXTS)
    limit = call_limit(max_checks, explain=True, form=call.answer) if call.explain else max_checks
    if isinstance(call, CheckRequest):
        if len(call.checks) == 1 and limit and (check := make_check(call.checks[0])):
            return BatchRequest(surface, 1, (check,), {}, (), call.consistency, call.explain), call.answer
        bound_bodies(call.checks, limit)
        builder = BatchBuilder()
        builder.add_bodies(call.checks)
    else:
        bound_checks(len(call.checks), limit)
        builder = decode_checks(call.checks)
        bound_checks(builder.size, limit)
    return builder.request(surface, call.consistency, explain=call.explain), call.answer


def decode_batch(body: bytes, max_checks: int, surface: str = "http") -> BatchRequest:
    """Return the request in a POST /v1/check body; raise as `decode_call` does."""
    return decode_call(body, max_checks, surface)[0]


def call_limit(max_checks: int, *, explain: bool, form: AnswerForm) -> int:
    """Return the most checks of a call; raise InvalidArgument for traces in an answer that has no place for them."""
    if explain and form != "decisions":
        raise InvalidArgument("`explain` needs the answer `decisions`")
    return min(max_checks, MAX_EXPLAINED) if explain else max_checks


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
        except TooMuchRepeated:
            raise
        except InvalidArgument as error:
            builder.reject(Rejection(error.code, shared_message(error)), _extent(text))
    return builder


def _extent(text: msgspec.Raw | bytes) -> int:
    """Return the number of positions of a check with an error: those of its list of resources, otherwise one."""
    try:
        resources = _EXTENT.decode(text).resources
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return 1
    return 1 if resources is UNSET else len(resources)
