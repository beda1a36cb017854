"""Row policies and masks over Trino's endpoints: tables that show values beside the table, hidden columns, silent stores."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from support.serving import serving, settings_of

from pdp.app import Service
from pdp.facts.snapshot import Facts
from pdp.model.vocabulary import METADATA_TABLES
from pdp.store.replica import FixedFacts

Ask = Callable[..., Awaitable[Any]]
SHOWING = sorted(suffix for suffix, action in METADATA_TABLES.items() if action == "read_data")
TELLING = sorted(suffix for suffix, action in METADATA_TABLES.items() if action != "read_data")
POLICIES = {
    "default": ["lake", "s"],
    "policies": [
        {"id": "eu", "table": "orders", "grantees": ["user:alice"], "filter": "region = 'EU'"},
        {"id": "all", "table": "orders", "grantees": ["user:boss"], "filter": "TRUE"},
        {"id": "dots", "table": "lake.a.b.t", "grantees": ["user:alice"], "filter": "x = 1"},
        {"id": "etl", "table": "roles", "grantees": ["role:etl"], "filter": "x = 1"},
    ],
    "masks": [
        {"id": "pay", "table": "people", "column": "Salary", "grantees": ["allUsers"], "except": ["user:boss"], "kind": "null"},
        {"id": "stars", "table": "people", "column": "name", "grantees": ["user:alice"], "kind": "partial"},
        {"id": "hash", "table": "people", "column": "name", "grantees": ["group:staff"], "kind": "hash"},
        {"id": "zero", "table": "people", "column": "name", "grantees": ["group:interns"], "kind": "constant", "expression": "x"},
    ],
}  # fmt: skip
WORLD = {
    "objects": [{"object": "role:etl", "parent": "project:p"}],
    "grants": [
        *({"principal": f"user:oidc~{who}", "privilege": "select", "object": "warehouse:lake"} for who in ("alice", "boss", "eve")),
        {"principal": "user:oidc~alice", "privilege": "assignee", "object": "role:etl"},
    ],
}  # fmt: skip


class Client:
    """A running service, asked as Trino asks it."""

    def __init__(self, service: Service, session: aiohttp.ClientSession) -> None:
        self.service = service
        self._session = session

    async def ask(
        self, endpoint: str, action: dict[str, Any], user: str = "alice", groups: tuple[str, ...] = ()
    ) -> Any:
        body = {"input": {"context": {"identity": {"user": user, "groups": groups}, "queryId": "q1"}, "action": action}}
        url = f"http://{self.service.addresses['http']}/v1/data/trino/{endpoint}"
        async with self._session.post(url, json=body) as response:
            assert response.status == 200, await response.text()
            answer = await response.json()
        return answer.get("result", answer)

    async def may(self, operation: str, table: str, user: str = "alice") -> bool:
        allowed: bool = await self.ask("allow", {"operation": operation, "resource": named(table)}, user)
        batch = await self.ask("batch", {"operation": operation, "filterResources": [named(table)]}, user)
        assert batch == ([0] if allowed else [])
        return allowed

    async def rows(self, table: str, user: str = "alice", schema: str = "s") -> Any:
        return await self.ask("rowFilters", {"operation": "GetRowFilters", "resource": named(table, schema)}, user)

    async def masks(
        self, table: str, columns: dict[str, str], user: str = "alice", groups: tuple[str, ...] = ()
    ) -> Any:
        place = named(table)["table"]
        asked = [{"column": {**place, "columnName": name, "columnType": type}} for name, type in columns.items()]
        many = await self.ask(
            "batchColumnMasks", {"operation": "GetColumnMask", "filterResources": asked}, user, groups
        )
        found = {list(columns)[mask["index"]]: mask["viewExpression"]["expression"] for mask in many}
        for name, column in zip(columns, asked, strict=True):
            one = await self.ask("columnMask", {"operation": "GetColumnMask", "resource": column}, user, groups)
            assert one.get("expression") == found.get(name)
        return found


def named(table: str, schema: str = "s") -> dict[str, Any]:
    return {"table": {"catalogName": "k", "schemaName": schema, "tableName": table}}


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    (tmp_path / "world.json").write_text(json.dumps(WORLD))
    (tmp_path / "rows.json").write_text(json.dumps(POLICIES))
    config = {
        "store": {"url": "file:world.json"},
        "authorities": {"default": {"engines": ["grants"]}},
        "policies": {"rules": [], "row_access": ["rows.json"]},
        "trino": {"catalogs": {"k": {"warehouse": "lake", "ref": "main"}}},
    }
    async with serving(settings_of(config, tmp_path)) as service, aiohttp.ClientSession() as session:
        yield Client(service, session)


def records(client: Client) -> Any:
    folder = client.service.settings.path("audit")
    return [json.loads(line) for file in sorted(folder.glob("*.jsonl")) for line in file.read_text().splitlines()]


# --- tables beside a table ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", SHOWING)
async def test_what_shows_values_is_denied_where_anything_is_restricted(client: Client, suffix: str) -> None:
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
async def test_what_tells_of_the_table_alone_is_its_metadata(client: Client, suffix: str) -> None:
    assert await client.may("SelectFromColumns", f"orders${suffix}")
    assert await client.rows(f"orders${suffix}") == []
    assert await client.masks(f"people${suffix}", {"salary": "bigint"}) == {}


async def test_an_unknown_suffix_is_a_part_of_an_ordinary_name(client: Client) -> None:
    for name in ("orders$other", "orders$", "$files", "orders$files$", "orders$data"):
        assert await client.may("SelectFromColumns", name)
        assert await client.rows(name) == []


async def test_writes_to_a_table_beside_a_table_are_denied(client: Client) -> None:
    for operation in ("InsertIntoTable", "DeleteFromTable", "DropTable", "TruncateTable"):
        assert not await client.may(operation, "free$files", "boss")


# --- rows and columns ---------------------------------------------------------------------------------------------


async def test_policies_cover_a_table_whatever_its_name_s_case_and_dots(client: Client) -> None:
    for name in ("orders", "ORDERS", "Orders"):
        assert await client.rows(name) == [{"expression": "region = 'EU'"}]
        assert await client.rows(name, "boss") == []
        assert await client.rows(name, "eve") == [{"expression": "false"}]
    for schema, name in (("a.b", "t"), ("A.B", "T"), ("a", "b.t")):
        assert await client.rows(name, schema=schema) == [{"expression": "x = 1"}]


async def test_hidden_columns_show_to_whom_nothing_is_hidden(client: Client) -> None:
    columns = {"$path": "varchar", "$partition": "varchar(9)", "$file_modified_time": "timestamp(3) with time zone"}
    hidden = {name: f"CAST(NULL AS {type})" for name, type in columns.items()}
    for table in ("orders", "people"):
        assert await client.masks(table, columns) == hidden
        assert await client.masks(table, columns, "eve") == hidden
        assert await client.masks(table, columns, "boss") == {}
    assert await client.masks("free", columns) == {}


async def test_the_mask_that_shows_least_wins(client: Client) -> None:
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


async def test_a_record_names_what_restricted_and_by_which_columns(client: Client) -> None:
    await client.rows("orders")
    await client.masks("people", {"salary": "integer", "$path": "varchar", "dept": "varchar"})
    await client.service.stop()
    events = [record for record in records(client) if record["event"] == "filter"]
    assert events[0]["checks"][0]["by"] == ["row_access:eu"]
    assert events[0]["checks"][0]["resource"] == "table_or_view:lake/s/orders@main"
    assert events[1]["masks"] == {"salary": "row_access:pay", "$path": "row_access:hidden_column", "dept": None}


# --- facts that are too old ---------------------------------------------------------------------------------------


class Silent(FixedFacts):
    def is_stale(self) -> bool:
        return True


async def test_a_silent_store_hides_what_roles_are_to_see_and_nothing_else(client: Client) -> None:
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
