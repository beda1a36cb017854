"""Break-even of the cache: decisions without a cache, with a warm and a cold one, in turns on the same requests.

python bench/cache.py [--turns N]

Rules and grants decide as they do, with `redis_for: all` where a cache is used. Redis is the machine's own, so the round
trip has no network. `pays from` is the time of an engine for one resource above which a warm cache is faster than the
engine: the rules and grants of today are far below. The benchmark starts its own Redis. Times are medians of turns.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from copy import copy
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.generators.generated_pdps import LastRecord, batch, make_pdp
from support.servers.redis_server import redis_server
from support.service.caches import redis_cache, with_cache, written

from pdp.decision.cache.local import InProcessCache
from pdp.decision.service import Pdp
from pdp.model.question import Batch

SIZES = (1, 10, 100, 1000)
CONFIG = {"warehouses": {"w": {"default_ref": "main"}}, "authorities": {"default": {"engines": ["cel", "grants"]}}}
RULES = {f"r{number}": f"path.startsWith('s{number}.') && op=='READ_ENTITY_VALUE'" for number in range(20)}
GRANTS = [
    {"principal": "user:oidc~a", "privilege": "select", "object": f"namespace:w/s{number}"} for number in range(20)
]


def tables(size: int) -> Batch:
    """Return one check of tables in some namespaces."""
    names = [f"table:w/s{number % 7}/t{number}" for number in range(size)]
    return batch([{"principal": "user:oidc~a", "action": "read_data", "resources": names}])


def services(url: str) -> dict[str, Pdp]:
    """Return the same service without a cache, with one in this process, and with one in Redis."""
    plain = make_pdp(CONFIG, RULES, GRANTS)
    plain.audit = LastRecord()
    near = with_cache(copy(plain), InProcessCache(1_000_000, 3600))
    return {"none": plain, "in-process": near, "Redis": with_cache(copy(plain), redis_cache(url, ttl=3600))}


async def microseconds(decide: Callable[[], Awaitable[object]], times: int) -> float:
    """Return the time of one decision."""
    began = time.perf_counter()
    for _ in range(times):
        await decide()
    return (time.perf_counter() - began) / times * 1e6


async def warm_times(found: dict[str, Pdp], asked: Batch, turns: int) -> dict[str, float]:
    """Return the median time of a decision of each service, with warm caches."""
    taken: dict[str, list[float]] = {name: [] for name in found}
    for pdp in found.values():
        await pdp.check(asked)
        if pdp.cache:
            await written(pdp)
            assert all((await pdp.check(asked)).cached), "the cache is not warm"
    times = max(3, 300 // asked.size)
    for _ in range(turns):
        for name, pdp in found.items():
            taken[name].append(await microseconds(lambda pdp=pdp: pdp.check(asked), times))  # type: ignore[misc]
    return {name: median(each) for name, each in taken.items()}


async def cold_time(pdp: Pdp, size: int, turns: int) -> float:
    """Return the median time of a decision that finds nothing in the cache."""
    taken = []
    for turn in range(turns):
        names = [f"table:w/s{number % 7}/cold{turn}x{number}" for number in range(size)]
        asked = batch([{"principal": "user:oidc~a", "action": "read_data", "resources": names}])
        taken.append(await microseconds(lambda asked=asked: pdp.check(asked), 1))  # type: ignore[misc]
        await written(pdp)
    return median(taken)


async def compare(url: str, turns: int) -> None:
    """Print one line for each size."""
    found = services(url)
    print(
        f"{'tables':>7} {'no cache':>12} {'in-process':>12} {'Redis':>12} {'cold Redis':>12}   pays from, for each table"
    )
    for size in SIZES:
        asked = tables(size)
        times = await warm_times(found, asked, turns)
        none = times["none"]
        cold = await cold_time(found["Redis"], size, turns)
        near, far = ((times[name] - none) / size for name in ("in-process", "Redis"))
        print(
            f"{size:>7} {none:>9.0f} us {times['in-process'] / none:>11.2f}x {times['Redis'] / none:>11.2f}x"
            f" {cold / none:>11.2f}x   in-process {max(near, 0):.1f} us, Redis {max(far, 0):.1f} us"
        )
    for pdp in found.values():
        if pdp.cache:
            await pdp.cache.close()


def main() -> None:
    """Start a Redis and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=15)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pdp-bench-") as folder, redis_server(Path(folder)) as server:
        asyncio.run(compare(server.url, given.turns))


if __name__ == "__main__":
    main()
