"""Attacks by a text that one body names once and thousands of resources share."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from support.clients.http_client import Response, fetch
from support.clients.stubs import wire_grpc
from support.faults.neighbours import assert_served, peak_memory
from support.service.serving import Process, serve_process

from pdp.decision.path_arrays import MOST_REPEATED
from pdp.surfaces.wire import decision_pb2 as wire

pytestmark = pytest.mark.process
MIB = 1 << 20
LONG = "y" * 20_000
RESOURCES = 2000
CONNECT = "/pdp.v1.DecisionService/Check"


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with serve_process(tmp_path_factory.mktemp("shared")) as process:
        yield process


def names(count: int) -> list[str]:
    return [f"table:lake/s/t{at}" for at in range(count)]


def listed(count: int = RESOURCES, **fields: Any) -> dict[str, Any]:
    """A check about many resources."""
    return {"principal": "user:oidc~Alice", "action": "read_data", "resources": names(count), **fields}


def with_arguments(count: int = RESOURCES, **arguments: Any) -> dict[str, Any]:
    return listed(count, context={"arguments": arguments})


def native(*checks: Any) -> tuple[str, bytes]:
    return "/v1/check", json.dumps({"checks": checks}).encode()


def connect(check: dict[str, Any]) -> tuple[str, bytes]:
    check["principal"] = {"id": check["principal"]}
    check["resources"] = [{"reference": name} for name in check["resources"]]
    return CONNECT, json.dumps({"checks": [check]}).encode()


def trino(**action: Any) -> tuple[str, bytes]:
    schemas = [{"schema": {"catalogName": "lakehouse", "schemaName": f"s{at}"}} for at in range(RESOURCES)]
    whole = {"operation": "FilterSchemas", "filterResources": schemas, **action}
    body = {"input": {"context": {"identity": {"user": "Alice"}}, "action": whole}}
    return "/v1/data/trino/batch", json.dumps(body).encode()


REFUSED: dict[str, Callable[[], tuple[str, bytes]]] = {
    "arguments": lambda: native(with_arguments(x=LONG)),
    "arguments in parts": lambda: native(with_arguments(x=["y"] * 5000)),
    "arguments of many lists": lambda: native(*[with_arguments(100, x=LONG)] * 10),
    "arguments beside a broken check": lambda: native({"resource": 1}, with_arguments(x=LONG)),
    "a destination": lambda: native({**with_arguments(destination=f"table:lake/s/{LONG}"), "action": "rename"}),
    "a broken destination": lambda: native({**with_arguments(destination=LONG), "action": "rename"}),
    "a broken role": lambda: native(listed(actingRole=LONG)),
    "a broken principal": lambda: native(listed(principal=LONG)),
    "an unknown action": lambda: native(listed(action=LONG)),
    "Connect": lambda: connect(with_arguments(x=LONG)),
    "a grantee of Trino": lambda: trino(grantee={"type": "USER", "name": LONG}),
    "a target of Trino": lambda: trino(
        targetResource={"schema": {"catalogName": "lakehouse", "schemaName": LONG}},
    ),
}


@pytest.mark.parametrize("attack", REFUSED)
def test_a_text_times_its_resources_is_refused_before_any_work(process: Process, attack: str) -> None:
    path, body = REFUSED[attack]()
    before = audit_size(process)
    answer, peak = peak_memory(process, lambda: fetch(process.url(path), body, timeout=60))
    assert (answer.status, "split the list" in answer.text) == (400, True), answer.text[:300]
    assert len(answer.content) < 1000
    assert audit_size(process) - before < 4000
    assert peak < 4 * len(body) + 32 * MIB


def test_grpc_refuses_it_as_well(process: Process) -> None:
    for length, count in ((len(LONG), RESOURCES), (MOST_REPEATED // 2, 4)):
        check = wire.Check(
            principal=wire.Principal(id="user:oidc~Alice"),
            action="read_data",
            resources=[wire.Resource(reference=name) for name in names(count)],
        )
        check.context.arguments["x"] = "y" * length
        before = audit_size(process)
        with grpc.insecure_channel(process.addresses["grpc"]) as channel:
            stub: Any = wire_grpc.DecisionServiceStub(channel)
            with pytest.raises(grpc.RpcError) as refused:
                stub.Check(wire.CheckRequest(checks=[check]), timeout=60)
        error: Any = refused.value
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "split the list" in error.details()
        assert audit_size(process) - before < 4000


def test_an_error_that_many_positions_share_is_short(process: Process) -> None:
    path, body = native({**listed(), LONG: 1})
    answer = fetch(process.url(path), body, timeout=60)
    assert (answer.status, len(answer.json()["decisions"])) == (200, RESOURCES)
    assert len(answer.content) < RESOURCES * 1000


@pytest.mark.parametrize(
    "checks",
    [
        [with_arguments(x="y" * 1000)],
        [with_arguments(1, x=LONG * 20)],
        [{**listed(1), "resource": "table:lake/s/t", "context": {"arguments": {"x": LONG}}}, listed()],
    ],
    ids=["short arguments", "one resource", "another check"],
)
def test_what_repeats_little_is_answered(process: Process, checks: list[dict[str, Any]]) -> None:
    if "resource" in checks[0]:
        del checks[0]["resources"]
    path, body = native(*checks)
    before = audit_size(process)
    answer = fetch(process.url(path), body, timeout=60)
    assert answer.status == 200
    assert audit_size(process) - before < MOST_REPEATED + 4 * len(body) + MIB


def test_neighbours_are_served_during_the_attack(process: Process) -> None:
    path, body = native(with_arguments(9999, x="y" * 100_000))

    def attack() -> Response:
        return fetch(process.url(path), body, timeout=60)

    assert assert_served(process, attack).status == 400


def audit_size(process: Process) -> int:
    """Return the bytes of all records."""
    return sum(path.stat().st_size for path in (process.folder / "audit").glob("*decisions-*"))
