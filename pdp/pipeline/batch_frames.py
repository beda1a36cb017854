"""Data frames of a batch: one pass over its files for each table."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from pdp.pipeline.passes import FilePass, IngestBatch, LeftOut
from pdp.pipeline.tables import REQUESTS, LakeTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SINGLE_REQUEST: Final = {
    "left_out": "0", "checks": "1", "allowed": "allowed", "asked": "null", "listing": "null", "unencodable": "null",
}  # fmt: skip
"""Columns of `requests` that a single check has by another name, as SQL. All others are those of `decisions`."""


def batch_frame(spark: SparkSession, batch: IngestBatch, left_out: LeftOut, table: LakeTable) -> DataFrame:
    """Return the rows of a table that the files of a batch hold.

    Workers read files of this machine on their own. Spark brings the bytes of all others.
    """
    local = [at for at, file in enumerate(batch.files) if file.local or file.gone]
    others = [file.path for file in batch.files if not (file.local or file.gone)]
    groups = _groups(batch, local, spark.sparkContext.defaultParallelism)
    work = FilePass(batch, groups, left_out, table)
    frames: list[Any] = []
    if groups:
        numbers = spark.range(0, len(groups), 1, len(groups))
        frames.append(numbers.mapInArrow(work.of_groups, table.schema))
    if others:
        contents = spark.read.format("binaryFile").load([escape_glob(path) for path in others])
        frames.append(contents.select("path", "content").mapInArrow(work.of_contents, table.schema))
    return reduce(lambda one, other: one.union(other), frames)


def single_requests(decisions: DataFrame) -> DataFrame:
    """Return the rows of `requests` for rows of `decisions` that are the single check of their record."""
    from pyspark.sql import functions as sql  # noqa: PLC0415  an extra

    columns = [
        sql.expr(SINGLE_REQUEST.get(column.name, f"`{column.name}`")).cast(column.type).alias(column.name)
        for column in REQUESTS.columns
    ]
    return decisions.where("single").select(columns)


def _groups(batch: IngestBatch, numbers: Sequence[int], most: int) -> tuple[tuple[int, ...], ...]:
    """Return the numbers of files in up to `most` groups of about the same size.

    Neighbours stay together: they are of the same days, and a writer opens a file for each day.
    """
    groups: list[list[int]] = [[] for _ in range(min(most, len(numbers)))]
    sizes = [batch.files[number].end or 1 for number in numbers]
    before, total = 0, sum(sizes)
    for number, size in zip(numbers, sizes, strict=True):
        groups[(before + size // 2) * len(groups) // total].append(number)
        before += size
    return tuple(tuple(group) for group in groups if group)


def escape_glob(path: str) -> str:
    """Return a path as a pattern of Hadoop that names only this path."""
    return "".join(f"\\{sign}" if sign in "\\{}[]*?," else sign for sign in path)
