"""Changes of row policies: directions and numbers of rows against the rows that DuckDB counts."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support.oracles.equivalence import DATA
from support.oracles.secure_views import random_policies
from support.rewriting import full_database
from support.service.command_line import COMPOSITION

from pdp.cli.main import cli
from pdp.engines.row_access.policies import NamedDocument, parse_document
from pdp.offline.row_policies.changes import row_changes
from pdp.rewrite.catalog import key_of

ORDERS = "lake.sales.orders"
COLUMNS = ("id", "customer_id", "region", "amount", "status")


def documents(policies: list[dict[str, Any]], masks: list[dict[str, Any]] | None = None) -> list[NamedDocument]:
    tables = {ORDERS: {"columns": {"id": "INTEGER", "region": "VARCHAR", "amount": "INTEGER", "status": "VARCHAR"}}}
    return [
        parse_document({"default": ["lake", "sales"], "tables": tables, "policies": policies, "masks": masks or []})
    ]


def _policies(dice: random.Random) -> list[dict[str, Any]]:
    return [policy for policy in random_policies(dice) if policy["table"] == ORDERS]


def test_the_directions_and_numbers_are_those_of_real_rows() -> None:
    dice, database = random.Random(3), full_database(DATA)
    rows = database.execute(f"SELECT {', '.join(COLUMNS)} FROM {ORDERS}").fetchall()
    data = {
        key_of(ORDERS.split(".")): [
            dict(zip(COLUMNS, (float(v) if isinstance(v, int) else v for v in row), strict=True)) for row in rows
        ]
    }
    seen = {"more": 0, "fewer": 0, "other": 0, "counted": 0}
    for _ in range(60):
        old_side, new_side = (_policies(dice), _policies(dice))
        for change in row_changes(documents(old_side), documents(new_side), data):
            if change.rows == "same":
                continue
            name = change.reader.rpartition(":")[2]
            filters = [text.replace("SESSION_USER()", f"'{name}'") for text in (change.before, change.after)]
            old, new = (
                {row[0] for row in database.execute(f"SELECT id FROM {ORDERS} WHERE {text}").fetchall()}
                for text in filters
            )
            seen[change.rows] += 1
            assert change.rows != "more" or old <= new, change
            assert change.rows != "fewer" or new <= old, change
            if change.rows_after is not None:
                seen["counted"] += 1
                assert change.rows_after == len(new), change
            if change.rows_before is not None:
                assert change.rows_before == len(old), change
    assert min(seen.values()) > 10, seen


EU = {"id": "p", "table": "orders", "grantees": ["user:a@x.example"], "filter": "region = 'EU'", "dialect": "bigquery"}


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        ([EU], [EU], []),
        ([EU], [{**EU, "filter": "'EU' = region"}], []),
        ([EU], [{**EU, "filter": "region IN ('EU', 'US')"}], [("user:a@x.example", "more")]),
        ([EU], [{**EU, "filter": "region = 'EU' AND amount > 3"}], [("user:a@x.example", "fewer")]),
        ([EU], [{**EU, "filter": "region = 'US'"}], [("user:a@x.example", "other")]),
        ([EU], [{**EU, "filter": "region LIKE 'E%'"}], [("user:a@x.example", "other")]),
        (
            [EU],
            [{**EU, "grantees": ["group:g@x.example"]}],
            [("group:g@x.example", "more"), ("user:a@x.example", "fewer")],
        ),
        ([EU], [{**EU, "grantees": ["role:r"]}], [("role:r", "more"), ("user:a@x.example", "fewer")]),
        ([EU], [], [("user:a@x.example", "more"), ("any other user", "more"), ("anybody without a name", "more")]),
        ([EU], [{**EU, "grantees": ["allAuthenticatedUsers"]}], [("any other user", "more")]),
        ([EU], [{**EU, "grantees": ["domain:x.example"]}], [("domain:x.example", "more")]),
    ],
)
def test_a_change_names_readers_and_directions(before: Any, after: Any, wanted: list[tuple[str, str]]) -> None:
    found = row_changes(documents(before), documents(after), {})
    assert [(change.reader, change.rows) for change in found] == wanted


def _texts(id: str, **texts: str) -> dict[str, Any]:
    return {"id": id, "table": "orders", "grantees": ["user:a@x.example"], "filter": texts}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([_texts("p", bigquery="amount > 1", duckdb="TRUE")], [_texts("p", bigquery="amount > 3", duckdb="TRUE")]),
        (
            [_texts("p", bigquery="amount > 3", duckdb="amount > 3")],
            [_texts("p", bigquery="amount > 1", duckdb="FALSE")],
        ),
        ([EU], [_texts("p", bigquery="region IN ('EU', 'US')", spark="FALSE")]),
        ([_texts("p", bigquery="region = 'EU'", spark="TRUE")], [{**EU, "filter": "region IN ('EU', 'US')"}]),
        (
            [_texts("p", bigquery="amount > 1", spark="amount > 9"), {**EU, "id": "q"}],
            [{**EU, "id": "p", "filter": "amount > 1"}, _texts("q", bigquery="region = 'EU'", spark="amount > 9")],
        ),
    ],
)
def test_texts_of_other_dialects_have_no_proven_direction(before: Any, after: Any) -> None:
    for old, new in ((before, after), (after, before)):
        found = row_changes(documents(old), documents(new), {})
        assert [(change.reader, change.rows) for change in found] == [("user:a@x.example", "other")]
    assert row_changes(documents(before), documents(before), {}) == []


def test_a_change_of_masks_names_the_columns() -> None:
    mask = {"id": "m", "table": "orders", "column": "region", "grantees": ["allUsers"], "kind": "null"}
    other = [{**mask, "kind": "hash"}, {**mask, "id": "n", "column": "amount", "except": ["user:a@x.example"]}]
    found = row_changes(documents([], [mask]), documents([], other), {})
    assert [(change.reader, change.columns_hidden, change.columns_changed) for change in found] == [
        ("user:a@x.example", (), ("region",)),
        ("any other user", ("amount",), ("region",)),
        ("anybody without a name", ("amount",), ("region",)),
    ]


def test_a_change_of_a_kind_is_a_change_of_the_column() -> None:
    mask = {"id": "m", "table": "orders", "column": "region", "grantees": ["allUsers"], "kind": "show-first-4"}
    found = row_changes(documents([], [mask]), documents([], [mask | {"kind": "show-last-4"}]), {})
    assert {change.columns_changed for change in found} == {("region",)}


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, ["dry-run", *arguments], obj=COMPOSITION)
    return done.exit_code, done.output


def test_the_command_counts_rows_and_columns(tmp_path: Path) -> None:
    mask = {"id": "m", "table": "orders", "column": "region", "grantees": ["allUsers"], "kind": "null"}
    tables = {ORDERS: {"columns": {"id": "INTEGER", "region": "VARCHAR", "amount": "INTEGER"}}}
    for name, policies, masks in (("old", [EU], [mask]), ("new", [{**EU, "filter": "region IN ('EU', 'US')"}], [])):
        body = {"default": ["lake", "sales"], "tables": tables, "policies": policies, "masks": masks}
        (tmp_path / f"{name}.json").write_text(json.dumps(body))
    (tmp_path / "orders.csv").write_text("id,region,amount\n1,EU,5\n2,US,\n3,JP,7\n4,,8\n")
    files = ("--baseline", str(tmp_path / "old.json"), "--candidate", str(tmp_path / "new.json"))
    data = ("--data", f"orders={tmp_path / 'orders.csv'}")
    code, text = run(*files, *data)
    assert code == 3
    assert (
        "user:a@x.example sees more rows (1 -> 2): region = 'EU' -> region IN ('EU', 'US'); sees 1 column: region"
        in text
    )
    assert "any other user sees 1 column: region" in text
    assert "sees more rows: region" in run(*files)[1]
    found = json.loads(run(*files, *data, "--format", "json")[1])
    assert (found["different"], found["rows"][0]["rowsBefore"], found["rows"][0]["rowsAfter"]) == (3, 1, 2)
    assert run(*files[:2], "--candidate", files[1])[0] == 0


def test_an_unusable_file_of_rows_is_refused(tmp_path: Path) -> None:
    tables = {ORDERS: {"columns": {"id": "INTEGER"}}}
    file = tmp_path / "rows.json"
    file.write_text(
        json.dumps({"default": ["lake", "sales"], "tables": tables, "policies": [{**EU, "filter": "id = 1"}]})
    )
    (tmp_path / "bad.csv").write_text("id\nx\n")
    (tmp_path / "long.csv").write_text("id\n1,2\n")
    files = ("--baseline", str(file), "--candidate", str(file))
    for data in ("nosuch=x.csv", "orders", f"orders={tmp_path / 'none.csv'}", f"orders={tmp_path / 'long.csv'}"):
        assert run(*files, "--data", data)[0] == 2
    assert "line 2" in run(*files, "--data", f"orders={tmp_path / 'bad.csv'}")[1]
