"""Refused assertions on every surface: each leaves a record with the token's subject, the claimed principal and more.

The lists of routes and methods are those of a running service: a new one without a case here fails.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import grpc
import pytest
from google.protobuf import json_format, message_factory
from support.authentication import bearer, oidc
from support.clients.http_client import HttpClient, client_of
from support.oracles.audit_files import all_records
from support.servers.idp import provider, token
from support.service.serving import settings_of

from pdp.surfaces.http.server import HttpServer
from pdp.surfaces.wire import decision_pb2 as wire

MALLORY, FORGED, TABLE = "user:oidc~mallory", "user:oidc~FORGEDADMIN", "table:lake/PROBE/x"
GRANT = {"principal": MALLORY, "privilege": "select", "object": TABLE}
POLICY = {"table": TABLE, "id": "p", "filter": "true"}
MASK = {"table": TABLE, "id": "m", "column": "c", "grantees": [MALLORY], "kind": "NULL"}
LIST = {"action": "read_data", "type": "table", "container": "namespace:lake/PROBE"}
HTTP: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", "/v1/grants", {"add": [GRANT]}),
    ("POST", "/v1/objects", {"put": [{"object": TABLE}]}),
    ("POST", "/v1/access", {"action": "read_data", "resource": TABLE}),
    ("POST", "/v1/list", LIST),
    ("GET", "/v1/grants", {"object": TABLE}),
    ("GET", "/v1/row-access-policies", {"table": TABLE}),
    ("POST", "/v1/row-access-policies", POLICY),
    ("POST", "/v1/row-access-policies:batchDelete", {"table": TABLE, "ids": ["p"]}),
    ("POST", "/v1/row-access-policies:testPermissions", {"table": TABLE, "permissions": ["rowAccessPolicies.list"]}),
    ("GET", "/v1/row-access-policies/p", {"table": TABLE}),
    ("PUT", "/v1/row-access-policies/p", POLICY),
    ("DELETE", "/v1/row-access-policies/p", {"table": TABLE}),
    ("GET", "/v1/column-masks", {"table": TABLE}),
    ("POST", "/v1/column-masks", MASK),
    ("POST", "/v1/column-masks:batchDelete", {"table": TABLE, "ids": ["m"], "column": "c"}),
    ("POST", "/v1/column-masks:testPermissions", {"table": TABLE, "permissions": ["rowAccessPolicies.list"]}),
    ("GET", "/v1/column-masks/m", {"table": TABLE, "column": "c"}),
    ("PUT", "/v1/column-masks/m", MASK),
    ("DELETE", "/v1/column-masks/m", {"table": TABLE, "column": "c"}),
]
"""Each route of management over HTTP, with a body or parameters."""
RPCS: dict[str, dict[str, Any]] = {
    "GrantsService/WriteGrants": {"add": [GRANT]},
    "GrantsService/ListGrants": {"object": TABLE},
    "GrantsService/WriteObjects": {"put": [{"object": TABLE}]},
    "GrantsService/Access": {"action": "read_data", "resource": {"reference": TABLE}},
    "DecisionService/List": LIST,
    "PolicyService/ListRowPolicies": {"table": TABLE},
    "PolicyService/GetRowPolicy": {"table": TABLE, "id": "p"},
    "PolicyService/WriteRowPolicy": {"policy": {"table": TABLE, "id": "p", "filter": "true", "grantees": [MALLORY]}},
    "PolicyService/DeleteRowPolicies": {"table": TABLE, "ids": ["p"]},
    "PolicyService/TestRowPolicyPermissions": {"table": TABLE, "permissions": ["rowAccessPolicies.list"]},
}
"""Each method of management of gRPC."""
SELECT = {
    "operation": "SelectFromColumns",
    "resource": {"table": {"catalogName": "lk", "schemaName": "PROBE", "tableName": "x"}},
}
COLUMN = {
    "column": {"catalogName": "lk", "schemaName": "PROBE", "tableName": "x", "columnName": "c", "columnType": "bigint"}
}
TRINO: dict[str, dict[str, Any]] = {
    "allow": SELECT,
    "batch": {"operation": "FilterTables", "filterResources": [SELECT["resource"]]},
    "rowFilters": {**SELECT, "operation": "GetRowFilters"},
    "columnMask": {"operation": "GetColumnMask", "resource": COLUMN},
    "batchColumnMasks": {"operation": "GetColumnMask", "filterResources": [COLUMN]},
}
"""Path of Trino's plugin -> an action. The user of the session is the claimed principal."""
SCOPES = {"readPermission": {"catalog": "lake", "schema": "PROBE", "tableName": "x"}}
DECISIONS: dict[str, dict[str, Any]] = {
    "/v1/check": {"checks": [{"action": "read_data", "resource": TABLE, "principal": FORGED}]},
    "/v1/load": {"action": "loadTable", "target": TABLE, "principal": FORGED},
    "/v1/commit-view": {"operation": "create", "view": "view:lake/PROBE/x", "principal": FORGED},
    "/v1/scopes": {"currentUser": {"userName": "FORGEDADMIN"}, "scopes": SCOPES},
    "/v1/rewrite": {"sql": "SELECT 1", "dialect": "duckdb", "principal": FORGED},
    "/v1/filters": {"resource": TABLE, "dialect": "duckdb", "principal": FORGED},
    **{
        f"/v1/data/trino/{path}": {"input": {"context": {"identity": {"user": "FORGEDADMIN"}}, "action": action}}
        for path, action in TRINO.items()
    },
}
"""Each route of decisions over HTTP, with a body in the name of another."""
WHO: dict[str, Any] = {"principal": {"id": FORGED}}
DECISION_RPCS: dict[str, dict[str, Any]] = {
    "DecisionService/Check": {"checks": [{"action": "read_data", "resource": {"reference": TABLE}, **WHO}]},
    "DecisionService/CheckLoad": {"action": "loadTable", "target": {"reference": TABLE}, **WHO},
    "DecisionService/CheckViewCommit": {"operation": "create", "view": {"reference": "view:lake/PROBE/x"}, **WHO},
    "DecisionService/CheckScopes": DECISIONS["/v1/scopes"],
    "DecisionService/Rewrite": {"sql": "SELECT 1", "dialect": "duckdb", **WHO},
    "DecisionService/RowFilter": {"resource": {"reference": TABLE}, "dialect": "duckdb", **WHO},
}
"""Each method of decisions of gRPC."""
WITHOUT_OBJECT = ("/v1/rewrite", "DecisionService/Rewrite")
"""Records of statements hold no text of a statement, and a refused statement is not read."""


@asynccontextmanager
async def writer(folder: Path) -> AsyncIterator[HttpClient]:
    """Yield a client of a service where tokens for `writers` may write, and assert nothing."""
    async with provider() as idp:
        rule = {"bearer": {"idp": "oidc", "audiences": ["writers"]}, "may_write": True}
        providers = {"oidc": oidc(idp, audiences=["writers"])}
        identity = {"providers": providers, "callers": {"writer": rule}, "inspect": "deny"}
        config = {
            "store": {"url": "sqlite:///pdp.db"}, "warehouses": {"lake": {}}, "identity": identity,
            "trino": {"catalogs": {"lk": {"warehouse": "lake"}}},
        }  # fmt: skip
        async with client_of(settings_of(config, folder)) as client:
            yield client


async def ask(client: HttpClient, method: str, path: str, fields: dict[str, Any]) -> int:
    """Ask with a token of mallory; return the status."""
    headers = bearer(token(sub="mallory", aud="writers"))
    if method in ("GET", "DELETE"):
        return (await client.send(method, f"{path}?{urlencode(fields)}", headers=headers)).status
    return (await client.send(method, path, fields, headers)).status


async def events(client: HttpClient, folder: Path) -> list[dict[str, Any]]:
    """Stop the service; return the records of all but its life."""
    await client.service.stop()
    return [record for record in all_records(folder) if record["event"] != "service"]


def assert_tells(record: dict[str, Any]) -> None:
    """Check that a record names the sender, the claimed actor and the object that was asked about."""
    assert (record["event"], record["allowed"], record["code"]) == ("management", False, "assertion_not_allowed"), (
        record
    )
    assert (record["caller"], record["callerPrincipal"], record["actor"]) == ("writer", MALLORY, FORGED)
    assert "lake/PROBE" in str(record["asked"])


async def test_each_route_records_a_forged_actor(tmp_path: Path) -> None:
    async with writer(tmp_path) as client:
        for method, path, fields in HTTP:
            named = {"principal": FORGED} if path == "/v1/list" else {"actor": FORGED}
            assert await ask(client, method, path, fields | named) == 403, (method, path)
        records = await events(client, tmp_path)
    assert len(records) == len(HTTP)
    for record in records:
        assert_tells(record)


def test_each_method_of_management_is_here() -> None:
    services = wire.DESCRIPTOR.services_by_name
    names = {f"{name}/{each}" for name in ("GrantsService", "PolicyService") for each in services[name].methods_by_name}
    assert names | {"DecisionService/List"} == RPCS.keys()
    assert {f"DecisionService/{each}" for each in services["DecisionService"].methods_by_name} == {
        *DECISION_RPCS, "DecisionService/List",
    }  # fmt: skip


async def test_each_route_is_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served: set[tuple[str, str]] = set()

    class Recorder(HttpServer):
        def __init__(self, routes: Any, *more: Any, **named: Any) -> None:
            served.update(routes)
            super().__init__(routes, *more, **named)

    monkeypatch.setattr("pdp.app.wiring.HttpServer", Recorder)
    async with writer(tmp_path):
        pass
    others = (
        "/pdp.v1.",
        "/v1/policies",
        "/v1/data/polaris/",
        "/v1/data/starrocks/",
        "/authz/",
        "/health",
        "/access/",
        "/management/",
        "/catalog/",
    )
    own = {(method, path) for method, path in served if not path.startswith(others)}  # tests/dialects has the others
    own -= {("GET", path) for path in DECISIONS}  # OPA's way to ask by a parameter
    managed = {(method, path.removesuffix("/p").removesuffix("/m") + "/*" * path.endswith(("/p", "/m")))
               for method, path, _ in HTTP}  # fmt: skip
    assert own == managed | {("POST", path) for path in DECISIONS}


def told(record: dict[str, Any], way: str) -> None:
    """Check that a record of a decision or a statement names the sender, the claimed principal and the object."""
    text = str(record)
    assert record["event"] in ("decision", "filter", "rewrite"), (way, record)
    assert (record["caller"], record["callerPrincipal"]) == ("writer", MALLORY), way
    assert FORGED in text, (way, record)
    assert "assertion_not_allowed" in text, (way, record)
    assert "True" not in text, (way, record)
    assert "PROBE" in text or way in WITHOUT_OBJECT, (way, record)


async def test_each_decision_records_a_forged_principal(tmp_path: Path) -> None:
    async with writer(tmp_path) as client:
        for path, body in DECISIONS.items():
            assert await ask(client, "POST", path, body) in (200, 403), path
        for name, body in DECISION_RPCS.items():
            assert await ask(client, "POST", f"/pdp.v1.{name}", body) in (200, 403), name
        await over_grpc(client, DECISION_RPCS)
        records = await events(client, tmp_path)
    ways = [*DECISIONS, *DECISION_RPCS, *DECISION_RPCS]
    assert len(records) == len(ways)
    for record, way in zip(records, ways, strict=True):
        told(record, way)


async def over_grpc(client: HttpClient, calls: dict[str, dict[str, Any]]) -> None:
    """Call methods of gRPC with a token of mallory; each is refused, or answered with a denial."""
    metadata = [(name.lower(), value) for name, value in bearer(token(sub="mallory", aud="writers")).items()]
    async with grpc.aio.insecure_channel(client.service.addresses["grpc"]) as channel:
        for name, body in calls.items():
            service, _, method = name.partition("/")
            types = wire.DESCRIPTOR.services_by_name[service].methods_by_name[method]
            message = json_format.ParseDict(body, message_factory.GetMessageClass(types.input_type)())
            call: Any = channel.unary_unary(f"/pdp.v1.{name}", response_deserializer=None)
            try:
                await call(message.SerializeToString(), metadata=metadata, timeout=10)
            except grpc.aio.AioRpcError as error:
                assert error.code() == grpc.StatusCode.PERMISSION_DENIED, (name, error)  # noqa: PT017


async def test_other_evidence_of_a_statement_is_recorded_too(tmp_path: Path) -> None:
    """Tables of a request describe objects, and their views name owners."""
    async with writer(tmp_path) as client:
        for path in ("/v1/rewrite", "/v1/filters"):
            body = {key: value for key, value in DECISIONS[path].items() if key != "principal"}
            assert await ask(client, "POST", path, {**body, "catalog": {}}) == 403, path
        records = await events(client, tmp_path)
    for record in records:
        assert (record["event"] in ("decision", "rewrite"), record["callerPrincipal"]) == (True, MALLORY)
        assert "may not assert properties" in str(record)


async def test_each_method_records_a_forged_actor(tmp_path: Path) -> None:
    async with writer(tmp_path) as client:
        for name, fields in RPCS.items():
            who = {"principal": {"id": FORGED}}
            named = who if name == "DecisionService/List" else {"actor": who}
            assert await ask(client, "POST", f"/pdp.v1.{name}", fields | named) == 403, name
        records = await events(client, tmp_path)
    assert len(records) == len(RPCS)
    for record in records:
        assert_tells(record)


async def test_other_refused_statements_are_recorded(tmp_path: Path) -> None:
    """Own roles, groups and attributes that the token does not have, and properties of the object."""
    described = {"id": MALLORY, "roles": ["r"], "groups": ["g"], "attributes": {"clearance": "hidden-value"}}
    resource = {"reference": TABLE, "properties": {"owner": "mallory"}}
    async with writer(tmp_path) as client:
        assert await ask(client, "POST", "/v1/grants", {"add": [GRANT], "actor": described}) == 403
        assert await ask(client, "POST", "/v1/access", {"action": "read_data", "resource": resource}) == 403
        described_actor, properties = await events(client, tmp_path)
    asked = described_actor["asked"]
    assert (described_actor["actor"], described_actor["code"]) == (MALLORY, "assertion_not_allowed")
    assert (asked["actorRoles"], asked["actorGroups"], asked["actorAttributes"]) == (["r"], ["g"], ["clearance"])
    assert "hidden-value" not in str(described_actor)
    assert (properties["event"], properties["operation"], properties["actor"]) == ("management", "list_access", MALLORY)
    assert "properties" in properties["message"]


async def test_a_malformed_request_names_the_subject_of_the_token(tmp_path: Path) -> None:
    async with writer(tmp_path) as client:
        assert await ask(client, "POST", "/v1/grants", {"unknown": 1}) == 400
        (record,) = await events(client, tmp_path)
    assert (record["event"], record["caller"], record["callerPrincipal"]) == ("refusal", "writer", MALLORY)


async def test_the_name_of_a_caller_without_a_rule_is_not_repeated(tmp_path: Path) -> None:
    async with provider() as idp:
        config = {"store": {"url": "sqlite:///pdp.db"}, "identity": {"providers": {"oidc": oidc(idp)}}}
        async with client_of(settings_of(config, tmp_path)) as client:
            headers = bearer(token(sub="mallory"))
            assert (await client.send("POST", "/v1/grants", {"add": [GRANT], "actor": FORGED}, headers)).status == 403
            (record,) = await events(client, tmp_path)
    assert (record["caller"], record["actor"]) == (MALLORY, FORGED)
    assert "callerPrincipal" not in record
