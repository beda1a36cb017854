"""Report on a lake from beginning to end, and its outputs: tables of the lake, CSV and JSON files, and the page."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from typing import Any, Final

import msgspec

from pdp.lake.lake import Lake
from pdp.lake.report.asking import QUESTIONS, SOURCES, Asker, Cell, CellType, Report, ReportAnswer, read_question
from pdp.lake.report.texts import escape
from pdp.lake.tables import RECORDED

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


_REPLAYS: Final = "replay_differences"
"""Table of replays, if there was one."""


def make_report(lake: Lake, days: int, notice: Callable[[str], None], note: str = "") -> Report:
    """Return the report on a lake, and write its tables; call `notice` with each step.

    Raise InvalidArgument if the lake has no tables.
    """
    asker = _asker(lake, days)
    answers: dict[str, ReportAnswer] = {}
    with asker.views(notice):
        for number, name in enumerate(QUESTIONS, 1):
            notice(f"question {number} of {len(QUESTIONS)}, {name}")
            answers[name] = asker.ask(read_question(name))
        if _has_candidate(lake):
            answers["candidate"] = asker.ask(read_question("candidate"))
    report = Report(lake.catalog.name, asker.first, asker.last, days, datetime.now(UTC), answers, note)
    notice("tables")
    write_tables(lake, report)
    return report


def _has_candidate(lake: Lake) -> bool:
    """Tell whether the lake has a replay under a candidate, and make the view that the question reads."""
    if not lake.exists(_REPLAYS):
        return False
    replays = lake.table(_REPLAYS)
    replays.createOrReplaceTempView(_REPLAYS)
    return not replays.where(f"candidate <> '{RECORDED}'").isEmpty()


def explain_questions(lake: Lake, days: int) -> str:
    """Return the plan of Spark for each question. Answers none; raise InvalidArgument if the lake has no tables."""
    asker = _asker(lake, days)
    with asker.views(lambda _: None):
        return "\n".join(f"-- {name}\n{asker.plan(read_question(name))}" for name in QUESTIONS)


def _asker(lake: Lake, days: int) -> Asker:
    for source in SOURCES:
        lake.table(source).createOrReplaceTempView(source)
    return Asker(lake.spark, days)
