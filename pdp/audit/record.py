"""The audit record: one JSON object per request, with all inputs that deciding it again needs.

Owns the schema and its version. A record holds one row per concrete check, in the order of the plan; large runs of
rows are written as columns, and `rows` reads both forms back alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from pdp.engines.engine import PERMIT, Group, Verdicts
from pdp.model import DEFAULT_DENY, NO_ARGUMENTS, Answer, Batch, Check, Principal, Rejected, Resource
from pdp.references import format_resource

SCHEMA = 1
COLUMNS_FROM = 32
"""Rows of one concrete check from which the columnar form is used."""


class Asking(msgspec.Struct, frozen=True):
    """One concrete check of many resources, decided; `at[i]` is the position in the answer of resource i."""

    group: Group
    resources: Sequence[Resource]
    at: Sequence[int]
    verdicts: Verdicts


class Asked(msgspec.Struct, frozen=True):
    """A check with the concrete checks it came to. `plain`: they are the request itself, nothing was folded."""

    check: Check
    plain: bool
    concrete: tuple[Asking, ...]


class Decided(msgspec.Struct, frozen=True):
    """A batch with all that led to its answer. `time` is in seconds since the epoch."""

    batch: Batch
    answer: Answer
    asked: tuple[Asked, ...]
    bundle_digest: str
    bundle_text: bytes
    time: float
    latency_us: int


def make_record(decided: Decided, instance: str, seq: int) -> dict[str, Any]:
    """The record of a decided batch. `seq` has no gaps within an instance."""
    batch, answer = decided.batch, decided.answer
    numbers: dict[tuple[Any, ...], int] = {}
    for asked in decided.asked:
        numbers.setdefault(_inputs_key(asked.check), len(numbers))
    given = [_inputs(check) for check in _first_of_each(batch.checks)]
    requests = [
        request
        for asked in decided.asked
        if not asked.plain
        for request in _requests(asked.check, answer, numbers[_inputs_key(asked.check)])
    ]
    record: dict[str, Any] = {
        "event": "decision",
        "schema": SCHEMA,
        "id": answer.id,
        "instance": instance,
        "seq": seq,
        "time": timestamp(decided.time),
        "surface": batch.surface,
        "caller": batch.caller.name,
        "inputs": given[0] if given else None,
        "revision": answer.revision,
        "latencyUs": decided.latency_us,
        "checks": _checks(decided, numbers),
    }
    if len(given) > 1:
        record["otherInputs"] = given[1:]
    if requests:
        record["requests"] = requests
    return record


def timestamp(seconds: float) -> str:
    """RFC 3339 in UTC with microseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def rows(record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of a record in their order, whichever form they are in."""
    found: list[tuple[int, int, dict[str, Any]]] = []
    for order, entry in enumerate(record["checks"]):
        if "resources" not in entry:
            found.append((entry["at"], order, {key: value for key, value in entry.items() if key != "at"}))
            continue
        shared = {key: entry[key] for key in ("action", "as", "delegated", "inputs") if key in entry}
        for row, resource in enumerate(entry["resources"]):
            read = {
                "resource": resource,
                "allowed": entry["allowed"][row] == "1",
                "by": [entry["reasons"][entry["by"][row]]],
                "errors": entry["errors"].get(str(row), []),
                "cached": False,
            }
            found.append((entry["at"][row], order, shared | read))
    for _, _, found_row in sorted(found, key=lambda row: row[:2]):
        yield found_row


def _checks(decided: Decided, numbers: Mapping[tuple[Any, ...], int]) -> list[dict[str, Any]]:
    """The rows in the order of the request and, within one of its checks, of the plan."""
    entries: list[dict[str, Any]] = []
    for asked in decided.asked:
        number = numbers[_inputs_key(asked.check)]
        for asking in asked.concrete:
            group = asking.group
            shared = {"action": group.action, "as": group.principal.id, "delegated": group.delegated}
            shared |= {"inputs": number} if number else {}
            if len(asking.resources) >= COLUMNS_FROM:
                entries.append(shared | _columns(asking))
            else:
                entries += (shared | _row(asking, row) for row in range(len(asking.resources)))
    entries += (_rejected_row(at, rejected) for at, rejected in decided.batch.rejected.items())
    if any("resources" in entry for entry in entries):
        return entries
    return sorted(entries, key=lambda entry: int(entry["at"]))


def _row(asking: Asking, row: int) -> dict[str, Any]:
    verdicts = asking.verdicts
    allowed = verdicts.effects[row] == PERMIT
    return {
        "at": asking.at[row],
        "resource": full_resource(asking.group, asking.resources[row]),
        "allowed": allowed,
        "by": [verdicts.by[row] or DEFAULT_DENY],
        "errors": [] if allowed else list(verdicts.errors.get(row, ())),
        "cached": False,
    }


def _columns(asking: Asking) -> dict[str, Any]:
    verdicts = asking.verdicts
    numbers: dict[str, int] = {}
    by = [numbers.setdefault(reason or DEFAULT_DENY, len(numbers)) for reason in verdicts.by]
    denied = (row for row in verdicts.errors if verdicts.effects[row] != PERMIT)
    return {
        "at": list(asking.at),
        "resources": [full_resource(asking.group, resource) for resource in asking.resources],
        "allowed": "".join("1" if effect == PERMIT else "0" for effect in verdicts.effects),
        "reasons": list(numbers),
        "by": by,
        "errors": {str(row): list(verdicts.errors[row]) for row in denied},
    }


def full_resource(group: Group, resource: Resource) -> str | dict[str, Any]:
    """A resource with everything a re-decision needs: its reference alone where that is all there is."""
    reference = format_resource(resource, group.ref, group.type)
    more = {
        "contentType": resource.content_type,
        "refType": resource.ref_type,
        "id": resource.id,
        "properties": resource.properties,
        "arguments": _arguments(resource),
    }
    given = {key: value for key, value in more.items() if value}
    return {"reference": reference, **given} if given else reference


def _arguments(resource: Resource) -> Mapping[str, Any]:
    arguments = resource.arguments
    if arguments is NO_ARGUMENTS:
        return {}
    if arguments.destination is None:
        return arguments.given
    return {**arguments.given, "destination": format_resource(arguments.destination)}


def _requests(check: Check, answer: Answer, number: int) -> list[dict[str, Any]]:
    """What was asked, where the rows are only the parts of it."""
    shared: dict[str, Any] = {"action": check.action} | ({"inputs": number} if number else {})
    return [
        shared
        | {
            "at": at,
            "resource": format_resource(resource),
            "allowed": bool(answer.allowed[at]),
            "by": [answer.by[at] or DEFAULT_DENY],
        }
        for at, resource in zip(check.at, check.resources, strict=True)
    ]


def _rejected_row(at: int, rejected: Rejected) -> dict[str, Any]:
    error = {"code": rejected.code, "message": rejected.message}
    return {"at": at, "allowed": False, "by": [rejected.by], "errors": [], "cached": False, "error": error}


def _inputs_key(check: Check) -> tuple[Any, ...]:
    return (check.principal, check.acting_role, check.env, check.query_id)


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
    return {
        "principal": _principal(check.principal),
        "actingRole": f"role:{check.acting_role}" if check.acting_role is not None else None,
        "context": context,
    }


def _principal(principal: Principal) -> dict[str, Any]:
    return {
        "id": principal.id,
        "roles": principal.roles,
        "groups": principal.groups,
        "attributes": msgspec.Raw(principal.attributes.encode()),
    }
