"""Answers of every surface with `audit.durability: request`, while the disk takes no record."""

from __future__ import annotations

import http.client
import json
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import pytest
from support.clients.stubs import wire_grpc
from support.oracles.audit_files import all_records
from support.service.serving import Process, serve_process

from pdp.surfaces.wire import decision_pb2 as wire

pytestmark = [pytest.mark.process, pytest.mark.waits]
SECONDS = 1.0
CHECK = {"principal": "user:oidc~Alice", "action": "read_data", "resource": "table:lake/Foo@prod"}
TABLE = {"table": {"catalogName": "lakehouse", "schemaName": "sales", "tableName": "orders"}}
CONTEXT = {"identity": {"user": "Alice", "groups": []}, "softwareStack": {"trinoVersion": "476"}}
GRANT = {"principal": "user:oidc~b", "privilege": "select", "object": "table:lake/t"}
RPC_CHECK = {
    "principal": {"id": CHECK["principal"]},
    "action": "read_data",
    "resource": {"reference": CHECK["resource"]},
}


def trino(operation: str) -> dict[str, Any]:
    return {"input": {"context": CONTEXT, "action": {"operation": operation, "resource": TABLE}}}


POSTS: dict[str, tuple[str, Any, int]] = {
    "check": ("/v1/check", {"checks": [CHECK]}, 200),
    "many checks": ("/v1/check", {"checks": [CHECK | {"resource": f"table:lake/t{at}"} for at in range(3000)]}, 200),
    "refusal": ("/v1/check", {"checks": 1}, 400),
    "trino": ("/v1/data/trino/allow", trino("SelectFromColumns"), 200),
    "row filters": ("/v1/data/trino/rowFilters", trino("GetRowFilters"), 200),
    "connect": ("/pdp.v1.DecisionService/Check", {"checks": [RPC_CHECK]}, 200),
    "refused connect": ("/pdp.v1.DecisionService/Check", {"checks": 1}, 400),
    "grants": ("/v1/grants", {"add": [GRANT]}, 200),
}
HEADERS = {"Content-Type": "application/json"}


def post(process: Process, name: str) -> tuple[int, float]:
    """Return the status, and the seconds that the answer took."""
    path, body, _ = POSTS[name]
    begun = time.monotonic()
    with closing(http.client.HTTPConnection(process.addresses["http"], timeout=30)) as client:
        client.request("POST", path, json.dumps(body), HEADERS)
        answer = client.getresponse()
        answer.read()
        return answer.status, time.monotonic() - begun


def rpc(process: Process) -> str:
    """Return the status of a call of gRPC."""
    check = wire.Check(
        principal=wire.Principal(id="user:oidc~Alice"), action="read_data",
        resource=wire.Resource(reference="table:lake/Foo@prod"),
    )  # fmt: skip
    with grpc.insecure_channel(process.addresses["grpc"]) as channel:
        stub: Any = wire_grpc.DecisionServiceStub(channel)
        try:
            stub.Check(wire.CheckRequest(checks=[check]), timeout=30)
        except grpc.RpcError as error:
            failed: Any = error
            return str(failed.code().name)
    return "OK"


def options(on_full: str) -> Iterator[str]:
    for setting in (
        "audit.durability=request",
        f"audit.on_full={on_full}",
        f"limits.request_timeout_seconds={SECONDS}",
    ):
        yield from ("--set", setting)


def limit_files(process: Process, size: int) -> None:
    resource.prlimit(process.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def until(happens: Callable[[], Any], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("on_full", ["block", "deny", "drop"])
def test_no_answer_leaves_without_its_record(tmp_path: Path, on_full: str) -> None:
    with serve_process(tmp_path, *options(on_full)) as process:
        for name, (_, _, wanted) in POSTS.items():
            assert post(process, name)[0] == wanted, name
        assert rpc(process) == "OK"
        limit_files(process, 1000)
        post(process, "trino")  # now the disk is known to take nothing
        for name, (_, _, wanted) in POSTS.items():
            if name == "grants":
                continue  # the database cannot be written, either
            status, seconds = post(process, name)
            assert status == (wanted if on_full == "drop" else 503), name
            if on_full == "block":
                assert seconds > SECONDS * 0.9, name
            if on_full == "deny":
                assert seconds < SECONDS * 0.9, name
        assert rpc(process) == ("OK" if on_full == "drop" else "UNAVAILABLE")
        limit_files(process, resource.RLIM_INFINITY)
        until(lambda: post(process, "check")[0] == 200)
        for name, (_, _, wanted) in POSTS.items():
            assert post(process, name)[0] == wanted, name
        assert process.terminate() == 0
    records = all_records(tmp_path)
    assert [record["seq"] for record in records] == list(range(len(records)))


def test_requests_behind_a_held_answer_keep_their_order(tmp_path: Path) -> None:
    bodies = [json.dumps({"checks": [CHECK | {"resource": f"table:lake/t{at}"}]}).encode() for at in range(200)]
    head = b"POST /v1/check HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    with serve_process(tmp_path, *options("block")) as process:
        with closing(http.client.HTTPConnection(process.addresses["http"], timeout=30)) as client:
            client.connect()
            client.sock.sendall(b"".join((head % len(body)) + body for body in bodies))
            received = client.sock.makefile("rb")
            ids = []
            for _ in bodies:
                assert received.readline().startswith(b"HTTP/1.1 200")
                headers = http.client.parse_headers(received)
                ids.append(json.loads(received.read(int(headers["Content-Length"])))["decisionId"])
        assert process.terminate() == 0
    decisions = [record for record in all_records(tmp_path) if record["event"] == "decision"]
    assert [record["id"] for record in decisions] == ids
    assert [record["checks"][0]["resource"] for record in decisions] == [f"table:lake/t{at}@prod" for at in range(200)]


def test_a_client_that_leaves_a_held_answer_harms_nobody(tmp_path: Path) -> None:
    body = json.dumps({"checks": [CHECK]}).encode()
    head = b"POST /v1/check HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    with serve_process(tmp_path, *options("block")) as process:
        limit_files(process, 1000)
        for _ in range(50):
            with closing(http.client.HTTPConnection(process.addresses["http"], timeout=30)) as client:
                client.connect()
                client.sock.sendall((head % len(body)) + body)
        limit_files(process, resource.RLIM_INFINITY)
        until(lambda: post(process, "check")[0] == 200)
        assert process.terminate() == 0
        assert "Traceback" not in process.stderr()
    assert len([record for record in all_records(tmp_path) if record["event"] == "decision"]) >= 51
