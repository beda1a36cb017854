"""Silent connections beyond the limit: a burst of them leaves liveness and other clients their answers."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import pytest
from aiohttp import web
from support.clients.http_pair import on_every_loop, server_pair, settle
from support.servers.idp import Authority

from pdp.identity.tls import Certificates, make_context
from pdp.surfaces.http.handlers import diagnostics_routes
from pdp.surfaces.http.server import AiohttpServer
from pdp.surfaces.listeners import MOST_HANDSHAKES, ServerRunner, ServerSite, listen

MOST: Final = 10
"""Connections of the server."""
BURST: Final = 300
"""Connections that come at once: as many as wait to be accepted before the server runs."""
SHAPES: Final[Mapping[str, bytes]] = {
    "nothing": b"",
    "half a head": b"GET /health/live HTTP/1.1\r\nHost: x",
    "no body": b"GET /health/live HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n",
    "no request": b"\x00\x16\x03\x01",
}
"""What a client sends before it is silent."""
UNREAD: Final = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
"""Request whose answer does not fit in the buffers of a client that does not read."""
CHUNKED: Final = b"GET /health/live HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
PROBE: Final = b"GET /health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


async def _ready() -> list[str]:
    return []


async def _long() -> bytes:
    return b"# much\n" * 2_000_000


@asynccontextmanager
async def diagnostics(tls: ssl.SSLContext | None = None) -> AsyncIterator[tuple[AiohttpServer, int]]:
    """Serve the diagnostics on a free port, as a supervisor does."""
    server = AiohttpServer(diagnostics_routes(_ready, _long), 30, MOST)
    runner = ServerRunner(server, shutdown_timeout=0)
    (listening,) = listen("127.0.0.1:0", "server.diagnostics")
    await ServerSite(runner, listening, tls).start()
    try:
        yield server, listening.getsockname()[1]
    finally:
        await runner.cleanup()


def burst(held: ExitStack, port: int, sent: bytes, count: int = BURST) -> list[socket.socket]:
    """Connect at once, before the event loop of this thread accepts any."""
    made = [held.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(count)]
    for each in made:
        each.setblocking(False)
        each.send(sent)
    return made


async def probe(port: int, tls: ssl.SSLContext | None = None) -> bytes:
    """Return the first line of an answer about liveness."""
    async with asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
        writer.write(PROBE)
        answer = await reader.read()
        writer.transport.abort()
    return answer.partition(b"\r\n")[0]


@pytest.mark.waits
@pytest.mark.parametrize("shape", SHAPES)
@on_every_loop
async def test_a_burst_of_silent_connections_resets_no_probe(shape: str) -> None:
    async with diagnostics() as (server, port):
        for _ in range(2):
            with ExitStack() as held:
                burst(held, port, SHAPES[shape])
                for _ in range(4):
                    assert await probe(port) == b"HTTP/1.1 200 OK"
                assert await settle(lambda: server._count() <= 2 * MOST, 5)
        assert not server.is_crowded()


@on_every_loop
async def test_clients_that_never_read_their_answers_keep_no_place() -> None:
    async with diagnostics() as (server, port):
        with ExitStack() as held:
            for number in range(2 * MOST):
                burst(held, port, UNREAD, 1)
                assert await settle(lambda: server.requests_count > number, 5)  # noqa: B023  awaited in this turn
            assert server._count() == 2 * MOST
            assert await probe(port) == b"HTTP/1.1 200 OK"
            assert server._count() <= 2 * MOST


@on_every_loop
async def test_diagnostics_read_little_of_a_body(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body in chunks of a byte costs far more to read than to send."""
    taken: list[int] = []
    async with diagnostics() as (server, port):
        route = server.route

        async def answer(request: web.BaseRequest) -> web.Response:
            taken.append(request.content.total_bytes)
            return await route(request)

        monkeypatch.setattr(server, "route", answer)
        with ExitStack() as held:
            (client,) = burst(held, port, CHUNKED + b"1\r\n[\r\n" * 20_000, 1)
            assert await settle(lambda: bool(taken) and not _open([client]) and not server._count(), 2)
    assert len(taken) == 1
    assert taken[0] < 200


def contexts(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the context of a server, and that of a client that trusts every server."""
    cert, key = Authority(folder).issue("localhost")
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    return make_context(Certificates(cert.read_bytes(), key.read_bytes(), None)), trusting


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01", PROBE], ids=["nothing", "half", "no TLS"])
@on_every_loop
async def test_connections_count_before_their_tls_begins(tmp_path: Path, sent: bytes) -> None:
    context, trusting = contexts(tmp_path)
    async with diagnostics(context) as (server, port):
        with ExitStack() as held:
            silent = burst(held, port, sent, 5 * MOST)
            assert await settle(lambda: server._count() <= 2 * MOST and len(_open(silent)) <= 2 * MOST, 5)
            for _ in range(3):
                assert await probe(port, trusting) == b"HTTP/1.1 200 OK"
        assert await settle(lambda: not server.handshakes and not server._count(), 5)


HELLO_SENT: Final[Mapping[str, int | None]] = {"nothing": 0, "a byte": 1, "half": 100, "all": None}
"""Bytes of a hello that a client sends before it is silent."""


def hello(trusting: ssl.SSLContext) -> bytes:
    """Return the first bytes of a client of TLS."""
    sent = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        trusting.wrap_bio(ssl.MemoryBIO(), sent).do_handshake()
    return sent.read()


@pytest.mark.parametrize("part", HELLO_SENT)
@on_every_loop
async def test_handshakes_at_once_are_bounded(tmp_path: Path, part: str) -> None:
    """The limit of open files would allow 65,536. Each may compute a signature in the same turn."""
    context, trusting = contexts(tmp_path)
    async with server_pair(tmp_path, tls=context) as pair:
        with ExitStack() as held:
            silent = burst(held, pair.own_port, hello(trusting)[: HELLO_SENT[part]], 2 * MOST_HANDSHAKES)
            assert await settle(lambda: len(_open(silent)) <= MOST_HANDSHAKES, 5)
            assert len(pair.own.handshakes) == MOST_HANDSHAKES
            assert await probe(pair.own_port, trusting) == b"HTTP/1.1 404 Not Found"


@pytest.mark.waits
@pytest.mark.parametrize("part", HELLO_SENT)
@on_every_loop
async def test_a_handshake_ends_with_the_time_of_a_request(tmp_path: Path, part: str) -> None:
    context, trusting = contexts(tmp_path)
    limits = {"request_timeout_seconds": 0.1, "idle_timeout_seconds": 60}
    async with server_pair(tmp_path, tls=context, limits=limits) as pair:
        with ExitStack() as held:
            silent = burst(held, pair.own_port, hello(trusting)[: HELLO_SENT[part]], 3)
            assert await settle(lambda: not _open(silent) and not pair.own.handshakes, 5)


def _open(connections: list[socket.socket]) -> list[socket.socket]:
    """Return those that the server has not closed."""
    found = []
    for each in connections:
        try:
            if each.recv(1 << 16) == b"":
                continue
        except BlockingIOError:
            pass
        except OSError:
            continue
        found.append(each)
    return found
