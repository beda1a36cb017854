"""Cedar through the service beside bare cedarpy, on the same 1,000 requests, in turns.

python bench/cedar.py [--turns N] [--policies N]

Bare cedarpy gets what a program without the service would give: the text of the policies and the entities of the check,
once per request. `parsed once` gives parsed policies in place of the text. The service gets one batch: ten users ask
about a hundred tables each. `one by one` sends each request as a batch of its own. Times are medians of CPU time.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from copy import copy
from pathlib import Path
from statistics import median
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import cedarpy
from spec.cedar import CedarSpec, ref
from support.generators.generated_pdps import LastRecord, batch
from support.service.caches import with_cache

from pdp.app.facts import build_pdp
from pdp.config.load import make_settings
from pdp.decision.cache.local import InProcessCache
from pdp.decision.service import Pdp
from pdp.engines.cedar.kind import as_sources
from pdp.engines.cedar.model import load_model
from pdp.engines.cedar.schema import CedarSources, SourceText
from pdp.engines.cel.rules import inline_rules
from pdp.model.question import Batch
from pdp.store.world import parse_world

USERS: Final = 10
TABLES: Final = [f"lake/s{number % 7}/t{number}" for number in range(100)]
GROUPS: Final = ("TableSelectActions", "TableModifyActions", "TableActions")
MEMBERS: Final = {f"user:oidc~u{number}": {f"r{number % 5}"} for number in range(USERS)}
CONFIG: Final = {
    "authorities": {"default": {"engines": ["cedar"]}},
    "warehouses": {"lake": {"project": "p"}},
    "policies": {"rules": ()},
    "audit": {"sinks": ()},
}


def policies(count: int) -> str:
    """Return permits of namespaces to roles, and a forbid by an attribute."""
    permits = [
        f'@id("p{number}") permit(principal in Lakekeeper::Role::"r{number % 5}",'
        f' action in Lakekeeper::Action::"TableSelectActions", resource in Lakekeeper::Namespace::"lake/s{number % 7}");'
        for number in range(count - 1)
    ]
    return "\n".join(
        [
            *permits,
            '@id("f") forbid(principal, action, resource) when { resource has name && resource.name like "t9*" };',
        ]
    )


def requests() -> list[tuple[dict[str, Any], list[Any]]]:
    """Return the requests of cedarpy with their entities."""
    spec = CedarSpec("", [], MEMBERS, {"warehouse:lake": "p"})
    action = {"uid": ref("Action", "ReadTableData"), "attrs": {}, "parents": [ref("Action", each) for each in GROUPS]}
    found = []
    for user in MEMBERS:
        name = user.removeprefix("user:")
        for table in TABLES:
            entities = [*spec.entity("User", name, user), *spec.entity("Table", table, user), action]
            unique = {(each["uid"]["type"], each["uid"]["id"]): each for each in entities}
            request = {
                "principal": ref("User", name),
                "action": ref("Action", "ReadTableData"),
                "resource": ref("Table", table),
                "context": {"delegated": False},
            }
            found.append((request, list(unique.values())))
    return found


def service(text: str) -> Pdp:
    """Return the service with these policies."""
    grants = [
        {"principal": user, "privilege": "assignee", "object": f"role:{role}"}
        for user, roles in MEMBERS.items()
        for role in sorted(roles)
    ]
    sources = as_sources(load_model(CedarSources((SourceText(text),))))
    rules = (inline_rules({}), inline_rules({}))
    facts = parse_world({"objects": [], "grants": grants})
    pdp = build_pdp(make_settings(CONFIG, Path()), facts, rules, sources={"cedar": sources})
    pdp.audit = LastRecord()
    return pdp


def asked(tables: Sequence[str], user: str) -> dict[str, Any]:
    """Return one check about tables."""
    return {"principal": user, "action": "read_data", "resources": [f"table:{table}" for table in tables]}


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return the CPU time of some work."""
    began = time.process_time()
    work()
    return time.process_time() - began


def decide(runner: asyncio.Runner, pdp: Pdp, batches: Sequence[Batch]) -> bytes:
    """Return the answers to batches, one byte for each resource."""

    async def answers() -> bytes:
        return b"".join([(await pdp.check(each)).allowed for each in batches])

    return runner.run(answers())


def compare(turns: int, count: int) -> None:
    """Print the time of each side, and the ratio to bare cedarpy."""
    text = policies(count)
    parsed, bare, plain = cedarpy.PolicySet.from_str(text), requests(), service(text)
    cached = with_cache(copy(plain), InProcessCache(1_000_000, 3600))
    together = [batch([asked(TABLES, user) for user in MEMBERS])]
    singles = [batch([asked([table], user)]) for user in MEMBERS for table in TABLES]
    with asyncio.Runner() as runner:
        wanted = bytes(cedarpy.is_authorized(request, parsed, entities).allowed for request, entities in bare)
        assert decide(runner, plain, together) == decide(runner, plain, singles) == wanted
        assert decide(runner, cached, together) == decide(runner, cached, together) == wanted
        sides: dict[str, Callable[[], object]] = {
            "bare cedarpy": lambda: [cedarpy.is_authorized(request, text, entities) for request, entities in bare],
            "bare, parsed once": lambda: [cedarpy.is_authorized(request, parsed, each) for request, each in bare],
            "service, one by one": lambda: decide(runner, plain, singles),
            "service, one batch": lambda: decide(runner, plain, together),
            "service, cached": lambda: decide(runner, cached, together),
        }
        taken: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(turns):
            for name, work in sides.items():
                taken[name].append(cpu_seconds(work))
    first = median(taken["bare cedarpy"])
    print(f"{len(bare)} requests, {count} policies, {sum(wanted)} permitted")
    for name, times in taken.items():
        each = median(times)
        print(f"{name:<20} {each / len(bare) * 1e6:>8.1f} us a request {first / each:>8.1f}x")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--policies", type=int, default=20)
    given = parser.parse_args()
    compare(given.turns, given.policies)


if __name__ == "__main__":
    main()
