"""Metadata tables such as `t$files`: checks and loads get the answers that Trino gets."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support.clients.http_client import HttpClient, client_of
from support.service.serving import settings_of

from pdp.model.trino_operations import METADATA_TABLES, VIEW_STORAGE

pytestmark = pytest.mark.asyncio(loop_scope="module")
USERS = ("owner", "reader", "limited", "describer", "nobody")
TABLES = ("free", "limited", "masked", "kept")
SUFFIXES = sorted(METADATA_TABLES.keys() - {VIEW_STORAGE})
NAMES = [f"{table}${suffix}" for table in TABLES for suffix in SUFFIXES]
WORLD = {
    "objects": ["project:p", {"object": "warehouse:lake", "parent": "project:p"}],
    "grants": [
        {"principal": f"user:oidc~{who}", "privilege": privilege, "object": "namespace:lake/s"}
        for who, privilege in (("owner", "ownership"), ("reader", "select"), ("limited", "modify"), ("describer", "describe"))
    ],
}  # fmt: skip
ROWS = {
    "policies": [{"id": "some", "table": "lake.s.limited", "grantees": ["user:reader"], "filter": "a = 1"}],
    "masks": [{"id": "m", "table": "lake.s.masked", "column": "c", "grantees": ["user:limited"], "kind": "null"}],
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[HttpClient]:
    folder: Path = tmp_path_factory.mktemp("metadata")
    (folder / "world.json").write_text(json.dumps(WORLD))
    (folder / "rows.json").write_text(json.dumps(ROWS))
    (folder / "forbid.yaml").write_text(json.dumps({"rules": {"kept": "path == 's.kept'"}}))
    config = {
        "authorities": {"default": {"engines": ["grants"]}},
        "policies": {"rules": [], "row_access": ["rows.json"], "forbid": ["forbid.yaml"]},
        "store": {"seed": "world.json"},
        "trino": {"catalogs": {"lake": {"warehouse": "lake", "ref": "main"}}},
    }
    async with client_of(settings_of(config, folder)) as made:
        yield made


async def checked(client: HttpClient, user: str, action: str, type: str, names: list[str]) -> list[bool]:
    """Ask about each name alone, and about all at once; both must agree."""
    asked = {"principal": f"user:oidc~{user}", "action": action}
    resources = [f"{type}:lake/s/{name}" for name in names]
    checks: list[dict[str, Any]] = [asked | {"resource": each} for each in resources]
    status, answer = await client.post("/v1/check", {"checks": [*checks, *checks, asked | {"resources": resources}]})
    assert status == 200, answer
    found = [decision["allowed"] for decision in answer["decisions"]]
    size = len(names)
    assert found[:size] == found[size : 2 * size] == found[2 * size :]
    return found[:size]


async def by_trino(client: HttpClient, user: str, name: str) -> bool:
    table = {"catalogName": "lake", "schemaName": "s", "tableName": name, "columns": ["c"]}
    action = {"operation": "SelectFromColumns", "resource": {"table": table}}
    body = {"input": {"context": {"identity": {"user": user, "groups": []}}, "action": action}}
    status, answer = await client.post("/v1/data/trino/allow", body)
    assert status == 200, answer
    allowed: bool = answer["result"]
    return allowed


@pytest.mark.parametrize("user", USERS)
async def test_a_check_reads_metadata_tables_as_trino_does(client: HttpClient, user: str) -> None:
    names = [*NAMES, "free$files$files", "free$nosuch"]
    wanted = [await by_trino(client, user, name) for name in names]
    assert await checked(client, user, "read_data", "table", names) == wanted
    assert await checked(client, user, "read_data", "table_or_view", names) == wanted


@pytest.mark.parametrize("user", USERS)
async def test_nothing_shows_more_than_the_table(client: HttpClient, user: str) -> None:
    names = [f"{table}${suffix}" for table in TABLES for suffix in SUFFIXES if METADATA_TABLES[suffix] == "read_data"]
    tables = [name.partition("$")[0] for name in names]
    for action in ("get_metadata", "include_in_list", "read_data", "write_data", "commit"):
        found = await checked(client, user, action, "table", names)
        base = await checked(client, user, action, "table", tables)
        assert all(one <= other for one, other in zip(found, base, strict=True)), action
    for name, table in zip(names, tables, strict=True):
        storage = [await loaded(client, user, each) for each in (name, table)]
        assert storage[0] == storage[1], name


async def loaded(client: HttpClient, user: str, name: str) -> list[Any]:
    answers: list[Any] = []
    for action in ("loadTable", "loadCredentials"):
        body = {"principal": f"user:oidc~{user}", "target": f"table:lake/s/{name}", "action": action}
        status, answer = await client.post("/v1/load", body)
        assert status == 200, answer
        answers += [answer["allowed"], answer["storageAccess"]]
    return answers


async def test_other_spellings_are_no_way_around(client: HttpClient) -> None:
    for user, name in (("reader", "limited$Files"), ("reader", "Limited$files"), ("limited", "MASKED$ALL_FILES")):
        assert await checked(client, user, "read_data", "table", [name]) == [False]
        assert (await loaded(client, user, name))[2:] == [False, "none"]
    assert await checked(client, "owner", "write_data", "table", ["free$files", "free$files$files"]) == [False, False]
