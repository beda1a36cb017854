"""Redis that is slow, dead, frozen, full, loading, poisoned or talks nonsense: a miss, soon, and never an allow."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
from support.servers.redis_server import RedisServer, free_port, redis_server
from support.service.caches import new_metrics, redis_cache, value_of

from pdp.decision.cache.cache import MOST_FIELDS, CachedVerdict, Lookup, NewVerdicts
from pdp.decision.cache.local import InProcessCache, TieredCache
from pdp.decision.cache.redis import RedisCache
from pdp.decision.verdict_cache import VerdictCache
from pdp.engines.engine import ABSTAIN, PERMIT

pytestmark = [pytest.mark.process, pytest.mark.waits]
PERMITTED, SILENT = CachedVerdict(PERMIT, "cel:r"), CachedVerdict(ABSTAIN, None)
LOOKUP = Lookup(b"k" * 32, [b"a" * 24, b"b" * 24])
NEWS = [NewVerdicts(LOOKUP.key, {LOOKUP.fields[0]: PERMITTED, LOOKUP.fields[1]: SILENT})]
HITS, MISSES = [PERMITTED, SILENT], [None, None]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as running:
        yield running


async def find(cache: RedisCache) -> list[Any]:
    (column,) = await cache.find([LOOKUP])
    return list(column)


async def recovers(cache: RedisCache, seconds: float = 20) -> bool:
    """Tell whether the cache keeps and finds again within some seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        await cache.keep(NEWS)
        if await find(cache) == HITS:
            return True
        await asyncio.sleep(0.05)
    return False


async def test_a_killed_server_is_left_alone_and_found_again(server: RedisServer) -> None:
    metrics = new_metrics()
    cache = redis_cache(server.url, metrics=metrics)
    for _ in range(3):
        assert await recovers(cache)
        assert cache.state() == "ok"
        server.kill()
        started = time.perf_counter()
        for _ in range(200):
            assert await find(cache) == MISSES
        assert time.perf_counter() - started < 5
        assert cache.state().startswith("reads")
        errors = value_of(metrics, "pdp_cache_errors_total", call="find", cause="connection")
        server.start()
    assert errors < 100, "an open breaker asks seldom"
    assert await recovers(cache)
    await cache.close()


async def test_a_frozen_server_costs_three_timeouts(server: RedisServer) -> None:
    cache = redis_cache(server.url, timeout=0.05)
    assert await recovers(cache)
    server.freeze()
    try:
        waited = []
        for _ in range(100):
            started = time.perf_counter()
            assert await find(cache) == MISSES
            waited.append(time.perf_counter() - started)
        assert sum(one > 0.04 for one in waited) <= 4
        assert sum(waited) < 2
        assert cache.state() == "reads fail: timeout"
    finally:
        server.thaw()
    assert await recovers(cache)
    await cache.close()


async def test_many_at_once_wait_once(server: RedisServer) -> None:
    """However many requests there are when the server freezes, each waits for one timeout at most."""
    cache = redis_cache(server.url, timeout=0.05)
    assert await recovers(cache)
    server.freeze()
    try:
        started = time.perf_counter()
        found = await asyncio.gather(*(find(cache) for _ in range(500)))
        assert time.perf_counter() - started < 1.5
        assert found == [MISSES] * 500
    finally:
        server.thaw()
    await cache.close()


async def test_a_cancelled_look_up_leaves_its_connection_in_step(server: RedisServer) -> None:
    """The answer to a cancelled question is never taken for the answer to the next one."""
    cache = redis_cache(server.url, timeout=5)
    others = [Lookup(bytes([number]) * 32, [b"a" * 24]) for number in range(1, 40)]
    for number, other in enumerate(others):
        await cache.keep([NewVerdicts(other.key, {other.fields[0]: CachedVerdict(PERMIT, f"r{number}")})])
    for turn in range(200):
        tasks = [asyncio.create_task(cache.find([other])) for other in others]
        for _ in range(turn % 7):
            await asyncio.sleep(0)
        for task in tasks[:: 1 + turn % 3]:
            task.cancel()
        for number, done in enumerate(await asyncio.gather(*tasks, return_exceptions=True)):
            if not isinstance(done, BaseException):
                assert done[0][0] in (None, CachedVerdict(PERMIT, f"r{number}"))
    assert await recovers(cache)
    await cache.close()


async def test_a_full_server_serves_what_it_has(server: RedisServer) -> None:
    metrics = new_metrics()
    cache = redis_cache(server.url, metrics=metrics)
    assert await recovers(cache)
    client = server.client()
    client.config_set("maxmemory-policy", "noeviction")
    client.config_set("maxmemory", "1mb")
    for number in range(5):
        await cache.keep([NewVerdicts(bytes([number]) * 32, {b"z" * 24: PERMITTED})])
    assert value_of(metrics, "pdp_cache_errors_total", call="keep", cause="refused") == 3
    assert cache.state() == "writes fail: refused"
    assert await find(cache) == HITS
    client.config_set("maxmemory", "0")
    end = time.monotonic() + 20
    while cache.state() != "ok" and time.monotonic() < end:
        await cache.keep(NEWS)
        await asyncio.sleep(0.05)
    assert cache.state() == "ok"
    await cache.close()


async def test_a_replica_that_takes_no_writes_serves_what_it_has(server: RedisServer) -> None:
    cache = redis_cache(server.url)
    assert await recovers(cache)
    # a failover leaves the old master as a replica, which keeps its data until it has synchronised
    server.client().execute_command("REPLICAOF", "127.0.0.1", str(free_port()))
    for _ in range(4):
        await cache.keep(NEWS)
    assert cache.state() == "writes fail: refused"
    assert await find(cache) == HITS
    await cache.close()


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_server_with_other_passwords_is_a_miss(server: RedisServer, when: str) -> None:
    client = server.client()
    cache = redis_cache(server.url)
    if when == "after":
        assert await recovers(cache)
        client.config_set("requirepass", "now needed")
        client.client_kill_filter(skipme=True)
    else:
        client.config_set("requirepass", "now needed")
    for _ in range(5):
        assert await find(cache) == MISSES
    assert cache.state().startswith("reads")
    await cache.close()


# --- poison -------------------------------------------------------------------------------------------------------


def hashes(client: Any) -> list[bytes]:
    return [name for name in client.keys("pdp:*") if client.type(name) == b"hash"]


POISONS: dict[str, Any] = {
    "garbage": lambda value: b"\xff" * 40,
    "empty": lambda value: b"",
    "truncated": lambda value: value[:-1],
    "longer": lambda value: value + b"\0",
    "huge": lambda value: b"x" * (1 << 20),
    "flipped": lambda value: value[:9] + bytes([PERMIT]) + value[10:-1] + bytes([value[-1] ^ 1]),
    "later": lambda value: value[:1] + (2**62).to_bytes(8, "big") + value[9:],
    "text": lambda value: b'{"allowed":true}',
}


@pytest.mark.parametrize("poison", POISONS)
async def test_a_changed_value_is_a_miss_and_counted(server: RedisServer, poison: str) -> None:
    metrics = new_metrics()
    cache = redis_cache(server.url, metrics=metrics)
    await cache.keep(NEWS)
    client = server.client()
    (name,) = hashes(client)
    for field, value in client.hgetall(name).items():
        client.hset(name, field, POISONS[poison](value))
    assert await find(cache) == MISSES
    assert value_of(metrics, "pdp_cache_verdicts_total", outcome="refused") == 2
    assert cache.state() == "ok", "a forged value says nothing about the server"
    await cache.close()


async def test_swapped_values_are_misses(server: RedisServer) -> None:
    cache = redis_cache(server.url)
    other = Lookup(b"o" * 32, LOOKUP.fields)
    await cache.keep([*NEWS, NewVerdicts(other.key, {other.fields[0]: SILENT})])
    client = server.client()
    first, second = hashes(client)
    values = client.hgetall(first) | {}
    a, b = LOOKUP.fields
    both = first if len(client.hgetall(first)) == 2 else second
    single = second if both == first else first
    # between fields of one hash, and from one hash to another
    client.hset(both, mapping={a: client.hget(both, b), b: client.hget(both, a)})
    assert values
    assert await find(cache) == MISSES
    client.hset(single, a, client.hget(both, b))
    (column,) = await cache.find([other])
    assert list(column) == MISSES
    await cache.close()


async def test_a_value_of_the_past_is_a_miss(server: RedisServer) -> None:
    """Who records values and writes them back later changes nothing."""
    cache = redis_cache(server.url, ttl=1)
    client = server.client()
    await cache.keep(NEWS)
    recorded = {name: client.hgetall(name) for name in hashes(client)}
    await asyncio.sleep(1.2)
    client.flushall()
    for name, values in recorded.items():
        client.hset(name, mapping=values)
    assert await find(cache) == MISSES
    # also under the name of the window of now
    await cache.keep([NewVerdicts(LOOKUP.key, {b"other" * 4 + b"....": PERMITTED})])
    for name in hashes(client):
        for values in recorded.values():
            client.hset(name, mapping=values)
    assert await find(cache) == MISSES
    await cache.close()


@pytest.mark.parametrize("kind", ["string", "list", "set", "stream"])
async def test_another_kind_of_value_in_place_of_a_hash_is_a_miss(server: RedisServer, kind: str) -> None:
    cache = redis_cache(server.url)
    await cache.keep(NEWS)
    client = server.client()
    (name,) = hashes(client)
    client.delete(name)
    {
        "string": lambda: client.set(name, "x"),
        "list": lambda: client.rpush(name, "x"),
        "set": lambda: client.sadd(name, "x"),
        "stream": lambda: client.xadd(name, {"a": "b"}),
    }[kind]()
    for _ in range(10):
        assert await find(cache) == MISSES
    assert cache.state() == "ok", "one spoilt hash does not switch the cache off"
    await cache.close()


async def test_services_with_other_keys_share_nothing_and_harm_nobody(server: RedisServer) -> None:
    metrics = new_metrics()
    ours, theirs = redis_cache(server.url), redis_cache(server.url, key="k" * 40, metrics=metrics)
    await ours.keep(NEWS)
    assert await find(theirs) == MISSES
    assert value_of(metrics, "pdp_cache_verdicts_total", outcome="refused") == 2
    rotating = redis_cache(server.url, key="k" * 40 + "\na key of the tests, which no real service has")
    assert await find(rotating) == HITS
    for cache in (ours, theirs, rotating):
        await cache.close()


async def test_hashes_end_by_themselves(server: RedisServer) -> None:
    cache = redis_cache(server.url, ttl=1)
    await cache.keep(NEWS)
    client = server.client()
    assert all(0 < client.pttl(name) <= 2000 for name in hashes(client))
    assert hashes(client)
    await cache.close()


async def test_nothing_of_a_question_is_readable_in_redis(server: RedisServer) -> None:
    """Names of users and tables are digests. Reasons stand in the values: docs/cache.md says so."""
    cache = redis_cache(server.url)
    await cache.keep(NEWS)
    (name,) = server.client().keys("*")
    assert len(name) == len("pdp:") + 64
    await cache.close()


async def test_a_huge_batch_is_not_looked_up(server: RedisServer) -> None:
    cache = redis_cache(server.url)
    many = Lookup(LOOKUP.key, [number.to_bytes(24, "big") for number in range(MOST_FIELDS + 1)])
    (column,) = await cache.find([many])
    assert list(column) == [None] * len(many.fields)
    assert server.client().info("commandstats").get("cmdstat_hmget") is None
    await cache.close()


async def test_columns_beyond_the_bound_are_dropped_and_counted(server: RedisServer) -> None:
    metrics = new_metrics()
    cache = redis_cache(server.url, metrics=metrics)
    sizes = {b"1": 5, b"2": MOST_FIELDS + 1, b"3": MOST_FIELDS - 5, b"4": 1}
    fields = [number.to_bytes(24, "big") for number in range(MOST_FIELDS + 1)]
    columns = [NewVerdicts(key * 32, dict.fromkeys(fields[:count], PERMITTED)) for key, count in sizes.items()]
    await cache.keep(columns)
    found = [(await cache.find([Lookup(key * 32, fields[:1])]))[0][0] for key in sizes]
    assert found == [PERMITTED, None, PERMITTED, None]
    assert value_of(metrics, "pdp_cache_dropped_total") == MOST_FIELDS + 2
    await cache.close()


async def test_a_frozen_server_delays_nothing_in_this_process(server: RedisServer) -> None:
    """Verdicts are in this process at once. Of those for Redis, 20,000 wait at most, and the rest is counted."""
    metrics = new_metrics()
    far = redis_cache(server.url, timeout=0.05, metrics=metrics)
    assert await recovers(far)
    cache = VerdictCache(TieredCache(InProcessCache(50_000, 60), far), metrics, 1, every_engine=True)
    fields = [number.to_bytes(24, "big") for number in range(1_000)]
    server.freeze()
    try:
        for number in range(25):
            key = bytes([number]) * 32
            cache.keep([NewVerdicts(key, dict.fromkeys(fields, PERMITTED))])
            (found,) = await cache.cache.find([Lookup(key, fields)])
            assert list(found) == [PERMITTED] * len(fields)
        dropped = value_of(metrics, "pdp_cache_dropped_total")
        # the writer may have begun with one part of 1,000
        assert dropped in (4_000, 5_000)
    finally:
        server.thaw()
    await cache.close()


# --- servers that are none ----------------------------------------------------------------------------------------

NONSENSE = {
    "bytes": b"\x00\xff\xfe nonsense",
    "http": b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
    "nothing": b"",
    "wrong length": b"*1\r\n$1\r\nx\r\n" * 20,
    "a number": b":1\r\n" * 20,
    "an error": b"-ERR no such thing\r\n" * 20,
    "loading": b"-LOADING Redis is loading the dataset in memory\r\n" * 20,
    "cluster down": b"-CLUSTERDOWN Hash slot not served\r\n" * 20,
    "moved": b"-MOVED 1 127.0.0.1:1\r\n" * 20,
    "half a reply": b"*2\r\n$3\r\nab",
    "nested": b"*1\r\n" * 2000,
    "forged": b"*2\r\n$1\r\n1\r\n$1\r\n1\r\n" * 20,
}


@asynccontextmanager
async def answering(reply: bytes, *, greets: bool = False) -> AsyncIterator[int]:
    """A server that answers everything alike. `greets`: also before it was asked."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if greets:
            writer.write(reply)
        while await reader.read(65536):
            if not reply:
                break
            writer.write(reply)
        writer.close()

    running = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield running.sockets[0].getsockname()[1]
    finally:
        running.close()


@pytest.mark.parametrize("greets", [False, True])
@pytest.mark.parametrize("nonsense", NONSENSE)
async def test_nonsense_is_a_miss(nonsense: str, greets: bool) -> None:
    async with answering(NONSENSE[nonsense], greets=greets) as port:
        cache = redis_cache(f"redis://127.0.0.1:{port}", timeout=0.1)
        for _ in range(6):
            assert await find(cache) == MISSES
            await cache.keep(NEWS)
        await cache.close()


@pytest.mark.parametrize("scheme", ["redis", "redis+cluster", "rediss"])
async def test_no_server_at_all_is_a_miss(scheme: str) -> None:
    cache = redis_cache(f"{scheme}://127.0.0.1:{free_port()}", timeout=0.2)
    for _ in range(6):
        assert await find(cache) == MISSES
        await cache.keep(NEWS)
    assert cache.state() != "ok"
    await cache.close()


async def test_failures_are_logged_once_and_without_the_address() -> None:
    secret = "do-not-log-me"
    with structlog.testing.capture_logs() as lines:
        cache = redis_cache(f"redis://someone:{secret}@127.0.0.1:{free_port()}", timeout=0.2)
        for _ in range(20):
            await find(cache)
        assert secret not in cache.state()
        await cache.close()
    assert len(lines) == 1
    assert secret not in repr(lines)
