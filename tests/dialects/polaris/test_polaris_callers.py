"""Callers that may not speak for others get denials, realms need a name, and records are decided again as they were."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from support.clients.http_client import HttpClient, client_of
from support.generators.recorded_runs import repeat
from support.oracles.audit_files import audit_records
from support.service.serving import settings_of

AUTHZ = "/v1/data/polaris/authz"
WORLD = {
    "objects": ["project:p1", {"object": "warehouse:wh", "parent": "project:p1"}],
    "grants": [
        {"principal": "user:oidc~ann", "privilege": "ownership", "object": "warehouse:wh"},
        {"principal": "role:analyst", "privilege": "describe", "object": "warehouse:wh"},
    ],
}
MASK = {"id": "m", "table": "wh.s.masked", "column": "c", "grantees": ["user:ann"], "kind": "partial"}


def config(folder: Path, may_assert: list[str], **polaris: Any) -> dict[str, Any]:
    (folder / "world.yaml").write_text(json.dumps(WORLD))
    (folder / "rows.yaml").write_text(json.dumps({"masks": [MASK]}))
    return {
        "warehouses": {"wh": {}},
        "policies": {"rules": [], "row_access": ["rows.yaml"]},
        "store": {"url": "sqlite:///pdp.db", "seed": "world.yaml"},
        "polaris": {"catalogs": {"c": "wh"}, "roles": {"analyst": "analyst"}, "admins": ["ann"]} | polaris,
        "identity": {"callers": {"local": {"loopback": True, "may_assert": may_assert}}},
    }


async def ask(client: HttpClient, user: str, action: str, table: str, roles: Any = (), **context: Any) -> bool:
    parents = [{"type": "CATALOG", "name": "c"}, {"type": "NAMESPACE", "name": "s"}]
    resource = {"targets": [{"type": "TABLE_LIKE", "name": table, "parents": parents}]}
    actor = {"principal": user, "roles": list(roles)}
    body = {"input": {"actor": actor, "action": action, "resource": resource, "context": context}}
    status, answer = await client.post(AUTHZ, body)
    assert status == 200
    return bool(answer["result"]["allow"])


@pytest.mark.parametrize(
    ("may_assert", "plain", "with_roles"),
    [
        ([], False, False),
        (["roles"], False, False),
        (["principals"], True, False),
        (["principals", "roles"], True, True),
    ],
)
async def test_speaking_for_others_takes_the_right(
    may_assert: list[str], plain: bool, with_roles: bool, tmp_path: Path
) -> None:
    async with client_of(settings_of(config(tmp_path, may_assert), tmp_path)) as client:
        assert await ask(client, "ann", "LOAD_TABLE", "t") == plain
        assert await ask(client, "bob", "LOAD_TABLE", "t", ["analyst"]) == with_roles
        assert not await ask(client, "bob", "LOAD_TABLE", "t")


async def test_users_have_the_prefix_of_their_provider(tmp_path: Path) -> None:
    settings = settings_of(config(tmp_path, ["principals"], user_prefix="other~"), tmp_path)
    async with client_of(settings) as client:
        assert not await ask(client, "ann", "LOAD_TABLE", "t")
    (tmp_path / "same").mkdir()
    same = settings_of(config(tmp_path / "same", ["principals"], user_prefix="oidc~"), tmp_path / "same")
    async with client_of(same) as client:
        assert await ask(client, "ann", "LOAD_TABLE", "t")


async def test_a_realm_is_one_of_the_configuration(tmp_path: Path) -> None:
    settings = settings_of(config(tmp_path, ["principals"], realms=["a", "b"]), tmp_path)
    async with client_of(settings) as client:
        answers = [await ask(client, "ann", "LOAD_TABLE", "t", realm=realm) for realm in ("a", "b", "c", "A", "")]
        assert answers == [True, True, False, False, False]
        assert not await ask(client, "ann", "LOAD_TABLE", "t")  # several realms, and none named


async def test_no_realm_of_the_configuration_leaves_those_without_a_realm(tmp_path: Path) -> None:
    async with client_of(settings_of(config(tmp_path, ["principals"]), tmp_path)) as client:
        assert await ask(client, "ann", "LOAD_TABLE", "t")
        assert not await ask(client, "ann", "LOAD_TABLE", "t", realm="POLARIS")


async def test_records_are_decided_again_as_they_were(tmp_path: Path) -> None:
    operations = (
        "LOAD_TABLE", "UPDATE_TABLE", "COMMIT_TRANSACTION", "LOAD_TABLE_WITH_READ_DELEGATION",
        "LOAD_TABLE_WITH_WRITE_DELEGATION", "REGISTER_TABLE_OVERWRITE_WITH_WRITE_DELEGATION", "NEW_OPERATION",
    )  # fmt: skip
    async with client_of(settings_of(config(tmp_path, ["principals", "roles"]), tmp_path)) as client:
        for name in operations:
            for user in ("ann", "bob"):
                for table in ("t", "masked"):
                    await ask(client, user, name, table, ["analyst"] if user == "bob" else [])
        policy = {"type": "POLICY", "name": "p", "parents": [{"type": "CATALOG", "name": "c"}, {"type": "NAMESPACE", "name": "s"}]}  # fmt: skip
        for user in ("ann", "bob"):
            actor = {"principal": user, "roles": []}
            body = {"input": {"actor": actor, "action": "DROP_POLICY", "resource": {"targets": [policy]}}}
            _, answer = await client.post(AUTHZ, body)
            assert answer["result"]["allow"] == (user == "ann")
    records = [one for one in audit_records(tmp_path) if one.get("surface") == "polaris"]
    assert {one["operation"] for one in records} == {*operations, "DROP_POLICY"}
    assert any(one["inputs"]["unfiltered"] for one in records if "unfiltered" in one["inputs"])
    found, reading = await asyncio.to_thread(repeat, tmp_path / "audit")
    assert (found.totals, reading.skipped) == ({}, {})
    assert reading.checks >= len(records)


async def test_operations_with_the_same_check_keep_their_names_in_records(tmp_path: Path) -> None:
    names = ("LOAD_TABLE", "TABLE_EXISTS", "GET_APPLICABLE_POLICIES_ON_TABLE")
    async with client_of(settings_of(config(tmp_path, ["principals"]), tmp_path)) as client:
        for _ in range(4):  # a plan is prepared from the second use on, and its records share a text
            for name in names:
                await ask(client, "ann", name, "t")
    records = [one for one in audit_records(tmp_path) if one.get("surface") == "polaris"]
    assert [one["operation"] for one in records] == [*names] * 4
