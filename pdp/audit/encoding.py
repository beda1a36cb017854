"""Building of the audit's JSON: one object per request, with all inputs needed to decide the request again.

Pure: writes no file and reads no clock; `log` writes the lines. A record has one entry per concrete check in `checks`,
in the order of the plan, and in `requests` one per check of the caller that the plan split into several.

An entry comes in two forms, which `rows` reads alike. Below `COLUMNS_FROM` resources, each resource is a row:

    {"action", "as", ..., "at": 7, "resource": "table:w/a/b", "allowed": true, "by": ["cel:r"], "errors": []}

From `COLUMNS_FROM` on, all resources of a concrete check are one entry of columns of equal length:

    {"action", "as", ..., "at": 0, "resources": {..., "path": ["n"], "names": ["a", "b", "c", "d"]}, "allowed": "1101",
     "reasons": ["cel:r", "default_deny"], "by": [0, 0, 1, 0], "errors": {"2": ["rule"]}}

There `resources` of several containers have `parents` and, one index per resource, `parentAt` instead of `path`.
`allowed` has one digit per resource, `by` indexes `reasons`, `errors` is by row and holds denials only, and `at` is the
first position where the positions are consecutive, otherwise a list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

from pdp.audit.inputs import InputsKey, first_by_inputs, inputs_key, write_inputs, write_resource
from pdp.audit.record import DecisionRecord, LeafDecision
from pdp.audit.schema import DECISION_EVENT, FILTER_EVENT, SCHEMA
from pdp.audit.view_security import write_view_security
from pdp.engines.engine import ALLOWED_BY_EFFECT
from pdp.model.checks import DEFAULT_DENY, Answer, Check, Principal, Rejection, Resource
from pdp.model.columns import PathColumn

COLUMNS_FROM: Final = 32
"""Resources of one concrete check from which its entry is in columns."""
_DIGITS: Final = b"01".ljust(256)
"""Translation of 0 and 1 to their digits."""


def build_json(record: DecisionRecord, instance: str, seq: int) -> dict[str, Any]:
    """Return the JSON object of a record. `seq` has no gaps within an instance."""
    return _head(record, instance, seq) | _body(record)


def encode_record(record: DecisionRecord, instance: str, seq: int) -> bytes:
    """Return the JSON text of a record without a line end; of a repeated request, encode only the head anew."""
    template = record.template
    body = template.body if template else None
    if body is None:
        body = msgspec.json.encode(_body(record))
        if template:
            template.body = body
    # both are JSON objects with at least one key: drop the braces between them
    return b"%b,%b" % (msgspec.json.encode(_head(record, instance, seq))[:-1], body[1:])


def timestamp(seconds: float) -> str:
    """Return a time as RFC 3339 in UTC with microseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _head(record: DecisionRecord, instance: str, seq: int) -> dict[str, Any]:
    """Return the fields that differ between the records of a repeated request."""
    return {
        "event": DECISION_EVENT if record.masks is None else FILTER_EVENT,
        "schema": SCHEMA,
        "id": record.answer.id,
        "instance": instance,
        "seq": seq,
        "time": timestamp(record.time),
        "latencyUs": record.latency_us,
    }


def _body(record: DecisionRecord) -> dict[str, Any]:
    """Return the fields that all records of a repeated request share."""
    batch = record.batch
    first = first_by_inputs(batch.checks)
    inputs = [write_inputs(check) for check in first.values()]
    entries = _Entries(record, {key: number for number, key in enumerate(first)})
    requests = [entry for decided in record.checks if not decided.plain for entry in entries.of_request(decided.check)]
    fields: dict[str, Any] = {
        "surface": batch.surface,
        "caller": batch.caller.name,
        "inputs": inputs[0] if inputs else None,
        "revision": record.answer.revision,
        "checks": entries.of_checks(),
    }
    if len(inputs) > 1:
        fields["otherInputs"] = inputs[1:]
    if requests:
        fields["requests"] = requests
    if record.masks:
        fields["masks"] = record.masks
    return fields


class _Outcome(msgspec.Struct, frozen=True, gc=False):
    """Resources and their decisions: `allowed[i]` is 0 or 1; `type` and `ref` are those that were decided on."""

    resources: Sequence[Resource]
    allowed: bytes
    by: Sequence[str | None]
    errors: Mapping[int, tuple[str, ...]]
    type: str
    ref: str | None

    @classmethod
    def of_leaf(cls, leaf: LeafDecision) -> _Outcome:
        verdicts, group = leaf.verdicts, leaf.group
        allowed = verdicts.effects.translate(ALLOWED_BY_EFFECT)
        return cls(leaf.resources, allowed, verdicts.by, verdicts.errors, group.type, group.ref)

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


class _ReasonColumn(NamedTuple):
    """A column of reasons in the written form: the distinct reasons, and for each row an index into them.

    `source` is the column that was written. The reference keeps the column alive, because its `id` is a cache key.
    """

    source: Sequence[str | None]
    reasons: list[str]
    by: list[int]


class _Entries:
    """Entries of one record. `numbers` gives each distinct inputs its place in the record."""

    def __init__(self, record: DecisionRecord, numbers: Mapping[InputsKey, int]) -> None:
        self._record = record
        self._numbers = numbers
        self._columns: dict[int, _ReasonColumn] = {}

    def of_checks(self) -> list[dict[str, Any]]:
        """Return the entries of all concrete checks, then those of rejected positions."""
        entries: list[dict[str, Any]] = []
        for decided in self._record.checks:
            number = self._numbers[inputs_key(decided.check)]
            for leaf in decided.concrete:
                entries += self._of_leaf(leaf, number)
        entries += (_rejected_row(at, rejected) for at, rejected in self._record.batch.rejected.items())
        # columns hold many positions, so that only rows can be sorted by position; readers sort both forms
        if any("resources" in entry for entry in entries):
            return entries
        return sorted(entries, key=lambda row: int(row["at"]))

    def of_request(self, check: Check) -> list[dict[str, Any]]:
        """Return the entries of a check as the caller sent it, with the folded outcome."""
        shared = self._shared(check.action, check.principal, check.delegated) | write_view_security(check)
        number = self._numbers[inputs_key(check)]
        return self._written(_with_inputs(shared, number), check.at, _Outcome.of_request(check, self._record.answer))

    def _of_leaf(self, leaf: LeafDecision, number: int) -> list[dict[str, Any]]:
        group = leaf.group
        shared = self._shared(group.action, group.principal, group.delegated)
        return self._written(_with_inputs(shared, number), leaf.at, _Outcome.of_leaf(leaf))

    def _shared(self, action: str, principal: Principal, delegated: bool) -> dict[str, Any]:
        cached = self._record.template is not None
        return {"action": action, "as": principal.id, "delegated": delegated, "cached": cached}

    def _written(self, shared: dict[str, Any], at: Sequence[int], outcome: _Outcome) -> list[dict[str, Any]]:
        """Return rows or, from COLUMNS_FROM resources on, one entry of columns; `shared` is in each."""
        if len(outcome.resources) < COLUMNS_FROM:
            return [shared | _row(at[row], row, outcome) for row in range(len(outcome.resources))]
        column = self._reason_column(outcome.by)
        denied = (row for row in outcome.errors if not outcome.allowed[row])
        columns = {
            "at": at.start if isinstance(at, range) else list(at),
            "resources": _resources(outcome),
            "allowed": outcome.allowed.translate(_DIGITS).decode(),
            "reasons": column.reasons,
            "by": column.by,
            "errors": {str(row): outcome.errors[row] for row in denied},
        }
        return [shared | columns]

    def _reason_column(self, by: Sequence[str | None]) -> _ReasonColumn:
        """Return the written form of a column of reasons.

        The concrete checks of one split check often share the column object, and a column can have 100,000 rows:
        look the object up by identity, never by content.
        """
        column = self._columns.get(id(by))
        if column is None:
            places = {reason: place for place, reason in enumerate(dict.fromkeys(by))}
            reasons = [reason or DEFAULT_DENY for reason in places]
            column = self._columns[id(by)] = _ReasonColumn(by, reasons, list(map(places.__getitem__, by)))
        return column


def _with_inputs(shared: dict[str, Any], number: int) -> dict[str, Any]:
    """Add the number of the inputs; an entry without a number has the first inputs."""
    return shared | {"inputs": number} if number else shared


def _row(at: int, row: int, outcome: _Outcome) -> dict[str, Any]:
    allowed = bool(outcome.allowed[row])
    return {
        "at": at,
        "resource": write_resource(outcome.resources[row], outcome.type, outcome.ref),
        "allowed": allowed,
        "by": [outcome.by[row] or DEFAULT_DENY],
        "errors": [] if allowed else list(outcome.errors.get(row, ())),
    }


def _rejected_row(at: int, rejected: Rejection) -> dict[str, Any]:
    error = {"code": rejected.code, "message": rejected.message}
    return {"at": at, "allowed": False, "by": [rejected.by], "errors": [], "cached": False, "error": error}


def _resources(outcome: _Outcome) -> Any:
    """Return the column of resources: containers and names of a column of paths, otherwise each resource."""
    column = outcome.resources
    if isinstance(column, PathColumn):
        shared = {"type": outcome.type, "warehouse": column.warehouse, "ref": column.ref or outcome.ref}
        if len(column.parents) == 1:
            return {**shared, "path": column.parents[0], "names": column.names}
        return {**shared, "parents": column.parents, "parentAt": column.parent_at, "names": column.names}
    return [write_resource(resource, outcome.type, outcome.ref) for resource in outcome.resources]
