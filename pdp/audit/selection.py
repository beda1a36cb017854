"""Items of a record: what the caller asked, position by position, with the answer; and a choice of records by them."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

import msgspec

from pdp.audit.reader import AuditLine
from pdp.audit.records.rows import DecisionRow, EntryError, WrittenResource, entry_rows
from pdp.audit.records.schema import CheckEntry, FullResource, Inputs, Record
from pdp.model.references import format_resource


class RecordItem(msgspec.Struct, frozen=True, gc=False):
    """One resource of an entry. `asked`: the caller asked this; otherwise it is a check that the plan made of it."""

    entry: CheckEntry
    row: DecisionRow
    asked: bool

    @property
    def resource(self) -> str:
        """Return the reference of the resource; empty for a position without a check."""
        return resource_text(self.row.resource)


def resource_text(resource: WrittenResource) -> str:
    """Return the reference of a resource of an entry."""
    if isinstance(resource, str):
        return resource
    return resource.reference if isinstance(resource, FullResource) else format_resource(resource)


def record_items(record: Record) -> list[RecordItem]:
    """Return all items of a record by position; of one position, what the caller asked comes first.

    An entry that cannot be read has no items.
    """
    items = [item for entry in record.requests for item in _items(entry, ())]
    requested = {item.row.at for item in items}
    items += [item for entry in record.checks for item in _items(entry, requested)]
    return sorted(items, key=lambda item: (item.row.at, not item.asked))


def _items(entry: CheckEntry, requested: set[int] | tuple[()]) -> Iterator[RecordItem]:
    try:
        for row in entry_rows(entry):
            yield RecordItem(entry, row, row.at not in requested)
    except EntryError:
        return


def inputs_of(record: Record, entry: CheckEntry) -> Inputs | None:
    """Return the inputs of an entry; None for a refused position that names no principal."""
    if record.inputs is None or (entry.error is not None and not entry.subject):
        return None
    others = record.other_inputs
    return record.inputs if entry.inputs == 0 else others[entry.inputs - 1] if entry.inputs <= len(others) else None


class RecordSelection(msgspec.Struct, frozen=True):
    """Choice of records. Empty texts choose all; times as records write them, `since` inclusive, `until` exclusive.

    `principal`, `resource`, `action` and `denied` must hold for one and the same item. `resource` and `principal` may
    have `*` and `?`. Events have an actor, an operation and an outcome in their place.
    """

    principal: str = ""
    resource: str = ""
    action: str = ""
    denied: bool = False
    surface: str = ""
    caller: str = ""
    event: str = ""
    id: str = ""
    request_id: str = ""
    trace_id: str = ""
    query_id: str = ""
    instance: str = ""
    since: str = ""
    until: str = ""

    @property
    def by_item(self) -> bool:
        """Tell whether the selection depends on items."""
        return bool(self.principal or self.resource or self.action or self.denied)

    def takes(self, line: AuditLine) -> bool:
        """Tell whether a record is chosen."""
        head = line.head
        if (self.since and head.time < self.since) or (self.until and head.time >= self.until):
            return False
        for wanted, found in ((self.event, head.event), (self.id, head.id), (self.instance, head.instance)):
            if wanted and wanted != found:
                return False
        return self._takes_event(line.data) if line.record is None else self._takes_record(line.record)

    def items(self, record: Record) -> list[RecordItem]:
        """Return the chosen items of a record."""
        return [item for item in record_items(record) if self.takes_item(record, item)]

    def _takes_record(self, record: Record) -> bool:
        for wanted, found in (
            (self.surface, record.surface), (self.caller, record.caller), (self.request_id, record.request_id),
            (self.trace_id, record.trace_id),
        ):  # fmt: skip
            if wanted and wanted != found:
                return False
        if self.query_id and self.query_id not in _query_ids(record):
            return False
        return not self.by_item or any(self.takes_item(record, item) for item in record_items(record))

    def takes_item(self, record: Record, item: RecordItem) -> bool:
        """Tell whether an item of a chosen record is chosen."""
        if self.denied and item.row.allowed:
            return False
        if self.action and self.action != item.entry.action:
            return False
        if self.resource and not _matches_resource(item.resource, self.resource):
            return False
        if not self.principal:
            return True
        inputs = inputs_of(record, item.entry)
        names = {item.entry.subject, inputs.principal.id if inputs else ""}
        return any(fnmatchcase(name, self.principal) for name in names if name)

    def _takes_event(self, data: bytes) -> bool:
        event = msgspec.json.decode(data)
        fields = (
            (self.surface, "surface"), (self.caller, "caller"), (self.request_id, "requestId"),
            (self.trace_id, "traceId"), (self.action, "operation"),
        )  # fmt: skip
        if any(wanted and wanted != event.get(name) for wanted, name in fields):
            return False
        if self.query_id or self.resource:
            return False
        if self.denied and event.get("event") != "refusal" and event.get("allowed") is not False:
            return False
        return not self.principal or fnmatchcase(str(event.get("actor", "")), self.principal)


def _query_ids(record: Record) -> set[str]:
    inputs = [record.inputs, *record.other_inputs] if record.inputs else []
    return {each.context.query_id for each in inputs if each}


def _matches_resource(reference: str, pattern: str) -> bool:
    """Tell whether a reference, with or without its ref, is that of a pattern."""
    return fnmatchcase(reference, pattern) or fnmatchcase(reference.rpartition("@")[0] or reference, pattern)
