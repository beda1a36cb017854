"""Rows and rights of one state: policies, grants and roles that change while a statement is rewritten."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import pytest_asyncio
from support.clients.http_client import HttpClient, client_of
from support.service.serving import settings_of

from pdp.rewrite.process.messages import RewriteReply
from pdp.rewrite.process.pool import WorkerPool

pytestmark = pytest.mark.process
READER = "user:oidc~reader"
TABLE = "table:lake/s/x"
SELECT = {"principal": READER, "privilege": "select", "object": TABLE}
POLICY = {"id": "p", "table": "lake.s.x", "grantees": ["allUsers"], "filter": "id = 77"}
TEAM = {"id": "team", "table": "lake.s.x", "grantees": ["role:team"], "filter": "TRUE"}
MEMBER = {"principal": READER, "privilege": "assignee", "object": "role:team"}
Step: TypeAlias = Callable[[HttpClient], Awaitable[None]]
DIALECTS = ["duckdb", "spark", "bigquery", "trino"]


@pytest_asyncio.fixture
async def client(tmp_path: Path) -> AsyncIterator[HttpClient]:
    config: dict[str, Any] = {
        "warehouses": {"lake": {}}, "store": {"url": f"sqlite:///{tmp_path}/facts.db"}, "authorities": {"default": {"engines": ["grants"]}},
        "policies": {"rules": [], "row_access": [{"path": "rows.json", "allow_empty": True}]}, "limits": {"rewrite_seconds": 60, "request_timeout_seconds": 60},
    }  # fmt: skip
    (tmp_path / "rows.json").write_text(
        json.dumps({"tables": {"lake.s.x": {"columns": {"id": "INTEGER"}}}, "policies": []})
    )
    async with client_of(settings_of(config, tmp_path)) as client:
        await grants(client, objects=True)
        yield client


async def done(client: HttpClient, path: str, body: Any) -> None:
    status, answer = await client.post(path, body)
    assert status == 200, answer


async def grants(client: HttpClient, *, add: Any = (), remove: Any = (), objects: bool = False) -> None:
    if objects:
        await done(client, "/v1/objects", {"put": [{"object": "warehouse:lake"}, {"object": TABLE}]})
    if add or remove:
        await done(client, "/v1/grants", {"add": list(add), "remove": list(remove)})


async def close_then_grant(client: HttpClient) -> None:
    await done(client, "/v1/row-access-policies", POLICY)
    await grants(client, add=[SELECT])


async def revoke_then_open(client: HttpClient) -> None:
    await grants(client, remove=[SELECT])
    answer = await client.send("DELETE", "/v1/row-access-policies/p?table=lake.s.x")
    assert answer.status == 200, answer


async def leave_the_team(client: HttpClient) -> None:
    await grants(client, remove=[MEMBER], add=[SELECT])


def changing(monkeypatch: pytest.MonkeyPatch, client: HttpClient, step: Step, *, first: bool) -> list[int]:
    """Let a change happen once, beside the work of a process: before it begins, or when it has answered."""
    ask, calls = WorkerPool.ask, list[int]()

    async def asked(pool: WorkerPool, *arguments: Any) -> RewriteReply:
        calls.append(len(calls))
        if first and calls == [0]:
            await step(client)
        reply = await ask(pool, *arguments)
        if not first and calls == [0]:
            await step(client)
        return reply

    monkeypatch.setattr(WorkerPool, "ask", asked)
    return calls


async def rewritten(client: HttpClient, dialect: str = "duckdb") -> tuple[int, Any]:
    return await client.post("/v1/rewrite", {"principal": READER, "sql": "SELECT id FROM lake.s.x", "dialect": dialect})


async def filtered(client: HttpClient, dialect: str = "duckdb") -> tuple[int, Any]:
    return await client.post("/v1/filters", {"principal": READER, "resource": TABLE, "dialect": dialect})


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_table_that_is_closed_and_then_granted_shows_its_visible_rows(
    client: HttpClient, monkeypatch: pytest.MonkeyPatch, dialect: str
) -> None:
    calls = changing(monkeypatch, client, close_then_grant, first=False)
    status, answer = await rewritten(client, dialect)
    assert status == 200, answer
    assert "77" in answer["sql"]
    assert len(calls) == 2, "the statement was read again"


@pytest.mark.parametrize("dialect", ["duckdb", "spark", "bigquery"])
@pytest.mark.parametrize("ask", [rewritten, filtered])
@pytest.mark.parametrize("first", [True, False])
async def test_a_right_that_is_revoked_before_its_policy_ends_shows_nothing(
    client: HttpClient, monkeypatch: pytest.MonkeyPatch, ask: Any, dialect: str, first: bool
) -> None:
    await close_then_grant(client)
    changing(monkeypatch, client, revoke_then_open, first=first)
    status, answer = await ask(client, dialect)
    if status == 200:  # the answer of the first state alone
        assert "77" in json.dumps(answer)
    else:
        assert (status, answer["error"]["code"]) == (403, "RAP_ACCESS_DENIED")


@pytest.mark.parametrize("ask", [rewritten, filtered])
async def test_a_role_that_is_lost_meanwhile_shows_no_rows(
    client: HttpClient, monkeypatch: pytest.MonkeyPatch, ask: Any
) -> None:
    await done(client, "/v1/row-access-policies", TEAM)
    await grants(client, add=[MEMBER, *([SELECT] if ask is filtered else [])])
    if ask is filtered:
        changing(monkeypatch, client, lambda client: grants(client, remove=[MEMBER]), first=False)
    else:
        changing(monkeypatch, client, leave_the_team, first=False)
    status, answer = await ask(client)
    assert status == 200, answer
    assert "false" in json.dumps(answer).lower(), answer


async def test_policies_that_change_each_time_end_in_a_clear_refusal(
    client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await close_then_grant(client)
    ask, ids = WorkerPool.ask, iter("abcdef")

    async def asked(pool: WorkerPool, *arguments: Any) -> RewriteReply:
        reply = await ask(pool, *arguments)
        await done(client, "/v1/row-access-policies", POLICY | {"id": next(ids)})
        return reply

    monkeypatch.setattr(WorkerPool, "ask", asked)
    status, answer = await rewritten(client)
    assert (status, answer["error"]["code"]) == (503, "unavailable")
    assert "change again and again" in answer["error"]["message"]
