"""Records of refused requests, over every surface: none is lost, and no flood fills the audit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from support.authentication import oidc
from support.clients.http_client import HttpClient, client_of
from support.clients.http_wire import exchange, head
from support.oracles.audit_files import all_records
from support.servers.idp import provider
from support.service.serving import settings_of

from pdp.audit.queue.queue import NoAudit
from pdp.errors import Unavailable
from pdp.model.events import Event, RefusalEvent
from pdp.model.question import Caller
from pdp.surfaces.refusals import MOST_PER_SECOND, Refusal, RefusalRecorder, Stranger

CHECK = {"principal": "user:oidc~alice", "action": "read_data", "resource": "table:lake/t"}
PATHS = [
    "/v1/check",
    "/v1/check?",
    "/v1/load",
    "/v1/grants",
    "/v1/objects",
    "/v1/data/trino/allow",
    "/v1/data/trino/batch",
    "/v1/data/trino/rowFilters",
    "/pdp.v1.DecisionService/Check",
    "/pdp.v1.GrantsService/WriteGrants",
]
NOBODY: dict[str, Any] = {"identity": {"callers": {"sidecar": {"unix_socket": True}}}}
"""Configuration that knows no caller over TCP."""
LOOPBACK = Caller("loopback", frozenset())


def surface_of(path: str) -> str:
    """Return the surface of a path."""
    return "trino" if "trino" in path else "connect" if "pdp.v1" in path else "http"


async def refusals(client: HttpClient, folder: Path) -> list[dict[str, Any]]:
    """Stop a service and return the refusals that it recorded."""
    await client.service.stop()
    return [record for record in all_records(folder) if record["event"] == "refusal"]


@asynccontextmanager
async def service_of(folder: Path, **config: Any) -> AsyncIterator[HttpClient]:
    """Serve a configuration."""
    async with client_of(settings_of(config, folder)) as client:
        yield client


@pytest.mark.parametrize("path", PATHS)
async def test_an_unknown_caller_is_recorded(tmp_path: Path, path: str) -> None:
    async with service_of(tmp_path, **NOBODY) as client:
        answer = await client.send("POST", path, b"{}", {"X-Request-ID": "mine"})
        assert answer.status == 401
        (record,) = await refusals(client, tmp_path)
    assert record["surface"] == surface_of(path)
    assert (record["endpoint"], record["status"], record["code"]) == (path.rstrip("?"), "401", "unauthenticated")
    assert (record["peer"], record["requestId"], record.get("caller")) == ("127.0.0.1", "mine", None)
    assert {"schema", "id", "instance", "seq", "time"} < record.keys()


@pytest.mark.parametrize("path", PATHS)
async def test_a_refused_page_a_body_too_large_and_a_malformed_one_are_recorded(tmp_path: Path, path: str) -> None:
    limits = {"max_body_bytes": 1024, "trino_max_body_bytes": 1024}
    async with service_of(tmp_path, limits=limits) as client:
        browser = await client.send("POST", path, b"{}", {"Origin": "https://example.org"})
        large = await client.send("POST", path, b" " * 2000)
        bad = await client.send("POST", path, b"{")
        found = await refusals(client, tmp_path)
    statuses = [str(answer.status) for answer in (browser, large, bad)]
    assert statuses == ["403", "429" if surface_of(path) == "connect" else "413", "400"]
    assert [record["status"] for record in found] == statuses
    assert [record["code"] for record in found] == ["forbidden", "payload_too_large", "invalid_argument"]
    assert [record["id"] for record in found] == [one.headers["X-Request-ID"] for one in (browser, large, bad)]
    assert found[2]["caller"] == "loopback"


@pytest.mark.parametrize("path", ["/v1/check", "/v1/grants", "/v1/data/trino/allow", "/pdp.v1.DecisionService/Check"])
async def test_too_many_requests_are_recorded(tmp_path: Path, path: str) -> None:
    async with service_of(tmp_path, limits={"max_in_flight": 1}) as client:
        with client.service.surfaces.admission.enter(LOOPBACK, 0):
            answer = await client.send("POST", path, {"checks": [CHECK]})
        (record,) = await refusals(client, tmp_path)
    assert answer.status == 429
    assert (record["status"], record["code"], record["caller"]) == ("429", "overloaded", "loopback")


async def test_a_body_that_never_comes_is_recorded(tmp_path: Path) -> None:
    async with service_of(tmp_path, limits={"request_timeout_seconds": 0.3}) as client:
        assert (await exchange(client, head(10)))[0] == 503
        (record,) = await refusals(client, tmp_path)
    assert (record["status"], record["code"], record["endpoint"]) == ("503", "unavailable", "/v1/check")


async def test_a_revision_out_of_reach_is_recorded(tmp_path: Path) -> None:
    async with service_of(tmp_path, store={"url": "sqlite:///pdp.db", "wait_seconds": 0.1}) as client:
        status, _ = await client.check(CHECK, consistency={"atLeast": "e.9.b"})
        (record,) = await refusals(client, tmp_path)
    assert (record["status"], record["code"]) == (str(status), "unavailable")


async def test_tokens_that_are_refused_are_recorded_without_the_token(tmp_path: Path) -> None:
    async with provider() as idp, service_of(tmp_path, identity={"providers": {"oidc": oidc(idp)}}) as client:
        for path in ("/v1/check", "/v1/check?", "/v1/data/trino/allow"):
            answer = await client.send("POST", path, b"{}", {"Authorization": "Bearer e30.secret.text"})
            assert answer.status == 401
        found = await refusals(client, tmp_path)
    assert [record["code"] for record in found] == ["unauthenticated"] * 3
    assert "secret" not in json.dumps(found)


async def test_refused_grpc_calls_are_recorded(tmp_path: Path) -> None:
    async with service_of(tmp_path, **NOBODY) as client:
        await call(client, "/pdp.v1.DecisionService/Check", b"")
        (unknown,) = await refusals(client, tmp_path)
    assert (unknown["surface"], unknown["status"], unknown["code"]) == ("grpc", "UNAUTHENTICATED", "unauthenticated")
    assert (unknown["endpoint"], unknown["peer"]) == ("/pdp.v1.DecisionService/Check", "127.0.0.1")


async def test_malformed_and_overloading_grpc_calls_are_recorded(tmp_path: Path) -> None:
    async with service_of(tmp_path, limits={"max_in_flight": 1}) as client:
        await call(client, "/pdp.v1.GrantsService/WriteGrants", b"\xff")
        with client.service.surfaces.admission.enter(LOOPBACK, 0):
            await call(client, "/pdp.v1.DecisionService/Check", b"")
        found = await refusals(client, tmp_path)
    assert [(record["status"], record["code"]) for record in found] == [
        ("INVALID_ARGUMENT", "invalid_argument"),
        ("RESOURCE_EXHAUSTED", "overloaded"),
    ]


async def call(client: HttpClient, path: str, body: bytes) -> None:
    """Send a gRPC call that is refused."""
    async with grpc.aio.insecure_channel(client.service.addresses["grpc"]) as channel:
        send: Any = channel.unary_unary(path, lambda one: one, lambda one: one)
        with pytest.raises(grpc.aio.AioRpcError):
            await send(body)


async def test_a_flood_is_counted_and_not_written(tmp_path: Path) -> None:
    async with service_of(tmp_path, **NOBODY) as client:
        answers = await asyncio.gather(*(client.send("POST", "/v1/check", b"{}") for _ in range(200)))
        other = await client.send("POST", "/v1/data/trino/allow", b"{}")
        assert {answer.status for answer in answers} == {other.status} == {401}
        found = await refusals(client, tmp_path)
    flood = [record for record in found if record["surface"] == "http"]
    counted = [record["suppressed"] for record in flood if "suppressed" in record]
    assert len(flood) - len(counted) + sum(counted) == 200
    assert len(flood) < 100
    assert [record["surface"] for record in found].count("trino") == 1, "another reason has records of its own"


class _BoundedLog(NoAudit):
    """Log that takes some refusals."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.events: list[RefusalEvent] = []

    def note(self, event: Event) -> bool:
        """Take an event if there is room."""
        assert isinstance(event, RefusalEvent)
        if len(self.events) < self.room:
            self.events.append(event)
            return True
        return False


async def test_refusals_that_a_full_audit_cannot_take_stay_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pdp.surfaces.refusals._SECOND", 0.05)
    log = _BoundedLog(2)
    recorder = RefusalRecorder(log)
    for number in range(5):
        recorder.record(Refusal("http", "/v1/check", "503", "unavailable", "x" * 900), Stranger("", f"r{number}"))
    await asyncio.sleep(0.2)
    assert [event.request_id for event in log.events] == ["r0", "r1"]
    assert len(log.events[0].message) == 500
    log.room = 10
    await asyncio.sleep(0.2)
    assert [event.suppressed for event in log.events] == [0, 0, 3]
    assert not recorder._tallies
    for number in range(MOST_PER_SECOND + 3):
        recorder.record(Refusal("http", "/v1/check", "400", "invalid_argument", "m"), Caller(f"c{number}", frozenset()))
    log.room = 100
    recorder.flush()
    assert sum(event.suppressed or 1 for event in log.events[3:]) == MOST_PER_SECOND + 3


async def test_a_service_that_cannot_write_its_audit_counts_what_it_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with service_of(tmp_path) as client:
        audit = client.service.audit
        assert audit

        def full() -> None:
            raise Unavailable("the audit cannot be written, so nothing is decided")

        monkeypatch.setattr(audit, "admit", full)
        assert (await client.check(CHECK))[0] == 503
        (record,) = await refusals(client, tmp_path)
    assert (record["status"], record["code"]) == ("503", "unavailable")
