"""Catalogs that requests bring: the catalog of one caller leaves nothing behind for another."""

from __future__ import annotations

import random

import pytest

from pdp.facts.objects import RowPolicy
from pdp.rewrite.process.messages import (
    PolicyState,
    RewriteCall,
    RewriteReply,
    StatementUser,
    SuppliedCatalog,
    SuppliedTable,
)
from pdp.rewrite.process.worker import RewriteProcess

READERS = [StatementUser("user", "oidc~alice"), StatementUser("user", "oidc~bob")]
DEFAULTS = [(), ("lake", "sales"), ("lake", "hr")]
COLUMNS = [{}, {"region": "VARCHAR", "id": "INT", "open": "BOOLEAN"}, {"region": "INT"}, {"open": "INT", "id": "INT"}]
NAMES = ["lake.sales.orders", "lake.sales.regions", "lake.hr.orders", "lake.hr.regions"]
FILTERS = [
    "open",
    "region IN (SELECT region FROM regions WHERE id > 1)",
    "region IN (SELECT region FROM lake.hr.regions)",
    "id > 1",
    "TRUE",
]
STATEMENTS = [
    "SELECT * FROM {}",
    "DELETE FROM {}",
    "INSERT INTO {} VALUES (1)",
    "CREATE TABLE {} AS SELECT 1 AS region",
]


def rules_of(dice: random.Random) -> tuple[RowPolicy, ...]:
    return tuple(
        RowPolicy(tuple(name.split(".")), f"p{at}", (dice.choice(["allUsers", "user:alice"]),), filter, "duckdb")
        for name in NAMES
        for at, filter in enumerate(dice.sample(FILTERS, dice.randrange(3)))
    )


def call_of(dice: random.Random) -> RewriteCall:
    supplied = SuppliedCatalog(
        dice.choice(DEFAULTS),
        {name: SuppliedTable(dice.choice(COLUMNS)) for name in dice.sample(NAMES, dice.randrange(len(NAMES) + 1))},
    )
    name = dice.choice([*NAMES, "orders", "regions"])
    text = dice.choice(STATEMENTS).format(name)
    return RewriteCall(text, "duckdb", dice.choice(READERS), dice.choice([supplied, supplied, None]))


@pytest.mark.parametrize("seed", range(25))
def test_an_answer_does_not_depend_on_the_catalogs_of_earlier_requests(seed: int) -> None:
    dice = random.Random(seed)
    made = PolicyState("1", [{"default": ["lake", "sales"]}], (), "user:{subject}", "oidc", {}, rules=rules_of(dice))
    shared = RewriteProcess(made)
    for _ in range(40):
        call = call_of(dice)
        assert shared.answer(call) == RewriteProcess(made).answer(call), call


def answer(
    statement: str, described: dict[str, dict[str, str]], reader: StatementUser, rules: tuple[RowPolicy, ...]
) -> RewriteReply:
    tables = {name: SuppliedTable(columns) for name, columns in described.items()}
    supplied = SuppliedCatalog(("lake", "sales"), tables)
    made = PolicyState("1", [], (), "user:{subject}", "oidc", {}, rules=rules)
    return RewriteProcess(made).answer(RewriteCall(statement, "duckdb", reader, supplied))


@pytest.mark.parametrize("statement", ["DELETE FROM {}", "INSERT INTO {} VALUES ('EU')", "CREATE TABLE {} AS SELECT 1"])
@pytest.mark.parametrize(
    "described",
    [
        {"lake.sales.regions": {"region": "VARCHAR"}},
        {"lake.sales.regions": {"region": "VARCHAR"}, "lake.sales.orders": {}},
        {"lake.sales.regions": {"region": "VARCHAR"}, "lake.sales.orders": {"other": "VARCHAR"}},
        {"lake.sales.regions": {}, "lake.sales.orders": {"region": "VARCHAR"}},
        {"lake.sales.regions": {"other": "VARCHAR"}, "lake.sales.orders": {"region": "VARCHAR"}},
        {"lake.sales.regions": {"region": "VARCHAR"}, "lake.sales.orders": {"region": "VARCHAR"}},
    ],
)
def test_a_catalog_that_hides_the_filtered_table_does_not_open_the_table_of_the_filter(
    statement: str, described: dict[str, dict[str, str]]
) -> None:
    """A caller could otherwise change the rows of `regions` by a catalog in which nothing reads them."""
    table = ("lake", "sales", "orders")
    reads = RowPolicy(table, "some", ("allUsers",), "region IN (SELECT region FROM regions)", "duckdb")
    everything = RowPolicy(table, "all", ("user:alice",), "TRUE", "duckdb")
    alice, bob = READERS
    text = statement.format("lake.sales.regions")
    assert answer(text, described, bob, (reads, everything)).error == "RAP_WRITE_NEEDS_FULL_ACCESS"
    assert answer(text, described, alice, (reads, everything)).error == ""
    mask = RowPolicy(table, "m", ("user:alice",), column="region", kind="null")
    assert answer(text, described, alice, (reads, everything, mask)).error == "RAP_WRITE_NEEDS_FULL_ACCESS"
    assert answer(statement.format("lake.sales.elsewhere"), described, bob, (reads,)).error in (
        "",
        "RAP_UNKNOWN_RELATION",
    )
