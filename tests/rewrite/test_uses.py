"""Uses of relations: a change that shows rows is a read, too."""

from __future__ import annotations

import pytest
from support.oracles.equivalence import service_of

from pdp.rewrite.catalog import policy_set_of
from pdp.rewrite.identity import CallerIdentity

CHANGES = {
    "update all": "UPDATE items SET sku = 'a'",
    "update true": "UPDATE items SET qty = 1 WHERE TRUE",
    "delete all": "DELETE FROM items",
    "delete true": "DELETE FROM items WHERE 1 = 1",
    "delete by another": "DELETE FROM items WHERE EXISTS (SELECT 1 FROM sink)",
    "insert": "INSERT INTO items VALUES (1, 'a', 2)",
    "insert columns": "INSERT INTO items (sku) VALUES ('a')",
    "insert a query": "INSERT INTO items SELECT * FROM sink",
    "upsert": "INSERT INTO items VALUES (1, 'a', 2) ON CONFLICT DO NOTHING",
}
READING = {
    "own value": "UPDATE items SET qty = qty + 1",
    "whole row": "DELETE FROM items WHERE items IS NOT NULL",
    "alias": "UPDATE items AS i SET sku = 'a' WHERE i.qty > 1",
    "subquery": "DELETE FROM items WHERE EXISTS (SELECT 1 FROM sink WHERE sink.id = qty)",
    "own value by conflict": "INSERT INTO items VALUES (1, 'a', 2) ON CONFLICT (order_id) DO UPDATE SET qty = items.qty + 1",
    "update": "UPDATE items SET sku = 'a' WHERE qty > 1",
    "update from": "UPDATE items SET sku = 'a' FROM sink WHERE sink.id = items.order_id",
    "delete": "DELETE FROM items WHERE qty > 1",
    "delete using": "DELETE FROM items USING sink WHERE sink.id = items.order_id",
    "merge": "MERGE INTO items USING sink ON sink.id = items.order_id WHEN MATCHED THEN DELETE",
}
RETURNED = ("*", "sku", "items.sku", "qty + 1 AS x", "(SELECT max(qty) FROM items) AS x")


def uses(text: str, dialect: str = "duckdb") -> set[tuple[str, str]]:
    rewriter = service_of([])._rewriter
    found = rewriter.examine(text, dialect, CallerIdentity("user:bob@example.com"), policy_set_of([])).uses
    return {(use.name[-1], use.role) for use in found}


@pytest.mark.parametrize("returned", RETURNED)
@pytest.mark.parametrize("text", [*CHANGES.values(), *READING.values()])
def test_a_change_that_returns_rows_reads_its_target(text: str, returned: str) -> None:
    plain, shown = uses(text), uses(f"{text} RETURNING {returned}")
    assert ("items", "write") in plain
    assert shown == {*plain, ("items", "read")}


@pytest.mark.parametrize("text", CHANGES.values(), ids=CHANGES)
def test_a_change_without_a_look_at_the_rows_needs_the_right_to_write_alone(text: str) -> None:
    assert ("items", "read") not in uses(text)


@pytest.mark.parametrize("text", READING.values(), ids=READING)
def test_a_change_that_looks_at_the_rows_reads_its_target(text: str) -> None:
    """The number of changed rows tells what the condition has found."""
    assert ("items", "read") in uses(text)


def test_a_replaced_part_in_spark_is_read() -> None:
    assert ("items", "read") in uses("INSERT INTO items REPLACE WHERE qty > 1 SELECT * FROM sink", "spark")
