"""SQL of callers on Spark: visible rows alone, and no way around them by text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.rewriting import FOLDER, POLICIES, plain_value, sorted_rows
from support.servers.spark_tables import SparkTables, recorded_tables

from pdp.errors import ConfigError, InvalidArgument
from pdp.lake import enforce
from pdp.rewrite.errors import RewriteRefused

pytestmark = [pytest.mark.spark, pytest.mark.process]
BOB = "user:bob@example.com"
VISIBLE = [[3, "US", 300], [6, "US", 650]]
MASKS = [
    {"id": "m", "table": "lake.sales.orders", "column": "status", "grantees": ["allUsers"], "kind": "hash"},
    {"id": "n", "table": "lake.hr.salaries", "column": "email", "grantees": ["domain:example.com"], "kind": "partial"},
    {"id": "o", "table": "lake.hr.salaries", "column": "salary", "grantees": ["allUsers"], "kind": "null"},
    {
        "id": "p",
        "table": "lake.hr.salaries",
        "column": "dept",
        "grantees": ["allUsers"],
        "kind": "constant",
        "expression": "x",
    },
]
ATTACKS = [
    "SELECT * FROM lake.sales.orders VERSION AS OF {snapshot}",
    "SELECT * FROM lake.sales.orders TIMESTAMP AS OF now()",
    "SELECT * FROM lake.sales.orders.snapshot_id_{snapshot}",
    "SELECT * FROM lake.sales.orders.branch_main",
    "SELECT * FROM lake.sales.orders.files",
    "SELECT * FROM lake.sales.orders.partitions",
    "SELECT * FROM lake.sales.`orders.files`",
    "SELECT * FROM IDENTIFIER('lake.sales.orders')",
    "SELECT * FROM IDENTIFIER('lake.' || 'sales.orders')",
    "EXECUTE IMMEDIATE 'SELECT * FROM lake.sales.orders'",
    "BEGIN SELECT * FROM lake.sales.orders; END",
    "BEGIN DECLARE x = 1; SELECT * FROM orders; END",
    "SELECT * FROM parquet.`{folder}/sales/orders/data`",
    "SELECT * FROM iceberg.`{folder}/sales/orders`",
    "SELECT * FROM text.`/etc/passwd`",
    "SELECT * FROM read_files('{folder}/sales/orders/data')",
    "SELECT *, _file, _pos FROM lake.sales.orders",
    "SELECT input_file_name() FROM lake.sales.orders",
    "SELECT reflect('java.lang.System', 'getenv') FROM items",
    "SELECT java_method('java.lang.Runtime', 'getRuntime') FROM items",
    "SELECT TRANSFORM(id) USING 'cat' AS (x) FROM orders",
    "SELECT '${{spark.sql.catalog.lake.warehouse}}' FROM items",
    "SELECT 1 FROM items -- \\\n; SELECT * FROM orders",
    "SELECT 1 /* /* */ , (SELECT MAX(amount) FROM orders) -- */",
    "CREATE TEMPORARY VIEW items AS SELECT * FROM lake.ref.regions",
    "CREATE OR REPLACE TEMP VIEW x AS SELECT 1 AS a",
    "/* x */ CREATE GLOBAL TEMPORARY VIEW x AS SELECT 1 AS a",
    "CREATE TEMPORARY VIEW x USING parquet OPTIONS (path '{folder}/sales/orders/data')",
    "CREATE TABLE lake.sales.copied AS SELECT * FROM orders VERSION AS OF {snapshot} WHERE region = 'EU'",
    "CACHE TABLE c AS SELECT * FROM lake.sales.orders",
    "UNCACHE TABLE orders",
    "SET spark.sql.caseSensitive = true",
    "USE lake.hr",
    "SHOW CREATE TABLE lake.sales.orders",
    "DESCRIBE EXTENDED lake.sales.orders",
    "EXPLAIN EXTENDED SELECT * FROM orders",
    "ANALYZE TABLE lake.sales.orders COMPUTE STATISTICS FOR ALL COLUMNS",
    "CALL lake.system.rollback_to_snapshot('sales.orders', {snapshot})",
    "ALTER TABLE lake.sales.orders RENAME TO lake.sales.x",
    "DROP TABLE lake.sales.orders",
    "TRUNCATE TABLE lake.sales.orders",
    "INSERT INTO lake.ref.user_regions VALUES ('bob@example.com', 'EU')",
    "UPDATE lake.sales.orders SET region = 'US'",
    "MERGE INTO lake.sales.orders t USING items s ON t.id = s.order_id WHEN MATCHED THEN UPDATE SET region = 'US'",
    "INSERT OVERWRITE LOCAL DIRECTORY '{folder}/out' SELECT * FROM orders",
    "FROM orders INSERT INTO sink SELECT id, region INSERT INTO daily SELECT region, id",
    "TABLE lake.sales.orders",
    "FROM lake.sales.orders",
    "FROM lake.sales.orders |> SELECT *",
    "VALUES ((SELECT MAX(amount) FROM orders), (SELECT MIN(region) FROM orders))",
    "WITH o AS (SELECT * FROM lake.sales.orders) SELECT * FROM o",
    "SELECT * FROM (SELECT * FROM `LAKE`.`Sales`.`ORDERS`)",
    "SELECT (SELECT collect_list(region) FROM orders) AS r",
    "SELECT * FROM items i, LATERAL (SELECT * FROM orders o WHERE o.id <> i.order_id)",
    "SELECT * FROM lake.sales.orders TABLESAMPLE (100 PERCENT)",
    "SELECT * FROM orders WHERE 1 = 1 OR region = 'EU'",
    "SELECT id FROM orders UNION ALL SELECT id FROM lake.sales.orders",
]
SECRETS = {"JP", "EU", 900, 700, 100}
"""Values of hidden rows of the orders."""


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> SparkTables:
    return recorded_tables(tmp_path_factory)


@pytest.fixture(autouse=True)
def policies() -> Iterator[None]:
    enforce.use_policies(POLICIES)
    yield
    enforce._services.clear()


def rows(tables: SparkTables, text: str, principal: str = BOB, groups: tuple[str, ...] = ()) -> list[list[Any]]:
    found = enforce.sql(tables.session, text, principal, groups).collect()
    return sorted_rows([list(map(plain_value, row)) for row in found])


@contextmanager
def changed(tables: SparkTables, name: str, value: str) -> Iterator[None]:
    tables.session.conf.set(name, value)
    try:
        yield
    finally:
        tables.session.conf.unset(name)


def test_a_caller_gets_the_visible_rows(tables: SparkTables) -> None:
    text = "SELECT id, region, amount FROM orders"
    assert rows(tables, text) == VISIBLE
    assert [row[1] for row in rows(tables, text, "user:carol@example.com", ("eu@example.com",))] == ["EU"] * 3
    assert rows(tables, text, "user:erin@example.com") == []
    assert len(rows(tables, "SELECT * FROM items")) == 8


def test_no_text_shows_a_hidden_row(tables: SparkTables, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException  # noqa: PLC0415  an extra

    snapshot = tables.session.sql("SELECT snapshot_id FROM lake.sales.orders.snapshots").first()[0]
    folder = tables.session.conf.get("spark.sql.catalog.lake.warehouse")
    refused, failed = 0, []
    for attack in ATTACKS:
        text = attack.format(snapshot=snapshot, folder=folder)
        try:
            found = rows(tables, text)
        except RewriteRefused:
            refused += 1
            continue
        except PySparkException as error:
            failed.append(f"{text}: {error}")
            continue
        shown = {value for row in found for value in _flat(row)}
        assert not shown & SECRETS, (text, found)
    assert refused > 35
    assert len(failed) <= 2, failed  # texts that Spark does not read
    assert tables.execute("SELECT count(*), max(region) FROM lake.sales.orders") == [[8, "US"]]
    assert tables.execute("SELECT * FROM lake.sales.copied") == []  # a copy of visible rows alone
    tables.execute("DROP TABLE lake.sales.copied")


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for part in value:
            yield from _flat(part)
    else:
        yield value


def test_masks_hold_on_spark(tables: SparkTables, tmp_path: Path) -> None:
    document = json.loads((FOLDER / "row_access.json").read_text("utf-8"))
    document["masks"] = MASKS
    document["policies"] = [one for one in document["policies"] if one["table"] != "lake.hr.salaries"]
    (tmp_path / "masks.json").write_text(json.dumps(document))
    enforce.use_policies(tmp_path / "masks.json")
    found = rows(tables, "SELECT email, salary, dept FROM lake.hr.salaries WHERE salary IS NULL AND dept = 'x'")
    assert len(found) == 5
    assert {row[0] for row in found} == {"****", "****.com", "****mple"}
    assert rows(tables, "SELECT email FROM lake.hr.salaries WHERE email = 'bob@example.com' OR salary > 0") == []
    shown = {row[0] for row in rows(tables, "SELECT status FROM orders WHERE status <> 'private'")}
    assert {len(value) for value in shown} == {64}


@pytest.mark.parametrize(
    "principal", ["", "bob", "user:oidc~bob", "allUsers", "group:eu@example.com", "user:a b@c.d", "user:"]
)
def test_a_caller_without_an_address_is_refused(tables: SparkTables, principal: str) -> None:
    with pytest.raises(InvalidArgument):
        enforce.sql(tables.session, "SELECT 1", principal)


@pytest.mark.parametrize("texts", [{"groups": "eu@example.com"}, {"roles": "contractor"}, {"roles": ""}])
def test_a_text_is_no_list(tables: SparkTables, texts: dict[str, str]) -> None:
    """Its letters would be the names: a policy that restricts the role would not."""
    with pytest.raises(InvalidArgument, match="give a list"):
        enforce.sql(tables.session, "SELECT 1", BOB, **texts)  # type: ignore[arg-type]


def test_without_policies_no_text_runs(tables: SparkTables) -> None:
    enforce._services.clear()
    with pytest.raises(ConfigError, match="no row policies"):
        enforce.sql(tables.session, "SELECT 1", BOB)


@pytest.mark.parametrize("name", sorted(enforce._WANTED))
def test_a_session_that_reads_texts_differently_is_refused(tables: SparkTables, name: str) -> None:
    value = "LEGACY" if name.endswith("Policy") else "true"
    with changed(tables, name, value), pytest.raises(ConfigError, match=name):
        enforce.sql(tables.session, "SELECT 1", BOB)


def test_a_session_in_another_schema_is_refused(tables: SparkTables) -> None:
    tables.session.sql("USE lake.hr")
    try:
        with pytest.raises(ConfigError, match=r"lake\.sales"):
            enforce.sql(tables.session, "SELECT * FROM items", BOB)
    finally:
        tables.session.sql("USE lake.sales")


def test_a_temporary_view_or_a_catalog_with_a_known_name_is_refused(tables: SparkTables) -> None:
    tables.session.range(3).createOrReplaceTempView("Items")
    with pytest.raises(ConfigError, match="temporary view"):
        enforce.sql(tables.session, "SELECT * FROM items", BOB)
    tables.session.catalog.dropTempView("Items")
    catalog = changed(tables, "spark.sql.catalog.hr", "org.apache.iceberg.spark.SparkCatalog")
    with catalog, pytest.raises(ConfigError, match="catalog"):
        enforce.sql(tables.session, "SELECT * FROM hr.emp", BOB)


def test_changes_of_open_tables_read_visible_rows(tables: SparkTables) -> None:
    rows(tables, "INSERT INTO sink SELECT id, region FROM orders")
    assert tables.execute("SELECT id FROM lake.sales.sink WHERE note <> 'seed' ORDER BY id") == [[3], [6]]
    tables.restore("sink")


def test_roles_and_claims_of_a_caller_count(tables: SparkTables, tmp_path: Path) -> None:
    """Roles that the service does not state are unknown: a restrictive policy for a role holds then."""
    every = {"table": "items", "grantees": ["allUsers"], "dialect": "spark"}
    policies = [
        {"id": "own", **every, "filter": "sku = current_claim('sku')"},
        {"id": "all", **every, "grantees": ["role:auditor"], "filter": "TRUE"},
        {"id": "few", **every, "grantees": ["role:guest"], "filter": "qty > 1000", "restrictive": True},
    ]
    columns = {"order_id": "INT", "sku": "STRING", "qty": "INT"}
    body = {"default": ["lake", "sales"], "tables": {"items": {"columns": columns}}, "policies": policies}
    (tmp_path / "rows.json").write_text(json.dumps(body))
    enforce.use_policies(tmp_path / "rows.json")
    every_row = tables.execute("SELECT sku FROM lake.sales.items")

    def seen(**who: Any) -> int:
        return len(enforce.sql(tables.session, "SELECT sku FROM items", BOB, **who).collect())

    sku = every_row[0][0]
    assert seen(roles=["auditor"]) == seen(roles=["role:auditor"]) == len(every_row) > 1
    assert seen() == seen(claims={"sku": sku}) == seen(roles=["guest", "auditor"]) == seen(roles=()) == 0
    assert seen(roles=(), claims={"sku": sku}) == [row[0] for row in every_row].count(sku) > 0
