"""Upkeep of the tables: small files joined, old snapshots and files of killed writers removed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from pdp.errors import Unavailable
from pdp.lake.ingest.batches import unfinished_batches
from pdp.lake.lake import Lake, ingest_lock
from pdp.lake.report.report import PREFIX, QUESTIONS
from pdp.lake.session import CATALOG
from pdp.lake.tables import REPLAY_DIFFERENCES, TABLES

_OWN: Final = frozenset({*TABLES, REPLAY_DIFFERENCES.name, *(f"{PREFIX}{name}" for name in (*QUESTIONS, "candidate"))})
"""Names of the tables that jobs of the pipeline make. A namespace may have others."""
_LEAST_ORPHAN_DAYS: Final = 1.0
"""Age from which a file without a table is no file of a running writer. Iceberg refuses less."""


class CompactionCounts(msgspec.Struct):
    """Data files before and after a compaction, among those that it wrote anew."""

    rewritten: int = 0
    written: int = 0


class ExpiryCounts(msgspec.Struct):
    """Removed snapshots with their data files, and removed files of killed writers."""

    snapshots: int = 0
    data_files: int = 0
    orphans: int = 0


def compact(lake: Lake, say: Callable[[str], None]) -> CompactionCounts:
    """Join small files of each partition of all tables; raise InvalidArgument for a folder without a lake."""
    counts = CompactionCounts()
    for table in _own_tables(lake):
        say(f"compacting {table}")
        row = _call(lake, "rewrite_data_files", table, "options => map('min-input-files', '2')")
        counts.rewritten += row.rewritten_data_files_count
        counts.written += row.added_data_files_count
        if row.rewritten_data_files_count:
            _call(lake, "rewrite_manifests", table)
    return counts


def expire(lake: Lake, keep_days: float, say: Callable[[str], None]) -> ExpiryCounts:
    """Remove snapshots that are older than `keep_days`, but the newest, and files that no table has.

    Raise Unavailable if an ingest has not ended: the snapshots tell the next one what is left to do.
    """
    tables = _own_tables(lake)
    with ingest_lock(lake.spark, lake.catalog.folder):
        if unfinished_batches(lake):
            raise Unavailable("an ingest runs, or was killed: let it end, or run `pdp pipeline ingest --once`")
        return _expire(lake, tables, keep_days, say)


def _expire(lake: Lake, tables: Iterable[str], keep_days: float, say: Callable[[str], None]) -> ExpiryCounts:
    counts = ExpiryCounts()
    now = datetime.now(UTC)
    for table in tables:
        say(f"expiring {table}")
        before = _snapshots(lake, table)
        row = _call(lake, "expire_snapshots", table, f"older_than => {_time(now - timedelta(days=keep_days))}")
        counts.snapshots += before - _snapshots(lake, table)
        counts.data_files += row.deleted_data_files_count
        oldest = now - timedelta(days=max(keep_days, _LEAST_ORPHAN_DAYS), minutes=1)
        counts.orphans += len(_rows(lake, "remove_orphan_files", table, f"older_than => {_time(oldest)}"))
    return counts


def _own_tables(lake: Lake) -> list[str]:
    return [table for table in lake.tables() if table in _OWN]


def _call(lake: Lake, procedure: str, table: str, *arguments: str) -> Any:
    return _rows(lake, procedure, table, *arguments)[0]


def _rows(lake: Lake, procedure: str, table: str, *arguments: str) -> list[Any]:
    name = f"table => '{lake.catalog.namespace}.{table}'"
    with lake.commits():
        called = lake.spark.sql(f"CALL {CATALOG}.system.{procedure}({', '.join((name, *arguments))})")
        found: list[Any] = called.collect()
    return found


def _snapshots(lake: Lake, table: str) -> int:
    lake.spark.catalog.refreshTable(lake.name(table))
    return int(lake.spark.table(f"{lake.name(table)}.snapshots").count())


def _time(time: datetime) -> str:
    return f"TIMESTAMP '{time.isoformat(sep=' ', timespec='seconds')}'"
