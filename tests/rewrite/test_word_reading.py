"""Reading of words: where it covers a text, the parser covers the text too, whatever the rewriter leaves open."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlglot import exp
from support.generators.generated_sql import SqlGenerator
from support.oracles.equivalence import CALLERS, DATA, service_of
from support.oracles.secure_views import random_masks, random_policies
from support.rewriting import code_of

from pdp.rewrite import mentions, rendering
from pdp.rewrite.errors import NOT_COVERED, RewriteRefused
from pdp.rewrite.fast_ways import FastVerification
from pdp.rewrite.mentions import MentionWalk
from pdp.rewrite.process.local import RewriteRequest
from pdp.rewrite.verification import Verification

VISIBLE, PLAIN = "_rap_visible", "_rap_visible_plain"
CLOSED = ("orders", "customers", "v_orders")
COVERED = {
    "a source": "SELECT a FROM {v} AS orders WHERE a > 1 AND b = 'x'",
    "a bare source": "SELECT a, count(*) FROM {p} AS orders GROUP BY a",
    "a common table": "WITH x AS (SELECT a FROM {p} AS orders) SELECT x.a FROM x JOIN items i ON i.a = x.a",
    "a subquery": "SELECT a FROM items WHERE a IN (SELECT b FROM {v} AS o)",
    "a subquery in FROM": "SELECT a FROM (SELECT b AS a FROM {p} AS o UNION SELECT a FROM items) AS u",
    "a join": "SELECT a FROM items i LEFT JOIN {v} AS o ON i.a = o.a",
    "functions": "SELECT coalesce(max(a), 0) + 1 FROM {p} AS o HAVING sum(a) > 10",
}
DOUBTFUL = {
    "PIVOT": "WITH x AS (PIVOT {v} ON a USING sum(b)) SELECT a FROM x", "UNNEST": "SELECT a FROM unnest(x)",
    "a name": "SELECT a FROM orders", "a join": "SELECT a FROM items JOIN customers ON TRUE",
    "a full name": "SELECT a FROM lake.sales.orders", "capitals": "SELECT a FROM Orders",
    "a comma": "SELECT a FROM items, orders", "a view": "SELECT a FROM sales.v_orders",
    "an alias and a name": "SELECT a AS orders FROM orders", "blanks around dots": "SELECT a FROM sales . orders",
    "quotes": 'SELECT a FROM "orders"', "backticks": "SELECT a FROM `orders`", "a comment": "SELECT a /* */ FROM items",
    "TABLE": "SELECT a FROM items UNION TABLE orders", "a metadata table": "SELECT a FROM sales.orders.files",
    "a file": "SELECT a FROM 'x'", "a file after a comma": "SELECT a FROM items, 'x.csv'", "a path": "SELECT a FROM items, 'a/b'",
    "a function": "SELECT a FROM query('x')", "a function of a schema": "SELECT s.secrets(a) FROM items",
    "a common table": "WITH orders AS (SELECT 1) SELECT a FROM items", "another statement": "DELETE FROM items",
    "FROM first": "FROM items SELECT a", "two statements": "SELECT 1; SELECT 2", "brackets": "SELECT [1] FROM items",
    "a bracket too many": "SELECT a) FROM items", "a bracket too few": "SELECT (a FROM items", "accents": "SELECT a FROM ördres",
    "a dollar": "SELECT a FROM orders$files", "a part of the source": "SELECT a FROM {v}.files", "nothing": " ",
}  # fmt: skip
NESTED = {
    "a value": "SELECT (SELECT max(a) FROM {p} AS o) FROM items", "IN": "SELECT a FROM items WHERE a IN (SELECT a FROM {p} AS o)",
    "EXISTS": "SELECT a FROM items WHERE EXISTS (SELECT 1 FROM {p} AS o)",
    "deep": "SELECT a FROM items WHERE a = (SELECT a FROM (SELECT a FROM {p} AS o) AS x)",
    "a comma": "SELECT a FROM items, {p} AS o", "LATERAL": "SELECT a FROM items JOIN LATERAL (SELECT a FROM {p} AS o) ON TRUE",
    "a comparison": "SELECT a IS DISTINCT FROM (SELECT a FROM {p} AS o) FROM items",
    "a function": "SELECT extract(day FROM (SELECT a FROM {p} AS o)) FROM items",
    "a common table in a value": "SELECT (WITH x AS (SELECT a FROM {p} AS o) SELECT max(a) FROM x) FROM items",
}  # fmt: skip


def covers(text: str, dialect: str = "duckdb") -> bool:
    return FastVerification(CLOSED, dialect).covers(text.format(v=VISIBLE, p=PLAIN), VISIBLE, PLAIN)


@pytest.mark.parametrize("text", COVERED.values(), ids=COVERED)
def test_a_text_of_sources_and_open_names_is_covered(text: str) -> None:
    assert covers(text)


@pytest.mark.parametrize(
    "text", [*DOUBTFUL.values(), *NESTED.values()], ids=[*DOUBTFUL, *(f"in {name}" for name in NESTED)]
)
@pytest.mark.parametrize("dialect", ["duckdb", "trino"])
def test_the_parser_reads_a_doubtful_text(text: str, dialect: str) -> None:
    assert not covers(text, dialect)


def test_a_joined_source_with_bare_names_is_covered_where_joins_see_nothing() -> None:
    text = "SELECT a FROM items i JOIN {p} AS o ON i.a = o.a"
    assert [covers(text, dialect) for dialect in ("duckdb", "trino", "spark", "bigquery")] == [False, True, True, True]


def test_names_near_those_with_policies_are_closed() -> None:
    policies = [{"id": "p", "table": "lake.sales.straße", "grantees": ["allUsers"], "filter": "FALSE"}]
    service = service_of(policies)
    reading = service._rewriter._word_reading(service._policies, "duckdb")
    assert reading is not None
    assert not reading.covers("SELECT a FROM strasse", VISIBLE, PLAIN)
    assert reading.covers("SELECT a FROM items", VISIBLE, PLAIN)
    assert not reading.covers("SELECT oid FROM v_join", VISIBLE, PLAIN), "every view is doubtful"


# --- agreement with the parser, on what mutants of the rewriter leave open -------------------------------------------


def skip_place(place: tuple[type, str]) -> Callable[[pytest.MonkeyPatch], None]:
    def plant(patch: pytest.MonkeyPatch) -> None:
        original = MentionWalk._table
        patch.setattr(MentionWalk, "_table", lambda self, node, scope: None
                      if (type(node.parent), node.arg_key) == place else original(self, node, scope))  # fmt: skip

    return plant


def skip_kind(kind: type) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setitem(mentions._KINDS, kind, mentions._INERT)


MUTANTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "none": lambda patch: None,
    "skip joins": skip_place((exp.Join, "this")),
    "skip sources": skip_place((exp.From, "this")),
    "skip conditions": skip_kind(exp.Where),
    "skip subqueries": skip_kind(exp.Subquery),
    "skip set operations": skip_kind(exp.Union),
    "skip IN": skip_kind(exp.In),
    "bare names everywhere": lambda patch: patch.setattr(rendering, "looks_around", lambda *_: False),
}


class Recorded(FastVerification):
    """Reading that leaves every text to the parser, and notes what the words tell."""

    def __init__(self, reading: FastVerification, told: list[bool]) -> None:
        self._reading, self._told = reading, told

    def covers(self, text: str, visible: str, plain: str) -> bool:
        self._told.append(self._reading.covers(text, visible, plain))
        return False


def statements(seed: int, count: int) -> Iterator[tuple[Any, RewriteRequest]]:
    dice = random.Random(seed)
    for _ in range(count // 25):
        service, who = service_of(random_policies(dice), random_masks(dice)), DATA["callers"][dice.choice(CALLERS)]
        for _ in range(25):
            sql, _ = SqlGenerator(random.Random(dice.random())).statement()
            yield service, RewriteRequest(sql, "duckdb", who["principal"], tuple(who["groups"]), who["authenticated"])


@pytest.mark.parametrize("name", MUTANTS)
def test_the_parser_covers_what_the_words_cover(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name](monkeypatch)
    original, covered = Verification.verify, 0

    def both(self: Verification, result: Any, sources: Any, kind: Any) -> None:
        """Keep the answer of the words back, and let the parser read as well."""
        nonlocal covered
        told: list[bool] = []
        words, self.words = self.words, None
        if words is not None:
            self.words = Recorded(words, told)
        try:
            original(self, result, sources, kind)
            covered += told == [True]
        except RewriteRefused:
            assert True not in told, result
            raise

    monkeypatch.setattr(Verification, "verify", both)
    refused = sum(code_of(service, request) == NOT_COVERED for service, request in statements(7, 300))
    assert bool(refused) == (name != "none"), refused
    assert covered or name == "skip sources", covered
