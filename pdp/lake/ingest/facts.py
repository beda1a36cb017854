"""History of facts and policies of an audit folder, as tables: replay and time travel need the lake alone then.

Asks the lake first which revisions it has.
"""

from __future__ import annotations

import gzip
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa

from pdp.audit.facts.files import FOLDER, SnapshotHead, epoch_folder, list_files
from pdp.audit.facts.history import FactsHistory
from pdp.audit.reader import read_bundle_text
from pdp.audit.records.writing import timestamp
from pdp.errors import MissingFacts
from pdp.facts.objects import Change, GrantAdded, GrantRemoved, ObjectPut, RowPolicyPut, RowPolicyRemoved, key_text
from pdp.lake.ingest.files import copy_files, tree_files
from pdp.lake.ingest.passes import arrow_schema, record_batches
from pdp.lake.ingest.rows import Row
from pdp.lake.lake import Lake, SoleWriter
from pdp.lake.tables import BUNDLES, FACTS, LakeTable
from pdp.model.revision import Revision

_RANGES: Final = """
SELECT epoch, snapshot, min(sequence) AS first, max(sequence) AS last
FROM (
  SELECT epoch, snapshot, sequence,
    sequence - row_number() OVER (PARTITION BY epoch, snapshot ORDER BY sequence) AS run
  FROM (SELECT DISTINCT epoch, snapshot, sequence FROM {facts})
)
GROUP BY epoch, snapshot, run
ORDER BY first
"""
"""Revisions without a gap in between, as one row."""


class KnownFacts:
    """Revisions of a lake, as ranges and those added since. `ranges` have epoch, snapshot, first and last revision."""

    def __init__(self, ranges: Iterable[tuple[str, bool, int, int]] = ()) -> None:
        self._ranges: dict[tuple[str, bool], tuple[list[int], list[int]]] = {}
        self._added: set[tuple[str, bool, int]] = set()
        for epoch, snapshot, first, last in sorted(ranges):
            firsts, lasts = self._ranges.setdefault((epoch, snapshot), ([], []))
            firsts.append(first)
            lasts.append(last)

    def has_changes(self, epoch: str, sequence: int) -> bool:
        """Tell whether the lake has the changes of a revision."""
        return self._has(epoch, False, sequence)

    def has(self, epoch: str, sequence: int) -> bool:
        """Tell whether the lake has the changes or a snapshot of a revision."""
        return self._has(epoch, False, sequence) or self._has(epoch, True, sequence)

    def add_changes(self, epoch: str, sequence: int) -> None:
        """Keep a revision whose changes are in the lake."""
        self._added.add((epoch, False, sequence))

    def add_snapshot(self, epoch: str, sequence: int) -> None:
        """Keep a revision whose snapshot is in the lake."""
        self._added.add((epoch, True, sequence))

    def _has(self, epoch: str, snapshot: bool, sequence: int) -> bool:
        if (epoch, snapshot, sequence) in self._added:
            return True
        firsts, lasts = self._ranges.get((epoch, snapshot), ([], []))
        place = bisect_right(firsts, sequence)
        return place > 0 and sequence <= lasts[place - 1]


def read_known_facts(lake: Lake) -> KnownFacts:
    """Return the revisions of a lake."""
    rows: list[Any] = lake.spark.sql(_RANGES.format(facts=lake.name("facts"))).collect()
    return KnownFacts((row.epoch, bool(row.snapshot), row.first, row.last) for row in rows)


_BUNDLES: Final = "bundles"
_SECONDS_OF_DAY: Final = 86_400
_HEAD: Final = msgspec.json.Decoder(SnapshotHead)


class FactsExport:
    """Export of the facts and bundles of folders. Replicas have folders with parts of one epoch, in any order."""

    def __init__(self, lake: Lake, note: Callable[[str], None]) -> None:
        self._lake = lake
        self._note = note
        self._known: KnownFacts | None = None
        self._digests: set[str] = set()
        self._writers: dict[str, SoleWriter] = {}
        self._signatures: dict[str, Any] = {}
        """Folder -> names and sizes of its files at the export before: nothing is read again without a change."""

    def export(self, folder: str) -> None:
        """Append the facts and bundles missing in the lake."""
        known = self._known or self._read_state()
        signature = [tree_files(self._lake.spark, f"{folder}/{part}") for part in (FOLDER, _BUNDLES)]
        if signature == self._signatures.get(folder):
            return
        with self._local(folder) as place:
            history = FactsHistory(place)
            for epoch in history.epochs():
                self._append(FACTS, list(self._new_facts(place, history, epoch, known)))
            self._append(BUNDLES, list(self._new_bundles(place, folder)))
        self._signatures[folder] = signature

    def _read_state(self) -> KnownFacts:
        self._writers = {table.name: SoleWriter(self._lake, table) for table in (FACTS, BUNDLES)}
        facts, bundles = self._writers.values()
        self._known = KnownFacts() if facts.begins_empty else read_known_facts(self._lake)
        if not bundles.begins_empty:
            self._digests = {row.digest for row in self._lake.table("bundles").select("digest").collect()}
        return self._known

    @contextmanager
    def _local(self, folder: str) -> Iterator[Path]:
        if folder.startswith("file:"):
            yield Path(folder.removeprefix("file:"))
            return
        with tempfile.TemporaryDirectory(prefix="pdp-facts-") as scratch:
            for part in (FOLDER, _BUNDLES):
                copy_files(self._lake.spark, f"{folder}/{part}", Path(scratch) / part)
            yield Path(scratch)

    def _new_facts(self, place: Path, history: FactsHistory, epoch: str, known: KnownFacts) -> Iterator[Row]:
        """Yield new rows of an epoch: changes, and a snapshot wherever the change before is missing."""
        folder = epoch_folder(place, epoch)
        assert folder
        snapshots = sorted(list_files(folder).snapshots.items())
        last = -1
        try:
            for revision in history.revisions(epoch):
                if known.has_changes(epoch, revision.sequence):
                    continue
                if not known.has(epoch, revision.sequence - 1):
                    nearest = [each for each in snapshots if each[0] < revision.sequence][-1:]
                    yield from self._new_snapshots(history, epoch, nearest, known)
                yield from _change_rows(epoch, revision.sequence, revision.time, revision.actor, revision.changes)
                known.add_changes(epoch, revision.sequence)
                last = revision.sequence
            yield from self._new_snapshots(history, epoch, snapshots[-1:], known)
        except MissingFacts as error:
            after = f" after the revision {epoch}.{last}" if last >= 0 else f" of the epoch `{epoch}`"
            self._note(f"left out facts{after}: {error}")

    def _new_snapshots(
        self, history: FactsHistory, epoch: str, snapshots: Iterable[tuple[int, Path]], known: KnownFacts
    ) -> Iterator[Row]:
        for sequence, file in snapshots:
            if not known.has(epoch, sequence):
                yield from _snapshot_rows(history, epoch, sequence, file)
                known.add_snapshot(epoch, sequence)

    def _new_bundles(self, place: Path, folder: str) -> Iterator[Row]:
        bundles = place / _BUNDLES
        for file in sorted(bundles.iterdir()) if bundles.is_dir() else ():
            text = read_bundle_text(place, file.name)
            if text is not None and file.name not in self._digests:
                self._digests.add(file.name)
                yield file.name, text.decode(errors="replace"), folder

    def _append(self, table: LakeTable, rows: list[Row]) -> None:
        if rows:
            data = pa.Table.from_batches(record_batches(rows, table), schema=arrow_schema(table))
            self._writers[table.name].append(self._lake.spark.createDataFrame(data))


def _snapshot_rows(history: FactsHistory, epoch: str, sequence: int, file: Path) -> Iterator[Row]:
    facts = history.at(Revision(epoch, sequence))
    with gzip.open(file) as lines:
        time = _HEAD.decode(lines.readline()).time
    changes = list(facts.as_changes())
    yield (epoch, sequence, -1, time, None, "", *_no_change(snapshot=True), file.name)
    for number, change in enumerate(changes):
        yield (epoch, sequence, number, time, None, "", *_change_columns(change, snapshot=True), file.name)


def _change_rows(epoch: str, sequence: int, seconds: float, actor: str, changes: tuple[Change, ...]) -> Iterator[Row]:
    day = int(seconds // _SECONDS_OF_DAY)
    if not changes:
        yield (epoch, sequence, -1, timestamp(seconds), day, actor, *_no_change(snapshot=False), None)
    for number, change in enumerate(changes):
        row = _change_columns(change, snapshot=False)
        yield (epoch, sequence, number, timestamp(seconds), day, actor, *row, None)


def _no_change(*, snapshot: bool) -> Row:
    """Return the columns of a row without a change: a revision can be empty, and must be there all the same."""
    return "revision", snapshot, None, None, None, None


def _change_columns(change: Change, *, snapshot: bool) -> Row:
    """Return kind, snapshot, object, principal, privilege and the JSON of a change."""
    text = msgspec.json.encode(change).decode()
    if isinstance(change, GrantAdded | GrantRemoved):
        kind, grant = "grant_added" if isinstance(change, GrantAdded) else "grant_removed", change.grant
        return kind, snapshot, key_text(grant.object), grant.principal, grant.privilege, text
    if isinstance(change, ObjectPut):
        return "put", snapshot, key_text(change.object.key), None, None, text
    if isinstance(change, RowPolicyPut | RowPolicyRemoved):
        kind = "rule_put" if isinstance(change, RowPolicyPut) else "rule_removed"
        table = change.rule.table if isinstance(change, RowPolicyPut) else change.key[0]
        return kind, snapshot, key_text(("table", table)), None, None, text
    return "delete", snapshot, key_text(change.key), None, None, text
