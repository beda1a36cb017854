"""Companies of many kinds: rules, grants, roles, views and row policies drawn from a seed, and people who use them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from random import Random
from typing import Any

from support.generators.recorded_company import OWNER, READS, Company

from pdp.identity.callers import EMBEDDED_CALLER
from pdp.views.codec import decode_load

PEOPLE = [f"u{number}" for number in range(8)]
ROLES = ["analyst", "writer", "clerk"]
SCHEMAS = ["s4", "s5", "a b"]
TABLES = ["t0", "t1", "t2"]
IDS = ["readers", "a b", "p=q", "x:y", '"quoted"', "l[]", "#1", "ä"]
"""Ids of rules, most of which a properties file has to escape."""
ACTIONS = ["read_data", "get_metadata", "write_data", "drop", "include_in_list"]


def draw_rules(draw: Random) -> dict[str, str]:
    """Rules with alternatives, with and without a use."""
    parts = [
        f"{READS} && path.startsWith('{draw.choice(SCHEMAS)}.')",
        f"{READS} && '{draw.choice(ROLES)}' in roles && path.endsWith('t1')",
        f"role.endsWith('{draw.choice(PEOPLE)}') && op != 'DELETE_ENTITY'",
        f"op == 'UPDATE_ENTITY' && path == 's5.{draw.choice(TABLES)}'",
        "path == '${nobody}' || role == '$x'",
    ]
    chosen = {"refs": "op in ['VIEW_REFERENCE', 'READ_ENTRIES']"}
    for id in draw.sample(IDS, draw.randint(1, 4)):
        chosen[id] = " || ".join(f"({part})" for part in draw.sample(parts, draw.randint(1, 3)))
    return chosen


def draw_rows(draw: Random) -> dict[str, Any]:
    """Row policies and masks, for people and for roles that people have by grants."""
    tables = [f"lake.s4.{name}" for name in TABLES]
    grantees = [f"role:{name}" for name in ROLES] + [f"user:{name}" for name in PEOPLE[:3]]
    policies = [
        {"id": f"p{at}", "table": draw.choice(tables), "grantees": draw.sample(grantees, 2),
         "filter": draw.choice([True, "region = 'EU'", "region = 'US'"])}
        for at in range(4)
    ]  # fmt: skip
    masks = [
        {
            "id": "m0",
            "table": draw.choice(tables),
            "column": "ssn",
            "grantees": draw.sample(grantees, 2),
            "kind": "null",
        }
    ]
    columns = {"columns": {"region": "varchar", "ssn": "varchar"}}
    return {"tables": dict.fromkeys(tables, columns), "policies": policies, "masks": masks}


def draw_world(draw: Random) -> dict[str, Any]:
    """Grants of every kind: far too many, through roles of roles, and on objects of every depth."""
    objects: list[Any] = ["project:p1", {"object": "warehouse:lake", "parent": "project:p1"}]
    objects += [{"object": f"role:{name}", "parent": "project:p1"} for name in ROLES]
    below = [f"namespace:lake/{name}" for name in ("s4", "s5")]
    below += [f"table:lake/{schema}/{name}" for schema in ("s4", "s5") for name in TABLES]
    holders = [f"user:oidc~{name}" for name in PEOPLE] + [f"role:{name}" for name in ROLES]
    grants = {
        (draw.choice(holders), draw.choice(["select", "modify", "describe", "ownership"]), draw.choice(below))
        for _ in range(draw.randint(6, 24))
    }
    grants |= {(f"user:oidc~{name}", "assignee", f"role:{draw.choice(ROLES)}") for name in PEOPLE}
    grants |= {("role:clerk", "assignee", "role:analyst"), ("user:oidc~u1", "select", "warehouse:lake")}
    grants |= {("user:oidc~owner", "select", "namespace:lake/s5"), ("role:analyst", "select", "view:lake/s5/v")}
    listed = [{"principal": who, "privilege": what, "object": on} for who, what, on in sorted(grants)]
    return {"objects": objects, "grants": listed}


class VariedCompany(Company):
    """Company of a seed, with a month of a few hundred checks."""

    def __init__(self, folder: Path, seed: int) -> None:
        draw = Random(seed)
        policies = draw_rules(draw), draw_rows(draw)
        super().__init__(folder, seed, per_file=200, policies=policies, start=draw_world(draw))

    def use(self, rounds: int) -> None:
        """Record some rounds of requests of every kind."""
        asyncio.run(self._use(rounds))
        self.close()

    async def _use(self, rounds: int) -> None:
        draw = self.random
        for _ in range(rounds):
            person = {"id": f"user:oidc~{draw.choice(PEOPLE)}", "roles": draw.choice([[], ["analyst"]])}
            table = f"{draw.choice(SCHEMAS).replace(' ', '%20')}/{draw.choice(TABLES)}"
            await self.check(
                [{"principal": person, "action": action, "resource": f"table:lake/{table}"} for action in ACTIONS]
            )
            await self._view_of_the_owner(person, draw.choice(TABLES))
            await self.row_view(draw.choice(PEOPLE), draw.choice(TABLES))
            await self._single()

    async def _view_of_the_owner(self, person: dict[str, Any], table: str) -> None:
        views = [{"resource": "view:lake/s5/v", "properties": {"run-as-owner": "owner"}}]
        body = {
            "principal": person, "action": "loadTable", "target": f"table:lake/s5/{table}",
            "referencedBy": "s5%1Fv", "views": views, "caller": OWNER,
        }  # fmt: skip
        await self.views.load(decode_load(json.dumps(body).encode()), EMBEDDED_CALLER, "http")
        self.checks += 1
