"""Contract of caches: none, in this process, in Redis, and two as one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.servers.redis_server import RedisServer, redis_server
from support.service.caches import redis_cache

from pdp.decision.cache.cache import Cache, CachedVerdict, Lookup, NewVerdicts, NoCache
from pdp.decision.cache.local import InProcessCache, TieredCache
from pdp.decision.cache.redis import RedisCache
from pdp.engines.engine import ABSTAIN, FORBID, PERMIT

KINDS = ["none", "in_process", "redis", "tiered"]
REMEMBERING = KINDS[1:]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as running:
        yield running


def make(kind: str, request: Any, ttl: float = 60) -> Cache:
    if kind == "none":
        return NoCache()
    near = InProcessCache(10_000, ttl)
    if kind == "in_process":
        return near
    far = redis_cache(request.getfixturevalue("server").url, ttl=ttl)
    return far if kind == "redis" else TieredCache(near, far)


def marked(kinds: list[str]) -> list[Any]:
    return [pytest.param(kind, marks=[pytest.mark.process] if kind in ("redis", "tiered") else []) for kind in kinds]


@pytest.fixture
async def cache(request: pytest.FixtureRequest) -> AsyncIterator[Cache]:
    made = make(request.param, request)
    yield made
    await made.close()


every = pytest.mark.parametrize("cache", marked(KINDS), indirect=True)
remembering = pytest.mark.parametrize("cache", marked(REMEMBERING), indirect=True)


def key(name: str) -> bytes:
    return name.encode().ljust(32, b"k")


def field(name: str) -> bytes:
    return name.encode().ljust(24, b"f")


PERMITTED = CachedVerdict(PERMIT, "cel:r")


@every
async def test_an_empty_cache_has_nothing(cache: Cache) -> None:
    lookups = [Lookup(key("empty"), [field("a"), field("b")]), Lookup(key("empty2"), [])]
    assert [list(column) for column in await cache.find(lookups)] == [[None, None], []]
    assert await cache.find([]) == []
    await cache.keep([])


@remembering
@pytest.mark.parametrize(
    "verdict",
    [
        PERMITTED,
        CachedVerdict(ABSTAIN, None),
        CachedVerdict(ABSTAIN, "denied"),
        CachedVerdict(ABSTAIN, ""),
        CachedVerdict(FORBID, "cel:größer \N{SNOWMAN} \x00\r\n"),
        CachedVerdict(PERMIT, "r" * 500),
    ],
)
async def test_a_verdict_comes_back_as_it_was(cache: Cache, verdict: CachedVerdict) -> None:
    name = key(f"back{hash(verdict)}")
    await cache.keep([NewVerdicts(name, {field("a"): verdict})])
    assert list((await cache.find([Lookup(name, [field("b"), field("a")])]))[0]) == [None, verdict]
    assert list((await cache.find([Lookup(key("other"), [field("a")])]))[0]) == [None]


@every
async def test_the_far_part_and_this_process_are_the_whole(cache: Cache) -> None:
    name = key(f"parts{type(cache).__name__}")
    news, lookups = [NewVerdicts(name, {field("a"): PERMITTED})], [Lookup(name, [field("a")])]
    cache.keep_near(news)
    far = cache.far_part()
    in_process = list((await cache.find(lookups))[0])
    if far is not None:
        assert list((await far.find(lookups))[0]) == [None]
        await far.keep(news)
    everywhere = list((await cache.find(lookups))[0])
    wanted = {NoCache: (None, None), RedisCache: (None, PERMITTED)}.get(type(cache), (PERMITTED, PERMITTED))
    assert (in_process[0], everywhere[0]) == wanted


async def test_no_cache_keeps_nothing() -> None:
    cache = NoCache()
    await cache.keep([NewVerdicts(key("a"), {field("a"): PERMITTED})])
    assert list((await cache.find([Lookup(key("a"), [field("a")])]))[0]) == [None]


@remembering
async def test_a_thousand_resources_are_one_look_up(cache: Cache) -> None:
    fields = [field(f"t{number}") for number in range(1000)]
    await cache.keep([NewVerdicts(key("many"), dict.fromkeys(fields[::2], PERMITTED))])
    (found,) = await cache.find([Lookup(key("many"), fields)])
    assert list(found) == [PERMITTED if number % 2 == 0 else None for number in range(1000)]


@pytest.mark.parametrize("kind", marked(REMEMBERING))
async def test_verdicts_end(kind: str, request: pytest.FixtureRequest) -> None:
    cache = make(kind, request, ttl=0.3)
    await cache.keep([NewVerdicts(key(f"end{kind}"), {field("a"): PERMITTED})])
    await asyncio.sleep(0.35)
    assert list((await cache.find([Lookup(key(f"end{kind}"), [field("a")])]))[0]) == [None]
    await cache.close()


@pytest.mark.process
async def test_a_near_copy_ends_with_the_far_verdict(request: pytest.FixtureRequest) -> None:
    """Windows of questions begin at different times, so that some of 100 verdicts are copied late in their lives."""
    ttl = 1.0
    near, far = InProcessCache(10_000, ttl), redis_cache(request.getfixturevalue("server").url, ttl=ttl)
    lookups = [Lookup(bytes([number]) * 32, [field("late")]) for number in range(100)]
    started = time.monotonic()
    await far.keep([NewVerdicts(lookup.key, {lookup.fields[0]: PERMITTED}) for lookup in lookups])
    kept = time.monotonic()
    tiered = TieredCache(near, far)
    await asyncio.sleep(started + 0.6 * ttl - time.monotonic())
    assert [PERMITTED] in await tiered.find(lookups)
    assert [PERMITTED] in await near.find(lookups)
    await asyncio.sleep(kept + 1.05 * ttl - time.monotonic())
    assert [list(column) for column in await tiered.find(lookups)] == [[None]] * len(lookups)
    await tiered.close()


verdicts = st.builds(CachedVerdict, st.sampled_from([ABSTAIN, PERMIT, FORBID]), st.none() | st.text(max_size=20))
names = st.sampled_from("abc")
columns = st.lists(st.tuples(names, st.dictionaries(names, verdicts, max_size=3)), max_size=3)
asked = st.lists(st.tuples(names, st.lists(names, max_size=4)), max_size=3)


@pytest.mark.parametrize("kind", marked(REMEMBERING))
def test_a_cache_returns_the_newest_verdict_or_nothing(kind: str, request: pytest.FixtureRequest) -> None:
    """Whatever was kept and in whatever order: the same as a dict, for nothing ends or fails here."""
    with asyncio.Runner() as runner:
        cache = make(kind, request)
        number = 0

        @settings(max_examples=60)
        @given(st.lists(st.tuples(columns, asked), max_size=6))
        def check(steps: list[Any]) -> None:
            nonlocal number
            number += 1
            world, kept = f"{kind}{number}", dict[tuple[str, str], CachedVerdict]()
            for news, questions in steps:
                runner.run(
                    cache.keep(
                        [
                            NewVerdicts(key(world + at), {field(name): one for name, one in new.items()})
                            for at, new in news
                        ]
                    )
                )
                for at, new in news:
                    for name, one in new.items():
                        # the same question has the same answer: a second verdict changes nothing
                        kept[at, name] = one
                found = runner.run(
                    cache.find([Lookup(key(world + at), [field(name) for name in some]) for at, some in questions])
                )
                wanted = [[kept.get((at, name)) for name in some] for at, some in questions]
                assert [list(column) for column in found] == wanted

        check()
        runner.run(cache.close())


async def test_a_full_cache_drops_the_oldest() -> None:
    cache = InProcessCache(10, 60)
    for number in range(30):
        await cache.keep([NewVerdicts(key(str(number)), {field("a"): PERMITTED})])
    assert cache.count() == 10
    assert list((await cache.find([Lookup(key("29"), [field("a")])]))[0]) == [PERMITTED]
    await cache.keep([NewVerdicts(key("long"), {field("a"): CachedVerdict(PERMIT, "x" * 10_000)})])
    assert list((await cache.find([Lookup(key("long"), [field("a")])]))[0]) == [None]
