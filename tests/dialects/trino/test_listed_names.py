"""Names that only a catalog knows: with `trino.create_over_listed: deny` nobody creates over them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from support.clients.http_client import client_of
from support.oracles.audit_files import audit_records
from support.oracles.trino_wants import Ask
from support.service.serving import settings_of

from pdp.config.load import load_settings
from pdp.errors import ConfigError

pytestmark = pytest.mark.waits

LISTED = {"tables/old": 200, "views/seen": 200, "tables/broken": 500, "tables/hidden": 403, "tables/odd": 404}
CREATIONS = ["CreateTable", "CreateView", "CreateMaterializedView"]
WORLD = {
    "objects": [{"object": "table:lake/s/known"}],
    "grants": [
        {"principal": "user:oidc~eve", "privilege": "create", "object": "namespace:lake/s"},
        {"principal": "user:oidc~pam", "privilege": "modify", "object": "namespace:lake/s"},
        {"principal": "user:oidc~pam", "privilege": "create", "object": "namespace:lake/s"},
    ],
}


class RestCatalog:
    """An Iceberg REST catalog that knows a few names, and counts the questions."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def answer(self, request: web.BaseRequest) -> web.Response:
        if request.path.endswith("/config"):
            return web.json_response({"overrides": {}, "defaults": {}})
        name = request.path.partition("/namespaces/s/")[2]
        self.asked.append(name)
        status = LISTED.get(name, 404)
        missing = {"error": {"type": "NoSuchTableException" if name not in LISTED else "Other"}}
        if name == "tables/slow":
            await asyncio.sleep(3)
        return web.json_response({} if status == 200 else missing, status=status)


@asynccontextmanager
async def rest_catalog() -> AsyncIterator[tuple[RestCatalog, str]]:
    catalog = RestCatalog()
    server = web.Server(catalog.answer)
    runner = web.ServerRunner(server)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield catalog, f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def config(uri: str, **trino: Any) -> dict[str, Any]:
    lake = {"default_ref": "main", "catalog": {"uri": uri, "timeout_seconds": 0.5}}
    catalogs = {"k": {"warehouse": "lake"}, "dev": {"warehouse": "lake", "ref": "dev"}}
    return {
        "store": {"url": "file:world.json"},
        "warehouses": {"lake": lake},
        "trino": {"catalogs": catalogs, "create_over_listed": "deny", **trino},
    }


@asynccontextmanager
async def asking(folder: Path, uri: str, **trino: Any) -> AsyncIterator[Ask]:
    (folder / "world.json").write_text(json.dumps(WORLD))
    async with client_of(settings_of(config(uri, **trino), folder)) as client:

        async def ask(endpoint: str, body: Any) -> Any:
            status, answer = await client.trino(endpoint, body)
            assert status == 200, answer
            return answer["result"]

        yield ask


def body(operation: str, *names: str, user: str = "eve", catalog: str = "k") -> dict[str, Any]:
    named = [{"table": {"catalogName": catalog, "schemaName": "s", "tableName": name}} for name in names]
    action = {"operation": operation, **({"resource": named[0]} if len(named) == 1 else {"filterResources": named})}
    return {"input": {"context": {"identity": {"user": user, "groups": []}}, "action": action}}


@pytest.mark.parametrize("operation", CREATIONS)
async def test_nobody_creates_over_a_name_that_the_catalog_lists(tmp_path: Path, operation: str) -> None:
    async with rest_catalog() as (catalog, uri), asking(tmp_path, uri) as ask:
        assert await ask("allow", body(operation, "fresh")) is True
        for name in ("old", "seen", "broken", "hidden", "odd", "slow"):
            assert await ask("allow", body(operation, name)) is False, name
            assert await ask("allow", body(operation, name, user="pam")) is False, name
        assert await ask("batch", body(operation, "old", "fresh", "seen", "more")) == [1, 3]
        # the plan asks for `drop` on a known name, so the catalog need not be asked
        catalog.asked.clear()
        assert await ask("allow", body(operation, "known")) is False
        assert await ask("allow", body(operation, "known", user="pam")) is True
        assert catalog.asked == []
        # the catalog answers for its default ref alone
        assert await ask("allow", body(operation, "fresh", catalog="dev")) is False
    reasons = [check["by"] for record in audit_records(tmp_path) for check in record["checks"]]
    assert ["config:trino.create_over_listed"] in reasons


async def test_other_operations_ask_no_catalog(tmp_path: Path) -> None:
    async with rest_catalog() as (catalog, uri), asking(tmp_path, uri) as ask:
        assert await ask("allow", body("DropTable", "old", user="pam")) is True
        assert catalog.asked == []


async def test_no_catalog_is_asked_by_default(tmp_path: Path) -> None:
    async with rest_catalog() as (catalog, uri), asking(tmp_path, uri, create_over_listed="allow") as ask:
        assert await ask("allow", body("CreateTable", "old")) is True
        assert catalog.asked == []


def test_the_setting_needs_a_catalog(tmp_path: Path) -> None:
    without = config("http://127.0.0.1:1")
    del without["warehouses"]["lake"]["catalog"]
    (tmp_path / "pdp.yaml").write_text(yaml.safe_dump(without))
    with pytest.raises(ConfigError) as raised:
        load_settings(tmp_path / "pdp.yaml", environ={})
    needed = "`trino.create_over_listed: deny` needs `warehouses.lake.catalog`"
    assert [message for _, message in raised.value.problems] == [
        f"`trino.catalogs.{name}.warehouse`: {needed}" for name in ("dev", "k")
    ]


async def test_a_warehouse_without_a_catalog_denies(tmp_path: Path) -> None:
    without = config("http://127.0.0.1:1")
    del without["warehouses"]["lake"]["catalog"]
    (tmp_path / "world.json").write_text(json.dumps(WORLD))
    async with client_of(settings_of(without, tmp_path)) as client:
        assert (await client.trino("allow", body("CreateTable", "fresh")))[1] == {"result": False}
