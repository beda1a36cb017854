"""Upkeep of a lake changes no row, and does not disturb an ingest that was killed."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.servers.lakes import decision_line, event_line, ids_of, ingest, rows, snapshots, write_segment
from support.servers.spark import folder_lake

from pdp.errors import InvalidArgument, Unavailable
from pdp.lake.ingest.batches import BatchCounts
from pdp.lake.ingest.upkeep import compact, expire
from pdp.lake.lake import ingest_lock

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.timeout(600)]


def quiet(_: str) -> None:
    """Show nothing."""


def test_compaction_and_expiry_keep_all_rows(tmp_path: Path) -> None:
    lake = folder_lake(tmp_path / "lake")
    lines = [decision_line(seq) for seq in range(4)]
    for number, line in enumerate(lines):
        write_segment(tmp_path / "a", number + 1, [line, b"broken\n"])
        ingest(lake, tmp_path / "a")
    files = lake.spark.table(f"{lake.name('decisions')}.files").count()
    counts = compact(lake, quiet)
    lake.spark.catalog.refreshTable(lake.name("decisions"))
    assert (files, lake.spark.table(f"{lake.name('decisions')}.files").count()) == (4, 1)
    assert counts.rewritten > counts.written > 0
    removed = expire(lake, 0, quiet)
    assert removed.snapshots > 4
    assert removed.data_files >= 4
    assert set(snapshots(lake).values()) <= {0, 1}
    assert rows(lake, "decisions", "id") == sorted((id,) for id in ids_of(lines))
    assert len(rows(lake, "quarantine", "text")) == 4
    assert ingest(lake, tmp_path / "a") == BatchCounts()
    write_segment(tmp_path / "a", 9, [lines[0], decision_line(9)])
    assert ingest(lake, tmp_path / "a") == BatchCounts(1, 1, 1, 1)


@pytest.mark.spark_long
def test_upkeep_leaves_tables_of_others_alone(tmp_path: Path) -> None:
    lake = folder_lake(tmp_path / "lake")
    write_segment(tmp_path / "a", 1, [decision_line(1)])
    ingest(lake, tmp_path / "a")
    name = lake.name("report_of_someone_else")
    lake.spark.sql(f"CREATE TABLE {name} (a int) USING iceberg")
    for value in (1, 2):
        lake.spark.sql(f"INSERT INTO {name} VALUES ({value})")
    compact(lake, quiet)
    assert expire(lake, 0, quiet).snapshots > 0
    assert lake.spark.table(f"{name}.snapshots").count() == lake.spark.table(f"{name}.files").count() == 2


@pytest.mark.spark_long
def test_expiry_and_ingest_exclude_each_other(tmp_path: Path) -> None:
    lake = folder_lake(tmp_path / "lake")
    write_segment(tmp_path / "a", 1, [decision_line(1)])
    ingest(lake, tmp_path / "a")
    with ingest_lock(lake.spark, lake.catalog.folder), pytest.raises(Unavailable, match="another ingest of the lake"):
        expire(lake, 0, quiet)
    expire(lake, 0, quiet)


@pytest.mark.spark_long
def test_deleted_records_are_new_as_the_page_says(tmp_path: Path) -> None:
    """The statements of the page for retention, on records before and after their day."""
    page = (Path(__file__).parents[3] / "docs/pipeline.md").read_text()
    statements = [line.rstrip(";") for line in page.splitlines() if line.startswith("DELETE FROM lake.pdp.")]
    lake = folder_lake(tmp_path / "lake")
    lines = [decision_line(1), event_line(2)]
    old = [line.replace(b"2026-01-05", b"2025-12-31") for line in (decision_line(3), event_line(4))]
    write_segment(tmp_path / "a", 1, lines + old)
    ingest(lake, tmp_path / "a")
    decisions, *others = statements
    lake.spark.sql(decisions)
    write_segment(tmp_path / "b", 1, lines + old)
    assert ingest(lake, tmp_path / "b").duplicates == 4
    for statement in others:
        lake.spark.sql(statement)
    write_segment(tmp_path / "c", 1, lines + old)
    assert ingest(lake, tmp_path / "c") == BatchCounts(1, 1, 2, 2)
    assert len(rows(lake, "decisions", "id")) == len(rows(lake, "events", "id")) == 2


@pytest.mark.spark_long
def test_expiry_waits_for_the_end_of_an_ingest(tmp_path: Path) -> None:
    lake = folder_lake(tmp_path / "lake")
    write_segment(tmp_path / "a", 1, [decision_line(1)])
    ingest(lake, tmp_path / "a")
    name = lake.name("sources")
    lake.spark.sql(f"DELETE FROM {name} WHERE state = 'done'")
    with pytest.raises(Unavailable, match="an ingest runs, or was killed"):
        expire(lake, 0, quiet)
    assert ingest(lake, tmp_path / "a").ingested == 1
    assert len(rows(lake, "decisions", "id")) == 1
    expire(lake, 0, quiet)


def test_upkeep_of_a_folder_without_a_lake_is_an_error(tmp_path: Path) -> None:
    lake = folder_lake(tmp_path / "none")
    for job in (lambda: compact(lake, quiet), lambda: expire(lake, 1, quiet)):
        with pytest.raises(InvalidArgument, match="has no table `sources`"):
            job()
