"""Roles that a request does not state: they are unknown, so they count where they hide, and nowhere else."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import duckdb
import pytest

from pdp.engines.row_access.policies import parse_document
from pdp.rewrite.catalog import catalog_of, policy_set_of
from pdp.rewrite.process.local import LocalRewriter, RewriteRequest
from pdp.rewrite.rewriter import Rewriter

BOB = "user:bob@example.com"
STATES: dict[str, tuple[str, ...] | None] = {
    "unknown": None, "none": (), "another": ("other",), "the role": ("x",), "both": ("other", "role:x"),
}  # fmt: skip
ALL = {"id": "all", "table": "t", "grantees": ["allUsers"], "filter": "TRUE", "dialect": "duckdb"}
ENTRIES: dict[str, dict[str, Any]] = {
    "permit": {"policies": [{"id": "p", "table": "t", "filter": "id = 1", "dialect": "duckdb"}]},
    "limit": {"policies": [ALL, {"id": "p", "table": "t", "filter": "id = 1", "dialect": "duckdb", "restrictive": True}]},
    "mask": {"masks": [{"id": "m", "table": "t", "column": "mail", "kind": "constant", "expression": "***"}]},
    "exempt": {"masks": [{"id": "m", "table": "t", "column": "mail", "kind": "constant", "expression": "***"}]},
}  # fmt: skip
OPEN, ONE, NONE = [(1, "a"), (2, "b")], [(1, "a")], list[tuple[int, str]]()
STARS, NULLS = [(1, "***"), (2, "***")], [(1, None), (2, None)]
WANT: dict[tuple[str, str], list[Any]] = {
    ("permit", "unknown"): NONE, ("permit", "none"): NONE, ("permit", "another"): NONE,
    ("permit", "the role"): ONE, ("permit", "both"): ONE,
    ("limit", "unknown"): ONE, ("limit", "none"): OPEN, ("limit", "another"): OPEN,
    ("limit", "the role"): ONE, ("limit", "both"): ONE,
    ("mask", "unknown"): NULLS, ("mask", "none"): OPEN, ("mask", "another"): OPEN,
    ("mask", "the role"): STARS, ("mask", "both"): STARS,
    ("exempt", "unknown"): STARS, ("exempt", "none"): STARS, ("exempt", "another"): STARS,
    ("exempt", "the role"): OPEN, ("exempt", "both"): OPEN,
}  # fmt: skip


def service(kind: str, grantees: list[str]) -> LocalRewriter:
    entry = json.loads(json.dumps(ENTRIES[kind]))
    named = entry["policies"][-1] if "policies" in entry else entry["masks"][-1]
    if kind == "exempt":
        named |= {"grantees": ["allUsers"], "except": grantees}
    else:
        named["grantees"] = grantees
    tables = {"t": {"columns": {"id": "INTEGER", "mail": "VARCHAR"}}}
    document = parse_document({"default": ["lake", "s"], "tables": tables, **entry}).document
    catalog = catalog_of([document])
    return LocalRewriter(catalog, policy_set_of([document]), Rewriter(catalog))


def rows(found: LocalRewriter, **who: Any) -> list[Any]:
    sql = found.rewrite(RewriteRequest("SELECT id, mail FROM t ORDER BY id", "duckdb", BOB, **who))
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT * FROM (VALUES (1, 'a'), (2, 'b')) AS v(id, mail)")
        return connection.execute(sql).fetchall()


@pytest.mark.parametrize(("kind", "state"), list(product(ENTRIES, STATES)))
def test_an_unknown_role_counts_where_it_hides(kind: str, state: str) -> None:
    for grantees in (["role:x"], ["user:ann@example.com", "role:x"]):
        assert rows(service(kind, grantees), roles=STATES[state]) == WANT[kind, state], grantees


@pytest.mark.parametrize("kind", ENTRIES)
def test_a_certain_member_needs_no_role(kind: str) -> None:
    found = service(kind, ["role:x", BOB])
    assert rows(found) == rows(found, roles=("x",)) == WANT[kind, "the role"]


@pytest.mark.parametrize("kind", ENTRIES)
def test_a_caller_without_a_name_has_no_roles(kind: str) -> None:
    assert rows(service(kind, ["role:x"]), authenticated=False) == WANT[kind, "none"]


def test_the_batch_takes_the_same_states() -> None:
    found = service("limit", ["role:x"])
    lines = {state: {} if roles is None else {"roles": roles} for state, roles in STATES.items()}
    texts = {
        state: found.answer(
            json.dumps({"sql": "SELECT id FROM t", "dialect": "duckdb", "principal": BOB} | line).encode()
        )["sql"]
        for state, line in lines.items()
    }
    assert (
        texts["unknown"] == texts["the role"] == texts["both"] == "SELECT id FROM (SELECT * FROM t WHERE id = 1) AS t"
    )
    assert texts["none"] == texts["another"] == "SELECT id FROM t"
    assert found.answer(b'{"sql": "SELECT id FROM t", "dialect": "duckdb", "principal": "user:b", "roles": null}')[
        "sql"
    ]


def test_an_explanation_says_that_roles_are_unknown() -> None:
    explained = service("limit", ["role:x"]).explain(RewriteRequest("SELECT id FROM t", "duckdb", BOB))
    why = {entry.id: entry.why for entry in explained.tables[0].rows.policies}
    assert why["p"] == "restrictive: `role:x` names `user:bob@example.com` without groups, whose roles are unknown"
