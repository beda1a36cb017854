"""POST /v1/scopes over HTTP: answers, records, evidence, and bodies that are refused."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.audit_files import audit_records
from support.http_client import HttpClient, client_of
from support.serving import settings_of

PERMISSIONS = [
    {"name": "svc", "permissions": {"Query": [{"catalog": "hive", "schema": "raw", "tables": ["events"]}]}},
]
EVENTS = {"catalog": "hive", "schema": "raw", "tableName": "events"}
USERS = {**EVENTS, "tableName": "users"}
LAKE = {**USERS, "catalog": "lake"}


def config(**more: Any) -> dict[str, Any]:
    return {
        "authorities": {"default": {"engines": ["grants"]}, "lakeql": {"engines": ["scopes"], "warehouses": ["hive"]}},
        "policies": {"rules": [], "scopes": {"permissions": ["permissions.json"]}},
        "store": {"url": "file:world.json"},
        **more,
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "permissions.json").write_text(json.dumps(PERMISSIONS))
    (tmp_path / "world.json").write_text("{}")
    return tmp_path


async def ask(client: HttpClient, body: Any) -> tuple[int, Any]:
    return await client.post("/v1/scopes", json.dumps(body).encode())


async def test_fields_are_answered_and_recorded(folder: Path) -> None:
    svc = {"userName": "svc"}
    async with client_of(settings_of(config(), folder)) as client:
        answers = [
            await ask(client, {"currentUser": svc, "scopes": {"readPermission": EVENTS}}),
            await ask(client, {"currentUser": svc, "scopes": {"readPermission": USERS, "writePermission": EVENTS}}),
            await ask(client, {"currentUser": {"userName": "human"}, "scopes": {"readPermission": USERS}}),
            await ask(client, {"currentUser": {"userName": "human"}, "scopes": {"readPermission": LAKE}}),
            await ask(client, {"scopes": {"authorized": True}}),
            await ask(client, {}),
        ]
    assert answers == [(200, {"allowed": allowed}) for allowed in (True, False, True, False, False, True)]
    records = audit_records(folder)
    assert [[(row["action"], row["allowed"], row["by"]) for row in record["checks"]] for record in records] == [
        [("read_data", True, ["scopes:svc"])],
        [("read_data", False, ["default_deny"]), ("write_data", False, ["default_deny"])],
        [("read_data", True, ["scopes:(no entry)"])],
        [("read_data", False, ["default_deny"])],
        [],
        [],
    ]


@pytest.mark.parametrize(
    "body",
    [
        {"currentUser": "svc", "scopes": {"authorized": True}},
        {"currentUser": ["svc"], "scopes": {"authorized": True}},
        {"scopes": ["authorized"]},
        {"scopes": {"authorized": "yes"}},
        {"scopes": {"authorised": True}},
        {"scopes": {"readPermission": True}},
        {"scopes": {"readPermission": {**EVENTS, "table": "events"}}},
        {"scopes": {"$all": [{"authorized": True}]}},
        {"user": {}, "scopes": {}},
    ],
)
async def test_other_bodies_are_refused(folder: Path, body: Any) -> None:
    async with client_of(settings_of(config(), folder)) as client:
        status, answer = await ask(client, body)
    assert (status, answer["error"]["code"]) == (400, "invalid_argument")


async def test_deep_and_repeated_scopes_are_bounded(folder: Path) -> None:
    deep: Any = {"authorized": True}
    for _ in range(17):
        deep = {"$all": deep}
    async with client_of(settings_of(config(limits={"max_checks": 2}), folder)) as client:
        assert (await ask(client, {"currentUser": {}, "scopes": deep}))[0] == 400
        tables = {"$all": {"readPermission": EVENTS, "writePermission": EVENTS}, "readPermission": USERS}
        assert (await ask(client, {"currentUser": {}, "scopes": tables}))[1]["error"]["code"] == "too_many_checks"
        doubled = b'{"currentUser":{"userName":"x","userName":"svc"},"scopes":{"authorized":true}}'
        assert (await client.post("/v1/scopes", doubled))[0] == 400


@pytest.mark.parametrize("user", [{"userName": "svc"}, {}, None])
async def test_a_caller_without_the_right_names_no_user(folder: Path, user: Any) -> None:
    """Nobody becomes another user by `currentUser`, not even for the scope `authorized`."""
    callers = {"callers": {"weak": {"loopback": True, "may_assert": ["roles"]}}}
    async with client_of(settings_of(config(identity=callers), folder)) as client:
        for scopes in ({"authorized": True}, {"readPermission": EVENTS}, {}, None):
            status, answer = await ask(client, {"currentUser": user, "scopes": scopes})
            assert (status, answer["error"]["code"]) == (403, "assertion_not_allowed")


async def test_claims_of_a_user_are_evidence_of_their_own(folder: Path) -> None:
    callers = {"callers": {"lakeql": {"loopback": True, "may_assert": ["principals"]}}}
    async with client_of(settings_of(config(identity=callers), folder)) as client:
        scopes = {"readPermission": EVENTS}
        assert await ask(client, {"currentUser": {"userName": "svc"}, "scopes": scopes}) == (200, {"allowed": True})
        assert (await ask(client, {"currentUser": {"userName": "svc", "role": "admin"}, "scopes": scopes}))[0] == 403


@pytest.mark.process
@pytest.mark.skipif(shutil.which("node") is None, reason="no node on this machine")
async def test_the_resolver_of_the_page_asks_the_service(folder: Path) -> None:
    """Run the printed resolver: permits and denials of the service, and a denial without a service."""
    page = (Path(__file__).parents[2] / "docs" / "scopes.md").read_text(encoding="utf-8")
    resolver = page.split("```text\n")[1].split("```")[0]
    resolver = resolver[resolver.index("const ask") : resolver.index("export const")]
    async with client_of(settings_of(config(), folder)) as client:
        address = client.service.addresses["http"]
        fields = [({"userName": "svc"}, EVENTS), ({"userName": "svc"}, USERS), (None, EVENTS)]
        script = (
            'import { request } from "node:http"\n'
            + resolver.replace("127.0.0.1:8181", address)
            + "".join(
                f"console.log(await ask('readPermission', {json.dumps({'context': {'currentUser': user}, **place})}))\n"
                for user, place in fields
            )
        )
        (folder / "ask.mjs").write_text(script)
        process = await asyncio.create_subprocess_exec("node", "ask.mjs", cwd=folder, stdout=subprocess.PIPE)
        out, _ = await asyncio.wait_for(process.communicate(), 60)
    assert out.decode().split() == ["true", "false", "false"]
    again = await asyncio.create_subprocess_exec("node", "ask.mjs", cwd=folder, stdout=subprocess.PIPE)
    out, _ = await asyncio.wait_for(again.communicate(), 60)
    assert out.decode().split() == ["false", "false", "false"]  # nobody answers
