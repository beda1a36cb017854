"""Service under hostile clients for a minute: liveness, bounded memory, and right decisions for another caller.

`TEST_HOSTILE_SECONDS` sets the time, `TEST_HOSTILE_SHAPES` names some of the shapes, divided by spaces.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import ssl
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import grpc
import psutil  # type: ignore[import-untyped]
import pytest
import yaml
from grpc_health.v1 import health_pb2, health_pb2_grpc
from support.authentication import bearer
from support.clients.hostile_client import SHAPES
from support.clients.stubs import wire_grpc
from support.faults.attack_times import MOST_MEMORY, Times, percentile
from support.paths import TESTS
from support.servers.idp import ISSUER, Authority, jwk, token
from support.service.serving import Process, serve_process

from pdp.app.process import PAUSE_SECONDS
from pdp.surfaces.wire import decision_pb2 as wire

pytestmark = [pytest.mark.process, pytest.mark.waits, pytest.mark.long, pytest.mark.timeout(0)]
SECONDS = float(os.environ.get("TEST_HOSTILE_SECONDS", "60"))
CHOSEN = os.environ.get("TEST_HOSTILE_SHAPES", "").split()
MIB = 1 << 20
PAUSE = 0.05
CALM_SECONDS = 3 * PAUSE_SECONDS
"""Time after an attack in which the service ends what has begun and gives memory back."""
MOST_SECONDS = 0.25
"""Longest answer about liveness."""
FRAGMENTS = 64 * MIB
"""Memory that the C library keeps between pieces in use. Its place settles only in a longer attack."""
MOST_GROWTH = 256 * MIB
"""Most memory that an attack takes, 40 connections at once."""
CONFIG: dict[str, Any] = {
    "warehouses": {"lake": {"default_ref": "main"}},
    "authorities": {"default": {"engines": ["grants"]}},
    "policies": {"rules": []},
    "store": {"url": "file:world.json"},
    "audit": {"sinks": [{"file": "audit"}]},
    "trino": {"catalogs": {"lakehouse": {"warehouse": "lake"}}},
    "limits": {"request_timeout_seconds": 2},
    "identity": {
        "providers": {"idp": {"issuer": ISSUER, "jwks": "keys.json", "audiences": ["pdp"]}},
        "callers": {
            "neighbour": {"bearer": {"idp": "idp", "subjects": ["neighbour"]}, "may_assert": ["principals", "groups"]},
            "attacker": {"loopback": True, "may_assert": ["principals", "roles", "groups", "properties"]},
        },
    },
}
WORLD = {
    "objects": [{"object": "warehouse:lake", "parent": "project:p"}, {"object": "project:p"}],
    "grants": [{"principal": "user:oidc~alice", "privilege": "select", "object": "namespace:lake/s"}],
}
CHECKS = [
    {"principal": "user:oidc~alice", "action": "read_data", "resource": "table:lake/s/t"},
    {"principal": "user:oidc~alice", "action": "read_data", "resource": "table:lake/other/t"},
]
TABLES = [
    {"table": {"catalogName": "lakehouse", "schemaName": schema, "tableName": "t"}} for schema in ("other", "s", "none")
]
LISTING = {
    "context": {"identity": {"user": "alice"}},
    "action": {"operation": "FilterTables", "filterResources": TABLES},
}


class Server(NamedTuple):
    """Running service, as its clients see it."""

    process: Process
    authority: Path | None
    """Certificate of the authority, if HTTP and gRPC speak TLS."""

    def url(self, path: str) -> str:
        return self.process.url(path).replace("http:", "https:" if self.authority else "http:")

    def channel(self) -> grpc.aio.Channel:
        address = self.process.addresses["grpc"]
        if self.authority is None:
            return grpc.aio.insecure_channel(address)
        return grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(self.authority.read_bytes()))

    def connector(self) -> aiohttp.TCPConnector:
        """Return a connector that makes a connection for each request."""
        tls = ssl.create_default_context(cafile=self.authority) if self.authority else True
        return aiohttp.TCPConnector(force_close=True, ssl=tls)

    def memory(self) -> int:
        used: int = psutil.Process(self.process.process.pid).memory_info().rss
        return used


@contextmanager
def service(folder: Path, tls: bool = False) -> Iterator[Server]:
    """Run a service that knows two callers: its neighbour by a token, attackers by their address."""
    config, authority = CONFIG, None
    if tls:
        authority = Authority(folder)
        cert, key = authority.issue("localhost")
        config = {**CONFIG, "server": {"tls": {"cert": str(cert), "key_file": str(key)}}}
    (folder / "pdp.yaml").write_text(yaml.safe_dump(config))
    (folder / "world.json").write_text(json.dumps(WORLD))
    (folder / "keys.json").write_text(json.dumps({"keys": [jwk()]}))
    with serve_process(folder, "-c", "pdp.yaml") as process:
        yield Server(process, authority.path if authority else None)


@contextmanager
def attack(server: Server, seed: int, seconds: float) -> Iterator[subprocess.Popen[str]]:
    """Run hostile clients in a process of their own, on every listener."""
    addresses = [f"{name}={address}" for name, address in server.process.addresses.items()]
    command = [sys.executable, "-m", "support.clients.hostile_client", str(seconds), str(seed), *addresses, *CHOSEN]
    with subprocess.Popen(command, cwd=TESTS, stdout=subprocess.PIPE, text=True) as attacker:
        try:
            yield attacker
        finally:
            attacker.kill()


class Neighbour:
    """Client with a token, which asks over every surface and knows the right answers."""

    def __init__(self, server: Server, session: aiohttp.ClientSession, channel: grpc.aio.Channel) -> None:
        self._server = server
        self._session = session
        self._headers = bearer(token(sub="neighbour", exp=int(time.time() + SECONDS) + 600))
        self._decisions: Any = wire_grpc.DecisionServiceStub(channel)
        self._health = health_pb2_grpc.HealthStub(channel)
        self.times: dict[str, Times] = defaultdict(lambda: Times(server.process.process.pid))
        """Seconds of answers by kind, without waits for a CPU."""
        self.memory: list[int] = []
        """Memory of the service at each round of questions."""

    async def ask_for(self, seconds: float) -> None:
        """Ask for some seconds. Every question must get its right answer."""
        questions: dict[str, Callable[[], Awaitable[None]]] = {
            "live": self._is_live, "http": self._check, "connect": self._connect, "trino": self._list,
            "grpc": self._call, "health": self._is_healthy,
        }  # fmt: skip
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for kind, ask in questions.items():
                with self.times[kind].measure():
                    await ask()
            self.memory.append(self._server.memory())
            await asyncio.sleep(PAUSE)

    async def _is_live(self) -> None:
        async with self._session.get(self._server.process.url("/health/live", "diagnostics")) as response:
            assert response.status == 200, await response.text()

    async def _post(self, path: str, body: Any) -> Any:
        async with self._session.post(self._server.url(path), json=body, headers=self._headers) as response:
            assert response.status == 200, await response.text()
            return await response.json()

    async def _check(self) -> None:
        answer = await self._post("/v1/check", {"checks": CHECKS})
        assert [decision["allowed"] for decision in answer["decisions"]] == [True, False]

    async def _connect(self) -> None:
        checks = [
            {**check, "principal": {"id": check["principal"]}, "resource": {"reference": check["resource"]}}
            for check in CHECKS
        ]
        answer = await self._post("/pdp.v1.DecisionService/Check", {"checks": checks})
        assert [decision.get("allowed", False) for decision in answer["decisions"]] == [True, False]

    async def _list(self) -> None:
        assert (await self._post("/v1/data/trino/batch", {"input": LISTING}))["result"] == [1]

    async def _call(self) -> None:
        checks = [
            wire.Check(
                principal=wire.Principal(id=check["principal"]), action=check["action"],
                resource=wire.Resource(reference=check["resource"]),
            )
            for check in CHECKS
        ]  # fmt: skip
        metadata = tuple((name.lower(), value) for name, value in self._headers.items())
        answer = await self._decisions.Check(wire.CheckRequest(checks=checks), timeout=10, metadata=metadata)
        assert [decision.allowed for decision in answer.decisions] == [True, False]

    async def _is_healthy(self) -> None:
        answer = await self._health.Check(health_pb2.HealthCheckRequest(), timeout=10)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


def summary(times: Mapping[str, Times]) -> str:
    """Return the median, the 99th percentile and the longest time by kind, in milliseconds."""
    return ", ".join(
        f"{kind} {' '.join(f'{1000 * percentile(each, part):.0f}' for part in (0.5, 0.99, 1))}"
        for kind, each in times.items()
    )


@pytest.mark.parametrize(("tls", "share"), [(False, 0.6), (True, 0.4)], ids=["plain", "tls"])
async def test_others_are_served_while_hostile_clients_attack(tmp_path: Path, tls: bool, share: float) -> None:
    """Hostile clients never speak TLS. Memory is compared between two attacks: bounded caches fill in the first."""
    seed, seconds = random.randrange(1 << 32), share * SECONDS / 2
    timeout = aiohttp.ClientTimeout(10)
    with service(tmp_path, tls) as server:
        async with (
            aiohttp.ClientSession(connector=server.connector(), timeout=timeout) as session,
            server.channel() as channel,
        ):
            quiet, attacked = (Neighbour(server, session, channel) for _ in range(2))
            await quiet.ask_for(3)
            for number in range(2):
                before = server.memory()
                with attack(server, seed + number, seconds) as attacker:
                    await attacked.ask_for(seconds)
                    attacks = json.loads((await asyncio.to_thread(attacker.communicate))[0])
                await asyncio.sleep(CALM_SECONDS)
            after = server.memory()
        sizes = [each // MIB for each in (quiet.memory[-1], before, max(attacked.memory), after)]
        sys.stdout.write(f"\nseed {seed}: {attacks}\nMiB when quiet, before, at most and after: {sizes}\n")
        sys.stdout.write(f"quiet: {summary(quiet.times)}\nunder attack: {summary(attacked.times)}\n")
        assert attacks.keys() == set(CHOSEN or SHAPES), seed
        assert max(attacked.times["live"]) < MOST_SECONDS, seed
        assert max(attacked.memory) < quiet.memory[-1] + MOST_GROWTH, seed
        assert after < MOST_MEMORY * before + FRAGMENTS, seed
        assert server.process.terminate() == 0
    assert "Traceback" not in server.process.stderr(), seed
