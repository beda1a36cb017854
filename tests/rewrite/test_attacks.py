"""Texts that an engine reads otherwise than the parser, and texts that take the parser long."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from support.oracles.equivalence import service_of
from support.rewriting import code_of, recorded_service

from pdp.engines.row_access.policies import PolicyBody
from pdp.rewrite import errors
from pdp.rewrite.process.local import RewriteRequest, answers
from pdp.rewrite.visible_relations import AnalyzedText, Analyzer

SERVICE = recorded_service()
BOB = "user:bob@example.com"
LOOKUP = "region IN (SELECT region FROM lake.ref.user_regions WHERE principal = SESSION_USER())"
METADATA_NAMES = ("items$files", "items.files", "information_schema.tables", "x.information_schema.tables")


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ("trino", "SELECT 1 /* /* */ , (SELECT MAX(amount) FROM orders) -- */"),
        ("trino", "SELECT 1 -- \r , (SELECT MAX(amount) FROM orders)"),
        ("duckdb", "SELECT 1 {# , (SELECT MAX(amount) FROM orders) #}"),
        ("duckdb", "SELECT E'a\\'' , (SELECT MAX(amount) FROM orders) , ''"),
        ("duckdb", "SELECT $$a$$"),
        ("trino", "SELECT U&'d\\0061t' FROM items"),
        ("bigquery", "SELECT r'\\' , (SELECT MAX(amount) FROM orders) , '"),
        ("bigquery", "SELECT '''a' , (SELECT 1 FROM orders) , 'b''''"),
        ("spark", "SELECT '${x}' FROM items"),
        ("spark", "SELECT 1 FROM ${t}"),
        ("trino", "SELECT 1 FROM items\u2028 WHERE 1 = 1"),
        ("trino", "SELECT /*+ x */ 1 /* FROM orders"),
        ("spark", "SELECT id FROM\n-- \\\n(SELECT 1 AS id) AS x /*\norders -- */"),
        ("spark", "SELECT 1 -- x\\\n, (SELECT MAX(amount) FROM orders)"),
        ("spark", "SELECT 1 -- x\\\r\n, 2"),
        ("trino", "SELECT 1 -- x\\ \n, 2"),
        ("bigquery", "SELECT 1 # x\\\n, 2"),
    ],
)
def test_a_text_with_two_readings_is_refused(dialect: str, text: str) -> None:
    assert code_of(SERVICE, RewriteRequest(text, dialect, BOB)) == errors.PARSE_ERROR


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM t" + " JOIN t" * 60,
        "SELECT * FROM t" + " JOIN (SELECT 1)" * 40,
        "SELECT " + "date(" * 40 + "1" + ")" * 40,
        "SELECT * FROM " + "(SELECT * FROM " * 20_000 + "t" + ")" * 20_000,
        "SELECT CAST(x AS " + "STRUCT<a " * 20_000 + "INT" + ">" * 20_000 + ")",
        "SELECT * FROM " + "(" * 20_000 + "t" + ")" * 20_000,
        "SELECT " + "NOT " * 20_000 + "x",
        "SELECT " + "- " * 20_000 + "x",
        "SELECT x" + "::int" * 10_000,
        "SELECT a" + ".b" * 20_000,
        "SELECT " + "CASE WHEN 1 THEN " * 5_000 + "1" + " END" * 5_000,
        "SELECT x" + "[1]" * 20_000,
        "SELECT f(" + "x -> " * 10_000 + "1)",
        "FROM t" + " |> WHERE a" * 8_000,
        "SELECT 1" + " UNION ALL SELECT 1" * 5_000,
        "SELECT " + "1+" * 45_000 + "1",
        "SELECT '" + "a" * 200_000 + "'",
        "SELECT * FROM t" + "x" * 90_000,
        "SELECT f(" + "x" * 90_000 + " -> 1)",
    ],
)
@pytest.mark.parametrize("dialect", ["duckdb", "spark", "bigquery", "trino"])
def test_a_deep_or_long_text_is_refused_soon(dialect: str, text: str) -> None:
    start = time.process_time()
    assert code_of(SERVICE, RewriteRequest(text, dialect, BOB)) in (errors.PARSE_ERROR, errors.UNSUPPORTED_STATEMENT)
    assert time.process_time() - start < 2


@pytest.mark.parametrize("dialect", ["bigquery", "spark", "duckdb", "trino"])
@pytest.mark.parametrize(
    "text",
    [
        "SELECT ARRAY(SELECT AS STRUCT * FROM orders) AS a FROM items |> SELECT a",
        "SELECT (SELECT MAX(id) FROM orders) AS a FROM items |> SELECT a",
        "FROM items |> ORDER BY (SELECT MAX(id) FROM orders) |> ORDER BY qty",
        "FROM items |> SELECT * UNION ALL (SELECT * FROM orders)",
        "FROM items |> UNION ALL SELECT * FROM orders",
        "FROM items |> SELECT sku |> JOIN orders ON TRUE",
        "FROM items |> SELECT sku UNION ALL SELECT status FROM orders",
        "FROM items, orders |> SELECT sku",
        "FROM items | > SELECT sku",
        "SELECT * FROM (FROM items |> SELECT sku)",
        "CREATE VIEW v9 AS FROM items |> SELECT sku",
    ],
)
def test_a_pipe_hides_no_table(dialect: str, text: str) -> None:
    codes = {errors.UNSUPPORTED_STATEMENT, errors.PARSE_ERROR}
    request = RewriteRequest(text, dialect, BOB)
    if code_of(SERVICE, request) not in codes:
        assert dialect in ("bigquery", "spark")
        assert SERVICE.rewrite(request).count("region = 'US'") == text.count("orders")


def test_a_pipe_in_a_text_or_comment_is_no_pipe() -> None:
    text = "SELECT '|>' AS x FROM items -- |>"
    assert SERVICE.rewrite(RewriteRequest(text, "bigquery", BOB)) == text


def test_a_plain_pipe_of_one_table_is_filtered() -> None:
    sql = SERVICE.rewrite(
        RewriteRequest("FROM orders AS o |> WHERE amount > 4 |> SELECT o.id, status", "bigquery", BOB)
    )
    assert sql.startswith("FROM (SELECT * FROM orders WHERE region = 'US') AS o |> WHERE")


@pytest.mark.parametrize(
    ("filter_text", "accepted"),
    [
        ("region = 'US'", True), ("FALSE) OR (1=1", False), ("region = 'US'; SELECT 1", False), ("SELECT TRUE", False),
        ("amount", False), ("1", False), ("COUNT(*) > 1", False), ("RAND() > 0.5", False), ("region = ?", False),
        ("nosuch = 1", False), ("region IN (SELECT region FROM customers)", False), ("region = 'US' -- x", True),
        ("EXISTS (SELECT 1 FROM nosuch)", False), ("reflect('a', 'b') = 'c'", False), ("region = 'a' /* x", False),
    ],
)  # fmt: skip
def test_a_filter_is_a_single_condition_on_known_columns(filter_text: str, accepted: bool) -> None:
    body = {"id": "p", "table": "lake.sales.orders", "grantees": [BOB], "filter": filter_text, "dialect": "duckdb"}
    request = {"sql": "SELECT id FROM orders", "dialect": "duckdb", "principal": BOB, "policies": [body]}
    answer = SERVICE.answer(json.dumps(request).encode())
    assert ("sql" in answer) == accepted, answer
    if not accepted:
        assert answer["error"]["code"] == errors.FILTER_INVALID


@pytest.mark.parametrize("dialect", ["duckdb", "trino", "spark", "bigquery"])
@pytest.mark.parametrize("name", ["o'neil@example.com", "a\\' OR 1=1 --@example.com", "x\\@example.com"])
def test_the_name_of_a_caller_stays_a_literal(dialect: str, name: str) -> None:
    import sqlglot  # noqa: PLC0415  the test reads what the rewriter wrote

    sql = SERVICE.rewrite(RewriteRequest("SELECT salary FROM lake.hr.salaries", dialect, f"user:{name}"))
    literals = [literal.this for literal in sqlglot.parse_one(sql, read=dialect).find_all(sqlglot.exp.Literal)]
    assert literals == [name]


def test_a_name_with_control_characters_is_refused() -> None:
    request = RewriteRequest("SELECT salary FROM lake.hr.salaries", "duckdb", "user:a\n@example.com")
    assert code_of(SERVICE, request) == errors.FILTER_INVALID


def test_an_unforeseen_error_refuses_one_text_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    analyze = Analyzer.analyze

    def broken(self: Analyzer, text: str, *more: Any) -> AnalyzedText:
        if "sku" in text:
            raise AssertionError("a secret of the text")
        return analyze(self, text, *more)

    monkeypatch.setattr(Analyzer, "analyze", broken)
    texts = ["SELECT id FROM orders", 'SELECT "sku" FROM items', "SELECT id FROM orders"]
    lines = [json.dumps({"sql": text, "dialect": "duckdb", "principal": BOB}).encode() for text in texts]
    first, second, third = map(json.loads, answers(recorded_service(), lines))
    assert second["error"]["code"] == errors.PARSE_ERROR
    assert first == third
    assert "sql" in first
    assert "AssertionError" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("SELECT * FROM `lake.sales.INFORMATION_SCHEMA.TABLES`", ""),
        ("SELECT * FROM `lake.sales.INFORMATION_SCHEMA.JOBS`", errors.METADATA_TABLE),
        ("SELECT * FROM `lake.sales.orders.x.y`", errors.UNKNOWN_RELATION),
    ],
)
def test_a_long_name_in_quotes_is_no_crash(text: str, code: str) -> None:
    assert code_of(SERVICE, RewriteRequest(text, "bigquery", BOB)) == code


@pytest.mark.parametrize(
    "text",
    [
        "SELECT o.id FROM items AS lake, `lake.sales.orders` AS o",
        "SELECT * FROM items AS sales, `sales.orders`",
        "SELECT * FROM items AS lake, `lake.sales`.orders",
        "SELECT * FROM items AS lake, lake.`sales.orders`",
        "SELECT * FROM items AS sales CROSS JOIN `sales.orders` o",
        "SELECT * FROM items AS sales INNER JOIN `sales.orders` USING (id)",
        "SELECT * FROM items AS sales, sales.orders FOR SYSTEM_TIME AS OF CURRENT_TIMESTAMP()",
        "SELECT * FROM items AS sales, sales.orders AS o FOR SYSTEM_TIME AS OF CURRENT_TIMESTAMP()",
        "SELECT * FROM items AS sales, sales.orders AS `o` FOR SYSTEM_TIME AS OF CURRENT_TIMESTAMP()",
        "SELECT * FROM items AS sales, sales.orders PIVOT (SUM(amount) FOR region IN ('US'))",
        "SELECT * FROM items AS sales, sales.orders TABLESAMPLE SYSTEM (10 PERCENT)",
        "SELECT (SELECT MAX(x.id) FROM items AS sales, `sales.orders` x) AS m FROM items",
    ],
)
def test_a_path_that_can_be_a_table_is_refused(text: str) -> None:
    assert code_of(SERVICE, RewriteRequest(text, "bigquery", BOB))


@pytest.mark.parametrize(
    "path", ["o.tags", "`o`.tags", "o.`tags` AS t", "UNNEST(o.tags) AS t", "o.tags WHERE o.id > 1"]
)
def test_an_array_path_of_an_alias_is_read(path: str) -> None:
    sql = SERVICE.rewrite(RewriteRequest(f"SELECT o.id FROM orders AS o, {path}", "bigquery", BOB))
    assert sql == f"SELECT o.id FROM (SELECT * FROM orders WHERE region = 'US') AS o, {path}"


@pytest.mark.parametrize(
    ("dialect", "name"),
    [
        *((dialect, f'"{name}"') for dialect in ("trino", "duckdb") for name in METADATA_NAMES),
        *(("spark", f"`{name}`") for name in METADATA_NAMES),
        ("bigquery", "`items$files`"), ("bigquery", "sales.INFORMATION_SCHEMA.TABLES"), ("bigquery", "`lake.items.files`"),
        ("trino", "lake.information_schema.tables"), ("spark", "items.files"), ("spark", "files"),
        ("trino", "hive.information_schema.tables"), ("duckdb", "lake.sales.items.history"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["VIEW", "TABLE"])
def test_no_relation_gets_a_name_of_metadata(dialect: str, name: str, kind: str) -> None:
    text = f"CREATE {kind} {name} AS SELECT * FROM lake.hr.salaries"
    assert code_of(SERVICE, RewriteRequest(text, dialect, BOB))


@pytest.mark.parametrize(
    ("dialect", "name"),
    [
        *((dialect, f'"{name}"') for dialect in ("trino", "duckdb") for name in ("items$x", *METADATA_NAMES[1:])),
        ("duckdb", '"items$files"'), ("duckdb", "items.files"), ("trino", "items.files"), ("trino", 'lake."sales.items"'),
        ("trino", "hive.information_schema.tables"), ("trino", "a.b.information_schema.tables"),
        ("trino", "system.information_schema.tables"), ("spark", "system.information_schema.tables"),
        ("duckdb", "system.information_schema.jobs"), ("duckdb", "a.system.information_schema.tables"), ("duckdb", "temp.information_schema.tables"),
        ("trino", '"orders$files"'), ("trino", '"v_orders$files"'), ("spark", "orders.files"), ("spark", "v_pay.files"),
        ("spark", "`items.files`"), ("spark", "`items$files`"), ("bigquery", "`items$files`"), ("trino", '"nosuch$files"'),
        ("trino", '"$files"'), ("duckdb", '"sales.items"'), ("duckdb", "'a.csv'"), ("spark", "`lake.sales.items`"),
    ],
)  # fmt: skip
def test_a_name_like_metadata_is_not_read(dialect: str, name: str) -> None:
    assert code_of(SERVICE, RewriteRequest(f"SELECT * FROM {name}", dialect, BOB))


@pytest.mark.parametrize(
    ("dialect", "name"),
    [
        ("trino", '"items$files"'), ("trino", 'sales."items$snapshots"'), ("spark", "lake.sales.items.files"),
        ("trino", "information_schema.tables"), ("duckdb", "lake.information_schema.columns"),
        ("bigquery", "`lake.sales.items`"), ("bigquery", "sales.INFORMATION_SCHEMA.COLUMNS"),
        ("duckdb", "system.information_schema.tables"), ("duckdb", '"SYSTEM"."information_schema"."columns"'),
    ],
)  # fmt: skip
def test_metadata_of_open_tables_is_read(dialect: str, name: str) -> None:
    text = f"SELECT * FROM {name}"
    assert SERVICE.rewrite(RewriteRequest(text, dialect, BOB)) == text


@pytest.mark.parametrize(
    "text",
    [
        "SELECT TRANSFORM(id) USING 'cat' AS (x) FROM items",
        'SELECT TRANSFORM(id) USING "cat" FROM items',
        "SELECT * FROM (SELECT TRANSFORM(*) USING 'cat' FROM items)",
        "SELECT TRANSFORM(id) ROW FORMAT DELIMITED FIELDS TERMINATED BY ',' USING /* x */ 'cat' AS (x) FROM items",
        "FROM items MAP id USING 'cat'",
        "FROM items REDUCE id USING 'cat' AS x",
    ],
)
def test_a_script_of_spark_is_refused(text: str) -> None:
    code = code_of(SERVICE, RewriteRequest(text, "spark", BOB))
    assert code == errors.UNSUPPORTED_STATEMENT


def test_the_function_transform_is_no_script() -> None:
    text = "SELECT transform(array(qty), x -> x + 1) AS y FROM items JOIN items AS i USING (sku)"
    assert SERVICE.rewrite(RewriteRequest(text, "spark", BOB)) == text


CHANGES = [
    "INSERT INTO lake.ref.user_regions VALUES ('bob@example.com', 'EU')",
    "UPDATE ref.user_regions SET region = 'EU'",
    "DELETE FROM lake.ref.user_regions WHERE TRUE",
    "MERGE INTO lake.ref.user_regions AS t USING items AS i ON t.region = i.sku WHEN MATCHED THEN DELETE",
    "CREATE OR REPLACE TABLE lake.ref.user_regions AS SELECT 'bob@example.com' AS principal, 'EU' AS region",
    "CREATE OR REPLACE VIEW lake.ref.user_regions AS SELECT 'bob@example.com' AS principal, 'EU' AS region",
    "TRUNCATE TABLE lake.ref.user_regions",
]


@pytest.mark.parametrize("dialect", ["duckdb", "spark", "bigquery", "trino"])
@pytest.mark.parametrize("text", CHANGES)
def test_a_table_that_filters_read_is_not_changed(dialect: str, text: str) -> None:
    assert code_of(SERVICE, RewriteRequest(text, dialect, BOB)) == errors.WRITE_NEEDS_FULL_ACCESS


@pytest.mark.parametrize("text", CHANGES)
def test_who_sees_all_rows_changes_a_table_that_filters_read(text: str) -> None:
    policies = [
        PolicyBody("a", "lake.sales.leads", LOOKUP, ("allUsers",), "duckdb"),
        PolicyBody("b", "lake.sales.leads", "TRUE", (BOB,), "duckdb"),
    ]
    assert not code_of(SERVICE, RewriteRequest(text, "duckdb", BOB, policies=tuple(policies)))
    other = RewriteRequest(text, "duckdb", "user:eve@example.com", policies=tuple(policies))
    assert code_of(SERVICE, other) == errors.WRITE_NEEDS_FULL_ACCESS


def test_other_tables_are_changed() -> None:
    assert not code_of(SERVICE, RewriteRequest("INSERT INTO lake.ref.regions VALUES ('x', 'y')", "duckdb", BOB))


@pytest.mark.parametrize(
    "column", ["_metadata.file_path", "o._metadata.file_name", "_metadata.row_index + 1", "_metadata"]
)
def test_a_hidden_column_of_spark_is_refused_in_every_spelling(column: str) -> None:
    for source in ("orders o", "items JOIN orders AS o ON TRUE", "v_orders o"):
        text = f"SELECT {column} FROM {source}"
        assert code_of(SERVICE, RewriteRequest(text, "spark", BOB)) == errors.HIDDEN_COLUMN, text


def test_a_qualified_row_with_the_name_of_a_column_is_refused() -> None:
    policy = {"id": "p", "table": "lake.ref.user_regions", "grantees": [BOB], "filter": "region = 'US'"}
    service = service_of([policy])
    text = "SELECT ref.user_regions FROM ref.user_regions"
    assert code_of(service, RewriteRequest(text, "duckdb", BOB)) == ""
    other = "SELECT region.user_regions FROM ref.user_regions AS region"
    assert code_of(service, RewriteRequest(other, "duckdb", BOB)) == ""


@pytest.mark.parametrize(
    ("dialect", "visible"),
    [
        (
            "duckdb",
            "(SELECT CASE WHEN hash(COLUMNS(*)) IS NOT NULL THEN COLUMNS(*) END FROM (SELECT * FROM orders WHERE region = 'US') AS _rap_rows OFFSET 0)",
        ),
        ("spark", "(SELECT * FROM (SELECT * FROM orders WHERE region = 'US') TABLESAMPLE (100 PERCENT))"),
    ],
)
def test_a_sample_of_rows_takes_visible_rows(dialect: str, visible: str) -> None:
    sql = SERVICE.rewrite(RewriteRequest("SELECT id FROM orders TABLESAMPLE (3 ROWS)", dialect, BOB))
    assert f"(SELECT * FROM {visible} TABLESAMPLE (3 ROWS)) AS orders" in sql
    share = SERVICE.rewrite(RewriteRequest("SELECT id FROM orders TABLESAMPLE (10 PERCENT)", dialect, BOB))
    assert (
        f"(SELECT * FROM {visible} TABLESAMPLE {'(10 PERCENT)' if dialect == 'spark' else 'bernoulli(10%)'})" in share
    )


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ("bigquery", "SELECT * FROM sales.`INFORMATION_SCHEMA`.`ROW_ACCESS_POLICIES`"),
        ("bigquery", "SELECT * FROM `lake.sales.INFORMATION_SCHEMA.JOBS`"),
        ("spark", "SELECT * FROM `information_schema`.`column_statistics`"),
        ("spark", "SELECT TRANSFORM(id) USING 'cat' AS x FROM orders"),
        ("duckdb", 'CREATE VIEW "items$files" AS SELECT * FROM orders'),
        ("trino", 'CREATE VIEW "orders$files" AS SELECT 1 AS x'),
        ("duckdb", "INSERT INTO lake.ref.user_regions VALUES ('bob@example.com', 'EU')"),
        ("duckdb", "UPDATE lake.ref.user_regions SET principal = 'bob@example.com'"),
        ("bigquery", "SELECT x FROM items AS lake, `lake.sales.orders` AS x"),
        ("bigquery", "FROM items |> CALL orders()"),
    ],
)
def test_known_attacks_stay_refused(dialect: str, text: str) -> None:
    body = {"id": "p", "table": "orders", "grantees": [BOB], "filter": LOOKUP, "dialect": "duckdb"}
    service = service_of([{**body, "table": "lake.sales.orders"}])
    assert code_of(service, RewriteRequest(text, dialect, BOB)) != ""


@pytest.mark.parametrize("twice", [
    {"principal": "user:bob@example.com"}, {"sql": "SELECT 1"}, {"groups": []}, {"roles": ["etl"]}, {"claims": {}},
    {"authenticated": False}, {"policies": []}, {"dialect": "trino"},
])  # fmt: skip
@pytest.mark.parametrize("last", [True, False])
def test_a_key_that_a_request_has_twice_is_refused(twice: dict[str, Any], last: bool) -> None:
    request = {"sql": "SELECT 1", "dialect": "duckdb", "principal": "user:alice@example.com", "groups": ["a"],
               "roles": [], "claims": {"a": "b"}, "authenticated": True, "policies": []}  # fmt: skip
    parts = [json.dumps(one)[1:-1] for one in ((request, twice) if last else (twice, request))]
    lines = [json.dumps(request).encode(), f"{{{','.join(parts)}}}".encode()]
    once, double = map(json.loads, answers(recorded_service(), lines))
    assert "sql" in once
    assert double["error"] == {"code": "invalid_argument", "message": f"duplicate key `{next(iter(twice))}`"}


@pytest.mark.parametrize("claims", ['{"a":"1","a":"2"}', r'{"a":"1","\u0061":"2"}', '{"a":"","b":"","a":""}'])
def test_a_claim_that_a_request_has_twice_is_refused(claims: str) -> None:
    line = f'{{"sql":"SELECT 1","dialect":"duckdb","principal":"user:a@x.com","claims":{claims}}}'
    (answer,) = map(json.loads, answers(recorded_service(), [line.encode()]))
    assert answer["error"]["message"] == "duplicate key `a`"
