"""Batches: files that go into all tables of the lake, each exactly once, whenever the process is killed.

A note in `sources` names the batch and its duplicates before any table gets rows, and a second note ends the batch.
Each table gets the rows by one commit with the name of the batch. After a kill the next run finds the note without an
end, asks each table for the batch, and writes the rest: the same rows, because the note has the duplicates. Nothing
depends on a checkpoint: the lake knows which files it has, and how far.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from pdp.lake.ingest.duplicates import FileSurvey, find_duplicates, read_survey
from pdp.lake.ingest.files import AuditFile, present_file
from pdp.lake.ingest.passes import OTHER_REQUESTS, PLACES, SURVEY, FilePass, IngestBatch, LeftOut
from pdp.lake.lake import Lake, SoleWriter, TableChanged, TableCommit, TableState
from pdp.lake.replay.archive import utc_time
from pdp.lake.tables import DECISIONS, EVENTS, QUARANTINE, REQUESTS, SOURCES, LakeTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


BATCH: Final = "pdp.batch"
"""Property of a snapshot: the batch that it wrote."""
BEGUN: Final = "begun"
DONE: Final = "done"
_FILLED: Final = (DECISIONS, REQUESTS, EVENTS, QUARANTINE)


class BatchCounts(msgspec.Struct):
    """Counts of one or more batches: rows of `decisions`, and lines in quarantine, with the duplicates among them."""

    files: int = 0
    ingested: int = 0
    duplicates: int = 0
    quarantined: int = 0

    def add(self, other: BatchCounts) -> None:
        """Add the counts of another batch."""
        self.files += other.files
        self.ingested += other.ingested
        self.duplicates += other.duplicates
        self.quarantined += other.quarantined


class _Plan(msgspec.Struct):
    """Batch with the numbers of lines of each file by what they say they are: decisions, events, others.

    `complete` tells of each file whether the part ends with the end of a segment.
    """

    batch: IngestBatch
    lines: list[tuple[int, int, int]]
    complete: list[bool]
    left_out: LeftOut
    before: Mapping[str, TableState] | None = None
    """Tables before the batch began; None for a batch of a killed process."""

    def count(self, kind: int) -> int:
        """Return the lines of one kind."""
        return sum(numbers[kind] for numbers in self.lines)

    @property
    def duplicates(self) -> int:
        """Return the number of duplicates."""
        return sum(map(len, self.left_out.values()))


class BatchWriter:
    """Writer of batches into the tables of a lake. `late_days`: older records than so many days go to quarantine.

    Another writer of the lake since `begin` makes every method raise TableChanged.
    """

    def __init__(self, lake: Lake, say: Callable[[str], None], late_days: int | None = None) -> None:
        self._lake = lake
        self._notes: SoleWriter | None = None
        self.known = KnownFiles()
        """Files in the lake, with those of all batches of this writer."""
        self._say = say
        self._late_days = late_days

    def begin(self) -> None:
        """Be the only writer from now on, and read which files the lake has."""
        self._notes = SoleWriter(self._lake, SOURCES)
        self.known = KnownFiles() if self._notes.begins_empty else read_known_files(self._lake)

    def write(self, files: Sequence[AuditFile]) -> BatchCounts:
        """Write the files into all tables, and return the counts."""
        ordered = tuple(sorted(files, key=lambda file: (file.name, file.folder, file.start)))
        batch = IngestBatch(
            uuid.uuid4().hex, ordered, self._oldest(), datetime.now(UTC).isoformat(timespec="microseconds")
        )
        self._say(f"reading {len(ordered)} files")
        surveys = self._survey(batch, SURVEY)
        left_out = find_duplicates(self._lake, surveys, lambda: self._survey(batch, PLACES))
        before = {table.name: self._lake.state(table) for table in _FILLED}
        lines = [(each.decisions, each.events, each.others) for each in surveys]
        plan = _Plan(batch, lines, [each.complete for each in surveys], left_out, before)
        if any(map(any, lines)):
            self._add_note(plan, BEGUN)
        return self._finish(plan)

    def resume(self) -> BatchCounts:
        """Write the rest of batches that a killed process has begun, and return the counts."""
        counts = BatchCounts()
        assert self._notes
        for plan in () if self._notes.begins_empty else self._unfinished():
            self._say(f"finishing the batch {plan.batch.key}")
            counts.add(self._finish(plan))
        return counts

    def _survey(self, batch: IngestBatch, table: LakeTable) -> list[FileSurvey]:
        return read_survey(batch_frame(self._lake.spark, batch, {}, table), len(batch.files))

    def _finish(self, plan: _Plan) -> BatchCounts:
        decisions, events, others = map(plan.count, range(3))
        ingested = self._put(plan, DECISIONS) if decisions else 0
        requests = self._put(plan, REQUESTS) if decisions else 0
        events_kept = self._put(plan, EVENTS) if events else 0
        quarantined = decisions + events + others - requests - events_kept
        if quarantined or any(file.gone for file in plan.batch.files):
            quarantined = self._put(plan, QUARANTINE)
        self._add_note(plan, DONE)
        for file, complete in zip(plan.batch.files, plan.complete, strict=True):
            self.known.add(file, complete=complete)
        return BatchCounts(len(plan.batch.files), ingested, plan.duplicates, quarantined)

    def _put(self, plan: _Plan, table: LakeTable) -> int:
        """Write the rows of a batch to a table that does not have them yet, and return their number."""
        key, state = plan.batch.key, self._lake.state(table)
        before = plan.before[table.name].newest if plan.before else None
        done = state.commit(BATCH, key, before)
        if done is None:
            self._say(f"writing {table.name}")
            self._lake.append(table, self._frame(plan, table), {BATCH: key}, state)
            done = self._lake.state(table).commit(BATCH, key, state.newest)
        elif plan.before:
            raise TableChanged(f"another ingest has finished the batch {key}: run one ingest of a lake at a time")
        return done.rows if done else 0

    def _frame(self, plan: _Plan, table: LakeTable) -> DataFrame:
        """Return the rows of a batch for one table; those of `requests` from the rows of `decisions` where possible."""
        spark, batch, left_out = self._lake.spark, plan.batch, plan.left_out
        decisions = self._commit(plan, DECISIONS) if table is REQUESTS and plan.before else None
        if decisions is None:
            return batch_frame(spark, batch, left_out, table)
        singles = single_requests(self._lake.added(DECISIONS, decisions))
        if decisions.rows == plan.count(0) == singles.count():
            return singles
        return singles.unionByName(batch_frame(spark, batch, left_out, OTHER_REQUESTS))

    def _commit(self, plan: _Plan, table: LakeTable) -> TableCommit | None:
        """Return the commit of a batch that this process has begun."""
        assert plan.before
        return self._lake.state(table).commit(BATCH, plan.batch.key, plan.before[table.name].newest)

    def _add_note(self, plan: _Plan, state: str) -> None:
        batch, time = plan.batch, datetime.now(UTC)
        rows = [
            (
                file.name, file.folder, file.path, file.start, file.end, batch.key, state, *plan.lines[at],
                write_ranges(plan.left_out.get(at, frozenset())), batch.oldest, time,
                plan.complete[at],
            )
            for at, file in enumerate(batch.files)
        ]  # fmt: skip
        assert self._notes
        self._notes.append(self._lake.spark.createDataFrame(rows, SOURCES.schema), {BATCH: batch.key})

    def _oldest(self) -> int | None:
        """Return the first day that is not late, by the newest day in the lake."""
        if self._late_days is None:
            return None
        newest = self._lake.table("requests").selectExpr("unix_date(max(day)) AS day").collect()[0].day
        return None if newest is None else newest - self._late_days

    def _unfinished(self) -> list[_Plan]:
        begun = unfinished_batches(self._lake)
        keys = dict.fromkeys(row.batch for row in begun)
        return [self._plan([row for row in begun if row.batch == key]) for key in keys]

    def _plan(self, rows: Sequence[Any]) -> _Plan:
        """Return the plan of a batch from its notes."""
        rows = sorted(rows, key=lambda row: (row.source, row.folder, row.start))
        first = rows[0]
        files = tuple(
            present_file(self._lake.spark, AuditFile(row.path, row.folder, row.source, row.end, row.start))
            for row in rows
        )
        time = utc_time(first.time).isoformat(timespec="microseconds")
        batch = IngestBatch(first.batch, files, first.oldest, time)
        left_out = {at: lines for at, row in enumerate(rows) if (lines := read_ranges(row.duplicates))}
        counts = [(row.decisions, row.events, row.others) for row in rows]
        return _Plan(batch, counts, [bool(row.complete) for row in rows], left_out)


def unfinished_batches(lake: Lake) -> list[Any]:
    """Return the notes in `sources` of batches without an end, in order."""
    rows = lake.table("sources")
    done = rows.where(rows.state == DONE).select("batch")
    found: list[Any] = rows.where(rows.state == BEGUN).join(done, "batch", "left_anti").orderBy("time").collect()
    return found


def write_ranges(lines: frozenset[int]) -> str:
    """Return numbers of lines as JSON: first and last of each run. A copy of a file is one run."""
    runs: list[list[int]] = []
    for line in sorted(lines):
        if runs and line == runs[-1][1] + 1:
            runs[-1][1] = line
        else:
            runs.append([line, line])
    return msgspec.json.encode(runs).decode()


def read_ranges(text: str) -> frozenset[int]:
    """Return the numbers of lines that a text of `write_ranges` names."""
    runs = msgspec.json.decode(text, type=list[tuple[int, int]])
    return frozenset(line for first, last in runs for line in range(first, last + 1))


class KnownFile(NamedTuple):
    """File in the lake. `end`: the bytes of a plain file so far. `whole`: a compressed form has no further lines."""

    end: int
    whole: bool


class KnownFiles:
    """Files in the lake by folder and name, as `sources` has them."""

    def __init__(self, rows: Iterable[tuple[tuple[str, str], KnownFile]] = ()) -> None:
        self._known = dict(rows)

    def has(self, file: AuditFile) -> bool:
        """Tell whether the lake has the file, or a part."""
        return file.place in self._known

    def new(self, files: Iterable[AuditFile]) -> list[AuditFile]:
        """Return the files, or their parts, that the lake lacks. Of two forms of one file, the plain one counts."""
        chosen: dict[tuple[str, str], AuditFile] = {}
        for file in sorted(files, key=lambda each: not each.end):
            known = self._known.get(file.place)
            if file.place in chosen:
                continue
            if known is None:
                chosen[file.place] = file
            elif file.end > known.end or not (file.end or known.whole):
                chosen[file.place] = msgspec.structs.replace(file, start=known.end)
        return list(chosen.values())

    def add(self, file: AuditFile, *, complete: bool) -> None:
        """Keep a file that is in the lake. `complete`: the part ends with the end of a segment."""
        known = self._known.get(file.place, KnownFile(0, False))
        whole = known.whole or complete or not file.end
        self._known[file.place] = KnownFile(max(known.end, file.end), whole)


def read_known_files(lake: Lake) -> KnownFiles:
    """Return the files in a lake."""
    from pyspark.sql import functions as sql  # noqa: PLC0415  an extra

    whole = (sql.col("end") == 0) | sql.coalesce(sql.col("complete"), sql.lit(False))
    rows: list[Any] = (
        lake.table("sources").groupBy("folder", "source").agg(sql.max("end"), sql.bool_or(whole)).collect()
    )
    return KnownFiles(((folder, source), KnownFile(end, whole)) for folder, source, end, whole in rows)


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
