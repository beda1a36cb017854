"""Array paths of BigQuery: what the rewriter takes for a path is none of GoogleSQL's tables, and shows visible rows."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, Final

import duckdb
import pytest
from sqlglot import exp
from support.judging import judge_seconds
from support.rewriting import code_of
from support.servers.engine_parsers import EngineParser, engine_parser

from pdp.engines.row_access.policies import parse_document
from pdp.rewrite import errors
from pdp.rewrite.catalog import catalog_of, policy_set_of
from pdp.rewrite.errors import RewriteRefused
from pdp.rewrite.names import PATH, name_parts
from pdp.rewrite.process.local import LocalRewriter, RewriteRequest
from pdp.rewrite.rewriter import Rewriter
from pdp.rewrite.sql import ParsedText, parse_part

BOB = "user:bob@example.com"
PATHS: Final = (
    "SELECT id FROM t x WHERE EXISTS (SELECT 1 FROM x.parts p WHERE p.n = '3')", "SELECT id, ARRAY(SELECT p FROM x.parts p) FROM t x",
    "SELECT * FROM t x LEFT JOIN x.parts p ON TRUE", "SELECT * FROM t x INNER JOIN x.tags", "SELECT * FROM t x CROSS JOIN x.tags AS g",
    "SELECT * FROM t, t.tags", "SELECT * FROM T, t.tags", "SELECT * FROM t AS `X`, x.`tags`", "SELECT * FROM t AS x, `x`.tags AS `g`",
    "SELECT * FROM t x, x.tags AS g WITH OFFSET AS o", "SELECT * FROM t x, x.tags WITH OFFSET", "SELECT * FROM t x LEFT JOIN x.tags g WITH OFFSET o ON TRUE",
    "SELECT (SELECT MAX(o) FROM x.tags WITH OFFSET o) FROM t x", "SELECT * FROM t x, x.parts, parts.tags", "SELECT * FROM t x, x.parts AS p, p.tags AS g",
    "SELECT * FROM t x, UNNEST(x.parts) AS p, p.tags", "SELECT * FROM t x, x.st.tags", "SELECT * FROM t x, x.parts.tags", "SELECT * FROM t x, (SELECT * FROM t) AS y, y.tags",
    "SELECT * FROM t x JOIN u y ON EXISTS (SELECT 1 FROM x.tags)", "SELECT * FROM t x JOIN u y ON EXISTS (SELECT 1 FROM y.tags)",
    "SELECT * FROM (t AS x JOIN u AS y ON TRUE) JOIN x.tags ON TRUE", "SELECT * FROM (t AS x JOIN u AS y ON TRUE), y.tags", "SELECT id FROM t x WHERE id IN (SELECT 1 FROM x.tags)",
    "SELECT (SELECT COUNT(*) FROM u y, x.tags) FROM t x", "SELECT (SELECT COUNT(*) FROM x.tags UNION ALL SELECT 1 FROM x.parts LIMIT 1) FROM t x",
    "SELECT (SELECT (SELECT COUNT(*) FROM x.tags, y.parts) FROM u y LIMIT 1) FROM t x", "SELECT * FROM t x, UNNEST(ARRAY(SELECT g FROM x.tags g)) AS y",
    "WITH x AS (SELECT ['a'] AS tags) SELECT * FROM x, x.tags", "SELECT id FROM t x ORDER BY (SELECT COUNT(*) FROM x.tags)", "SELECT SUM((SELECT COUNT(*) FROM x.tags)) FROM t x",
    "SELECT 1 FROM t x TABLESAMPLE SYSTEM (10 PERCENT), x.tags", "INSERT INTO u (id) SELECT (SELECT COUNT(*) FROM x.tags) FROM t x",
    "UPDATE t x SET id = (SELECT COUNT(*) FROM x.tags) WHERE EXISTS (SELECT 1 FROM x.parts)", "DELETE FROM t x WHERE EXISTS (SELECT 1 FROM x.tags)",
    "DELETE FROM t WHERE EXISTS (SELECT 1 FROM t.tags)", "MERGE t x USING u y ON EXISTS (SELECT 1 FROM x.tags) WHEN MATCHED THEN DELETE",
)  # fmt: skip
"""Statements with a path, and with no table of two parts."""
TABLES: Final = (
    "SELECT * FROM t x, (SELECT * FROM x.tags)", "SELECT * FROM x.tags, t x", "SELECT EXISTS (SELECT 1 FROM x.tags, t x)",
    "SELECT (WITH w AS (SELECT 1 FROM x.tags) SELECT COUNT(*) FROM w) FROM t x", "SELECT id FROM t x UNION ALL SELECT 1 ORDER BY (SELECT COUNT(*) FROM x.tags)",
    "SELECT 1 FROM t x JOIN u y ON EXISTS (SELECT 1 FROM z.tags) JOIN t z ON TRUE", "SELECT 1 FROM t x JOIN (u y JOIN x.tags ON TRUE) ON TRUE",
    "SELECT 1 FROM t x PIVOT (COUNT(id) FOR id IN (1)), x.tags", "SELECT (SELECT COUNT(*) FROM x.tags) FROM t x PIVOT (COUNT(id) FOR id IN (1))",
    "SELECT 1 FROM t x UNPIVOT (v FOR k IN (id)), x.tags", "SELECT 1 AS x, (SELECT 1 FROM x.tags LIMIT 1) FROM t", "WITH x AS (SELECT 1 AS tags) SELECT 1 FROM t, x.tags",
    "WITH x AS (SELECT 1 AS tags) SELECT * FROM x.tags", "SELECT * FROM t, x.tags", "SELECT 1 FROM t x JOIN u y ON TRUE, z.tags", "SELECT (SELECT 1 FROM y.tags) FROM t x",
)  # fmt: skip
"""Statements in which GoogleSQL reads a table of two parts."""


def reading(text: str) -> tuple[Counter[str], list[str]]:
    """Return the tables of several parts that the rewriter sees, and the paths; raise RewriteRefused."""
    tree = ParsedText(text, "bigquery", statement=True).tree
    names = (".".join(parts).lower() for table in tree.find_all(exp.Table) if (parts := name_parts(table)))
    paths = [unnest.expressions[0].sql("bigquery") for unnest in tree.find_all(exp.Unnest) if unnest.meta.get(PATH)]
    return Counter(name for name in names if "." in name), paths


@pytest.mark.parametrize("text", PATHS)
def test_a_path_is_no_table(text: str) -> None:
    tables, paths = reading(text)
    assert not tables
    assert paths


@pytest.mark.parametrize("text", TABLES)
def test_a_table_is_no_path(text: str) -> None:
    tables, paths = reading(text)
    assert sum(tables.values()) == 1
    assert not paths


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM t x, `x.tags`", "SELECT * FROM t x, x.tags FOR SYSTEM_TIME AS OF CURRENT_TIMESTAMP()", "SELECT * FROM t x, x.tags TABLESAMPLE SYSTEM (10 PERCENT)",
        "SELECT * FROM t x, x.tags PIVOT (COUNT(*) FOR tags IN ('a'))", "SELECT * FROM `lake.s.t`, t.tags", "SELECT (SELECT COUNT(*) FROM t.tags) FROM `lake.s.t`",
        "SELECT (SELECT COUNT(*) FROM `x.tags`) FROM t x", "SELECT * FROM t x, x.INFORMATION_SCHEMA.TABLES", "SELECT * FROM t x LEFT JOIN x.`st.tags` ON TRUE",
    ],
)  # fmt: skip
def test_a_name_in_doubt_is_refused(text: str) -> None:
    assert code_of(service(), RewriteRequest(text, "bigquery", BOB)) == errors.UNSUPPORTED_SOURCE


class Statements:
    """Generator of statements in which names of two parts stand at every place of a source."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice

    def statement(self) -> str:
        """Return a query, or a change with a query."""
        kind = self._dice.random()
        if kind < 0.06:
            return f"UPDATE t {self._alias()} SET id = {self._scalar(2)} WHERE {self._condition(2)}"
        if kind < 0.12:
            return f"DELETE FROM t {self._alias()} WHERE {self._condition(2)}"
        return self._query(3)

    def _alias(self) -> str:
        return self._dice.choice(["", " x", " AS x", " AS y", " AS `X`", " z"])

    def _name(self) -> str:
        first = self._dice.choice(["x", "x", "y", "z", "t", "u", "tags", "parts", "X", "`x`", "st"])
        return f"{first}.{self._dice.choice(['tags', 'parts', 'parts', 'st.tags', '`tags`'])}"

    def _source(self, depth: int) -> str:
        dice, kind = self._dice, self._dice.random()
        if kind < 0.4 or depth == 0:
            return (
                dice.choice(["t", "u", "t", "T"])
                + self._alias()
                + dice.choice([""] * 12 + [" PIVOT (COUNT(id) FOR id IN (1))"])
            )
        if kind < 0.8:
            return self._name() + dice.choice(
                ["", "", " AS x", " AS y", " z", " WITH OFFSET", " AS x WITH OFFSET AS o"]
            )
        if kind < 0.87:
            return f"UNNEST({self._name()}){dice.choice(['', ' AS x', ' AS y'])}"
        if kind < 0.94:
            return f"({self._query(depth - 1)}){self._alias()}"
        return f"({self._from(depth - 1)})"

    def _from(self, depth: int) -> str:
        text = self._source(depth)
        for _ in range(self._dice.choice([0, 0, 1, 1, 2])):
            kind = self._dice.choice([", ", ", ", " CROSS JOIN ", " JOIN ", " LEFT JOIN "])
            condition = "" if kind in (", ", " CROSS JOIN ") else f" ON {self._condition(depth - 1)}"
            text += f"{kind}{self._source(depth)}{condition}"
        return text

    def _query(self, depth: int) -> str:
        dice = self._dice
        start = dice.choice(
            [""] * 8
            + ["WITH x AS (SELECT * FROM t) ", "WITH y AS (SELECT ['a'] AS tags), z AS (SELECT 1 FROM x.tags) "]
        )
        text = f"{start}SELECT {dice.choice(['1', '1 AS x', self._scalar(depth - 1)])} FROM {self._from(depth)}"
        text += dice.choice(["", "", f" WHERE {self._condition(depth - 1)}"])
        text += dice.choice([""] * 9 + [f" UNION ALL SELECT 1 FROM {self._from(depth - 1)}"])
        return text + dice.choice([""] * 9 + [f" ORDER BY {self._scalar(depth - 1)}"])

    def _scalar(self, depth: int) -> str:
        return "1" if depth <= 0 else f"(SELECT COUNT(*) FROM {self._from(depth)})"

    def _condition(self, depth: int) -> str:
        kinds = ["TRUE", "EXISTS ({})", "1 IN (SELECT 1 FROM {})", "1 = ({})", "ARRAY_LENGTH(ARRAY({})) > 1"]
        if depth <= 0:
            return "TRUE"
        kind = self._dice.choice(kinds)
        return kind.format(self._from(depth) if "IN" in kind else f"SELECT 1 FROM {self._from(depth)}")


def misread(text: str, engine: EngineParser) -> str:
    """Return what GoogleSQL reads as tables and the rewriter does not; - for a text that one of them refuses."""
    try:
        tables, paths = reading(text)
    except RewriteRefused:
        return "-"
    seen = engine.read(text)
    if seen is None:
        return "-"
    more = Counter({name: count for name, count in seen.tables.items() if "." in name}) - tables
    return f"{dict(more)} beside {paths}: {text}" if more else "path" if paths else ""


@pytest.mark.long
@pytest.mark.process
@pytest.mark.timeout(1200 + 2 * judge_seconds(0))  # the first run fetches GoogleSQL
def test_googlesql_reads_no_table_where_the_rewriter_reads_a_path() -> None:
    generated = Statements(random.Random(9))
    with engine_parser("bigquery", "Names") as engine:
        assert [text for text in PATHS if misread(text, engine) != "path"] == []
        assert [text for text in TABLES if not any("." in name for name in engine.read(text).tables)] == []  # type: ignore[union-attr]
        found = Counter(misread(generated.statement(), engine) for _ in range(6_000))
    assert {text: count for text, count in found.items() if len(text) > 4} == {}
    assert found["path"] > 100


def service(**more: Any) -> LocalRewriter:
    columns = {"id": "INT64", "region": "STRING", "tags": "ARRAY<STRING>", "parts": "ARRAY<STRUCT<n STRING>>"}
    document = {
        "default": ["lake", "s"],
        "tables": {"t": {"columns": columns}, "x.tags": {"columns": {"id": "INT64"}}, "lake.y.tags": {"columns": {"id": "INT64"}}},
        "policies": [
            {"id": "p", "table": "t", "grantees": ["allUsers"], "filter": "region = 'EU'", "dialect": "bigquery"},
            {"id": "q", "table": "lake.y.tags", "grantees": ["allUsers"], "filter": "id = 1", "dialect": "bigquery"},
            {"id": "r", "table": "lake.z.tags", "grantees": ["allUsers"], "filter": "id = 1", "dialect": "bigquery"},
        ],
        **more,
    }  # fmt: skip
    found = parse_document(document).document
    catalog = catalog_of([found])
    return LocalRewriter(catalog, policy_set_of([found]), Rewriter(catalog))


SERVICE = service()
MASKED = service(masks=[{"id": "m", "table": "t", "column": "tags", "kind": "null", "grantees": ["allUsers"]}])
VISIBLE = "(SELECT * FROM t WHERE region = 'EU')"


@pytest.mark.parametrize("path", ["o.tags", "o.tags AS g", "`o`.`tags` g WITH OFFSET AS p", "O.parts"])
def test_the_source_of_a_path_has_visible_rows_alone(path: str) -> None:
    for text in (
        f"SELECT o.id FROM {{t}} AS o, {path}", f"SELECT o.id FROM {{t}} AS o LEFT JOIN {path} ON TRUE",
        f"SELECT id FROM {{t}} o WHERE EXISTS (SELECT 1 FROM {path})", f"SELECT ARRAY(SELECT 1 FROM {path}) FROM {{t}} o",
        f"SELECT id FROM {{t}} o WHERE 2 = (SELECT COUNT(*) FROM {path} WHERE id > 1)",
    ):  # fmt: skip
        sql = SERVICE.rewrite(RewriteRequest(text.format(t="t"), "bigquery", BOB))
        assert sql == text.format(t=VISIBLE)


@pytest.mark.parametrize("alias", ["y", "z", "`y`", "Z"])
def test_a_path_with_the_name_of_a_table_with_policies_is_refused(alias: str) -> None:
    """GoogleSQL reads the array. Nobody has to rely on that where a policy protects a table of the name."""
    for text in (
        f"SELECT 1 FROM t AS {alias}, {alias}.tags", f"SELECT 1 FROM x.tags AS {alias} LEFT JOIN {alias}.tags ON TRUE",
        f"SELECT (SELECT COUNT(*) FROM {alias}.tags) FROM t AS {alias}", f"SELECT (SELECT COUNT(*) FROM {alias}.tags) FROM x.tags AS {alias}",
    ):  # fmt: skip
        assert code_of(SERVICE, RewriteRequest(text, "bigquery", BOB)) == errors.AMBIGUOUS_NAME
    assert code_of(SERVICE, RewriteRequest("SELECT 1 FROM t AS y, UNNEST(y.tags)", "bigquery", BOB)) == ""


def test_a_path_with_the_name_of_a_view_on_hidden_rows_is_refused() -> None:
    document = parse_document(
        {
            "default": ["lake", "s"],
            "tables": {name: {"columns": {"id": "INT64"}} for name in ("t", "hidden")},
            "views": {
                "x.tags": {"sql": "SELECT id FROM lake.s.hidden", "dialect": "bigquery"},
                "x.open": {"sql": "SELECT id FROM lake.s.t", "dialect": "bigquery"},
            },
            "policies": [{"id": "p", "table": "hidden", "filter": "id = 1", "grantees": [BOB]}],
        }
    ).document
    catalog = catalog_of([document])
    found = LocalRewriter(catalog, policy_set_of([document]), Rewriter(catalog))
    for name, code in (("tags", errors.AMBIGUOUS_NAME), ("open", ""), ("other", "")):
        assert code_of(found, RewriteRequest(f"SELECT 1 FROM t AS x, x.{name}", "bigquery", BOB)) == code


def test_a_protected_container_closes_no_path_but_that_of_a_known_table() -> None:
    document = parse_document(
        {
            "default": ["lake", "s"],
            "tables": {"t": {"columns": {"id": "INT64"}}, "x.tags": {"columns": {"id": "INT64"}}},
        }
    ).document
    catalog = catalog_of([document])
    found = LocalRewriter(catalog, policy_set_of([document], [("lake", "")]), Rewriter(catalog))
    for name, code in (("o", ""), ("x", errors.AMBIGUOUS_NAME), ("X", errors.AMBIGUOUS_NAME)):
        assert code_of(found, RewriteRequest(f"SELECT 1 FROM t AS {name}, {name}.tags", "bigquery", BOB)) == code


def test_a_table_of_the_name_gets_its_filter() -> None:
    for text in (
        "SELECT 1 FROM t AS y, (SELECT * FROM y.tags)",
        "SELECT 1 FROM t AS y PIVOT (COUNT(id) FOR id IN (1)), y.tags",
    ):
        assert "(SELECT * FROM y.tags WHERE id = 1) AS tags" in SERVICE.rewrite(RewriteRequest(text, "bigquery", BOB))


@pytest.mark.parametrize(
    ("text", "want", "masked"),
    [
        ("SELECT o.id, g FROM t AS o, o.tags AS g", [(1, "a"), (1, "b")], []),
        ("SELECT o.id, g FROM t AS o LEFT JOIN o.tags AS g ON TRUE", [(1, "a"), (1, "b"), (2, None)], [(1, None), (2, None)]),
        ("SELECT id FROM t o WHERE EXISTS (SELECT 1 FROM o.tags g WHERE g = 'b')", [(1,)], []),
        ("SELECT id, (SELECT COUNT(*) FROM o.tags) FROM t o", [(1, 2), (2, 0)], [(1, 0), (2, 0)]),
        ("SELECT p.n FROM t o, o.parts AS p", [("k",)], [("k",)]),
    ],
)  # fmt: skip
def test_executed_paths_show_no_hidden_row_and_no_masked_array(text: str, want: list[Any], masked: list[Any]) -> None:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (id INT, region VARCHAR, tags VARCHAR[], parts STRUCT(n VARCHAR)[])")
        connection.execute(
            "INSERT INTO t VALUES (1, 'EU', ['a', 'b'], [{'n': 'k'}]), (2, 'EU', [], []), (3, 'US', ['h'], [{'n': 'h'}])"
        )
        for found, rows in ((SERVICE, want), (MASKED, masked)):
            sql = found.rewrite(RewriteRequest(text, "bigquery", BOB))
            assert sorted(connection.execute(parse_part(sql, "bigquery").sql("duckdb")).fetchall(), key=str) == rows
