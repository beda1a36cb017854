"""Dependencies that answer over HTTP as attackers: endless, slow, huge, nested, of wrong types, cut.

The server speaks raw bytes. Each client is the service's own: an answer is an error or unusable, before a deadline and
within a bound of memory, and the connection of a broken answer ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain, repeat
from pathlib import Path
from typing import Final

import psutil  # type: ignore[import-untyped]
import pytest
from support.service.serving import settings_of
from yarl import URL

from pdp.app.sources.http import HttpFetcher, HttpSource, OciSource
from pdp.audit.push.http import DeliveryFailed, HttpSender, ReceiverSettings
from pdp.config.identity import ProviderSettings
from pdp.config.policies import SourceSettings
from pdp.config.warehouses import CatalogSettings
from pdp.errors import PdpError
from pdp.identity.jwks import ProviderKeys
from pdp.rewrite.iceberg.client import RestCatalogClient
from pdp.telemetry import Telemetry

pytestmark = pytest.mark.waits
SECONDS: Final = 0.5
"""Time that each client gives an answer."""
LATEST: Final = 2 * SECONDS + 1.5
"""Time after which a call must be over, on a machine that does other work."""
MIB: Final = 1 << 20
MOST_GROWTH: Final = 96 * MIB
"""Memory of one call: the largest answer that is taken has 8 MiB, and one packet may unpack to 32."""
OK: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
PART: Final = b"x" * 65_536
CHUNK: Final = b"10000\r\n" + PART + b"\r\n"
DEEP: Final = b'{"keys":' + b"[" * 100_000
BOMB: Final = gzip.compress(bytes(64 * MIB))
Parts = Callable[[], Iterator[bytes]]


def body(content: bytes) -> bytes:
    return OK + b"Content-Length: %d\r\n\r\n" % len(content) + content


ENDLESS: Final[dict[str, Parts]] = {
    "body without a length": lambda: chain([OK + b"\r\n"], repeat(PART)),
    "body of a huge length": lambda: chain([OK + b"Content-Length: 1900000000000\r\n\r\n"], repeat(PART)),
    "chunks": lambda: chain([OK + b"Transfer-Encoding: chunked\r\n\r\n"], repeat(CHUNK)),
    "one huge chunk": lambda: chain([OK + b"Transfer-Encoding: chunked\r\n\r\n7fffffffff\r\n"], repeat(PART)),
    "length of a chunk": lambda: chain([OK + b"Transfer-Encoding: chunked\r\n\r\n"], repeat(b"0" * 65_536)),
    "trailers": lambda: chain([OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n"], repeat(b"A: b\r\n" * 1000)),
    "status line": lambda: chain([b"HTTP/1.1 200 "], repeat(PART)),
    "headers": lambda: chain([OK], repeat(b"A: b\r\n" * 1000)),
    "one header": lambda: chain([OK + b"A: "], repeat(PART)),
    "continue": lambda: repeat(b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
    "nesting": lambda: chain([OK + b"\r\n" + DEEP], repeat(b"[" * 65_536)),
    "packed": lambda: chain([OK + b"Content-Encoding: gzip\r\n\r\n"], repeat(BOMB)),
}
FINITE: Final[dict[str, bytes]] = {
    "nothing": b"", "cut head": OK, "cut body": OK + b"Content-Length: 100\r\n\r\n{}", "nested": body(DEEP),
    "a list": body(b"[]"), "a number": body(b"1e999"), "null": body(b"null"), "no JSON": body(b"<html>"),
    "no UTF-8": body(b'{"keys": "\xff"}'), "wrong types": body(b'{"keys": 1, "layers": {}, "defaults": 3}'),
    "many keys": body(json.dumps({"keys": [{}] * 5000, "layers": [{}] * 5000}).encode()),
    "no status": b"200\r\n\r\n", "huge status": b"HTTP/1.1 " + b"9" * 5000 + b" OK\r\n\r\n", "zeros": bytes(4096),
    "packed": OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(BOMB) + BOMB,
}  # fmt: skip
SLOW: Final[dict[str, bytes]] = {"head": OK + b"A: " + b"b" * 4000, "body": OK + b"Content-Length: 4000\r\n\r\n"}
"""Answers of which a byte comes at a time, and after which a byte comes at a time."""


class HostileServer:
    """Server in a thread: it reads a part of each request, and sends parts until the client closes."""

    def __init__(self, parts: Parts, pause: float = 0.0) -> None:
        self._parts = parts
        self._pause = pause
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                self.open.add(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            connection.recv(65_536)
            for part in self._parts():
                connection.sendall(part)
                time.sleep(self._pause)
        self.open.discard(connection)

    def close(self) -> None:
        self._listening.close()
        for connection in [*self.open]:
            connection.close()


@contextmanager
def hostile(parts: Parts, pause: float = 0.0) -> Iterator[HostileServer]:
    server = HostileServer(parts, pause)
    try:
        yield server
    finally:
        server.close()


async def fetch_keys(url: str, folder: Path) -> None:
    provider = ProviderSettings(issuer="https://i", jwks=f"{url}/jwks", fetch_timeout_seconds=SECONDS)
    keys = ProviderKeys("idp", provider, None, Telemetry())
    await keys.start()
    await keys.stop()
    assert keys.current == ()


async def fetch_bundle(url: str, folder: Path) -> None:
    source = SourceSettings(http=f"{url}/bundle", unsigned=True, timeout_seconds=SECONDS)
    fetched = HttpSource(HttpFetcher(settings_of({}, folder), source), f"{url}/bundle", 8 * MIB)
    with contextlib.suppress(PdpError):  # a whole body of any kind is a bundle that the next step refuses
        await asyncio.to_thread(fetched.fetch, "")


async def fetch_artefact(url: str, folder: Path) -> None:
    source = SourceSettings(oci=f"{url}/a/b:1", unsigned=True, timeout_seconds=SECONDS)
    fetched = OciSource(HttpFetcher(settings_of({}, folder), source), f"{url}/a/b:1", 8 * MIB)
    with pytest.raises(PdpError):
        await asyncio.to_thread(fetched.fetch, "")


async def ask_catalog(url: str, folder: Path) -> None:
    client = RestCatalogClient("lake", CatalogSettings(uri=url, timeout_seconds=SECONDS), None)
    try:
        with contextlib.suppress(PdpError):
            await client.find(("namespaces", "s", "tables", "t"))
    finally:
        await client.close()


async def push_records(url: str, folder: Path) -> None:
    sender = HttpSender(ReceiverSettings(URL(url), SECONDS, None, dict))
    try:
        with contextlib.suppress(DeliveryFailed):  # a success with any body is a success
            await asyncio.to_thread(sender.send, b"{}\n", {})
    finally:
        sender.close()


Client = Callable[[str, Path], object]
CLIENTS: Final = {
    "keys": fetch_keys,
    "bundle": fetch_bundle,
    "oci": fetch_artefact,
    "catalog": ask_catalog,
    "push": push_records,
}


async def ask(client: str, server: HostileServer, folder: Path) -> int:
    """Ask in time; return how far the memory grew."""
    process = psutil.Process(os.getpid())
    before: int = process.memory_info().rss
    most = before
    begun = time.monotonic()
    asking = asyncio.ensure_future(CLIENTS[client](f"http://127.0.0.1:{server.port}", folder))
    while not asking.done():
        await asyncio.sleep(0.002)
        most = max(most, process.memory_info().rss)
    await asking
    assert time.monotonic() - begun < LATEST
    end = time.monotonic() + 3
    while server.open:
        assert time.monotonic() < end, "the connection of a broken answer is open"
        await asyncio.sleep(0.005)
    return most - before


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("shape", ENDLESS)
async def test_an_endless_answer_takes_bounded_memory_and_time(tmp_path: Path, client: str, shape: str) -> None:
    with hostile(ENDLESS[shape]) as server:
        assert await ask(client, server, tmp_path) < MOST_GROWTH


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("shape", SLOW)
async def test_a_slow_answer_ends_in_time(tmp_path: Path, client: str, shape: str) -> None:
    sent = SLOW[shape] + b"x" * 4000
    with hostile(lambda: (sent[at : at + 1] for at in range(len(sent))), 0.02) as server:
        await ask(client, server, tmp_path)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("shape", FINITE)
async def test_a_wrong_or_cut_answer_is_no_answer(tmp_path: Path, client: str, shape: str) -> None:
    with hostile(lambda: iter([FINITE[shape]])) as server:
        assert await ask(client, server, tmp_path) < MOST_GROWTH
