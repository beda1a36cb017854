"""Changes that Trino asks about tables, views and materialized views alike, by the kind of their object."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.clients.http_client import HttpClient, client_of
from support.service.serving import settings_of


def config_of(folder: Path, forbid: str = "", **config: Any) -> dict[str, Any]:
    (folder / "world.json").write_text(json.dumps(KINDS))
    policies: dict[str, Any] = {"rules": []}
    if forbid:
        (folder / "forbid.yaml").write_text(yaml.safe_dump({"rules": {"f": forbid}}))
        policies["forbid"] = ["forbid.yaml"]
    base = {
        "store": {"url": "file:world.json"}, "authorities": {"default": {"engines": ["grants"]}},
        "warehouses": {"lake": {"default_ref": "main"}, "pond": {"default_ref": "main"}},
        "trino": {"catalogs": {"k": {"warehouse": "lake"}}}, "policies": policies,
    }  # fmt: skip
    return base | config


async def ask(http: HttpClient, operation: str, name: str, user: str, procedure: str = "optimize") -> bool:
    named: dict[str, Any] = {"table": {"catalogName": "k", "schemaName": "mart", "tableName": name}}
    named |= {"function": {"functionName": procedure}} if operation == "ExecuteTableProcedure" else {}
    action = {"operation": operation, "resource": named}
    status, answer = await http.trino(
        "allow", {"input": {"context": {"identity": {"user": user, "groups": []}}, "action": action}}
    )
    assert status == 200, answer
    allowed: bool = answer["result"]
    return allowed


async def native(http: HttpClient, operation: str, resource: str, user: str, **arguments: str) -> bool:
    check = {"principal": f"user:oidc~{user}", "action": f"trino:{operation}", "resource": resource}
    allowed: bool = (await http.check(check | {"context": {"arguments": arguments}}))[1]["decisions"][0]["allowed"]
    return allowed


KINDS = {
    "objects": [
        "project:p", {"object": "warehouse:lake", "parent": "project:p"}, {"object": "warehouse:pond", "parent": "project:p"},
        "table:lake/mart/t", "view:lake/mart/v", "table:lake/mart/both", "view:lake/mart/both",
    ],
    "grants": [
        {"principal": "user:oidc~sel", "privilege": "select", "object": "warehouse:lake"},
        {"principal": "user:oidc~nmod", "privilege": "modify", "object": "namespace:lake/mart"},
        *({"principal": f"user:oidc~{right[:3]}_{kind}", "privilege": right, "object": f"{kind}:lake/mart/{name}"}
          for right in ("modify", "ownership")
          for kind, name in (("table", "t"), ("table", "both"), ("view", "v"), ("view", "both"), ("view", "granted"))),
    ],
}  # fmt: skip
BY_KIND = ["SetColumnComment", "ExecuteTableProcedure", "SetMaterializedViewComment", "SetViewComment", "AddColumn"]
RULES = {
    "refs": "op in ['VIEW_REFERENCE', 'COMMIT_CHANGE_AGAINST_REFERENCE'] && role.endsWith('_rule')",
    "tables": "role == 'tables_rule' && contentType == 'ICEBERG_TABLE'",
    "views": "role == 'views_rule' && contentType == 'ICEBERG_VIEW'",
}
FORBIDS = {
    "": {"table": False, "view": False},
    "op == 'UPDATE_ENTITY' && contentType == 'ICEBERG_VIEW'": {"table": False, "view": True},
    "op == 'UPDATE_ENTITY' && contentType == 'ICEBERG_TABLE'": {"table": True, "view": False},
}


def may_change(operation: str, name: str, user: str, forbidden: dict[str, bool]) -> bool:
    """Tell whether a user of KINDS may make a change, from the plainest reading of the page."""
    known = {"t": {"table"}, "v": {"view"}, "both": {"table", "view"}, "granted": {"view"}, "new": set()}[name]
    asked = {"table"} if operation in (*BY_KIND[:2], "AddColumn") else {"view"}
    asked |= {"view"} if "view" in known and operation in BY_KIND[:2] else set()
    asked |= {"view"} if "table" not in known and operation == "SetColumnComment" else set()
    at = {"table": {"t", "both"}, "view": {"v", "both", "granted"}}
    may = {
        kind: user in ("nmod", f"{kind}s_rule") or (user in (f"mod_{kind}", f"own_{kind}") and name in at[kind])
        for kind in asked
    }
    return any(may.values()) and not any(forbidden[kind] for kind in asked)


@pytest.mark.parametrize("forbid", FORBIDS)
async def test_a_change_is_asked_about_each_kind_that_the_statement_could_mean(forbid: str, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"rules": RULES}))
    config = config_of(tmp_path, forbid, authorities={"default": {"engines": ["cel", "grants"]}})
    config["policies"]["rules"] = ["rules.yaml"]
    users = ["sel", "nmod", "mod_table", "own_table", "mod_view", "own_view", "tables_rule", "views_rule"]
    grid = list(itertools.product(BY_KIND, ["t", "v", "both", "granted", "new"], users))
    async with client_of(settings_of(config, tmp_path)) as http:
        found = {one: await ask(http, *one) for one in grid}
    assert [one for one in grid if found[one] != may_change(*one, FORBIDS[forbid])] == []


@pytest.mark.parametrize("kind", ["view", "table"])
async def test_a_caller_that_names_the_kind_is_asked_about_that_alone(kind: str, tmp_path: Path) -> None:
    async with client_of(settings_of(config_of(tmp_path), tmp_path)) as http:
        for user in ("mod_view", "mod_table"):
            assert await native(http, "SetColumnComment", f"{kind}:lake/mart/both", user) is (user == f"mod_{kind}")
        assert not await native(http, "SetColumnComment", "namespace:lake/mart", "nmod")


@pytest.mark.parametrize("procedure", ["ADD_FILES", "add_files_from_table"])
async def test_a_right_on_a_view_opens_no_procedure_that_a_view_does_not_have(procedure: str, tmp_path: Path) -> None:
    listed = {"catalogs": {"k": {"warehouse": "lake"}}, "procedures": {"allow": [procedure.lower()]}}
    async with client_of(settings_of(config_of(tmp_path, trino=listed), tmp_path)) as http:
        may = [await ask(http, BY_KIND[1], "both", user, procedure) for user in ("mod_view", "mod_table")]
        assert may == [False, True]
        assert not await native(http, BY_KIND[1], "view:lake/mart/both", "mod_view", procedure=procedure)
