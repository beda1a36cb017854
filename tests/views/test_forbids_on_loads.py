"""Forbids and storage access of loads: a check that only a forbid concerns gives nobody storage."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from support.clients.http_client import HttpClient, client_of
from support.service.serving import settings_of

ANN = "user:oidc~ann"
PRIVILEGES = {"describe": "none", "select": "read", "modify": "read_write", "ownership": "read_write"}
"""Privilege on a table -> storage access of a load."""


@asynccontextmanager
async def serving(rules: dict[str, str], folder: Path, grants: Sequence[Any], **more: Any) -> AsyncIterator[HttpClient]:
    (folder / "forbid.yaml").write_text(json.dumps({"rules": rules}))
    objects = ["project:p", {"object": "warehouse:lake", "parent": "project:p"}]
    objects += [{"object": f"role:{name}", "parent": "project:p"} for name in PRIVILEGES]
    (folder / "seed.json").write_text(json.dumps({"objects": objects, "grants": list(grants)}))
    config = {
        "warehouses": {"lake": {"default_ref": "main"}},
        "authorities": {"default": {"engines": ["grants"]}},
        "policies": {"rules": [], "forbid": ["forbid.yaml"]},
        "store": {"url": f"sqlite:///{folder}/pdp.db", "seed": "seed.json"},
    }
    async with client_of(settings_of(config | more, folder)) as http:
        yield http


async def load(http: HttpClient, target: str, **more: Any) -> dict[str, Any]:
    body = {"principal": ANN, "target": target, "action": "loadTable"} | more
    status, answer = await http.post("/v1/load", body)
    assert status == 200, answer
    found: dict[str, Any] = answer
    return found


def as_role(role: str) -> list[dict[str, str]]:
    return [
        {"principal": ANN, "privilege": "assignee", "object": f"role:{role}"},
        {"principal": f"role:{role}", "privilege": role, "object": "warehouse:lake"},
    ]


async def test_an_acting_role_gets_the_storage_that_the_role_may_access(tmp_path: Path) -> None:
    """Each check is asked once more about the person, and permits unless a forbid binds."""
    grants = [grant for role in PRIVILEGES for grant in as_role(role)]
    reads, writes = (
        f"op == '{op}' && path == 's.t' && 'no' in groups" for op in ("READ_ENTITY_VALUE", "UPDATE_ENTITY")
    )
    async with serving({"r": f"action == 'read_data' && {reads}", "w": writes}, tmp_path, grants) as http:
        for role, storage in PRIVILEGES.items():
            for action in ("loadTable", "loadCredentials"):
                found = await load(http, "table:lake/s/t", action=action, actingRole=f"role:{role}")
                assert (found["storageAccess"], found["allowed"]) == (
                    storage,
                    action == "loadTable" or storage != "none",
                )
            shut = {"id": ANN, "groups": ["no"]}
            found = await load(http, "table:lake/s/t", principal=shut, actingRole=f"role:{role}")
            assert (found["storageAccess"], found["allowed"]) == ("none", True), role


OWNER = {"principal": ANN, "privilege": "ownership", "object": "warehouse:lake"}
TRINO: dict[str, Any] = {"trino": {"catalogs": {"lakehouse": {"warehouse": "lake"}}}}
HIVE: dict[str, Any] = {"warehouses": {"lake": {"default_ref": "main", "kind": "hive"}}}
NESSIE: dict[str, Any] = {"warehouses": {"lake": {"default_ref": "main", "kind": "nessie"}}}
RULES = {
    "hr": "path == 'hr' || path.startsWith('hr.')",
    "caps": "path.startsWith('Fin.Pay')",
    "end": "path.endsWith('.secret')",
    "word": "path.matches('^a[.]Keep$')",
}
SPELLED = ("HR/pay", "Hr/x/t", "hR/v", "fin/pay1", "FIN/PAY", "x/SECRET", "x/y/Secret", "A/keep", "a/KEEP")
"""Names that a forbid spells in another way."""
OTHERS = ("h/r", "hrx/t", "fin/play", "FINE/pay", "x/secrets", "b/keep", "A/keeper")
ACTIONS = ("read_data", "write_data", "commit", "drop", "get_metadata", "READ_ENTITY_VALUE", "DELETE_ENTITY")


def _answers(decisions: list[Any], names: Sequence[str]) -> dict[str, set[bool]]:
    found: dict[str, set[bool]] = {}
    for at, one in enumerate(decisions):
        found.setdefault(names[at % len(names)], set()).add(one["allowed"])
    return found


async def _checks(http: HttpClient, names: Sequence[str]) -> dict[str, set[bool]]:
    """Ask every action about names: one by one, as a column, as what is made, and at both ends of a rename."""
    asked: list[dict[str, Any]] = [
        {"action": action, "resource": f"{type}:lake/{name}"}
        for type in ("table", "table_or_view")
        for action in ACTIONS
        for name in names
    ]
    tables = [f"table:lake/{name}" for name in names]
    asked += [{"action": "read_data", "resources": tables}, {"action": "drop", "resources": tables}]
    for name in names:
        place, _, last = name.rpartition("/")
        asked.append(
            {"action": "create_table", "resource": f"namespace:lake/{place}", "context": {"arguments": {"name": last}}}
        )
    for ends in (lambda name: (name, "b/new"), lambda name: ("b/old", name)):
        for source, target in map(ends, names):
            renamed = {"destination": f"table:lake/{target}"}
            asked.append({"action": "rename", "resource": f"table:lake/{source}", "context": {"arguments": renamed}})
    found: list[Any] = []
    for each in ([one] for one in asked), [asked]:
        for checks in each:
            status, answer = await http.post("/v1/check", {"checks": [{"principal": ANN, **one} for one in checks]})
            assert status == 200, answer
            found += answer["decisions"]
    return _answers(found, names)


async def test_forbids_bind_checks_in_any_case_where_names_fold(tmp_path: Path) -> None:
    for number, (more, folds) in enumerate(((TRINO, True), (HIVE, True), ({}, False), (NESSIE | TRINO, False))):
        (folder := tmp_path / str(number)).mkdir()
        async with serving(RULES, folder, [OWNER], **more) as http:
            for _ in range(2):  # the second time by the memory of plans
                assert await _checks(http, SPELLED) == {key: {not folds} for key in SPELLED}
                assert await _checks(http, OTHERS) == {key: {True} for key in OTHERS}


async def test_forbids_bind_loads_and_changes_of_views_in_any_case(tmp_path: Path) -> None:
    """Whoever loads is an engine, whatever the catalog behind."""
    for number, more in enumerate((TRINO, {}, NESSIE)):
        (folder := tmp_path / str(number)).mkdir()
        async with serving(RULES, folder, [OWNER], **more) as http:
            for name in (*SPELLED, *OTHERS):
                found = [
                    (await load(http, f"table:lake/{name}", action=each))["allowed"]
                    for each in ("loadTable", "loadCredentials")
                ]
                found.append((await load(http, f"view:lake/{name}", action="loadView"))["allowed"])
                for operation in ("create", "commit", "replace"):
                    body = {"principal": ANN, "view": f"view:lake/{name}", "operation": operation}
                    found.append((await http.post("/v1/commit-view", body))[1]["allowed"])
                assert set(found) == {name in OTHERS}, (name, found)
            # a forbid of reads alone leaves the load, and no storage
    async with serving({"r": "action == 'read_data' && path.startsWith('hr.')"}, tmp_path, [OWNER]) as http:
        for target, storage in (("table:lake/HR/t", "none"), ("table:lake/x/t", "read_write")):
            loaded = await load(http, target)
            assert (loaded["allowed"], loaded["storageAccess"]) == (True, storage)


async def test_a_forbid_binds_a_view_of_a_chain_in_any_case(tmp_path: Path) -> None:
    engines = {
        "trino": {
            "type": "trino",
            "owner_property": "trino.run-as-owner",
            "identities": {"oidc": {"audiences": ["trino"]}},
        }
    }
    more = {"trusted_engines": engines}
    caller = {"idp": "oidc", "subject": "svc", "audiences": ["trino"]}
    async with serving(RULES, tmp_path, [OWNER], **more) as http:
        for name, allowed in (("HR", False), ("x", True)):
            views = [{"resource": f"view:lake/{name}/v", "properties": {}}]
            chain = {"referencedBy": [[name, "v"]], "views": views, "caller": caller}
            assert (await load(http, "table:lake/x/t", **chain))["allowed"] is allowed


async def test_a_name_with_too_many_spellings_is_denied(tmp_path: Path) -> None:
    async with serving({"lock": "path.contains('pay')"}, tmp_path, [OWNER], **TRINO) as http:
        many = "table:lake/s/" + "_".join(["PAY"] * 18)
        for _ in range(2):
            checks = [{"principal": ANN, "action": "read_data", "resources": ["table:lake/s/t", many]}]
            _, answer = await http.post("/v1/check", {"checks": checks})
            assert [(one["allowed"], one["by"][0]) for one in answer["decisions"]][1] == (False, "ambiguous_name")
            assert answer["decisions"][0]["allowed"]
