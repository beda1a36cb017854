"""Report on a lake from beginning to end: questions, answers and outputs (tables of the lake, CSV and JSON files).

The questions are asked on Spark over views of the lake's tables. The table `decisions` is read once, into counts of
equal checks; the counts are kept in memory or on disk. Answers are bounded: the first rows come to this process, the
others are summed up by Spark.

Questions are SQL files beside this module, each with a title, an order and a bound on its rows. `sql/views` has what
the questions share, in the order of VIEWS.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, date, datetime
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from pdp.engines.grants.model import MODEL
from pdp.lake.lake import Lake
from pdp.lake.replay.archive import utc_value
from pdp.lake.report.texts import escape
from pdp.lake.session import plan_text
from pdp.lake.tables import RECORDED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


Cell: TypeAlias = str | int | float | bool | date | datetime | None
CellType: TypeAlias = Literal["text", "number", "share", "flag", "time", "day"]


class ReportColumn(msgspec.Struct, frozen=True):
    """Column of an answer."""

    name: str
    type: CellType


class Remainder(NamedTuple):
    """Rows that are not shown: their number, and sums of columns."""

    rows: int
    sums: Mapping[str, int]


class ReportAnswer(msgspec.Struct, frozen=True):
    """Answer to a question: the first rows in its order. `others` counts further rows, `rest` has sums over those."""

    name: str
    title: str
    text: str
    columns: tuple[ReportColumn, ...]
    rows: tuple[tuple[Cell, ...], ...]
    others: int = 0
    rest: Mapping[str, int] = {}
    sums: tuple[str, ...] = ()

    def types(self) -> dict[str, CellType]:
        """Return the types of the columns by name."""
        return {column.name: column.type for column in self.columns}

    def after(self, shown: int) -> Remainder:
        """Return the rows after the first ones: those at hand, and those that the lake has left out."""
        left = self.records()[shown:]
        sums = {name: self.rest.get(name, 0) + sum(row[name] or 0 for row in left) for name in self.sums}
        return Remainder(len(left) + self.others, sums)

    def records(self) -> list[dict[str, Any]]:
        """Return the rows as objects."""
        names = [column.name for column in self.columns]
        return [dict(zip(names, row, strict=True)) for row in self.rows]


class Report(msgspec.Struct, frozen=True):
    """All answers, by name. `first` and `last` are the days of the records; `days` is the time without use."""

    source: str
    first: datetime | None
    last: datetime | None
    days: int
    made: datetime
    answers: Mapping[str, ReportAnswer]
    note: str = ""

    def records(self, name: str) -> list[dict[str, Any]]:
        """Return the rows of an answer as objects; none if there is no such answer."""
        answer = self.answers.get(name)
        return answer.records() if answer else []

    def total(self, name: str) -> Any:
        """Return a value of the one row of totals; 0 for none."""
        totals = self.records("totals")
        return (totals[0].get(name) if totals else None) or 0


VIEWS: Final = ("usage", "loads", "known_views", "accesses", "grants_now")
"""Views that questions read, in the order of their making."""
QUESTIONS: Final = (
    "totals", "days", "hours", "principals", "roles", "objects", "actions", "engines", "callers", "trusted_engines",
    "denials", "after_removal", "delegated", "unused_grants", "unused_rules", "dormant", "first_access", "errors",
    "changes",
)  # fmt: skip
_FIELD: Final = "-- "


class LakeQuestion(msgspec.Struct, frozen=True):
    """Question about the lake. `order` is that of its rows; `sums` have a sum over the rows left out."""

    name: str
    title: str
    text: str
    order: str
    sums: tuple[str, ...]
    sql: str


def read_view(name: str) -> str:
    """Return the SQL of a view."""
    return _read(f"views/{name}")


def read_question(name: str) -> LakeQuestion:
    """Return a question: the fields of the comment at its top, and its SQL."""
    text = _read(f"questions/{name}")
    lines = text.splitlines()
    fields = dict(line.removeprefix(_FIELD).split(": ", 1) for line in lines if line.startswith(_FIELD))
    sums = tuple(filter(None, fields.get("sum", "").split(", ")))
    return LakeQuestion(name, fields["title"], fields["text"], fields["order"], sums, text)


def _read(name: str) -> str:
    return files(__package__).joinpath(f"sql/{name}.sql").read_text(encoding="utf-8")


SOURCES: Final = ("decisions", "requests", "events", "facts", "bundles")
"""Tables of the lake that questions read."""
MOST_ROWS: Final = 1000
"""Rows of an answer. The others are counted and summed."""
_KEPT: Final = ("usage", "accesses", "loads", "grants_now")
"""Views that several questions read."""
_TYPES: Final[Mapping[str, CellType]] = {
    "bigint": "number", "int": "number", "double": "share", "boolean": "flag", "timestamp": "time", "date": "day",
}  # fmt: skip


class Asker:
    """Asker of questions about one lake. `days` is the time without use after which a right is a finding."""

    def __init__(self, spark: SparkSession, days: int, most_rows: int = MOST_ROWS) -> None:
        self._spark = spark
        self._days = days
        self._most_rows = most_rows
        newest = spark.sql("SELECT max(time) AS last, min(time) AS first FROM requests").first()
        assert newest
        self.first: datetime | None = utc_value(newest["first"])
        self.last: datetime | None = utc_value(newest["last"])

    def ask(self, question: LakeQuestion) -> ReportAnswer:
        """Return the answer to a question."""
        asked = self._sql(question.sql).cache()
        try:
            return self._answer(question, asked)
        finally:
            asked.unpersist()

    def plan(self, question: LakeQuestion) -> str:
        """Return the plan of Spark for a question."""
        return plan_text(self._sql(question.sql))

    @contextmanager
    def views(self, notice: Callable[[str], None]) -> Iterator[None]:
        """Make the views that questions read; drop them at the end."""
        kept = []
        try:
            privileges = [(type, action, privilege) for (type, action), privilege in missing_privileges().items()]
            self._spark.createDataFrame(
                privileges, "type STRING, action STRING, privilege STRING"
            ).createOrReplaceTempView("privileges")
            for name in VIEWS:
                notice(name)
                view = self._sql(read_view(name))
                if name in _KEPT:
                    view = view.cache()
                    kept.append(view)
                view.createOrReplaceTempView(name)
            yield
        finally:
            for view in reversed(kept):
                view.unpersist()

    def _sql(self, text: str) -> DataFrame:
        end = self.last or datetime.now(UTC)
        wanted: dict[str, Any] = {"days": self._days, "end": end.date(), "end_time": end}
        return self._spark.sql(text, {name: value for name, value in wanted.items() if f":{name}" in text})

    def _answer(self, question: LakeQuestion, asked: DataFrame) -> ReportAnswer:
        columns = tuple(ReportColumn(name, _TYPES.get(type, "text")) for name, type in asked.dtypes)
        asked.createOrReplaceTempView("asked")
        top = self._spark.sql(f"SELECT * FROM asked ORDER BY {question.order} LIMIT {self._most_rows}").collect()  # noqa: S608
        rows = tuple(tuple(map(utc_value, row)) for row in top)
        if len(rows) < self._most_rows:
            return ReportAnswer(question.name, question.title, question.text, columns, rows, sums=question.sums)
        sums = "".join(f", sum(`{name}`) AS `{name}`" for name in question.sums)
        whole = self._spark.sql(f"SELECT count(*) AS rows{sums} FROM asked").first()  # noqa: S608
        assert whole
        names = [column.name for column in columns]
        shown = {name: sum(row[names.index(name)] or 0 for row in top) for name in question.sums}
        rest = {name: (whole[name] or 0) - shown[name] for name in question.sums}
        others = whole["rows"] - len(rows)
        return ReportAnswer(question.name, question.title, question.text, columns, rows, others, rest, question.sums)


def missing_privileges() -> dict[tuple[str, str], str]:
    """Return the privilege that permits an action, by type of object and action: the weakest of the model's rule."""
    return {
        (type, action): rule.split(" | ")[0].strip("()").split(" - ")[0].replace(" & ", " and ")
        for type, model in MODEL.items()
        for actions, rule in model.actions.items()
        for action in actions.split()
    }


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
