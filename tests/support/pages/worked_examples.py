"""The worked examples of bqemulator's ADR 0018: policies, callers, statements, and the rows that a caller must get.

One document has the policies of all examples, so that each surface is set up once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import duckdb
from support.rewriting import plain_value, sorted_rows

COLUMNS: Final = {"id": "INTEGER", "region": "VARCHAR", "amount": "INTEGER", "email": "VARCHAR"}
ROWS: Final[list[list[Any]]] = [
    [1, "EU", 100, "alice@example.com"],
    [2, "EU", 900, "bob@example.com"],
    [3, "US", 300, "bob@example.com"],
    [4, "JP", 800, None],
    [5, None, 50, "dave@partner.example"],
]
TABLES: Final = ("sales", "open", "everyone", "signed", "partners", "grouped", "own", "closed")
VIEWS: Final = {
    "v_sales": "SELECT id, region FROM sales",
    **{f"v{at}": f"SELECT * FROM {f'v{at - 1}' if at > 1 else 'v_sales'}" for at in range(1, 9)},
}
POLICIES: Final[list[dict[str, Any]]] = [
    {"id": "eu", "table": "sales", "grantees": ["user:alice@example.com"], "filter": "region = 'EU'"},
    {"id": "big", "table": "sales", "grantees": ["user:alice@example.com"], "filter": "amount >= 800"},
    {"id": "us", "table": "sales", "grantees": ["user:bob@example.com"], "filter": "region = 'US'"},
    {
        "id": "robot", "table": "sales", "grantees": ["serviceAccount:etl@proj.iam.gserviceaccount.com"],
        "filter": "TRUE",
    },
    {"id": "all", "table": "everyone", "grantees": ["allUsers"], "filter": "region = 'EU'"},
    {"id": "signed_in", "table": "signed", "grantees": ["allAuthenticatedUsers"], "filter": "region = 'US'"},
    {"id": "partner", "table": "partners", "grantees": ["domain:partner.example"], "filter": "region IS NULL"},
    {"id": "group", "table": "grouped", "grantees": ["group:eu@example.com"], "filter": "region = 'EU'"},
    {"id": "mine", "table": "own", "grantees": ["allAuthenticatedUsers"], "filter": "email = SESSION_USER()"},
    {"id": "other", "table": "closed", "grantees": ["user:nobody@example.com"], "filter": "TRUE"},
]  # fmt: skip
ALICE, BOB, DAVE = "user:alice@example.com", "user:bob@example.com", "user:dave@partner.example"
GINA = "user:gina@example.com"


@dataclass(frozen=True)
class Example:
    """Statement of a caller, with the wanted ids. A caller without a name is not authenticated."""

    note: str
    caller: str
    sql: str
    ids: list[Any]
    groups: tuple[str, ...] = ()


ROBOT: Final = "serviceAccount:etl@proj.iam.gserviceaccount.com"
EXAMPLES: Final = [
    Example("matching policies are joined by OR", ALICE, "SELECT id FROM sales", [1, 2, 4]),
    Example("another caller has another policy", BOB, "SELECT id FROM sales", [3]),
    Example("without a match there are no rows", DAVE, "SELECT id FROM sales", []),
    Example("without a match the columns stay", DAVE, "SELECT COUNT(*) AS id FROM sales", [0]),
    Example("without policies a table is open", DAVE, "SELECT id FROM open", [1, 2, 3, 4, 5]),
    Example("TRUE shows everything", ROBOT, "SELECT id FROM sales", [1, 2, 3, 4, 5]),
    Example("a user is no service account", "user:etl@proj.iam.gserviceaccount.com", "SELECT id FROM sales", []),
    Example("the host counts in any case", "user:alice@EXAMPLE.com", "SELECT id FROM sales", [1, 2, 4]),
    Example("the local part counts letter by letter", "user:Alice@example.com", "SELECT id FROM sales", []),
    Example("allUsers names a caller without a name", "", "SELECT id FROM everyone", [1, 2]),
    Example("allUsers names a caller with a name", DAVE, "SELECT id FROM everyone", [1, 2]),
    Example("allAuthenticatedUsers names a caller with a name", DAVE, "SELECT id FROM signed", [3]),
    Example("allAuthenticatedUsers needs a name", "", "SELECT id FROM signed", []),
    Example("a domain names its users", DAVE, "SELECT id FROM partners", [5]),
    Example("a domain names no others", ALICE, "SELECT id FROM partners", []),
    Example("a group names callers who bring the group", GINA, "SELECT id FROM grouped", [1, 2], ("eu@example.com",)),
    Example("a group names no caller without the group", BOB, "SELECT id FROM grouped", [], ("us@example.com",)),
    Example("SESSION_USER() is the caller", BOB, "SELECT id FROM own", [2, 3]),
    Example("SESSION_USER() without a name", "", "SELECT id FROM own", []),
    Example("a policy for somebody else closes the table", ALICE, "SELECT id FROM closed", []),
    Example("a view shows the rows of the caller", BOB, "SELECT id FROM v_sales", [3]),
    Example("a view without a match shows no rows", DAVE, "SELECT id FROM v_sales", []),
    Example("views are looked through", ALICE, "SELECT id FROM v7", [1, 2, 4]),
    Example("an outer join keeps the other side", BOB, "SELECT o.id FROM open AS o LEFT JOIN sales AS s ON s.id = o.id "
            "WHERE s.id IS NULL", [1, 2, 4, 5]),
    Example("both sides of a union are filtered", BOB, "SELECT id FROM sales UNION ALL SELECT id FROM signed", [3, 3]),
    Example("a WITH is filtered inside", BOB, "WITH x AS (SELECT * FROM sales) SELECT id FROM x WHERE amount > 0", [3]),
    Example("the alias of the caller stays", BOB, "SELECT s.id FROM sales AS s WHERE s.region = 'US'", [3]),
    Example("the name of the table stays", BOB, "SELECT sales.id FROM sales WHERE sales.region <> 'EU'", [3]),
    Example("a subquery is filtered", BOB, "SELECT id FROM open WHERE id IN (SELECT id FROM sales)", [3]),
    Example("no condition gets around the filter", BOB, "SELECT id FROM sales WHERE 1 = 1 OR region = 'EU'", [3]),
]  # fmt: skip


def document() -> dict[str, Any]:
    """Return the tables, views and policies of all examples."""
    return {
        "default": ["lake", "ex"],
        "tables": {f"lake.ex.{name}": {"columns": COLUMNS} for name in TABLES},
        "views": {f"lake.ex.{name}": {"sql": sql} for name, sql in VIEWS.items()},
        "policies": [{"dialect": "bigquery", **policy} for policy in POLICIES],
    }


def create_statements(insert: bool = True) -> list[str]:
    """Return the statements that make the tables, for most engines."""
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    values = ", ".join(f"({', '.join(map(_literal, row))})" for row in ROWS)
    made = [f"CREATE TABLE lake.ex.{name} ({columns})" for name in TABLES]
    return made + [f"INSERT INTO lake.ex.{name} VALUES {values}" for name in TABLES] if insert else made


def _literal(value: Any) -> str:
    return "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)


def example_database() -> duckdb.DuckDBPyConnection:
    """Return the full tables and the views in DuckDB."""
    database = duckdb.connect()
    for statement in ("ATTACH ':memory:' AS lake", "CREATE SCHEMA lake.ex", "USE lake.ex", *create_statements()):
        database.execute(statement)
    for name, sql in VIEWS.items():
        database.execute(f"CREATE VIEW lake.ex.{name} AS {sql}")
    return database


def ids_of(rows: list[list[Any]]) -> list[Any]:
    """Return the only column of rows, sorted."""
    return [row[0] for row in sorted_rows([[plain_value(value) for value in row] for row in rows])]
