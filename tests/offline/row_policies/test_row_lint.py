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
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.service.command_line import COMPOSITION

from pdp.cli.main import cli
from pdp.offline.row_policies.column_values import domain_of
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


EDGES: dict[str, tuple[str, list[str], list[str]]] = {
    "b": (
        "BIGINT",
        [
            "9007199254740991",
            "9007199254740992",
            "9007199254740993",
            "9223372036854775807",
            "-9223372036854775808",
            "-1",
            "0",
            "1",
            "2",
            "3",
            "4",
        ],
        ["9007199254740993.0", "9007199254740993e0", "2.5", "1.0", "99999999999999999999", "'1'", "1e400"],
    ),
    "i": ("INTEGER", ["-2147483648", "-1", "0", "1", "2", "3", "2147483647"], ["2147483648", "1.5", "1e0", "-0.5"]),
    "d": (
        "DECIMAL(18,2)",
        ["-0.01", "0", "0.01", "1", "1.01", "1.02", "2.5", "90071992547409.92", "90071992547409.93"],
        ["1.005", "1.015", "1.0100", "1.01e0", "9007199254740993", "'1.01'", ".01"],
    ),
    "f": (
        "DOUBLE",
        [
            "'nan'",
            "'inf'",
            "'-inf'",
            "0.0",
            "-0.0",
            "0.1",
            "0.3",
            "0.30000000000000004",
            "1",
            "9007199254740992",
            "1e300",
        ],
        ["9007199254740993", "0.30000000000000001", "1e400", "0.1000000000000000055511151231257827"],
    ),
    "r": ("REAL", ["'nan'", "0.1", "1", "16777216", "1.5"], ["16777217", "0.10000000149011612", "0.100000001"]),
    "v": (
        "VARCHAR",
        [
            "''",
            "'a'",
            "'a' || chr(0)",
            "'a' || chr(1)",
            "'aa'",
            "'A'",
            "'b'",
            "'EU'",
            "'eu'",
            "'é'",
            "'1'",
            "'10'",
            "'9'",
        ],
        ["'a\x01'", "'a\0'", "'US'", "1", "DATE '2024-01-01'"],
    ),
    "t": (
        "DATE",
        ["DATE '2024-01-01'", "DATE '2024-01-02'", "DATE '1969-12-31'", "DATE 'infinity'", "DATE '2024-02-29'"],
        ["'2024-01-01'", "'2024-1-1'", "TIMESTAMP '2024-01-01 12:00:00'", "'2023-02-30'", "'2024-01-01 12:00:00'"],
    ),
    "s": (
        "TIMESTAMP",
        ["TIMESTAMP '2024-01-01 00:00:00'", "TIMESTAMP '2024-01-01 00:00:00.000001'", "TIMESTAMP 'infinity'"],
        ["'2024-01-01'", "'2024-01-01 00:00:00'", "DATE '2024-01-01'", "'2024-01-01 00:00:00.0'"],
    ),
    "o": ("BOOLEAN", ["TRUE", "FALSE"], ["1", "0", "'t'", "'true'"]),
}
"""Column -> its type, edge values that rows and conditions have, and further literals of conditions."""


def comparisons(dice: random.Random, name: str) -> str:
    """Return a random comparison of a column."""
    _, values, more = EDGES[name]
    one, other, third = (dice.choice([*values, *more]) for _ in range(3))
    sign = dice.choice(["=", "<>", "<", "<=", ">", ">="])
    return dice.choice([
        f"{name} {sign} {one}", f"{one} {sign} {name}", f"{name} IN ({one}, {other}, {third})", f"{name} IS NULL",
        f"{name} BETWEEN {one} AND {other}", f"NOT ({name} {sign} {one})", f"{name} {sign} {name}",
        f"{name} {sign} {one} AND {name} {dice.choice(['<', '>', '=', '<='])} {other}",
        f"{name} {sign} {one} OR {name} {sign} {other}", name if name in "oi" else f"{name} IS NOT NULL",
        f"{name} IN ({one}, NULL)",
    ])  # fmt: skip


@pytest.fixture(scope="module")
def edges() -> duckdb.DuckDBPyConnection:
    database = duckdb.connect()
    for name, (type, values, _) in EDGES.items():
        rows = ", ".join(f"(CAST({value} AS {type}))" for value in [*values, "NULL"])
        database.execute(f"CREATE TABLE of_{name} AS SELECT * FROM (VALUES {rows}) AS found({name})")
    return database


def claims(first: Any, second: Any, domains: Any) -> tuple[bool, bool, bool]:
    return (
        is_never_true(first, domains=domains),
        is_always_true(first, domains=domains),
        implies(first, second, domains=domains),
    )


@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False), st.sampled_from(sorted(EDGES)), st.sampled_from(sorted(EDGES)))
def test_duckdb_agrees_with_each_hint(edges: duckdb.DuckDBPyConnection, dice: Any, name: str, other: str) -> None:
    """Types of `tables`, or none: a hint on any filter holds for rows of edge values and NULL."""
    names = [name, name, name, other]
    first, second = (
        f" {dice.choice(['AND', 'OR'])} ".join(f"({comparisons(dice, dice.choice(names))})" for _ in range(dice.choice([1, 2])))
        for _ in range(2)
    )  # fmt: skip
    tables = ", ".join(f"of_{one}" for one in {name, other})
    try:
        wrong = edges.execute(
            f"SELECT count(*) FILTER ({first}), count(*) FILTER (({first}) IS NOT TRUE), "
            f"count(*) FILTER (({first}) AND (({second}) IS NOT TRUE)) FROM {tables}"
        ).fetchall()[0]
    except duckdb.Error:
        return  # no rows at all
    trees = [sqlglot.parse_one(text, read="duckdb") for text in (first, second)]
    typed = {one: domain_of(type, "duckdb") for one, (type, _, _) in EDGES.items()}
    for domains in (typed, {}):
        for claim, counted in zip(claims(trees[0], trees[1], domains), wrong, strict=True):
            assert not (claim and counted), (first, second, domains)


@pytest.mark.parametrize(
    ("type", "first", "second"),
    [
        ("BIGINT", "x = 9007199254740993", "x = 9007199254740992"),
        ("BIGINT", "x = 9007199254740993 AND x > 9007199254740992", "FALSE"),
        ("VARCHAR", "x > 'a' AND x < 'a\x01'", "FALSE"),
        ("DECIMAL(38,20)", "x > 1.00000000000000000001 AND x < 1.00000000000000000003", "FALSE"),
        ("DECIMAL(18,2)", "x = 1.005 AND x = 1.01", "FALSE"),
        ("DOUBLE", "NOT (x > 3)", "x <= 3"),
        ("DOUBLE", "x = 9007199254740993 AND x = 9007199254740992", "FALSE"),
        ("REAL", "x = 16777217 AND x = 16777216", "FALSE"),
        ("DATE", "x = '2024-01-01' AND x = '2024-1-1'", "FALSE"),
        ("TIMESTAMP", "x = '2024-01-01' AND x = '2024-01-01 00:00:00'", "FALSE"),
        ("", "x = 9007199254740993 AND x = 9007199254740992", "FALSE"),
        ("", "x = '2024-01-01' AND x = '2024-1-1'", "FALSE"),
        ("", "x = 'EU' AND x = 'eu'", "FALSE"),
        ("", "x > 'A' AND x < 'B' AND x > 'a'", "FALSE"),
        ("", "x = 1.005 AND x = 1.01", "FALSE"),
        ("", "x > 1 OR x <= 1 OR x IS NULL OR FALSE", "x = 1 OR x <> 1"),
        ("INTEGER", "x BETWEEN SYMMETRIC 5 AND 3", "FALSE"),
        ("INTEGER", "s.x = 1 AND x = 2", "FALSE"),
        ("CHAR(3)", "x = 'a' AND x = 'a '", "FALSE"),
        ("VARCHAR COLLATE NOCASE", "x = 'a' AND x = 'A'", "FALSE"),
    ],
)
def test_what_some_engine_refutes_is_not_proven(type: str, first: str, second: str) -> None:
    trees = [sqlglot.parse_one(text, read="duckdb") for text in (first, second)]
    assert not implies(*trees, domains={"x": domain_of(type, "duckdb")})


@pytest.mark.parametrize(
    ("type", "first", "second"),
    [
        ("BIGINT", "x > 1 AND x < 2", "FALSE"),
        ("BIGINT", "x > 9007199254740992 AND x < 9007199254740994", "x = 9007199254740993"),
        ("BIGINT", "x = 9007199254740993 AND x = 9007199254740992", "FALSE"),
        ("VARCHAR", "x > 'a' AND x < 'a\0'", "FALSE"),
        ("VARCHAR", "x = '1' AND x = '01'", "FALSE"),
        ("DECIMAL(18,2)", "x > 9.5", "x > 3.25"),
        ("DOUBLE", "x > 9.5", "x > 3.25"),
        ("DATE", "x > DATE '2024-02-28' AND x < DATE '2024-03-01'", "x = '2024-02-29'"),
        ("BOOLEAN", "x", "x = TRUE"),
        ("", "x > 9", "x > 3"),
        ("", "x = 'EU' AND x = 'US'", "FALSE"),
        ("TIMESTAMP", "x = '2024-01-01' AND NOT x = '2024-01-01'", "FALSE"),
    ],
)
def test_what_holds_in_every_engine_is_proven(type: str, first: str, second: str) -> None:
    trees = [sqlglot.parse_one(text, read="duckdb") for text in (first, second)]
    assert implies(*trees, domains={"x": domain_of(type, "duckdb")})


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
        *(
            ([{"id": "m", "column": "region", "kind": one}, {"id": "a", "column": "region", "kind": other}], [("row-shadowed", "a")])
            for one, other in (("hash", "mask-alphanum"), ("mask-alphanum", "partial"), ("show-last-4", "show-first-4"))
        ),
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
