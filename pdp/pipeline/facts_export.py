"""History of facts and policies of an audit folder, as tables: replay and time travel need the lake alone then."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa

from pdp.audit.encoding import timestamp
from pdp.audit.fact_files import FOLDER, SnapshotHead, epoch_folder, list_files
from pdp.audit.fact_history import FactsHistory
from pdp.audit.reader import read_bundle_text
from pdp.errors import MissingFacts
from pdp.facts.objects import Change, GrantAdded, GrantRemoved, ObjectPut, RulePut, RuleRemoved, key_text
from pdp.model.revision import Revision
from pdp.pipeline.arrow_rows import arrow_schema, record_batches
from pdp.pipeline.audit_folders import copy_files
from pdp.pipeline.decision_rows import Row
from pdp.pipeline.lake import Lake
from pdp.pipeline.table_state import SoleWriter
from pdp.pipeline.tables import BUNDLES, FACTS, LakeTable

_BUNDLES: Final = "bundles"
_SECONDS_OF_DAY: Final = 86_400
_HEAD: Final = msgspec.json.Decoder(SnapshotHead)


class FactsExport:
    """Export of the facts and bundles of folders. The lake tells the last revision of each epoch."""

    def __init__(self, lake: Lake, note: Callable[[str], None]) -> None:
        self._lake = lake
        self._note = note
        self._last: dict[str, int] | None = None
        self._digests: set[str] = set()
        self._writers: dict[str, SoleWriter] = {}
        self._signatures: dict[str, Any] = {}
        """Folder -> names and sizes of its files at the export before: nothing is read again without a change."""

    def export(self, folder: str) -> None:
        """Append the facts and bundles missing in the lake."""
        last = self._read_state()
        with self._local(folder) as place:
            signature = _signature(place)
            if signature == self._signatures.get(folder):
                return
            self._signatures[folder] = signature
            history = FactsHistory(place)
            for epoch in history.epochs():
                self._append(FACTS, list(self._new_facts(place, history, epoch, last)))
            self._append(BUNDLES, list(self._new_bundles(place, folder)))

    def _read_state(self) -> dict[str, int]:
        if self._last is None:
            self._writers = {table.name: SoleWriter(self._lake, table) for table in (FACTS, BUNDLES)}
            rows = self._lake.table("facts").groupBy("epoch").agg({"sequence": "max"}).collect()
            self._last = {row.epoch: row["max(sequence)"] for row in rows}
            self._digests = {row.digest for row in self._lake.table("bundles").select("digest").collect()}
        return self._last

    @contextmanager
    def _local(self, folder: str) -> Iterator[Path]:
        if folder.startswith("file:"):
            yield Path(folder.removeprefix("file:"))
            return
        with tempfile.TemporaryDirectory(prefix="pdp-facts-") as scratch:
            for part in (FOLDER, _BUNDLES):
                copy_files(self._lake.spark, f"{folder}/{part}", Path(scratch) / part)
            yield Path(scratch)

    def _new_facts(self, place: Path, history: FactsHistory, epoch: str, last: dict[str, int]) -> Iterator[Row]:
        """Yield new rows of an epoch: changes, and a snapshot wherever changes are missing."""
        folder = epoch_folder(place, epoch)
        assert folder
        snapshots = sorted(list_files(folder).snapshots.items())
        known = last.get(epoch, -1)
        try:
            if known < 0 and snapshots:
                known = snapshots[0][0]
                yield from _snapshot_rows(history, epoch, *snapshots[0])
            for revision in history.revisions(epoch):
                if revision.sequence <= known:
                    continue
                between = [each for each in snapshots if known < each[0] < revision.sequence]
                if revision.sequence != known + 1 and between:
                    yield from _snapshot_rows(history, epoch, *between[-1])
                yield from _change_rows(epoch, revision.sequence, revision.time, revision.actor, revision.changes)
                known = revision.sequence
            if snapshots and snapshots[-1][0] > known:
                known = snapshots[-1][0]
                yield from _snapshot_rows(history, epoch, *snapshots[-1])
        except MissingFacts as error:
            self._note(f"left out facts after the revision {epoch}.{known}: {error}")
        if known >= 0:
            last[epoch] = known

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


def _signature(place: Path) -> Any:
    files = [*(place / FOLDER).glob("*/*.jsonl*"), *(place / _BUNDLES).glob("*")]
    return sorted((str(file), file.stat().st_size) for file in files)


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
    if isinstance(change, RulePut | RuleRemoved):
        kind = "rule_put" if isinstance(change, RulePut) else "rule_removed"
        table = change.rule.table if isinstance(change, RulePut) else change.key[0]
        return kind, snapshot, key_text(("table", table)), None, None, text
    return "delete", snapshot, key_text(change.key), None, None, text
