"""Engines beside one another in one process: CPU time of a check in microseconds, and its ratio to grants.

    python bench/engines.py

Each engine decides the same checks alone, in turns: one check by one, and a list of a thousand tables. The best of all
turns counts.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from pdp.app.facts import build_pdp
from pdp.config.load import make_settings
from pdp.decision.codec import decode_batch
from pdp.decision.service import Pdp
from pdp.engines.cel.rules import RuleSet
from pdp.identity.callers import EMBEDDED_CALLER
from pdp.identity.evidence import admit
from pdp.model.question import Batch
from pdp.store.world import parse_world

ENGINES: Final = ("grants", "scopes", "allow_all")
TURNS: Final = 7
TABLES: Final = 1000
_NO_RULES: Final = RuleSet((), {}, ())
_RULE: Final = {"catalog": "lake", "schema": "sales", "tables": [f"t{number}" for number in range(TABLES)]}
_USERS: Final = [f"user{number}" for number in range(100)]
_WORLD: Final = {
    "objects": ["project:p1", {"object": "warehouse:lake", "parent": "project:p1"}],
    "grants": [
        {"principal": f"user:oidc~{user}", "privilege": "select", "object": "namespace:lake/sales"} for user in _USERS
    ],
}


def service_of(engine: str) -> Pdp:
    """Return a service that decides by one engine, with rights of 100 users on a thousand tables."""
    settings = make_settings({"authorities": {"default": {"engines": [engine]}}, "policies": {"rules": []}}, Path())
    permissions = [{"name": user, "permissions": {"Query": [_RULE]}} for user in _USERS]
    sources = {"scopes": {"permissions": permissions, "strict": True}}
    return build_pdp(settings, parse_world(_WORLD), (_NO_RULES, _NO_RULES), sources=sources)


def single_checks() -> list[Batch]:
    """Return checks of one table each, for all users."""
    return [batch_of({"principal": f"user:oidc~{user}", "action": "read_data", "resource": f"table:lake/sales/t{at}"})
            for at, user in enumerate(_USERS)]  # fmt: skip


def batch_of(check: Mapping[str, object]) -> Batch:
    """Return the batch of one check in its JSON form."""
    return admit(decode_batch(json.dumps({"checks": [check]}).encode(), 10_000), EMBEDDED_CALLER)


def seconds_of(pdp: Pdp, batches: Sequence[Batch], rounds: int) -> float:
    """Return the CPU time of one decided resource."""
    started = time.process_time()
    for _ in range(rounds):
        for batch in batches:
            assert pdp.decide_now(batch)
    return (time.process_time() - started) / rounds / sum(batch.size for batch in batches)


def best_of_turns(services: Mapping[str, Pdp], batches: Sequence[Batch], rounds: int) -> dict[str, float]:
    """Return the best time of all turns, by engine."""
    found = dict.fromkeys(services, float("inf"))
    for _ in range(TURNS):
        for engine, pdp in services.items():
            found[engine] = min(found[engine], seconds_of(pdp, batches, rounds))
    return found


def main() -> None:
    """Print a table."""
    os.environ.setdefault("PDP_DEVELOPMENT", "1")
    services = {engine: service_of(engine) for engine in ENGINES}
    tables = [f"table:lake/sales/t{at}" for at in range(TABLES)]
    lists = [batch_of({"principal": f"user:oidc~{_USERS[0]}", "action": "read_data", "resources": tables})]
    forms = {"one by one": (single_checks(), 20), "list of 1,000": (lists, 20)}
    print(f"{'engine':<12}{'form':<16}{'us a check':>12}{'of grants':>12}")
    for form, (batches, rounds) in forms.items():
        for pdp in services.values():
            seconds_of(pdp, batches, 3)
        found = best_of_turns(services, batches, rounds)
        for engine, seconds in found.items():
            print(f"{engine:<12}{form:<16}{seconds * 1e6:>12.3f}{seconds / found['grants']:>12.2f}")


if __name__ == "__main__":
    main()
