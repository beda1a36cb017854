"""Rows of `decisions` and `requests`, made of records. Tests compare them with the rows of `pdp audit export`.

Most records have one check of one resource: their row is made directly. All others go through
`pdp.audit.records.tables`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, Final, TypeAlias

from pdp.audit.records.schema import FullResource, Record
from pdp.audit.records.tables import (
    COLUMNS,
    MORE_COLUMNS,
    asked_text,
    check_rows,
    concrete_items,
    entry_text,
    inputs_text,
    json_value,
)
from pdp.audit.selection import RecordItem, RecordSelection, inputs_of, record_items
from pdp.errors import InvalidReference
from pdp.lake.ingest.lines import RecordLine
from pdp.model.bounded_cache import BoundedCache
from pdp.model.question import NAMED_TYPES
from pdp.model.references import parse_resource

Row: TypeAlias = tuple[Any, ...]
"""Values in the order of the columns of a table. Times are texts, days are numbers since 1970."""
_ALL: Final = RecordSelection()
_JSON: Final = tuple(name for name, type in COLUMNS.items() if type == "json")
_KEPT: Final = 10_000
_LONGEST_KEPT: Final = 200


def is_single(line: RecordLine) -> bool:
    """Tell whether the row of `requests` can be made of the one row of `decisions`: see `single_requests`."""
    return line.whole is None and not line.record.left_out


class RowMaker:
    """Maker of rows. Keeps the warehouses of resources by the beginning of their references."""

    def __init__(self) -> None:
        self._warehouses: BoundedCache[str, str | None] = BoundedCache(_KEPT, _LONGEST_KEPT)

    def decisions(self, line: RecordLine, source: str) -> Iterator[Row]:
        """Yield the rows of `decisions` of a record."""
        if line.whole is None:
            yield self._plain(line, source)
        else:
            yield from self._any(line, line.whole, source)

    def request(self, line: RecordLine, source: str) -> Row:
        """Return the row of `requests` of a record."""
        record, whole = line.record, line.whole
        asked = listing = None
        if whole is None:
            checks, allowed = 1, int(bool(record.checks[0].allowed))
        else:
            outcomes = [item.row.allowed for item in _concrete(whole)]
            checks, allowed = len(outcomes) + bool(whole.unencodable), sum(outcomes)
            asked = line.later.asked if line.later else asked_text(whole)
            listing = None if whole.listing is None else json_value(whole.listing)
        return (
            record.event, record.id, record.instance, record.seq, line.time, line.day, record.latency_us,
            record.surface, record.caller, record.request_id or None, record.trace_id or None, line.inputs.columns[0],
            record.revision, record.stale, record.sampled, record.left_out, checks, allowed, asked, listing,
            json_value(record.masks) if record.masks else None, record.unencodable or None, record.schema, source,
            record.operation or None, record.probe,
        )  # fmt: skip

    def _plain(self, line: RecordLine, source: str) -> Row:
        record, (_, text, (query, user, principal, roles, groups, attributes, acting, *more)) = line.record, line.inputs
        entry = record.checks[0]
        resource, details = entry.resource, None
        if isinstance(resource, FullResource):
            details = json_value(resource)
            resource = resource.reference
        return (
            record.event, record.id, record.instance, record.seq, line.time, record.latency_us, record.surface,
            record.caller, record.request_id or None, record.trace_id or None, record.span_id or None, query, user,
            record.revision, record.stale, record.sampled, principal, roles, groups, attributes, acting, entry.at, True,
            entry.subject or None, entry.action or None, resource, details, entry.delegated, bool(entry.cached),
            entry.allowed, str(entry.by[0]), entry.errors or (), None, entry.allowed,
            json_value(record.masks) if record.masks else None, record.operation or None, record.probe, line.day,
            self._warehouse(resource),
            f"{record.id}#0", record.schema, text, None, _errors_text(entry.errors), source, is_single(line), *more,
        )  # fmt: skip

    def _any(self, line: RecordLine, record: Record, source: str) -> Iterator[Row]:
        items: Sequence[RecordItem] = [] if record.unencodable else _concrete(record)
        for number, (row, item) in enumerate(zip_longest(check_rows(record, _ALL), items)):
            for name in _JSON:
                if row[name] is not None:
                    row[name] = json_value(row[name])
            row["time"] = line.time
            values = [row[name] for name in COLUMNS if name not in MORE_COLUMNS]
            text, rest = _again(line, record, item)
            yield (
                *values, line.day, self._warehouse(row["resource"]), f"{record.id}#{number}", record.schema, text, rest,
                _errors_text(row["errors"]), source, False, *[row[name] for name in MORE_COLUMNS],
            )  # fmt: skip

    def _warehouse(self, reference: str | None) -> str | None:
        """Return the warehouse of a reference; None for an object without, and for no reference."""
        if not reference:
            return None
        head, slash, _ = reference.partition("/")
        if not slash:
            head = head.rpartition("@")[0] or head
        known = self._warehouses.get(head, "")
        return self._warehouses.keep(head, _warehouse_of(head), len(head)) if known == "" else known


def _again(line: RecordLine, record: Record, item: RecordItem | None) -> tuple[str | None, str | None]:
    """Return the inputs of a check, and the rest of its entry, as JSON."""
    if item is None:
        return None, None
    inputs = inputs_of(record, item.entry)
    if inputs is None:
        return None, entry_text(record, item.entry)
    text = line.later.inputs[item.entry.inputs] if line.later else inputs_text(inputs)
    return text, entry_text(record, item.entry)


def _errors_text(errors: Iterable[str] | None) -> str:
    return json_value(list(errors)) if errors else "[]"


def _concrete(record: Record) -> list[RecordItem]:
    return concrete_items(record, record_items(record))


def _warehouse_of(head: str) -> str | None:
    """Return the warehouse of the beginning of a reference, up to the first slash."""
    kind, _, part = head.partition(":")
    if kind in NAMED_TYPES or not part:
        return None
    try:
        return parse_resource(f"warehouse:{part}").warehouse
    except InvalidReference:
        return None
