"""Constructs of DuckDB that read a table with hidden rows: the rows are those of a filtered table, or a refusal."""

from __future__ import annotations

import pytest
from support.oracles.equivalence import DATA, service_of
from support.oracles.secure_views import filtered_database
from support.rewriting import code_of, full_database, rows_of

from pdp.rewrite.process.local import RewriteRequest

BOB = "user:bob@example.com"
POLICIES = [
    {"id": "a", "table": "lake.sales.orders", "grantees": [BOB], "filter": "region = 'US'", "dialect": "duckdb"},
    {"id": "b", "table": "lake.archive.orders", "grantees": [BOB], "filter": "region = 'EU'", "dialect": "duckdb"},
    {
        "id": "c",
        "table": "lake.sales.v_agg",
        "grantees": ["user:eve@example.com"],
        "filter": "n > 0",
        "dialect": "duckdb",
    },
]
SERVICE = service_of(POLICIES)
FULL, FILTERED = full_database(DATA), filtered_database(POLICIES, "bob")
STATEMENTS = [
    "FROM items, LATERAL (FROM orders)",
    "SELECT (FROM orders SELECT max(amount)) AS m",
    "SELECT * FROM (PIVOT orders ON region USING sum(amount))",
    "PIVOT orders ON region USING sum(amount)",
    "PIVOT (SELECT region, amount FROM orders) ON region USING sum(amount)",
    "PIVOT orders ON region USING sum(amount) GROUP BY status",
    "UNPIVOT (SELECT id, amount FROM orders) ON amount INTO NAME k VALUE v",
    "UNPIVOT orders ON amount, id INTO NAME k VALUE v",
    "SELECT o.id FROM orders o POSITIONAL JOIN items",
    "SELECT o.id, i.sku FROM items i ASOF JOIN orders o ON i.order_id >= o.id",
    "SELECT {'a': (SELECT MAX(amount) FROM orders)} AS x",
    "SELECT MAP {'a': (SELECT MAX(amount) FROM orders)} AS x",
    "SELECT [x + 1 for x in [(SELECT MAX(amount) FROM orders)]] AS x",
    "SELECT ARRAY(SELECT amount FROM orders) AS x",
    "SELECT sum(qty) OVER w AS x FROM items WINDOW w AS (ORDER BY (SELECT MAX(amount) FROM orders))",
    "SELECT CAST((SELECT MAX(amount) FROM orders) AS VARCHAR) AS x",
    "SELECT (SELECT MAX(amount) FROM orders)::VARCHAR AS x",
    "SELECT (SELECT MAX(amount) FROM orders)",
    "SELECT (SELECT MAX(amount) FROM orders) + 1, 2, (SELECT MAX(amount) FROM orders)",
    "SELECT sku, (SELECT MAX(amount) FROM orders) FROM items",
    "SELECT id IN (SELECT id FROM orders) FROM items, orders",
    "SELECT DATE '2024-01-01' + INTERVAL ((SELECT MAX(amount) FROM orders)) DAY AS x",
    "SELECT substring('abcdefgh' FROM (SELECT MAX(amount) FROM orders) - 640) AS x",
    "SELECT sku FROM items LIMIT (SELECT MAX(amount) FROM orders) - 645",
    "SELECT sku FROM items ORDER BY sku OFFSET (SELECT count(*) FROM orders)",
    "VALUES ((SELECT MAX(amount) FROM orders))",
    "SELECT count(*) AS x FROM items GROUP BY (SELECT MAX(amount) FROM orders)",
    "SELECT count(*) FILTER (WHERE order_id IN (SELECT id FROM orders)) AS x FROM items",
    "SELECT list(sku ORDER BY (SELECT count(*) FROM orders o WHERE o.id = order_id), sku) AS x FROM items",
    "SELECT * FROM generate_series(1, (SELECT MAX(amount) FROM orders))",
    "SELECT * FROM range((SELECT MAX(amount) FROM orders))",
    "SELECT * FROM unnest((SELECT list(amount ORDER BY amount) FROM orders)) t(x)",
    "SELECT unnest((SELECT list(amount ORDER BY amount) FROM orders)) AS x",
    "INSERT INTO sink VALUES (1, (SELECT MAX(amount) FROM orders))",
    "UPDATE items SET qty = o.amount FROM orders o WHERE o.id = order_id",
    "UPDATE items SET qty = (SELECT MAX(amount) FROM orders)",
    "DELETE FROM items USING orders WHERE orders.id = items.order_id",
    "MERGE INTO sink USING orders ON sink.id = orders.id WHEN MATCHED THEN UPDATE SET note = (SELECT max(status) FROM orders)",
    "MERGE INTO sink USING orders USING (id) WHEN NOT MATCHED THEN INSERT VALUES (orders.id, orders.region)",
    "CREATE TABLE lake.sales.x1 AS FROM orders",
    "CREATE TEMP TABLE x1 AS FROM orders",
    "SELECT x.id FROM (orders JOIN items ON id = order_id) x",
    "SELECT id FROM (orders JOIN items ON id = order_id)",
    "SELECT lake.id FROM orders AS lake",
    "SELECT sales.id FROM orders AS sales, lake.archive.orders AS lake WHERE lake.id > sales.id",
    "FROM orders UNION ALL BY NAME FROM lake.archive.orders",
    "SELECT id FROM orders UNION SELECT id FROM archive.orders ORDER BY id",
    "WITH orders AS (SELECT 1 AS id) DELETE FROM sink WHERE id IN (SELECT id FROM orders)",
    "WITH RECURSIVE x(a) AS (SELECT id FROM orders UNION ALL SELECT a + 100 FROM x WHERE a < 50) SELECT a FROM x",
    "WITH RECURSIVE orders AS (SELECT 1 AS id UNION ALL SELECT o.id + 1 FROM orders o WHERE o.id < 3) SELECT id FROM orders",
    "WITH orders AS (SELECT * FROM orders) SELECT id FROM orders",
    "WITH orders AS (SELECT * FROM sales.orders), x AS (SELECT * FROM orders) SELECT id FROM x",
    "SELECT COLUMNS(c -> c LIKE 'a%') FROM orders",
    "SELECT orders FROM orders",
    "SELECT orders.* FROM lake.sales.orders",
    "SELECT sales.orders FROM sales.orders",
    "SELECT lake.sales.orders AS x, sales.orders.id FROM orders",
    "SELECT o.sku, sales.orders FROM items o, sales.orders",
    "SELECT (SELECT sales.orders) AS x FROM orders",
    "SELECT count(*) AS n FROM orders TABLESAMPLE 1 ROWS",
    "SELECT count(*) AS n FROM orders o TABLESAMPLE reservoir(2 ROWS)",
    "SELECT count(*) AS n FROM orders TABLESAMPLE (2 ROWS)",
    "SELECT count(*) AS n FROM v_orders TABLESAMPLE 1 ROWS",
    "SELECT struct_pack(o := orders) AS x FROM orders",
    "SELECT row_to_json(orders) AS x FROM orders",
    "SELECT rowid FROM items",
    "SELECT region, n FROM v_agg",
    "SELECT x.id FROM v_orders x JOIN v_orders y ON x.id = y.id",
    "SELECT v_orders.id, sales.v_orders.amount FROM lake.sales.v_orders",
    "SELECT id FROM orders WHERE lake.sales.orders.region = 'US' AND sales.orders.amount > 0 GROUP BY sales.orders.id, id HAVING max(sales.orders.amount) > 0",
    "SELECT id FROM orders QUALIFY row_number() OVER (ORDER BY sales.orders.amount) = 1",
    "SELECT (SELECT sales.orders.id) AS x FROM sales.orders",
    "SELECT (SELECT orders.id FROM items LIMIT 1) AS x FROM orders",
    "FROM orders o SEMI JOIN items i ON o.id = i.order_id SELECT o.id",
    "SELECT DISTINCT ON (region) region FROM orders ORDER BY region",
    "SELECT * FROM orders USING SAMPLE 100%",
    "SELECT * FROM orders TABLESAMPLE bernoulli(100%) REPEATABLE (3)",
    "SELECT * FROM orders o TABLESAMPLE 100%",
    "SELECT IF((SELECT count(*) FROM orders) > 2, 1, 0) AS x",
    "SELECT CASE (SELECT count(*) FROM orders) WHEN 8 THEN 'leak' ELSE 'ok' END AS x",
    "SELECT COALESCE(NULL, (SELECT MAX(amount) FROM orders)) AS x",
    "SELECT ((SELECT MAX(amount) FROM orders), 1) AS x",
    "SELECT 1 WHERE 700 = ANY (SELECT amount FROM orders)",
    "SELECT 1 WHERE (1, 'EU') IN (SELECT id, region FROM orders)",
    "SELECT TRY_CAST((SELECT MAX(amount) FROM orders) AS INT) AS x",
    "SELECT * FROM items WHERE qty > (SELECT MAX(amount) FROM orders) OR TRUE",
    "SELECT o: id FROM orders",
    "FROM x: orders SELECT x.id",
    "SELECT id FROM orders, (SELECT 1 AS region) x",
    'SELECT 1 AS "AS _rap", (SELECT MAX(amount) FROM orders) FROM items',
    "SELECT (SELECT 'FROM' || max(status) FROM orders), ',' FROM items",
    "SELECT max(amount) FROM (FROM orders) GROUP BY ALL",
    "SELECT (SELECT MAX(amount) FROM orders) IS DISTINCT FROM 3, 4 FROM items",
    "SELECT (SELECT (SELECT MAX(amount) FROM orders) FROM items LIMIT 1) FROM items LIMIT 1",
    "SELECT 1 UNION ALL SELECT (SELECT MAX(amount) FROM orders) UNION ALL SELECT 3",
    "WITH a AS (SELECT (SELECT MAX(amount) FROM orders)) SELECT * FROM a",
    "SELECT * FROM (SELECT 1, (SELECT MAX(amount) FROM orders)) AS t(a, b)",
]
REFUSED = [
    (
        "RAP_UNSUPPORTED_SOURCE",
        "SELECT sum(qty) OVER w FROM items WINDOW w AS (ORDER BY (SELECT MAX(amount) FROM orders))",
    ),
    (
        "RAP_UNSUPPORTED_SOURCE",
        "SELECT 1 + rank() OVER w FROM items WINDOW v AS (ORDER BY (SELECT 1 FROM orders)), w AS (v)",
    ),
    ("RAP_UNSUPPORTED_SOURCE", "SELECT (FROM orders SELECT max(amount))"),
    ("RAP_UNSUPPORTED_SOURCE", "SELECT EXISTS (FROM orders WHERE region = 'EU')"),
    ("RAP_UNSUPPORTED_SOURCE", "SELECT * FROM read_text('/etc/passwd')"),
    ("RAP_UNSUPPORTED_SOURCE", "SELECT * FROM duckdb_views()"),
    ("RAP_UNSUPPORTED_SOURCE", "SELECT * FROM pragma_table_info('orders')"),
    ("RAP_NOT_COVERED", "WITH x AS (PIVOT orders ON region USING sum(amount)) FROM x"),
    ("RAP_WRITE_NEEDS_FULL_ACCESS", "CREATE OR REPLACE TABLE orders AS SELECT 1 AS id"),
    ("RAP_WRITE_NEEDS_FULL_ACCESS", "CREATE TABLE IF NOT EXISTS orders AS SELECT 1 AS id"),
    ("RAP_UNSUPPORTED_STATEMENT", "CREATE TEMP VIEW items AS SELECT * FROM orders"),
    ("RAP_UNSUPPORTED_STATEMENT", "CREATE OR REPLACE VIEW lake.sales.v_orders AS SELECT 1"),
    ("RAP_UNSUPPORTED_STATEMENT", "CREATE MACRO f() AS TABLE SELECT * FROM orders"),
    ("RAP_UNSUPPORTED_STATEMENT", "CREATE TYPE t AS ENUM (SELECT status FROM orders)"),
    ("RAP_UNSUPPORTED_STATEMENT", "SELECT * INTO x FROM orders"),
    ("RAP_AMBIGUOUS_NAME", "WITH RECURSIVE orders AS (SELECT * FROM orders) SELECT id FROM orders"),
    ("RAP_UNKNOWN_RELATION", "SELECT o.id FROM orders o, o.tags"),
    ("RAP_UNKNOWN_RELATION", "SELECT * FROM sqlite_master"),
    ("RAP_UNKNOWN_RELATION", "SELECT * FROM pg_catalog.pg_tables"),
    ("RAP_PARSE_ERROR", "SELECT id FROM orders AS OF TIMESTAMP '2024-01-01'"),
    ("RAP_UNSUPPORTED_FUNCTION", "SELECT getenv('HOME')"),
    ("RAP_UNSUPPORTED_FUNCTION", "SELECT current_setting('threads')"),
    ("RAP_UNSUPPORTED_FUNCTION", "SELECT nextval('s')"),
]


@pytest.mark.parametrize("sql", STATEMENTS)
def test_a_construct_shows_the_rows_of_a_filtered_table(sql: str) -> None:
    rewritten = SERVICE.rewrite(RewriteRequest(sql, "duckdb", BOB))
    assert rows_of(FULL, rewritten)[1] == rows_of(FILTERED, sql)[1], rewritten


@pytest.mark.parametrize(("code", "sql"), REFUSED)
def test_a_construct_is_refused(code: str, sql: str) -> None:
    assert code_of(SERVICE, RewriteRequest(sql, "duckdb", BOB)) == code


@pytest.mark.parametrize("sql", [sql for sql in STATEMENTS if "AS x" not in sql])
def test_no_name_of_a_column_shows_the_filter(sql: str) -> None:
    columns, _ = rows_of(FULL, SERVICE.rewrite(RewriteRequest(sql, "duckdb", BOB)))
    assert not any("region =" in column for column in columns)
