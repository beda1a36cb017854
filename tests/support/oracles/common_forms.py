"""Common forms of filters: each function that authors ask for, once, as each dialect writes it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from types import ModuleType
from typing import Final, NamedTuple

from support.oracles import casts_abroad, functions_abroad, pieces_abroad, times_abroad
from support.oracles.functions_abroad import CALLER, DIALECTS, Form

from pdp.engines.row_access.policies import parse_document
from pdp.rewrite.catalog import catalog_of, policy_set_of
from pdp.rewrite.process.local import LocalRewriter
from pdp.rewrite.rewriter import Rewriter

SUITES: Final = (functions_abroad, times_abroad, casts_abroad, pieces_abroad)
"""Suites whose forms tests execute on DuckDB, Spark and Trino, and all but the first with GoogleSQL's evaluator."""
NAMES: Final = {
    "IS TRUE and kin": "`b IS TRUE`", "IS DISTINCT FROM": "`s IS DISTINCT FROM t`", "LIKE with an escape": "`LIKE` with an escape",
    "LOWER": "`LOWER(s) = 'eu'`", "UPPER": "`UPPER(s) = 'EU'`", "TRIM": "`TRIM(s) = 'EU'`", "LENGTH": "`LENGTH(s) > 2`",
    "SUBSTR": "`SUBSTR(s, 1, 2)`", "CONCAT": "`CONCAT(s, t)`", "\\|\\|": "`s || t`", "REPLACE": "`REPLACE(s, '-', '')`",
    "STARTS_WITH": "`STARTS_WITH(s, 'a')`", "ENDS_WITH": "text that ends with `b`", "STRPOS": "`STRPOS(s, '@') > 0`",
    "SPLIT with an index": "`SPLIT(s, '-')` with an index", "REGEXP_CONTAINS": "regular expression `^E`",
    "REGEXP_EXTRACT": "`REGEXP_EXTRACT(s, '^([A-Za-z]+)@')`", "REGEXP_REPLACE": "`REGEXP_REPLACE` with two groups",
    "r'..'": "text with a backslash", "COALESCE": "`COALESCE(s, 'EU')`", "NULLIF": "`NULLIF(s, '') IS NULL`",
    "CAST": "`CAST(i AS text)`", "SAFE_CAST": "`SAFE_CAST(s AS INT64)`, `TRY_CAST(s AS BIGINT)`",
    "literal of a date": "`DATE '2024-02-01'`", "literal of a time": "`ts >= TIMESTAMP '..'`",
    "CURRENT_DATE in a zone": "today's date in a zone", "date plus days": "`day + 7 days`", "date minus days": "`day - 7 days`",
    "EXTRACT": "`EXTRACT(YEAR FROM day)`", "DATE_TRUNC": "`DATE_TRUNC` to a month", "+": "`i + 1`", "-": "`i - 1`", "*": "`i * 2`",
    "DIV": "`DIV(g, 2)`", "MOD": "`MOD(i, 2)`", "ABS": "`ABS(i)`", "ROUND": "`ROUND(c, 1)`", "CASE": "`CASE WHEN .. THEN .. END`",
    "IF": "`IF(a, b, c)`", "IN with a list": "`s IN (..)`", "IN UNNEST, a list of literals": "member of a list",
    "array contains": "member of a column of lists", "SHA-256": "SHA-256 of `s`", "EXISTS over a lookup table": "`EXISTS` over a lookup table",
    "IN over a lookup table": "`IN` over a lookup table",
}  # fmt: skip
"""Common form -> the name of its form in a suite."""


class CommonForm(NamedTuple):
    """Common form, and the suite whose rows it is tried on."""

    name: str
    form: Form
    suite: ModuleType


def common_forms() -> Iterator[CommonForm]:
    """Yield the common forms."""
    known = {form.name: (form, suite) for suite in SUITES for form in suite.FORMS}
    for name, title in NAMES.items():
        yield CommonForm(name, *known[title])


def refusals(common: CommonForm) -> dict[tuple[str, str], str]:
    """Return the pairs of dialects, author and engine, that cannot use a form as a filter, with the reason."""
    found = {}
    for source, target in itertools.permutations(DIALECTS, 2):
        text = common.form.text(source)
        given = None if text is None else answer(common.suite, text, source, target)
        if given is None or "sql" not in given:
            found[source, target] = "no such form" if given is None else json.dumps(given["error"])
    return found


def answer(suite: ModuleType, text: str, source: str, target: str) -> dict[str, object]:
    """Return what the rewriter answers to a query of a table under a filter."""
    policy = {"id": "p", "table": "t", "filter": text, "dialect": source, "grantees": ["allUsers"]}
    body = {
        "default": ["lake", "s"],
        "tables": {"t": {"columns": suite.TYPES}, "m": {"columns": {"x": "VARCHAR"}}},
        "policies": [policy],
    }
    document = parse_document(body).document
    catalog = catalog_of([document])
    service = LocalRewriter(catalog, policy_set_of([document]), Rewriter(catalog))
    asked = {"sql": "SELECT id FROM t", "dialect": target, "principal": f"user:{CALLER}"}
    found: dict[str, object] = service.answer(json.dumps(asked).encode())
    return found
