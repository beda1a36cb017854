"""Rows of an exported audit: one for each concrete check, with the request around the check."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

import msgspec

from pdp.audit.items import RecordItem, RecordSelection, inputs_of, record_items
from pdp.audit.schema import FullResource, Inputs, Record

ColumnType: TypeAlias = Literal["text", "texts", "flag", "number", "ratio", "time", "json"]
COLUMNS: Final[Mapping[str, ColumnType]] = {
    "event": "text",
    "id": "text",
    "instance": "text",
    "seq": "number",
    "time": "time",
    "latency_us": "number",
    "surface": "text",
    "caller": "text",
    "request_id": "text",
    "trace_id": "text",
    "span_id": "text",
    "query_id": "text",
    "query_user": "text",
    "revision": "text",
    "stale": "flag",
    "sampled": "ratio",
    "principal": "text",
    "roles": "texts",
    "groups": "texts",
    "attributes": "json",
    "acting_role": "text",
    "at": "number",
    "asked": "flag",
    "as": "text",
    "action": "text",
    "resource": "text",
    "resource_details": "json",
    "delegated": "flag",
    "cached": "flag",
    "allowed": "flag",
    "by": "text",
    "errors": "texts",
    "invalid": "text",
    "answer": "flag",
    "masks": "json",
}
"""Column -> the type of its values. `docs/audit.md` says what each holds."""
CheckRow: TypeAlias = dict[str, Any]
"""Column -> value. A value that does not apply is None."""


def check_rows(record: Record, selection: RecordSelection) -> Iterator[CheckRow]:
    """Yield the chosen rows of a record: its concrete checks, and what the caller asked where there are none.

    A record that could not be encoded has a row without a check.
    """
    shared = _shared(record)
    if record.unencodable:
        yield {**dict.fromkeys(COLUMNS), **shared, "invalid": record.unencodable}
        return
    items = record_items(record)
    answers = {item.row.at: item.row.allowed for item in reversed(items)}  # what was asked comes first, and wins
    for item in concrete_items(record, items):
        if not selection.by_item or selection.takes_item(record, item):
            yield {**shared, **_inputs(inputs_of(record, item.entry)), **_item(item), "answer": answers[item.row.at]}


def concrete_items(record: Record, items: Sequence[RecordItem]) -> list[RecordItem]:
    """Return the concrete checks among the items of a record, and what the caller asked where there are none."""
    requests = {id(entry) for entry in record.requests}
    concrete = {item.row.at for item in items if id(item.entry) not in requests}
    return [item for item in items if id(item.entry) not in requests or item.row.at not in concrete]


def _shared(record: Record) -> CheckRow:
    return {
        "event": record.event,
        "id": record.id,
        "instance": record.instance,
        "seq": record.seq,
        "time": _time(record.time),
        "latency_us": record.latency_us,
        "surface": record.surface,
        "caller": record.caller,
        "request_id": record.request_id or None,
        "trace_id": record.trace_id or None,
        "span_id": record.span_id or None,
        "revision": record.revision,
        "stale": record.stale,
        "sampled": record.sampled,
        "masks": record.masks or None,
    }


def _inputs(inputs: Inputs | None) -> CheckRow:
    if inputs is None:
        names = ("query_id", "query_user", "principal", "roles", "groups", "attributes", "acting_role")
        return dict.fromkeys(names)
    principal, context = inputs.principal, inputs.context
    return {
        "query_id": context.query_id or None,
        "query_user": context.query_user or None,
        "principal": principal.id,
        "roles": principal.roles,
        "groups": principal.groups,
        "attributes": None if bytes(principal.attributes) == b"{}" else principal.attributes,
        "acting_role": inputs.acting_role,
    }


def _item(item: RecordItem) -> CheckRow:
    entry, row = item.entry, item.row
    invalid = entry.error is not None
    return {
        "at": row.at,
        "asked": item.asked,
        "as": entry.subject or None,
        "action": entry.action or None,
        "resource": None if invalid else item.resource,
        "resource_details": row.resource if isinstance(row.resource, FullResource) else None,
        "delegated": entry.delegated,
        "cached": row.cached,
        "allowed": row.allowed,
        "by": row.by,
        "errors": row.errors or (),
        "invalid": str((entry.error or {}).get("code", "")) or None,
    }


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def json_value(value: Any) -> str:
    """Return a value of a column as JSON."""
    return msgspec.json.encode(value).decode()
