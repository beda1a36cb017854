"""Findings on row policies: proofs against evaluation on real rows, and the place of each finding."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import duckdb
import pytest
import sqlglot
from click.testing import CliRunner
from support.service.command_line import COMPOSITION

from pdp.cli.main import cli
from pdp.offline.row_policies.lint import ROW_CODES, lint_row_files
from pdp.offline.row_policies.proofs import implies, is_always_true, is_never_true, truths

VALUES = (None, 0, 1, 2, 3)
TEXTS = (None, "", "EU", "EUR", "US")


def conditions(dice: random.Random, depth: int = 3) -> str:
    """Return a random condition on a number `n`, another number `m`, a text `t` and a boolean `b`."""
    if depth and dice.random() < 0.7:
        kind = dice.choice(["AND", "OR", "NOT"])
        inner = [conditions(dice, depth - 1) for _ in range(2)]
        return f"(NOT ({inner[0]}))" if kind == "NOT" else f"({inner[0]} {kind} {inner[1]})"
    number, sign = dice.choice([0, 1, 2, 2.5]), dice.choice(["=", "<>", "<", "<=", ">", ">="])
    return dice.choice([
        f"n {sign} {number}", f"{number} {sign} n", "n IS NULL", "NOT n IS NULL", f"t {sign} 'EU'", "t IN ('EU', 'US')", "b",
        f"n BETWEEN {number} AND 2", f"n {sign} m", "t LIKE 'E%'", "length(t) > 1", "n IN (1, 2)", "TRUE", "FALSE", "NULL",
        f"n {sign} n", "n = NULL", "-n < -1", "n < -1", "t IS NULL", f"'EU' {sign} t", "n = 1 + 1",
    ])  # fmt: skip


def table() -> duckdb.DuckDBPyConnection:
    database = duckdb.connect()
    database.execute("CREATE TABLE rows (n DOUBLE, m DOUBLE, t VARCHAR, b BOOLEAN)")
    rows = itertools.product((*VALUES, -5, 1.5, 2.5), VALUES, (*TEXTS, "A", "Z"), (None, True, False))
    database.executemany("INSERT INTO rows VALUES (?, ?, ?, ?)", [list(row) for row in rows])
    return database


def test_a_proof_holds_on_real_rows() -> None:
    dice, database = random.Random(5), table()
    total = database.execute("SELECT count(*) FROM rows").fetchall()[0][0]
    proven = 0
    for _ in range(120):
        first, second = conditions(dice), conditions(dice, 2)
        trees = [sqlglot.parse_one(text, read="duckdb") for text in (first, second)]
        counts = database.execute(
            f"SELECT count(*) FILTER ({first}), count(*) FILTER (({first}) AND (({second}) IS NOT TRUE)) FROM rows"
        ).fetchall()[0]
        if is_never_true(trees[0]):
            assert counts[0] == 0, first
            proven += 1
        if is_always_true(trees[0]):
            assert counts[0] == total, first
            proven += 1
        if implies(*trees):
            assert counts[1] == 0, (first, second)
            proven += 1
    assert proven > 15


@pytest.mark.parametrize(
    ("text", "never", "always"),
    [
        ("region = 'EU' AND region = 'US'", True, False),
        ("region = 'EU' OR region <> 'EU'", False, False),
        ("region = 'EU' OR region <> 'EU' OR region IS NULL", False, True),
        ("amount BETWEEN 5 AND 3", True, False),
        ("amount > 3 AND amount < 4", False, False),
        ("f(x) AND NOT f(x)", True, False),
        ("x IN (SELECT y FROM u) OR NOT x IN (SELECT y FROM u)", False, False),
        ("region = SESSION_USER()", False, False),
        ("amount = 1 AND amount = '2'", False, False),
        ("d = DATE '2024-01-01' AND d = DATE '2024-01-02'", False, False),
        ("a = 1 AND a = b AND b = 2", False, False),
        ("NULL", True, False),
    ],
)
def test_what_is_proven(text: str, never: bool, always: bool) -> None:
    tree = sqlglot.parse_one(text, read="bigquery")
    assert (is_never_true(tree), is_always_true(tree)) == (never, always)


def test_too_many_inputs_prove_nothing() -> None:
    text = " OR ".join(f"c{at} IN (1, 2, 3, 4, 5)" for at in range(8))
    tree = sqlglot.parse_one(f"({text}) AND c0 = 9 AND c0 = 8", read="bigquery")
    assert list(truths(tree)) == []
    assert not is_never_true(tree)
    assert not implies(tree, tree)


TABLE = {"lake.s.t": {"columns": {"id": "INTEGER", "region": "VARCHAR", "amount": "INTEGER"}}}
A, DOMAIN = ["user:a@x.example"], ["domain:x.example"]


def found(
    tmp_path: Path, policies: list[dict[str, Any]], masks: list[dict[str, Any]] | None = None
) -> list[tuple[str, str]]:
    body = {
        "default": ["lake", "s"], "tables": TABLE,
        "policies": [{"table": "t", "grantees": A, "dialect": "bigquery", **policy} for policy in policies],
        "masks": [{"table": "t", "grantees": A, "kind": "null", **mask} for mask in masks or []],
    }  # fmt: skip
    file = tmp_path / "rows.json"
    file.write_text(json.dumps(body))
    return [(finding.code, finding.rule) for finding in lint_row_files([file]) if finding.code in ROW_CODES]


@pytest.mark.parametrize(
    ("policies", "wanted"),
    [
        ([{"id": "p", "filter": "amount > 3 AND amount < 2"}], [("row-never-true", "p")]),
        ([{"id": "p", "filter": "amount > 3 OR amount <= 3 OR amount IS NULL"}], [("row-always-true", "p")]),
        ([{"id": "p", "filter": "TRUE"}, {"id": "q", "grantees": ["allUsers"], "filter": "FALSE"}], []),
        ([{"id": "p", "filter": "amount > 9"}, {"id": "q", "filter": "amount > 3"}], [("row-shadowed", "p")]),
        ([{"id": "p", "filter": "amount > 9"}, {"id": "q", "grantees": DOMAIN, "filter": "amount > 3"}], [("row-shadowed", "p")]),
        ([{"id": "p", "grantees": DOMAIN, "filter": "amount > 9"}, {"id": "q", "filter": "amount > 3"}], []),
        ([{"id": "p", "filter": "amount > 9"}, {"id": "q", "filter": "9 < amount"}], [("row-shadowed", "q")]),
        ([{"id": "p", "filter": "amount > 9"}, {"id": "q", "filter": "TRUE", "grantees": ["allUsers"]}], [("row-shadowed", "p")]),
        ([{"id": "p", "filter": "amount > 9"}, {"id": "q", "filter": "TRUE", "grantees": ["role:r"]}], []),
        ([{"id": "p", "filter": "regoin = 'EU' OR t.id = 1 OR t.no = 2"}], [("row-unknown-column", "p")] * 2),
        ([{"id": "p", "filter": "region IN (SELECT x FROM lake.s.u WHERE y = 1)"}], []),
        ([{"id": "p", "table": "other", "filter": "nosuch = 1"}], []),
    ],
)  # fmt: skip
def test_the_findings_on_policies(
    tmp_path: Path, policies: list[dict[str, Any]], wanted: list[tuple[str, str]]
) -> None:
    assert found(tmp_path, policies) == wanted


@pytest.mark.parametrize(
    ("masks", "wanted"),
    [
        ([{"id": "m", "column": "region"}, {"id": "n", "column": "Region", "kind": "hash"}], [("row-shadowed", "n")]),
        ([{"id": "m", "column": "region", "except": A}, {"id": "n", "column": "region", "kind": "hash"}], []),
        ([{"id": "m", "column": "id"}, {"id": "n", "column": "region", "kind": "hash"}], []),
        ([{"id": "m", "column": "id", "kind": "expression", "expression": "idd + 1"}], [("row-unknown-column", "m")]),
    ],
)  # fmt: skip
def test_the_findings_on_masks(tmp_path: Path, masks: list[dict[str, Any]], wanted: list[tuple[str, str]]) -> None:
    assert found(tmp_path, [], masks) == wanted


ROWS = """tables:
  lake.s.t: {columns: {id: INTEGER}}
policies:
  - id: p
    table: lake.s.t
    grantees: [allUsers]
    filter: "idd = 1"
  - {id: q, table: lake.s.t, grantees: [allUsers], filter: "id = 1 AND id = 2"}
"""


def lint(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, ["lint", *arguments], obj=COMPOSITION)
    return done.exit_code, done.output


def test_the_command_names_file_line_and_column(tmp_path: Path) -> None:
    (tmp_path / "rows.yaml").write_text(ROWS)
    (tmp_path / "rules.yaml").write_text('rules: {a: "false && true"}\n')
    (tmp_path / "pdp.yaml").write_text("policies: {rules: [rules.yaml], row_access: [rows.yaml]}\n")
    for arguments in ([str(tmp_path)], [str(tmp_path / "rows.yaml")], ["-c", str(tmp_path / "pdp.yaml")]):
        code, output = lint(*arguments)
        assert code == 1
        assert f"{tmp_path / 'rows.yaml'}:7:13: error: [row-unknown-column] rule `p`: " in output
        assert f"{tmp_path / 'rows.yaml'}:8:60: warning: [row-never-true] rule `q`: " in output
    (tmp_path / "rows.yaml").write_text(ROWS.replace("idd", "id").replace("id: q", "id: p"))
    assert "rows.yaml:8:10: error: [configuration] " in lint(str(tmp_path / "rows.yaml"))[1]


def test_every_code_of_row_policies_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "lint.md").read_text()
    assert all(f"| `{code}` |" in page for code in ROW_CODES)
    assert all(
        f", {severity} |" in page.partition(f"| `{code}` |")[2].partition("\n")[0]
        for code, severity in ROW_CODES.items()
    )
