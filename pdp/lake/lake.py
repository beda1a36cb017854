"""Lake: a session of Spark with the tables of one catalog, and appends that name the state before.

Of two writers, the second one loses: Iceberg checks the state at the commit, in all catalogs. A compaction changes no
row and makes no writer lose.

A lake in a folder has locks, held by the virtual machine that writes. The kernel frees a lock when the process ends, so
a kill leaves none behind, and an orphaned virtual machine that still commits keeps the lock. Lakes of other catalogs
have no lock: their commits name the snapshot before.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pdp.errors import InvalidArgument, Unavailable
from pdp.lake.session import LakeCatalog, start_session
from pdp.lake.tables import LakeTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriterV2, SparkSession

INGEST: Final = ".pdp-ingest.lock"
"""File in the folder of a lake: locked while an ingest runs."""
COMMIT: Final = ".pdp-commit.lock"
"""File in the folder of a lake: locked while a job changes tables. Hadoop's catalog cannot tell two renames apart."""
_TURN_SECONDS: Final = 0.1
_held: Final[set[Path]] = set()
"""Files with a lock of this process. A second opening of such a file would free the lock when it is closed."""


@contextmanager
def ingest_lock(spark: SparkSession, folder: Path | None) -> Iterator[None]:
    """Hold the lock of the only ingest of a lake; raise Unavailable if another one runs. No folder has no lock."""
    if folder is None:
        yield
        return
    lock = _take(spark, folder / INGEST)
    if lock is None:
        raise Unavailable(f"another ingest of the lake `{folder}` runs: let it end, or stop it")
    with _freeing(lock, folder / INGEST):
        yield


@contextmanager
def commit_lock(spark: SparkSession, folder: Path | None) -> Iterator[None]:
    """Hold the lock of the only commit to a lake, after all commits before. No folder has no lock."""
    if folder is None:
        yield
        return
    while (lock := _take(spark, folder / COMMIT)) is None:
        time.sleep(_TURN_SECONDS)
    with _freeing(lock, folder / COMMIT):
        yield


@contextmanager
def _freeing(lock: Any, file: Path) -> Iterator[None]:
    try:
        yield
    finally:
        _held.discard(file)
        lock.close()


def _take(spark: SparkSession, file: Path) -> Any:
    """Return a file with a lock, to be closed; None if another job has the lock."""
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415  an extra

    if file in _held:
        return None
    jvm: Any = spark._jvm  # noqa: SLF001  PySpark has no other way to the virtual machine
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        opened = jvm.java.io.RandomAccessFile(str(file), "rw")
        if opened.getChannel().tryLock() is not None:
            _held.add(file)
            return opened
    except OSError as error:
        raise InvalidArgument(f"cannot make the folder `{file.parent}`: {error.strerror}") from None
    except Py4JJavaError as error:
        raise Unavailable(f"cannot lock `{file}`: {error.java_exception.getMessage()}") from None
    opened.close()
    return None


_COMMIT: Final = "pdp.commit"
"""Property of a snapshot: the append that made the snapshot."""
_PROPERTIES: Final = {
    "format-version": "2",
    "write.distribution-mode": "none",
    "write.spark.fanout.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "50",
}
"""Properties of every table. Writers bring rows in the order of the audit, and open a file for each partition."""
_CONFLICT: Final = "org.apache.iceberg.exceptions.ValidationException"


class Lake:
    """Tables of a catalog, in a session of Spark."""

    def __init__(self, spark: SparkSession, catalog: LakeCatalog) -> None:
        self.spark = spark
        self.catalog = catalog

    def name(self, table: str) -> str:
        """Return the full name of a table in SQL."""
        return self.catalog.table(table)

    def table(self, table: str) -> DataFrame:
        """Return the rows of a table; raise InvalidArgument if the lake does not have the table."""
        if not self.exists(table):
            raise InvalidArgument(f"the lake `{self.catalog.name}` has no table `{table}`: run `pdp pipeline ingest`")
        return self.spark.table(self.name(table))

    def tables(self) -> list[str]:
        """Return the names of all tables of the namespace; raise InvalidArgument for a lake without any."""
        self.table("sources")
        rows = self.spark.sql(f"SHOW TABLES IN {self.catalog.table('').rstrip('.')}").collect()
        return sorted(row.tableName for row in rows)

    def exists(self, table: str) -> bool:
        """Tell whether the lake has a table; raise Unavailable if the catalog cannot be reached."""
        from pyspark.errors import PySparkException  # noqa: PLC0415  an extra

        try:
            return bool(self.spark.catalog.tableExists(self.name(table)))
        except PySparkException as error:
            raise self._unreachable(error) from None
        except Exception as error:  # errors of the virtual machine that PySpark does not translate
            if type(error).__module__.partition(".")[0] != "py4j":
                raise
            raise self._unreachable(error) from None

    def create(self, tables: Iterable[LakeTable], partitions: Mapping[str, tuple[str, ...]] | None = None) -> None:
        """Make missing tables, and add missing columns to tables of an older version.

        `partitions` replaces those of new tables.
        """
        self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {self.catalog.table('').rstrip('.')}")
        for table in tables:
            if self.exists(table.name):
                self._add_columns(table)
            else:
                chosen = (partitions or {}).get(table.name, table.partitions)
                self.spark.sql(self._definition(table, chosen))

    def state(self, table: LakeTable) -> TableState:
        """Return the state of a table as the catalog has it now."""
        name = self.name(table.name)
        self.spark.catalog.refreshTable(name)
        jvm: Any = self.spark._jvm  # noqa: SLF001  PySpark has no other way to Iceberg's tables
        session = self.spark._jsparkSession  # noqa: SLF001
        read = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(session, name)
        return TableState(read, read.currentSnapshot())

    def added(self, table: LakeTable, commit: TableCommit) -> DataFrame:
        """Return the rows that an append has added."""
        reader = self.spark.read
        if commit.before is None:
            reader = reader.option("versionAsOf", str(commit.snapshot))
        else:
            reader = reader.option("start-snapshot-id", str(commit.before))
            reader = reader.option("end-snapshot-id", str(commit.snapshot))
        return reader.table(self.name(table.name))

    def append(
        self,
        table: LakeTable,
        frame: DataFrame,
        properties: Mapping[str, str] | None = None,
        after: TableState | None = None,
    ) -> None:
        """Append rows in one commit; the snapshot gets the properties. Columns of the lake alone are null.

        Raise TableChanged if anyone has added rows since the state `after`.
        """
        writer = self._writer(table, frame, properties or {})
        with self.commits():
            if after is None:
                writer.append()
            else:
                self._append_after(table, writer, after)

    def commits(self) -> AbstractContextManager[None]:
        """Return a block for changes of tables: of this lake, one at a time on this machine."""
        return commit_lock(self.spark, self.catalog.folder)

    def _writer(self, table: LakeTable, frame: DataFrame, properties: Mapping[str, str]) -> DataFrameWriterV2:
        """Return a writer of rows to a table; the snapshot gets the properties."""
        from pyspark.sql import functions as sql  # noqa: PLC0415  an extra

        own = set(table.names)
        columns = [
            sql.col(field.name) if field.name in own else sql.lit(None).cast(field.dataType).alias(field.name)
            for field in self.table(table.name).schema
        ]
        writer = frame.select(columns).writeTo(self.name(table.name))
        for name, value in properties.items():
            writer = writer.option(f"snapshot-property.{name}", value)
        return writer

    def _append_after(self, table: LakeTable, writer: DataFrameWriterV2, after: TableState) -> None:
        from py4j.protocol import Py4JJavaError  # noqa: PLC0415  an extra
        from pyspark.sql import functions as sql  # noqa: PLC0415

        writer = writer.option("isolation-level", "serializable")
        if after.newest is not None:
            writer = writer.option("validate-from-snapshot-id", str(after.newest))
        try:
            # an overwrite of no row is an append, and Iceberg looks for rows of others
            writer.overwrite(sql.lit(False))
        except Py4JJavaError as error:
            if error.java_exception.getClass().getName() != _CONFLICT:
                raise
            raise TableChanged(
                f"another job has written to `{self.name(table.name)}`: run one ingest of a lake at a time"
            ) from None

    def _definition(self, table: LakeTable, partitions: tuple[str, ...]) -> str:
        columns = ", ".join(f"{column.sql} COMMENT {_literal(column.text)}" for column in table.columns)
        properties = ", ".join(f"'{name}'='{value}'" for name, value in _PROPERTIES.items())
        by = f" PARTITIONED BY ({', '.join(partitions)})" if partitions else ""
        return (
            f"CREATE TABLE {self.name(table.name)} ({columns}) USING iceberg{by} COMMENT {_literal(table.text)} "
            f"TBLPROPERTIES ({properties})"
        )

    def _add_columns(self, table: LakeTable) -> None:
        present = set(self.spark.table(self.name(table.name)).columns)
        if missing := [column for column in table.columns if column.name not in present]:
            columns = ", ".join(f"{column.sql} COMMENT {_literal(column.text)}" for column in missing)
            self.spark.sql(f"ALTER TABLE {self.name(table.name)} ADD COLUMNS ({columns})")

    def _unreachable(self, error: Exception) -> Unavailable:
        java = getattr(error, "java_exception", None)
        text = str(java.getMessage() if java is not None else error).splitlines()
        return Unavailable(f"cannot reach the catalog of `{self.catalog.name}`: {text[0] if text else error}")


def open_lake(catalog: LakeCatalog, properties: Mapping[str, str] | None = None) -> Lake:
    """Return a lake in a session that this call starts; raise ConfigError or Unavailable."""
    lake = Lake(start_session(catalog, properties), catalog)
    lake.exists("decisions")
    return lake


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


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


class PinnedLake(Lake):
    """Lake whose tables stay as they are, whatever an ingest or a compaction commits meanwhile.

    Several readings of a table then agree, and the places of rows within files are true for all of them.
    """

    def __init__(self, lake: Lake) -> None:
        super().__init__(lake.spark, lake.catalog)
        self._snapshots: dict[str, int | None] = {}

    def table(self, table: str) -> DataFrame:
        """Return the rows of a table; raise InvalidArgument if the lake does not have the table."""
        current = super().table(table)
        if table not in self._snapshots:
            refs = self.spark.sql(f"SELECT snapshot_id FROM {self.name(table)}.refs WHERE name = 'main'").collect()  # noqa: S608  a name of the catalog
            self._snapshots[table] = refs[0][0] if refs else None
        snapshot = self._snapshots[table]
        if snapshot is None:
            return current
        return self.spark.read.option("versionAsOf", str(snapshot)).table(self.name(table))


def pinned(lake: Lake) -> PinnedLake:
    """Return a lake at its present state; a pinned lake stays the same."""
    return lake if isinstance(lake, PinnedLake) else PinnedLake(lake)
