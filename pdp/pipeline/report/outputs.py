"""Outputs of a report: tables of the lake, CSV and JSON files, and the page. Writes nothing but these."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from datetime import date
from typing import TYPE_CHECKING, Any, Final

import msgspec

from pdp.pipeline.report.answers import Cell, CellType, Report, ReportAnswer
from pdp.pipeline.report.texts import escape

if TYPE_CHECKING:
    from pdp.pipeline.lake import Lake

PREFIX: Final = "report_"
"""Beginning of the names of the tables in the lake."""
_SQL: Final[dict[CellType, str]] = {
    "text": "string", "number": "bigint", "share": "double", "flag": "boolean", "time": "timestamp", "day": "date",
}  # fmt: skip
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""Beginnings of texts that a spreadsheet may take for a formula."""


def write_tables(lake: Lake, report: Report) -> None:
    """Replace the tables `report_<name>` of the lake. Older reports stay in the snapshots of the tables."""
    for answer in report.answers.values():
        schema = ", ".join(f"`{column.name}` {_SQL[column.type]}" for column in answer.columns)
        rows = [list(row) for row in answer.rows]
        frame = lake.spark.createDataFrame(rows, schema).coalesce(1)
        frame.writeTo(lake.name(f"{PREFIX}{answer.name}")).using("iceberg").createOrReplace()


def json_text(answer: ReportAnswer) -> bytes:
    """Return an answer as one JSON object: `rows`, and in `others` and `rest` the rows that it leaves out."""
    fields = {"name": answer.name, "title": answer.title, "text": answer.text, "rows": answer.records()}
    return msgspec.json.format(msgspec.json.encode({**fields, "others": answer.others, "rest": answer.rest}), indent=1)


def csv_text(answer: ReportAnswer) -> bytes:
    """Return an answer as CSV, in the form of `pdp audit export`: no cell is a formula of a spreadsheet."""
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow([column.name for column in answer.columns])
    writer.writerows([list(map(_csv_cell, row)) for row in answer.rows])
    return output.getvalue().encode()


def file_texts(report: Report, suffix: str) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the bytes of a file for each answer: `csv` or `json`."""
    encode = csv_text if suffix == "csv" else json_text
    for answer in report.answers.values():
        yield f"{answer.name}.{suffix}", encode(answer)


def _csv_cell(value: Cell) -> Any:
    if isinstance(value, str):
        return escape(f"'{value}" if value.startswith(_FORMULA) else value)
    if isinstance(value, date):
        return value.isoformat()
    return str(value).lower() if isinstance(value, bool) else value
