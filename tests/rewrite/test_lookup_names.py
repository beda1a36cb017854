"""Names in subqueries of filters: none is the outer column by accident, which would open every row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from pdp.engines.row_access.entries import NO_ROW_NAMES, DescribedTables, Fault, faults_of
from pdp.engines.row_access.lookups import check_lookups
from pdp.engines.row_access.policies import parse_document, read_documents
from pdp.engines.row_access.policy_set import Policy
from pdp.engines.row_access.validation import compile_policies
from pdp.errors import PolicyError
from pdp.facts.objects import RowPolicy
from pdp.offline.row_policies.lint import lint_row_files
from pdp.rewrite import errors
from pdp.rewrite.catalog import catalog_of, policy_set_of
from pdp.rewrite.filters import FilterCompiler
from pdp.rewrite.process.local import LocalRewriter, RewriteRequest
from pdp.rewrite.rewriter import Rewriter

OPENING = [
    "region IN (SELECT region FROM m WHERE m.x = 1)",
    "region IN (SELECT region FROM m)",
    "region IN (SELECT region FROM lake.sales.m AS k)",
    "NOT region NOT IN (SELECT region FROM m)",
    "region IN (SELECT UPPER(region) FROM m)",
    "region = (SELECT MAX(region) FROM m)",
    "EXISTS (SELECT 1 FROM m WHERE region = region)",
    "EXISTS (SELECT 1 FROM m WHERE m.x = 1 AND (region = region OR m.x = 2))",
    "region IN (SELECT Region FROM m, n)",
    "region IN (SELECT region FROM m JOIN n ON m.x = n.x)",
    "id IN (SELECT n.x FROM n WHERE n.x IN (SELECT region FROM m)) OR region = 'EU'",
]
PLAIN = [
    "region IN (SELECT m.x FROM m WHERE m.x = 1)",
    "region IN (SELECT x FROM m)",
    "EXISTS (SELECT 1 FROM m WHERE m.x = region)",
    "EXISTS (SELECT 1 FROM m WHERE m.x = orders.region)",
    "EXISTS (SELECT 1 FROM m AS k WHERE k.x = UPPER(region))",
    "region IN (SELECT k.region FROM m AS k)",
    "region IN ('EU', 'US')",
]
ORDERS = {"columns": {"id": "INTEGER", "region": "VARCHAR"}}


def body_of(filter: str, tables: dict[str, Any], dialect: str = "trino") -> dict[str, Any]:
    policy = {"id": "p", "table": "orders", "grantees": ["allAuthenticatedUsers"], "filter": filter, "dialect": dialect}
    return {"default": ["lake", "sales"], "tables": tables, "policies": [policy]}


def written(folder: Path, body: dict[str, Any]) -> Path:
    path = folder / "rows.yaml"
    path.write_text(yaml.safe_dump(body))
    return path


@pytest.mark.parametrize("tables", [{}, {"orders": ORDERS}], ids=["nothing", "the-table"])
@pytest.mark.parametrize("filter", OPENING)
def test_a_file_with_an_outer_name_in_a_subquery_stops_the_start(
    filter: str, tables: dict[str, Any], tmp_path: Path
) -> None:
    path = written(tmp_path, body_of(filter, tables))
    with pytest.raises(PolicyError, match=r"(?i)write `(m|k|n)\.region` or `orders\.region`"):
        compile_policies(read_documents([path]))
    (finding,) = lint_row_files([path])
    assert (finding.severity, finding.code) == ("error", "configuration")


@pytest.mark.parametrize("tables", [{}, {"orders": ORDERS}], ids=["nothing", "the-table"])
@pytest.mark.parametrize("filter", PLAIN)
def test_a_qualified_name_is_taken(filter: str, tables: dict[str, Any], tmp_path: Path) -> None:
    found = compile_policies(read_documents([written(tmp_path, body_of(filter, tables))]))
    (policy,) = found.tables["lake", "sales.orders"].policies
    assert (policy.id, policy.text) == ("p", filter)
    unknown = ["no `m` that the filter reads" in warning.message for warning in found.warnings]
    assert unknown == [True] * ("FROM m" in filter and bool(tables))


def test_a_name_is_taken_where_the_columns_of_the_lookup_are_known(tmp_path: Path) -> None:
    for name in ("m", "sales.m", "lake.sales.m"):
        tables = {name: {"columns": {"Region": "VARCHAR", "x": "INTEGER"}}}
        path = written(tmp_path, body_of("region IN (SELECT region FROM m)", tables))
        compile_policies(read_documents([path]))
        tables[name]["columns"].pop("Region")
        with pytest.raises(PolicyError, match=r"write `m\.region`"):
            compile_policies(read_documents([written(tmp_path, body_of("region IN (SELECT region FROM m)", tables))]))


@pytest.mark.parametrize("dialect", ["duckdb", "spark", "bigquery", "trino"])
@pytest.mark.parametrize("filter", OPENING)
def test_the_rewriter_refuses_a_lookup_without_the_column(filter: str, dialect: str) -> None:
    tables = {"orders": ORDERS, "m": {"columns": {"x": "INTEGER"}}, "n": {"columns": {"x": "INTEGER"}}}
    document = parse_document(body_of(filter, tables, dialect)).document
    catalog = catalog_of([document])
    service = LocalRewriter(catalog, policy_set_of([document]), Rewriter(catalog))
    request = RewriteRequest("SELECT id FROM orders", dialect, "user:alice@example.com")
    with pytest.raises(errors.RewriteRefused) as refused:
        service.rewrite(request)
    assert refused.value.rap == errors.FILTER_INVALID


def test_a_store_refuses_the_same_filters() -> None:
    for filter in OPENING:
        with pytest.raises(ValueError, match="in the subquery is not known"):
            check_lookups(filter, "trino", ("lake", "sales.orders"), {})
    for filter in PLAIN:
        check_lookups(filter, "trino", ("lake", "sales.orders"), {})


SOURCES = [
    ("region IN (SELECT region FROM (SELECT x FROM m) AS s)", "trino"),
    ("region IN (SELECT region FROM (SELECT * FROM m) s)", "trino"),
    ("EXISTS (SELECT 1 FROM (SELECT x FROM m) s WHERE region = region)", "trino"),
    ("region = (SELECT MAX(region) FROM (SELECT x FROM m) s)", "trino"),
    ("region IN (SELECT region FROM UNNEST(ARRAY['a']) AS u(v))", "trino"),
    ("region IN (SELECT region FROM (VALUES ('a')) AS t(c))", "trino"),
    ("region IN (SELECT v FROM (VALUES (region)) AS t(v))", "trino"),
    ("region IN (VALUES region)", "trino"),
    ("region IN (SELECT region)", "trino"),
    ("region IN (SELECT region FROM m CROSS JOIN LATERAL (SELECT m.y AS z) AS l)", "trino"),
    ("region IN (WITH c AS (SELECT x FROM m) SELECT region FROM c)", "trino"),
    ("region IN (SELECT region FROM (m JOIN n ON m.x = n.x))", "trino"),
    ("EXISTS (SELECT 1 FROM (m JOIN n ON region = region))", "trino"),
    ("region IN (SELECT region FROM (TABLE m))", "trino"),
    ("region IN (SELECT region FROM m JOIN (SELECT y FROM n) k ON m.x = k.y)", "trino"),
    ("region IN (SELECT x FROM m UNION SELECT region FROM (SELECT y FROM n) k)", "trino"),
    ("region IN (SELECT region FROM m LATERAL VIEW explode(m.a) t AS v)", "spark"),
    ("region IN (SELECT region FROM explode(array(1)) AS t(v))", "spark"),
    ("region IN (SELECT region FROM VALUES ('a') AS t(c))", "spark"),
    ("region IN (FROM m SELECT region)", "duckdb"),
    ("region IN (SELECT region FROM range(3) AS t(i))", "duckdb"),
    ("region IN (SELECT region FROM unnest([1]) AS t(v))", "duckdb"),
    ("region IN (SELECT region FROM m PIVOT (SUM(a) FOR b IN (1, 2)))", "duckdb"),
    ("region IN UNNEST(ARRAY(SELECT region FROM UNNEST(['a']) AS x))", "bigquery"),
]
"""Filters with an outer name beside other sources than tables."""
PLAIN_SOURCES = [
    ("EXISTS (SELECT 1 FROM UNNEST(tags) AS t WHERE t = 'x')", "bigquery"),
    ("'eu' IN (SELECT t FROM UNNEST(tags) AS t)", "bigquery"),
    ("EXISTS (SELECT 1 FROM UNNEST(tags) AS t(v) WHERE v = region)", "trino"),
    ("region IN (SELECT s.x FROM (SELECT m.x FROM m) s)", "trino"),
    ("region IN (SELECT region FROM (SELECT m.region FROM m) s)", "trino"),
    ("EXISTS (SELECT 1 FROM (SELECT m.x AS k FROM m) s WHERE k = region)", "trino"),
    ("region IN (WITH c AS (SELECT m.x AS y FROM m) SELECT y FROM c)", "trino"),
    ("region IN (WITH c(region) AS (SELECT m.x FROM m) SELECT region FROM c)", "trino"),
    ("region IN (SELECT region FROM (VALUES ('a')) AS t(region))", "trino"),
    ("region IN (VALUES 'a', 'b')", "trino"),
    ("region IN (SELECT m.x AS region FROM m ORDER BY region LIMIT 3)", "trino"),
    ("EXISTS (SELECT 1 FROM m LATERAL VIEW explode(m.a) t AS v WHERE v = region)", "spark"),
    ("region IN (SELECT region FROM m JOIN n USING (region))", "duckdb"),
]
OWN = {"id": "INTEGER", "region": "VARCHAR", "tags": "ARRAY(VARCHAR)"}


@pytest.mark.parametrize("tables", [{}, {"orders": {"columns": OWN}}], ids=["nothing", "the-table"])
def test_every_source_of_a_subquery_is_looked_at(tables: dict[str, Any], tmp_path: Path) -> None:
    known = {("lake", "sales.orders"): OWN} if tables else {}
    for filter, dialect in SOURCES:
        with pytest.raises(ValueError, match=r"(?i)`region` in the subquery (is not known|may be)"):
            check_lookups(filter, dialect, ("lake", "sales.orders"), known)
        with pytest.raises(PolicyError, match=r"(?i)write `(\w+\.region` or `)?orders\.region`"):
            compile_policies(read_documents([written(tmp_path, body_of(filter, tables, dialect))]))
    for filter, dialect in PLAIN_SOURCES:
        check_lookups(filter, dialect, ("lake", "sales.orders"), known)
        compile_policies(read_documents([written(tmp_path, body_of(filter, tables, dialect))]))


@pytest.mark.parametrize("dialect", ["duckdb", "spark", "bigquery", "trino"])
def test_the_rewriter_refuses_an_outer_name_beside_any_source(dialect: str) -> None:
    tables = {"orders": ORDERS, "m": {"columns": {"x": "VARCHAR"}}, "n": {"columns": {"y": "VARCHAR"}}}
    for filter, _ in SOURCES:
        document = parse_document(body_of(filter, tables, dialect)).document
        catalog = catalog_of([document])
        service = LocalRewriter(catalog, policy_set_of([document]), Rewriter(catalog))
        with pytest.raises(errors.RewriteRefused) as refused:
            service.rewrite(RewriteRequest("SELECT id FROM orders", dialect, "user:alice@example.com"))
        assert refused.value.rap == errors.FILTER_INVALID


OF_ITSELF = [
    "region IN (SELECT region FROM orders)",
    "region IN (SELECT Region FROM ORDERS AS o)",
    "region IN (SELECT region FROM sales.orders WHERE region = 'EU')",
    'region = (SELECT MAX(region) FROM "lake"."Sales".orders k)',
    "region IN (SELECT region FROM lake.sales.orders UNION SELECT x FROM m)",
]
OF_ANOTHER = [
    "region IN (SELECT region FROM other.sales.orders)",
    "region IN (SELECT region FROM ref.orders)",
    "region IN (SELECT region FROM sales.lake.orders)",
    "region IN (SELECT region FROM orders AS k(x, y))",
    "region IN (SELECT region FROM orders, m)",
    "region IN (SELECT region FROM m, orders)",
    "region IN (SELECT region FROM orders CROSS JOIN UNNEST(ARRAY[1]) AS u(v))",
    "region IN (SELECT region FROM orders TABLESAMPLE BERNOULLI (10))",
    "region IN (SELECT region FROM orders FOR VERSION AS OF 1)",
    "region IN (WITH orders AS (SELECT m.x FROM m) SELECT region FROM orders)",
    "region = 'EU' OR id IN (SELECT m.x FROM m WHERE m.x IN (SELECT region FROM orders))",
    'region IN (SELECT region FROM "sales.orders")',
    'region IN (SELECT region FROM "orders$files")',
]


@pytest.mark.parametrize("dialect", ["trino", "duckdb", "spark"])
@pytest.mark.parametrize("filter", OF_ITSELF)
def test_a_bare_name_is_taken_where_a_subquery_reads_the_filtered_table(
    filter: str, dialect: str, tmp_path: Path
) -> None:
    quoted = filter.replace('"', "`") if dialect == "spark" else filter
    check_lookups(quoted, dialect, ("lake", "sales.orders"), {})
    path = written(tmp_path, body_of(quoted, {}, dialect))
    compile_policies(read_documents([path]))
    rule = RowPolicy(("lake", "sales", "orders"), "p", grantees=("allUsers",), text=quoted, dialect=dialect)
    path = written(tmp_path, {"default": ["lake", "sales"], "tables": {"m": {"columns": {"x": "VARCHAR"}}}})
    assert "row-unusable" not in [one.code for one in lint_row_files([path], [rule])]


@pytest.mark.parametrize("filter", OF_ANOTHER)
def test_a_bare_name_is_refused_where_another_source_could_lack_the_column(filter: str) -> None:
    with pytest.raises(ValueError, match="in the subquery is not known"):
        check_lookups(filter, "trino", ("lake", "sales.orders"), {})


@pytest.mark.parametrize(
    ("text", "dialect", "table"),
    [
        ("region IN (SELECT region FROM orders)", "bigquery", ("lake", "sales.orders")),
        ("region IN (SELECT region FROM lake.orders)", "spark", ("lake", "lake.orders")),
        ("region IN (SELECT region FROM lake.orders)", "duckdb", ("lake", "lake.orders")),
        ("region IN (SELECT region FROM sales.eu.orders)", "spark", ("lake", "sales.eu.orders")),
    ],
)
def test_a_name_with_two_meanings_is_not_the_filtered_table(text: str, dialect: str, table: tuple[str, str]) -> None:
    """BigQuery tells tables by capitals, and some engines take the first part for a catalog where they know one."""
    with pytest.raises(ValueError, match=r"write `orders\.region` or give the table of the subquery another name"):
        check_lookups(text, dialect, table, {})


@pytest.mark.parametrize("dialect", ["duckdb", "spark", "bigquery", "trino"])
@pytest.mark.parametrize("source", ["orders", "orders AS o", "sales.orders", "lake.sales.orders"])
def test_the_rewriter_binds_a_bare_name_to_the_inner_table(source: str, dialect: str) -> None:
    policy = Policy("p", (), f"region IN (SELECT region FROM {source})", dialect)
    catalog = catalog_of([parse_document(body_of("TRUE", {"orders": ORDERS})).document])
    relation = catalog.of_key(("lake", "sales.orders"))[0]
    text = FilterCompiler(catalog).compile(policy, relation, dialect, lambda _: False).qualified[0]
    assert text.startswith("_rap_row.region IN (SELECT _rap_row_0.region FROM ")


def test_lint_finds_a_stored_filter_with_an_outer_name(tmp_path: Path) -> None:
    rule = RowPolicy(("lake", "sales", "orders"), "p", grantees=("allUsers",), text=OPENING[0], dialect="trino")
    path = written(tmp_path, {"default": ["lake", "sales"], "tables": {"orders": ORDERS}})
    assert [one.code for one in lint_row_files([path], [rule])] == ["row-unusable"]
    tables = {"orders": ORDERS, "m": {"columns": {"region": "VARCHAR", "x": "INTEGER"}}}
    assert lint_row_files([written(tmp_path, {"default": ["lake", "sales"], "tables": tables})], [rule]) == []


KNOWN = {
    "orders": ORDERS,
    "m": {"columns": {"x": "VARCHAR", "tags": "ARRAY"}},
    "n": {"columns": {"x": "VARCHAR", "y": "VARCHAR"}},
}
UNKNOWN_NAMES = {
    "region IN (SELECT xx FROM m)": "`xx` in the subquery is no column of `m`, `orders`",
    "region IN (SELECT m.xx FROM m)": "`xx` in the subquery is no column of `m`",
    "region IN (SELECT k.xx FROM lake.sales.m AS k)": "`xx` in the subquery is no column of `k`",
    "EXISTS (SELECT 1 FROM m WHERE m.x = orders.regio)": "`regio` in the subquery is no column of `orders`",
    "EXISTS (SELECT 1 FROM m JOIN n ON m.x = n.z)": "`z` in the subquery is no column of `n`",
    "EXISTS (SELECT 1 FROM m WHERE m.x IN (SELECT n.y FROM n WHERE zz = m.x))": "`zz` in the subquery is no column of `n`, `m`, `orders`",
    "NOT region NOT IN (SELECT UPPER(m.X2) FROM m)": "`X2` in the subquery is no column of `m`",
    "region = (SELECT MAX(s.b) FROM (SELECT x AS a FROM m) AS s)": "`b` in the subquery is no column of `s`",
}
KNOWN_NAMES = [
    "region IN (SELECT X FROM m)", "region IN (SELECT s.a FROM (SELECT x AS a FROM m) AS s)", "EXISTS (SELECT 1 FROM m WHERE m.x = orders.region)",
    "region IN (SELECT x AS b FROM n ORDER BY b)", "region IN (SELECT w.x FROM m AS w, n WHERE n.y = w.x)", "region IN (SELECT x FROM m UNION SELECT y FROM n)",
    "EXISTS (SELECT 1 FROM other AS o WHERE o.anything = orders.region)", "EXISTS (SELECT 1 FROM m CROSS JOIN UNNEST(m.tags) AS u(v) WHERE v = orders.region)",
    "region IN (WITH c AS (SELECT x AS a FROM m) SELECT c.a FROM c)", "any_match(ARRAY[1], q -> EXISTS (SELECT 1 FROM m WHERE m.x = CAST(q AS VARCHAR)))",
]  # fmt: skip


@pytest.mark.parametrize(("filter", "message"), UNKNOWN_NAMES.items())
def test_a_column_that_no_table_of_the_subquery_has_is_told(filter: str, message: str, tmp_path: Path) -> None:
    """A store refuses such a filter, as it refuses an unknown column of the table. For files it is a finding."""
    assert [fault.message for fault in _faults(filter, KNOWN) if fault.weight == "column"] == [message]
    found = lint_row_files([written(tmp_path, body_of(filter, KNOWN))])
    assert any(message in finding.message for finding in found)
    assert [fault.message for fault in _faults(filter, {}) if fault.weight == "column"] == [message] * (
        "AS s" in filter
    )


@pytest.mark.parametrize("filter", KNOWN_NAMES)
def test_names_that_are_or_may_be_known_are_taken(filter: str) -> None:
    assert [fault for fault in _faults(filter, KNOWN) if "subquery" in fault.message] == []


def test_an_unknown_lookup_beside_known_tables_is_told() -> None:
    for name, wanted in (("mm", 1), ("lake.sales.mm", 1), ("m", 0), ("M", 0), ("lake.hr.mm", 0), ("hr.mm", 0)):
        filter = f"region IN (SELECT k.x FROM {name} AS k)"
        found = [fault.message for fault in _faults(filter, KNOWN) if fault.weight == "unknown"]
        assert (
            found
            == ["`tables` describes other tables beside it, and no `mm` that the filter reads: is the name right?"]
            * wanted
        )
    assert not list(_faults("region IN (WITH c AS (SELECT m.x FROM m) SELECT c.x FROM c)", KNOWN))


def _faults(filter: str, tables: dict[str, Any]) -> list[Fault]:
    columns = {
        ("lake", f"sales.{name}"): {key: str(type) for key, type in table["columns"].items()}
        for name, table in tables.items()
    }
    rule = RowPolicy(("lake", "sales", "orders"), "p", ("allUsers",), filter, "trino")
    return list(faults_of(rule, NO_ROW_NAMES, DescribedTables(columns)))
