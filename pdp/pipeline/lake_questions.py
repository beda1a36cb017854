"""Questions of a lake: equal checks as one question with a count, so that each decision is made once.

A question is everything that a decision depends on, which is long text. Spark therefore groups checks by two hashes of
64 bits, and reads the text of one check for each question afterwards, by its place in the files.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Final, Self

from pdp.errors import Unavailable
from pdp.pipeline.lake import Lake
from pdp.pipeline.pinned_lake import pinned
from pdp.pipeline.replay_rows import PART_BITS, QUESTION, ROW_PLACE, ReplayChoice, asked_rows, concrete_rows, with_place

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_SALTS: Final = (secrets.randbits(62), secrets.randbits(62))
"""Beginnings of both hashes: a name in the audit cannot be made to collide."""
_HASHES: Final = ("question", "twin")
_COUNTED: Final = ("checks", "first", "last")
_MOST_BROADCAST: Final = 1_000_000
"""Questions up to which each worker gets all hashes. Above, Spark sorts and joins."""


def numbered(rows: DataFrame) -> DataFrame:
    """Return rows with `question`, a number that is equal for equal questions of one process, and its `twin`."""
    return rows.withColumns(dict(zip(_HASHES, map(_hash, _SALTS), strict=True)))


def _hash(salt: int) -> Column:
    from pyspark.sql import functions as sql  # noqa: PLC0415  an extra

    # Spark's hash skips nulls: numbers in between tell such rows apart
    parts: list[Any] = [sql.lit(salt)]
    for at, name in enumerate(QUESTION):
        parts += [sql.lit(at), sql.col(name)]
    return sql.xxhash64(*parts)


class RecordedQuestions:
    """Questions of the chosen records, at one state of the lake. Close them: Spark keeps their numbers."""

    def __init__(self, lake: Lake, choice: ReplayChoice) -> None:
        self._lake = pinned(lake)
        self._choice = choice
        self._decisions = with_place(self._lake.table("decisions"))
        self._requests = with_place(self._lake.table("requests"))
        self._counts = self._counted().persist()
        self._totals: tuple[int, int] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Forget the numbers."""
        self._counts.unpersist()

    @property
    def rows(self) -> DataFrame:
        """Return one row for each check."""
        concrete, asked = concrete_rows(self._decisions, self._choice), asked_rows(self._requests, self._choice)
        return concrete.unionByName(asked)

    @property
    def checks(self) -> int:
        """Return the number of checks."""
        return self._count()[1]

    @property
    def number(self) -> int:
        """Return the number of questions."""
        return self._count()[0]

    def frame(self, *, planned: bool = False) -> DataFrame:
        """Return the questions: QUESTION, `question`, and `checks`, `first` and `last` of their checks.

        Times are microseconds since 1970. `planned`: for the plan alone, which counts nothing before.
        """
        counts = self._counts
        if planned or self.number <= _MOST_BROADCAST:
            from pyspark.sql import functions as sql  # noqa: PLC0415  an extra

            counts = sql.broadcast(counts)
        return self._concrete(counts).unionByName(self._asked(counts))

    def require(self, decided: int) -> None:
        """Raise Unavailable unless this is the number of checks: files of the lake were removed meanwhile."""
        if decided != self.checks:
            raise Unavailable(
                f"the lake changed during the replay, {decided:,} of {self.checks:,} checks were found again: repeat it"
            )

    def _count(self) -> tuple[int, int]:
        if self._totals is None:
            questions, checks = self._counts.selectExpr("count(*)", "coalesce(sum(checks), 0)").collect()[0]
            self._totals = questions, checks
        return self._totals

    def _counted(self) -> DataFrame:
        """Return the hashes of all questions with their counts, and the place of one of their rows."""
        from pyspark.sql import functions as sql  # noqa: PLC0415  an extra

        # values of a fixed length alone: Spark then groups in place and shuffles 56 bytes for a question
        return (
            numbered(self.rows)
            .groupBy(*_HASHES)
            .agg(
                sql.count(sql.lit(1)).alias("checks"),
                sql.unix_micros(sql.min("time")).alias("first"),
                sql.unix_micros(sql.max("time")).alias("last"),
                sql.min(ROW_PLACE).alias(ROW_PLACE),
            )
        )

    def _concrete(self, counts: DataFrame) -> DataFrame:
        """Return the questions whose chosen row is a concrete check."""
        return _chosen(concrete_rows(self._decisions, self._choice), counts)

    def _asked(self, counts: DataFrame) -> DataFrame:
        """Return the questions whose chosen row is a part of a record with split checks."""
        from pyspark.sql import functions as sql  # noqa: PLC0415  an extra

        record = sql.shiftleft(sql.shiftright(ROW_PLACE, PART_BITS), PART_BITS).alias(ROW_PLACE)
        records = self._requests.join(counts.select(record), ROW_PLACE, "left_semi")
        return _chosen(asked_rows(records, self._choice), counts)


def _chosen(rows: DataFrame, counts: DataFrame) -> DataFrame:
    """Return the rows at the places of questions whose hashes are those of the question: two places may be equal.

    As an exclusive or, the condition is reckoned for joined rows alone. As an equality, for all rows before.
    """
    renamed = counts.withColumnsRenamed({name: f"counted_{name}" for name in _HASHES})
    same = " AND ".join(f"(counted_{name} ^ {name}) = 0" for name in _HASHES)
    return numbered(rows.join(renamed, ROW_PLACE)).where(same).select(*QUESTION, "question", *_COUNTED)
