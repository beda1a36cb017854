"""Rows of the lake that a replay decides again: the checks of callers, with the columns that tell questions apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from pdp.audit.records.record import LISTING
from pdp.audit.records.schema import FILTER_EVENT
from pdp.pipeline.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_ASKED: Final = (
    "groups array<struct<principal:string, inputs:string, action:string, allowed:boolean, by:string, at:array<bigint>, "
    "resources:array<string>, before:bigint, resource_details:string, delegated:boolean, entry:string, "
    "errors:string>>, undecidable string"
)
"""Form of `requests.asked`: `AskedRows` of `pdp.audit.records.tables`."""
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
