"""Policy server for Trino's OPA plugin that allows everything, as fast as Python serves HTTP. A baseline.

python bench/allowing.py prints the address and serves until the process ends.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any, Final

import msgspec
import uvloop

_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class Table(msgspec.Struct, frozen=True):
    """Table of a request; only the number of columns matters."""

    columns: list[msgspec.Raw] = []


class Item(msgspec.Struct, frozen=True):
    """One of the resources to filter."""

    table: Table = Table()


class Action(msgspec.Struct, rename="camel"):
    """Action of a request."""

    operation: str
    filter_resources: list[Item] = []


class Input(msgspec.Struct):
    """Input of a request, without the identity."""

    action: Action


class Body(msgspec.Struct):
    """Body of a request."""

    input: Input


_BODY: Final = msgspec.json.Decoder(Body)


def answer(path: bytes, body: bytes) -> bytes:
    """Return the body of a response that allows everything, without row filters and masks."""
    if path.endswith(b"/allow"):
        return b'{"result":true}'
    if not path.endswith(b"/batch"):
        return b"{}" if path.endswith(b"/columnMask") else b'{"result":[]}'
    action = _BODY.decode(body).input.action
    items = action.filter_resources
    count = len(items[0].table.columns) if action.operation == "FilterColumns" else len(items)
    return msgspec.json.encode({"result": list(range(count))})


class Connection(asyncio.Protocol):
    """One connection from Trino, without pipelining."""

    def __init__(self) -> None:
        self._received = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (head := self._received.find(b"\r\n\r\n")) >= 0:
            length = _LENGTH.search(self._received, 0, head + 2)
            end = head + 4 + (int(length[1]) if length else 0)
            if len(self._received) < end:
                return
            request, self._received = self._received[:end], self._received[end:]
            reply = answer(request.split(b" ", 2)[1], request[head + 4 :])
            start = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(reply)
            self._transport.write(start + reply)


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    print(f"http://{host}:{port}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
