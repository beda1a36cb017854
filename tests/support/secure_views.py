"""Databases with the visible rows alone, made without the rewriter: the rows that a rewritten statement must give."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

import duckdb
from support.rewriting import full_database, recorded_data

DATA: Final = recorded_data()
PROTECTABLE: Final = {
    "lake.sales.orders": ("region = 'EU'", "amount >= 300", "status = 'public' AND region IS NOT NULL", "FALSE",
                          "region IN (SELECT region FROM lake.ref.user_regions WHERE principal = SESSION_USER())"),
    "lake.sales.customers": ("region <> 'JP'", "tier < 3", "region IS NULL"),
    "lake.sales.leads": ("score > 10", "region = 'US'"),
    "lake.archive.orders": ("region = 'EU'", "amount BETWEEN 1 AND 400"),
    "lake.hr.emp": ("dept = 'eng' OR mgr_id = 1", "NOT dept = 'hr'", "mgr_id IS NULL"),
    "lake.sales.v_orders": ("amount > 60",),
}  # fmt: skip
"""Tables, and a view, with filters for them."""
_GRANTEES: Final = ("user:alice@example.com", "user:bob@example.com", "group:eu@example.com", "group:hr@example.com",
                    "domain:partner.example", "domain:example.com", "allAuthenticatedUsers", "allUsers")  # fmt: skip
_NAMES: Final[Mapping[str, frozenset[str]]] = {
    "alice": frozenset({"user:alice@example.com", "domain:example.com"}),
    "bob": frozenset({"user:bob@example.com", "domain:example.com"}),
    "carol": frozenset({"domain:example.com", "group:eu@example.com", "group:hr@example.com"}),
    "dave": frozenset({"domain:partner.example"}),
    "erin": frozenset({"domain:example.com"}),
    "etl": frozenset(),
    "anon": frozenset(),
}
"""Caller -> the grantees that name the caller, written by hand."""


def random_policies(dice: random.Random) -> list[dict[str, Any]]:
    """Return policies for some tables. Each table may have several, and TRUE among them."""
    policies = []
    for table, filters in PROTECTABLE.items():
        if dice.random() < (0.8 if table != "lake.sales.v_orders" else 0.3):
            for at in range(dice.randint(1, 3)):
                text = "TRUE" if dice.random() < 0.08 else dice.choice(filters)
                grantees = dice.sample(_GRANTEES, dice.randint(1, 2))
                policies.append({
                    "id": f"p{at}", "table": table, "grantees": grantees, "filter": text,
                    "dialect": dice.choice(["bigquery", "duckdb"]),
                })  # fmt: skip
    return policies


def filtered_database(policies: Sequence[Mapping[str, Any]], caller: str) -> duckdb.DuckDBPyConnection:
    """Return a database in which tables hold the rows that policies show to a caller, and no others."""
    database = full_database(DATA)
    shown: dict[str, list[str]] = {}
    for policy in policies:
        matching = shown.setdefault(policy["table"], [])
        if _is_named(policy["grantees"], caller):
            matching.append(policy["filter"].replace("SESSION_USER()", f"'{_session_user(caller)}'"))
    for table, filters in shown.items():
        visible = " OR ".join(f"({text})" for text in filters) or "FALSE"
        if table in DATA["views"]:
            text = DATA["views"][table]["sql"]
            database.execute(f"CREATE OR REPLACE VIEW {table} AS SELECT * FROM ({text}) v WHERE {visible}")
        else:
            database.execute(f"DELETE FROM {table} WHERE NOT COALESCE(({visible}), FALSE)")
    return database


def _is_named(grantees: Sequence[str], caller: str) -> bool:
    authenticated = DATA["callers"][caller]["authenticated"]
    return any(
        grantee == "allUsers" or (grantee == "allAuthenticatedUsers" and authenticated) or grantee in _NAMES[caller]
        for grantee in grantees
    )


def _session_user(caller: str) -> str:
    who = DATA["callers"][caller]
    member: str = who["principal"].partition(":")[2]
    return member if who["authenticated"] else "anonymous"
