"""Grants in reasons and explanations: nobody sees a grant there that `GET /v1/grants` refuses to list."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.authentication import oidc
from support.clients.http_client import HttpClient, client_of
from support.servers.idp import provider, token
from support.service.serving import settings_of

from pdp.decision.inspection import GrantVisibility
from pdp.decision.turns import TurnClock, finish
from pdp.engines.grants.engine import GrantsEngine
from pdp.model.answer import Trace
from pdp.model.question import Resource

ALICE, BOB = "user:oidc~alice", "user:oidc~bob"
MINE = "table:lake/sales/mine"
WORLD = {
    "objects": ["project:hidden-project", {"object": "warehouse:lake", "parent": "project:hidden-project"}],
    "grants": [
        {"principal": ALICE, "privilege": "ownership", "object": MINE},
        {"principal": BOB, "privilege": "select", "object": "namespace:lake/sales"},
        {"principal": BOB, "privilege": "modify", "object": "warehouse:lake"},
        {"principal": BOB, "privilege": "describe", "object": MINE},
        {"principal": "user:oidc~root", "privilege": "project_admin", "object": "project:hidden-project"},
    ],
}
ABOVE = ("namespace:lake/sales", "warehouse:lake", "project:hidden-project", "server")


@asynccontextmanager
async def client_with_users(folder: Path) -> AsyncIterator[HttpClient]:
    """Serve the world to users who assert nothing."""
    (folder / "world.json").write_text(json.dumps(WORLD))
    async with provider() as idp:
        config = {"store": {"url": "file:world.json"}, "identity": {"providers": {"oidc": oidc(idp)}}}
        async with client_of(settings_of(config, folder)) as client:
            yield client


def bearer(subject: str) -> dict[str, str]:
    """Return the header of a user."""
    return {"Authorization": f"Bearer {token(sub=subject)}"}


def names(trace: dict[str, Any]) -> str:
    """Return all that a trace says."""
    return json.dumps(trace)


async def test_the_owner_of_a_table_sees_no_grants_above_it(tmp_path: Path) -> None:
    async with client_with_users(tmp_path) as client:
        for above in ABOVE[:3]:
            listed = await client.send("GET", f"/v1/grants?object={above}", headers=bearer("alice"))
            assert listed.status == 403
        for principal, action in ((BOB, "read_data"), (BOB, "write_data"), ("user:oidc~root", "read_data")):
            check = {"principal": principal, "action": action, "resource": MINE}
            answer = await client.send("POST", "/v1/check", {"checks": [check], "explain": True}, bearer("alice"))
            (decision,) = answer.json()["decisions"]
            assert decision["allowed"] is True
            assert decision["by"] == ["grants"], "the determining grant stands above the table"
            assert "trace" in decision
            said = names({**decision["trace"]})
            assert not [above for above in (*ABOVE[:3], "hidden-project") if above in said], said
            plain = await client.send("POST", "/v1/check", {"checks": [check]}, bearer("alice"))
            assert plain.json()["decisions"][0]["by"] == ["grants"]
            body = {"resource": MINE, "action": action}
            access = await client.send("POST", "/v1/access", body, bearer("alice"))
            assert access.status == 200
            assert not [above for above in ABOVE[:3] if above in access.text], access.text


async def test_the_owner_sees_the_grants_on_the_table_itself(tmp_path: Path) -> None:
    async with client_with_users(tmp_path) as client:
        check = {"principal": BOB, "action": "get_metadata", "resource": MINE}
        answer = await client.send("POST", "/v1/check", {"checks": [check], "explain": True}, bearer("alice"))
        (decision,) = answer.json()["decisions"]
        assert "describe via user:oidc~bob" in names(decision["trace"])
        own = {"action": "read_data", "resource": MINE}
        answer = await client.send("POST", "/v1/check", {"checks": [own], "explain": True}, bearer("alice"))
        assert answer.json()["decisions"][0]["by"] == [f"grants:ownership on {MINE} via {ALICE}"]


async def test_an_administrator_sees_all(tmp_path: Path) -> None:
    async with client_with_users(tmp_path) as client:
        check = {"principal": BOB, "action": "read_data", "resource": MINE}
        answer = await client.send("POST", "/v1/check", {"checks": [check], "explain": True}, bearer("root"))
        (decision,) = answer.json()["decisions"]
        assert decision["by"] == ["grants:select on namespace:lake/sales via user:oidc~bob"]
        assert "modify via user:oidc~bob" in names(decision["trace"])


async def test_no_trace_is_made_that_nobody_sees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    explained: list[Resource] = []
    explain = GrantsEngine.explain

    def noted(engine: GrantsEngine, group: Any, resource: Resource, facts: Any) -> Trace:
        explained.append(resource)
        return explain(engine, group, resource, facts)

    monkeypatch.setattr(GrantsEngine, "explain", noted)
    async with client_with_users(tmp_path) as client:
        checks = [{"action": "read_data", "resource": f"table:lake/sales/{name}"} for name in ("other", "mine", "more")]
        answer = await client.send("POST", "/v1/check", {"checks": checks, "explain": True}, bearer("alice"))
        assert ["trace" in decision for decision in answer.json()["decisions"]] == [False, True, False]
    assert [resource.path for resource in explained] == [("sales", "mine")]


async def test_others_get_turns_between_the_parts_of_explanations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a turn that is over at once, each engine of a check and each object of a trace begins another one."""
    turns: list[None] = []
    monkeypatch.setattr(TurnClock, "is_over", lambda clock: True)
    monkeypatch.setattr(TurnClock, "begin", lambda clock: turns.append(None))
    async with client_with_users(tmp_path) as client:
        counts = []
        for explain in (False, True):
            turns.clear()
            checks = [{"action": "read_data", "resource": MINE}] * 20
            answer = await client.send("POST", "/v1/check", {"checks": checks, "explain": explain}, bearer("alice"))
            assert answer.status == 200
            counts.append(len(turns))
    objects, engines = 1 + len(ABOVE), 2
    assert counts[1] - counts[0] >= 20 * (objects + engines)


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("cel:rule", "cel:rule"),
        ("default_deny", "default_deny"),
        ("grants:role_read", "grants:role_read"),
        (f"grants:select on {MINE} via role:x", f"grants:select on {MINE} via role:x"),
        ("grants:select on warehouse:lake via role:x", "grants"),
        (f"grants:select on warehouse:lake via {ALICE}", f"grants:select on warehouse:lake via {ALICE}"),
        ("grants:select on warehouse:lake via role:x (any of authority a)", "grants (any of authority a)"),
        (f"grants:select on table:lake/a via {ALICE} via {ALICE}", "grants"),
        (f"grants:select on nonsense via {BOB}", "grants"),
        (f"table:lake/t: grants:select on warehouse:lake via {BOB}", "grants"),
    ],
)
def test_a_reason_names_a_grant_only_where_it_may(reason: str, shown: str) -> None:
    visibility = GrantVisibility(ALICE, lambda key: key == ("table", ("lake", "sales", "mine")))
    assert visibility.reason(reason) == shown
    trace = finish(visibility.trace(Trace("q", "permit", reason, (Trace("p", "permit", reason),))))
    assert (trace.why, trace.parts[0].why) == (shown, shown)
