"""Lakekeeper's published policies, run by OPA before this service, answer Trino as the service's own paths do.

The policies are not ours to keep: `LAKEKEEPER_REGO` names a folder with `authz/opa-bridge/policies` of Lakekeeper's repository.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from support.clients.http_client import client_of
from support.paths import ROOT
from support.servers.idp import ISSUER, jwk, token
from support.servers.redis_server import free_port
from support.service.serving import settings_of
from support.untested import not_tested

pytestmark = pytest.mark.process
USERS = ("ann", "bob", "cid", "dan")
OBJECTS = [
    "warehouse:lake", "namespace:lake/s", "namespace:lake/other", "table:lake/s/t", "table:lake/s/closed", "table:lake/s/locked", "view:lake/s/v",
    "table:lake/s/hidden",
]  # fmt: skip
ROWS = {
    "default": ["lake", "s"],
    "tables": {"closed": {"columns": {"id": "INTEGER"}}},
    "policies": [{"id": "p", "table": "closed", "grantees": ["user:bob"], "filter": "id > 1"}],
}
CHANGES = [
    "AddColumn",
    "AlterColumn",
    "DeleteFromTable",
    "InsertIntoTable",
    "SetColumnComment",
    "SetTableComment",
    "UpdateTableColumns",
]
READS = ("SelectFromColumns", "CreateViewWithSelectFromColumns")
WIDER = {("SelectFromColumns", "t$files")}
"""What the policies let through, and our own paths do not: they ask for the metadata of a table, and `$files` shows values."""
NARROWER = {
    *((operation, "closed") for operation in (*READS, *CHANGES)),
    ("ShowCreateTable", "v"), ("CreateViewWithSelectFromColumns", "t$files"), ("CreateViewWithSelectFromColumns", "t$snapshots"),
    ("RenameTable", "t"), ("RenameView", "v"),
}  # fmt: skip
"""What the policies refuse: tables with hidden rows, whose filters OPA does not apply; views shown as tables; views over
metadata tables; renames under a forbid that reads names, because the new name is not sent."""


def table(name: str, **more: Any) -> dict[str, Any]:
    return {"table": {"catalogName": "demo", "schemaName": "s", "tableName": name, **more}}


def schema(name: str, **more: Any) -> dict[str, Any]:
    return {"schema": {"catalogName": "demo", "schemaName": name, **more}}


def questions() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield operations with the name of their object and the rest of the action."""
    for operation in READS:
        for name in ("t", "closed", "locked", "v", "nope", "t$files", "t$snapshots"):
            yield operation, name, {"resource": table(name, columns=["id"])}
    for operation in (
        *CHANGES,
        "TruncateTable",
        "DropTable",
        "ShowColumns",
        "ShowCreateTable",
        "SetTableProperties",
        "DropColumn",
        "RenameColumn",
    ):
        for name in ("t", "closed", "locked", "nope", "v"):
            yield operation, name, {"resource": table(name, properties={"format": "ORC"}, columns=["id"])}
    for name in ("fresh", "t", "v", "locked"):
        yield "CreateTable", name, {"resource": table(name, properties={})}
        yield "CreateView", name, {"resource": table(name)}
        yield "DropView", name, {"resource": table(name)}
        yield "SetViewComment", name, {"resource": table(name)}
    for name in ("t", "closed", "locked"):
        yield "RenameTable", name, {"resource": table(name), "targetResource": table(f"{name}2")}
    yield "RenameView", "v", {"resource": table("v"), "targetResource": table("v2")}
    for name in ("s", "other", "nope"):
        for operation in ("ShowTables", "DropSchema", "ShowCreateSchema"):
            yield operation, name, {"resource": schema(name)}
    yield "CreateSchema", "new", {"resource": schema("new", properties={})}
    for name in ("demo", "dev", "unheard"):
        for operation in ("AccessCatalog", "ShowSchemas"):
            yield operation, name, {"resource": {"catalog": {"name": name}}}
    yield "ExecuteQuery", "", {}


LISTS = [
    ("FilterTables", [table(name) for name in ("t", "closed", "locked", "v", "nope", "hidden")]),
    ("FilterSchemas", [schema(name) for name in ("s", "other", "nope")]),
    ("FilterCatalogs", [{"catalog": {"name": name}} for name in ("demo", "dev", "unheard")]),
    ("FilterColumns", [table("t", columns=["a", "b"])]),
    ("FilterColumns", [table("locked", columns=["a"])]),
]


def body(user: str, operation: str, number: int, **action: Any) -> dict[str, Any]:
    """Return a body of Trino's plugin. Each has a query of its own: OPA remembers what one query may list."""
    context = {"identity": {"user": user, "groups": []}, "queryId": f"20260101_000000_{number:05}_abcde"}
    return {"input": {"context": context, "action": {"operation": operation, **action}}}


def world(dice: random.Random) -> dict[str, Any]:
    privileges = {"table": "select modify ownership describe", "namespace": "select modify create describe ownership"}
    grants = [
        {"principal": f"user:oidc~{user}", "object": each, "privilege": dice.choice(privileges.get(each.split(":")[0], "select ownership describe").split())}
        for user in USERS for each in OBJECTS if dice.random() < 0.4
    ]  # fmt: skip
    return {"objects": OBJECTS, "grants": grants}


def config(folder: Path, seed: int) -> dict[str, Any]:
    files = {"world.json": world(random.Random(seed)), "rows.json": ROWS, "keys.json": {"keys": [jwk()]}, "forbid.yaml": {"rules": {"lock": "path == 's.locked'"}}}  # fmt: skip
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    bridge = {
        "bearer": {"idp": "oidc", "subjects": ["opa-bridge"]},
        "may_assert": ["principals"],
        "empty": ["roles", "groups", "attributes"],
    }
    trino = {"loopback": True, "may_assert": ["principals", "groups", "delegated"], "empty": ["roles", "attributes"]}
    provider = {"issuer": ISSUER, "jwks": "keys.json", "audiences": ["pdp"]}
    protected = {"row_access": ["rows.json"], "forbid": ["forbid.yaml"]} if seed % 2 else {}
    return {
        "warehouses": {"lake": {}}, "store": {"url": "file:world.json"}, "authorities": {"default": {"engines": ["grants"]}},
        "policies": {"rules": [], **protected}, "lakekeeper": {"warehouses": {"demo": "lake"}}, "trino": {"catalogs": {"demo": {"warehouse": "lake"}}},
        "identity": {"providers": {"oidc": provider}, "callers": {"bridge": bridge, "trino": trino}},
    }  # fmt: skip


@asynccontextmanager
async def token_endpoint() -> AsyncIterator[str]:
    async def answer(request: web.BaseRequest) -> web.Response:
        return web.json_response({"access_token": token(sub="opa-bridge"), "expires_in": 300, "token_type": "Bearer"})

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/token"
    finally:
        await runner.cleanup()


@contextmanager
def opa(url: str, tokens: str) -> Iterator[str]:
    """OPA with the published policies, unchanged, before the service at an address."""
    policies = os.environ.get("LAKEKEEPER_REGO")
    program = Path.home() / "go" / "bin" / "opa"
    if not policies or not program.exists():
        not_tested("Lakekeeper's published policies", "`LAKEKEEPER_REGO` names no folder, or OPA is missing", "")
    address = f"127.0.0.1:{free_port()}"
    variables = {
        "LAKEKEEPER_URL": url, "LAKEKEEPER_TOKEN_ENDPOINT": tokens, "LAKEKEEPER_CLIENT_ID": "bridge", "LAKEKEEPER_CLIENT_SECRET": "secret",
        "TRINO_DEMO_CATALOG_NAME": "demo", "LAKEKEEPER_DEMO_WAREHOUSE": "demo",
    }  # fmt: skip
    command = [str(program), "run", "--server", "--addr", address, "--log-level", "error", policies]
    process = subprocess.Popen(command, env=os.environ | variables, cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(20)


async def until_healthy(session: aiohttp.ClientSession, url: str) -> None:
    for _ in range(200):
        try:
            async with session.get(f"{url}/health") as answer:
                if answer.status == 200:
                    return
        except aiohttp.ClientError:
            pass
        await asyncio.sleep(0.1)
    raise AssertionError("OPA did not start")


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_the_policies_answer_as_our_own_paths(tmp_path: Path, seed: int) -> None:
    settings = settings_of(config(tmp_path, seed), tmp_path)
    alike = number = 0
    wider: set[tuple[str, str]] = set()
    narrower: set[tuple[str, str]] = set()
    async with client_of(settings) as client, token_endpoint() as tokens, aiohttp.ClientSession() as session:
        with opa(client.url("").rstrip("/"), tokens) as bridge:
            await until_healthy(session, bridge)

            async def theirs(path: str, asked: Any) -> Any:
                async with session.post(f"{bridge}/v1/data/trino/{path}", json=asked) as answer:
                    return (await answer.json()).get("result")

            for user in USERS:
                for operation, name, action in questions():
                    number += 1
                    asked = body(user, operation, number, **action)
                    found, (_, ours) = await theirs("allow", asked), await client.trino("allow", asked)
                    alike += found == ours["result"]
                    if found != ours["result"]:
                        (wider if found else narrower).add((operation, name))
                for operation, listed in LISTS:
                    number += 1
                    asked = body(user, operation, number, filterResources=listed)
                    _, ours = await client.trino("batch", asked)
                    assert sorted(await theirs("batch", asked) or []) == ours["result"], (user, operation)
    assert wider <= WIDER
    assert narrower <= NARROWER
    assert alike > 400
