"""Hostile client: random shapes of bytes on many connections at once. Runs in a process of its own.

python -m support.clients.hostile_client SECONDS SEED LISTENER=HOST:PORT ... [SHAPE ...] prints the number of attacks by shape.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from support.clients import hostile_http, hostile_http2
from support.clients.hostile_http import Shape

SHAPES: Final[Mapping[str, Shape]] = {**hostile_http.SHAPES, **hostile_http2.SHAPES}
AT_ONCE: Final = 40
"""Connections at the same time."""
_LONGEST_HOLD: Final = 3.0
_DRIPS: Final = 60


class HostileClient:
    """Attacker on some listeners. Each attack is one connection; all choices come from `chosen`."""

    def __init__(self, addresses: Sequence[str], chosen: random.Random, shapes: Sequence[str]) -> None:
        self._addresses = [address.rpartition(":") for address in addresses]
        self._random = chosen
        self._shapes = shapes
        self.attacks: Counter[str] = Counter()
        """Number of attacks that have ended, by shape."""

    async def attack_until(self, end: float) -> None:
        """Attack until `end`, a time of the event loop."""
        await asyncio.gather(*(self._attack_until(end) for _ in range(AT_ONCE)))

    async def _attack_until(self, end: float) -> None:
        while asyncio.get_running_loop().time() < end:
            shape = self._random.choice(self._shapes)
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(2 * _LONGEST_HOLD):
                    await self._attack(SHAPES[shape](self._random))
            self.attacks[shape] += 1

    async def _attack(self, sent: bytes) -> None:
        host, _, port = self._random.choice(self._addresses)
        reader, writer = await asyncio.open_connection(host, int(port))
        ways = (self._send_and_read, self._send_and_hold, self._drip, self._close_half, self._reset)
        try:
            await self._random.choice(ways)(sent, reader, writer)
        finally:
            writer.transport.abort()

    async def _send_and_read(self, sent: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        await writer.drain()
        async with asyncio.timeout(_LONGEST_HOLD):
            while await reader.read(65_536):
                pass

    async def _send_and_hold(self, sent: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Send all or a part, and read nothing more than the buffers take."""
        writer.write(sent[: self._random.choice((len(sent), self._random.randrange(len(sent) + 1)))])
        await asyncio.sleep(self._random.uniform(0, _LONGEST_HOLD))

    async def _drip(self, sent: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Send the end byte by byte, or the start."""
        start = self._random.choice((0, max(0, len(sent) - _DRIPS)))
        writer.write(sent[:start])
        for at in range(start, min(start + _DRIPS, len(sent))):
            if writer.is_closing():
                return
            writer.write(sent[at : at + 1])
            await asyncio.sleep(_LONGEST_HOLD / _DRIPS)

    async def _close_half(self, sent: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        writer.write_eof()
        async with asyncio.timeout(_LONGEST_HOLD):
            while await reader.read(65_536):
                pass

    async def _reset(self, sent: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        await asyncio.sleep(self._random.choice((0, 0.05)))


async def main(arguments: Sequence[str]) -> None:
    """Attack for the given seconds and print the number of attacks by shape."""
    seconds, seed, *rest = arguments
    addresses = [each.partition("=")[2] for each in rest if "=" in each]
    shapes = [each for each in rest if "=" not in each] or list(SHAPES)
    client = HostileClient(addresses, random.Random(int(seed)), shapes)
    await client.attack_until(asyncio.get_running_loop().time() + float(seconds))
    sys.stdout.write(json.dumps(client.attacks))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
