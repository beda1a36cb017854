"""Ids of requests and decisions: into the record, and back to the caller, over every surface."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from support.clients.http_client import HttpClient, client_of
from support.oracles.audit_files import all_records
from support.service.serving import settings_of

from pdp.surfaces.wire import decision_pb2 as wire

CHECK = {"principal": "user:oidc~alice", "action": "read_data", "resource": "table:lake/t"}
GRANT = {"principal": "user:oidc~bob", "privilege": "select", "object": "table:lake/t"}
NEW = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
MINE = {"X-Request-ID": "trace-1/a:b.c=d+e@f~_"}
"""A valid id with every kind of character."""


def trino_body(operation: str, *, batch: bool = False) -> dict[str, Any]:
    """Return a body of Trino's plugin about one table, or about none of a batch."""
    table = {"table": {"catalogName": "lake", "schemaName": "s", "tableName": "t", "columns": ["c"]}}
    about: dict[str, Any] = {"filterResources": []} if batch else {"resource": table}
    return {"input": {"context": {"identity": {"user": "a"}}, "action": {"operation": operation, **about}}}


REQUESTS: dict[str, tuple[str, str, Any]] = {
    "check": ("POST", "/v1/check", {"checks": [CHECK]}),
    "check in aiohttp": ("POST", "/v1/check?", {"checks": [CHECK]}),
    "explain": ("POST", "/v1/check", {"checks": [CHECK], "explain": True}),
    "load": ("POST", "/v1/load", {"principal": "user:oidc~alice", "target": "table:lake/t", "action": "loadTable"}),
    "write grants": ("POST", "/v1/grants", {"add": [GRANT]}),
    "list grants": ("GET", "/v1/grants", None),
    "write objects": ("POST", "/v1/objects", {"put": [{"object": "project:p1"}]}),
    "access": ("POST", "/v1/access", {"resource": "table:lake/t", "action": "read_data"}),
    "list": (
        "POST",
        "/v1/list",
        {"principal": "user:oidc~bob", "action": "read_data", "type": "table", "container": "warehouse:lake"},
    ),
    "trino allow": ("POST", "/v1/data/trino/allow", trino_body("SelectFromColumns")),
    "trino batch": ("POST", "/v1/data/trino/batch", trino_body("FilterTables", batch=True)),
    "trino rows": ("POST", "/v1/data/trino/rowFilters", trino_body("GetRowFilters")),
    "connect": ("POST", "/pdp.v1.DecisionService/Check", {"checks": [{}]}),
    "connect grants": ("POST", "/pdp.v1.GrantsService/ListGrants", {}),
}
REFUSED: dict[str, tuple[str, str, Any]] = {
    "malformed": ("POST", "/v1/check", b"{"),
    "malformed in aiohttp": ("POST", "/v1/check?", b"{"),
    "malformed grants": ("POST", "/v1/grants", b"{"),
    "unknown path": ("GET", "/nothing", None),
    "wrong method": ("GET", "/v1/check", None),
    "malformed trino": ("POST", "/v1/data/trino/allow", b"{"),
    "malformed connect": ("POST", "/pdp.v1.DecisionService/Check", b"{"),
}


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[HttpClient]:
    config = {
        "store": {"url": "sqlite:///pdp.db"},
        "trino": {"catalogs": {"lake": {"warehouse": "lake"}}},
    }
    async with client_of(settings_of(config, tmp_path)) as client:
        yield client


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
async def test_every_answer_names_its_decision(
    client: HttpClient, tmp_path: Path, request_: tuple[str, str, Any]
) -> None:
    given = await client.send(*request_, headers=MINE)
    without = await client.send(*request_)
    assert (given.status, without.status) == (200, 200)
    assert given.headers["X-Request-ID"] == MINE["X-Request-ID"]
    assert NEW.fullmatch(given.headers["X-Decision-ID"])
    assert without.headers["X-Request-ID"] == without.headers["X-Decision-ID"] != given.headers["X-Decision-ID"]
    await client.service.stop()
    records = {record["id"]: record for record in all_records(tmp_path)}
    assert records[given.headers["X-Decision-ID"]]["requestId"] == MINE["X-Request-ID"]
    assert "requestId" not in records[without.headers["X-Decision-ID"]]
    answered = {**given.json(), "decisionId": given.json().get("decisionId", given.headers["X-Decision-ID"])}
    assert answered["decisionId"] == given.headers["X-Decision-ID"]


@pytest.mark.parametrize("request_", REFUSED.values(), ids=REFUSED)
async def test_every_refusal_names_its_request(client: HttpClient, request_: tuple[str, str, Any]) -> None:
    given = await client.send(*request_, headers=MINE)
    assert given.status in (400, 404, 405)
    assert given.headers["X-Request-ID"] == MINE["X-Request-ID"]
    assert NEW.fullmatch((await client.send(*request_)).headers["X-Request-ID"])
    assert "X-Decision-ID" not in given.headers


@pytest.mark.parametrize(
    "sent",
    [[""], ["a b"], ["a" * 129], ["a\tb"], ['a"b'], ["a\\b"], ["{a}"], ["a;b"], ["a,b"], ["a", "b"], ["a", "a"], ["é"]],
)
@pytest.mark.parametrize("path", ["/v1/check", "/v1/check?", "/v1/grants"])
async def test_an_unfit_id_is_replaced(client: HttpClient, tmp_path: Path, path: str, sent: list[str]) -> None:
    method, body = ("GET", None) if path == "/v1/grants" else ("POST", {"checks": [CHECK]})
    answer = await client.send(method, path, body, [("X-Request-ID", value) for value in sent])
    assert answer.status == 200
    assert NEW.fullmatch(answer.headers["X-Request-ID"])
    await client.service.stop()
    assert not any("requestId" in record for record in all_records(tmp_path))


async def test_ids_on_one_connection_stay_apart(client: HttpClient, tmp_path: Path) -> None:
    sent = ["a", "b", "b", "", "c"]
    answers = [
        await client.send("POST", "/v1/check", {"checks": [CHECK]}, {"X-Request-ID": one} if one else {})
        for one in sent
    ]
    got = [answer.headers["X-Request-ID"] for answer in answers]
    assert [one if len(one) == 1 else "" for one in got] == sent
    await client.service.stop()
    records = {record["id"]: record for record in all_records(tmp_path)}
    assert [records[answer.headers["X-Decision-ID"]].get("requestId", "") for answer in answers] == sent


async def test_an_empty_answer_about_masks_has_an_id(client: HttpClient) -> None:
    answer = await client.send("POST", "/v1/data/trino/batchColumnMasks", trino_body("GetColumnMask", batch=True))
    assert (answer.status, answer.json()) == (200, {"result": []})
    assert NEW.fullmatch(answer.headers["X-Request-ID"])


async def test_grpc_names_the_request_and_the_decision(client: HttpClient, tmp_path: Path) -> None:
    async with grpc.aio.insecure_channel(client.service.addresses["grpc"]) as channel:
        check = wire.Check(
            principal=wire.Principal(id="user:oidc~alice"),
            action="read_data",
            resource=wire.Resource(reference="table:lake/t"),
        )
        response, given = await call(channel, "DecisionService/Check", wire.CheckRequest(checks=[check]), "mine")
        assert given == {"x-request-id": "mine", "x-decision-id": response.decision_id}
        response, new = await call(channel, "DecisionService/Check", wire.CheckRequest(checks=[check]))
        assert new == {}, "the message has the id of the decision"
        assert NEW.fullmatch(response.decision_id)
        _, written = await call(channel, "GrantsService/WriteGrants", wire.WriteGrantsRequest(), "other")
        assert written["x-request-id"] == "other"
        refused = await call_refused(channel, b"\xff", "third")
        assert refused == {"x-request-id": "third"}
        assert NEW.fullmatch((await call_refused(channel, b"\xff", "a b"))["x-request-id"])
    await client.service.stop()
    records = {record["id"]: record for record in all_records(tmp_path)}
    assert records[given["x-decision-id"]]["requestId"] == "mine"
    assert records[written["x-decision-id"]]["requestId"] == "other"


async def call(channel: grpc.aio.Channel, method: str, request: Any, request_id: str = "") -> tuple[Any, Any]:
    """Call a method; return the response and the trailing metadata."""
    response_type = getattr(wire, f"{method.partition('/')[2]}Response")
    send: Any = channel.unary_unary(f"/pdp.v1.{method}", lambda one: one.SerializeToString(), response_type.FromString)
    sent = send(request, metadata=(("x-request-id", request_id),) if request_id else ())
    return await sent, dict(await sent.trailing_metadata())


async def call_refused(channel: grpc.aio.Channel, body: bytes, request_id: str) -> dict[str, str]:
    """Send a body that is refused; return the trailing metadata."""
    send: Any = channel.unary_unary("/pdp.v1.DecisionService/Check", lambda one: one, lambda one: one)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await send(body, metadata=(("x-request-id", request_id),))
    return {str(key): str(value) for key, value in refused.value.trailing_metadata()}
