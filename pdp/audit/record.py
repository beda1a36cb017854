"""The audit record: one JSON object per request, with all inputs that deciding it again needs.

Owns the schema and its version. A record holds one row per concrete check, in the order of the plan; large runs of
rows are written as columns, and `rows` reads both forms back alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

from pdp.audit.chains import kept
from pdp.engines.engine import FAILED, PERMIT, Group, Verdicts
from pdp.model.checks import (
    DEFAULT_DENY,
    NO_ARGUMENTS,
    Answer,
    Batch,
    Check,
    Principal,
    Reason,
    Rejected,
    Resource,
    Siblings,
)
from pdp.model.references import format_resource

SCHEMA = 1
LISTING: Final = "list"
"""The surface of questions that a listing asks for somebody: nobody was let in by them."""
COLUMNS_FROM = 32
"""Rows of one concrete check from which the columnar form is used."""


class LeafDecision(msgspec.Struct, frozen=True, gc=False):
    """One concrete check of many resources, decided; `at[i]` is the position in the answer of resource i."""

    group: Group
    resources: Sequence[Resource]
    at: Sequence[int]
    verdicts: Verdicts


class DecidedCheck(msgspec.Struct, frozen=True, gc=False):
    """A check with the concrete checks it came to. `plain`: they are the request itself, nothing was folded."""

    check: Check
    plain: bool
    concrete: tuple[LeafDecision, ...]


class RecordTemplate:
    """What the records of the same request, asked again and again, have in common, once the first is written."""

    __slots__ = ("written",)

    def __init__(self) -> None:
        self.written: bytes | None = None


class DecisionRecord(msgspec.Struct, frozen=True, gc=False):
    """A batch with all that led to its answer. `time` is in seconds since the epoch.

    `restricted` is there where not a decision was asked for but what somebody sees of a table: the columns, and why
    each is masked, None where it is not. `again`, shared by all of them, keeps what the records of repeated requests
    have in common: the same was asked before, and nothing has changed since.
    """

    batch: Batch
    answer: Answer
    asked: tuple[DecidedCheck, ...]
    bundle_digest: str
    bundle_text: bytes
    time: float
    latency_us: int
    restricted: Mapping[str, Reason | None] | None = None
    again: RecordTemplate | None = None

    @property
    def failed(self) -> bool:
        """Whether an engine could not judge something."""
        return any(FAILED in asking.verdicts.effects for asked in self.asked for asking in asked.concrete)


def make_record(decided: DecisionRecord, instance: str, seq: int) -> dict[str, Any]:
    """The record of a decided batch. `seq` has no gaps within an instance."""
    return _head(decided, instance, seq) | _body(decided)


def write_record(decided: DecisionRecord, instance: str, seq: int) -> bytes:
    """The record as JSON: of a repeated request only what is its own is written anew."""
    again = decided.again
    body = again.written if again else None
    if body is None:
        body = msgspec.json.encode(_body(decided))
        if again:
            again.written = body
    return b"%b,%b" % (msgspec.json.encode(_head(decided, instance, seq))[:-1], body[1:])


def _head(decided: DecisionRecord, instance: str, seq: int) -> dict[str, Any]:
    """What is a record's own."""
    return {
        "event": "decision" if decided.restricted is None else "filter",
        "schema": SCHEMA,
        "id": decided.answer.id,
        "instance": instance,
        "seq": seq,
        "time": timestamp(decided.time),
        "latencyUs": decided.latency_us,
    }


def _body(decided: DecisionRecord) -> dict[str, Any]:
    """What was asked and what came of it."""
    batch, answer = decided.batch, decided.answer
    numbers: dict[tuple[Any, ...], int] = {}
    for asked in decided.asked:
        numbers.setdefault(_inputs_key(asked.check), len(numbers))
    indexed = _Indexed()
    given = [_inputs(check) for check in _first_of_each(batch.checks)]
    folded = [
        request
        for asked in decided.asked
        if not asked.plain
        for request in _requests(asked.check, decided, _Scope(numbers[_inputs_key(asked.check)], indexed))
    ]
    record: dict[str, Any] = {
        "surface": batch.surface,
        "caller": batch.caller.name,
        "inputs": given[0] if given else None,
        "revision": answer.revision,
        "checks": _checks(decided, numbers, indexed),
    }
    if len(given) > 1:
        record["otherInputs"] = given[1:]
    if folded:
        record["requests"] = folded
    if decided.restricted:
        record["masks"] = decided.restricted
    return record


def timestamp(seconds: float) -> str:
    """RFC 3339 in UTC with microseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def rows(record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of a record, one per concrete check, in their order, whichever form they are in."""
    return _read(record["checks"])


def requests(record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What was asked where its rows are only the parts of it; `at` is the position in the answer."""
    return _read(record.get("requests", ()))


def _read(entries: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    found = [row for entry in entries for row in (_expand(entry) if "resources" in entry else [dict(entry)])]
    yield from sorted(found, key=lambda row: int(row["at"]))


def _expand(entry: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    kept = ("action", "as", "delegated", "cached", "inputs", "load", "change")
    shared = {key: entry[key] for key in kept if key in entry}
    at = entry["at"]
    for row, resource in enumerate(_listed(entry["resources"])):
        yield {
            "at": at + row if isinstance(at, int) else at[row],
            **shared,
            "resource": resource,
            "allowed": entry["allowed"][row] == "1",
            "by": [entry["reasons"][entry["by"][row]]],
            "errors": entry["errors"].get(str(row), []),
        }


def _listed(resources: Any) -> Sequence[Any]:
    if isinstance(resources, list):
        return resources
    like = {key: resources[key] for key in ("type", "warehouse", "ref")}
    path = tuple(resources["path"])
    return [format_resource(Resource(path=(*path, name), **like)) for name in resources["names"]]


def _checks(decided: DecisionRecord, numbers: Mapping[tuple[Any, ...], int], indexed: _Indexed) -> list[dict[str, Any]]:
    """The rows in the order of the request and, within one of its checks, of the plan."""
    entries: list[dict[str, Any]] = []
    for asked in decided.asked:
        scope = _Scope(numbers[_inputs_key(asked.check)], indexed)
        for asking in asked.concrete:
            group = asking.group
            shared = _shared(group.action, group.principal, group.delegated, decided)
            entries += _entries(shared, scope, asking.at, _Outcome.of_check(asking))
    entries += (_rejected_row(at, rejected) for at, rejected in decided.batch.rejected.items())
    return (
        entries if any("resources" in entry for entry in entries) else sorted(entries, key=lambda row: int(row["at"]))
    )


def _requests(check: Check, decided: DecisionRecord, scope: _Scope) -> list[dict[str, Any]]:
    shared = _shared(check.action, check.principal, check.delegated, decided) | kept(check)
    return _entries(shared, scope, check.at, _Outcome.of_request(check, decided.answer))


def _shared(action: str, principal: Principal, delegated: bool, decided: DecisionRecord) -> dict[str, Any]:
    """What the rows of one check have in common."""
    return {"action": action, "as": principal.id, "delegated": delegated, "cached": decided.again is not None}


class _Outcome(msgspec.Struct, frozen=True, gc=False):
    """What came of resources: `allowed` is 0 or 1 for each, `type` and `ref` those that were decided on."""

    resources: Sequence[Resource]
    allowed: bytes
    by: Sequence[str | None]
    errors: Mapping[int, tuple[str, ...]]
    type: str
    ref: str | None

    @classmethod
    def of_check(cls, asking: LeafDecision) -> _Outcome:
        verdicts, group = asking.verdicts, asking.group
        allowed = verdicts.effects.translate(_ALLOWED)
        return cls(asking.resources, allowed, verdicts.by, verdicts.errors, group.type, group.ref)

    @classmethod
    def of_request(cls, check: Check, answer: Answer) -> _Outcome:
        if len(check.at) == len(answer.allowed):
            allowed, by = answer.allowed, answer.by
        else:
            allowed, by = bytes(answer.allowed[at] for at in check.at), [answer.by[at] for at in check.at]
        errors = (
            {row: answer.errors[at] for row, at in enumerate(check.at) if at in answer.errors} if answer.errors else {}
        )
        return cls(check.resources, allowed, by, errors, check.resources[0].type, check.resources[0].ref)


_ALLOWED = bytes(effect == PERMIT for effect in range(256))
_DIGITS = b"01".ljust(256)


def _entries(shared: dict[str, Any], scope: _Scope, at: Sequence[int], outcome: _Outcome) -> list[dict[str, Any]]:
    """Rows, or from COLUMNS_FROM on one entry of columns."""
    shared = shared | ({"inputs": scope.inputs} if scope.inputs else {})
    if len(outcome.resources) < COLUMNS_FROM:
        return [shared | _row(at[row], row, outcome) for row in range(len(outcome.resources))]
    reasons, by = scope.indexed.of(outcome.by)
    denied = (row for row in outcome.errors if not outcome.allowed[row])
    columns = {
        "at": at.start if isinstance(at, range) else list(at),
        "resources": _resources(outcome),
        "allowed": outcome.allowed.translate(_DIGITS).decode(),
        "reasons": reasons,
        "by": by,
        "errors": {str(row): outcome.errors[row] for row in denied},
    }
    return [shared | columns]


class _Indexed(dict[int, tuple[list[str], list[int]]]):
    """Distinct reasons, and each row's place among them, by the column they stand in: parts of a check share columns.

    Made for one record, in which the columns live on.
    """

    def of(self, by: Sequence[str | None]) -> tuple[list[str], list[int]]:
        known = self.get(id(by))
        if known is None:
            numbers = {reason: place for place, reason in enumerate(dict.fromkeys(by))}
            known = [reason or DEFAULT_DENY for reason in numbers], list(map(numbers.__getitem__, by))
            self[id(by)] = known
        return known


class _Scope(NamedTuple):
    """What rows share within a record: whose inputs they have, and the columns of reasons."""

    inputs: int
    indexed: _Indexed


def _row(at: int, row: int, outcome: _Outcome) -> dict[str, Any]:
    allowed = bool(outcome.allowed[row])
    return {
        "at": at,
        "resource": full_resource(outcome.resources[row], outcome.type, outcome.ref),
        "allowed": allowed,
        "by": [outcome.by[row] or DEFAULT_DENY],
        "errors": [] if allowed else list(outcome.errors.get(row, ())),
    }


def _resources(outcome: _Outcome) -> Any:
    """Siblings share all but their names, and are written so."""
    if isinstance(outcome.resources, Siblings):
        like = outcome.resources.like
        shared = {"type": outcome.type, "warehouse": like.warehouse, "path": like.path, "ref": like.ref or outcome.ref}
        return {**shared, "names": outcome.resources.names}
    return [full_resource(resource, outcome.type, outcome.ref) for resource in outcome.resources]


def full_resource(resource: Resource, type: str = "", ref: str | None = None) -> str | dict[str, Any]:
    """A resource with everything a re-decision needs: its reference alone where that is all there is."""
    reference = format_resource(resource, ref, type)
    if _is_bare(resource):
        return reference
    more = {
        "ref": resource.ref if resource.type == "warehouse" else None,
        "contentType": resource.content_type,
        "refType": resource.ref_type,
        "id": resource.id,
        "properties": resource.properties,
        "arguments": _arguments(resource),
    }
    return {"reference": reference, **{key: value for key, value in more.items() if value}}


def _is_bare(resource: Resource) -> bool:
    more = resource.content_type or resource.ref_type or resource.id or resource.properties
    if resource.type == "warehouse" and resource.ref:
        return False
    return not more and resource.arguments is NO_ARGUMENTS


def _arguments(resource: Resource) -> Mapping[str, Any]:
    arguments = resource.arguments
    if arguments is NO_ARGUMENTS:
        return {}
    if arguments.destination is None:
        return arguments.given
    return {**arguments.given, "destination": format_resource(arguments.destination)}


def _rejected_row(at: int, rejected: Rejected) -> dict[str, Any]:
    error = {"code": rejected.code, "message": rejected.message}
    return {"at": at, "allowed": False, "by": [rejected.by], "errors": [], "cached": False, "error": error}


def _inputs_key(check: Check) -> tuple[Any, ...]:
    return (check.principal, check.acting_role, check.env, check.query_id, check.query_user, check.inspected)


def _first_of_each(checks: Sequence[Check]) -> list[Check]:
    first: dict[tuple[Any, ...], Check] = {}
    for check in checks:
        first.setdefault(_inputs_key(check), check)
    return list(first.values())


def _inputs(check: Check) -> dict[str, Any]:
    env = check.env
    context: dict[str, Any] = {"actions": env.actions}
    if env.api_name or env.api_version:
        context["api"] = {"name": env.api_name, "version": env.api_version}
    if check.query_id:
        context["queryId"] = check.query_id
    if check.query_user:
        context["queryUser"] = check.query_user
    inputs = {
        "principal": _principal(check.principal),
        "actingRole": f"role:{check.acting_role}" if check.acting_role is not None else None,
        "context": context,
    }
    return inputs | {"inspected": True} if check.inspected else inputs


def _principal(principal: Principal) -> dict[str, Any]:
    described = {
        "id": principal.id,
        "roles": principal.roles,
        "groups": principal.groups,
        "attributes": msgspec.Raw(principal.attributes.encode()),
    }
    return described | {"memberOf": principal.member_of} if principal.member_of else described
