"""Comparison of rewritten statements on full tables with the same statements on filtered tables."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import duckdb
from support.generators.generated_sql import SqlGenerator
from support.oracles.secure_views import filtered_database, random_masks, random_policies
from support.rewriting import full_database, recorded_data, rows_of

from pdp.engines.row_access.policies import parse_document
from pdp.rewrite.catalog import catalog_of, policy_set_of
from pdp.rewrite.errors import RewriteRefused
from pdp.rewrite.process.local import LocalRewriter, RewriteRequest
from pdp.rewrite.rewriter import Rewriter

DATA: Final = recorded_data()
CALLERS: Final = sorted(DATA["callers"])
STATEMENTS_PER_WORLD: Final = 50


@dataclass(frozen=True)
class Comparison:
    """Outcome of one statement. `refused` is the code of the rewriter; `failed` the message of both databases."""

    sql: str
    rewritten: str
    is_same: bool
    changed: bool = False
    refused: str = ""
    failed: str = ""
    told: str = ""


def service_of(policies: list[dict[str, Any]], masks: list[dict[str, Any]] | None = None) -> LocalRewriter:
    body = {
        "default": ["lake", "sales"],
        "tables": {name: {"columns": _columns(table["ddl"])} for name, table in DATA["tables"].items()},
        "views": {
            name: {"sql": view["sql"], "columns": view.get("columns") or []} for name, view in DATA["views"].items()
        },
        "policies": policies,
        "masks": masks or [],
    }
    document = parse_document(body).document
    catalog = catalog_of([document])
    return LocalRewriter(catalog, policy_set_of([document]), Rewriter(catalog))


def comparisons(seed: int, count: int) -> Iterator[Comparison]:
    """Yield comparisons of random statements: the policies and the caller change after some of them."""
    dice, mask_dice = random.Random(seed), random.Random(seed)
    full = full_database(DATA)
    for start in range(0, count, STATEMENTS_PER_WORLD):
        policies, caller = random_policies(dice), dice.choice(CALLERS)
        masks = random_masks(mask_dice)
        service, filtered = service_of(policies, masks), filtered_database(policies, caller, masks)
        for _ in range(start, min(start + STATEMENTS_PER_WORLD, count)):
            sql, after = SqlGenerator(random.Random(dice.random())).statement()
            yield _compare(service, caller, (full, filtered), (sql, after))
        filtered.close()


def _compare(
    service: LocalRewriter,
    caller: str,
    databases: tuple[duckdb.DuckDBPyConnection, duckdb.DuckDBPyConnection],
    statement: tuple[str, str],
) -> Comparison:
    sql, after = statement
    who = DATA["callers"][caller]
    request = RewriteRequest(sql, "duckdb", who["principal"], tuple(who["groups"]), authenticated=who["authenticated"])
    try:
        rewritten = service.rewrite(request)
    except RewriteRefused as error:
        return Comparison(sql, "", is_same=True, refused=error.rap, told=str(error))
    full, filtered = databases
    try:
        wanted = rows_of(filtered, sql, after)
    except duckdb.Error as error:
        return Comparison(sql, rewritten, is_same=True, failed=str(error))
    try:
        found = rows_of(full, rewritten, after)
    except duckdb.Error as error:
        return Comparison(sql, rewritten, is_same=False, changed=True, told=str(error))
    same = wanted == found
    return Comparison(sql, rewritten, same, changed=rewritten != sql, told="" if same else f"{wanted} != {found}"[:600])


def _columns(ddl: str) -> dict[str, str]:
    pairs = (part.strip().partition(" ") for part in ddl.split(","))
    return {name: kind for name, _, kind in pairs}
