"""Marks of functions: what reads nothing but its arguments gives the same in two worlds that agree on the visible rows.

The worlds differ in all else that a function could tell of: hidden rows, tables, sequences, variables, settings, the
text of the query. Each function of the installed DuckDB that is marked is called in both.
"""

from __future__ import annotations

import itertools
import os
import random
import re
from collections.abc import Iterator
from typing import Any, Final

import duckdb
import pytest
from support.oracles.equivalence import service_of
from support.rewriting import code_of

from pdp.rewrite import functions
from pdp.rewrite.errors import UNSUPPORTED_FUNCTION, RewriteRefused
from pdp.rewrite.process.local import RewriteRequest

SEED: Final = os.environ.get("TEST_JUDGE_SEED", "7")
BOB: Final = "user:bob@example.com"
SERVICE: Final = service_of(
    [{"id": "p", "table": "orders", "grantees": ["allUsers"], "filter": "region = 'US'", "dialect": "duckdb"}]
)
VISIBLE: Final = "(3, 'US', 'Jan', 10.5, DATE '2024-01-05'), (4, 'US', 'b-c', 2.25, DATE '2023-03-31')"
HIDDEN: Final = "(99, 'EU', 'secret', 1e9, DATE '1999-01-01'), (NULL, 'EU', NULL, NULL, NULL), (98, 'EU', 'Zed', -5, DATE '2030-01-01')"
OTHER_WORLD: Final = """
    SET threads = 2; SET VARIABLE x = 'hidden'; CREATE SEQUENCE s START 77; CREATE SCHEMA more; SET search_path = 'lake.sales,lake.more';
    CREATE TABLE more.pay AS SELECT 1 AS a; SET max_expression_depth = 777; CREATE VIEW v AS SELECT 'hidden' AS z
"""
THIS_WORLD: Final = (
    "SET threads = 1; SET VARIABLE x = 'open'; CREATE SEQUENCE s START 5; CREATE VIEW v AS SELECT 1 AS a"
)
CHANGING: Final = frozenset(
    """random uuid uuidv4 uuidv7 gen_random_uuid now today get_current_time get_current_timestamp current_localtime ago age
    current_localtimestamp transaction_timestamp current_date current_time current_timestamp reservoir_quantile current_user session_user user""".split()  # noqa: SIM905
)
"""Functions of the clock, of chance, and of the reader, whose name becomes a literal: no two calls need to agree."""
VALUES: Final = {
    "VARCHAR": ("status", "'x'", "'a-b'", "'threads'", "'s'", "'%Y-%m-%d'", "'sum'", "'{\"a\": 1}'", "'lake'", "'more'", "'year'"),
    "BIGINT": ("id", "2", "-1"), "INTEGER": ("id::INTEGER", "2"), "DOUBLE": ("amount::DOUBLE", "0.5"), "DATE": ("ordered_on",),
    "TIMESTAMP": ("ordered_on::TIMESTAMP",), "BOOLEAN": ("id > 3",), "VARCHAR[]": ("[status, 'x']",), "ANY": ("id", "status", "'x'", "[id]"),
    "T": ("id", "status"), "T[]": ("[id, 2]", "[status]"), "ANY[]": ("[id, 2]",), "JSON": ("'{\"a\": [1]}'::JSON",), "BLOB": ("status::BLOB",),
    "DOUBLE[]": ("[amount::DOUBLE, 1]",), "INTERVAL": ("INTERVAL 1 DAY",), "BIT": ("'101'::BIT",), "STRUCT": ("{'a': id}",), "UBIGINT": ("id::UBIGINT",),
    "LAMBDA": ("lambda y: y",), "MAP": ("MAP {'x': id}",), "MAP(K, V)": ("MAP {'x': id}",), "UNION": ("union_value(n := id)",),
    "TIMESTAMP WITH TIME ZONE": ("ordered_on::TIMESTAMPTZ",), "K": ("'x'",), "V": ("id",), "DECIMAL": ("amount::DECIMAL(9, 2)",), "TIME": ("TIME '12:00:00'",),
}  # fmt: skip


def world(rows: str, settings: str) -> duckdb.DuckDBPyConnection:
    database = duckdb.connect()
    database.execute("ATTACH ':memory:' AS lake; CREATE SCHEMA lake.sales; USE lake.sales")
    database.execute(
        "CREATE TABLE orders (id BIGINT, region VARCHAR, status VARCHAR, amount DECIMAL(18, 2), ordered_on DATE)"
    )
    database.execute(f"INSERT INTO orders VALUES {rows}; {settings}")
    return database


def listed() -> dict[str, list[list[str]]]:
    """Return the functions of DuckDB by name, with the types of their parameters."""
    found: dict[str, list[list[str]]] = {}
    rows = duckdb.sql(
        "SELECT function_name, parameter_types FROM duckdb_functions() WHERE function_type IN ('scalar', 'aggregate', 'macro')"
    ).fetchall()
    for name, types in rows:
        if re.fullmatch(r"[a-z]\w*", name):
            found.setdefault(name, []).append([str(type) for type in types or ()])
    return found


LISTED: Final = listed()


def calls(name: str, dice: random.Random, most: int = 3) -> list[str]:
    """Return calls of a function with arguments of its types. A macro names no types."""
    found: list[str] = []
    for types in dice.sample(LISTED[name], min(len(LISTED[name]), 3)):
        choices = [VALUES.get(type if type != "None" else "ANY", VALUES["ANY"]) for type in types]
        every = list(itertools.islice(itertools.product(*choices), 200))
        found += [f"{name}({', '.join(one)})" for one in dice.sample(every, min(len(every), most))]
    return found


def differences(names: list[str], dice: random.Random, most: int = 3) -> Iterator[str]:
    """Yield the calls that tell the worlds apart, among those that the rewriter takes."""
    full, visible = world(f"{VISIBLE}, {HIDDEN}", OTHER_WORLD), world(VISIBLE, THIS_WORLD)
    for name in names:
        for call in calls(name, dice, most):
            text = f"SELECT {call} AS v FROM orders"
            try:
                rewritten = SERVICE.rewrite(RewriteRequest(text, "duckdb", BOB))
            except RewriteRefused:
                continue
            if (wanted := outcome(visible, text)) is not None and outcome(full, rewritten) != wanted:
                yield text


def outcome(database: duckdb.DuckDBPyConnection, sql: str) -> Any:
    try:
        return sorted(map(repr, database.execute(sql).fetchall()))
    except duckdb.Error:
        return None


def marked(dialect: str) -> frozenset[str]:
    return functions.SCALARS | functions.OWN[dialect]


def test_no_marked_function_of_duckdb_tells_of_more_than_its_arguments() -> None:
    names = sorted(set(LISTED) - CHANGING)
    assert len(names) > 500
    assert list(differences(names, random.Random(SEED))) == []


@pytest.mark.parametrize(
    "name", ["stats", "current_query", "getvariable", "current_setting", "nextval", "in_search_path", "bitstring_agg"]
)
def test_a_wrong_mark_is_found(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """One function of each kind: other rows, the query's text, variables, settings, sequences, catalogs, statistics."""
    if name not in LISTED:
        pytest.skip("not in this version")
    monkeypatch.setitem(functions.OWN, "duckdb", functions.OWN["duckdb"] | {name})
    monkeypatch.setattr(functions, "TELLING", functions.TELLING - {name})
    assert list(differences([name], random.Random(SEED), 200))


@pytest.mark.parametrize("dialect", ["bigquery", "trino", "spark", "duckdb"])
def test_what_tells_of_more_is_in_no_list_and_refused(dialect: str) -> None:
    assert not functions.TELLING & marked(dialect)
    for name in sorted(functions.TELLING):
        for text in (
            f"SELECT {name}('x') FROM items",
            f"SELECT id FROM items WHERE {name}(id) = 1",
            f"SELECT s.{name}(1)",
        ):
            assert code_of(SERVICE, RewriteRequest(text, dialect, BOB)), text
    assert code_of(SERVICE, RewriteRequest("SELECT current_query() FROM items", dialect, BOB)) == UNSUPPORTED_FUNCTION


def test_a_function_of_one_engine_is_unknown_to_the_others() -> None:
    for name, own in [
        ("st_dwithin_spheroid", "duckdb"),
        ("schema_of_csv", "spark"),
        ("hmac_sha512", "trino"),
        ("s2_cellidfrompoint", "bigquery"),
    ]:
        for dialect in functions.OWN:
            found = code_of(SERVICE, RewriteRequest(f"SELECT {name}(status) FROM items", dialect, BOB))
            assert found == ("" if dialect == own else UNSUPPORTED_FUNCTION)
