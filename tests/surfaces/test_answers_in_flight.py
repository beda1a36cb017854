"""Answers that wait for their records are in flight: limits count them, and a drain waits for them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from support.clients.http_client import HttpClient, client_of
from support.faults.audit_syncs import before_each_sync
from support.service.serving import settings_of

from pdp.surfaces.wire import decision_pb2 as wire

CHECK = {"principal": "user:oidc~alice", "action": "read_data", "resource": "table:lake/t"}
RPC_CHECK = {"principal": {"id": CHECK["principal"]}, "action": "read_data", "resource": {"reference": "table:lake/t"}}
RPC_PATH = "/pdp.v1.DecisionService/"
Call = Callable[[HttpClient, grpc.aio.Channel], Awaitable[str]]


def post(path: str, body: Any) -> Call:
    async def call(client: HttpClient, _: grpc.aio.Channel) -> str:
        return str((await client.send("POST", path, body)).status)

    return call


def rpc(method: str, body: bytes) -> Call:
    async def call(_: HttpClient, channel: grpc.aio.Channel) -> str:
        send: Any = channel.unary_unary(RPC_PATH + method, lambda one: one, lambda one: one)
        try:
            await send(body)
        except grpc.aio.AioRpcError as error:
            return error.code().name
        return "OK"

    return call


def message(count: int) -> bytes:
    one = wire.Check(
        principal=wire.Principal(id="user:oidc~alice"),
        action="read_data",
        resource=wire.Resource(reference="table:lake/t"),
    )
    return wire.CheckRequest(checks=[one] * count).SerializeToString()


CALLS: dict[str, tuple[Call, str]] = {
    "check": (post("/v1/check", {"checks": [CHECK]}), "200"),
    "aiohttp": (post("/v1/check?", {"checks": [CHECK]}), "200"),
    "refused aiohttp": (post("/v1/check?", {"checks": 1}), "400"),
    "connect": (post(RPC_PATH + "Check", {"checks": [RPC_CHECK]}), "200"),
    "refused connect": (post(RPC_PATH + "Check", {"checks": 1}), "400"),
    "grpc": (rpc("Check", message(1)), "OK"),
    "long grpc": (rpc("Check", message(3000)), "OK"),
    "refused grpc": (rpc("Check", b"\xff"), "INVALID_ARGUMENT"),
}


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Return the event that lets syncs end."""
    runs = threading.Event()
    runs.set()
    before_each_sync(monkeypatch, lambda: runs.wait(20))
    return runs


@pytest.fixture
async def client(tmp_path: Path, disk: threading.Event) -> AsyncIterator[HttpClient]:
    settings = settings_of({"audit": {"durability": "request"}, "limits": {"max_in_flight": 3}}, tmp_path)
    async with client_of(settings) as opened:
        yield opened
        disk.set()


@pytest.fixture
async def channel(client: HttpClient) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(client.service.addresses["grpc"]) as opened:
        yield opened


async def until(happens: Callable[[], Any], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("name", CALLS)
async def test_a_held_answer_is_in_flight_until_it_leaves(
    client: HttpClient, channel: grpc.aio.Channel, disk: threading.Event, name: str
) -> None:
    call, wanted = CALLS[name]
    admission, gate = client.service.surfaces.admission, client.service.surfaces.refusals.gate
    assert await call(client, channel) == wanted
    disk.clear()
    held = asyncio.ensure_future(call(client, channel))
    await until(lambda: gate._held)  # type: ignore[attr-defined]
    assert admission._begun == admission._requests == 1
    idle = asyncio.ensure_future(admission.idle())
    await asyncio.sleep(0.05)
    assert not idle.done()
    disk.set()
    assert await held == wanted
    await asyncio.wait_for(idle, 5)
    assert admission._begun == admission._requests == admission._bytes == 0


@pytest.mark.parametrize("name", [name for name in CALLS if "refused" not in name])
async def test_held_answers_fill_the_places(
    client: HttpClient, channel: grpc.aio.Channel, disk: threading.Event, name: str
) -> None:
    call, wanted = CALLS[name]
    disk.clear()
    held = [asyncio.ensure_future(call(client, channel)) for _ in range(9)]
    await until(lambda: client.service.surfaces.admission._begun == 3)
    await asyncio.sleep(0.3)
    assert client.service.surfaces.admission._begun == 3
    disk.set()
    assert wanted in await asyncio.gather(*held)
    assert await call(client, channel) == wanted


async def test_the_history_and_the_audit_are_completed_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = threading.Barrier(2)
    async with client_of(settings_of({"store": {"url": "sqlite:///pdp.db"}}, tmp_path)) as client:
        service = client.service
        assert service._history
        assert service.audit
        for part in (service._history, service.audit):
            plain = part.close
            monkeypatch.setattr(part, "close", lambda timeout, plain=plain: (both.wait(5), plain(timeout))[1])
        assert await service.stop()
