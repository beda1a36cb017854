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
from support.clients.http_pair import LOOPS, RawConnection, server_pair, settle

DRAWS: Final = 3
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
    """Collect nothing within the context; add what only a collection would have freed at its end."""
    found: list[object] = []
    gc.disable()
    gc.freeze()
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found += gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.unfreeze()
        gc.enable()


async def attack(port: int, way: str, sent: bytes) -> None:
    """Attack a server with one connection."""
    client = await RawConnection.open(port)
    try:
        await WAYS[way](client, sent)
    finally:
        client.close()


async def leave_nothing(folder: Path, shape: str) -> None:
    """Attack both servers in all ways at once, and wait until they have forgotten the connections."""
    chosen = random.Random(shape)
    async with server_pair(folder, limits={"request_timeout_seconds": 0.1}) as pair:
        with garbage() as found:
            await asyncio.gather(
                *(
                    attack(port, way, SHAPES[shape](chosen))
                    for port in (pair.own_port, pair.aiohttp_port)
                    for way in WAYS
                    for _ in range(DRAWS)
                )
            )
            assert await settle(lambda: not (pair.own._has_open() or pair.aiohttp._count()), 5)
        kept = [each for each in found if isinstance(each, asyncio.BaseProtocol | web.BaseRequest | BaseException)]
        assert not kept


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_no_connection_waits_for_the_collector(tmp_path: Path, loop: str, shape: str) -> None:
    """A collection comes after 20,000 objects. Each connection may keep a body of megabytes."""
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(leave_nothing(tmp_path, shape))
