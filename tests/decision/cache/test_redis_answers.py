"""Redis as an attacker: answers without end, slow, huge, nested, of wrong types, cut. Each is a miss, in bounds.

The server speaks the raw protocol. The cache, its client and its parser are those of the service.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import chain, repeat
from typing import Final

import psutil  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.service.caches import redis_cache

from pdp.decision.cache.cache import Lookup
from pdp.decision.cache.redis import RedisCache
from pdp.decision.cache.redis_client import LONGEST_ANSWER

pytestmark = pytest.mark.waits
LOOKUP: Final = Lookup(b"k" * 32, [b"a" * 24, b"b" * 24])
MOST_SENT: Final = 64 << 20
TIMEOUT: Final = 0.05
MOST_GROWTH: Final = 16 * LONGEST_ANSWER
"""Memory that answers take: two of the longest, what hiredis makes of them, and what the server here holds to send.
Without a bound an answer would take some 100 MB a second."""
PART: Final = b"x" * 65_536
Parts = Callable[[], Iterator[bytes]]
ENDLESS: Final[dict[str, Parts]] = {
    "huge value, declared and sent": lambda: chain([b"*2\r\n$1900000000\r\n"], repeat(PART)),
    "value without a declared length": lambda: chain([b"*2\r\n+"], repeat(PART)),
    "error without an end": lambda: chain([b"-ERR "], repeat(PART)),
    "number without an end": lambda: chain([b":"], repeat(b"1" * 65_536)),
    "list that is never whole": lambda: chain([b"*99999\r\n"], repeat(b"$60000\r\n" + PART[:60_000] + b"\r\n")),
    "list of 2 billion": lambda: chain([b"*2147483647\r\n"], repeat(b":1234567\r\n" * 5_000)),
    "list of 2 billion in parts": lambda: chain([b"*214", b"7483647\r\n"], repeat(b":1\r\n" * 5_000)),
    "list of 2 billion in a list": lambda: chain([b"*2\r\n*2147483647\r\n"], repeat(b":1\r\n" * 5_000)),
    "lists in lists": lambda: repeat(b"*1\r\n" * 16_000),
    "lists of 99,999 in one another": lambda: repeat(b"*99999\r\n" * 8_000),
}
"""Parts of an answer, one after the other as fast as the client reads."""
WHOLE: Final[dict[str, Parts]] = {
    "misses": lambda: repeat(b"*2\r\n$-1\r\n$-1\r\n" * 3_000),
    "empty lists": lambda: chain([b"*99999\r\n"], repeat(b"*0\r\n" * 16_000)),
    "numbers": lambda: chain([b"*99999\r\n"], repeat(b":1234567\r\n" * 5_000)),
}
"""One whole answer, and then others that nobody asked for."""
SLOW: Final[dict[str, bytes]] = {"value": b"*2\r\n$4000\r\n" + b"x" * 4000, "number": b":" + b"1" * 4000}
"""Answers of which a byte comes at a time."""


class HostileRedis:
    """Server that greets as Redis does, and answers every look-up by the given parts."""

    def __init__(self, parts: Parts, pause: float = 0.0) -> None:
        self._parts = parts
        self._pause = pause
        self.sent = 0
        self.open = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            while asked := await reader.read(65_536):
                if b"HMGET" not in asked:
                    writer.write(b"+OK\r\n" * asked.count(b"CLIENT"))
                    continue
                for part in self._parts():
                    writer.write(part)
                    self.sent += len(part)
                    await writer.drain()
                    await asyncio.sleep(self._pause)
        except ConnectionError:
            pass
        finally:
            self.open -= 1
            writer.transport.abort()


@asynccontextmanager
async def hostile(parts: Parts, pause: float = 0.0) -> AsyncIterator[tuple[HostileRedis, RedisCache]]:
    """Run a server, and a cache that asks it."""
    server = HostileRedis(parts, pause)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    cache = redis_cache(f"redis://127.0.0.1:{listening.sockets[0].getsockname()[1]}", timeout=TIMEOUT)
    try:
        yield server, cache
    finally:
        await cache.close()
        listening.close()


async def find(cache: RedisCache) -> None:
    """Look up; the answer must be a miss, in time."""
    begun = time.monotonic()
    assert [list(column) for column in await cache.find([LOOKUP])] == [[None, None]]
    assert time.monotonic() - begun < TIMEOUT + 1


async def closed(server: HostileRedis, seconds: float, left: int = 0) -> bool:
    """Wait until at most `left` connections are open; tell whether that came in time."""
    end = time.monotonic() + seconds
    while server.open > left and time.monotonic() < end:  # noqa: ASYNC110  a count of others
        await asyncio.sleep(0.02)
    return server.open <= left


@pytest.mark.parametrize("shape", ENDLESS)
async def test_an_endless_answer_takes_bounded_memory_and_ends_its_connection(shape: str) -> None:
    gc.collect()
    process = psutil.Process(os.getpid())
    before = most = process.memory_info().rss
    async with hostile(ENDLESS[shape]) as (server, cache):
        await asyncio.gather(*(find(cache) for _ in range(8)))
        end, late = time.monotonic() + 8, [*cache._late]
        while server.open:
            assert time.monotonic() < end
            await asyncio.sleep(0.005)
            most = max(most, process.memory_info().rss)
            late = [task for task in cache._late if not task.done()]
        assert not late or (await asyncio.wait(late, timeout=5))[1] == set()
    assert most - before < MOST_GROWTH
    begun = time.monotonic()
    gc.collect()
    assert time.monotonic() - begun < 2


@pytest.mark.parametrize("shape", SLOW)
async def test_a_slow_answer_ends_with_its_connection(shape: str) -> None:
    async with hostile(lambda: (SLOW[shape][at : at + 1] for at in range(len(SLOW[shape]))), 0.02) as (server, cache):
        await find(cache)
        assert await closed(server, 8)


@pytest.mark.parametrize("shape", WHOLE)
async def test_answers_that_nobody_asked_for_are_not_read(shape: str) -> None:
    async with hostile(WHOLE[shape]) as (server, cache):
        for _ in range(3):
            await find(cache)
            await asyncio.sleep(0.2)
        # a look-up past its deadline gives its connection up a little later
        assert await closed(server, 8, left=1), "a connection with such answers is not asked again"
        assert server.sent < MOST_SENT, "the sockets keep the rest"


PIECES = st.sampled_from(
    [b"*2\r\n", b"*-1\r\n", b"*0\r\n", b"*1\r\n", b"$-1\r\n", b"$3\r\nabc\r\n", b"$5\r\nab\r\n", b":7\r\n", b":x\r\n", b"+OK\r\n",
     b"-WRONGTYPE x\r\n", b"-LOADING x\r\n", b"-MOVED 1 127.0.0.1:1\r\n", b"_\r\n", b"#t\r\n", b",1.5\r\n", b"%1\r\n", b"~2\r\n",
     b">2\r\n", b"=8\r\ntxt:abcd\r\n", b"\r\n", b"\x00", b"*", b"$", b"*99999\r\n", b"$99999999999\r\n", b"*-5\r\n"]
)  # fmt: skip


@given(st.lists(PIECES, min_size=1, max_size=6), st.integers(0, 12))
def test_wrong_and_cut_answers_are_misses(pieces: list[bytes], cut: int) -> None:
    sent = b"".join(pieces)

    def parts() -> Iterator[bytes]:
        yield sent[: max(1, len(sent) - cut)]
        raise ConnectionResetError

    async def ask() -> None:
        async with hostile(parts) as (_, cache):
            with contextlib.suppress(asyncio.CancelledError):
                await find(cache)

    asyncio.run(ask())
