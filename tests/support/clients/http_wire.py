"""Raw HTTP/1.1 connections to a service, for requests that no HTTP client sends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

from support.clients.http_client import HttpClient, assert_discreet

PATIENCE = 10.0
"""Seconds to wait for an event that must happen; far above the usual time."""


def head(length: int | None = None, path: str = "/v1/check") -> bytes:
    """Return the head of a request whose body has `length` bytes. Without a length, the body comes in chunks."""
    kind = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{kind}\r\n\r\n".encode()


async def open_connection(client: HttpClient) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a connection to the service of a client."""
    host, _, port = client.service.addresses["http"].partition(":")
    return await asyncio.open_connection(host, int(port))


@asynccontextmanager
async def connection(
    client: HttpClient, sent: bytes = b""
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Yield a connection on which some bytes were sent."""
    reader, writer = await open_connection(client)
    try:
        writer.write(sent)
        await writer.drain()
        yield reader, writer
    finally:
        writer.close()


async def exchange(client: HttpClient, sent: bytes) -> tuple[int, bytes]:
    """Send bytes on a new connection; return the status and the body of the answer."""
    async with connection(client, sent) as (reader, _):
        return await read_answer(reader)


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Read one answer; return the status and the body."""
    async with asyncio.timeout(PATIENCE):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(
            int(line.split(":")[1]) for line in head.splitlines() if line.lower().startswith("content-length")
        )
        body = await reader.readexactly(length)
    assert_discreet(body.decode())
    return int(head.split()[1]), body


class Connections:
    """Connections that stay open together."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client
        self.all: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def open(self, sent: bytes) -> None:
        """Open one more connection and send some bytes."""
        reader, writer = await open_connection(self._client)
        self.all.append((reader, writer))
        writer.write(sent)
        await writer.drain()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *failure: object) -> None:
        for _, writer in self.all:
            writer.close()
