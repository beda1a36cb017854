"""State of a table in a lake, and appends that name the state before: of two writers, the second one loses.

Iceberg checks the state at the commit, in all catalogs. A compaction changes no row and makes no writer lose.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pdp.errors import Unavailable
from pdp.pipeline.tables import LakeTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pdp.pipeline.lake import Lake

_COMMIT: Final = "pdp.commit"
"""Property of a snapshot: the append that made the snapshot."""


class TableChanged(Unavailable):
    """Append that was refused, because another job has added rows to the table."""


class TableCommit(NamedTuple):
    """Snapshot of an append, the snapshot before, and the number of added rows."""

    snapshot: int
    before: int | None
    rows: int


class TableState:
    """State of a table at one moment: the newest snapshot and all before. `newest` is None for an empty table."""

    def __init__(self, table: Any, snapshot: Any) -> None:
        self._table = table
        self._snapshot = snapshot
        self.newest: int | None = None if snapshot is None else int(snapshot.snapshotId())

    def until(self, name: str, value: str) -> TableState:
        """Return the state right behind the newest snapshot with a property."""
        return TableState(self._table, self._find(name, value, None))

    def commit(self, name: str, value: str, after: int | None = None) -> TableCommit | None:
        """Return the newest commit with a property, and after a snapshot; None without one."""
        found = self._find(name, value, after)
        if found is None:
            return None
        return TableCommit(found.snapshotId(), found.parentId(), int(found.summary().get("added-records") or 0))

    def _find(self, name: str, value: str, after: int | None) -> Any:
        return next((each for each in self._snapshots(after) if each.summary().get(name) == value), None)

    def _snapshots(self, after: int | None) -> Iterator[Any]:
        """Yield the snapshots behind one of them, the newest first."""
        snapshot = self._snapshot
        while snapshot is not None and snapshot.snapshotId() != after:
            yield snapshot
            before = snapshot.parentId()
            snapshot = None if before is None else self._table.snapshot(before)


class SoleWriter:
    """Writer of a table that nobody else may append to. Starts behind the state at its making."""

    def __init__(self, lake: Lake, table: LakeTable) -> None:
        self._lake = lake
        self._table = table
        self._state = lake.state(table)
        self.begins_empty = self._state.newest is None
        """True if the table never had a row: nothing needs to be read."""

    def append(self, frame: DataFrame, properties: Mapping[str, str] | None = None) -> None:
        """Append rows behind the own rows; raise TableChanged if anyone else has added rows."""
        mark = uuid.uuid4().hex
        self._lake.append(self._table, frame, {**(properties or {}), _COMMIT: mark}, self._state)
        self._state = self._lake.state(self._table).until(_COMMIT, mark)
