"""Native JSON form of checks, decisions and answers, for HTTP, the command line and case files.

Decoding is pure: it knows no caller and checks no evidence. A check with a syntax error is rejected at its own position
and does not affect the others. `pdp.identity.evidence` turns the decoded request into a batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import compress
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from pdp.decision.batch_builder import BatchBuilder, make_check
from pdp.decision.bodies import AnswerForm, CheckBody, ErrorBody, JsonBody
from pdp.decision.path_arrays import shared_message
from pdp.errors import InvalidArgument, TooManyChecks, TooMuchRepeated
from pdp.model.answer import DEFAULT_DENY, Answer, Decision, Reason, Rejection
from pdp.model.question import AtLeast, BatchRequest
from pdp.model.strict import decode, has_all_strings, parse, refuse_duplicates


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
    """Resources of a check that does not decode."""

    resource: msgspec.Raw | UnsetType = UNSET
    resources: list[msgspec.Raw] | UnsetType = UNSET


MAX_EXPLAINED = 500
"""Most checks in one request that asks for traces."""
_REQUEST = msgspec.json.Decoder(CheckRequest)
_TEXTS = msgspec.json.Decoder(CheckTexts)
_CHECK = msgspec.json.Decoder(CheckBody)
_EXTENT = msgspec.json.Decoder(CheckExtent)
_MANY: Final = 8
"""Checks from which one comparison of texts pays."""


def decode_call(body: bytes, max_checks: int, surface: str = "http") -> tuple[BatchRequest, AnswerForm]:
    """Return the request in a POST /v1/check body, and the form of the answer.

    Raise InvalidArgument if the body as a whole is invalid, TooManyChecks above the limit, and TooMuchRepeated if many
    resources share long arguments.
    """
    call: CheckRequest | CheckTexts
    named: Sequence[str] | None = None
    try:
        call = parse(body, _REQUEST)
        named = _named_alike(body, call)
        if named is None and not has_all_strings(body, call):
            refuse_duplicates(body)
    except InvalidArgument:  # perhaps of one check alone, which must not affect the others
        call = decode(body, _TEXTS)
    limit = call_limit(max_checks, explain=True, form=call.answer) if call.explain else max_checks
    if isinstance(call, CheckRequest):
        if len(call.checks) == 1 and limit and (check := make_check(call.checks[0])):
            return BatchRequest(surface, 1, (check,), {}, (), call.consistency, call.explain), call.answer
        bound_bodies(call.checks, limit)
        builder = BatchBuilder()
        if named is None:
            builder.add_bodies(call.checks)
        else:
            builder.put(call.checks[0], named, builder.take(len(named)))
    else:
        bound_checks(len(call.checks), limit)
        builder = decode_checks(call.checks)
        bound_checks(builder.size, limit)
    return builder.request(surface, call.consistency, explain=call.explain), call.answer


def _named_alike(body: bytes, call: CheckRequest) -> Sequence[str] | None:
    """Return the resources of checks that are equal in all else, if the body is just their JSON; None if in doubt.

    Such a body has no duplicate key, as the encoder writes none.
    """
    if len(call.checks) < _MANY or call.checks[0].resources is not UNSET or type(call.checks[0].resource) is not str:
        return None
    first = call.checks[0]
    resource = _encode(first.resource).decode()
    head, _, tail = _encode(first).decode().partition(f'"resource":{resource}')
    start, _, end = _encode(replace(call, checks=[first])).decode().partition(f'"resource":{resource}')
    start, between, end = f'{start}"resource":"', f'"{tail},{head}"resource":"', f'"{end}'
    if len(start) + len(between) * (len(call.checks) - 1) + len(end) > len(body):
        return None
    named = [check.resource for check in call.checks]
    # INVARIANT: no name in the text below has an escape. The decoder would have made it shorter than it stands here.
    # So each name is the value of one `resource`, and the texts of any two checks differ in nothing else.
    try:
        text = f"{start}{between.join(named)}{end}"  # type: ignore[arg-type]
    except TypeError:  # a resource in parts
        return None
    return named if text.encode() == body else None  # type: ignore[return-value]


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
    lists = [body for body in bodies if body.resources is not UNSET]
    bound_checks(len(bodies) - len(lists) + sum(map(_positions, lists)), max_checks)


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
        return _positions(_EXTENT.decode(text))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return 1


def _positions(check: CheckBody | CheckExtent) -> int:
    """Return the number of positions of a check. Beside a `resource` an empty list takes one, as over gRPC."""
    if check.resources is UNSET:
        return 1
    return len(check.resources) or int(check.resource is not UNSET)


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
