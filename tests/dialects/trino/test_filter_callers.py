"""Filters and masks for Trino hold the principal that they were decided for, whoever owns the session of the query.

Trino's planner evaluates `current_user` and `current_groups()` with the session of the statement. Behind a view that
runs as its owner, this is the reader, while the rows are the owner's.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlglot
from support.clients.http_client import HttpClient, client_of
from support.service.serving import settings_of

TABLE = {"catalogName": "lakehouse", "schemaName": "sales", "tableName": "orders"}
NO_ROW = "false"


class Trino:
    """Trino in front of one service with one policy and one mask."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client

    async def ask(self, endpoint: str, user: str, groups: list[str], action: Mapping[str, Any]) -> Any:
        body = {"input": {"context": {"identity": {"user": user, "groups": groups}}, "action": action}}
        path, headers = f"/v1/data/trino/{endpoint}", {"Content-Type": "application/json"}
        answer = await self._client.send("POST", path, json.dumps(body).encode(), headers)
        assert answer.status == 200, answer.text
        return answer.json()["result"]

    async def filter(self, user: str, *groups: str) -> str:
        action = {"operation": "GetRowFilters", "resource": {"table": TABLE}}
        (found,) = await self.ask("rowFilters", user, list(groups), action)
        return str(found["expression"])

    async def mask(self, user: str, *groups: str) -> str:
        column = {**TABLE, "columnName": "note", "columnType": "varchar"}
        action = {"operation": "GetColumnMask", "filterResources": [{"column": column}]}
        (found,) = await self.ask("batchColumnMasks", user, list(groups), action)
        return str(found["viewExpression"]["expression"])


@asynccontextmanager
async def trino(folder: Path, text: str, dialect: str = "trino", **config: Any) -> AsyncIterator[Trino]:
    """Yield a Trino whose service has a text as the filter of a table, and as the mask of a column."""
    shared = {"table": "lake.sales.orders", "grantees": ["allUsers"], "dialect": dialect}
    mask = {"id": "m", "column": "note", "kind": "expression", "expression": text, **shared}
    tables = {"lake.sales.orders": {"columns": {"owner": "VARCHAR", "team": "VARCHAR", "note": "VARCHAR"}}}
    known = {} if dialect == "trino" else {"tables": tables}
    rows = {"policies": [{"id": "p", "filter": text, **shared}], "masks": [mask], **known}
    (folder / "rows.json").write_text(json.dumps(rows))
    base = {
        "policies": {"rules": [], "row_access": ["rows.json"]}, "warehouses": {"lake": {}},
        "trino": {"catalogs": {"lakehouse": {"warehouse": "lake"}}},
    }  # fmt: skip
    async with client_of(settings_of(base | config, folder)) as client:
        yield Trino(client)


@pytest.mark.parametrize(
    "text",
    [
        "owner = current_user", "owner = CURRENT_USER", "owner = Current_User", "owner=current_user",
        "owner = current_user()", "owner = current_user  ( )", "owner = /* who */ current_user -- asks",
        "(\n current_user\t) = owner", "owner IN ('x', current_user)", "lower(current_user) = owner",
        "owner = '--' || current_user", "owner = '/*' || current_user || '*/'", "owner = 'it''s ' || current_user",
        "owner IN (SELECT o.name FROM lakehouse.sales.owners o WHERE o.boss = current_user)",
        'owner = "$current_user"()', 'owner = system.builtin."$current_user"()',
    ],
)  # fmt: skip
async def test_every_spelling_becomes_the_user_of_the_decision(tmp_path: Path, text: str) -> None:
    async with trino(tmp_path, text) as asked:
        for user, literal in (("ann", "'ann'"), ("O'Neil", "'O''Neil'"), ("a\\'b--", "'a\\''b--'"), ("żółć", "'żółć'")):
            for found in (await asked.filter(user), await asked.mask(user)):
                assert literal in found
                assert "current_user" not in found.lower()
                assert "\0" not in found
                assert sqlglot.parse_one(found, read="trino")


@pytest.mark.parametrize(
    "text",
    [
        'owner = "current_user"', 'owner = "CURRENT_USER"', 'o."current_user" = owner', "owner = 'current_user'",
        "owner = 'it''s current_user'", "owner = ' '' current_user '' '", 'owner = "a "" current_user "" b"',
        "owner = current_users", "owner = current_user_name", "owner = my_current_user", 'owner = "$current_user"',
        "owner = session_user", "owner = user", "owner = 'current_groups()'", 'contains("current_groups", owner)',
        "owner = sales.current_groups()",
    ],
)  # fmt: skip
async def test_columns_and_texts_stay(tmp_path: Path, text: str) -> None:
    async with trino(tmp_path, text) as asked:
        assert await asked.filter("ann", "eu") == text
        assert await asked.mask("ann", "eu") == f"CAST({text} AS varchar)"


@pytest.mark.parametrize(
    "spelling", ["current_groups()", "CURRENT_GROUPS( )", '"current_groups"()', "system.builtin.current_groups()"]
)
async def test_groups_are_those_of_the_decision(tmp_path: Path, spelling: str) -> None:
    async with trino(tmp_path, f"contains({spelling}, team)") as asked:
        wanted = "contains(CAST(ARRAY['eu', 'o''n'] AS array(varchar)), team)"
        assert await asked.filter("ann", "eu", "o'n") == wanted
        assert await asked.mask("ann", "eu", "o'n") == f"CAST({wanted} AS varchar)"
        assert await asked.filter("ann") == "contains(CAST(ARRAY[] AS array(varchar)), team)"


@pytest.mark.parametrize(
    ("text", "groups"), [("owner = current_user", ()), ("NOT contains(current_groups(), t)", ("a\u2028b",))]
)
async def test_a_name_without_a_certain_literal_shows_nothing(
    tmp_path: Path, text: str, groups: tuple[str, ...]
) -> None:
    async with trino(tmp_path, text) as asked:
        user = "ann" if groups else "a\u2028b"
        assert await asked.filter(user, *groups) == NO_ROW
        assert await asked.mask(user, *groups) == "CAST(NULL AS varchar)"


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ("bigquery", "owner = SESSION_USER()"), ("spark", "owner = current_user()"), ("spark", "owner = session_user()"),
        ("duckdb", "owner = current_user"), ("duckdb", "owner = session_user"), ("bigquery", "session_user() = owner"),
    ],
)  # fmt: skip
async def test_texts_of_other_dialects_hold_the_user_too(tmp_path: Path, dialect: str, text: str) -> None:
    async with trino(tmp_path, text, dialect) as asked:
        for found in (await asked.filter("O'Neil"), await asked.mask("O'Neil")):
            assert "'O''Neil'" in found
            assert "_user" not in found.lower()


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ("bigquery", "team IN UNNEST(current_groups())"), ("spark", "array_contains(current_groups(), team)"),
        ("duckdb", "list_contains(current_groups(), team)"), ("spark", "is_account_group_member(team)"),
    ],
)  # fmt: skip
async def test_groups_in_texts_of_other_dialects(tmp_path: Path, dialect: str, text: str) -> None:
    async with trino(tmp_path, f"NOT ({text})", dialect) as asked:
        listed = "CAST(ARRAY['eu', 'o''n'] AS array(varchar))"
        for found in (await asked.filter("ann", "eu", "o'n"), await asked.mask("ann", "eu", "o'n")):
            assert f"NOT (CASE WHEN NOT team IS NULL THEN CONTAINS({listed}, team) END)" in found.replace(
                "contains", "CONTAINS"
            )
    async with trino(tmp_path, "NOT team = current_claim('team')", dialect) as asked:
        assert await asked.filter("ann", "eu") == NO_ROW
        assert await asked.mask("ann", "eu") == "CAST(NULL AS varchar)"


async def test_roles_are_those_that_a_permit_sees(tmp_path: Path) -> None:
    groups = {"catalogs": {"lakehouse": {"warehouse": "lake"}}, "groups": {"eu": "etl", "x": "dev"}}
    async with trino(tmp_path, "contains( Current_Roles ( ) , team)", trino=groups) as asked:
        wanted = "contains( CAST(ARRAY['etl', 'dev'] AS array(varchar)) , team)"
        assert await asked.filter("ann", "eu", "y", "x") == wanted
        assert await asked.mask("ann", "eu", "y", "x") == f"CAST({wanted} AS varchar)"
    unknown = groups | {"unknown": ["roles"]}
    async with trino(tmp_path, "NOT contains(current_roles(), team)", trino=unknown) as asked:
        assert await asked.filter("ann", "eu") == NO_ROW
        assert await asked.mask("ann", "eu") == "CAST(NULL AS varchar)"


@pytest.mark.parametrize("text", ["current_claim('team') = team", "COALESCE(current_claim('team') <> team, TRUE)"])
async def test_a_user_of_trino_has_no_claims(tmp_path: Path, text: str) -> None:
    async with trino(tmp_path, text) as asked:
        assert await asked.filter("ann", "eu") == NO_ROW
        assert await asked.mask("ann", "eu") == "CAST(NULL AS varchar)"


async def test_the_name_is_trinos_whatever_members_are_called(tmp_path: Path) -> None:
    member = {"member": {"template": "user:{subject}@example.com"}}
    async with trino(tmp_path, "owner = current_user", row_access=member) as asked:
        assert await asked.filter("ann") == "owner = 'ann'"
    claim = {"member": {"claim": "email"}}
    async with trino(tmp_path, "owner = current_user", row_access=claim) as asked:
        assert await asked.filter("ann") == "owner = 'ann'"
