"""`CheckScopes` over gRPC and Connect: the answers, refusals and records of POST /v1/scopes."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.json_format import ParseDict
from support.clients.http_client import client_of
from support.clients.rpc_clients import ConnectClient, GrpcClient, RpcClient, RpcError
from support.oracles.audit_files import audit_records
from support.service.serving import settings_of

from pdp.surfaces.wire import decision_pb2 as wire

EVENTS = {"catalog": "hive", "schema": "raw", "tableName": "events"}
USERS = {**EVENTS, "tableName": "users"}
PERMISSIONS = [
    {"name": "svc", "permissions": {"Query": [{"catalog": "hive", "schema": "raw", "tables": ["events"]}]}},
]
SCOPES: list[Any] = [
    None,
    {},
    {"authorized": True},
    {"authorized": False, "$all": {}},
    {"readPermission": EVENTS},
    {"readPermission": USERS},
    {"writePermission": EVENTS, "authorized": True},
    {"$all": {"authorized": True, "readPermission": EVENTS, "$any": {"writePermission": EVENTS}}},
    {"readPermission": {}},
    {"readPermission": {**EVENTS, "tableName": "a\nb"}},
    {"readPermission": {**EVENTS, "schema": "a..b"}},
    {"authorised": True},
    {"authorized": "yes"},
]
CURRENT_USERS: list[Any] = [
    None,
    {},
    {"userName": "svc"},
    {"userName": "svc", "role": "admin", "level": 3},
    {"userName": "a\n"},
]


def configured(folder: Path) -> Any:
    (folder / "permissions.json").write_text(json.dumps(PERMISSIONS))
    (folder / "world.json").write_text("{}")
    callers = {"callers": {"lakeql": {"loopback": True, "may_assert": ["principals", "attributes"]}}}
    given = {
        "authorities": {"default": {"engines": ["scopes"]}},
        "policies": {"rules": [], "scopes": {"permissions": ["permissions.json"]}},
        "store": {"url": "file:world.json"},
        "identity": callers,
    }
    return settings_of(given, folder)


async def called(rpc: RpcClient, request: wire.CheckScopesRequest) -> bool | str:
    """Return the answer, or the code of the refusal."""
    try:
        allowed: bool = (await rpc.call("CheckScopes", request)).allowed
    except RpcError as error:
        return error.code
    return allowed


@pytest.mark.parametrize("protocol", ["grpc", "connect", "connect-json"])
async def test_grpc_gives_the_answers_of_http(tmp_path: Path, protocol: str) -> None:
    async with client_of(configured(tmp_path)) as client:
        channel = grpc.aio.insecure_channel(client.service.addresses["grpc"])
        rpc: RpcClient = GrpcClient(channel)
        if protocol != "grpc":
            rpc = ConnectClient(client, json=protocol.endswith("json"))
        answered = set()
        for user in CURRENT_USERS:
            for scopes in SCOPES:
                body = {key: value for key, value in (("currentUser", user), ("scopes", scopes)) if value is not None}
                status, wanted = await client.post("/v1/scopes", json.dumps(body).encode())
                found = await called(rpc, ParseDict(body, wire.CheckScopesRequest()))
                answered.add(found if isinstance(found, bool) else "refused")
                assert found == (wanted["allowed"] if status == 200 else wanted["error"]["code"]), body
        await channel.close()
    assert answered == {True, False, "refused"}
    records = audit_records(tmp_path)
    by_surface: dict[str, list[Any]] = {}
    for record in records:
        rows = [(row["action"], row.get("resource"), row["allowed"], row["by"]) for row in record["checks"]]
        by_surface.setdefault(record["surface"], []).append((record["inputs"]["principal"], rows))
    ours = by_surface[protocol.partition("-")[0]]
    assert ours == by_surface["http"]
    assert len(ours) > len(SCOPES)


NAMES: list[Any] = [None, [], ["svc"], 7, 0, -1, 1.5, True, False, {}, {"userName": "svc"}, [None]]
"""Names that are no text."""


@pytest.mark.parametrize("protocol", ["http", "grpc", "connect", "connect-json"])
async def test_a_name_that_is_no_text_is_invalid(tmp_path: Path, protocol: str) -> None:
    async with client_of(configured(tmp_path)) as client:
        channel = grpc.aio.insecure_channel(client.service.addresses["grpc"])
        rpc: RpcClient = GrpcClient(channel)
        if protocol.startswith("connect"):
            rpc = ConnectClient(client, json=protocol.endswith("json"))
        for name, more, scopes in itertools.product(NAMES, ({}, {"role": "admin"}), (None, {}, *SCOPES[2:6])):
            body = {"currentUser": {"userName": name, **more}} | ({} if scopes is None else {"scopes": scopes})
            if protocol == "http":
                status, answer = await client.post("/v1/scopes", json.dumps(body).encode())
                assert (status, answer["error"]["code"]) == (400, "invalid_argument"), body
            else:
                assert await called(rpc, ParseDict(body, wire.CheckScopesRequest())) == "invalid_argument", body
        await channel.close()
    assert not [record for record in audit_records(tmp_path) if record["event"] == "decision"]
