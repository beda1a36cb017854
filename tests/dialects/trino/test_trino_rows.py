"""Row policies and masks over Trino's endpoints: tables that show values beside the table, hidden columns, silent stores."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from support.oracles.audit_files import audit_records
from support.oracles.trino_row_access import RowAccessClient, row_access_client

from pdp.facts.snapshot import Facts
from pdp.model.trino_operations import METADATA_TABLES
from pdp.store.replica import FixedFacts

Ask = Callable[..., Awaitable[Any]]
SHOWING = sorted(suffix for suffix, action in METADATA_TABLES.items() if action == "read_data")
TELLING = sorted(suffix for suffix, action in METADATA_TABLES.items() if action != "read_data")


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[RowAccessClient]:
    async with row_access_client(tmp_path) as client:
        yield client


# --- tables beside a table ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", SHOWING)
async def test_what_shows_values_is_denied_where_anything_is_restricted(client: RowAccessClient, suffix: str) -> None:
    for operation in ("SelectFromColumns", "CreateViewWithSelectFromColumns"):
        assert await client.may(operation, f"free${suffix}")
        assert await client.may(operation, f"orders${suffix}", "boss")
        assert await client.may(operation, f"people${suffix}", "boss")
        for table, user in (
            ("orders", "alice"),
            ("orders", "eve"),
            ("ORDERS", "alice"),
            ("people", "alice"),
            ("people", "eve"),
        ):
            assert not await client.may(operation, f"{table}${suffix}", user)
    assert await client.rows(f"orders${suffix}") == [{"expression": "false"}]
    assert await client.masks(f"people${suffix}", {"value": "bigint"}) == {"value": "CAST(NULL AS bigint)"}


@pytest.mark.parametrize("suffix", TELLING)
async def test_what_tells_of_the_table_alone_is_its_metadata(client: RowAccessClient, suffix: str) -> None:
    assert await client.may("SelectFromColumns", f"orders${suffix}")
    assert await client.rows(f"orders${suffix}") == []
    assert await client.masks(f"people${suffix}", {"salary": "bigint"}) == {}


async def test_an_unknown_suffix_is_a_part_of_an_ordinary_name(client: RowAccessClient) -> None:
    for name in ("orders$other", "orders$", "$files", "orders$files$", "orders$data"):
        assert await client.may("SelectFromColumns", name)
        assert await client.rows(name) == []


async def test_writes_to_a_table_beside_a_table_are_denied(client: RowAccessClient) -> None:
    for operation in ("InsertIntoTable", "DeleteFromTable", "DropTable", "TruncateTable"):
        assert not await client.may(operation, "free$files", "boss")


# --- rows and columns ---------------------------------------------------------------------------------------------


async def test_policies_cover_a_table_whatever_its_name_s_case_and_dots(client: RowAccessClient) -> None:
    for name in ("orders", "ORDERS", "Orders"):
        assert await client.rows(name) == [{"expression": "region = 'EU'"}]
        assert await client.rows(name, "boss") == []
        assert await client.rows(name, "eve") == [{"expression": "false"}]
    for schema, name in (("a.b", "t"), ("A.B", "T"), ("a", "b.t")):
        assert await client.rows(name, schema=schema) == [{"expression": "x = 1"}]


async def test_hidden_columns_show_to_whom_nothing_is_hidden(client: RowAccessClient) -> None:
    columns = {"$path": "varchar", "$partition": "varchar(9)", "$file_modified_time": "timestamp(3) with time zone"}
    hidden = {name: f"CAST(NULL AS {type})" for name, type in columns.items()}
    for table in ("orders", "people"):
        assert await client.masks(table, columns) == hidden
        assert await client.masks(table, columns, "eve") == hidden
        assert await client.masks(table, columns, "boss") == {}
    assert await client.masks("free", columns) == {}


async def test_the_mask_that_shows_least_wins(client: RowAccessClient) -> None:
    columns = {"name": "varchar", "NAME": "varchar(3)", "salary": "integer", "other": "date"}
    pay = "CAST(NULL AS integer)"
    assert (await client.masks("people", columns, "eve"))["salary"] == pay
    assert await client.masks("people", columns, "eve") == {"salary": pay}
    assert await client.masks("people", columns, "boss") == {}
    for groups, start in (((), "CAST(IF("), (("staff",), "CAST(lower("), (("staff", "interns"), "TRY_CAST(CAST('x'")):
        found = await client.masks("people", columns, groups=groups)
        assert found.keys() == {"name", "NAME", "salary"}
        assert found["name"].startswith(start)
        assert found["name"].endswith(" AS varchar)")
        assert found["NAME"].endswith(" AS varchar(3))")


async def test_a_record_names_what_restricted_and_by_which_columns(client: RowAccessClient, tmp_path: Path) -> None:
    await client.rows("orders")
    await client.masks("people", {"salary": "integer", "$path": "varchar", "dept": "varchar"})
    await client.service.stop()
    events = [record for record in audit_records(tmp_path) if record["event"] == "filter"]
    assert events[0]["checks"][0]["by"] == ["row_access:eu"]
    assert events[0]["checks"][0]["resource"] == "table_or_view:lake/s/orders@main"
    assert events[1]["masks"] == {"salary": "row_access:pay", "$path": "row_access:hidden_column", "dept": None}


# --- facts that are too old ---------------------------------------------------------------------------------------


class Silent(FixedFacts):
    def is_stale(self) -> bool:
        return True


async def test_a_silent_store_hides_what_roles_are_to_see_and_nothing_else(client: RowAccessClient) -> None:
    assert await client.rows("roles") == [{"expression": "x = 1"}]
    assert await client.rows("roles", "eve") == [{"expression": "false"}]
    facts: Facts = client.service.pdp.source.facts
    client.service.pdp.source = Silent(facts)
    assert await client.rows("roles") == [{"expression": "false"}]
    assert await client.masks("roles", {"x": "bigint"}) == {"x": "CAST(NULL AS bigint)"}
    assert await client.rows("orders") == [{"expression": "region = 'EU'"}]
    assert await client.masks("people", {"salary": "bigint", "dept": "date"}) == {"salary": "CAST(NULL AS bigint)"}
    assert await client.rows("free") == []
    client.service.pdp.source = FixedFacts(facts)
    assert await client.rows("roles") == [{"expression": "x = 1"}]
