"""Cedar in report mode beside grants: the audit has exactly the planted differences, and the cache changes nothing."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

from support.clients.http_client import client_of
from support.oracles.audit_files import all_records
from support.service.serving import settings_of

USERS, TABLES = ("alice", "bob", "carol"), ("a", "b", "c")
GRANTED = {("alice", "a"), ("alice", "b"), ("alice", "c"), ("bob", "a")}
BY_CEDAR = {("alice", "a"): "cedar:team", ("alice", "b"): "cedar:team", ("bob", "b"): "cedar:bob"}
POLICIES = """
@id("team") permit(principal in Lakekeeper::Role::"team", action, resource in Lakekeeper::Namespace::"lake/s");
@id("bob") permit(principal == Lakekeeper::User::"oidc~bob", action, resource == Lakekeeper::Table::"lake/s/b");
@id("no-c") forbid(principal, action, resource) when { resource has name && resource.name == "c" };
"""
TEAM = {
    "uid": {"type": "Lakekeeper::User", "id": "oidc~alice"},
    "parents": [{"type": "Lakekeeper::Role", "id": "team"}],
}


async def test_the_audit_has_exactly_the_planted_differences(tmp_path: Path) -> None:
    reads = list(itertools.product(USERS, TABLES))
    objects = ["project:p1", {"object": "warehouse:lake", "parent": "project:p1"}]
    grants = [
        {"principal": f"user:oidc~{user}", "privilege": "select", "object": f"table:lake/s/{table}"}
        for user, table in sorted(GRANTED)
    ]
    (tmp_path / "world.json").write_text(json.dumps({"objects": objects, "grants": grants}))
    (tmp_path / "main.cedar").write_text(POLICIES)
    (tmp_path / "team.json").write_text(json.dumps([TEAM]))
    config = {
        "authorities": {"default": {"engines": ["grants"]}, "next": {"engines": ["cedar"], "mode": "report"}},
        "policies": {"rules": [], "cedar": {"policies": ["main.cedar"], "entities": ["team.json"]}},
        "store": {"url": "file:world.json"},
    }
    checks = [
        {"principal": f"user:oidc~{user}", "action": "read_data", "resource": f"table:lake/s/{table}"}
        for user, table in reads
    ]
    async with client_of(settings_of(config, tmp_path)) as client:
        for _ in range(2):  # the second time by cached verdicts
            status, body = await client.check(*checks)
            assert status == 200
            assert [decision["allowed"] for decision in body["decisions"]] == [read in GRANTED for read in reads]
    events = [record for record in all_records(tmp_path) if record["event"] == "report"]
    expected = {read: BY_CEDAR.get(read) for read in reads if (read in GRANTED) != (read in BY_CEDAR)}
    assert len(events) == 2
    for event in events:
        found = {(each["as"].split("~")[1], each["resource"][-1]): each for each in event["differences"]}
        assert {read: each["allowed"] for read, each in found.items()} == {read: read in GRANTED for read in expected}
        forbidden = {read for read in expected if read[1] == "c"}
        wanted = {read: "cedar:no-c" if read in forbidden else by or "default_deny" for read, by in expected.items()}
        assert {read: each["reportBy"][0] for read, each in found.items()} == wanted


async def test_cached_verdicts_of_cedar_are_those_of_the_engine(tmp_path: Path) -> None:
    (tmp_path / "main.cedar").write_text(POLICIES)
    (tmp_path / "team.json").write_text(json.dumps([TEAM]))
    config = {
        "authorities": {"default": {"engines": ["cedar"]}},
        "policies": {"rules": [], "cedar": {"policies": ["main.cedar"], "entities": ["team.json"]}},
        "cache": {"ttl_seconds": 60},
    }
    checks = [
        {"principal": f"user:oidc~{user}", "action": "read_data", "resource": f"table:lake/s/{table}"}
        for user, table in itertools.product(USERS, TABLES)
    ]
    async with client_of(settings_of(config, tmp_path)) as client:
        answers = [(await client.check(*checks))[1]["decisions"] for _ in range(2)]
    plain = [[{**decision, "cached": False} for decision in each] for each in answers]
    assert plain[0] == plain[1]
    assert [{decision["cached"] for decision in each} for each in answers] == [{False}, {True}]
    assert sum(decision["allowed"] for decision in plain[0]) == 3
