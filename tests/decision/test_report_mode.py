"""Authorities in report mode: no answer changes, and the audit has exactly the differences."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from spec import scopes as spec
from support.clients.http_client import HttpClient, client_of
from support.oracles.audit_files import all_records
from support.service.serving import settings_of

from pdp.app.service import Service
from pdp.errors import ConfigError

USERS, TABLES = ("alice", "bob", "carol"), ("a", "b", "c")
PERMISSIONS = [
    {"name": "alice", "permissions": {"Query": [{"catalog": "lake", "schema": "s", "tables": ["a", "b"]}]}},
    {"name": "bob", "permissions": {"Mutation": [{"catalog": "lake", "schema": "s", "tables": ["*"]}]}},
]
GRANTS = [
    {"principal": "user:oidc~alice", "privilege": "select", "object": "table:lake/s/a"},
    {"principal": "user:oidc~alice", "privilege": "select", "object": "table:lake/s/c"},
    {"principal": "user:oidc~bob", "privilege": "select", "object": "namespace:lake/s"},
]
GRANTED = {("alice", "a"), ("alice", "c"), *(("bob", table) for table in TABLES)}
"""Users and tables with the right to read, by grants."""
READS = list(itertools.product(USERS, TABLES))


def config(folder: Path, **authority: Any) -> dict[str, Any]:
    (folder / "permissions.json").write_text(json.dumps(PERMISSIONS))
    world = {"objects": ["project:p1", {"object": "warehouse:lake", "parent": "project:p1"}], "grants": GRANTS}
    (folder / "world.json").write_text(json.dumps(world))
    return {
        "authorities": {
            "default": {"engines": ["grants"]},
            "next": {"engines": ["scopes"], "mode": "report", **authority},
        },
        "policies": {"rules": [], "scopes": {"permissions": ["permissions.json"]}},
        "store": {"url": "file:world.json"},
    }


def check(user: str, table: str, warehouse: str = "lake", action: str = "read_data") -> dict[str, Any]:
    return {"principal": f"user:oidc~{user}", "action": action, "resource": f"table:{warehouse}/s/{table}"}


def reported(user: str, table: str) -> bool:
    place = {"catalog": "lake", "schema": "s", "tableName": table}
    return spec.allowed(PERMISSIONS, {"userName": user}, {"readPermission": place})


PLANTED = {
    (user, table): (user, table) in GRANTED
    for user, table in READS
    if ((user, table) in GRANTED) != reported(user, table)
}
"""Reads on which grants and scopes differ, with the answer of grants."""


def differences(folder: Path) -> list[dict[str, Any]]:
    return [each for record in all_records(folder) if record["event"] == "report" for each in record["differences"]]


def reads_of(found: list[dict[str, Any]]) -> dict[tuple[str, str], bool]:
    return {(each["as"].split("~")[1], each["resource"][-1]): each["allowed"] for each in found}


async def answers(client: HttpClient, checks: list[dict[str, Any]]) -> list[bool]:
    status, body = await client.check(*checks)
    assert status == 200
    return [decision["allowed"] for decision in body["decisions"]]


@pytest.mark.parametrize("form", ["singles", "batch"])
async def test_the_audit_has_exactly_the_planted_differences(tmp_path: Path, form: str) -> None:
    assert len(PLANTED) not in (0, len(READS))
    checks = [check(*read) for read in READS]
    async with client_of(settings_of(config(tmp_path), tmp_path)) as client:
        if form == "batch":
            found = await answers(client, checks)
        else:
            found = [(await answers(client, [each]))[0] for each in checks]
        metrics = client.service.metrics().decode()
    assert found == [read in GRANTED for read in READS]
    events = [record for record in all_records(tmp_path) if record["event"] == "report"]
    ids = {record["id"] for record in all_records(tmp_path) if record["event"] == "decision"}
    assert {event["decision"] for event in events} <= ids
    assert {(event["authority"], event["surface"]) for event in events} == {("next", "http")}
    assert reads_of(differences(tmp_path)) == PLANTED
    assert len(differences(tmp_path)) == len(PLANTED)
    assert f'pdp_report_checks_total{{authority="next",outcome="differs"}} {float(len(PLANTED))}' in metrics
    assert f'outcome="same"}} {float(len(READS) - len(PLANTED))}' in metrics


async def test_reasons_of_both_sides_are_recorded(tmp_path: Path) -> None:
    async with client_of(settings_of(config(tmp_path), tmp_path)) as client:
        assert await answers(client, [check("alice", "b"), check("alice", "c")]) == [False, True]
    reasons = [(each["by"], each["reportBy"]) for each in differences(tmp_path)]
    assert reasons == [
        (["default_deny"], ["scopes:alice"]),
        (["grants:select on table:lake/s/c via user:oidc~alice"], ["default_deny"]),
    ]


async def test_an_authority_reports_on_its_warehouses_alone(tmp_path: Path) -> None:
    """Two authorities may name one warehouse if one of them reports."""
    given = config(tmp_path, warehouses=["other"])
    given["authorities"]["own"] = {"engines": ["grants"], "warehouses": ["other"]}
    async with client_of(settings_of(given, tmp_path)) as client:
        assert await answers(client, [check("carol", "a"), check("carol", "a", "other")]) == [False, False]
    assert [each["resource"] for each in differences(tmp_path)] == ["table:other/s/a"]


async def test_the_default_permit_of_a_reporting_authority_permits_nothing(tmp_path: Path) -> None:
    given = config(tmp_path)
    given["authorities"]["next"]["engines"] = ["scopes", "grants"]
    async with client_of(settings_of(given, tmp_path)) as client:
        explained = await client.check(check("carol", "a"), explain=True)
        assert [decision["allowed"] for decision in explained[1]["decisions"]] == [False]
        status, body = await client.post(
            "/v1/scopes",
            {
                "currentUser": {"userName": "carol"},
                "scopes": {"readPermission": {"catalog": "lake", "schema": "s", "tableName": "a"}},
            },
        )
        assert (status, body) == (200, {"allowed": False})
        status, body = await client.trino(
            "allow",
            {
                "input": {
                    "context": {"identity": {"user": "carol", "groups": []}},
                    "action": {"operation": "ExecuteQuery"},
                }
            },
        )
        assert status == 200


def test_the_default_authority_must_answer(tmp_path: Path) -> None:
    given = config(tmp_path)
    given["authorities"] = {"default": {"engines": ["grants"], "mode": "report"}}
    with pytest.raises(ConfigError, match=r"`authorities\.default\.mode`: the default authority answers"):
        Service(settings_of(given, tmp_path))
