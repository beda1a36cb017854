"""Duplicates: records with an id of the lake, or of an earlier record in the batch.

Ids of a batch are compared in memory. The lake is asked only for ids between the first and the last id of each file:
ids sort by time, so Iceberg skips almost all files.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pdp.lake.ingest.passes import LeftOut
from pdp.lake.lake import Lake
from pdp.lake.tables import EVENTS, REQUESTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MOST_SPANS: Final = 40


class FileSurvey(NamedTuple):
    """Content of one file: ids of records as a column of Arrow, and the numbers of lines by kind.

    `complete`: the last line is the end of a segment.
    """

    ids: Any
    numbers: Any
    decisions: int
    events: int
    others: int
    complete: bool


def read_survey(frame: DataFrame, files: int) -> list[FileSurvey]:
    """Return the surveys of all files of a batch, in order. A batch has a million ids: they stay in Arrow."""
    table: Any = frame.toArrow()
    parts: list[list[Any]] = [[] for _ in range(files)]
    for batch in table.to_batches():
        for at in range(batch.num_rows):
            row = [batch[name][at].as_py() for name in ("decisions", "events", "others", "complete")]
            parts[batch["file"][at].as_py()].append((batch["ids"][at].values, batch["numbers"][at].values, *row))
    return [
        FileSurvey(
            pa.concat_arrays([part[0] for part in found]) if found else pa.array([], pa.string()),
            pa.concat_arrays([part[1] for part in found]) if found else pa.array([], pa.string()),
            sum(part[2] for part in found),
            sum(part[3] for part in found),
            sum(part[4] for part in found),
            any(part[5] for part in found),
        )
        for found in parts
    ]


def find_duplicates(lake: Lake, surveys: list[FileSurvey], places: Callable[[], list[FileSurvey]]) -> LeftOut:
    """Return the lines of duplicates by file. The first record with an id is no duplicate.

    Surveys read the beginnings of lines. In doubt, `places` reads the lines as a whole.
    """
    ids = pa.chunked_array([survey.ids for survey in surveys], pa.string())
    if not _twice(ids) and not _in_lake(lake, surveys, ids):
        return {}
    surveys = places()
    ids = pa.chunked_array([survey.ids for survey in surveys], pa.string())
    seen = _in_lake(lake, surveys, ids)
    doubtful = seen | _twice(ids)
    found: dict[int, set[int]] = {}
    for file, survey in enumerate(surveys):
        for number, id in zip(survey.numbers.to_pylist(), survey.ids.to_pylist(), strict=True):
            if id in doubtful:
                if id in seen:
                    found.setdefault(file, set()).add(int(number))
                seen.add(id)
    return {file: frozenset(lines) for file, lines in found.items()}


def _twice(ids: Any) -> set[str]:
    """Return the ids with more than one place."""
    counts = ids.value_counts()
    return set(counts.field("values").filter(pc.greater(counts.field("counts"), 1)).to_pylist())


def _in_lake(lake: Lake, surveys: list[FileSurvey], ids: Any) -> set[str]:
    """Return the ids of the batch in the lake."""
    from pyspark.sql import functions as sql  # noqa: PLC0415  an extra

    spans = _spans(surveys)
    filled = [table for table in (REQUESTS, EVENTS) if lake.state(table).newest is not None]
    if not (spans and filled):
        return set()
    near = reduce(lambda one, other: one | other, (sql.col("id").between(first, last) for first, last in spans))
    tables = (lake.table(table.name).where(near).select("id") for table in filled)
    present = reduce(lambda one, other: one.union(other), tables)
    if present.isEmpty():
        return set()
    batch = lake.spark.createDataFrame(pa.table({"id": ids}))
    common: Any = present.join(sql.broadcast(batch.distinct()), "id", "left_semi").toArrow()
    return set(common["id"].to_pylist())


def _spans(surveys: list[FileSurvey]) -> list[tuple[str, str]]:
    """Return the first and last ids of files, joined where they overlap; few, because each is a condition of SQL."""
    bounds = sorted(
        (found["min"].as_py(), found["max"].as_py())
        for survey in surveys
        if len(survey.ids) and (found := pc.min_max(survey.ids))
    )
    spans: list[tuple[str, str]] = []
    for first, last in bounds:
        if spans and first <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(last, spans[-1][1]))
        else:
            spans.append((first, last))
    return spans if len(spans) <= _MOST_SPANS else [(spans[0][0], max(last for _, last in spans))]
