"""Uses of relations: a change that shows rows is a read, too."""

from __future__ import annotations

import pytest
from support.oracles.equivalence import service_of

from pdp.rewrite.identity import CallerIdentity
from pdp.rewrite.policies import policy_set_of

CHANGES = {
    "insert": "INSERT INTO items VALUES (1, 'a', 2)",
    "insert columns": "INSERT INTO items (sku) VALUES ('a')",
    "insert a query": "INSERT INTO items SELECT * FROM sink",
    "upsert": "INSERT INTO items VALUES (1, 'a', 2) ON CONFLICT DO NOTHING",
    "update": "UPDATE items SET sku = 'a' WHERE qty > 1",
    "update from": "UPDATE items SET sku = 'a' FROM sink WHERE sink.id = items.order_id",
    "delete": "DELETE FROM items WHERE qty > 1",
    "delete using": "DELETE FROM items USING sink WHERE sink.id = items.order_id",
    "merge": "MERGE INTO items USING sink ON sink.id = items.order_id WHEN MATCHED THEN DELETE",
}
RETURNED = ("*", "sku", "items.sku", "qty + 1 AS x", "(SELECT max(qty) FROM items) AS x")


def uses(text: str) -> set[tuple[str, str]]:
    rewriter = service_of([])._rewriter
    found = rewriter.examine(text, "duckdb", CallerIdentity("user:bob@example.com"), policy_set_of([])).uses
    return {(use.name[-1], use.role) for use in found}


@pytest.mark.parametrize("returned", RETURNED)
@pytest.mark.parametrize("text", CHANGES.values(), ids=CHANGES)
def test_a_change_that_returns_rows_reads_its_target(text: str, returned: str) -> None:
    plain, shown = uses(text), uses(f"{text} RETURNING {returned}")
    assert ("items", "read") not in plain
    assert ("items", "write") in plain
    assert shown == {*plain, ("items", "read")}
