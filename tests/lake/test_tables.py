"""Tables of the lake: made once, read with the columns of the definitions, given the columns they lack."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from support.servers.spark import folder_lake

from pdp.audit.records.tables import COLUMNS
from pdp.errors import InvalidArgument
from pdp.lake.tables import DECISIONS, REQUESTS, TABLES, LakeColumn


def test_names_of_columns_are_distinct_and_begin_with_those_of_the_export() -> None:
    assert DECISIONS.names[: len(COLUMNS)] == tuple(COLUMNS)
    assert all(len(set(table.names)) == len(table.columns) for table in TABLES.values())
    assert all(column.text for table in TABLES.values() for column in table.columns)


@pytest.mark.spark
@pytest.mark.process
def test_tables_are_made_with_their_columns_and_partitions(tmp_path: Path) -> None:
    lake = folder_lake(tmp_path / "lake with space")
    lake.create(TABLES.values())
    lake.create(TABLES.values())
    for table in TABLES.values():
        found = [(field.name, field.dataType.simpleString()) for field in lake.table(table.name).schema]
        assert found == [(column.name, column.type) for column in table.columns]
    parts = lake.spark.sql(f"DESCRIBE TABLE {lake.name('decisions')}").collect()
    assert {row.data_type for row in parts if row.col_name.startswith("Part ")} == {"day", "bucket(16, principal)"}


@pytest.mark.spark
@pytest.mark.process
def test_the_bucket_may_be_the_warehouse(tmp_path: Path) -> None:
    lake = folder_lake(tmp_path / "lake")
    lake.create([DECISIONS], {"decisions": ("day", "bucket(16, warehouse)")})
    parts = lake.spark.sql(f"DESCRIBE TABLE {lake.name('decisions')}").collect()
    assert {row.data_type for row in parts if row.col_name.startswith("Part ")} == {"day", "bucket(16, warehouse)"}


@pytest.mark.spark
@pytest.mark.process
def test_a_table_of_an_older_version_gets_the_columns_it_lacks(tmp_path: Path) -> None:
    lake = folder_lake(tmp_path / "lake")
    lake.create([msgspec.structs.replace(REQUESTS, columns=REQUESTS.columns[:3], partitions=())])
    lake.spark.sql(f"INSERT INTO {lake.name('requests')} VALUES ('decision', 'i', 'n')")
    later = msgspec.structs.replace(REQUESTS, columns=(*REQUESTS.columns, LakeColumn("more", "string", "a new one")))
    lake.create([later])
    row = lake.table("requests").collect()[0]
    assert row.asDict() == {**dict.fromkeys(later.names), "event": "decision", "id": "i", "instance": "n"}


@pytest.mark.spark
@pytest.mark.process
def test_a_table_that_is_missing_is_an_error_in_one_line(tmp_path: Path) -> None:
    lake = folder_lake(tmp_path / "lake")
    with pytest.raises(InvalidArgument, match="has no table `decisions`: run `pdp pipeline ingest`"):
        lake.table("decisions")
