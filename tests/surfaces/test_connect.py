"""Tests of the Connect protocol: heads, bodies, deadlines and errors, by raw HTTP and by a client of others."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from connectrpc.client import ConnectClient
from connectrpc.code import Code
from connectrpc.compat import google_protobuf_binary_codec, google_protobuf_json_codec
from connectrpc.errors import ConnectError
from connectrpc.method import IdempotencyLevel, MethodInfo, StreamType
from support.clients.http_client import HttpClient, Response, client_of
from support.service.serving import example_settings

from pdp.surfaces.wire import decision_pb2 as wire

CHECK = "/pdp.v1.DecisionService/Check"
ALICE = {
    "principal": {"id": "user:oidc~Alice"},
    "action": "read_data",
    "resource": {"reference": "table:lake/Foo@prod"},
}
GOOD = {"checks": [ALICE]}
PROTO = {"Content-Type": "application/proto"}
REQUEST = wire.CheckRequest(
    checks=[
        wire.Check(
            principal=wire.Principal(id="user:oidc~Alice"),
            action="read_data",
            resources=[wire.Resource(reference="table:lake/Foo@prod"), wire.Resource(reference="table:lake/Bar@prod")],
        )
    ]
)


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[HttpClient]:
    async with client_of(example_settings(tmp_path)) as client:
        yield client


async def never() -> None:
    await asyncio.sleep(60)


def code_of(response: Response) -> tuple[int, str]:
    assert response.media_type == "application/json"
    return response.status, response.json()["code"]


# --- answers ---------------------------------------------------------------------------------------------------------


async def test_json_is_answered_in_json(client: HttpClient) -> None:
    response = await client.send("POST", CHECK, GOOD, {"Connect-Protocol-Version": "1"})
    assert (response.status, response.media_type) == (200, "application/json")
    decision = {"allowed": True, "by": ["cel:reading_foo_on_prod"], "errors": [], "cached": False}
    assert response.json()["decisions"] == [decision]
    assert response.json()["decisionId"]


async def test_protobuf_is_answered_in_protobuf(client: HttpClient) -> None:
    response = await client.send("POST", CHECK, REQUEST.SerializeToString(), PROTO)
    assert (response.status, response.media_type) == (200, "application/proto")
    assert [decision.allowed for decision in wire.CheckResponse.FromString(response.content).decisions] == [True, False]


@pytest.mark.parametrize("charset", ["application/json; charset=utf-8", "Application/JSON"])
async def test_parameters_of_the_content_type_are_accepted(client: HttpClient, charset: str) -> None:
    assert (await client.send("POST", CHECK, GOOD, {"Content-Type": charset})).status == 200


async def test_an_empty_protobuf_body_is_an_empty_message(client: HttpClient) -> None:
    response = await client.send("POST", "/pdp.v1.GrantsService/ListGrants", b"", PROTO)
    assert (response.status, bool(wire.ListGrantsResponse.FromString(response.content).grants)) == (200, True)
    assert code_of(await client.send("POST", CHECK, b"", PROTO)) == (400, "invalid_argument")


async def test_every_method_of_the_services_is_a_route(client: HttpClient) -> None:
    listing = {"principal": {"id": "user:oidc~Alice"}, "action": "read_data", "type": "table", "container": "server"}
    assert (await client.send("POST", "/pdp.v1.DecisionService/List", listing)).status == 200
    assert (await client.send("POST", "/pdp.v1.GrantsService/ListGrants", {})).status == 200
    load = {
        "target": {"reference": "table:lake/Foo@prod"},
        "action": "loadTable",
        "principal": {"id": "user:oidc~Alice"},
    }
    answer = await client.send("POST", "/pdp.v1.DecisionService/CheckLoad", load)
    assert "storageAccess" in answer.json()


# --- refusals --------------------------------------------------------------------------------------------------------

NONSENSE = {
    "empty": b"", "no_json": b"hello", "list": b"[]", "null": b"null", "unknown_field": b'{"chekcs":[]}',
    "unknown_in_a_check": b'{"checks":[{"delegatd":true}]}', "wrong_type": b'{"explain":"yes"}',
    "duplicate": b'{"checks":[],"checks":[]}', "duplicate_inside": b'{"checks":[{"principal":{"id":"a","id":"b"}}]}',
    "brackets": b'{"checks":' + b"[" * 100_000, "deep": b'{"checks":[{"context":{"arguments":' + b'{"a":' * 5000 + b"1" + b"}" * 5003,
    "invalid_utf8": b'{"answer":"\xff"}', "lone_surrogate": b'{"answer":"\\ud800"}', "byte_order_mark": b"\xef\xbb\xbf{}",
    "number": b'{"checks":[{"context":{"api":{"version":99999999999}}}]}', "digits": b'{"explain":' + b"9" * 5000 + b"}",
    "resource_as_text": b'{"checks":[{"resource":"table:lake/Foo"}]}', "no_checks": b"{}", "null_checks": b'{"checks":null}',
    "no_check": b'{"checks":[]}', "null_role": b'{"checks":[{"actingRole":null}]}', "null_name": b'{"checks":[{"acting_role":null}]}',
    "null_id": b'{"checks":[{"principal":{"id":null}}]}', "null_key": b'{"checks":[{"principal":null,"action":"null"}]}',
}  # fmt: skip


@pytest.mark.parametrize("body", NONSENSE.values(), ids=NONSENSE)
async def test_nonsense_is_an_invalid_argument(client: HttpClient, body: bytes) -> None:
    response = await client.send("POST", CHECK, body)
    assert code_of(response) == (400, "invalid_argument")
    assert response.json()["message"].startswith("invalid_argument: ")
    assert "\n" not in response.json()["message"]


async def test_bytes_that_are_no_message_are_an_invalid_argument(client: HttpClient) -> None:
    assert code_of(await client.send("POST", CHECK, b"\xff\xff", PROTO)) == (400, "invalid_argument")


async def test_a_bad_check_fails_only_at_its_position(client: HttpClient) -> None:
    bad = {**ALICE, "resource": {"reference": "?"}}
    decisions = (await client.send("POST", CHECK, {"checks": [ALICE, bad, ALICE]})).json()["decisions"]
    assert [decision["allowed"] for decision in decisions] == [True, False, True]
    assert decisions[1]["error"]["code"] == "invalid_argument"


@pytest.mark.parametrize("type", ["text/plain", "application/grpc", "application/connect+json", "application/grpc-web"])
async def test_other_content_types_are_415_without_a_body(client: HttpClient, type: str) -> None:
    response = await client.send("POST", CHECK, b"{}", {"Content-Type": type})
    assert (response.status, response.content) == (415, b"")
    assert response.headers["Accept-Post"] == "application/json, application/proto"


async def test_compressed_bodies_are_unimplemented(client: HttpClient) -> None:
    headers = {"Content-Encoding": "gzip"}
    response = await client.send("POST", CHECK, zlib.compress(json.dumps(GOOD).encode(), wbits=31), headers)
    assert code_of(response) == (501, "unimplemented")
    assert "identity" in response.json()["message"]
    assert (await client.send("POST", CHECK, GOOD, {"Content-Encoding": "identity"})).status == 200


async def test_another_version_of_the_protocol_is_refused(client: HttpClient) -> None:
    response = await client.send("POST", CHECK, GOOD, {"Connect-Protocol-Version": "2"})
    assert code_of(response) == (400, "invalid_argument")


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "5s", "12345678901", "\u0661"])
async def test_a_timeout_that_is_no_number_is_refused(client: HttpClient, text: str) -> None:
    response = await client.send("POST", CHECK, GOOD, {"Connect-Timeout-Ms": text})
    assert code_of(response) == (400, "invalid_argument")


async def test_a_timeout_is_a_deadline(client: HttpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client.service.pdp.source, "catch_up", never)
    waiting = {**GOOD, "consistency": {"full": True}}
    response = await client.send("POST", CHECK, waiting, {"Connect-Timeout-Ms": "50"})
    assert code_of(response) == (504, "deadline_exceeded")
    assert (await client.send("POST", CHECK, GOOD, {"Connect-Timeout-Ms": "9999999999"})).status == 200


async def test_the_timeout_of_the_service_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with client_of(example_settings(tmp_path, "limits.request_timeout_seconds=0.1")) as client:
        monkeypatch.setattr(client.service.pdp.source, "catch_up", never)
        waiting = {**GOOD, "consistency": {"full": True}}
        response = await client.send("POST", CHECK, waiting, {"Connect-Timeout-Ms": "60000"})
        assert code_of(response) == (503, "unavailable")


async def test_limits_are_those_of_http(tmp_path: Path) -> None:
    overrides = ("limits.max_checks=3", "limits.max_body_bytes=100000")
    async with client_of(example_settings(tmp_path, *overrides)) as client:
        assert code_of(await client.send("POST", CHECK, {"checks": [ALICE] * 4})) == (400, "invalid_argument")
        objects = b'{"checks":[' + b"{}," * 5000 + b"{}]}"
        response = await client.send("POST", CHECK, objects)
        assert response.json()["message"].startswith("too_many_checks: ")
        large = {"checks": [{**ALICE, "action": "x" * 100_000}]}
        assert code_of(await client.send("POST", CHECK, large)) == (429, "resource_exhausted")
        chunked = json.dumps(large).encode()
        assert code_of(await client.send("POST", CHECK, chunked, chunked=True)) == (429, "resource_exhausted")


async def test_browsers_and_proxies_are_refused(client: HttpClient) -> None:
    for header in ("Origin", "Forwarded", "X-Forwarded-For"):
        response = await client.send("POST", CHECK, GOOD, {header: "http://evil.example"})
        assert code_of(response) == (403, "permission_denied")
    response = await client.send("POST", CHECK, REQUEST.SerializeToString(), {**PROTO, "Host": "evil.example"})
    assert code_of(response) == (403, "permission_denied")


async def test_an_unverified_token_is_unauthenticated(client: HttpClient) -> None:
    response = await client.send("POST", CHECK, GOOD, {"Authorization": "Bearer nonsense"})
    assert code_of(response) == (401, "unauthenticated")
    assert response.headers["WWW-Authenticate"] == "Bearer"


async def test_unknown_methods_are_404_and_get_is_405(client: HttpClient) -> None:
    assert (await client.send("POST", "/pdp.v1.DecisionService/Chekc", GOOD)).status == 404
    assert (await client.send("GET", CHECK)).status == 405


# --- a client of others ------------------------------------------------------------------------------------------------

METHOD = MethodInfo(
    name="Check",
    service_name="pdp.v1.DecisionService",
    input=wire.CheckRequest,
    output=wire.CheckResponse,
    idempotency_level=IdempotencyLevel.UNKNOWN,
    stream_type=StreamType.UNARY,
)
CODECS = {"proto": google_protobuf_binary_codec, "json": google_protobuf_json_codec}


async def ask(client: HttpClient, codec: str, request: wire.CheckRequest, **options: Any) -> wire.CheckResponse:
    compression = options.pop("send_compression", None)
    rpc = ConnectClient(client.url(""), codec=CODECS[codec](), send_compression=compression)
    async with rpc:
        response: wire.CheckResponse = await rpc.execute_unary(request=request, method=METHOD, **options)
    return response


@pytest.mark.parametrize("codec", CODECS)
async def test_a_connect_client_understands_answers(client: HttpClient, codec: str) -> None:
    response = await ask(client, codec, REQUEST, timeout_ms=5000)
    assert [decision.allowed for decision in response.decisions] == [True, False]
    indices = wire.CheckRequest(checks=REQUEST.checks, answer="indices")
    assert list((await ask(client, codec, indices)).allowed) == [0]


@pytest.mark.parametrize("codec", CODECS)
async def test_a_connect_client_understands_refusals(client: HttpClient, codec: str) -> None:
    with pytest.raises(ConnectError) as caught:
        await ask(client, codec, wire.CheckRequest(answer="rows"))
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert caught.value.message.startswith("invalid_argument: ")
    with pytest.raises(ConnectError) as caught:
        await ask(client, codec, REQUEST, headers={"Authorization": "Bearer nonsense"})
    assert caught.value.code is Code.UNAUTHENTICATED
