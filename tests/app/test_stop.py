"""Stop of a service under load: the phase in which it still serves, the last answers, and a second signal."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from pathlib import Path

import grpc
import pytest
from support.clients.http_client import fetch
from support.clients.stubs import wire_grpc
from support.service.serving import Process, serve_process

from pdp.surfaces.wire import decision_pb2 as wire

pytestmark = [pytest.mark.process, pytest.mark.waits, pytest.mark.usefixtures("documented_pauses")]
PATIENCE = 20.0
BODY = json.dumps(
    {"checks": [{"principal": "user:oidc~Alice", "action": "read_data", "resource": "table:lake/Foo@prod"}]}
).encode()
HEAD = b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
LAME_DUCK = ("--set", "server.lame_duck_seconds=1")
WORKERS = pytest.mark.parametrize("workers", [1, 2])


class KeepAliveClient(threading.Thread):
    """Client that asks on one connection, with pauses in seconds, until an answer says that the connection closes."""

    def __init__(self, process: Process, path: str, pause: float) -> None:
        super().__init__()
        self.pause = pause
        host, _, port = process.addresses["http"].partition(":")
        self.connection = socket.create_connection((host, int(port)), timeout=PATIENCE)
        self.request = HEAD % (path.encode(), len(BODY)) + BODY
        self.answers = 0
        self.told = False
        """Tells whether the last answer announced the end of the connection."""

    def run(self) -> None:
        with self.connection, self.connection.makefile("rb") as reader:
            while not self.told:
                self.connection.sendall(self.request)
                if not reader.readline():
                    return
                headers = {line.lower().strip() for line in iter(reader.readline, b"\r\n")}
                reader.read(next(int(one.split(b":")[1]) for one in headers if one.startswith(b"content-length:")))
                self.answers += 1
                self.told = b"connection: close" in headers
                time.sleep(self.pause)


def readiness(process: Process) -> int:
    return fetch(process.url("/health/ready", "diagnostics"), timeout=5).status


def until_unready(process: Process) -> None:
    deadline = time.monotonic() + PATIENCE
    while readiness(process) == 200:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@WORKERS
def test_no_request_under_way_is_lost_by_a_stop(tmp_path: Path, workers: int) -> None:
    with serve_process(tmp_path, "--workers", str(workers), *LAME_DUCK) as process:
        ways = [(path, pause) for path in ("/v1/check", "/v1/list") for pause in (0, 0, 0.1, 0.3)]
        clients = [KeepAliveClient(process, path, pause) for path, pause in ways]
        for client in clients:
            client.start()
        time.sleep(0.3)
        process.process.send_signal(signal.SIGTERM)
        until_unready(process)
        assert fetch(process.url("/v1/check"), BODY).status == 200  # on a new connection
        with grpc.insecure_channel(process.addresses["grpc"]) as channel:
            stub = wire_grpc.DecisionServiceStub(channel)
            assert stub.Check(wire.CheckRequest(checks=[wire.Check()]), timeout=5).decision_id
        for client in clients:
            client.join(PATIENCE)
        assert [client.told for client in clients] == [True] * 8
        assert process.process.wait(PATIENCE) == 0


@WORKERS
def test_a_second_signal_stops_at_once(tmp_path: Path, workers: int) -> None:
    settings = ("--set", "server.lame_duck_seconds=60", "--set", "server.drain_seconds=60")
    with serve_process(tmp_path, "--workers", str(workers), *settings) as process:
        host, _, port = process.addresses["http"].partition(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as never:
            never.sendall(HEAD % (b"/v1/check", 100))
            assert fetch(process.url("/v1/check"), BODY).status == 200
            process.process.send_signal(signal.SIGTERM)
            until_unready(process)
            time.sleep(0.5)
            assert process.process.poll() is None
            began = time.monotonic()
            process.process.send_signal(signal.SIGTERM)
            assert process.process.wait(PATIENCE) == 0
            assert time.monotonic() - began < 10
    assert sum(record.get("id") is not None for record in process.records()) == 1
