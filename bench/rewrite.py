"""Time of rewriting SQL, beside parsing and generating the same text with sqlglot alone, in turns.

Every text is new: literals differ, so nothing is remembered of a text. Prints the medians and their ratio, the time of
the fast pass, and both again with 10,000 policies.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import sqlglot

from pdp.engines.row_access.policies import parse_document
from pdp.rewrite.catalog import catalog_of, policy_set_of
from pdp.rewrite.process.local import LocalRewriter, RewriteRequest
from pdp.rewrite.rewriter import Rewriter

ROUNDS: Final = 60
TABLES: Final[dict[str, dict[str, str]]] = {
    "orders": {"id": "BIGINT", "customer_id": "BIGINT", "region": "VARCHAR", "amount": "BIGINT", "d": "DATE"},
    "customers": {"id": "BIGINT", "name": "VARCHAR", "region": "VARCHAR", "tier": "BIGINT"},
    "items": {"order_id": "BIGINT", "sku": "VARCHAR", "qty": "BIGINT"},
}
PROTECTED: Final = (
    "SELECT id, region, amount FROM orders WHERE amount > {n} ORDER BY amount DESC LIMIT 100",
    "SELECT c.name, SUM(o.amount) AS total FROM orders o JOIN customers c ON o.customer_id = c.id WHERE o.amount > {n} GROUP BY c.name HAVING SUM(o.amount) > 10 ORDER BY total DESC",
    "SELECT id FROM customers WHERE tier = {n} AND id IN (SELECT customer_id FROM orders WHERE amount > 10)",
    "WITH big AS (SELECT customer_id, MAX(amount) AS m FROM orders WHERE amount > {n} GROUP BY customer_id) SELECT c.name, b.m FROM big b JOIN customers c ON c.id = b.customer_id",
    "SELECT region, COUNT(*) AS n, AVG(amount) AS a FROM lake.sales.orders WHERE region IN ('EU', 'US', 'JP') AND amount BETWEEN {n} AND 900 GROUP BY region",
    "SELECT o.id, i.sku, i.qty, CASE WHEN i.qty > {n} THEN 'many' ELSE 'few' END AS size FROM orders o LEFT JOIN items i ON i.order_id = o.id WHERE o.region = 'EU'",
)
UNPROTECTED: Final = (
    "SELECT sku, qty FROM items WHERE qty > {n} ORDER BY qty DESC LIMIT 10",
    "SELECT sku, SUM(qty) AS total FROM items WHERE order_id > {n} GROUP BY sku",
    "SELECT a.sku FROM items a JOIN items b ON a.order_id = b.order_id WHERE b.qty > {n}",
)


def service_of(policies: int) -> LocalRewriter:
    """Return a service with two protected tables, and with policies on that many further tables."""
    own = [
        {"id": "eu", "table": "orders", "grantees": ["user:a@x.example"], "filter": "region = 'EU'"},
        {"id": "big", "table": "orders", "grantees": ["allUsers"], "filter": "amount > 100"},
        {"id": "all", "table": "customers", "grantees": ["allUsers"], "filter": "region <> 'JP'"},
    ]
    others = [
        {"id": "p", "table": f"t{at}", "grantees": [f"user:u{at}@x.example"], "filter": "region = 'EU'"}
        for at in range(policies)
    ]
    tables = {name: {"columns": columns} for name, columns in TABLES.items()}
    tables |= {f"t{at}": {"columns": {"region": "VARCHAR"}} for at in range(policies)}
    body: dict[str, Any] = {"default": ["lake", "sales"], "tables": tables, "policies": [*own, *others]}
    document = parse_document(body).document
    catalog = catalog_of([document])
    return LocalRewriter(catalog, policy_set_of([document]), Rewriter(catalog))


def texts(templates: Sequence[str]) -> Iterator[str]:
    """Yield texts without end, all different."""
    return (template.format(n=n) for n in itertools.count(1) for template in templates)


def medians(calls: Sequence[Callable[[str], object]], templates: Sequence[str]) -> list[float]:
    """Return the median time of each call in microseconds. The calls take turns, each with texts of its own."""
    source = texts(templates)
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(ROUNDS * len(templates)):
        text = next(source)
        for call, found in zip(calls, times, strict=True):
            start = time.thread_time_ns()
            call(text)
            found.append((time.thread_time_ns() - start) / 1000)
    return [statistics.median(found) for found in times]


def main() -> None:
    """Print the table."""
    print(f"{'dialect':10}{'policies':>10}{'rewrite us':>12}{'sqlglot us':>12}{'ratio':>8}{'short way us':>14}")
    for policies in (0, 10_000):
        service = service_of(policies)
        for dialect in ("duckdb", "trino", "spark", "bigquery"):

            def rewrite(text: str) -> object:
                return service.rewrite(RewriteRequest(text, dialect, "user:a@x.example"))

            def peer(text: str) -> object:
                return sqlglot.parse_one(text, read=dialect).sql(dialect=dialect)

            medians([rewrite, peer], PROTECTED)
            ours, theirs = medians([rewrite, peer], PROTECTED)
            (short,) = medians([rewrite], UNPROTECTED)
            print(f"{dialect:10}{policies + 3:>10}{ours:>12.0f}{theirs:>12.0f}{ours / theirs:>8.2f}{short:>14.1f}")


if __name__ == "__main__":
    main()
