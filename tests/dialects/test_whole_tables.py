"""Callers that show whole tables: no name of a right to rows passes a table with hidden rows, on any surface."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.clients.http_client import HttpClient, client_of
from support.service.serving import settings_of

WORLD = {
    "objects": [{"object": "warehouse:lake"}],
    "grants": [{"principal": "user:oidc~bob", "privilege": "ownership", "object": "warehouse:lake"}],
}
ROWS = {
    "default": ["lake", "s"],
    "tables": {"closed": {"columns": {"id": "INTEGER"}}},
    "policies": [{"id": "p", "table": "closed", "grantees": ["user:bob"], "filter": "id > 1"}],
}
OF_ROWS = [
    "read_data", "write_data", "READ_ENTITY_VALUE", "UPDATE_ENTITY", "trino:SelectFromColumns", "trino:CreateViewWithSelectFromColumns",
    "trino:InsertIntoTable", "trino:DeleteFromTable", "trino:UpdateTableColumns",
]  # fmt: skip
OTHERS = ["get_metadata", "commit", "trino:ShowColumns"]


def config(folder: Path, **more: Any) -> dict[str, Any]:
    (folder / "world.json").write_text(json.dumps(WORLD))
    (folder / "rows.json").write_text(json.dumps(ROWS))
    return {
        "warehouses": {"lake": {"default_ref": "main"}}, "store": {"url": "file:world.json"}, "authorities": {"default": {"engines": ["grants"]}},
        "policies": {"rules": [], "row_access": ["rows.json"]},
    } | more  # fmt: skip


async def by_authzen(client: HttpClient, action: str, table: str) -> bool:
    asked = {
        "subject": {"type": "user", "id": "oidc~bob"}, "action": {"name": action}, "resource": {"type": "table", "id": f"lake/s/{table}"},
    }  # fmt: skip
    status, answer = await client.post("/access/v1/evaluation", asked)
    return status == 200 and bool(answer["decision"])


async def by_lakekeeper(client: HttpClient, action: str, table: str) -> bool:
    operation = {"table": {"action": {"action": action}, "warehouse-id": "lake", "namespace": ["s"], "table": table}}
    body = {"checks": [{"identity": {"user": "oidc~bob"}, "operation": operation}]}
    status, answer = await client.post("/management/v1/action/batch-check", body)
    return status == 200 and bool(answer["results"][0]["allowed"])


@pytest.mark.parametrize("ask", [by_authzen, by_lakekeeper])
async def test_rights_to_rows_need_all_rows_by_every_name(tmp_path: Path, ask: Any) -> None:
    async with client_of(settings_of(config(tmp_path), tmp_path)) as client:
        for action in OF_ROWS:
            answers = [await ask(client, action, table) for table in ("open", "closed", "open", "closed")]
            assert answers == [True, False, True, False], action
        for action in OTHERS:
            assert await ask(client, action, "closed") is True, action


async def test_a_search_lists_what_an_evaluation_permits(tmp_path: Path) -> None:
    async with client_of(settings_of(config(tmp_path), tmp_path)) as client:
        for action in ("read_data", "get_metadata"):
            subject, named = {"type": "user", "id": "oidc~bob"}, {"name": action}
            body = {"subject": subject, "action": named, "resource": {"type": "table"}}
            status, found = await client.post("/access/v1/search/resource", body)
            assert status == 200, found
            listed = {each["id"] for each in found["results"]}
            assert all([await by_authzen(client, action, id.rpartition("/")[2]) for id in listed])
            subjects = {
                "subject": {"type": "user"},
                "action": named,
                "resource": {"type": "table", "id": "lake/s/closed"},
            }
            status, found = await client.post("/access/v1/search/subject", subjects)
            assert status == 200, found
            can = "oidc~bob" in {each["id"] for each in found["results"]}
            assert can == await by_authzen(client, action, "closed"), action


@pytest.mark.parametrize("ask", [by_authzen])
async def test_a_list_shown_unasked_needs_grants_alone(tmp_path: Path, ask: Any) -> None:
    asked = {
        "subject": {"type": "user", "id": "oidc~bob"}, "action": {"name": "list_everything"}, "resource": {"type": "namespace", "id": "lake/s"},
    }  # fmt: skip
    for policies, want in (({"rules": []}, True), ({"rules": [], "row_access": ["rows.json"]}, False)):
        async with client_of(settings_of(config(tmp_path, policies=policies), tmp_path)) as client:
            assert (await client.post("/access/v1/evaluation", asked))[1] == {"decision": want}
