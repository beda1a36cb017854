"""Explanations of row access: the policies that count are those granted by hand, and the filter is the real one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support.oracles.equivalence import DATA
from support.rewriting import POLICIES, recorded_service
from support.service.command_line import COMPOSITION

from pdp.cli.main import cli
from pdp.rewrite.process.local import RewriteRequest

MASKS = [
    {"id": "strict", "table": "lake.sales.orders", "column": "status", "grantees": ["allUsers"], "kind": "null"},
    {"id": "weak", "table": "lake.sales.orders", "column": "status", "grantees": ["allUsers"], "kind": "hash"},
    {"id": "spared", "table": "lake.sales.orders", "column": "amount", "grantees": ["allUsers"], "kind": "null",
     "except": ["user:bob@example.com"]},
]  # fmt: skip


@pytest.mark.parametrize("caller", DATA["callers"])
def test_the_policies_that_count_are_those_granted_by_hand(caller: str) -> None:
    who = DATA["callers"][caller]
    service = recorded_service()
    for table, granted in DATA["granted_by_hand"].items():
        request = RewriteRequest(
            f"SELECT 1 FROM {table}", "duckdb", who["principal"], tuple(who["groups"]), who["authenticated"]
        )
        explained = service.explain(request)
        assert explained.sql == service.rewrite(request)
        (found,) = explained.tables
        assert found.table == table
        assert sorted(entry.id for entry in found.rows.policies if entry.counts) == sorted(granted.get(caller, []))
        assert all(entry.why for entry in found.rows.policies)
        if isinstance(found.rows.filter, str):
            as_written = re.sub(r" AS _rap_row\w*|_rap_row\w*\.", "", explained.sql)
            assert f"WHERE {found.rows.filter})" in as_written
        else:
            assert (explained.sql == request.sql) == found.rows.filter


def test_a_view_is_explained_for_the_owner() -> None:
    text = "SELECT * FROM lake.hr.v_pay"
    tables = recorded_service().explain(RewriteRequest(text, "duckdb", "user:bob@example.com")).tables
    assert [(table.table, table.rows.filter) for table in tables] == [
        ("lake.hr.v_pay", True), ("lake.hr.salaries", "email = 'bob@example.com'"),
    ]  # fmt: skip


def run(*arguments: str, text: str = "") -> str:
    done = CliRunner().invoke(cli, arguments, obj=COMPOSITION, input=text)
    assert done.exit_code == 0, done.output
    return done.stdout


def config_in(folder: Path) -> str:
    document = json.loads(POLICIES.read_text())
    (folder / "rows.json").write_text(json.dumps({**document, "masks": MASKS}))
    config = {
        "warehouses": {"lake": {"project": "p", "default_ref": "main"}},
        "policies": {"rules": [], "row_access": ["rows.json"]},
    }
    (folder / "pdp.yaml").write_text(json.dumps({**config, "store": {"url": "file:world.json"}}))
    (folder / "world.json").write_text("{}")
    return str(folder / "pdp.yaml")


def test_explain_names_every_policy_and_mask_with_the_reason(tmp_path: Path) -> None:
    arguments = ("explain", "-c", config_in(tmp_path), "--rows", "--resource", "table:lake/sales/orders")
    bob: dict[str, Any] = json.loads(run(*arguments, "--principal", "user:oidc~bob@example.com", "--format", "json"))
    assert (bob["filter"], bob["by"]) == ("region = 'US'", "row_access:us_only")
    assert [entry["id"] for entry in bob["policies"] if entry["counts"]] == ["us_only"]
    assert len(bob["policies"]) == 5
    masks = {entry["id"]: (entry["counts"], entry["why"]) for entry in bob["masks"]}
    assert masks["strict"][0]
    assert masks["weak"] == (False, "the mask `strict` of the column hides more")
    assert masks["spared"] == (False, "exempt: `user:bob@example.com` names `user:bob@example.com` without groups")
    carol = run(*arguments, "--principal", "user:oidc~carol@example.com", "--group", "eu@example.com")
    assert carol.startswith("rows: region = 'EU' by row_access:eu_only\n")
    assert "+ policy eu_only (region = 'EU'): `group:eu@example.com` names `user:carol@example.com`" in carol
    assert "- policy us_only (region = 'US'): none of `user:bob@example.com` names `user:carol@example.com`" in carol
    nobody = run(*arguments, "--principal", "anonymous")
    assert nobody.startswith("rows: no row by row_access:no_policy\n")
    assert "names a caller without a name" in nobody


def test_rewrite_explains_a_statement(tmp_path: Path) -> None:
    config_in(tmp_path)
    arguments = (
        "rewrite",
        "--policies",
        str(tmp_path / "rows.json"),
        "--dialect",
        "spark",
        "--as",
        "user:bob@example.com",
    )
    text = run(*arguments, "--explain", text="SELECT id FROM orders JOIN items ON TRUE")
    assert "lake.sales.items, read as user:bob@example.com\n  rows: every row by row_access:unrestricted" in text
    assert "+ policy us_only (region = 'US')" in text
    assert "+ mask strict of status (CASE WHEN FALSE THEN `status` END)" in text
    body = json.loads(run(*arguments, "--explain", "--format", "json", text="SELECT id FROM orders"))
    assert body["sql"] == run(*arguments, text="SELECT id FROM orders").strip()
    assert body["tables"][0]["rows"]["filter"] == "region = 'US'"
