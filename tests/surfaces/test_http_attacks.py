"""Attacks on every HTTP listener: heads without end, and connections without number."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest
from support.clients.http_client import fetch
from support.clients.http_wire import head
from support.faults.attack_times import comes_back, is_quick_blocking
from support.service.serving import Process, serve_process, serve_twin

pytestmark = pytest.mark.process
MIB = 1 << 20
HOST = b"Host: localhost\r\n"
GET = b"GET /health/live HTTP/1.1\r\n" + HOST
POST = b"POST /v1/list HTTP/1.1\r\nContent-Type: application/json\r\n" + HOST
ENDLESS = {
    "headers": (GET, b"X-A: b\r\n"),
    "large headers": (GET, b"X-A: %b\r\n" % (b"b" * 4000)),
    "one header": (GET + b"X-A: ", b"b" * 4000),
    "a name": (GET, b"X" * 4000),
    "the line": (b"GET /", b"x" * 4000),
    "trailers": (POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X-A: b\r\n"),
}
"""Shapes that are refused before the end."""
UNKEPT = {
    "chunk extensions": (POST + b"Transfer-Encoding: chunked\r\n\r\n1", b";a=b" * 1000),
    "empty lines": (b"", b"\r\n" * 1000),
}
"""Shapes that cost no memory, and end with the deadline."""


@pytest.fixture(scope="module", params=["one process", "workers"])
def process(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    workers = () if request.param == "one process" else ("--workers", "2")
    with serve_process(tmp_path_factory.mktemp("attacks"), *workers) as process:
        yield process


def memory(process: Process) -> int:
    """Return the memory of the service: of all its processes."""
    own = psutil.Process(process.process.pid)
    used: int = sum(each.memory_info().rss for each in (own, *own.children(recursive=True)))
    return used


@pytest.mark.parametrize("listener", ["http", "diagnostics"])
@pytest.mark.parametrize("shape", ENDLESS | UNKEPT)
def test_a_head_without_end_is_cut_off(process: Process, listener: str, shape: str) -> None:
    start, rest = (ENDLESS | UNKEPT)[shape]
    host, _, port = process.addresses[listener].partition(":")
    before, sent = memory(process), 0
    with socket.create_connection((host, int(port)), timeout=10) as attacker:
        attacker.settimeout(2)
        try:
            attacker.sendall(start)
            while sent < 64 * MIB:
                attacker.sendall(rest * (100_000 // len(rest)))
                sent += 100_000
        except (ConnectionError, TimeoutError):
            pass
        assert memory(process) - before < 32 * MIB
    assert comes_back(lambda: memory(process), before)
    assert sent < 64 * MIB or shape in UNKEPT
    assert fetch(process.url("/health/live", "diagnostics")).status == 200


CHECK = json.dumps(
    {"checks": [{"principal": "user:oidc~Alice", "action": "read_data", "resource": "table:lake/Foo@prod"}]}
).encode()
FILTER = {
    "input": {
        "context": {"identity": {"user": "Alice"}},
        "action": {
            "operation": "FilterTables",
            "filterResources": [{"table": {"catalogName": "lakehouse", "schemaName": "sales", "tableName": "t0"}}],
        },
    }
}
IDLE = {
    "nothing": b"",
    "half a head": b"POST /v1/check HTT",
    "no body": b"POST /v1/check HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 99\r\n%b\r\n" % HOST,
    "another route": b"GET /nothing HTTP/1.1\r\n%b\r\n" % HOST,
}


@pytest.mark.parametrize("shape", IDLE)
@pytest.mark.parametrize("listener", ["http", "grpc", "diagnostics"])
def test_idle_connections_beyond_the_open_files_hold_up_nobody(tmp_path: Path, listener: str, shape: str) -> None:
    with (
        serve_process(tmp_path, limits={"NOFILE": 256}) as process,
        serve_twin(tmp_path) as twin,
        ExitStack() as held,
    ):

        def ask(asked: Process = process) -> None:
            assert fetch(asked.url("/v1/check"), CHECK, timeout=5).status == 200

        for _ in range(100):
            ask()
            ask(twin)
        before = memory(process)
        host, _, port = process.addresses[listener].partition(":")
        for at in range(600):
            attacker = held.enter_context(socket.create_connection((host, int(port)), timeout=10))
            attacker.sendall(IDLE[shape])
            if at % 20 == 0:
                ask()
                assert fetch(process.url("/health/ready", "diagnostics"), timeout=5).status == 200
        assert psutil.Process(process.process.pid).num_fds() < 256
        assert is_quick_blocking(ask, lambda: ask(twin), process.process.pid, twin.process.pid)
        held.close()
        assert comes_back(lambda: memory(process), before)


@pytest.fixture(scope="module", params=["limits.max_in_flight=8", "limits.trino_max_body_bytes=67108864"])
def twins(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Process, Process]]:
    options = ("--set", request.param, "--set", "limits.request_timeout_seconds=60")
    folder = tmp_path_factory.mktemp("twins")
    with serve_process(folder, *options) as process, serve_twin(folder, *options) as twin:
        yield process, twin


@pytest.mark.parametrize("path", ["/v1/check", "/v1/list", "/pdp.v1.DecisionService/Check", "/v1/data/trino/batch"])
def test_bodies_that_never_come_hold_nothing_that_others_need(twins: tuple[Process, Process], path: str) -> None:
    process, twin = twins
    length = 67_108_864 if path.endswith("batch") else 8_388_608

    def ask(asked: Process = process) -> None:
        assert fetch(asked.url("/v1/check"), CHECK, timeout=5).status == 200
        assert fetch(asked.url("/v1/data/trino/batch"), FILTER, timeout=5).status == 200

    ask()
    ask(twin)
    host, _, port = process.addresses["http"].partition(":")
    with ExitStack() as held:
        for _ in range(100):
            attacker = held.enter_context(socket.create_connection((host, int(port)), timeout=10))
            attacker.sendall(head(length, path))
        assert is_quick_blocking(ask, lambda: ask(twin), process.process.pid, twin.process.pid)
