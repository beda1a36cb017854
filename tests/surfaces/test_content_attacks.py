"""Attacks by the content of one body: values in unknown fields, and names with parts without number."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import grpc
import pytest
from google.protobuf.struct_pb2 import ListValue, Struct, Value
from support.clients.http_client import fetch
from support.faults.neighbours import assert_served, peak_memory
from support.service.serving import Process, serve_process

from pdp.surfaces.wire import decision_pb2 as wire

pytestmark = pytest.mark.process
MIB = 1 << 20
NATIVE, TRINO = 8 * MIB, 64 * MIB
TABLE = {"table": {"catalogName": "w", "schemaName": "s", "tableName": "t", "columns": ["a"]}}


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with serve_process(tmp_path_factory.mktemp("content")) as process:
        yield process


def trino(field: str, unit: bytes, size: int = TRINO) -> bytes:
    """A body of Trino with a field that repeats a unit, before the field `field`."""
    action = {"operation": "SelectFromColumns", "resource": TABLE}
    body = json.dumps({"input": {"context": {"identity": {"user": "alice"}}, "action": action}}).encode()
    return filled(body, field, unit, size)


def native(resource: object, field: str, unit: bytes) -> bytes:
    principal = {"id": "user:oidc~Alice", "attributes": {"a": 1}}
    context = {"actions": [], "arguments": {"a": 1}}
    check = {"principal": principal, "action": "read_data", "resource": resource, "context": context}
    return filled(json.dumps({"checks": [check]}).encode(), field, unit, NATIVE)


def filled(body: bytes, field: str, unit: bytes, size: int) -> bytes:
    """A body with an array of units, up to a size, as a new field before `field`."""
    before, quoted, after = body.partition(f'"{field}"'.encode())
    start, end = before + b'"more":[' + unit, b"]," + quoted + after
    return start + (b"," + unit) * ((size - len(start) - len(end)) // (len(unit) + 1)) + end


def deep(count: int, parts: int) -> bytes:
    path = "/".join(["a"] * (parts - 1))
    checks = [{"action": "read_data", "resource": f"table:lake/{path}/t{at}"} for at in range(count)]
    return json.dumps({"checks": checks, "principal": "user:oidc~Alice"}).encode()


PROPERTIES = {"reference": "table:lake/a", "properties": {"a": 1}}
ATTACKS: dict[str, tuple[str, Callable[[], bytes]]] = {
    f"{field} of Trino: {unit.decode()}": ("/v1/data/trino/allow", partial(trino, field, unit))
    for field, unit in [(field, b"[]") for field in ("input", "identity", "operation", "columns")]
    + [("table", b"1"), ("table", b'""')]
}
ATTACKS |= {
    f"{field}: {unit.decode()}": ("/v1/check", partial(native, PROPERTIES, field, unit))
    for field in ("checks", "principal", "a", "reference", "arguments")
    for unit in (b"[]", b"1")
}
ATTACKS |= {
    "paths of many parts": ("/v1/check", lambda: deep(10_000, 240)),
    "a list": ("/v1/list", lambda: filled(b'{"action": "read_data"}', "action", b"[]", NATIVE)),
    "a load": ("/v1/load", lambda: filled(b'{"action": "loadTable"}', "action", b"[]", NATIVE)),
    "objects": ("/v1/objects", lambda: filled(b'{"put": []}', "put", b"[]", NATIVE)),
    "Connect": ("/pdp.v1.DecisionService/Check", lambda: filled(b'{"checks": []}', "checks", b"[]", NATIVE)),
    "one schema of Trino": (
        "/v1/data/trino/batch",
        lambda: trino("user", b"1", MIB).replace(b'"schemaName": "s"', b'"schemaName": "%b"' % (b"a." * MIB)),
    ),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_values_beyond_the_limit_are_refused_before_parsing(process: Process, attack: str) -> None:
    path, make = ATTACKS[attack]
    body = make()
    answer, peak = peak_memory(process, lambda: fetch(process.url(path), body, timeout=60))
    assert answer.status in (413, 429)
    assert b"limits.max_values" in answer.content
    assert peak < 4 * len(body) + 32 * MIB


def test_neighbours_are_served_during_the_largest_body(process: Process) -> None:
    body = trino("user", b"[]")
    assert_served(process, lambda: fetch(process.url("/v1/data/trino/allow"), body, timeout=60))


def message_of_values(size: int) -> bytes:
    """A CheckRequest with a property that is a list of empty values, of two bytes each."""
    values = ListValue.FromString(b"\n\x00" * (size // 2))
    resource = wire.Resource(reference="table:lake/a", properties=Struct(fields={"a": Value(list_value=values)}))
    return wire.CheckRequest(checks=[wire.Check(action="read_data", resource=resource)]).SerializeToString()


def test_values_of_messages_are_counted_before_parsing(process: Process) -> None:
    body = message_of_values(4 * MIB)
    connect = {"Content-Type": "application/proto", "Connect-Protocol-Version": "1"}
    answer, peak = peak_memory(
        process, lambda: fetch(process.url("/pdp.v1.DecisionService/Check"), body, headers=connect, timeout=60)
    )
    assert answer.status == 429
    assert b"limits.max_values" in answer.content
    assert peak < 4 * len(body) + 32 * MIB
    with grpc.insecure_channel(process.addresses["grpc"]) as channel:
        send: Any = channel.unary_unary("/pdp.v1.DecisionService/Check")
        with pytest.raises(grpc.RpcError) as caught:
            send(body, timeout=20)
    error: Any = caught.value
    assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "limits.max_values" in error.details()


def nested(levels: int) -> object:
    """Lists in lists in an object, so many levels in all."""
    value: object = 1
    for _ in range(levels - 1):
        value = [value]
    return {"a": value}


@pytest.mark.parametrize("field", ["properties", "attributes", "arguments"])
@pytest.mark.parametrize("levels", [64, 65, 400])
def test_free_values_are_nested_within_a_bound(process: Process, field: str, levels: int) -> None:
    given = {name: nested(levels if name == field else 2) for name in ("properties", "attributes", "arguments")}
    check = {
        "principal": {"id": "user:oidc~Alice", "attributes": given["attributes"]},
        "action": "read_data",
        "resource": {"reference": "table:lake/a", "properties": given["properties"]},
        "context": {"arguments": given["arguments"]},
    }
    answer = fetch(process.url("/v1/check"), {"checks": [check]})
    assert answer.status == 200, answer.content
    error = answer.json()["decisions"][0].get("error")
    if levels <= 64:
        assert error is None
    else:
        assert error["code"] == "invalid_argument"
        assert f"{field}` is nested deeper than 64 levels" in error["message"]
