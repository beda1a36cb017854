"""Databases with the visible rows alone, made without the rewriter: the rows that a rewritten statement must give."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
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


def random_masks(dice: random.Random) -> list[dict[str, Any]]:
    """Return masks for some columns: none in most worlds."""
    if dice.random() < 0.6:
        return []
    masks = []
    for at, (table, column, body) in enumerate(MASKED):
        if dice.random() < 0.4:
            grantees, exempt = dice.sample(_GRANTEES, 2), dice.sample(_GRANTEES, 1)
            masks.append({
                "id": f"m{at}", "table": table, "column": column, "grantees": grantees, "except": exempt, **body,
            })  # fmt: skip
    return masks


def mask_columns(
    database: duckdb.DuckDBPyConnection, masks: Iterable[Mapping[str, Any]], caller: str
) -> duckdb.DuckDBPyConnection:
    """Put masked values into the columns that masks hide from a caller: the first mask of a column alone."""
    done = set()
    for mask in sorted(masks, key=lambda mask: (_STRICTEST.index(mask["kind"]), mask["id"])):
        place = mask["table"], mask["column"]
        hidden = _is_named(mask["grantees"], caller) and not _is_named(mask["except"], caller)
        if not hidden or place in done:
            continue
        done.add(place)
        table, column = place
        value_of = _VALUES[mask["kind"]](mask.get("expression"))
        for row, value in database.execute(f"SELECT rowid, {column} FROM {table}").fetchall():
            database.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", [value_of(value), row])
    return database


def _partial(value: str | None) -> str:
    return f"****{value[-4:]}" if value is not None and len(value) >= 8 else "****"


def _hash(value: str | None) -> str | None:
    return None if value is None else hashlib.sha256(value.encode()).hexdigest()


_VALUES: Final[dict[str, Callable[[Any], Callable[[Any], Any]]]] = {
    "null": lambda _: lambda value: None,
    "constant": lambda constant: lambda value: constant,
    "hash": lambda _: _hash,
    "partial": lambda _: _partial,
    "expression": lambda text: _EXPRESSIONS[text],
}
_EXPRESSIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "score % 2": lambda value: value % 2,
    "COALESCE(dept, 'none') || '!'": lambda value: f"{value or 'none'}!",
}
_STRICTEST: Final = ("null", "constant", "hash", "partial", "expression")
MASKED: Final[tuple[tuple[str, str, dict[str, Any]], ...]] = (
    ("lake.sales.orders", "amount", {"kind": "null"}),
    ("lake.sales.orders", "amount", {"kind": "constant", "expression": 7}),
    ("lake.sales.orders", "region", {"kind": "hash"}),
    ("lake.sales.orders", "status", {"kind": "constant", "expression": "x'y"}),
    ("lake.sales.customers", "name", {"kind": "hash"}),
    ("lake.sales.customers", "region", {"kind": "partial"}),
    ("lake.sales.leads", "score", {"kind": "expression", "expression": "score % 2", "dialect": "duckdb"}),
    ("lake.hr.emp", "dept", {"kind": "expression", "expression": "COALESCE(dept, 'none') || '!'", "dialect": "duckdb"}),
    ("lake.hr.emp", "mgr_id", {"kind": "null"}),
    ("lake.sales.items", "sku", {"kind": "constant", "expression": "thing"}),
)
"""Columns with masks for them."""


def filtered_database(
    policies: Sequence[Mapping[str, Any]], caller: str, masks: Sequence[Mapping[str, Any]] = ()
) -> duckdb.DuckDBPyConnection:
    """Return a database in which tables hold the rows and values that a caller may see, and no others."""
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
    return mask_columns(database, masks, caller)


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
