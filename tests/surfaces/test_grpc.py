"""Tests of the gRPC surface: hostile input, health and reflection."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import psutil  # type: ignore[import-untyped]
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from support.clients.stubs import wire_grpc
from support.service.serving import example_settings, serve_process, serving

from pdp.app.service import Service
from pdp.errors import ConfigError
from pdp.surfaces.wire import decision_pb2 as wire

MIB = 1 << 20
NAME = "pdp.v1.DecisionService"


def check(**fields: Any) -> wire.Check:
    """Return an allowed check (Alice reads Foo on prod), with some fields replaced."""
    usual = {
        "principal": wire.Principal(id="user:oidc~Alice"),
        "action": "read_data",
        "resource": wire.Resource(reference="table:lake/Foo@prod"),
    }
    return wire.Check(**{**usual, **fields})


def request(*checks: wire.Check, **fields: Any) -> wire.CheckRequest:
    return wire.CheckRequest(checks=checks, **fields)


class Client:
    """gRPC channel with stubs of the services."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self._stub = wire_grpc.DecisionServiceStub(channel)
        self.health = health_pb2_grpc.HealthStub(channel)

    async def ask(self, asked: wire.CheckRequest, **call: Any) -> wire.CheckResponse:
        response: wire.CheckResponse = await self._stub.Check(asked, timeout=20, **call)
        return response

    async def refused(self, asked: wire.CheckRequest, **call: Any) -> tuple[grpc.StatusCode, str]:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.ask(asked, **call)
        details = caught.value.details() or ""
        for mark in ("Traceback", 'File "', ".py:", "/root", "site-packages"):
            assert mark not in details
        return caught.value.code(), details


async def connected(folder: Path, *overrides: str) -> AsyncIterator[Client]:
    async with (
        serving(example_settings(folder, *overrides)) as service,
        grpc.aio.insecure_channel(service.addresses["grpc"]) as channel,
    ):
        yield Client(channel)


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async for client in connected(tmp_path):
        yield client


@pytest.fixture
async def narrow(tmp_path: Path) -> AsyncIterator[Client]:
    async for client in connected(tmp_path, "limits.max_checks=3", "limits.max_body_bytes=4096"):
        yield client


async def test_decisions_come_in_the_order_of_the_checks(client: Client) -> None:
    bob = check(principal=wire.Principal(id="user:oidc~Bob"))
    response = await client.ask(request(check(), bob, check()))
    assert [decision.allowed for decision in response.decisions] == [True, False, True]
    assert response.decisions[0].by == ["cel:reading_foo_on_prod"]
    assert response.decision_id
    assert response.revision.count(".") == 3
    assert not response.decisions[0].HasField("trace")


LISTED = [wire.Resource(reference=f"table:lake/{name}") for name in ("Foo@prod", "Bar@prod", "/", "Foo@prod")]


def listing() -> wire.Check:
    """Return a question about a list of resources."""
    return wire.Check(principal=wire.Principal(id="user:oidc~Alice"), action="read_data", resources=LISTED)


async def test_a_list_of_resources_gets_a_decision_for_each(client: Client) -> None:
    listed = await client.ask(request(listing(), check()))
    single = await client.ask(request(*(check(resource=resource) for resource in LISTED), check()))
    assert listed.decisions == single.decisions
    assert [decision.allowed for decision in listed.decisions] == [True, False, False, True, True]


async def test_indices_name_the_permitted_positions_and_show_rejections(client: Client) -> None:
    response = await client.ask(request(listing(), check(), answer="indices"))
    assert (list(response.allowed), response.size, len(response.decisions)) == ([0, 3, 4], 5, 0)
    assert [(list(entry.at), entry.error.code) for entry in response.rejected] == [([2], "invalid_argument")]
    assert response.decision_id


@pytest.mark.parametrize("fields", [{"answer": "rows"}, {"answer": "indices", "explain": True}])
async def test_an_unknown_form_of_answer_is_invalid(client: Client, fields: dict[str, Any]) -> None:
    code, details = await client.refused(request(check(), **fields))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert details.startswith("invalid_argument: ")


@pytest.mark.parametrize("fields", [{}, {"answer": "indices"}, {"explain": True}])
async def test_no_checks_are_invalid(client: Client, fields: dict[str, Any]) -> None:
    code, details = await client.refused(wire.CheckRequest(**fields))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert details == "invalid_argument: `checks` is missing or empty"


async def test_explain_adds_a_trace_to_every_decision(client: Client) -> None:
    response = await client.ask(request(check(), check(action="drop"), explain=True))
    for decision in response.decisions:
        assert decision.trace.what
        assert decision.trace.outcome
        assert decision.trace.parts


def with_numbers(number: float) -> wire.Check:
    made = check()
    made.principal.attributes["number"] = number
    return made


def with_argument(name: str, value: Any) -> wire.Check:
    made = check()
    made.context.arguments[name] = value
    return made


BAD_CHECKS = {
    "empty": wire.Check(),
    "no_principal": check(principal=wire.Principal()),
    "no_resource": check(resource=wire.Resource()),
    "principal_without_idp": check(principal=wire.Principal(id="user:Alice")),
    "unknown_type": check(resource=wire.Resource(reference="tabel:lake/Foo")),
    "control_character": check(resource=wire.Resource(reference="table:lake/F\x1boo")),
    "empty_path_part": check(resource=wire.Resource(type="table", warehouse="lake", path=["Foo", ""])),
    "table_without_path": check(resource=wire.Resource(type="table", warehouse="lake")),
    "reference_and_type": check(resource=wire.Resource(reference="table:lake/Foo@prod", type="table")),
    "reference_and_warehouse": check(resource=wire.Resource(reference="table:lake/Foo@prod", warehouse="lake")),
    "reference_and_path": check(resource=wire.Resource(reference="table:lake/Foo@prod", path=["Bar"])),
    "reference_and_name": check(resource=wire.Resource(reference="role:etl", name="admin")),
    "reference_and_ref": check(resource=wire.Resource(reference="table:lake/Foo@prod", ref="main")),
    "acting_role_is_empty": check(acting_role=""),
    "acting_role_is_empty_id": check(acting_role="role:"),
    "acting_role_is_user": check(acting_role="user:oidc~Alice"),
    "name_is_number": with_argument("name", 5),
    "destination_is_number": with_argument("destination", 5),
    "not_a_number": with_numbers(float("nan")),
    "infinite": with_numbers(float("inf")),
}  # fmt: skip


@pytest.mark.parametrize("bad", BAD_CHECKS.values(), ids=BAD_CHECKS)
async def test_a_bad_check_fails_only_at_its_position(client: Client, bad: wire.Check) -> None:
    response = await client.ask(request(check(), bad, check()))
    assert [decision.allowed for decision in response.decisions] == [True, False, True]
    rejected = response.decisions[1]
    assert rejected.by == ["invalid_check"]
    assert rejected.error.code == "invalid_argument"
    assert rejected.error.message
    assert not response.decisions[0].HasField("error")
    assert not response.decisions[2].HasField("error")


async def test_an_empty_acting_role_is_not_an_absent_one(client: Client) -> None:
    empty, absent = check(acting_role=""), check()
    assert empty.HasField("acting_role")
    response = await client.ask(request(empty, absent))
    assert [decision.error.code for decision in response.decisions] == ["invalid_argument", ""]
    assert [decision.allowed for decision in response.decisions] == [False, True]


async def test_a_resource_in_parts_is_the_resource_of_its_reference(client: Client) -> None:
    parts = wire.Resource(type="table", warehouse="lake", path=["Foo"], ref="prod")
    described = wire.Resource(reference="table:lake/Foo@prod", content_type="ICEBERG_TABLE", ref_type="BRANCH", id="7")
    response = await client.ask(request(check(), check(resource=parts), check(resource=described)))
    assert [(decision.allowed, list(decision.by)) for decision in response.decisions] == [
        (True, ["cel:reading_foo_on_prod"])
    ] * 3


async def test_too_many_checks_are_invalid(narrow: Client) -> None:
    assert len((await narrow.ask(request(*[check()] * 3))).decisions) == 3
    code, details = await narrow.refused(request(*[check()] * 4))
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert details.startswith("too_many_checks: ")


async def test_a_message_too_large_is_refused(narrow: Client) -> None:
    code, _ = await narrow.refused(request(check(action="a" * 5000)))
    assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert (await narrow.ask(request(check()))).decisions[0].allowed


async def test_metadata_too_large_is_refused(client: Client) -> None:
    code, _ = await client.refused(request(check()), metadata=(("x-long", "a" * 100_000),))
    assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert (await client.ask(request(check()))).decisions[0].allowed


@pytest.mark.parametrize(
    ("wanted", "code", "begins"),
    [
        ("{epoch}x.0.{digest}", grpc.StatusCode.UNAVAILABLE, "unavailable: "),
        ("{epoch}.9.{digest}", grpc.StatusCode.UNAVAILABLE, "unavailable: "),
        ("{epoch}.x.{digest}", grpc.StatusCode.INVALID_ARGUMENT, "invalid_argument: "),
        ("{epoch}.\u00b2.{digest}", grpc.StatusCode.INVALID_ARGUMENT, "invalid_argument: "),
        ("", grpc.StatusCode.INVALID_ARGUMENT, "invalid_argument: "),
    ],
)
async def test_error_details_start_with_the_stable_code(
    client: Client, wanted: str, code: grpc.StatusCode, begins: str
) -> None:
    epoch, _, digest = (await client.ask(request(check()))).revision.split(".", 2)
    consistency = wire.Consistency(at_least=wanted.format(epoch=epoch, digest=digest))
    found, details = await client.refused(request(check(), consistency=consistency))
    assert found == code
    assert details.startswith(begins)


async def test_the_current_revision_is_served_in_every_form(client: Client) -> None:
    revision = (await client.ask(request(check()))).revision
    for consistency in (
        wire.Consistency(full=True),
        wire.Consistency(minimize_latency=True),
        wire.Consistency(at_least=revision),
    ):
        assert (await client.ask(request(check(), consistency=consistency))).revision == revision


async def test_the_limit_of_requests_is_shared_with_http(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: Any) -> None:
        await asyncio.Event().wait()

    async with serving(example_settings(tmp_path, "limits.max_in_flight=1")) as service:
        monkeypatch.setattr(service.pdp.source, "catch_up", never)
        host, _, port = service.addresses["http"].partition(":")
        with socket.create_connection((host, int(port))) as held:
            body = b'{"checks":[],"consistency":"full"}'
            held.sendall(
                b"POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
            )
            async with grpc.aio.insecure_channel(service.addresses["grpc"]) as channel:
                code, details = await eventually_refused(Client(channel))
    assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert details.startswith("overloaded: ")


async def eventually_refused(client: Client) -> tuple[grpc.StatusCode, str]:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            await client.ask(request(check()))
        except grpc.aio.AioRpcError as error:
            return error.code(), error.details() or ""
    raise AssertionError("never refused")


@pytest.mark.parametrize(
    "message", [b"\xff\xff\xff", b"\x0a\xff\xff\xff\xff\x0f", b"\x0a\x04\x0a\x02\x0a\xff", b"\x0a\x03\x12\x01\xff"]
)
async def test_bytes_that_are_no_message_are_refused(client: Client, message: bytes) -> None:
    call: Any = client.channel.unary_unary(f"/{NAME}/Check")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(message, timeout=20)
    assert (await client.ask(request(check()))).decisions[0].allowed
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert (caught.value.details() or "").startswith("invalid_argument: ")


@pytest.mark.parametrize("letter", ["a", "\u00e9", "\x01", "\U0001f512"])
async def test_details_of_refusals_fit_into_metadata(client: Client, letter: str) -> None:
    call: Any = client.channel.unary_unary(f"/{NAME}/Check")
    message = wire.CheckRequest(answer=letter * 3000).SerializeToString()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(message, timeout=20)
    details = caught.value.details() or ""
    assert details.startswith(f"invalid_argument: answer `{letter * 20}")
    assert len(details.encode()) <= 515


@pytest.mark.parametrize("method", [f"/{NAME}/Chekc", "/pdp.v1.Nobody/Check", "/"])
async def test_an_unknown_method_is_unimplemented(client: Client, method: str) -> None:
    call: Any = client.channel.unary_unary(method)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(b"", timeout=20)
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.process
def test_a_compressed_bomb_is_not_inflated(tmp_path: Path) -> None:
    with serve_process(tmp_path) as process, grpc.insecure_channel(process.addresses["grpc"]) as channel:
        stub: Any = wire_grpc.DecisionServiceStub(channel)
        assert stub.Check(request(check()), timeout=20).decisions[0].allowed
        watched, done, peaks = psutil.Process(process.process.pid), threading.Event(), [0]
        before = watched.memory_info().rss

        def watch() -> None:
            while not done.wait(0.005):
                peaks.append(watched.memory_info().rss - before)

        thread = threading.Thread(target=watch)
        thread.start()
        with pytest.raises(grpc.RpcError) as caught:
            stub.Check(request(check(action="a" * (100 * MIB))), compression=grpc.Compression.Gzip, timeout=20)
        done.set()
        thread.join()
        error: Any = caught.value
        assert error.code() in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNIMPLEMENTED)
        assert max(peaks) < 40 * MIB


@pytest.mark.parametrize("service", ["", NAME])
async def test_health_says_serving(client: Client, service: str) -> None:
    answer = await client.health.Check(health_pb2.HealthCheckRequest(service=service), timeout=20)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_health_does_not_know_other_services(client: Client) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await client.health.Check(health_pb2.HealthCheckRequest(service="nobody"), timeout=20)
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND


async def test_health_changes_before_the_service_stops(tmp_path: Path) -> None:
    service = Service(example_settings(tmp_path))
    await service.start()
    async with grpc.aio.insecure_channel(service.addresses["grpc"]) as channel:
        watched = Client(channel).health.Watch(health_pb2.HealthCheckRequest(service=NAME), timeout=20)
        seen = [(await watched.read()).status]
        await service.stop()
        seen.append((await watched.read()).status)
    assert seen == [health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING]


async def test_reflection_lists_the_service(client: Client) -> None:
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(client.channel)
    asked = reflection_pb2.ServerReflectionRequest(list_services="")
    answers = [answer async for answer in stub.ServerReflectionInfo(iter([asked]), timeout=20)]
    assert NAME in [service.name for service in answers[0].list_services_response.service]


@pytest.mark.parametrize("listener", ["grpc", "http"])
@pytest.mark.parametrize("shared", [False, True], ids=["plain", "reuseport"])
async def test_a_port_in_use_is_an_error(tmp_path: Path, listener: str, shared: bool) -> None:
    with socket.socket() as taken:
        if shared:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        service = Service(example_settings(tmp_path, f"server.{listener}={address}"))
        with pytest.raises(ConfigError, match=rf"`{address}` \(server\.{listener}\)"):
            await service.start()
        await service.stop()


async def test_two_services_never_share_a_grpc_port(tmp_path: Path) -> None:
    async with serving(example_settings(tmp_path)) as first:
        second = Service(example_settings(tmp_path, f"server.grpc={first.addresses['grpc']}"))
        with pytest.raises(ConfigError, match=r"\(server\.grpc\)"):
            await second.start()
        await second.stop()
