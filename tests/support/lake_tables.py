"""Tables of a lake filled from an audit folder in this process, without a stream."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from support.table_rows import concrete_rows, fact_rows, folder_records

from pdp.audit.asked_rows import asked_text
from pdp.audit.schema import Record
from pdp.pipeline.lake import Lake
from pdp.pipeline.tables import BUNDLES, DECISIONS, FACTS, REQUESTS, TABLES, LakeTable


def fill_lake(lake: Lake, folder: Path) -> None:
    """Write decisions, requests, bundles and facts of a folder."""
    lake.create(TABLES.values())
    records = list(folder_records(folder))
    _append(lake, DECISIONS, (row for record in records for row in _decisions(record)))
    _append(lake, REQUESTS, map(_request, records))
    bundles = ({"digest": path.name, "text": path.read_text()} for path in (folder / "bundles").iterdir())
    _append(lake, BUNDLES, bundles)
    _append(lake, FACTS, _facts(folder))


def _decisions(record: Record) -> Iterator[dict[str, Any]]:
    for number, row in enumerate(concrete_rows(record)):
        yield {**row, "day": row["time"].date(), "decision_id": f"{record.id}#{number}", "record_version": 1}


def _request(record: Record) -> dict[str, Any]:
    time = datetime.fromisoformat(record.time)
    return {
        **msgspec.structs.asdict(record),
        "time": time,
        "day": time.date(),
        "asked": asked_text(record),
        "listing": None,
        "masks": None,
        "checks": 0,
        "allowed": 0,
    }


def _facts(folder: Path) -> Iterator[dict[str, Any]]:
    for number, row in enumerate(fact_rows(folder)):
        yield {**row._asdict(), "number": number}


def _append(lake: Lake, table: LakeTable, rows: Any) -> None:
    values = [tuple(row.get(name) for name in table.names) for row in rows]
    if values:
        lake.spark.createDataFrame(values, table.schema).writeTo(lake.name(table.name)).append()
