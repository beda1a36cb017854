"""Passes over the files of a batch: each reads every line again and yields rows for one table, as batches of Arrow.

Runs in Spark's Python workers. Passes agree on each line, because one judge decides. Lines in `left_out` are
duplicates: only the batch as a whole can see those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, TypeAlias

import msgspec
import pyarrow as pa

from pdp.audit.files.chain import SEGMENT_END
from pdp.audit.reader import TrailLine
from pdp.audit.records.schema import OTHER_EVENTS, RECORD_EVENTS
from pdp.facts.snapshot import without_collection
from pdp.lake.ingest.files import AuditFile, file_lines, plain_path
from pdp.lake.ingest.lines import (
    DUPLICATE,
    EventLine,
    JudgedLine,
    LineJudge,
    LineProblem,
    RecordLine,
    line_place,
    line_problem,
)
from pdp.lake.ingest.rows import Row, RowMaker, is_single
from pdp.lake.tables import DECISIONS, EVENTS, QUARANTINE, REQUESTS, LakeColumn, LakeTable, SqlType

ROWS: Final = 10_000
"""Rows of a batch."""
_TYPES: Final[dict[SqlType, Any]] = {
    "string": pa.string(),
    "array<string>": pa.list_(pa.string()),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "date": pa.date32(),
    "binary": pa.binary(),
}
LeftOut: TypeAlias = Mapping[int, frozenset[int]]
"""Number of a file in its batch -> numbers of the lines that are duplicates."""
_SURVEY: Final = (
    LakeColumn("file", "bigint", "number of the file in its batch"),
    LakeColumn("ids", "array<string>", "ids of records, in order"),
    LakeColumn("numbers", "array<string>", "numbers of their lines, or none"),
    LakeColumn("decisions", "bigint", "lines that say that they are a record of decisions"),
    LakeColumn("events", "bigint", "lines that say that they are a record of an event"),
    LakeColumn("others", "bigint", "lines that say neither"),
    LakeColumn("complete", "boolean", "the last line is the end of a segment"),
)
SURVEY: Final = LakeTable("survey", "files of a batch by the beginnings of their lines", _SURVEY)
OTHER_REQUESTS: Final = msgspec.structs.replace(REQUESTS, name="other_requests")
"""Rows of `requests` that no row of `decisions` has all values of."""
PLACES: Final = LakeTable("places", "files of a batch with the place of each record", _SURVEY)
_SEGMENT_END: Final = f'{{"event":"{SEGMENT_END}"'.encode()
_IDS: Final = 50_000
_SORTED: Final = 50_000
"""Rows that are sorted together."""
_PRINCIPAL: Final = DECISIONS.names.index("principal")


class IngestBatch(msgspec.Struct, frozen=True):
    """Files for one batch of the lake. Days before `oldest`, in days since 1970, are late."""

    key: str
    files: tuple[AuditFile, ...]
    oldest: int | None = None
    time: str = ""


class FilePass:
    """Function of Spark's workers: from the numbers of files, or from their bytes, to the rows of one table."""

    def __init__(
        self, batch: IngestBatch, groups: tuple[tuple[int, ...], ...], left_out: LeftOut, table: LakeTable
    ) -> None:
        self._batch = batch
        self._groups = groups
        self._left_out = left_out
        self._table = table
        self._places = {file.path: number for number, file in enumerate(batch.files)}

    def of_groups(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield the rows of the files in numbered groups."""
        with without_collection():
            numbers = (at for batch in batches for group in batch["id"].to_pylist() for at in self._groups[group])
            yield from self._batches(row for at in numbers for row in self._rows(at, None))

    def of_contents(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield the rows of files from paths and bytes."""
        with without_collection():
            yield from self._batches(self._content_rows(batches))

    def _batches(self, rows: Iterable[Row]) -> Iterator[Any]:
        return record_batches(_by_principal(rows) if self._table.name == DECISIONS.name else rows, self._table)

    def _content_rows(self, batches: Iterable[Any]) -> Iterator[Row]:
        for batch in batches:
            for path, content in zip(batch["path"], batch["content"], strict=True):
                yield from self._rows(self._places[plain_path(path.as_py())], content.as_py())

    def _rows(self, at: int, content: bytes | None) -> Iterator[Row]:
        lines = file_lines(self._batch.files[at], content)
        return _MAKERS[self._table.name](self._batch, at, lines, self._left_out.get(at, frozenset()))


def _judged(batch: IngestBatch, lines: Iterable[TrailLine]) -> Iterator[tuple[TrailLine, JudgedLine]]:
    judge = LineJudge(batch.oldest).judge
    for line in lines:
        found = judge(line)
        if found is not None:
            yield line, found


def _by_principal(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield rows in runs of one principal: a run goes to one file, and a writer that stays at a file is fast."""
    left = iter(rows)
    while some := list(islice(left, _SORTED)):
        some.sort(key=_principal_of)
        yield from some


def _principal_of(row: Row) -> str:
    return row[_PRINCIPAL] or ""


def survey_rows(batch: IngestBatch, at: int, lines: Iterable[TrailLine], left_out: frozenset[int]) -> Iterator[Row]:
    """Yield the ids of a file and the numbers of lines by kind. Most fields are not read."""
    ids: list[str] = []
    counts = [0, 0, 0]
    complete = False
    for line in lines:
        place = line_place(line)
        complete = place is None and not line.problem and (complete or line.data.startswith(_SEGMENT_END))
        if place is None:
            continue
        counts[place.event in OTHER_EVENTS if place.event in RECORD_EVENTS else 2] += 1
        if place.id:
            ids.append(place.id)
        if len(ids) == _IDS:
            yield at, ids, (), 0, 0, 0, False
            ids = []
    yield at, ids, (), *counts, complete


def place_rows(batch: IngestBatch, at: int, lines: Iterable[TrailLine], left_out: frozenset[int]) -> Iterator[Row]:
    """Yield the ids of all records of a file with their lines."""
    ids: list[str] = []
    numbers: list[str] = []
    for line, found in _judged(batch, lines):
        if isinstance(found, LineProblem):
            continue
        ids.append((found.record if isinstance(found, RecordLine) else found.place).id)
        numbers.append(str(line.number))
        if len(ids) == _IDS:
            yield at, ids, numbers, 0, 0, 0, False
            ids, numbers = [], []
    yield at, ids, numbers, 0, 0, 0, False


def decision_rows(batch: IngestBatch, at: int, lines: Iterable[TrailLine], left_out: frozenset[int]) -> Iterator[Row]:
    """Yield the rows of `decisions` of a file."""
    make, source = RowMaker().decisions, batch.files[at].name
    for line, found in _judged(batch, lines):
        if isinstance(found, RecordLine) and line.number not in left_out:
            yield from make(found, source)


def request_rows(batch: IngestBatch, at: int, lines: Iterable[TrailLine], left_out: frozenset[int]) -> Iterator[Row]:
    """Yield the rows of `requests` of a file."""
    make, source = RowMaker().request, batch.files[at].name
    for line, found in _judged(batch, lines):
        if isinstance(found, RecordLine) and line.number not in left_out:
            yield make(found, source)


def other_request_rows(
    batch: IngestBatch, at: int, lines: Iterable[TrailLine], left_out: frozenset[int]
) -> Iterator[Row]:
    """Yield the rows of `requests` of a file, but those of records with a single check."""
    make, source = RowMaker().request, batch.files[at].name
    for line, found in _judged(batch, lines):
        if isinstance(found, RecordLine) and line.number not in left_out and not is_single(found):
            yield make(found, source)


def event_rows(batch: IngestBatch, at: int, lines: Iterable[TrailLine], left_out: frozenset[int]) -> Iterator[Row]:
    """Yield the rows of `events` of a file."""
    source = batch.files[at].name
    for line, found in _judged(batch, lines):
        if isinstance(found, EventLine) and line.number not in left_out:
            yield _event_row(found, source)


def quarantine_rows(batch: IngestBatch, at: int, lines: Iterable[TrailLine], left_out: frozenset[int]) -> Iterator[Row]:
    """Yield the rows of `quarantine` of a file."""
    file = batch.files[at]
    for line, found in _judged(batch, lines):
        if isinstance(found, LineProblem):
            bad = found
        elif line.number in left_out:
            bad = line_problem(line.data, DUPLICATE, "a record with this id is in the lake already")
        else:
            continue
        yield file.name, file.folder, line.number, *bad[:3], bad.text, batch.time, batch.key


def _event_row(line: EventLine, source: str) -> Row:
    place, fields = line.place, line.fields
    kinds = {"management": "operation", "refusal": "code", "report": "authority", "rewrite": "dialect"}
    kind = kinds.get(place.event, "what")
    answered = place.event in ("management", "rewrite")
    allowed = fields.get("allowed") if answered else False if place.event == "refusal" else None
    caller = _text(fields.get("caller"))
    return (
        place.event, place.id, place.instance, place.seq, line.time, line.day, _text(fields.get(kind)),
        allowed if isinstance(allowed, bool) else None,
        _text(fields.get("actor") or fields.get("principal")) or caller, caller,
        _text(fields.get("surface")), _text(fields.get("revision")), line.text, place.schema, source,
    )  # fmt: skip


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


_MAKERS: Final[Mapping[str, Callable[[IngestBatch, int, Iterable[TrailLine], frozenset[int]], Iterator[Row]]]] = {
    SURVEY.name: survey_rows,
    PLACES.name: place_rows,
    DECISIONS.name: decision_rows,
    REQUESTS.name: request_rows,
    OTHER_REQUESTS.name: other_request_rows,
    EVENTS.name: event_rows,
    QUARANTINE.name: quarantine_rows,
}
"""Table -> maker of the rows of one file."""


def arrow_schema(table: LakeTable) -> Any:
    """Return the columns of a table as a schema of Arrow."""
    return pa.schema([pa.field(column.name, _TYPES[column.type]) for column in table.columns])


def record_batches(rows: Iterable[Row], table: LakeTable) -> Iterator[Any]:
    """Yield batches of the rows of a table."""
    schema, left = arrow_schema(table), iter(rows)
    while some := list(islice(left, ROWS)):
        columns = [_array(column, field.type) for column, field in zip(zip(*some, strict=True), schema, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _array(values: Iterable[Any], type: Any) -> Any:
    """Return a column. Times are texts in UTC, days are numbers since 1970."""
    if pa.types.is_timestamp(type):
        return pa.array(values, pa.string()).cast(type)
    return pa.array(values, type)
