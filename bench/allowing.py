"""Policy server for Trino's OPA plugin that allows everything, with answers that are ready. A baseline.

The server parses no JSON: it counts resources in the bytes, which is right for the names of the benchmark.

python bench/allowing.py prints the address and serves until the process ends.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any, Final

import uvloop

_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_ITEMS: Final = b'"filterResources":['
_COLUMNS: Final = b'"columns":['


def _response(body: str) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return f"{head}{body}".encode()


ALLOW: Final = _response('{"result":true}')
NO_MASK: Final = _response("{}")
INDICES: Final = [_response(f'{{"result":{list(range(count))}}}'.replace(" ", "")) for count in range(2001)]
"""Answers that allow all resources, by their number."""


def answer(path: bytes, body: bytes) -> bytes:
    """Return the response that allows everything, without row filters and masks."""
    if path.endswith(b"/allow"):
        return ALLOW
    if not path.endswith(b"/batch"):
        return NO_MASK if path.endswith(b"/columnMask") else INDICES[0]
    return INDICES[count_resources(body)]


def count_resources(body: bytes) -> int:
    """Return the number of resources to filter; the number of columns, if the request filters columns of one table."""
    first = body.index(_ITEMS)
    columns = body.find(_COLUMNS, first)
    if columns >= 0 and b'"FilterColumns"' in body:
        return body.count(b'"', columns + len(_COLUMNS), body.index(b"]", columns)) // 2
    return body.count(b'{"', first) // 2  # a resource is an object in an object: {"table":{...}}


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
            self._transport.write(answer(request.split(b" ", 2)[1], request[head + 4 :]))


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    print(f"http://{host}:{port}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
