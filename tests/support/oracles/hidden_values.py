"""Statements whose expressions can fail on a row, over a table with hidden rows, and their answers on visible rows alone.

A statement on the restricted table has to answer as the same statement on a table that never had the hidden rows: the
same rows or an error, and no hidden value in rows, errors and plans.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, NamedTuple

from pdp.engines.row_access.policies import parse_document
from pdp.rewrite.catalog import catalog_of, policy_set_of
from pdp.rewrite.errors import RewriteRefused
from pdp.rewrite.process.local import LocalRewriter, RewriteRequest
from pdp.rewrite.rewriter import Rewriter

ALICE: Final = "user:alice@example.com"
HIDDEN: Final = re.compile(r"secret|hidden|777\d{6}|1887-01|date\(1887")
"""Values of hidden rows alone."""
FILTERS: Final = (
    ("region = 'EU'",),
    ("region IN ('EU', 'AP', 'XX', 'YY', 'ZZ', 'QQ', 'KK')",),
    ("region LIKE 'E%'",),
    ("lower(region) = 'eu'",),
    ("amount < 100 OR amount > 2000000000",),
    ("region = 'EU'", "region = 'AP'"),
    ("region = 'EU'", "email = 'nobody'"),
    ("region IN (SELECT m.region FROM m WHERE m.who = SESSION_USER())",),
    ("EXISTS (SELECT 1 FROM m WHERE m.region = orders.region)",),
    ("region IN ('EU') AND region NOT IN (SELECT m.region FROM m WHERE m.region <> 'EU')",),
    ("region IN (SELECT m.region FROM m WHERE m.who = SESSION_USER()) OR id < 0",),
    ("CASE WHEN region = 'EU' THEN TRUE ELSE FALSE END = TRUE",),
)
"""Forms of policies that show the same third of the rows."""
COLUMNS: Final = {
    "duckdb": {
        "id": "INTEGER", "region": "VARCHAR", "email": "VARCHAR", "amount": "INTEGER", "ratio": "DOUBLE", "day": "DATE",
        "s": "STRUCT(b VARCHAR)", "l": "VARCHAR[]",
    },
    "spark": {
        "id": "INT", "region": "STRING", "email": "STRING", "amount": "INT", "ratio": "DOUBLE", "day": "DATE",
        "s": "STRUCT<b: STRING>", "l": "ARRAY<STRING>",
    },
}  # fmt: skip
_CONDITIONS: Final = {
    "duckdb": (
        "email::INT > 0", "CAST(email AS BIGINT) > 0", "email::INT[] IS NULL", "jaccard('[1]', email) > 2", "[email]::INT[] IS NOT NULL",
        "{'a': email}::STRUCT(a INT) IS NOT NULL", "email > 4", "email = amount / 10", "email IS TRUE", "amount + 2147400000 > 0",
        "strptime(email, '%d') IS NULL", "email IN (5, 2)", "email BETWEEN 1 AND 9", "NOT email::INT::BOOL", "list_extract([1], email::INT) = 1",
        "s.b::INT > 0", "struct_extract(s, 'b')::INT > 0", "l[1]::INT > 0", "list_contains([5], email::INT)", "email LIKE region",
        "day + (amount * 100000)::INT IS NOT NULL", "repeat('x', amount - 40)::INT IS NULL", "email::DATE IS NOT NULL", "(email || '1')::INT > 0",
        "CASE WHEN amount > 700 THEN email::INT ELSE 1 END > 0", "substr(email, amount) = ''", "regexp_matches('x', email)", "sqrt(100 - amount) > 0",
        "ln(100 - amount) > 0", "email::STRUCT(a INT) IS NULL", "nullif(email, '5')::INT IS NULL", "try_cast(email AS INT) = 5",
    ),
    "spark": (
        "CAST(email AS INT) > 0", "CAST(email AS BIGINT) > 0", "CAST(CASE WHEN id >= 0 THEN concat_ws('|', email, region) ELSE '1' END AS INT) IS NULL",
        "email > 4", "email = amount / 10", "email IN (5, 2)", "email BETWEEN 1 AND 9", "amount + 2147400000 > 0", "CAST(email AS DATE) IS NULL",
        "to_date(email, 'dd') IS NULL", "to_timestamp(email) IS NULL", "CAST(s.b AS INT) > 0", "CAST(l[0] AS INT) > 0", "element_at(l, amount - 49) = '5'",
        "element_at(array(1), CAST(email AS INT) - 4) = 1", "'5' LIKE email", "email LIKE region", "1 / (amount - 777000001) > 0", "1 / ratio > 0",
        "CAST(email AS BOOLEAN)", "concat(email, '1') > 5", "CASE WHEN amount > 700 THEN CAST(email AS INT) ELSE 1 END > 0", "amount % (amount - 777000001) > 0",
        "CAST(amount * 100 AS SMALLINT) IS NULL", "CAST(amount AS TINYINT) > 0", "make_date(amount, 1, 1) IS NULL", "regexp_like('x', email)",
        "from_json(email, 'a INT') IS NULL", "date_add(day, amount * 10000) IS NULL", "abs(-amount - 2147000000) > 0", "nullif(email, '5') > 3",
        "CAST(concat(ratio, 'x') AS DOUBLE) > 0", "hash(CAST(email AS INT)) IS NOT NULL",
    ),
}  # fmt: skip
"""Conditions that hold or do not on visible rows, and most of which fail on hidden ones."""
_TOTAL: Final = (
    "id >= 0",
    "region = 'EU'",
    "amount < 1000",
    "email IS NOT NULL",
    "day >= '2020-01-01'",
    "id IN (0, 1, 2, 3)",
)
_SHAPES: Final = (
    "SELECT count(*) FROM orders WHERE {c}",
    "SELECT id, region, email FROM orders WHERE {c}",
    "SELECT id, {c} AS z FROM orders",
    "SELECT id FROM (SELECT *, {c} AS z FROM orders) AS x WHERE z",
    "SELECT o.id, f.k FROM orders AS o JOIN free AS f ON f.k = o.id AND {c}",
    "SELECT f.k FROM free AS f LEFT JOIN orders AS o ON f.k = o.id AND {c}",
    "SELECT o.id FROM orders AS o RIGHT JOIN free AS f ON {c}",
    "SELECT o.id, p.id FROM orders AS o JOIN (SELECT id, {c} AS z FROM orders) AS p ON o.id = p.id AND p.z",
    "SELECT id FROM orders SEMI JOIN free ON free.k = orders.id AND {c}",
    "WITH w AS (SELECT * FROM orders) SELECT id FROM w WHERE {c}",
    "WITH w AS (SELECT *, {c} AS z FROM orders) SELECT id, z FROM w WHERE z OR {d}",
    "SELECT id FROM orders ORDER BY {c}, id",
    "SELECT k FROM free WHERE EXISTS (SELECT 1 FROM orders WHERE {c} AND orders.id = free.k)",
    "SELECT k, (SELECT max(id) FROM orders WHERE {c}) AS z FROM free",
    "SELECT k FROM free WHERE k IN (SELECT id FROM orders WHERE {c})",
    "SELECT {c} AS z, count(*) AS n FROM orders GROUP BY {c}",
    "SELECT region, count(*) AS n FROM orders GROUP BY region HAVING max({c})",
    "SELECT id FROM orders WHERE {c} UNION ALL SELECT id FROM orders WHERE {d}",
    "SELECT id FROM orders WHERE id >= 0 EXCEPT SELECT id FROM orders WHERE {c}",
    "SELECT id, sum(CASE WHEN {c} THEN 1 ELSE 0 END) OVER (ORDER BY id) AS z FROM orders",
    "SELECT DISTINCT {c} AS z FROM orders WHERE {d}",
    "SELECT id FROM v WHERE {c}",
    "SELECT v.id FROM v JOIN orders USING (id) WHERE v.id >= 0 AND EXISTS (SELECT 1 FROM orders WHERE {c})",
    "SELECT count(*) FROM orders AS a CROSS JOIN free WHERE {c}",
)


class Statement(NamedTuple):
    """Generated text, with the conditions in it."""

    text: str
    conditions: tuple[str, ...]


def statements(dialect: str, seed: object, count: int) -> list[Statement]:
    """Return generated statements."""
    dice = random.Random(f"{dialect} {seed}")
    return [_statement(dialect, dice) for _ in range(count)]


def _statement(dialect: str, dice: random.Random) -> Statement:
    used: list[str] = []
    shape = dice.choice(_SHAPES)
    text = shape.format(c=_condition(dialect, dice, used), d=_condition(dialect, dice, used))
    return Statement(text, tuple(used))


def _condition(dialect: str, dice: random.Random, used: list[str], depth: int = 0) -> str:
    if depth > 1 or dice.random() < 0.5:
        used.append(dice.choice(_CONDITIONS[dialect]))
        return f"({used[-1]})"
    left, right = _condition(dialect, dice, used, depth + 1), f"({dice.choice(_TOTAL)})"
    if dice.random() < 0.4:
        right = _condition(dialect, dice, used, depth + 1)
    forms = (
        "({0} AND {1})",
        "({0} OR {1})",
        "({1} AND {0})",
        "NOT {0}",
        "(CASE WHEN {1} THEN {0} ELSE {1} END)",
        "coalesce({0}, {1})",
    )
    return dice.choice(forms).format(left, right)


def service(dialect: str, filters: Sequence[str], default: Sequence[str]) -> LocalRewriter:
    """Return the rewriter of policies with these filters on `orders`. The types of structs and lists are not listed."""
    table = {"table": "orders", "grantees": ["allAuthenticatedUsers"], "dialect": dialect}
    text = "VARCHAR" if dialect == "duckdb" else "STRING"
    body = {
        "default": list(default),
        "tables": {
            "orders": {"columns": COLUMNS[dialect]}, "m": {"columns": {"who": text, "region": text}}, "free": {"columns": {"k": "INT"}},
        },
        "views": {"v": {"sql": "SELECT * FROM orders WHERE id IS NOT NULL"}},
        "policies": [{"id": f"p{at}", "filter": one, **table} for at, one in enumerate(filters)],
    }  # fmt: skip
    document = parse_document(body).document
    catalog = catalog_of([document])
    return LocalRewriter(catalog, policy_set_of([document]), Rewriter(catalog))


@dataclass(slots=True)
class Outcome:
    """Statements by outcome. `wrong` has a line for each that shows a hidden value, or answers otherwise."""

    taken: int = 0
    refused: int = 0
    failed: int = 0
    wrong: list[str] = field(default_factory=list)


ROWS: Final = (
    "CAST(i AS INT) AS id, CASE WHEN i % 3 = 0 THEN 'EU' ELSE 'hidden' END AS region, CASE WHEN i % 3 = 0 THEN '5' ELSE concat('secret', i) END AS email, "
    "CAST(CASE WHEN i % 3 = 0 THEN 50 ELSE 777000000 + i % 100 END AS INT) AS amount, "
    "CAST(CASE WHEN i % 3 = 0 THEN 2 ELSE 0 END AS DOUBLE) AS ratio, "
    "CASE WHEN i % 3 = 0 THEN DATE '2024-01-01' ELSE DATE '1887-01-01' END AS day, {struct}, {list}"
)
"""Columns of `orders` from a number `i`, with gaps for what dialects write differently. Each third row is visible."""
SCHEMAS: Final = (("every", ""), ("visible", " WHERE i % 3 = 0"))
"""Schemas with all rows, and with the visible rows alone."""
Run = Callable[[str], tuple[list[Any] | None, str]]
"""Runs a statement: the rows, or None with the error; then all that is shown beside the rows."""


def judge(by: LocalRewriter, dialect: str, some: Iterable[Statement], restricted: Run, visible: Run) -> Outcome:
    """Run statements on the restricted table and on the visible rows alone, and compare.

    A condition that fails on a visible row may fail in one of the two alone: engines choose the order of conditions.
    """
    found = Outcome()
    fails = cache(lambda condition: visible(f"SELECT {condition} AS z FROM orders")[0] is None)
    for text, conditions in some:
        try:
            sql = by.rewrite(RewriteRequest(text, dialect, ALICE))
        except RewriteRefused:
            found.refused += 1
            continue
        found.taken += 1
        rows, shown = restricted(sql)
        wanted, _ = visible(text)
        found.failed += rows is None
        if HIDDEN.search(_without_texts(str(rows), text)) or HIDDEN.search(_without_texts(shown, text + sql)):
            found.wrong.append(f"shows a hidden value: {text} -> {sql}: {str(rows)[:200]} {shown[:400]}")
        elif rows is None or wanted is None:
            if rows is not wanted and not any(map(fails, conditions)):
                found.wrong.append(
                    f"fails otherwise: {text} -> {sql}: {str(rows)[:200]} {shown[:300]} instead of {str(wanted)[:200]}"
                )
        elif _sorted(rows) != _sorted(wanted):
            found.wrong.append(
                f"answers otherwise: {text} -> {sql}: {str(rows)[:200]} {shown[:300]} instead of {str(wanted)[:200]}"
            )
    return found


def _without_texts(shown: str, written: str) -> str:
    """Return what is shown without the numbers that stand in the statement."""
    for number in set(re.findall(r"777\d{6}", written)):
        shown = shown.replace(number, "")
    return shown


def _sorted(rows: Sequence[Any]) -> list[str]:
    return sorted(map(str, rows))
