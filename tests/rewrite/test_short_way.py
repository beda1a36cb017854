"""The fast pass lets through what the parser returns unchanged, and nothing else."""

from __future__ import annotations

import random
from functools import cache

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.generators.generated_sql import SqlGenerator
from support.oracles.equivalence import service_of
from support.oracles.secure_views import random_policies
from support.rewriting import code_of, recorded_cases, recorded_service

from pdp.rewrite.fast_ways import FastPass
from pdp.rewrite.process.local import RewriteRequest
from pdp.rewrite.readings import _check_numbers
from pdp.rewrite.sql import LexicalText

NOBODY = "user:nobody@nowhere.example"
OPEN = [
    "SELECT sku, qty FROM items WHERE qty > 3",
    "SELECT i.sku, SUM(i.qty) AS n FROM lake.sales.items i JOIN lake.ref.regions AS r ON r.zone = i.sku GROUP BY i.sku",
    "SELECT * FROM (SELECT sku FROM items) x WHERE x.sku = 'a' UNION ALL SELECT region FROM ref.regions",
    "SELECT (SELECT MAX(qty) FROM Items) FROM lake.ref.regions WHERE zone IN ('a', 'b')",
]
DOUBTFUL = [
    "SELECT id FROM orders", "SELECT 1 FROM items, orders", "SELECT 1 FROM items i, nosuch", "SELECT 1 FROM items JOIN nosuch",
    "SELECT f(1) FROM items", "SELECT 1 FROM items -- x", "SELECT 1 /* x */ FROM items", 'SELECT 1 FROM "orders"',
    "SELECT 1 FROM query('SELECT 1')", "SELECT 1 FROM items; SELECT 1", "SELECT 1 FROM items i (a, b)", "SELECT 1 FROM v_big",
    "SELECT 1 FROM lake.sales.orders.files", "SELECT orders.id FROM items", "INSERT INTO items SELECT 1", "SELECT 1 IN items",
    "SELECT 1 FROM (items)", "SELECT 1 FROM items WHERE (TABLE orders)", "SELECT 1 FROM items)", "SELECT (1 FROM items",
    "SELECT 1 FROM items WHERE sku = 'a\\'", "SELECT 1 FROM items WHERE sku = 'a''b'", "SELECT 1 FROM information_schema.tables",
]  # fmt: skip


def short_way(dialect: str = "duckdb") -> FastPass:
    service = recorded_service()
    service.rewrite(RewriteRequest("SELECT 1", dialect, NOBODY))
    return service._rewriter._analyzer.memories.of(service._policies).short_ways[dialect]


known_short_way = cache(short_way)


@pytest.mark.parametrize("text", OPEN)
@pytest.mark.parametrize("dialect", ["duckdb", "trino", "spark"])
def test_a_plain_text_on_open_tables_passes(text: str, dialect: str) -> None:
    assert short_way(dialect).passes(text)


@pytest.mark.parametrize("text", DOUBTFUL)
@pytest.mark.parametrize("dialect", ["duckdb", "trino", "spark", "bigquery"])
def test_a_doubtful_text_does_not_pass(text: str, dialect: str) -> None:
    assert not short_way(dialect).passes(text)


PIECES = st.sampled_from(
    """. . . .. 1 1 2_0 12 1.5 .5 0x1 1e5 e i sku items FROM JOIN WHERE USING INTO WITH LATERAL SELECT TABLE UNION EXCEPT
    INTERSECT AS = + ( )""".split()  # noqa: SIM905
) | st.sampled_from([" ", " ", " ", "\n", "'a'"])
"""Words, numbers and dots, which engines and the parser cut at different places."""


@settings(max_examples=300)
@example("SELECT i.into FROM items i")
@example("SELECT i.using FROM items i")
@example("SELECT i. lateral FROM items i")
@example("SELECT 1 .where FROM items")
@example("SELECT .5where FROM items")
@example("SELECT 1.5.2 FROM items")
@example("SELECT e'a' FROM items i")
@given(st.lists(PIECES, max_size=7).map(lambda pieces: f"SELECT {''.join(pieces)} FROM items i"))
def test_the_short_way_passes_no_touching_words_that_the_parsers_way_refuses(text: str) -> None:
    for dialect in ("duckdb", "trino", "spark", "bigquery"):
        if known_short_way(dialect).passes(text):
            _check_numbers(LexicalText(text, dialect).marked, dialect)


def test_bigquery_tells_tables_by_case() -> None:
    assert short_way("bigquery").passes("SELECT 1 FROM items")
    assert not short_way("bigquery").passes("SELECT 1 FROM Items")


def test_no_recorded_case_passes_with_another_outcome() -> None:
    for case in recorded_cases():
        if short_way(case["dialect"]).passes(case["sql"]):
            assert "error" not in case["expect"], case


def test_generated_texts_that_pass_are_unchanged_by_the_long_way(monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(21)
    passed = 0
    for _ in range(12):
        service = service_of(random_policies(dice))
        service.rewrite(RewriteRequest("SELECT 1", "duckdb", NOBODY))
        short = service._rewriter._analyzer.memories.of(service._policies).short_ways["duckdb"]
        texts = [SqlGenerator(random.Random(dice.random())).statement()[0] for _ in range(60)]
        passing = [text for text in texts if short.passes(text)]
        with monkeypatch.context() as patch:
            patch.setattr(FastPass, "passes", lambda *_: False)
            for text in passing:
                request = RewriteRequest(text, "duckdb", NOBODY)
                assert not code_of(service, request), text
                assert service.rewrite(request) == text
        passed += len(passing)
    assert passed > 5
