"""Rows of records as tables have them, made by the product's own functions in this process."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import msgspec

from pdp.audit.facts.files import FOLDER, list_files
from pdp.audit.facts.history import FactsHistory
from pdp.audit.facts.log import ChangeRow, FactLog, change_rows
from pdp.audit.reader import read_records
from pdp.audit.records.recorded import ReadReport
from pdp.audit.records.schema import Record
from pdp.audit.records.tables import (
    COLUMNS,
    ExportRow,
    SplitChecks,
    TableRow,
    asked_text,
    check_rows,
    concrete_items,
    entry_text,
    inputs_text,
    json_value,
)
from pdp.audit.selection import RecordSelection, inputs_of, record_items
from pdp.facts.snapshot import Facts
from pdp.model.revision import Revision

ALL = RecordSelection()


def folder_records(folder: Path) -> Iterator[Record]:
    """Yield the records of decisions and row views in an audit folder."""
    for line in read_records(folder, ReadReport()):
        if line.record:
            yield line.record


def concrete_rows(record: Record) -> Iterator[ExportRow]:
    """Yield the rows of `decisions`: the columns of an export, and what else deciding again needs."""
    items = [] if record.unencodable else concrete_items(record, record_items(record))
    for row, item in zip_longest(check_rows(record, ALL), items):
        inputs = inputs_of(record, item.entry) if item else None
        yield {
            **{
                name: json_value(row[name]) if type == "json" and row[name] is not None else row[name]
                for name, type in COLUMNS.items()
            },
            "inputs": inputs_text(inputs) if inputs else None,
            "entry": entry_text(record, item.entry) if item else None,
        }


def table_rows(record: Record) -> Iterator[TableRow]:
    """Yield the rows that are decided again: what the caller asked, from both tables."""
    for row in concrete_rows(record):
        if row["asked"] and row["invalid"] is None:
            yield _table_row(record, row)
    asked = msgspec.json.decode(asked_text(record) or "{}", type=SplitChecks)
    for group in asked.groups:
        for at, resource in zip(group.at, group.resources, strict=True):
            yield _table_row(record, msgspec.structs.asdict(group) | {"at": at, "resource": resource})


def _table_row(record: Record, row: dict[str, Any]) -> TableRow:
    fields = {name: row.get(name) for name in TableRow.__struct_fields__}
    place = {"event": record.event, "revision": record.revision, "stale": record.stale, "time": record.time}
    masks = json_value(record.masks) if record.masks else None
    return msgspec.convert(fields | place | {"decision": record.id, "masks": masks}, TableRow)


def fact_rows(folder: Path) -> Iterator[ChangeRow]:
    """Yield the history of facts of an audit folder as rows."""
    history = FactsHistory(folder)
    for epoch in history.epochs():
        for sequence in list_files(folder / FOLDER / epoch).snapshots:
            yield from change_rows(history.at(Revision(epoch, sequence, "")))
        for revision in history.revisions(epoch):
            for change in revision.changes:
                yield ChangeRow(epoch, revision.sequence, False, json_value(change))


class TableArchive:
    """Archive made of rows, as a lake has them."""

    def __init__(self, folder: Path) -> None:
        self._bundles = {path.name: path.read_bytes() for path in (folder / "bundles").iterdir()}
        self._facts = FactLog(fact_rows(folder))

    def bundle_text(self, digest: str) -> bytes | None:
        """Return the text of a bundle; None without one."""
        return self._bundles.get(digest)

    def facts_at(self, revision: Revision) -> Facts:
        """Return the facts of a revision; raise MissingFacts."""
        return self._facts.at(revision)
