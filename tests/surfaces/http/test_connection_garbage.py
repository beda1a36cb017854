"""Connections of hostile clients leave nothing to the collector of garbage, which comes seldom and would find it late."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import web
from support.clients.hostile_http import SHAPES
from support.clients.http_pair import RawConnection, ServerPair, LOOPS, server_pair, settle

DRAWS: Final = 4
"""Connections of each shape and way."""


async def _read(client: RawConnection, sent: bytes) -> None:
    client.transport.write(sent)
    await settle(lambda: client.closed, 0.05)


async def _stop_within(client: RawConnection, sent: bytes) -> None:
    client.transport.write(sent[: len(sent) // 2])
    await asyncio.sleep(0.005)


async def _close_half(client: RawConnection, sent: bytes) -> None:
    client.transport.write(sent)
    client.transport.write_eof()
    await settle(lambda: client.closed, 0.05)


async def _in_pieces(client: RawConnection, sent: bytes) -> None:
    await client.send([sent[at : at + 20_000] for at in range(0, 200_000, 20_000)])


WAYS: Final[Mapping[str, Callable[[RawConnection, bytes], Coroutine[Any, Any, None]]]] = {
    each.__name__: each for each in (_read, _stop_within, _close_half, _in_pieces)
}


@contextlib.contextmanager
def garbage() -> Iterator[list[object]]:
    """Collect nothing within the context; at its end, yield what only a collection would have freed."""
    found: list[object] = []
    gc.collect()
    gc.disable()
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found += gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


async def attack(pair: ServerPair, shape: str, way: str) -> None:
    """Attack both servers, and wait until they have forgotten the connections."""
    chosen = random.Random(f"{shape} {way}")
    for port in (pair.own_port, pair.aiohttp_port) * DRAWS:
        client = await RawConnection.open(port)
        await WAYS[way](client, SHAPES[shape](chosen))
        client.close()
    assert await settle(lambda: not (pair.own._has_open() or pair.aiohttp._count()), 5)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_no_connection_waits_for_the_collector(tmp_path: Path, loop: str, shape: str) -> None:
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(_leaves_nothing(tmp_path, shape))


async def _leaves_nothing(folder: Path, shape: str) -> None:
    async with server_pair(folder, limits={"request_timeout_seconds": 0.2}) as pair:
        for way in WAYS:
            with garbage() as found:
                await attack(pair, shape, way)
            kept = [each for each in found if isinstance(each, asyncio.BaseProtocol | web.BaseRequest | BaseException)]
            assert not kept, (way, kept)
            found.clear()
