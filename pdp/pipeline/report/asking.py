"""Questions asked on Spark: views over the tables of the lake, then one answer for each question.

The table `decisions` is read once, into counts of equal checks; the counts are kept in memory or on disk. Answers are
bounded: the first rows come to this process, the others are summed up by Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from pdp.engines.grants.model import MODEL
from pdp.pipeline.collected import utc_value
from pdp.pipeline.plans import plan_text
from pdp.pipeline.report.answers import CellType, ReportAnswer, ReportColumn
from pdp.pipeline.report.questions import VIEWS, LakeQuestion, read_view

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
