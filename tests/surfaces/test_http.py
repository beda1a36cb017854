"""Tests of the HTTP surface: malformed, too large and too slow requests, while other clients are served."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest
import pytest_asyncio
from support.clients.http_client import HttpClient, assert_discreet, client_of, fetch
from support.clients.http_wire import PATIENCE, Connections, connection, exchange, head, read_answer
from support.service.serving import Process, example_settings, serve_process

one_service = pytest.mark.asyncio(loop_scope="module")
"""Test of the shared service, which runs on one event loop."""
ALICE = {"principal": "user:oidc~Alice", "action": "read_data", "resource": "table:lake/Foo@prod"}
GOOD = json.dumps({"checks": [ALICE]}).encode()
MIB = 1 << 20


@asynccontextmanager
async def asking(folder: Path, *overrides: str) -> AsyncIterator[HttpClient]:
    async with client_of(example_settings(folder, *overrides)) as client:
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[HttpClient]:
    """Start one service, which must outlive what all tests send to it."""
    async with asking(tmp_path_factory.mktemp("shared")) as client:
        yield client


def error_of(body: dict[str, Any] | bytes) -> Any:
    parsed = json.loads(body) if isinstance(body, bytes) else body
    return parsed["error"]["code"]


# --- nonsense -----------------------------------------------------------------------------------------------------

NONSENSE = {
    "empty": (b"", ""),
    "no_json": (b"hello", ""),
    "cut": (b'{"checks":[', ""),
    "two_values": (GOOD + GOOD, ""),
    "byte_order_mark": (b"\xef\xbb\xbf" + GOOD, ""),
    "utf16": (GOOD.decode().encode("utf-16"), ""),
    "list": (b"[]", "object"),
    "null": (b"null", "object"),
    "no_checks": (b"{}", "checks"),
    "checks_is_text": (b'{"checks":"x"}', "$.checks"),
    "checks_is_null": (b'{"checks":null}', "$.checks"),
    "explain_is_text": (b'{"checks":[],"explain":"yes"}', "$.explain"),
    "consistency_is_number": (b'{"checks":[],"consistency":5}', "$.consistency"),
    "unknown_field": (b'{"checks":[],"chekcs":[]}', "chekcs"),
    "caller": (b'{"checks":[],"caller":{"idp":"oidc"}}', "caller"),
    "duplicate_at_the_top": (b'{"checks":[],"explain":false,"checks":[]}', "checks"),
    "duplicate_by_escape": (b'{"checks":[],"\\u0063hecks":[]}', "checks"),
    "duplicate_in_a_check": (
        b'{"checks":[{"principal":"user:oidc~Alice","action":"read_data","resource":"server","action":"x"}]}',
        "action",
    ),
    "duplicate_far_inside": (
        b'{"checks":[{"principal":{"id":"anonymous","attributes":{"a":[{"deep":1,"deep":2}]}},"action":"a","resource":"server"}]}',
        "deep",
    ),
    "duplicate_in_arguments": (
        b'{"checks":[{"principal":"anonymous","action":"a","resource":"server","context":{"arguments":{"name":"a","name":"b"}}}]}',
        "name",
    ),
    "brackets": (b"[" * 100_000, ""),
    "brackets_in_checks": (b'{"checks":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "deep"),
    "brackets_in_a_check": (
        b'{"checks":[{"principal":"anonymous","action":"a","resource":"server","context":{"arguments":{"a":'
        + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}}}]}",
        "deep",
    ),
    "nan": (b'{"checks":[NaN]}', ""),
    "nan_in_a_check": (GOOD.replace(b'"user:oidc~Alice"', b'{"id":"anonymous","attributes":{"a":NaN}}'), ""),
    "infinity": (b'{"checks":[-Infinity]}', ""),
    "invalid_utf8": (GOOD.replace(b"Alice", b"Al\xffice"), ""),
    "invalid_utf8_in_a_key": (b'{"checks":[],"\xc3\x28":1}', ""),
    "lone_surrogate": (GOOD.replace(b"Alice", b"Al\\ud800ice"), ""),
    "control_character": (GOOD.replace(b"Alice", b"Al\x01ice"), ""),
}  # fmt: skip


@pytest.mark.parametrize(("body", "named"), NONSENSE.values(), ids=NONSENSE)
@one_service
async def test_nonsense_is_400_and_names_the_field(client: HttpClient, body: bytes, named: str) -> None:
    status, reply = await client.post("/v1/check", body)
    assert (status, error_of(reply)) == (400, "invalid_argument")
    assert named in reply["error"]["message"]
    assert "\n" not in reply["error"]["message"]
    assert await client.check(ALICE)


@one_service
async def test_malformed_json_is_called_json(client: HttpClient) -> None:
    _, reply = await client.post("/v1/check", b"hello")
    assert "jSON" not in reply["error"]["message"]


@one_service
async def test_no_surrogate_gets_past_the_utf8_check(client: HttpClient) -> None:
    _, reply = await client.post("/v1/check", GOOD.replace(b"Alice", b"Alice\xed\xa0\x80"))
    assert not any(decision["allowed"] for decision in reply.get("decisions", []))


@pytest.mark.parametrize("path", ["/v1/data/trino/allow", "/v1/data/trino/batch", "/v1/data/trino/rowFilters"])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b'{"input":{}}',
        b'{"input":{"context":{"identity":{"user":"a","user":"b"}},"action":{"operation":"GetRowFilters"}}}',
        b'{"input":{"context":{"identity":{"user":"a"}},"action":{"operation":"GetRowFilters"},"x":' + b"[" * 100_000,
        b'{"input":{"context":{"identity":{"user":"\xff"}},"action":{"operation":"GetRowFilters"}}}',
        b'{"input":{"context":{"identity":{"user":NaN}},"action":{"operation":"GetRowFilters"}}}',
    ],
    ids=["empty", "object", "no_context", "duplicate", "brackets", "utf8", "nan"],
)
@one_service
async def test_nonsense_for_trino_is_400(client: HttpClient, path: str, body: bytes) -> None:
    status, reply = await client.post(path, body)
    assert (status, error_of(reply)) == (400, "invalid_argument")


# --- a bad check among good ones ----------------------------------------------------------------------------------


def with_resource(**parts: Any) -> dict[str, Any]:
    return {**ALICE, "resource": parts}


BAD_CHECKS: dict[str, tuple[Any, str]] = {
    "number": (5, "object"),
    "null": (None, "object"),
    "list": ([], "object"),
    "empty": ({}, "action"),
    "no_principal": ({"action": "read_data", "resource": "server"}, "principal"),
    "null_principal": ({**ALICE, "principal": None}, "$.principal"),
    "no_action": ({"principal": "anonymous", "resource": "server"}, "action"),
    "unknown_field": ({**ALICE, "acton": "x"}, "acton"),
    "snake_case": ({**ALICE, "acting_role": "role:etl"}, "acting_role"),
    "unknown_in_principal": ({**ALICE, "principal": {"id": "user:oidc~Alice", "admin": True}}, "admin"),
    "unknown_in_resource": (with_resource(type="server", owner="me"), "owner"),
    "unknown_in_context": ({**ALICE, "context": {"user": "root"}}, "user"),
    "unknown_in_api": ({**ALICE, "context": {"api": {"nmae": "x"}}}, "nmae"),
    "delegated_is_text": ({**ALICE, "delegated": "true"}, "$.delegated"),
    "delegated_is_number": ({**ALICE, "delegated": 1}, "$.delegated"),
    "roles_is_text": ({**ALICE, "principal": {"id": "user:oidc~Alice", "roles": "admin"}}, "$.principal.roles"),
    "principal_without_type": ({**ALICE, "principal": "Alice"}, "Alice"),
    "principal_without_idp": ({**ALICE, "principal": "user:Alice"}, "idp"),
    "principal_with_idp_in_capitals": ({**ALICE, "principal": "user:OIDC~Alice"}, "idp"),
    "principal_without_subject": ({**ALICE, "principal": "user:oidc~"}, "idp"),
    "principal_is_empty_role": ({**ALICE, "principal": "role:"}, "empty"),
    "principal_with_newline": ({**ALICE, "principal": "user:oidc~Alice\n"}, "control"),
    "acting_role_is_empty": ({**ALICE, "actingRole": ""}, "principal"),
    "acting_role_is_null": ({**ALICE, "actingRole": None}, "$.actingRole"),
    "acting_role_is_empty_id": ({**ALICE, "actingRole": "role:"}, "empty"),
    "acting_role_is_user": ({**ALICE, "actingRole": "user:oidc~Alice"}, "actingRole"),
    "unknown_type": ({**ALICE, "resource": "tabel:lake/Foo"}, "tabel"),
    "server_with_name": ({**ALICE, "resource": "server:x"}, "server"),
    "table_without_path": ({**ALICE, "resource": "table:lake"}, "parts"),
    "empty_part": ({**ALICE, "resource": "table:lake//Foo"}, "empty"),
    "empty_ref": ({**ALICE, "resource": "table:lake/Foo@"}, "empty"),
    "two_refs": ({**ALICE, "resource": "table:lake/Foo@prod@main"}, "@"),
    "ref_in_the_middle": ({**ALICE, "resource": "table:lake@prod/Foo"}, "/"),
    "ref_on_a_warehouse": ({**ALICE, "resource": "warehouse:lake@prod"}, "ref"),
    "bad_escape": ({**ALICE, "resource": "table:lake/Fo%zz"}, "escape"),
    "escaped_invalid_utf8": ({**ALICE, "resource": "table:lake/Fo%ff"}, "UTF-8"),
    "escaped_zero": ({**ALICE, "resource": "table:lake/Foo%00"}, "control"),
    "raw_escape_character": ({**ALICE, "resource": "table:lake/F\x1boo"}, "control"),
    "line_separator": ({**ALICE, "resource": "table:lake/F\u2028oo"}, "control"),
    "parts_with_empty_part": (with_resource(type="table", warehouse="lake", path=["Foo", ""]), "empty"),
    "parts_with_control": (with_resource(type="table", warehouse="lake", path=["F\x00oo"]), "control"),
    "parts_without_warehouse": (with_resource(type="table", path=["Foo"]), "empty"),
    "parts_without_path": (with_resource(type="table", warehouse="lake"), "path"),
    "parts_with_text_as_path": (with_resource(type="table", warehouse="lake", path="Foo"), "$.resource.path"),
    "reference_and_parts": (with_resource(reference="table:lake/Foo", ref="main"), "both"),
    "named_with_path": (with_resource(type="role", name="etl", path=["x"]), "name"),
    "number_beyond_floats": ({**ALICE, "context": {"api": {"version": 1.5}}}, "version"),
    "name_is_number": ({**ALICE, "context": {"arguments": {"name": 5}}}, "context.arguments.name"),
    "destination_is_number": ({**ALICE, "context": {"arguments": {"destination": 5}}}, "context.arguments.destination"),
}  # fmt: skip


@pytest.mark.parametrize(("bad", "named"), BAD_CHECKS.values(), ids=BAD_CHECKS)
@one_service
async def test_a_bad_check_fails_only_at_its_position(client: HttpClient, bad: Any, named: str) -> None:
    status, reply = await client.check(ALICE, bad, ALICE)
    assert status == 200
    assert [decision["allowed"] for decision in reply["decisions"]] == [True, False, True]
    rejected = reply["decisions"][1]
    assert rejected["by"] == ["invalid_check"]
    assert rejected["error"]["code"] == "invalid_argument"
    assert named in rejected["error"]["message"]
    assert all("error" not in reply["decisions"][at] for at in (0, 2))


@one_service
async def test_only_bad_checks_are_still_answered_in_order(client: HttpClient) -> None:
    _, reply = await client.check(*(bad for bad, _ in BAD_CHECKS.values()))
    assert [decision["by"] for decision in reply["decisions"]] == [["invalid_check"]] * len(BAD_CHECKS)


@pytest.mark.parametrize("number", ["1e400", "9" * 400, "1" + "0" * 5000])
@one_service
async def test_huge_numbers_reject_only_their_own_check(client: HttpClient, number: str) -> None:
    huge = json.dumps({**ALICE, "principal": {"id": "user:oidc~Alice", "attributes": {"n": "NUMBER"}}})
    status, reply = await client.post(
        "/v1/check", f'{{"checks":[{json.dumps(ALICE)},{huge}]}}'.replace('"NUMBER"', number)
    )
    assert status in (200, 400)
    if status == 200:
        assert reply["decisions"][0]["allowed"]


# --- wrong address, wrong verb, wrong wire ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/", "/v1/check/", "/v1/checks", "/V1/check", "//v1/check", "/v1/../v1/check/x", "/%ff"]
)
@one_service
async def test_an_unknown_path_is_404(client: HttpClient, path: str) -> None:
    response = await client.send("GET", path)
    assert (response.status, error_of(response.content)) == (404, "not_found")


@pytest.mark.parametrize("path", ["/v1/check", "/v1/data/trino/allow"])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"])
@one_service
async def test_a_wrong_method_is_405(client: HttpClient, path: str, method: str) -> None:
    response = await client.send(method, path)
    assert (response.status, error_of(response.content)) == (405, "method_not_allowed")


@one_service
async def test_a_405_names_the_methods_in_its_header(client: HttpClient) -> None:
    response = await client.send("GET", "/v1/check")
    assert response.headers.get("Allow") == "POST"


@pytest.mark.parametrize("path", ["/health/live", "/health/ready", "/metrics"])
@one_service
async def test_a_probe_by_head_has_the_answer_without_its_body(client: HttpClient, path: str) -> None:
    whole, head = [await client.send(method, path, listener="diagnostics") for method in ("GET", "HEAD")]
    assert (head.status, head.content, head.media_type) == (200, b"", whole.media_type)
    assert whole.content


@one_service
async def test_diagnostics_are_not_on_the_decision_port(client: HttpClient) -> None:
    for path in ("/health/live", "/health/ready", "/metrics"):
        assert (await client.send("GET", path)).status == 404


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        head(5).replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n") + b"0\r\n\r\n",
        head(5).replace(b": 5", b": -5"),
        head(5).replace(b"\r\n\r\n", b"\r\nContent-Length: 6\r\n\r\n"),
        head(5).replace(b": 5", b": " + b"9" * 40),
        head().replace(b"chunked", b"chunked, chunked") + b"0\r\n\r\n",
        head() + b"ZZZ\r\n",
        head(5).replace(b"localhost", b"a" * 100_000),
        b"POST /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        head(5).replace(b"\r\n\r\n", b"\r\n" + b"".join(b"X-%d: y\r\n" % at for at in range(100_000)) + b"\r\n"),
    ],
    ids=["tls", "http2", "version", "smuggling", "negative", "two_lengths", "huge_length", "two_codings", "chunk", "header", "line", "headers"],
)  # fmt: skip
@one_service
async def test_nonsense_on_the_wire_is_refused(client: HttpClient, sent: bytes) -> None:
    async with connection(client) as (reader, writer):
        received = b""
        try:
            writer.write(sent)
            async with asyncio.timeout(PATIENCE):
                received = await reader.read()
        except ConnectionError:
            pass
    assert not received or received.startswith((b"HTTP/1.0 400 ", b"HTTP/1.1 400 ")), received[:200]
    assert received.count(b"HTTP/1.") <= 1
    assert_discreet(received.decode().partition("\r\n\r\n")[2])
    assert (await client.check(ALICE))[0] == 200


# --- too much -----------------------------------------------------------------------------------------------------


async def test_an_announced_body_above_the_limit_is_413(tmp_path: Path) -> None:
    async with asking(tmp_path, "limits.max_body_bytes=1024") as client:
        status, body = await exchange(client, head(1025))
        assert (status, error_of(body)) == (413, "payload_too_large")
        status, body = await exchange(client, head(1024) + GOOD + b" " * (1024 - len(GOOD)))
        assert status == 200


@pytest.mark.parametrize("length", [9 * MIB, 10**9, 10**13])
@one_service
async def test_however_large_the_announced_body_it_is_413(client: HttpClient, length: int) -> None:
    status, body = await exchange(client, head(length))
    assert (status, error_of(body)) == (413, "payload_too_large")


async def test_a_chunked_body_above_the_limit_is_413(tmp_path: Path) -> None:
    async with asking(tmp_path, "limits.max_body_bytes=1024") as client:
        chunk = b"100\r\n" + b" " * 256 + b"\r\n"
        async with connection(client, head() + chunk * 4) as (reader, writer):
            writer.write(b"1\r\n \r\n")
            status, body = await read_answer(reader)
        assert (status, error_of(body)) == (413, "payload_too_large")


async def test_trino_has_its_own_body_limit(tmp_path: Path) -> None:
    async with asking(tmp_path, "limits.trino_max_body_bytes=2048", "limits.max_body_bytes=1024") as client:
        for path, limit in (("/v1/check", 1024), ("/v1/data/trino/allow", 2048)):
            assert (await exchange(client, head(limit + 1, path)))[0] == 413
            assert (await exchange(client, head(limit, path) + b" " * limit))[0] == 400


async def test_a_body_within_its_limit_is_never_refused_for_its_bytes(tmp_path: Path) -> None:
    async with asking(tmp_path, "limits.trino_max_body_bytes=1024") as client:
        status, reply = await client.post("/v1/check", GOOD + b" " * 100_000)
        assert status == 200, reply


@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "deflate", "br", "zstd", "gzip, identity", "identity, gzip", "x"])
@one_service
async def test_an_encoded_body_is_415(client: HttpClient, encoding: str) -> None:
    status, reply = await client.post("/v1/check", GOOD, {"Content-Encoding": encoding})
    assert (status, error_of(reply)) == (415, "unsupported_media_type")


@one_service
async def test_the_identity_encoding_is_no_encoding(client: HttpClient) -> None:
    assert (await client.post("/v1/check", GOOD, {"Content-Encoding": "identity"}))[0] == 200


@one_service
async def test_a_second_encoding_header_does_not_hide_the_first(client: HttpClient) -> None:
    headers = b"\r\nContent-Encoding: identity\r\nContent-Encoding: gzip\r\n\r\n"
    status, _ = await exchange(client, head(len(GOOD)).replace(b"\r\n\r\n", headers) + GOOD)
    assert status == 415


async def test_one_check_too_many_is_too_many_checks(tmp_path: Path) -> None:
    async with asking(tmp_path, "limits.max_checks=3") as client:
        assert (await client.check(ALICE, ALICE, ALICE))[0] == 200
        status, reply = await client.check(ALICE, ALICE, ALICE, ALICE)
        assert (status, error_of(reply)) == (400, "too_many_checks")
        status, reply = await client.check(1, 2, 3, 4)
        assert (status, error_of(reply)) == (400, "too_many_checks")


def trino_batch(tables: int) -> bytes:
    names = [
        {"table": {"catalogName": "lakehouse", "schemaName": ("sales", "hr")[at % 2], "tableName": f"t{at}"}}
        for at in range(tables)
    ]
    action = {"operation": "FilterTables", "filterResources": names}
    return json.dumps({"input": {"context": {"identity": {"user": "Alice"}}, "action": action}}).encode()


async def test_a_trino_batch_has_at_most_a_hundred_thousand_tables(tmp_path: Path) -> None:
    async with asking(tmp_path) as client:
        status, reply = await client.post("/v1/data/trino/batch", trino_batch(100_000))
        assert status == 200
        assert reply["result"] == list(range(0, 100_000, 2))
        status, reply = await client.post("/v1/data/trino/batch", trino_batch(100_001))
        assert (status, error_of(reply)) == (400, "too_many_checks")


WAITING = json.dumps({"checks": [ALICE], "consistency": "full"}).encode()
"""Request that is answered when the test opens the gate of the store."""


def gate_of(client: HttpClient, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Let requests for the newest facts wait for an event."""
    gate = asyncio.Event()

    async def catch_up(*_: Any) -> None:
        await gate.wait()

    monkeypatch.setattr(client.service.pdp.source, "catch_up", catch_up)
    return gate


async def test_requests_beyond_those_in_flight_are_429_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with asking(tmp_path, "limits.max_in_flight=3") as client:
        gate, waiting = gate_of(client, monkeypatch), head(len(WAITING)) + WAITING
        async with (
            connection(client, waiting),
            connection(client, waiting),
            connection(client, waiting) as (reader, _),
        ):
            await until(lambda: refused(client))
            assert (await client.post("/v1/data/trino/batch", trino_batch(1)))[0] == 429
            gate.set()
            assert (await read_answer(reader))[0] == 200
            assert (await client.check(ALICE))[0] == 200
        await until(lambda: accepted(client))


SMALL_BODIES = ("limits.trino_max_body_bytes=65536", "limits.max_body_bytes=65536")


async def test_bytes_beyond_those_in_flight_are_429(tmp_path: Path) -> None:
    async with asking(tmp_path, *SMALL_BODIES) as client:
        async with Connections(client) as held:
            for _ in range(8):
                await held.open(head(65_536) + b" " * 65_535)
            await until(lambda: refused(client))
        await until(lambda: accepted(client))


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /v1/grants\r\n\r\n",
        b"GET /v1/grants HTTP/1.0\r\n\r\n",
        b"GET /v1/grants HTTP/1.1\r\n\r\n",
        b"GET /v1/grants HTTP/1.1\r\nHost:\r\n\r\n",
        b"POST /v1/check HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
        % (len(GOOD), GOOD),
    ],
    ids=["0.9", "1.0", "1.1", "empty", "post"],
)
@one_service
async def test_a_local_caller_names_this_machine(client: HttpClient, sent: bytes) -> None:
    """A request without Host is not known to come from a local program."""
    status, body = await exchange(client, sent)
    assert (status, error_of(body)) in {(403, "forbidden"), (400, "invalid_argument")}


async def test_unannounced_bytes_count(tmp_path: Path) -> None:
    async with asking(tmp_path, *SMALL_BODIES) as client:
        async with Connections(client) as held:
            for _ in range(8):
                await held.open(head() + b"fff0\r\n" + b" " * 0xFFF0)
            await until(lambda: refused(client))
        await until(lambda: accepted(client))


async def refused(client: HttpClient) -> bool:
    status, reply = await client.post("/v1/check", GOOD + b" " * 1000)
    return status == 429 and error_of(reply) == "overloaded"


async def accepted(client: HttpClient) -> bool:
    return (await client.check(ALICE))[0] == 200


async def until(happens: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not await happens():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def test_a_client_that_disconnects_frees_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with asking(tmp_path, "limits.max_in_flight=1") as client:
        gate_of(client, monkeypatch)
        async with connection(client, head(len(WAITING)) + WAITING):
            await until(lambda: refused(client))
        await until(lambda: accepted(client))


# --- too slow -----------------------------------------------------------------------------------------------------


async def drip(writer: asyncio.StreamWriter, drop: bytes) -> None:
    while not writer.is_closing():
        writer.write(drop)
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("start", [b"", b"POST /v1/ch", head(5)[:-2]], ids=["nothing", "line", "header"])
async def test_slow_heads_are_cut_off_while_others_are_served(tmp_path: Path, start: bytes) -> None:
    async with asking(tmp_path, "limits.idle_timeout_seconds=0.5") as client, Connections(client) as held:
        for _ in range(50):
            await held.open(start)
        drops = [
            asyncio.create_task(drip(writer, b"X-A: b\r\n" if start.endswith(b"\r\n") else b""))
            for _, writer in held.all
        ]
        for _ in range(20):
            assert (await client.check(ALICE))[0] == 200
        async with asyncio.timeout(PATIENCE):
            for reader, _ in held.all:
                assert await ended(reader)
        for task in drops:
            task.cancel()


async def ended(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("chunked", [False, True])
async def test_slow_bodies_are_cut_off_while_others_are_served(tmp_path: Path, chunked: bool) -> None:
    async with asking(tmp_path, "limits.request_timeout_seconds=0.5") as client, Connections(client) as held:
        for _ in range(50):
            await held.open(head(None if chunked else 1000))
        drops = [asyncio.create_task(drip(writer, b"1\r\n \r\n" if chunked else b" ")) for _, writer in held.all]
        for _ in range(20):
            assert (await client.check(ALICE))[0] == 200
        for reader, _ in held.all:
            status, body = await read_answer(reader)
            assert (status, error_of(body)) == (503, "unavailable")
        for task in drops:
            task.cancel()


async def test_slow_bodies_free_their_bytes_after_the_deadline(tmp_path: Path) -> None:
    limits = ("limits.request_timeout_seconds=0.5", *SMALL_BODIES)
    async with asking(tmp_path, *limits) as client, Connections(client) as held:
        for _ in range(8):
            await held.open(head(65_536) + b" " * 65_535)
        await until(lambda: refused(client))
        await until(lambda: accepted(client))


async def test_an_idle_connection_is_closed(tmp_path: Path) -> None:
    async with (
        asking(tmp_path, "limits.idle_timeout_seconds=0.3") as client,
        connection(client, head(len(GOOD)) + GOOD) as (reader, _),
    ):
        assert (await read_answer(reader))[0] == 200
        async with asyncio.timeout(PATIENCE):
            assert await ended(reader)


@one_service
async def test_a_connection_is_kept_for_the_next_request(client: HttpClient) -> None:
    async with connection(client) as (reader, writer):
        for body, status in ((GOOD, 200), (b"{", 400), (GOOD, 200)):
            writer.write(head(len(body)) + body)
            assert (await read_answer(reader))[0] == status


@one_service
async def test_pipelined_requests_are_answered_in_order(client: HttpClient) -> None:
    bodies = [GOOD, b"{", GOOD.replace(b"Alice", b"Bob"), b"", GOOD]
    async with connection(client, b"".join(head(len(body)) + body for body in bodies)) as (reader, _):
        answers = [await read_answer(reader) for _ in bodies]
    assert [status for status, _ in answers] == [200, 400, 200, 400, 200]
    allowed = [json.loads(body)["decisions"][0]["allowed"] for status, body in answers if status == 200]
    assert allowed == [True, False, True]


# --- consistency --------------------------------------------------------------------------------------------------


async def revision_of(client: HttpClient) -> list[str]:
    _, reply = await client.check(ALICE)
    parts: list[str] = reply["revision"].split(".", 2)
    return parts


@one_service
async def test_the_current_revision_is_served_in_every_form(client: HttpClient) -> None:
    epoch, sequence, digest = await revision_of(client)
    wanted = ("minimize_latency", "full", f"{epoch}.{sequence}.{digest}", f"{epoch}.{sequence}.another-bundle")
    for one in wanted:
        consistency = one if "." not in one else {"atLeast": one}
        status, reply = await client.check(ALICE, consistency=consistency)
        assert (status, reply["revision"]) == (200, f"{epoch}.{sequence}.{digest}")


@one_service
async def test_another_epoch_or_a_later_sequence_is_503(client: HttpClient) -> None:
    epoch, sequence, digest = await revision_of(client)
    for wanted in (f"other.{sequence}.{digest}", f"{epoch}x.0.{digest}", f"{epoch}.{int(sequence) + 1}.{digest}"):
        status, reply = await client.check(ALICE, consistency={"atLeast": wanted})
        assert (status, error_of(reply)) == (503, "unavailable")
        assert "decisions" not in reply


@pytest.mark.parametrize(
    "consistency",
    [
        "",
        "latest",
        "FULL",
        "atLeast",
        None,
        5,
        True,
        [],
        {},
        {"atLeast": 5},
        {"atLeast": None},
        {"at_least": "a.0.b"},
        {"atleast": "a.0.b"},
    ],
    ids=str,
)
@one_service
async def test_garbage_for_consistency_is_400(client: HttpClient, consistency: Any) -> None:
    status, reply = await client.check(ALICE, consistency=consistency)
    assert (status, error_of(reply)) == (400, "invalid_argument")
    assert "onsistency" in reply["error"]["message"]


@pytest.mark.parametrize("sequence", ["", "x", "-1", "+1", " 1", "1_0", "0x1", "\u00b2", "\u0661"])
@one_service
async def test_garbage_for_a_revision_is_400(client: HttpClient, sequence: str) -> None:
    epoch, _, digest = await revision_of(client)
    status, reply = await client.check(ALICE, consistency={"atLeast": f"{epoch}.{sequence}.{digest}"})
    assert (status, error_of(reply)) == (400, "invalid_argument")


@pytest.mark.parametrize("revision", ["", ".", "..", "abc", "abc."])
@one_service
async def test_a_revision_without_a_sequence_is_400(client: HttpClient, revision: str) -> None:
    status, reply = await client.check(ALICE, consistency={"atLeast": revision})
    assert (status, error_of(reply)) == (400, "invalid_argument")


@one_service
async def test_a_huge_sequence_is_refused(client: HttpClient) -> None:
    epoch, _, digest = await revision_of(client)
    status, reply = await client.check(ALICE, consistency={"atLeast": f"{epoch}.{'1' * 5000}.{digest}"})
    assert (status, error_of(reply)) in ((400, "invalid_argument"), (503, "unavailable"))


# --- what stays outside: memory and liveness, watched on a process of its own -------------------------------------


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with serve_process(tmp_path_factory.mktemp("http"), "--set", "audit.sinks=[]") as process:
        post(process, GOOD)
        yield process


def post(process: Process, body: bytes, path: str = "/v1/check", headers: Mapping[str, str] | None = None) -> int:
    """Post a body; return the status."""
    return fetch(process.url(path), body, headers=headers, timeout=60).status


@contextmanager
def growth(process: Process) -> Iterator[list[int]]:
    """Yield the growth of the process in bytes: peak growth, then lasting growth, set at the end."""
    watched = psutil.Process(process.process.pid)
    before = watched.memory_info().rss
    grown, done = [0, 0], threading.Event()

    def watch() -> None:
        while not done.wait(0.005):
            grown[0] = max(grown[0], watched.memory_info().rss - before)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield grown
    finally:
        done.set()
        thread.join()
        grown[1] = watched.memory_info().rss - before


@pytest.mark.parametrize(("encoding", "bits"), [("gzip", 31), ("deflate", 15)])
def test_a_zip_bomb_is_not_inflated(process: Process, encoding: str, bits: int) -> None:
    squeeze = zlib.compressobj(9, zlib.DEFLATED, bits)
    bomb = b"".join(squeeze.compress(bytes(MIB)) for _ in range(300)) + squeeze.flush()
    with growth(process) as grown:
        status = post(process, bomb, headers={"Content-Encoding": encoding})
    assert status == 415
    assert grown[0] < 30 * MIB


def test_a_zip_bomb_without_its_header_is_malformed(process: Process) -> None:
    squeeze = zlib.compressobj(9, zlib.DEFLATED, 31)
    assert post(process, squeeze.compress(bytes(MIB)) + squeeze.flush()) == 400


def long_names(at: int) -> dict[str, tuple[str, bytes]]:
    name = f"{at:04}" + "x" * (2 * MIB)
    check = {**ALICE, "resource": f"table:lake/{name}@prod"}
    table = {"catalogName": "lakehouse", "schemaName": name, "tableName": "t"}
    action = {"operation": "SelectFromColumns", "resource": {"table": table}}
    return {
        "resource": ("/v1/check", json.dumps({"checks": [check]}).encode()),
        "principal": ("/v1/check", json.dumps({"checks": [{**ALICE, "principal": f"user:oidc~{name}"}]}).encode()),
        "action": ("/v1/check", json.dumps({"checks": [{**ALICE, "action": name}]}).encode()),
        "ref": ("/v1/check", json.dumps({"checks": [{**ALICE, "resource": f"table:lake/Foo@{name}"}]}).encode()),
        "trino_schema": (
            "/v1/data/trino/allow",
            json.dumps({"input": {"context": {"identity": {"user": "Alice"}}, "action": action}}).encode(),
        ),
        "trino_operation": (
            "/v1/data/trino/allow",
            json.dumps({"input": {"context": {"identity": {"user": "Alice"}}, "action": {"operation": name}}}).encode(),
        ),
    }


@pytest.mark.parametrize("part", ["resource", "principal", "action", "ref", "trino_schema", "trino_operation"])
def test_ever_new_names_do_not_grow_the_memory(process: Process, part: str) -> None:
    path, warm = long_names(0)[part]
    post(process, warm, path)
    with growth(process) as grown:
        for at in range(1, 25):
            path, body = long_names(at)[part]
            assert post(process, body, path) == (400 if part == "trino_operation" else 200)
    assert grown[1] < 24 * MIB


def test_metrics_have_no_labels_from_requests(process: Process) -> None:
    def lines() -> set[str]:
        page = fetch(process.url("/metrics", "diagnostics"), timeout=60).text
        return {line.rpartition(" ")[0] for line in page.splitlines()}

    checks = [
        {"principal": f"user:oidc~evil{at}", "action": f"evil{at}", "resource": f"table:evil{at}/x"}
        for at in range(1000)
    ]
    body = json.dumps({"checks": checks}).encode()
    operation = {"input": {"context": {"identity": {"user": "evil"}}, "action": {"operation": "Evil"}}}
    for _ in range(2):
        post(process, body)
        post(process, json.dumps(operation).encode(), "/v1/data/trino/allow")
        before = lines()
        body, operation["input"]["action"] = body.replace(b"evil", b"worse"), {"operation": "Worse"}
    assert lines() == before
    assert not [line for line in before if "evil" in line.lower()]


BATCHES = {
    "one_principal": {"checks": [{**ALICE, "resource": f"table:lake/t{at}@prod"} for at in range(10_000)]},
    "many_principals": {"checks": [{**ALICE, "principal": f"user:oidc~u{at}"} for at in range(10_000)]},
    "explained": {"checks": [{**ALICE, "principal": f"user:oidc~u{at}"} for at in range(500)], "explain": True},
}


@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
def test_liveness_answers_while_ten_thousand_checks_are_decided(process: Process, batch: Any) -> None:
    body = json.dumps(batch).encode()
    with ThreadPoolExecutor(1) as pool:
        decided = pool.submit(post, process, body)
        alive = 0
        while not decided.done():
            # two seconds is what `pdp healthcheck` waits, and twice what an orchestrator waits by default
            alive += fetch(process.url("/health/live", "diagnostics"), timeout=2).status == 200
            time.sleep(0.01)
    assert decided.result() == 200
    assert alive


@pytest.mark.parametrize("header", ["Origin", "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"])
@one_service
async def test_requests_of_browsers_and_proxies_are_403(client: HttpClient, header: str) -> None:
    status, reply = await client.post("/v1/check", GOOD, {header: "http://evil.example"})
    assert (status, error_of(reply)) == (403, "forbidden")


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8181", "127.0.0.1.evil.example", "10.0.0.1", "", "[", "localhost.evil.example"],
)
@one_service
async def test_a_rebound_host_name_is_403(client: HttpClient, host: str) -> None:
    status, reply = await client.post("/v1/check", GOOD, {"Host": host})
    assert (status, error_of(reply)) == (403, "forbidden")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8181", "127.0.0.1", "127.0.0.1:9", "[::1]:8181"])
@one_service
async def test_host_names_of_loopback_are_accepted(client: HttpClient, host: str) -> None:
    assert (await client.post("/v1/check", GOOD, {"Host": host}))[0] == 200


# --- lists of resources --------------------------------------------------------------------------------------------

LISTING: list[dict[str, Any]] = [
    {"principal": "user:oidc~Alice", "action": "read_data", "resources": ["table:lake/Foo@prod", "table:lake/Bar@prod", "?"]},
    ALICE,
]  # fmt: skip


@one_service
async def test_a_list_of_resources_gets_a_decision_for_each(client: HttpClient) -> None:
    _, listed = await client.post("/v1/check", json.dumps({"checks": LISTING}).encode())
    alone = [{**LISTING[0], "resource": resource} for resource in LISTING[0]["resources"]] + [ALICE]
    for check in alone:
        check.pop("resources", None)
    _, single = await client.post("/v1/check", json.dumps({"checks": alone}).encode())
    assert listed["decisions"] == single["decisions"]
    assert [decision["allowed"] for decision in listed["decisions"]] == [True, False, False, True]


@one_service
async def test_indices_name_the_permitted_positions_and_show_rejections(client: HttpClient) -> None:
    _, reply = await client.post("/v1/check", json.dumps({"checks": LISTING, "answer": "indices"}).encode())
    assert (reply["allowed"], reply["size"]) == ([0, 3], 4)
    assert [(entry["at"], entry["error"]["code"]) for entry in reply["rejected"]] == [([2], "invalid_argument")]
    assert reply["decisionId"]
    assert reply["revision"].count(".") == 3
