"""Lint, dry run and explanation of row policies in a store, each beside the same policies in a file."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from support.oracles.secure_views import random_policies
from support.service.command_line import COMPOSITION, policy

from pdp.cli.main import cli
from pdp.engines.row_access.policies import parse_document
from pdp.facts.objects import RowPolicy
from pdp.offline.row_policies.changes import rules_of_documents
from pdp.offline.row_policies.lint import lint_row_files

ORDERS = "lake.sales.orders"
TABLES = {ORDERS: {"columns": {"id": "INTEGER", "region": "VARCHAR", "amount": "INTEGER"}}}
LOOKUPS = {"lake.ref.user_regions": {"columns": {"principal": "VARCHAR", "region": "VARCHAR"}}}
CONFIG = {
    "warehouses": {"lake": {"project": "p"}},
    "policies": {"rules": [], "row_access": ["rows.yaml"]},
    "store": {"url": "sqlite:///pdp.db"},
}
FILED = {
    "tables": TABLES,
    "policies": [
        {
            "id": "filed",
            "table": ORDERS,
            "filter": "amount > 9",
            "grantees": ["user:a@x.example"],
            "dialect": "bigquery",
        }
    ],
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pdp.yaml").write_text(json.dumps(CONFIG))
    (tmp_path / "rows.yaml").write_text(json.dumps(FILED))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments], obj=COMPOSITION)


def create(id: str, *arguments: str, table: str = ORDERS) -> None:
    done = policy("create", id, table, "--dialect", "bigquery", *arguments)
    assert done.exit_code == 0, done.output


def found(*arguments: str) -> list[tuple[str, str, str]]:
    done = run("lint", "--stored", "--format", "json", *arguments)
    body = done.stdout.splitlines()[0]
    return [(one["code"], one["file"], one["rule"]) for one in json.loads(body) if one["code"].startswith("row-")]


def test_lint_names_the_table_and_the_policy_of_the_store(folder: Path) -> None:
    create("never", "--filter", "amount > 3 AND amount < 2", "--grantee", "user:a@x.example")
    create("wide", "--filter", "amount > 3", "--grantee", "allUsers")
    create("other", "--filter", "nosuch = 1", table="lake.sales.unknown")
    create("closed", "--filter", "MOD(amount, 2) = 1 AND REGEXP_CONTAINS(region, r'x')", table="lake.s/x.odd t")
    create("m", "--mask", "region", "--kind", "null", "--grantee", "allUsers")
    create("n", "--mask", "region", "--kind", "hash", "--grantee", "user:a@x.example")
    place = "store:lake/sales/orders"
    wanted = [
        ("row-closed-in-trino", "store:lake/s%2Fx/odd t", "closed"),
        ("row-shadowed", str(folder / "rows.yaml"), "filed"),
        ("row-never-true", place, "never"),
        ("row-shadowed", place, "n"),
    ]
    assert found() == wanted
    assert found(str(folder / "rows.yaml")) == wanted
    text = run("lint", "--stored").output
    assert f"{place}: warning: [row-never-true] rule `never`: " in text
    assert "store:" not in run("lint").output


def test_lint_finds_rules_of_the_store_that_hide_everything(folder: Path) -> None:
    create("good", "--filter", "amount > 3")
    create("m", "--mask", "region", "--kind", "null", "--grantee", "allUsers")
    rules = [
        RowPolicy(("lake", "sales", "orders"), "a", ("nobody:x",), "TRUE"),
        RowPolicy(("lake", "sales", "orders"), "b", ("allUsers",), "amount >"),
        RowPolicy(("lake", "sales", "orders"), "c", ("allUsers",), "", column="region", kind="blur"),
        RowPolicy(("lake", "sales", "orders"), "d", ("allUsers",), "", column="nosuch", kind="null"),
        RowPolicy(("lake", "sales", "orders"), "f", ("allUsers",), "", column="AMOUNT", kind="show-last-4"),
        RowPolicy(("lake", "sales", "orders"), "g", ("allUsers",), "", column="region", kind="show-last-4"),
        RowPolicy(("lake", "sales", "gone"), "e", ("allUsers",), "TRUE", tombstone=True),
    ]
    findings = lint_row_files([folder / "rows.yaml"], rules)
    assert [(one.code, one.severity, one.rule) for one in findings] == [
        ("row-tombstone", "info", "e"),
        ("row-unusable", "error", "a"),
        ("row-unusable", "error", "b"),
        ("row-unusable", "error", "c"),
        ("row-unknown-column", "error", "d"),
        ("row-unusable", "error", "f"),
    ]
    assert "is for texts, and `AMOUNT` is INTEGER: write one of null" in findings[-1].message


def test_lint_of_the_store_agrees_with_lint_of_files(tmp_path: Path) -> None:
    dice = random.Random(4)
    counted = 0
    for _ in range(60):
        policies = [one for one in random_policies(dice) if one["table"] == ORDERS]
        body = {"default": ["lake", "sales"], "tables": TABLES | LOOKUPS}
        full, bare = tmp_path / "full.json", tmp_path / "bare.json"
        full.write_text(json.dumps(body | {"policies": policies}))
        bare.write_text(json.dumps(body))
        rules = rules_of_documents([parse_document(body | {"policies": policies})])[1]
        filed, stored = lint_row_files([full]), lint_row_files([bare], rules)
        seen = {(one.code, one.rule) for one in filed if one.code != "configuration"}
        assert seen == {(one.code, one.rule) for one in stored if one.code != "row-closed-in-trino"}
        counted += len(seen)
    assert counted


def change(folder: Path, body: dict[str, Any], *arguments: str) -> tuple[int, str]:
    file = folder / "new.json"
    file.write_text(json.dumps(body))
    done = run("dry-run", "--stored", "--candidate", str(file), *arguments)
    return done.exit_code, done.output


EU = {"id": "eu", "table": ORDERS, "filter": "region = 'EU'", "grantees": ["user:b@x.example"], "dialect": "bigquery"}


def test_a_dry_run_replaces_the_stored_policies_of_the_named_tables(folder: Path) -> None:
    create("eu", "--filter", "region = 'EU'", "--grantee", "user:b@x.example")
    create("kept", "--filter", "region = 'EU'", "--grantee", "user:b@x.example", table="lake.sales.kept")
    create("m", "--mask", "region", "--kind", "null", "--grantee", "allUsers")
    (folder / "orders.csv").write_text("id,region,amount\n1,EU,5\n2,US,\n3,JP,17\n")
    data = ("--data", f"{ORDERS}={folder / 'orders.csv'}")
    code, text = change(folder, {"policies": [EU | {"filter": "region IN ('EU', 'US')"}]}, *data)
    assert code == 3
    assert "user:b@x.example sees more rows (1 -> 2): region = 'EU' -> region IN ('EU', 'US'); sees 1 column" in text
    assert "user:a@x.example sees 1 column: region" in text, "the policy of the file stands on both sides"
    assert "kept" not in text
    mask = {"id": "m", "table": ORDERS, "column": "region", "kind": "null", "grantees": ["allUsers"]}
    assert change(folder, {"policies": [EU], "masks": [mask]}, *data)[0] == 0
    code, text = change(folder, {"tables": {"lake.sales.kept": {}}})
    assert (code, "user:b@x.example sees more rows: region = 'EU' -> TRUE" in text) == (3, True)
    code, text = change(folder, {"policies": [EU | {"table": "lake.sales.new"}]}, "--format", "json")
    assert (code, {one["table"] for one in json.loads(text.splitlines()[0])["rows"]}) == (3, {"lake.sales.new"})
    assert run("dry-run", "--candidate", "new.json", "--stored", "--baseline", "rows.yaml").exit_code == 2
    assert change(folder, {"policies": [EU | {"filter": "region ="}]})[0] == 2
    assert [one["id"] for one in map(json.loads, policy("list", "--format", "json").stdout.splitlines())] == [
        "kept", "eu", "m",
    ], "a dry run writes nothing"  # fmt: skip


def test_an_explanation_has_the_policies_of_the_store() -> None:
    create("eu", "--filter", "region = 'EU'", "--grantee", "user:b@x.example")
    create("m", "--mask", "region", "--kind", "null", "--grantee", "group:others")
    question = ("--principal", "user:oidc~b@x.example", "--resource", "table:lake/sales/orders")
    text = run("explain", "--rows", *question).output
    assert "rows: " in text
    assert "+ policy eu (" in text
    assert "- policy filed (" in text
    assert "- mask m of region (null): " in text
