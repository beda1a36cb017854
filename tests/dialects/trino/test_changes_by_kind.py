"""Changes that Trino asks about tables, views and materialized views alike, by the kind of their object."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from dialects.trino.test_materialized_views import Trino, config_of
from support.clients.http_client import client_of
from support.service.serving import settings_of

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
    config = config_of(
        tmp_path, {}, {"f": forbid} if forbid else None, authorities={"default": {"engines": ["cel", "grants"]}}
    )
    config["policies"]["rules"] = ["rules.yaml"]
    (tmp_path / "world.json").write_text(json.dumps(KINDS))
    users = ["sel", "nmod", "mod_table", "own_table", "mod_view", "own_view", "tables_rule", "views_rule"]
    names = ["t", "v", "both", "granted", "new"]
    async with client_of(settings_of(config, tmp_path)) as http:
        client, wrong = Trino(http), []
        for operation, name, user in itertools.product(BY_KIND, names, users):
            named: dict[str, Any] = {"table": {"catalogName": "k", "schemaName": "mart", "tableName": name}}
            named |= {"function": {"functionName": "optimize"}} if operation == BY_KIND[1] else {}
            answer = await client.ask("allow", {"operation": operation, "resource": named}, user)
            if answer != may_change(operation, name, user, FORBIDS[forbid]):
                wrong.append((operation, name, user, answer))
        assert wrong == []


@pytest.mark.parametrize(("kind", "user", "allowed"), [("view", "mod_view", True), ("view", "mod_table", False),
                                                       ("table", "mod_table", True), ("table", "mod_view", False)])  # fmt: skip
async def test_a_caller_that_names_the_kind_is_asked_about_that_alone(
    kind: str, user: str, allowed: bool, tmp_path: Path
) -> None:
    config = config_of(tmp_path, {})
    (tmp_path / "world.json").write_text(json.dumps(KINDS))
    async with client_of(settings_of(config, tmp_path)) as http:
        decision = await Trino(http).native("SetColumnComment", f"{kind}:lake/mart/both", user)
        assert decision["allowed"] is allowed
        assert not (await Trino(http).native("SetColumnComment", "namespace:lake/mart", "nmod"))["allowed"]


@pytest.mark.parametrize("procedure", ["ADD_FILES", "add_files_from_table"])
async def test_a_right_on_a_view_opens_no_procedure_that_a_view_does_not_have(procedure: str, tmp_path: Path) -> None:
    listed = {"catalogs": {"k": {"warehouse": "lake"}}, "procedures": {"allow": [procedure.lower()]}}
    config = config_of(tmp_path, {}, trino=listed)
    (tmp_path / "world.json").write_text(json.dumps(KINDS))
    named = {
        "table": {"catalogName": "k", "schemaName": "mart", "tableName": "both"},
        "function": {"functionName": procedure},
    }
    async with client_of(settings_of(config, tmp_path)) as http:
        may = [
            await Trino(http).ask("allow", {"operation": BY_KIND[1], "resource": named}, user)
            for user in ("mod_view", "mod_table")
        ]
        assert may == [False, True]
        native = {"principal": "user:oidc~mod_view", "action": f"trino:{BY_KIND[1]}", "resource": "view:lake/mart/both"}
        context = {"context": {"arguments": {"procedure": procedure}}}
        assert (await http.check(native | context))[1]["decisions"][0]["allowed"] is False
