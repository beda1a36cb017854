"""Targets of CREATE: the engine makes or replaces the relation that was judged, however the name is divided."""

from __future__ import annotations

import itertools
from typing import Any

import duckdb
import pytest

from pdp.engines.row_access.policies import Document, parse_document
from pdp.engines.row_access.policy_set import PolicySet
from pdp.rewrite import errors
from pdp.rewrite.catalog import catalog_of, policy_set_of
from pdp.rewrite.errors import RewriteRefused
from pdp.rewrite.identity import CallerIdentity
from pdp.rewrite.rewriter import Rewriter

CALLER = CallerIdentity("user:ann@x.com")
SECRET = "secret"
COLUMNS = {"columns": {"a": "VARCHAR"}}
HEADS = ("CREATE", "CREATE OR REPLACE", "CREATE TEMP", "CREATE OR REPLACE TEMP")
PATHS = (
    "{}", "lake.{}", '"LAKE".{}', "sales.{}", "lake.sales.{}", "Lake.Sales.{}", "main.{}", "lake.main.{}", "temp.{}",
    "temp.main.{}", "memory.{}", "system.{}", "other.{}", "other.main.{}", "lake.lake.{}", "lake.sales.x.{}",
)  # fmt: skip
NAMES = ("vp", "m", "t", "new", "om")
TEXTS = ("TABLE {} AS SELECT 'seen' AS a", "VIEW {} AS SELECT a FROM lake.sales.t", "TABLE {} (a VARCHAR)")


def document(default: list[str]) -> Document:
    tables = ("lake.sales.t", "lake.sales.m", "lake.main.m", "lake.sales.pub", "other.main.om")
    filter = f"a IN (SELECT k.a FROM {default[0]}.sales.m AS k)"
    policy = {"id": "p", "table": "lake.sales.t", "grantees": ["allUsers"], "filter": filter, "dialect": "duckdb"}
    views = {"lake.sales.vp": {"sql": "SELECT a FROM lake.sales.pub", "dialect": "duckdb"}}
    return described(tables, default=default, views=views, policies=[policy])


def described(tables: tuple[str, ...], **more: Any) -> Document:
    return parse_document({"tables": dict.fromkeys(tables, COLUMNS), **more}).document


def world(default: list[str]) -> duckdb.DuckDBPyConnection:
    database = duckdb.connect(config={"threads": 1})
    database.execute(
        "ATTACH ':memory:' AS lake; ATTACH ':memory:' AS other; CREATE SCHEMA lake.sales;"
        "CREATE TABLE lake.sales.t AS SELECT 'secret' AS a UNION ALL SELECT 'seen';"
        "CREATE TABLE lake.sales.m AS SELECT 'seen' AS a; CREATE TABLE lake.main.m AS SELECT 'seen' AS a;"
        "CREATE TABLE lake.sales.pub AS SELECT 'open' AS a; CREATE TABLE other.main.om AS SELECT 'om' AS a;"
        f"CREATE VIEW lake.sales.vp AS SELECT a FROM lake.sales.pub; USE {'.'.join(default)}"
    )
    return database


def listed(database: duckdb.DuckDBPyConnection) -> dict[tuple[str, ...], str]:
    """Return the relations of the database with what they hold."""
    names = database.execute(
        "SELECT database_name, schema_name, table_name FROM duckdb_tables() UNION ALL "
        "SELECT database_name, schema_name, view_name FROM duckdb_views() WHERE NOT internal"
    ).fetchall()
    return {name: str(database.execute(f"SELECT * FROM {'.'.join(name)}").fetchall()) for name in names}


def answered(rewriter: Rewriter, text: str, policies: PolicySet, dialect: str = "duckdb") -> str | RewriteRefused:
    try:
        return rewriter.rewrite(text, dialect, CALLER, policies).sql
    except RewriteRefused as error:
        return error


def created(body: Document, name: str, dialect: str) -> str | RewriteRefused:
    text = f"CREATE TABLE {name} AS SELECT 1 AS a"
    return answered(Rewriter(catalog_of([body])), text, policy_set_of([body]), dialect)


@pytest.mark.parametrize("default", [["lake", "sales"], ["lake", "main"]])
def test_duckdb_makes_the_relation_that_was_judged(default: list[str]) -> None:
    """Each accepted text is executed: no other known relation changes, and no read shows a hidden row afterwards."""
    body = document(default)
    rewriter, policies = Rewriter(catalog_of([body])), policy_set_of([body])
    reads = [f"SELECT a FROM {name}" for name in ("vp", "sales.vp", "t", "sales.t", "m", "main.m", "sales.m")]
    rewritten = [sql for text in reads if isinstance(sql := answered(rewriter, text, policies), str)]
    assert len(rewritten) > 4
    made = 0
    for head, path, name, text in itertools.product(HEADS, PATHS, NAMES, TEXTS):
        written = f"{head} {text.format(path.format(name))}"
        sql = answered(rewriter, written, policies)
        if isinstance(sql, RewriteRefused):
            continue
        database = world(default)
        before = listed(database)
        try:
            database.execute(sql)
        except duckdb.Error:
            continue
        made += 1
        after = listed(database)
        changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
        assert changed <= {judged_name(path.format(name), default), ("temp", "main", name)}, written
        for read in rewritten:
            assert SECRET not in str(database.execute(read).fetchall()), (written, read)
    assert made > 20


def judged_name(text: str, default: list[str]) -> tuple[str, ...]:
    parts = text.replace('"', "").lower().split(".")
    return (*default[: 3 - len(parts)], *parts)


@pytest.mark.parametrize("text", [
    "CREATE OR REPLACE VIEW lake.vp AS SELECT * FROM lake.sales.t", 'CREATE TABLE "LAKE".m AS SELECT 1 AS a',
    "CREATE TABLE LAKE.new AS SELECT 1 AS a", "CREATE OR REPLACE TABLE lake.t AS SELECT 1 AS a",
    "CREATE TABLE other.new AS SELECT 1 AS a", "CREATE TEMP TABLE main.m AS SELECT 1 AS a",
    "CREATE TEMP TABLE temp.m AS SELECT 1 AS a", "CREATE TEMP TABLE temp.main.m AS SELECT 1 AS a",
    "CREATE TEMP TABLE om2.om AS SELECT 1 AS a", "CREATE TABLE memory.m AS SELECT 1 AS a",
])  # fmt: skip
def test_a_name_of_two_readings_is_refused_in_duckdb(text: str) -> None:
    body = document(["lake", "sales"])
    found = answered(Rewriter(catalog_of([body])), text, policy_set_of([body]))
    assert isinstance(found, RewriteRefused), text
    assert found.code == errors.AMBIGUOUS_NAME, text
    assert "write " in str(found), text


@pytest.mark.parametrize(("dialect", "text", "is_refused"), [
    ("spark", "lake.vp", True), ("spark", "spark_catalog.vp", True), ("spark", "Lake.new", True),
    ("spark", "sales.new", False), ("spark", "lake.sales.new", False), ("spark", "new", False),
    ("spark", "a.b.t", True), ("spark", "other.b.t", True), ("spark", "a.b.new", False),
    ("spark", "lake.a.b.new", False), ("trino", "lake.vp", False), ("trino", "sales.new", False),
    ("trino", "a.b.t", False), ("bigquery", "lake.vp", False), ("bigquery", "lake.sales.new", False),
    ("bigquery", "`lake.vp`", False), ("duckdb", "sales.new", False), ("duckdb", "lake.sales.new", False),
    ("duckdb", "new", False),
])  # fmt: skip
def test_each_dialect_divides_names_as_its_manual_says(dialect: str, text: str, is_refused: bool) -> None:
    """Trino and BigQuery read two parts as schema and table alone; Spark a first part without a catalog as namespace."""
    tables = ("lake.sales.t", "lake.sales.vp", "lake.a.b.t", "lake.other.b.t", "other.s.t")
    found = created(described(tables, default=["lake", "sales"]), text, dialect)
    assert isinstance(found, RewriteRefused) == is_refused, found
    if isinstance(found, RewriteRefused):
        assert found.code == errors.AMBIGUOUS_NAME


@pytest.mark.parametrize("dialect", ["duckdb", "spark"])
@pytest.mark.parametrize("text", [
    "SELECT * FROM lake.m", "SELECT * FROM x, lake.m", "INSERT INTO lake.m SELECT 'a'", "DELETE FROM lake.m WHERE TRUE",
    "TRUNCATE TABLE lake.m",
])  # fmt: skip
def test_a_schema_with_the_name_of_a_catalog_is_written_in_full(dialect: str, text: str) -> None:
    """The schema may be gone, and then the engine reads the table of the catalog."""
    body = described(("db.lake.m", "lake.main.m", "db.main.x"), default=["db", "main"])
    rewriter, policies = Rewriter(catalog_of([body])), policy_set_of([body])
    for _ in range(2):  # the second text may pass by the short way
        assert isinstance(answered(rewriter, text, policies, dialect), RewriteRefused)
    full = text.replace("lake.m", "db.lake.m")
    assert isinstance(answered(rewriter, full, policies, dialect), str)


@pytest.mark.parametrize(("name", "is_refused"), [("t", True), ("sales.T", True), ("lake.sales.new", False)])
@pytest.mark.parametrize("dialect", ["duckdb", "spark", "trino", "bigquery"])
def test_a_short_target_without_a_default_may_be_any_relation(dialect: str, name: str, is_refused: bool) -> None:
    found = created(described(("lake.sales.t",)), name, dialect)
    assert isinstance(found, RewriteRefused) == is_refused, found


@pytest.mark.parametrize("dialect", ["spark", "trino"])
@pytest.mark.parametrize(("source", "read"), [
    ("t", "lake.a.b.t"), ("b.t", "lake.b.t"), ("a.t", "lake.a.t"), ("lake.a.b.t", "lake.a.b.t"), ("lake.a.t", "lake.a.t"),
])  # fmt: skip
@pytest.mark.parametrize("hides", ["lake.a.b.t", "lake.a.t", "lake.b.t"])
def test_a_view_in_a_namespace_of_namespaces_reads_the_table_beside_it(
    dialect: str, source: str, read: str, hides: str
) -> None:
    """Engines put the whole namespace before a name of one part, and the catalog alone before one of two."""
    policy = {"id": "p", "table": hides, "grantees": ["allUsers"], "filter": "a = 'x'", "dialect": dialect}
    views = {"lake.a.b.v": {"sql": f"SELECT a FROM {source}", "dialect": dialect}}
    body = described(("lake.a.b.t", "lake.a.t", "lake.b.t"), default=["lake", "a"], views=views, policies=[policy])
    sql = answered(Rewriter(catalog_of([body])), "SELECT a FROM lake.a.b.v", policy_set_of([body]), dialect)
    assert isinstance(sql, str)
    quote = "`" if dialect == "spark" else '"'
    assert (read == hides) == ("'x'" in sql), sql
    if read == hides:
        assert f"FROM {quote}{read.replace('.', f'{quote}.{quote}')}{quote}" in sql


@pytest.mark.parametrize("text", ["SELECT a FROM t", "SELECT a FROM b.t", "SELECT a FROM t AS x"])
def test_a_default_of_namespaces_is_put_before_a_name_of_one_part(text: str) -> None:
    body = described(("lake.a.b.t", "lake.a.t", "lake.b.t", "lake.a.x"), default=["lake", "a", "b"], policies=[
        {"id": "p", "table": "lake.b.t" if "b.t" in text else "lake.a.b.t", "grantees": ["allUsers"], "filter": "a = 'x'", "dialect": "spark"},
    ])  # fmt: skip
    rewriter, policies = Rewriter(catalog_of([body])), policy_set_of([body])
    for _ in range(2):
        assert "'x'" in str(answered(rewriter, text, policies, "spark"))


@pytest.mark.parametrize(
    "name",
    [
        "IDENTIFIER('t')",
        "identifier('lake.sales.t')",
        "IDENTIFIER (x)",
        "lake.sales.IDENTIFIER('t')",
        "IDENTIFIER('t' || '')",
        "IDENTIFIER(:p)",
    ],
)
@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE {} AS SELECT 1 AS a",
        "CREATE OR REPLACE TABLE {} USING parquet AS SELECT 1 AS a",
        "CREATE VIEW {} AS SELECT 1 AS a",
        "CREATE OR REPLACE VIEW {} AS SELECT a FROM m",
    ],
)
def test_a_name_that_spark_computes_is_no_target(name: str, text: str) -> None:
    """Spark makes or replaces the table `t`, not a table `identifier` with a column."""
    body = document(["lake", "sales"])
    assert isinstance(
        answered(Rewriter(catalog_of([body])), text.format(name), policy_set_of([body]), "spark"), RewriteRefused
    )


@pytest.mark.parametrize("text", [
    "CREATE TABLE new (a INT)", "CREATE TABLE sales.new (a INT NOT NULL DEFAULT 1, b VARCHAR)", "CREATE TABLE IF NOT EXISTS lake.sales.new (a INT, b DECIMAL(9, 2))",
    "CREATE OR REPLACE TABLE new (a INT)",
])  # fmt: skip
@pytest.mark.parametrize("dialect", ["duckdb", "trino", "bigquery"])
def test_a_new_table_of_columns_is_created(dialect: str, text: str) -> None:
    body = document(["lake", "sales"])
    assert answered(Rewriter(catalog_of([body])), text, policy_set_of([body]), dialect) == text


@pytest.mark.parametrize(("dialect", "text"), [
    *((dialect, text) for dialect in ("duckdb", "trino", "bigquery", "spark") for text in (
        "CREATE OR REPLACE TABLE t (a INT)", "CREATE TABLE IF NOT EXISTS sales.t (a INT)", "CREATE TABLE new (a INT REFERENCES t (a))", "CREATE TABLE new (a INT DEFAULT (SELECT MAX(a) FROM t))",
        "CREATE TABLE new (a VARCHAR DEFAULT CURRENT_USER)", "CREATE TABLE new (a INT DEFAULT secrets(1))", "CREATE TABLE new LIKE t", "CREATE TABLE new (LIKE t)", "CREATE TABLE new", "CREATE TABLE new ()",
        "CREATE TABLE new (a INT, FOREIGN KEY (a) REFERENCES t (a))", "CREATE EXTERNAL TABLE new (a INT)", "CREATE TABLE new (a INT) LOCATION 's3://lake/t'", "CREATE TABLE information_schema.new (a INT)",
    )),
    ("spark", "CREATE TABLE new (a INT)"), ("spark", "CREATE TABLE new (a INT) USING csv OPTIONS (path 's3://lake/t')"), ("trino", "CREATE TABLE new (a INT) WITH (external_location = 's3://lake/t')"),
    ("bigquery", "CREATE TABLE new (a INT64) OPTIONS (uris = ['gs://lake/t'])"), ("duckdb", "CREATE TABLE new (a VARCHAR DEFAULT user)"), ("duckdb", "CREATE TABLE new (a INT DEFAULT nextval('s'))"),
    ("duckdb", "CREATE TABLE new (a INT, b INT GENERATED ALWAYS AS (stats(a)))"), ("bigquery", "CREATE TABLE new (a STRING DEFAULT SESSION_USER())"), ("duckdb", "CREATE TEMP TABLE sales.new (a INT)"),
])  # fmt: skip
def test_a_new_table_that_could_hold_or_ask_more_is_refused(dialect: str, text: str) -> None:
    body = document(["lake", "sales"])
    assert isinstance(answered(Rewriter(catalog_of([body])), text, policy_set_of([body]), dialect), RewriteRefused)
