"""The JSON of audit records, built from dicts in the plainest way: the reference for the product's encoder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any

import msgspec

from pdp.audit.records.entries import view_security
from pdp.audit.records.record import DecisionRecord, LeafDecision
from pdp.engines.engine import PERMIT
from pdp.model.answer import DEFAULT_DENY, Answer, Rejection
from pdp.model.arrays import PathArray
from pdp.model.question import NO_ARGUMENTS, UNNAMED, Check, Principal, Question, Resource
from pdp.model.references import format_resource
from pdp.model.vocabulary import ARGUMENTS


def plain_record(record: DecisionRecord, instance: str, seq: int, columns_from: int = 32) -> Any:
    """Return the JSON object of a record."""
    batch = record.batch
    checks = [*batch.checks, *(check for check in batch.refused if check.question.principal is not UNNAMED)]
    keys = list(dict.fromkeys(map(inputs_key, checks)))
    inputs = [next(_inputs(check) for check in checks if inputs_key(check) == key) for key in keys]
    time = datetime.fromtimestamp(record.time, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    fields: dict[str, Any] = {
        "event": "decision" if record.masks is None else "filter",
        "schema": 1,
        "id": record.answer.id,
        "instance": instance,
        "seq": seq,
        "time": time,
        "latencyUs": record.latency_us,
        "surface": batch.surface,
        "caller": batch.caller.name,
        **({"callerPrincipal": own.id} if (own := batch.caller.own) and own.id != batch.caller.name else {}),
        **({"requestId": batch.caller.request_id} if batch.caller.request_id else {}),
        "inputs": inputs[0] if inputs else None,
        "revision": record.answer.revision,
        "checks": _checks(record, keys, columns_from),
    }
    if inputs[1:]:
        fields["otherInputs"] = inputs[1:]
    requests = _requests(record, keys, columns_from)
    if requests:
        fields["requests"] = requests
    if record.masks:
        fields["masks"] = record.masks
    return msgspec.json.decode(msgspec.json.encode(fields))


def inputs_key(check: Check) -> Any:
    return (
        check.question.principal,
        check.question.acting_role,
        check.question.context,
        check.query_id,
        check.query_user,
        check.question.inspected,
    )


def _checks(record: DecisionRecord, keys: list[Any], columns_from: int) -> list[Any]:
    entries = []
    for decided in record.checks:
        for leaf in decided.concrete:
            group = leaf.group
            shared = _shared(group.action, group.principal, group.delegated)
            stored, person = group.stored_roles, group.person_roles
            others = {"stored": list(stored or ()), "person": list(person), "unknown": stored is None}
            if found := {name: value for name, value in others.items() if value}:
                shared["otherRoles"] = found
            written = _written(_numbered(shared, keys, decided.check), leaf.at, _leaf_outcome(leaf), columns_from)
            written = _unnamed(written, group.type, group.question, leaf.resources)
            entries += _marked(written, leaf.at, record.answer.cached)
    asked = {at: fields for check in record.batch.refused for at, fields in _refused(check, keys)}
    entries += [asked.get(at, {}) | _rejected(at, rejected) for at, rejected in record.batch.rejected.items()]
    return entries if any("resources" in entry for entry in entries) else sorted(entries, key=lambda row: row["at"])


def _requests(record: DecisionRecord, keys: list[Any], columns_from: int) -> list[Any]:
    entries = []
    for decided in record.checks:
        check = decided.check
        if not decided.plain:
            shared = _shared(check.question.action, check.question.principal, check.question.delegated) | view_security(
                decided
            )
            outcome = _request_outcome(check, record.answer)
            written = _written(_numbered(shared, keys, check), check.at, outcome, columns_from)
            written = _unnamed(written, check.resources[0].type, check.question, check.resources)
            entries += _marked(written, check.at, record.answer.cached)
    return entries


def _shared(action: str, principal: Principal, delegated: bool) -> dict[str, Any]:
    return {"action": action, "as": principal.id, "delegated": delegated}


def _unnamed(entries: list[Any], type: str, question: Question, resources: Sequence[Resource]) -> list[Any]:
    """Return the entries, with a mark where a check lacks the name or destination of what is made or moved."""
    field = ARGUMENTS.get((type, question.action))
    marks = [field is not None and not getattr(each.arguments, field) for each in resources]
    if question.nameless or not any(marks):
        return entries
    if "resources" in entries[0]:
        return [entries[0] | {"missing": True}]
    return [entry | ({"missing": True} if mark else {}) for entry, mark in zip(entries, marks, strict=True)]


def _marked(entries: list[Any], at: Sequence[int], cached: bytes) -> list[Any]:
    """Return the entries of one concrete check, with the marks of cached verdicts."""
    marks = [bool(cached and cached[each]) for each in at]
    if "resources" not in entries[0]:
        return [entry | {"cached": mark} for entry, mark in zip(entries, marks, strict=True)]
    column: Any = "".join("1" if mark else "0" for mark in marks) if len(set(marks)) == 2 else marks[0]
    return [entries[0] | {"cached": column}]


def _numbered(shared: dict[str, Any], keys: list[Any], check: Check) -> dict[str, Any]:
    number = keys.index(inputs_key(check))
    return shared | {"inputs": number} if number else shared


Outcome = tuple[Sequence[Resource], list[bool], Sequence[str | None], Mapping[int, tuple[str, ...]], str, str | None]
"""Resources, allowed, by, errors, type, ref."""


def _leaf_outcome(leaf: LeafDecision) -> Outcome:
    allowed = [effect == PERMIT for effect in leaf.verdicts.effects]
    return leaf.resources, allowed, leaf.verdicts.by, leaf.verdicts.errors, leaf.group.type, leaf.group.ref


def _request_outcome(check: Check, answer: Answer) -> Outcome:
    allowed = [bool(answer.allowed[at]) for at in check.at]
    errors = {row: answer.errors[at] for row, at in enumerate(check.at) if at in answer.errors}
    first = check.resources[0]
    return check.resources, allowed, [answer.by[at] for at in check.at], errors, first.type, first.ref


def _written(shared: dict[str, Any], at: Sequence[int], outcome: Outcome, columns_from: int) -> list[Any]:
    resources, allowed, by, errors, type, ref = outcome
    reasons = [reason or DEFAULT_DENY for reason in by]
    if len(resources) < columns_from:
        return [
            shared
            | {
                "at": at[row],
                "resource": plain_resource(resource, type, ref),
                "allowed": allowed[row],
                "by": [reasons[row]],
                "errors": [] if allowed[row] else list(errors.get(row, ())),
            }
            for row, resource in enumerate(resources)
        ]
    distinct = list(dict.fromkeys(by))
    columns = {
        "at": at.start if isinstance(at, range) else list(at),
        "resources": _column(resources, type, ref),
        "allowed": "".join("1" if each else "0" for each in allowed),
        "reasons": [reason or DEFAULT_DENY for reason in distinct],
        "by": [distinct.index(reason) for reason in by],
        "errors": {str(row): raised for row, raised in errors.items() if not allowed[row]},
    }
    return [shared | columns]


def _column(resources: Sequence[Resource], type: str, ref: str | None) -> Any:
    if isinstance(resources, PathArray):
        shared = {"type": type, "warehouse": resources.warehouse, "ref": resources.ref or ref}
        if len(resources.parents) == 1:
            return {**shared, "path": resources.parents[0], "names": resources.names}
        parent_at = list(resources.parent_at)
        return {**shared, "parents": resources.parents, "parentAt": parent_at, "names": resources.names}
    return [plain_resource(resource, type, ref) for resource in resources]


def _refused(check: Check, keys: list[Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield what is asked at each position of a refused check."""
    question = check.question
    shared = _shared(question.action, question.principal, question.delegated)
    if question.principal is UNNAMED:
        del shared["as"]
    else:
        shared = _numbered(shared, keys, check)
    for at, resource in zip_longest(check.at, check.resources):
        yield at, shared | ({"resource": plain_resource(resource, resource.type, resource.ref)} if resource else {})


def _rejected(at: int, rejected: Rejection) -> dict[str, Any]:
    error = {"code": rejected.code, "message": rejected.message}
    return {"at": at, "allowed": False, "by": [rejected.by], "errors": [], "cached": False, "error": error}


def plain_resource(resource: Resource, type: str, ref: str | None) -> Any:
    """Return a resource: the bare reference, or an object if more decides."""
    more = {
        "ref": resource.ref if resource.type == "warehouse" else None,
        "contentType": resource.content_type,
        "refType": resource.ref_type,
        "id": resource.id,
        "properties": resource.properties,
        "arguments": _arguments(resource),
    }
    present = {key: value for key, value in more.items() if value}
    reference = format_resource(resource, ref, type)
    return {"reference": reference, **present} if present or resource.arguments is not NO_ARGUMENTS else reference


def _arguments(resource: Resource) -> dict[str, Any]:
    destination = resource.arguments.destination
    return {**resource.arguments.given, **({"destination": format_resource(destination)} if destination else {})}


def _inputs(check: Check) -> dict[str, Any]:
    env, principal = check.question.context, check.question.principal
    context: dict[str, Any] = {"actions": env.actions}
    if env.now:
        context["now"] = env.now
    if env.api_name or env.api_version:
        context["api"] = {"name": env.api_name, "version": env.api_version}
    if check.query_id:
        context["queryId"] = check.query_id
    if check.query_user:
        context["queryUser"] = check.query_user
    subject = {
        "id": principal.id,
        "roles": principal.roles,
        "groups": principal.groups,
        "attributes": msgspec.json.decode(principal.attributes),
        **({"memberOf": principal.member_of} if principal.member_of else {}),
        **({"unknown": principal.unknown} if principal.unknown else {}),
        **({"unseen": principal.unseen} if principal.unseen else {}),
    }
    return {
        "principal": subject,
        "actingRole": None if check.question.acting_role is None else f"role:{check.question.acting_role}",
        "context": context,
        **({"inspected": True} if check.question.inspected else {}),
    }
