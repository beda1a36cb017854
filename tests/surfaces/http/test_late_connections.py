"""Connections that need aiohttp while it is loaded: they wait, and lose nothing."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from support.clients.http_pair import on_every_loop, server_pair, settle
from support.servers.idp import Authority

from pdp.identity.tls import Certificates, make_context
from pdp.surfaces.http.handlers import diagnostics_routes
from pdp.surfaces.http.server import AiohttpServer
from pdp.surfaces.listeners import ServerRunner, ServerSite, listen

CHECK = b"POST /v1/check HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
LIST = CHECK.replace(b"/v1/check", b"/v1/list")
LONG = LIST.replace(b"Length: 2", b"Length: 500000").replace(b"\r\n\r\n{}", b"\r\n\r\n" + b" " * 499_998 + b"{}")
LIVE = b"GET /health/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
STRANGE = b"\x00\x16\x03\x01\r\n\r\n"


class Gate:
    """Import that waits until it is let go, and may fail."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.failures = 0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Wait within the thread of the import."""
        assert self.opened.wait(20)
        if self.failures:
            self.failures -= 1
            raise OSError("no module")
        yield


async def ready() -> list[str]:
    return []


async def metrics() -> bytes:
    return b""


@asynccontextmanager
async def diagnostics(gate: Gate, most: int = 100) -> AsyncIterator[tuple[AiohttpServer, int]]:
    """Serve diagnostics on a free port, with aiohttp behind a gate."""
    server = AiohttpServer(diagnostics_routes(ready, metrics), 30, most)
    server.imports = gate
    runner = ServerRunner(server, shutdown_timeout=0)
    (listening,) = listen("127.0.0.1:0", "server.diagnostics")
    await ServerSite(runner, listening).start()
    try:
        yield server, listening.getsockname()[1]
    finally:
        gate.opened.set()
        await runner.cleanup()


def contexts(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the context of a server, and that of a client that trusts every server."""
    cert, key = Authority(folder).issue("localhost")
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    return make_context(Certificates(cert.read_bytes(), key.read_bytes(), None)), trusting


@asynccontextmanager
async def connected(
    port: int, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Connect, and close the connection at the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def answer(reader: asyncio.StreamReader) -> bytes:
    """Return the status line of the next answer, whose body is read."""
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    await reader.readexactly(int(length.split(b":")[1]))
    return head.split(b"\r\n")[0]


@on_every_loop
@pytest.mark.parametrize(
    ("sent", "secured"),
    [(LIST, False), (LONG, False), (LONG, True), (CHECK + LIST + CHECK, False), (LIVE, True), (STRANGE, False)],
    ids=["short", "long", "long by TLS", "third", "TLS", "no HTTP"],
)
async def test_requests_before_aiohttp_are_answered_behind_it(tmp_path: Path, sent: bytes, secured: bool) -> None:
    gate = Gate()
    server_tls, client_tls = contexts(tmp_path) if secured else (None, None)
    count = sent.count(b" HTTP/1.1") or 1
    async with server_pair(tmp_path, tls=server_tls) as pair:
        pair.own.imports = gate
        async with connected(pair.aiohttp_port, client_tls) as (reader, writer):
            writer.write(sent)
            wanted = [await answer(reader) for _ in range(count)]
        async with connected(pair.own_port, client_tls) as (reader, writer):
            writer.write(sent)
            found = [await answer(reader)] if sent.startswith(CHECK) else []
            assert await settle(lambda: len(pair.own.waiting) == 1, 5)
            assert pair.own._count() == 1
            gate.opened.set()
            found += [await answer(reader) for _ in range(count - len(found))]
        assert found == wanted
        assert not pair.own.waiting


@on_every_loop
async def test_plain_requests_do_not_wait_for_aiohttp(tmp_path: Path) -> None:
    gate = Gate()
    async with server_pair(tmp_path) as pair:
        pair.own.imports = gate
        loading = asyncio.create_task(pair.own.load())
        async with connected(pair.own_port) as (reader, writer):
            for _ in range(3):
                writer.write(CHECK)
                assert (await answer(reader)).endswith(b"200 OK")
        assert not loading.done()
        gate.opened.set()
        await loading


@on_every_loop
async def test_a_client_that_leaves_before_aiohttp_takes_no_place() -> None:
    gate = Gate()
    async with diagnostics(gate) as (server, port):
        async with connected(port) as (_, writer):
            writer.write(LIVE)
            assert await settle(lambda: server._count() == 1, 5)
        gate.opened.set()
        await server.load()
        assert await settle(lambda: server._count() == 0, 5)


@on_every_loop
async def test_a_burst_before_aiohttp_closes_the_oldest_connections() -> None:
    gate = Gate()
    async with diagnostics(gate, most=4) as (server, port), contextlib.AsyncExitStack() as held:
        made = [await held.enter_async_context(connected(port)) for _ in range(12)]
        assert await settle(lambda: 0 < server._count() <= 5, 5)
        reader, writer = made[-1]
        writer.write(LIVE)
        gate.opened.set()
        assert (await answer(reader)).endswith(b"200 OK")
        assert not await read_all(made[0][0])


@on_every_loop
async def test_after_a_failed_import_the_next_connection_tries_again() -> None:
    gate = Gate()
    gate.failures = 1
    gate.opened.set()
    async with diagnostics(gate) as (server, port):
        with pytest.raises(OSError, match="no module"):
            await server.load()
        async with connected(port) as (reader, writer):
            writer.write(LIVE)
            assert (await answer(reader)).endswith(b"200 OK")


@on_every_loop
async def test_a_failed_import_closes_the_connections_that_wait() -> None:
    gate = Gate()
    gate.failures = 1
    async with diagnostics(gate) as (server, port), connected(port) as (reader, writer):
        writer.write(LIVE)
        assert await settle(lambda: server._count() == 1, 5)
        loading = asyncio.create_task(server.load())
        gate.opened.set()
        with pytest.raises(OSError, match="no module"):
            await loading
        assert not await read_all(reader)
        assert server._count() == 0


async def read_all(reader: asyncio.StreamReader) -> bytes:
    """Return what comes until the connection ends."""
    try:
        return await asyncio.wait_for(reader.read(), 5)
    except ConnectionError:
        return b""


@on_every_loop
async def test_a_connection_whose_protocol_is_older_than_aiohttp_is_served() -> None:
    """The event loop makes the protocol first, and tells of the connection in a later turn."""
    gate = Gate()
    gate.opened.set()
    async with diagnostics(gate) as (server, _):
        protocol = server()
        await server.load()
        client, accepted = socket.socketpair()
        client.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.connect_accepted_socket(lambda: protocol, accepted)
        reader, writer = await asyncio.open_connection(sock=client)
        writer.write(LIVE)
        assert (await asyncio.wait_for(reader.readline(), 10)).startswith(b"HTTP/1.1 200")
        writer.close()
