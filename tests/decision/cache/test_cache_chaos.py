"""Redis killed, frozen, flushed, filled and forged under mixed load of two services, with writes and reloads between.

Every decision is compared with a service without a cache at the same revision, and the time of requests with that of a
twin without a cache, in turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sys
import time
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Any

import pytest
import redis
from support.faults.redis_faults import faults
from support.generators import worlds
from support.generators.generated_pdps import LastRecord, batch, make_pdp
from support.servers.redis_server import RedisServer, redis_server
from support.service.caches import new_metrics, redis_cache, value_of

from pdp.decision.cache.local import InProcessCache, TieredCache
from pdp.decision.cache.writer import CacheMetrics
from pdp.decision.service import Pdp
from pdp.decision.verdict_cache import VerdictCache
from pdp.facts.objects import Grant, GrantAdded, GrantRemoved
from pdp.facts.snapshot import Facts
from pdp.model.answer import Answer
from pdp.model.question import Batch
from pdp.store.replica import FixedFacts

pytestmark = [pytest.mark.process, pytest.mark.waits, pytest.mark.long]
SECONDS = float(os.environ.get("TEST_CHAOS_SECONDS", "12"))
TIMEOUT = 0.005
"""The default of `cache.timeout_ms`."""
ALLOWED_SECONDS = 0.05
BEAT = 0.001
CONFIG = {"warehouses": {"w": {"default_ref": "main"}}, "authorities": {"default": {"engines": ["cel", "grants"]}}}
RULE_SETS: list[dict[str, str]] = [
    {"r": "path.startsWith('n.')"},
    {"r": "role=='a' && op=='READ_ENTITY_VALUE'"},
    {"r": "ref=='main'", "boom": "roles[7]=='x'"},
    {},
]
FORBIDS: list[dict[str, str]] = [{}, {"no": "path=='n.t' && role=='b'"}]
GRANTS = [
    Grant((type, path), privilege, principal)
    for type, path in (("table", ("w", "n", "t")), ("namespace", ("w", "n")), ("warehouse", ("w",)))
    for privilege in ("select", "modify", "ownership")
    for principal in ("user:oidc~a", "user:oidc~b", "role:r")
]


def make_batches(count: int) -> list[Batch]:
    """Return batches of one and of many checks, which often have checks in common."""
    choice = random.Random(7)
    checks = [
        worlds.check(user, action, resource, acting, delegated)
        for user in worlds.USERS
        for action in worlds.ACTIONS
        for resource in worlds.RESOURCES
        for acting, delegated in ((None, False), ("role:r", False), (None, True))
    ]
    return [batch(choice.sample(checks, choice.choice([1, 1, 3, 20]))) for _ in range(count)]


class World:
    """Two services with a cache, a twin without one, and an oracle for every revision that any of them had."""

    def __init__(self, server: RedisServer) -> None:
        self.server = server
        self.choice = random.Random()
        self.bundles = [make_pdp(CONFIG, rules, (), forbid).bundle for rules in RULE_SETS for forbid in FORBIDS]
        self.facts = Facts("chaos", 1)
        self.metrics = [new_metrics(), new_metrics()]
        plain = make_pdp(CONFIG, RULE_SETS[0])
        plain.audit = LastRecord()
        self.twin = plain
        self.services = [self._service(plain, metrics, near=near) for near, metrics in enumerate(self.metrics)]
        self.oracles: dict[str, Pdp] = {}
        for pdp in (*self.services, plain):
            self.move(pdp)
        self.batches = make_batches(60)
        self.asked = self.cached = 0
        self.wrong: list[Any] = []
        self.times: tuple[list[float], list[float]] = ([], [])
        """Seconds of requests with and without a cache, less those in which the event loop was held up."""
        self.stalled = 0.0

    def _service(self, plain: Pdp, metrics: CacheMetrics, *, near: int) -> Pdp:
        pdp = copy(plain)
        far = redis_cache(self.server.url, ttl=30, timeout=TIMEOUT, metrics=metrics)
        # one service has an in-process cache, too, so small that Redis is asked often
        pdp.cache = VerdictCache(
            TieredCache(InProcessCache(50, 30), far) if near else far, metrics, TIMEOUT, every_engine=True
        )
        return pdp

    def move(self, pdp: Pdp, *, policies: bool = False) -> None:
        """Bring a service to the newest facts, and perhaps to other policies. The oracle of the revision comes first."""
        bundle = self.choice.choice(self.bundles) if policies else pdp.bundle
        oracle = copy(pdp)
        oracle.cache, oracle.bundle, oracle.source = None, bundle, FixedFacts(self.facts)
        oracle.audit = LastRecord()
        self.oracles.setdefault(oracle.revision(), oracle)
        pdp.bundle, pdp.source = bundle, FixedFacts(self.facts)

    def write(self) -> None:
        grant = self.choice.choice(GRANTS)
        change: Any = GrantRemoved(grant) if self.facts.has(grant) else GrantAdded(grant)
        self.facts = self.facts.apply(self.facts.sequence + 1, [change])

    def judge(self, asked: Batch, answer: Answer) -> None:
        """Compare an answer with that of the oracle of its revision."""
        self.asked += len(answer.allowed)
        self.cached += answer.cached.count(1)
        decided = self.oracles[answer.revision].decide_now(asked)
        assert decided
        wanted = decided.answer
        if (answer.allowed, list(answer.by), answer.errors) != (wanted.allowed, list(wanted.by), wanted.errors):
            self.wrong.append((asked, answer, wanted))

    async def ask_often(self, pdp: Pdp, end: float) -> None:
        """Ask until the end. Some requests are cancelled on their way."""
        while time.monotonic() < end:
            asked = self.choice.choice(self.batches)
            request = asyncio.create_task(pdp.check(asked))
            if self.choice.random() < 0.05:
                await asyncio.sleep(self.choice.random() * TIMEOUT)
                request.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                self.judge(asked, await request)
            await asyncio.sleep(self.choice.random() * 0.02)

    def refused(self) -> float:
        """Return how many values of Redis were forged or spoilt, and were not believed."""
        return sum(value_of(one, "pdp_cache_verdicts_total", outcome="refused") for one in self.metrics)

    async def measure(self, end: float) -> None:
        """Time the same requests with and without a cache, in turns."""
        while time.monotonic() < end:
            asked = self.choice.choice(self.batches)
            for pdp, times in zip((self.choice.choice(self.services), self.twin), self.times, strict=True):
                started, stalled = time.perf_counter(), self.stalled
                await pdp.decide(asked)
                taken = time.perf_counter() - started
                await asyncio.sleep(2 * BEAT)  # so that the latest stall is noted
                times.append(taken - min(taken, self.stalled - stalled))

    async def note_stalls(self, end: float) -> None:
        """Note how long the event loop is held up: by other requests, and by all that runs on this machine."""
        last = time.perf_counter()
        while time.monotonic() < end:
            await asyncio.sleep(BEAT)
            now = time.perf_counter()
            self.stalled += max(0.0, now - last - 2 * BEAT)
            last = now

    async def change(self, end: float) -> None:
        """Write grants, and let the services follow and reload at different times."""
        while time.monotonic() < end:
            self.write()
            for pdp in (*self.services, self.twin):
                if self.choice.random() < 0.6:
                    self.move(pdp, policies=self.choice.random() < 0.1)
            await asyncio.sleep(self.choice.random() * 0.6)


MOST_ROUNDS = 10
"""Rounds of faults on a machine that is too busy to read a forged value in the first ones."""


async def break_things(server: RedisServer, end: float, world: World) -> int:
    """Inject faults until the end and until one was noticed; return the number of rounds."""
    rounds = 0
    while rounds == 0 or time.monotonic() < end or (rounds < MOST_ROUNDS and not world.refused()):
        for steps in faults(server):
            for fault, pause in steps:
                with contextlib.suppress(redis.RedisError):  # what is full or has just started refuses some of it
                    await asyncio.to_thread(fault)
                await asyncio.sleep(pause)
        rounds += 1
    return rounds


@pytest.fixture
def switching() -> Iterator[None]:
    """Let threads take turns as in a running service: here they break Redis."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.0001)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("switching")
async def test_no_fault_of_redis_makes_a_wrong_or_a_late_decision(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        world = World(server)
        breaking = asyncio.create_task(break_things(server, time.monotonic() + SECONDS, world))
        while not breaking.done():
            end = time.monotonic() + 1
            tasks = [world.ask_often(pdp, end) for pdp in world.services for _ in range(2)]
            await asyncio.gather(*tasks, world.measure(end), world.change(end), world.note_stalls(end))
            assert world.wrong == []
        rounds = await breaking
        refused = world.refused()
        with_cache, without = map(sorted, world.times)
        print(  # noqa: T201  the figures of a long run
            f"{rounds} rounds, {world.asked} decisions, {world.cached} from the cache, {refused:.0f} refused values, "
            f"slowest of {len(with_cache)}: {with_cache[-1] * 1e3:.1f} ms, without a cache {without[-1] * 1e3:.1f} ms"
        )
        for pdp in world.services:
            assert pdp.cache
            assert pdp.cache.flights.count() == 0
            await pdp.cache.close()
    assert world.cached > 0.005 * world.asked
    assert refused > 0
    assert with_cache[-1] < 2 * without[-1] + ALLOWED_SECONDS
