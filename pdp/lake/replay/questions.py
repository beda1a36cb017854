"""Questions of a lake: equal checks as one question with a count, so that each decision is made once.

A question is everything that a decision depends on, which is long text. Spark therefore groups checks by two hashes of
64 bits, and reads the text of one check for each question afterwards, by its place in the files. Gaps in the records of
a lake are counted, so that no replay looks whole that is not.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from pdp.audit.records.record import LISTING
from pdp.audit.records.recorded import NO_CHECK
from pdp.audit.records.schema import DROPPED, FILTER_EVENT
from pdp.errors import InvalidArgument, Unavailable
from pdp.lake.lake import Lake, pinned

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


_ASKED: Final = (
    "groups array<struct<principal:string, inputs:string, action:string, allowed:boolean, by:string, at:array<bigint>, "
    "resources:array<string>, before:bigint, resource_details:string, delegated:boolean, entry:string, "
    "errors:string>>, undecidable string"
)
"""Form of `requests.asked`: `SplitChecks` of `pdp.audit.records.tables`."""
QUESTION: Final = (
    "event", "revision", "stale", "inputs", "action", "resource", "resource_details", "delegated", "entry", "masks",
    "allowed", "by", "errors", "second",
)  # fmt: skip
"""Columns of a question. `errors` is JSON. `second` is null unless candidate policies read the time."""
ROW_PLACE: Final = "row_place"
"""Column with the place of a row in the files of its table."""
PART_BITS: Final = 20
"""Bits of ROW_PLACE for the part of a row: a record in `requests` has many checks."""
_ROW: Final = (*QUESTION, "id", "time", "at", "principal")


class ReplayChoice(msgspec.Struct, frozen=True):
    """Choice of records, with times as records write them, and what else tells questions apart.

    `listings`: include the checks behind listings. `by_revision`: checks of two revisions are two questions. Row views
    of two revisions always are. `by_second`: checks of two seconds are two.
    """

    since: str = ""
    until: str = ""
    principal: str = ""
    listings: bool = False
    by_revision: bool = True
    by_second: bool = False


def question_rows(lake: Lake, choice: ReplayChoice) -> DataFrame:
    """Return one row for each check: the columns of its question, `id`, `time`, `at` and `principal`."""
    rows = concrete_rows(lake.table("decisions"), choice)
    return rows.unionByName(asked_rows(lake.table("requests"), choice))


def with_place(rows: DataFrame) -> DataFrame:
    """Return the rows of a table with ROW_PLACE: a number of file and row, above bits for a part of the row.

    Two rows hardly ever share a number.
    """
    from pyspark.sql import functions as sql  # noqa: PLC0415  an extra

    number = sql.xxhash64("_file", "_pos").bitwiseAND(sql.lit((1 << (63 - PART_BITS)) - 1))
    return rows.select("*", sql.shiftleft(number, PART_BITS).alias(ROW_PLACE))


def concrete_rows(decisions: DataFrame, choice: ReplayChoice) -> DataFrame:
    """Return the checks of callers that are concrete checks themselves. Rows with ROW_PLACE keep the column."""
    from pyspark.sql import functions as sql  # noqa: PLC0415  an extra

    rows = chosen(decisions, choice).where("asked and at is not null and invalid is null")
    if choice.principal:
        rows = rows.where(sql.col("principal") == choice.principal)
    # Iceberg reads the columns of a batch of rows together if none of these columns is a list
    flat = rows.withColumn("errors", sql.col("errors_json"))
    return _told_apart(flat, choice).select(*_ROW, *_kept_place(rows))


def asked_rows(requests: DataFrame, choice: ReplayChoice) -> DataFrame:
    """Return the checks of callers that a plan split. Rows with ROW_PLACE keep the column."""
    from pyspark.sql import functions as sql  # noqa: PLC0415  an extra

    records = chosen(requests, choice).where("asked is not null")
    grouped = records.withColumn("same", sql.explode(sql.from_json("asked", _ASKED)["groups"]))
    if choice.principal:
        grouped = grouped.where(sql.col("same.principal") == choice.principal)
    asked = grouped.select("*", sql.posexplode("same.resources").alias("number", "asked_resource"))
    rows = asked.select(
        "id", "time", sql.col("same.at")[sql.col("number")].alias("at"), "same.principal", "same.inputs", "event",
        "revision", "stale", "same.action", sql.col("asked_resource").alias("resource"), "same.resource_details",
        sql.coalesce("same.delegated", sql.lit(False)).alias("delegated"), "same.entry",
        sql.lit(None).cast("string").alias("masks"), "same.allowed", "same.by", "same.errors",
        *(sql.expr(f"{name} + coalesce(same.before, 0) + number").alias(name) for name in _kept_place(records)),
    )  # fmt: skip
    return _told_apart(rows, choice).select(*_ROW, *_kept_place(records))


def _kept_place(rows: DataFrame) -> list[str]:
    return [ROW_PLACE] if ROW_PLACE in rows.columns else []


def _told_apart(rows: DataFrame, choice: ReplayChoice) -> DataFrame:
    """Return rows with `revision` and `second` as the choice tells questions apart."""
    from pyspark.sql import functions as sql  # noqa: PLC0415  an extra

    revision: Column = sql.col("revision")
    if not choice.by_revision:
        # a row view is compared with the view of its revision, whatever the candidate replaces
        revision = sql.when(sql.col("event") == FILTER_EVENT, revision).otherwise("")
    second = sql.unix_seconds("time") if choice.by_second else sql.lit(None).cast("bigint")
    return rows.withColumns({"revision": revision, "second": second})


def undecidable_records(lake: Lake, choice: ReplayChoice) -> DataFrame:
    """Return the records without any check that can be decided again, by cause."""
    from pyspark.sql import functions as sql  # noqa: PLC0415  an extra

    asked = sql.from_json("asked", _ASKED)
    records = chosen(lake.table("requests"), choice).where("asked is not null")
    checks = sql.greatest("checks", sql.lit(1)).alias("checks")
    causes = records.select(asked["undecidable"].alias("cause"), checks, "id", "time").where("cause <> ''")
    return causes.groupBy("cause").agg(
        sql.sum("checks").alias("checks"), sql.min("id").alias("id"), sql.min("time").alias("first"),
        sql.max("time").alias("last"),
    )  # fmt: skip


def chosen(rows: DataFrame, choice: ReplayChoice) -> DataFrame:
    """Return the rows of the chosen times and surfaces."""
    from pyspark.sql import functions as sql  # noqa: PLC0415  an extra

    for text, is_first in ((choice.since, True), (choice.until, False)):
        if text:
            time, column = sql.lit(text).cast("timestamp"), sql.col("time")
            day = sql.lit(text[:10]).cast("date")
            rows = rows.where(column >= time).where(sql.col("day") >= day) if is_first else rows.where(column < time)
            rows = rows if is_first else rows.where(sql.col("day") <= day)
    return rows if choice.listings else rows.where(sql.col("surface") != LISTING)


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


class RecordGaps(msgspec.Struct, frozen=True):
    """Gaps that leave a proof in part: checks that could not be decided again by cause, and lines in quarantine.

    Duplicates in quarantine are no gap.
    """

    undecidable: Mapping[str, int] = {}
    quarantined: int = 0

    @property
    def checks(self) -> int:
        """Return the number of checks that could not be decided again."""
        return sum(self.undecidable.values())


def require_whole(lake: Lake, choice: ReplayChoice) -> None:
    """Raise InvalidArgument for records without all permits: an unused right would only look unused."""
    from pyspark.sql import functions as sql  # noqa: PLC0415  an extra

    rows = chosen(lake.table("requests"), choice).agg(sql.min("sampled"), sql.sum("left_out")).collect()
    sampled, left_out = rows[0]
    if (sampled is not None and sampled < 1) or left_out:
        raise InvalidArgument(
            f"the permits of this lake were sampled ({left_out or 0:,} have no record), so that used rights look unused"
        )
    if sampled is None:
        raise InvalidArgument("the lake has no such records: run `pdp pipeline ingest`")
    _require_no_dropped(lake, choice)


def _require_no_dropped(lake: Lake, choice: ReplayChoice) -> None:
    """Raise InvalidArgument if a service dropped records because its audit could not be written."""
    from pyspark.sql import functions as sql  # noqa: PLC0415  an extra

    number = sql.get_json_object("details", "$.details.records").cast("bigint")
    of_the_time = msgspec.structs.replace(choice, listings=True)  # events of a service have no surface
    rows = chosen(lake.table("events"), of_the_time)
    rows = rows.where((sql.col("event") == "service") & (sql.col("kind") == DROPPED))
    found = rows.agg(sql.count(sql.lit(1)), sql.sum(number), sql.max("time").cast("string")).collect()
    announced, records, last = found[0]
    if announced:
        raise InvalidArgument(
            f"{records or announced:,} records of this lake were dropped, the last before {last} UTC, so that used "
            "rights look unused: choose later records with --since"
        )


def lost_lines(lake: Lake) -> int:
    """Return the number of lines in quarantine that are no duplicates."""
    return lake.table("quarantine").where("reason <> 'duplicate'").count() if lake.exists("quarantine") else 0


def unread_causes(lake: Lake, choice: ReplayChoice) -> dict[str, int]:
    """Return the numbers of checks in unreadable records, by cause. A request without a check is no gap."""
    return {row.cause: row.checks for row in undecidable_records(lake, choice).collect() if row.cause != NO_CHECK}
