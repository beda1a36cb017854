"""The end of HTTP connections when the service drains: the last answer says so."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from support.service.serving import example_settings, serving

BODY = json.dumps({"checks": []}).encode()
REQUESTS = {
    "decision": b"POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(BODY), BODY),
    "other": b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "refused": b"POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nContent-Encoding: gzip\r\n\r\n",
}


async def answer(reader: asyncio.StreamReader) -> bytes:
    """The head of the next answer, in lower case."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    await reader.readexactly(int(head.partition(b"content-length: ")[2].split(b"\r\n")[0]))
    return head


@pytest.mark.parametrize("request_bytes", REQUESTS.values(), ids=REQUESTS)
async def test_the_last_answer_on_a_connection_says_that_it_closes(tmp_path: Path, request_bytes: bytes) -> None:
    async with serving(example_settings(tmp_path, f"store.url=sqlite:///{tmp_path}/pdp.db")) as service:
        host, _, port = service.addresses["http"].partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(request_bytes)
        assert b"connection: close" not in await answer(reader)
        service.surfaces.http_server.drain()
        waiting = asyncio.create_task(service.surfaces.http_server.drained(30))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        writer.write(request_bytes)
        assert b"connection: close" in await answer(reader)
        assert await reader.read() == b""
        writer.close()
        await waiting


async def test_idle_connections_are_not_awaited_longer_than_asked(tmp_path: Path) -> None:
    async with serving(example_settings(tmp_path, f"store.url=sqlite:///{tmp_path}/pdp.db")) as service:
        host, _, port = service.addresses["http"].partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(REQUESTS["decision"])
        await answer(reader)
        async with asyncio.timeout(10):
            await service.surfaces.http_server.drained(0.1)
            assert await service.stop(successor=True)
            assert await reader.read() == b""
        writer.close()
