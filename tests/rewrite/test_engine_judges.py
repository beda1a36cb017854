"""Parsers of Spark and BigQuery as judges of what the rewriter reads. `tests/real_trino` has Trino's."""

from __future__ import annotations

import pytest
from support.judging import judge_seconds
from support.oracles.engine_judges import assert_agreement
from support.oracles.parser_judges import taken
from support.rewriting import code_of, recorded_service

from pdp.rewrite import errors
from pdp.rewrite.process.local import RewriteRequest

SERVICE = recorded_service()
BOB = "user:bob@example.com"


@pytest.mark.spark
@pytest.mark.process
@pytest.mark.timeout(600 + 2 * judge_seconds(0))  # Java compiles and starts
def test_spark_sees_no_table_function_or_parameter_that_the_reader_does_not() -> None:
    assert_agreement("spark")


@pytest.mark.long
@pytest.mark.process
@pytest.mark.timeout(1200 + 2 * judge_seconds(0))  # the first run fetches GoogleSQL
def test_bigquery_sees_no_table_function_or_parameter_that_the_reader_does_not() -> None:
    assert_agreement("bigquery")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM TABLE(sequence(1, 3))", "SELECT * FROM table(explode(array(1))) AS t", "SELECT * FROM items, TABLE(range(3))",
        "SELECT * FROM items WHERE qty IN (SELECT 1 FROM TABLE(sequence(1, 3)))", "SELECT * FROM TABLE(TABLE(sequence(1, 3)))",
    ],
)  # fmt: skip
@pytest.mark.parametrize("dialect", ["spark", "bigquery", "duckdb"])
def test_a_function_named_table_is_not_the_function_inside(text: str, dialect: str) -> None:
    """Only Trino calls the inner function. Other engines call `table`, which can be a function of anybody."""
    assert code_of(SERVICE, RewriteRequest(text, dialect, BOB)) in (errors.UNSUPPORTED_SOURCE, errors.PARSE_ERROR)


@pytest.mark.parametrize(
    "word",
    [
        "SELECT x",
        "select x",
        "FROM items",
        "VALUES (1)",
        "VALUES x",
        "WITH x AS (SELECT 1) SELECT * FROM x",
        "TABLE items",
    ],
)
@pytest.mark.parametrize(
    "text",
    [
        "MERGE INTO sink USING {} ON sink.id = 1 WHEN MATCHED THEN UPDATE SET note = 'a'",
        "DELETE FROM sink USING {} WHERE TRUE",
    ],
)
@pytest.mark.parametrize("dialect", ["spark", "bigquery", "duckdb", "trino"])
def test_a_query_behind_using_needs_parentheses(word: str, text: str, dialect: str) -> None:
    """To Spark `select` is the name of a table there, with an alias `x`."""
    assert code_of(SERVICE, RewriteRequest(text.format(word), dialect, BOB)) in (
        errors.PARSE_ERROR,
        errors.UNSUPPORTED_STATEMENT,
    )


@pytest.mark.parametrize(
    "clause",
    [
        "", " OVER ()", " FILTER (WHERE qty > 1)", " FILTER (WHERE qty > 1) OVER ()", " IGNORE NULLS OVER ()", " RESPECT NULLS OVER ()",
        " WITHIN GROUP (ORDER BY qty)", " WITHIN GROUP (ORDER BY qty) FILTER (WHERE EXISTS (SELECT 1 FROM orders))",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "name", ["a.max", "a.b.max", "sum1.e", '"a"."max"', "a.first_value", "a.percentile_cont", "main.a.max"]
)
@pytest.mark.parametrize("dialect", ["spark", "bigquery", "duckdb", "trino"])
def test_a_function_of_a_schema_is_no_function_of_the_engine(name: str, clause: str, dialect: str) -> None:
    """With a clause behind the arguments, the parser reads the call as a column of a table."""
    name = name.replace('"', "`") if dialect in ("spark", "bigquery") else name
    for text in (f"SELECT {name}(qty){clause} FROM items", f"SELECT 1 FROM items ORDER BY {name} (qty){clause}"):
        assert code_of(SERVICE, RewriteRequest(text, dialect, BOB)) in (
            errors.PARSE_ERROR,
            errors.UNSUPPORTED_FUNCTION,
        ), text


@pytest.mark.parametrize(
    "text",
    [
        "SELECT FROM (orders)", "SELECT FROM (items)", "SELECT DISTINCT FROM (items)", "SELECT ALL FROM (items)", "SELECT FROM items",
        "SELECT * FROM (SELECT FROM (items)) AS x", "WITH x AS (SELECT FROM (items)) SELECT * FROM x", "INSERT INTO sink SELECT FROM (items)",
        "SELECT 1 FROM items WHERE EXISTS (SELECT FROM (items))", "SELECT 1 FROM items UNION ALL SELECT FROM (items)", "SELECT /**/ FROM (items)",
    ],
)  # fmt: skip
@pytest.mark.parametrize("dialect", ["spark", "bigquery", "duckdb", "trino"])
def test_a_query_without_columns_is_refused(text: str, dialect: str) -> None:
    """Spark reads `from` as the name of a function, which can be one of anybody."""
    assert code_of(SERVICE, RewriteRequest(text, dialect, BOB)) in (errors.PARSE_ERROR, errors.UNSUPPORTED_STATEMENT)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT sku, FROM (items)", "SELECT sku, FROM (orders)", "SELECT sku, from items", "SELECT sku, FROM (SELECT sku FROM items)",
        "SELECT sku, JOIN (items)", "SELECT sku, WHERE (sku)", "SELECT (FROM (orders))", "SELECT max(FROM (orders))", "SELECT sku,/**/FROM (items)",
        "SELECT * FROM items WHERE sku IN (FROM (orders))", "SELECT 1 FROM items GROUP BY sku, HAVING (TRUE)", "SELECT FROM (SELECT sku FROM items)",
        "SELECT 1 FROM items ORDER BY sku, UNION (SELECT 1)",
    ],
)  # fmt: skip
def test_a_word_of_sql_that_spark_takes_for_a_function_is_refused(text: str) -> None:
    assert code_of(SERVICE, RewriteRequest(text, "spark", BOB))


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ("bigquery", "SELECT sku, FROM items"), ("duckdb", "FROM items"), ("duckdb", "SELECT sku IN (FROM items SELECT sku) FROM items"),
        ("spark", "FROM items SELECT sku"), ("spark", "SELECT * FROM items, orders"), ("spark", "SELECT sku IS DISTINCT FROM qty FROM items"),
        ("spark", "SELECT * FROM items WHERE sku IN (FROM items SELECT sku)"), ("duckdb", "SELECT sku, from items"),
        ("spark", "SELECT substring(sku FROM (1)) FROM items"), ("spark", "SELECT EXTRACT(YEAR FROM (current_date())) FROM items"),
    ],
)  # fmt: skip
def test_other_words_behind_commas_and_parentheses_are_read(dialect: str, text: str) -> None:
    assert code_of(SERVICE, RewriteRequest(text, dialect, BOB)) == ""


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM items, LATERAL orders", "SELECT * FROM items CROSS JOIN LATERAL orders", "SELECT * FROM items, LATERAL explode(sku)",
        "SELECT * FROM items, LATERAL unnest(sku)", "SELECT * FROM items, LATERAL AS x", "SELECT * FROM items JOIN LATERAL orders ON TRUE",
        "SELECT * FROM items, LATERAL x (a)", "SELECT * FROM items WHERE sku IN (SELECT sku FROM items, LATERAL x)", "SELECT * FROM LATERAL x",
        "SELECT * FROM items LEFT JOIN lateral range(a) ON TRUE", "SELECT * FROM items, LATERAL posexplode(a)",
    ],
)  # fmt: skip
def test_a_table_named_lateral_is_no_word_of_sql(text: str) -> None:
    assert code_of(SERVICE, RewriteRequest(text, "trino", BOB))


@pytest.mark.parametrize("dialect", ["spark", "bigquery", "duckdb", "trino"])
@pytest.mark.parametrize(
    "text",
    [
        "SELECT *FROM items, LATERAL (orders * FROMSELECT) o", "SELECT * FROM items, LATERAL (orders) o", "SELECT * FROM items, LATERAL ((orders)) o",
        "SELECT * FROM items, LATERAL (items, orders) o", "SELECT * FROM items, LATERAL (items JOIN orders) o", "SELECT * FROM items, LATERAL (1 * 2) o",
        "SELECT * FROM LATERAL (orders * x) o", "SELECT * FROM items, LATERAL(orders) o",
    ],
)  # fmt: skip
def test_lateral_before_no_query_is_refused(text: str, dialect: str) -> None:
    """To Spark, this is a function `lateral` of anybody."""
    assert code_of(SERVICE, RewriteRequest(text, dialect, BOB))


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ("trino", "SELECT * FROM items i, LATERAL (SELECT i.sku) AS x(a)"), ("trino", "SELECT * FROM items i CROSS JOIN LATERAL (SELECT 1) AS x(a)"),
        ("spark", "SELECT * FROM items, LATERAL explode(array(1)) AS t(a)"), ("spark", "SELECT * FROM items LATERAL VIEW explode(array(1)) t AS a"),
        ("duckdb", "SELECT * FROM items i, LATERAL (SELECT i.sku) AS x(a)"), ("duckdb", "SELECT * FROM items, LATERAL unnest([1]) AS t(a)"),
        ("spark", "SELECT * FROM items LATERAL VIEW OUTER posexplode(array(1)) t AS p, a"), ("spark", "SELECT * FROM items i, LATERAL (SELECT i.sku)"),
        ("spark", "SELECT * FROM items LATERAL VIEW inline(array(struct(1))) t AS a"),
    ],
)  # fmt: skip
def test_lateral_queries_and_functions_are_read(dialect: str, text: str) -> None:
    assert code_of(SERVICE, RewriteRequest(text, dialect, BOB)) == ""


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO TABLE SELECT 1, 'a'", "INSERT INTO TABLE VALUES (1)", "INSERT INTO TABLE (SELECT 1)", "INSERT INTO TABLE WITH x AS (SELECT 1) SELECT * FROM x",
        "INSERT OVERWRITE TABLE SELECT 1", "INSERT INTO SELECT 1", "INSERT INTO TABLE TABLE items", "insert into table(select sku from items)",
    ],
)  # fmt: skip
@pytest.mark.parametrize("dialect", ["spark", "bigquery", "duckdb", "trino"])
def test_a_change_names_its_table(text: str, dialect: str) -> None:
    """Engines in which TABLE is a name insert into a table `table`, whose rights nobody has asked for."""
    assert code_of(SERVICE, RewriteRequest(text, dialect, BOB))


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO sink FROM items SELECT , orders", "FROM items SELECT, orders", "SELECT , sku FROM items", "SELECT sku,, qty FROM items",
        "SELECT sku FROM items GROUP BY , sku", "SELECT max(, sku) FROM items", "SELECT * FROM items, , orders", "FROM items SELECT DISTINCT, orders",
        "SELECT sku FROM items WHERE qty IN (, 1)", "FROM items SELECT/**/, orders", "WITH x AS (FROM items SELECT, orders) SELECT * FROM x",
    ],
)  # fmt: skip
@pytest.mark.parametrize("dialect", ["spark", "bigquery", "duckdb", "trino"])
def test_a_comma_stands_behind_something(text: str, dialect: str) -> None:
    """The parser skips such a comma. Spark reads `SELECT` before the comma as an alias, and a table behind."""
    assert code_of(SERVICE, RewriteRequest(text, dialect, BOB))


@pytest.mark.parametrize("word", ["INTERSECT", "UNION", "EXCEPT", "MINUS", "FROM", "JOIN", "WHERE", "HAVING"])
@pytest.mark.parametrize(
    "start",
    ["SELECT 1 FROM items GROUP BY", "SELECT 1 FROM items ORDER BY", "SELECT 1 FROM items WHERE", "SELECT sku,"],
)
def test_spark_reads_no_clause_in_place_of_an_expression(start: str, word: str) -> None:
    assert code_of(SERVICE, RewriteRequest(f"{start} {word} ((SELECT 1 FROM orders))", "spark", BOB))


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ("spark", "SELECT IS (sku)"), ("spark", "SELECT AS* FROM (orders)"),
        ("spark", "WITH a AS (FROM FROM (orders)) SELECT * FROM a"), ("spark", "SELECT 1 FROM items GROUP BY ALL (sku)"),
        ("spark", "SELECT 1, LATERAL (SELECT 1) o"), ("trino", "SELECT 1, LATERAL (SELECT 1) o"), ("spark", "SELECT * FROM items, FETCH FIRST"),
        ("trino", "SELECT * FROM items, FETCH FIRST"), ("spark", "SELECT * FROM (VALUES ()) AS t(x)"), ("spark", "SELECT 1 FROM items GROUP BY DISTINCT (sku)"),
        ("bigquery", "SELECT@ARRAY[1] AS a"), ("bigquery", "INSERT OVERWRITE.sink SELECT 1, 'a'"), ("spark", "INSERT OVERWRITE.sink SELECT 1, 'a'"),
        ("bigquery", "INSERT INTO.sink SELECT 1, 'a'"), ("spark", "SELECT * FROM items, LIMIT 1"), ("spark", "SELECT * FROM items, WINDOW w AS (ORDER BY 1)"),
        ("spark", "SELECT * FROM items, TABLESAMPLE (1 ROWS)"), ("trino", "INSERT INTO table.sink SELECT 1"), ("trino", "SELECT * FROM items, OFFSET 1"),
    ],
)  # fmt: skip
def test_a_skipped_word_is_no_name_of_a_table(dialect: str, text: str) -> None:
    assert code_of(SERVICE, RewriteRequest(text, dialect, BOB))


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ("bigquery", "SELECT @a, @b FROM items WHERE sku = @c"), ("trino", "SELECT sku, offset FROM (SELECT sku, 1 AS offset FROM items)"),
        ("duckdb", "SELECT sku, left('a', 1), format('{}', sku) FROM items"), ("spark", "SELECT sku, left('a', 1) FROM items"),
        ("trino", "SELECT sku, format('%s', sku), sku AS start FROM items"), ("spark", "SELECT sku, right('a', 1), format FROM (SELECT sku, 1 AS format FROM items)"),
        ("spark", "INSERT OVERWRITE sink SELECT 1, 'a'"), ("spark", "SELECT sku FROM items ORDER BY sku, qty LIMIT 1"), ("bigquery", "SELECT 1 AS a, 2 AS b,"),
    ],
)  # fmt: skip
def test_such_words_as_columns_and_functions_are_read(dialect: str, text: str) -> None:
    assert code_of(SERVICE, RewriteRequest(text, dialect, BOB)) in ("", errors.WRITE_NEEDS_FULL_ACCESS)


def test_trino_calls_table_functions_in_table() -> None:
    assert code_of(SERVICE, RewriteRequest("SELECT * FROM TABLE(sequence(1, 3))", "trino", BOB)) == ""


@pytest.mark.parametrize(("dialect", "text"), [
    ("spark", "SELECT * FROM items LIMIT, {t}"), ("spark", "SELECT * FROM items LIMIT (a), {t}"), ("spark", "SELECT * FROM items LIMIT (a, b), {t}"),
    ("spark", "FROM items SELECT (a), {t}"), ("spark", "INSERT INTO sink FROM items SELECT (a), {t}"), ("spark", "SELECT * FROM (FROM items SELECT (a), {t})"),
    ("spark", "FROM (SELECT 1) SELECT (a), {t}"), ("spark", "FROM items JOIN sink SELECT (a), {t}"), ("spark", "FROM items TABLESAMPLE (1 ROWS) SELECT (a), {t}"),
    ("spark", "FROM items, SELECT a, {t}"), ("spark", "INSERT INTO sink FROM items, SELECT a, {t}"), ("spark", "SELECT 1 WHERE EXISTS (FROM items, SELECT a, {t})"),
    ("spark", "WITH `select` AS (SELECT 1 AS x) FROM items, SELECT a, {t}"), ("spark", "SELECT INTERVAL({t}) FROM items"),
    ("spark", "SELECT END({t}) FROM items"), ("spark", "SELECT IN({t}) FROM items"), ("spark", "SELECT ESCAPE({t}) FROM items"),
    ("spark", "SELECT RECURSIVE({t}) FROM items"), ("spark", "SELECT ANY * FROM ({t})"), ("spark", "SELECT * FROM SELECT({t})"),
    ("spark", "SELECT 0x1({t}) FROM items"), ("spark", "SELECT * FROM range(ALL({t}))"), ("spark", "SELECT * FROM range(1, DISTINCT({t}))"),
    ("spark", "INSERT INTO sink FROM items RETURNING, {t}"), ("spark", "INSERT INTO sink FROM items, RETURNING a, {t}"),
    ("spark", "INSERT INTO sink FROM items RETURNING (a), {t}"), ("spark", "SELECT CONNECT_BY_ROOT * FROM ({t})"),
    ("spark", "SELECT abs(FETCH({t})) FROM items"), ("spark", "SELECT abs(SELECT({t})) FROM items"), ("spark", "SELECT abs(VALUES({t})) FROM items"),
    ("spark", "SELECT MERGE((SELECT 1 FROM {t})) FROM items"), ("spark", "SELECT DISTINCT AS({t}) FROM items"), ("spark", "CREATE TABLE n AS SYSTEM_VERSIONING {t}"),
    ("spark", "SELECT * FROM items JOIN sink ON QUALIFY({t})"), ("spark", "MERGE INTO sink USING items ON USING({t}) WHEN MATCHED THEN DELETE"),
    ("spark", "SELECT ALL* EXCLUDE (sku) FROM {t}"),
    ("spark", "SELECT ALL * FROM ('{t}')"), ("spark", "SELECT DISTINCT * FROM ('{t}')"), ("spark", "SELECT /*+ REPARTITION(3TABLE({t}), sku) */ * FROM items"), ("spark", "SELECT * FROM items LATERAL VIEW count({t}) x"), ("trino", "SELECT * FROM items FOR VERSION AS OF OVER({t})"), ("trino", "SELECT array(FETCH ({t})) FROM items"),
    ("bigquery", "SELECT * FROM VALUES ({t})"), ("bigquery", "SELECT SEMI(sku) FROM items"), ("bigquery", "SELECT 1 FROM items GROUP BY QUALIFY ((SELECT 1))"),
    ("trino", "SELECT SEMI(sku) FROM items"), ("trino", "SELECT INTERVAL(sku) FROM items"), ("trino", "SELECT ALL* EXCLUDE (sku) FROM items"),
    ("trino", "SELECT div(sku) FROM items"), ("trino", "SELECT a -> OVER (sku) FROM items"), ("trino", "SELECT * FROM items OFFSET OFFSET? ROWS FETCH FIRST ? ROWS ONLY"),
    ("trino", "WITH FUNCTION abs(x int) RETURNS int RETURN (SELECT max(1) FROM {t}) SELECT abs(1) FROM items"), ("bigquery", "CREATE TABLE `{t}*` AS SELECT 1 AS a"),
])  # fmt: skip
def test_a_word_of_sql_hides_no_table_and_no_function(
    dialect: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The engine takes the word for an alias, a table or a function. Twice: an open table may pass by the short way."""
    for table in ("orders", "items", "nosuch"):
        request = RewriteRequest(text.format(t=table), dialect, BOB)
        assert code_of(SERVICE, request) in (
            errors.PARSE_ERROR, errors.UNSUPPORTED_STATEMENT, errors.UNSUPPORTED_SOURCE, errors.UNSUPPORTED_FUNCTION,
            errors.WILDCARD_TABLE,
        ), request.sql  # fmt: skip
    assert not caplog.records, "the text met an error of the rewriter"


@pytest.mark.parametrize(("dialect", "text"), [
    ("spark", "SELECT limit, offset, sku FROM (SELECT sku AS limit, 1 AS offset, sku FROM items) AS x LIMIT 5"),
    ("spark", "SELECT (sku), qty FROM items UNION SELECT (sku), qty FROM items LIMIT 5"), ("spark", "FROM items SELECT sku, (qty)"),
    ("spark", "SELECT DISTINCT * FROM (SELECT sku, qty * 2 FROM items)"),
    ("spark", "SELECT * FROM (SELECT sku FROM items LIMIT 5), items"), ("spark", "SELECT count(DISTINCT (sku)), INTERVAL '1' DAY FROM items"),
    ("spark", "SELECT /*+ REPARTITION(3, sku), BROADCAST(items) */ i.*, qty * 2 FROM items AS i"), ("bigquery", "SELECT offset, x FROM UNNEST([1]) AS x WITH OFFSET"), ("bigquery", "SELECT ARRAY_AGG(sku LIMIT 5), MAX(qty) FROM items"),
    ("spark", "SELECT sum(qty) FILTER (WHERE (qty > 1)), count(DISTINCT (sku)) FROM items WHERE NOT (qty > 1) AND qty NOT IN (1) AND NOT EXISTS (SELECT 1)"),
    ("spark", "SELECT CASE WHEN (qty > 1) THEN (1) ELSE (2) END FROM items WHERE sku IS NOT DISTINCT FROM ('a') GROUP BY (qty)"),
    ("spark", "SELECT * FROM items LATERAL VIEW stack(1, 2) s AS a LATERAL VIEW json_tuple('x', 'a') t AS b LATERAL VIEW OUTER explode(array(1)) u"),
    ("spark", "SELECT explode(map(1, 2)) AS (k, v) FROM items"), ("duckdb", "SELECT * EXCLUDE (sku) FROM items LIMIT 5 OFFSET 2"),
    ("bigquery", "SELECT INTERVAL qty DAY, * EXCEPT (qty) FROM items"), ("trino", "SELECT sku FROM items WHERE qty = ANY (SELECT 1) LIMIT 5"),
])  # fmt: skip
def test_ordinary_words_of_sql_are_read(dialect: str, text: str) -> None:
    assert code_of(SERVICE, RewriteRequest(text, dialect, BOB)) == ""


@pytest.mark.parametrize("dialect", ["spark", "bigquery", "duckdb", "trino"])
@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM items JOIN LATERAL JO\u0130N", "SELECT * FROM items a JOIN JO\u0130N LATERAL VALUES (1)",
        "SELECT * FROM items, (sku) LATERAL FROM JO\u0130N JOIN (1)", "SELECT sku AS JO\u0130N FROM items",
        "SELECT JO\u0130N.sku FROM items JO\u0130N", "SELECT jo\u0131n FROM items", "SELECT 1 \u017felect FROM items",
        "SELECT sku FROM items L\u0130M\u0130T", "\u017fELECT * FROM orders", "SELECT s\u212au FROM items",
    ],
)  # fmt: skip
def test_letters_that_fold_to_those_of_words_are_read_or_refused(text: str, dialect: str) -> None:
    """No text ends with an error of ours: patterns that ignore case match such letters, which fold otherwise."""
    taken(text, dialect)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM (values(orders) JOIN items ON TRUE)", "SELECT * FROM values(orders)", "SELECT * FROM items, values(orders)", "SELECT * FROM (VALUES (1)) AS t",
        "SELECT * FROM items JOIN (values(orders)) ON TRUE", "SELECT * FROM items WHERE sku IN (SELECT 1 FROM values(orders))", "WITH c AS (VALUES (1)) SELECT * FROM c",
    ],
)  # fmt: skip
def test_bigquery_has_no_values_in_place_of_a_table(text: str) -> None:
    """To its parser, this is a table function of anybody."""
    assert code_of(SERVICE, RewriteRequest(text, "bigquery", BOB))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT DATE(TRUE, :a, 1) FROM items", "SELECT DATE(:a, 1, 1) FROM items", "SELECT sku FROM items LIMIT :a + :b", "SELECT make_date(1, :a, 1) FROM items WHERE DATE(1, : b, 2)",
    ],
)  # fmt: skip
def test_a_parameter_that_the_tree_does_not_show_is_refused(text: str) -> None:
    found = taken(text, "spark")
    assert found is None or found.parameters == text.count(":")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT qty::int FROM items",
        "SELECT qty :: int FROM items",
        "SELECT CAST(qty AS STRUCT<a: INT>) FROM items",
        "SELECT a[1]::int FROM items",
    ],
)
def test_other_colons_are_no_parameters(text: str) -> None:
    assert code_of(SERVICE, RewriteRequest(text, "spark", BOB)) == ""
