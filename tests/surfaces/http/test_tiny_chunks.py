"""Bodies in chunks of one byte, from many connections at once: no turn of the event loop is long.

The time of a turn is that of the CPU in the thread of the loop, so that a busy machine changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from support.clients.http_client import client_of
from support.service.serving import settings_of

CONNECTIONS = 200
MOST_SECONDS = 0.15
"""Longest turn: about the time that an answer about liveness waits."""
HEAD = b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNKS = b"1\r\n \r\n" * 10_000


@contextmanager
def sending(address: str, path: bytes) -> Iterator[None]:
    """Send endless bodies from a thread, on new connections in place of those that end."""
    host, _, port = address.rpartition(":")
    over = threading.Event()

    def connect(open_: ExitStack) -> socket.socket:
        client = open_.enter_context(socket.create_connection((host, int(port))))
        client.sendall(HEAD % path)
        client.setblocking(False)
        return client

    def send() -> None:
        with ExitStack() as open_:
            clients = [connect(open_) for _ in range(CONNECTIONS)]
            while not over.is_set():
                for at, client in enumerate(clients):
                    try:
                        client.send(CHUNKS)
                    except BlockingIOError:
                        pass
                    except OSError:
                        clients[at] = connect(open_)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


async def longest_turn(seconds: float) -> float:
    """Return the CPU time of the longest turn of the event loop in some seconds."""
    end, longest, before = time.monotonic() + seconds, 0.0, time.thread_time()
    while time.monotonic() < end:
        await asyncio.sleep(0)
        now = time.thread_time()
        longest, before = max(longest, now - before), now
    return longest


@pytest.mark.parametrize(
    ("listener", "path"), [("http", b"/v1/check"), ("http", b"/nothing"), ("diagnostics", b"/health/live")]
)
async def test_many_bodies_in_tiny_chunks_hold_up_nobody(tmp_path: Path, listener: str, path: bytes) -> None:
    """Bodies that are read, and those of refused requests, which are skipped."""
    config = {"audit": {"sinks": []}, "limits": {"request_timeout_seconds": 1}}
    async with client_of(settings_of(config, tmp_path)) as client:
        with contextlib.suppress(OSError), sending(client.service.addresses[listener], path):
            assert await longest_turn(2.0) < MOST_SECONDS
        status = (await client.send("GET", "/health/live", listener="diagnostics")).status
        assert status == 200


async def test_a_body_in_tiny_chunks_is_answered(tmp_path: Path) -> None:
    body = b'{"checks": [{"principal": "user:oidc~a", "action": "read_data", "resource": "table:lake/a/t"}]%b}' % (
        b" " * 20_000
    )
    async with client_of(settings_of({"warehouses": {"lake": {"default_ref": "main"}}}, tmp_path)) as client:
        host, _, port = client.service.addresses["http"].rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        answers = []
        for _ in range(2):
            writer.write(HEAD % b"/v1/check" + b"".join(b"1\r\n%c\r\n" % sign for sign in body) + b"0\r\n\r\n")
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
            await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]))
            answers.append(head.split(b" ")[1])
        writer.close()
    assert answers == [b"200", b"200"]
