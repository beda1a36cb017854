"""Services that share a Redis: hits of each other, writes, reloads, audit records, metrics, readiness."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
from support.oracles.audit_files import audit_records
from support.servers.redis_server import RedisServer, redis_server
from support.service.serving import serving, settings_of

from pdp.app.service import Service
from pdp.audit.records.rows import rows
from pdp.surfaces.wire import decision_pb2 as wire

pytestmark = [pytest.mark.process, pytest.mark.waits]
WORLD = {
    "objects": ["project:p1", {"object": "warehouse:lake", "parent": "project:p1"}],
    "grants": [{"principal": "user:oidc~alice", "privilege": "select", "object": "namespace:lake/sales"}],
}
READ = {"principal": "user:oidc~alice", "action": "read_data", "resource": "table:lake/sales/orders"}
HIDDEN = {**READ, "resource": "table:lake/hr/people"}
GRANT = {"principal": "user:oidc~alice", "privilege": "select", "object": "namespace:lake/hr"}
SECRET = "canary-password-of-redis"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    (tmp_path / "redis").mkdir()
    with redis_server(tmp_path / "redis", "--requirepass", SECRET) as running:
        yield running


def settings_for(folder: Path, server: RedisServer, name: str, **cache: Any) -> Any:
    (folder / "world.json").write_text(json.dumps(WORLD))
    (folder / "password").write_text(SECRET)
    chosen = {
        "redis": server.url,
        "password_file": "password",
        "redis_for": "all",
        "timeout_ms": 1000,
        "local_entries": 0,
    }
    return settings_of(
        {
            "warehouses": {"lake": {"project": "p1", "default_ref": "main"}},
            "store": {"url": f"sqlite:///{folder}/pdp.db", "seed": "world.json"},
            "audit": {"sinks": [{"file": f"{name}/audit"}]},
            "cache": chosen | cache,
        },
        folder,
    )


@asynccontextmanager
async def services(folder: Path, server: RedisServer, *names: str, **cache: Any) -> AsyncIterator[list[Service]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(serving(settings_for(folder, server, name, **cache))) for name in names]


async def post(service: Service, path: str, body: Any) -> Any:
    url = f"http://{service.addresses['http']}{path}"
    async with aiohttp.ClientSession() as session, session.post(url, json=body) as answer:
        found = await answer.json()
        assert answer.status == 200, found
        return found


async def ask(service: Service, *checks: Any, **more: Any) -> Any:
    """Ask over HTTP, and wait until new verdicts are written."""
    answer = await post(service, "/v1/check", {"checks": checks, **more})
    assert service.pdp.cache
    await service.pdp.cache.flush()
    return answer


def marks(answer: Any) -> list[bool]:
    return [decision["cached"] for decision in answer["decisions"]]


async def test_what_one_service_decided_serves_the_other(tmp_path: Path, server: RedisServer) -> None:
    async with services(tmp_path, server, "one", "two") as (one, two):
        first = await ask(one, READ, HIDDEN)
        second = await ask(two, READ, HIDDEN)
        assert (marks(first), marks(second)) == ([False, False], [True, True])
        assert [decision["by"] for decision in second["decisions"]] == [
            decision["by"] for decision in first["decisions"]
        ]
        assert second["revision"] == first["revision"]
        assert first["decisions"][0]["by"][0].startswith("grants:select on namespace:lake/sales")
        async with grpc.aio.insecure_channel(two.addresses["grpc"]) as channel:
            call = channel.unary_unary(
                "/pdp.v1.DecisionService/Check", wire.CheckRequest.SerializeToString, wire.CheckResponse.FromString
            )
            check = wire.Check(action="read_data")
            check.principal.id = READ["principal"]
            check.resource.reference = READ["resource"]
            answer = await call(wire.CheckRequest(checks=[check]))
            assert [(one.allowed, one.cached) for one in answer.decisions] == [(True, True)]
        assert 'pdp_cache_verdicts_total{outcome="hit"}' in two.metrics().decode()
    record = audit_records(tmp_path / "two")[0]
    assert [row["cached"] for row in rows(record)] == [True, True]
    assert record["revision"] == second["revision"]


async def test_a_write_is_seen_by_all_at_once_and_its_revision_never_by_an_older_answer(
    tmp_path: Path, server: RedisServer
) -> None:
    async with services(tmp_path, server, "one", "two") as (one, two):
        for turn in range(6):
            allowed = turn % 2 == 1
            for service in (one, two, one, two):
                answer = await ask(service, HIDDEN, READ)
                assert [one["allowed"] for one in answer["decisions"]] == [allowed, True]
            change = {"remove" if allowed else "add": [GRANT]}
            revision = (await post(one, "/v1/grants", change))["revision"]
            for service in (two, one):
                newest = await ask(service, HIDDEN, READ, consistency={"atLeast": revision})
                assert [one["allowed"] for one in newest["decisions"]] == [not allowed, True]
                assert marks(newest) == [False, False]
                assert (await ask(service, HIDDEN))["decisions"][0]["allowed"] is not allowed


async def test_services_with_other_policies_share_nothing(tmp_path: Path, server: RedisServer) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules: {all: 'true'}")
    async with services(tmp_path, server, "one", "two") as (one, two):
        assert marks(await ask(one, READ)) == [False]
        assert marks(await ask(two, READ)) == [True]
        settings = settings_for(tmp_path, server, "three").model_copy(
            update={"policies": one.settings.policies.model_copy(update={"rules": (str(rules),)})}
        )
        async with serving(settings) as three:
            answer = await ask(three, HIDDEN)
            assert (answer["decisions"][0]["allowed"], marks(answer)) == (True, [False])
            assert (await ask(one, HIDDEN))["decisions"][0]["allowed"] is False


async def test_the_in_process_cache_spares_the_round_trip(tmp_path: Path, server: RedisServer) -> None:
    async with services(tmp_path, server, "one", local_entries=1000) as (one,):
        assert marks(await ask(one, READ)) == [False]
        calls = server.client(password=SECRET).info("commandstats")["cmdstat_hmget"]["calls"]
        for _ in range(5):
            assert marks(await ask(one, READ)) == [True]
        assert server.client(password=SECRET).info("commandstats")["cmdstat_hmget"]["calls"] == calls


async def test_a_dead_redis_is_a_detail_of_readiness(tmp_path: Path, server: RedisServer) -> None:
    async with services(tmp_path, server, "one") as (one,), aiohttp.ClientSession() as session:
        ready = f"http://{one.addresses['diagnostics']}/health/ready"
        await ask(one, READ)
        async with session.get(ready) as answer:
            assert (answer.status, await answer.json()) == (200, {"status": "ready", "details": {"cache": "ok"}})
        server.kill()
        for _ in range(5):
            assert (await ask(one, READ))["decisions"][0]["allowed"] is True
        async with session.get(ready) as answer:
            found = await answer.json()
            assert (answer.status, found["status"]) == (200, "ready")
            assert "fail" in found["details"]["cache"]
        assert 'pdp_cache_breaker{call="find"} 2.0' in one.metrics().decode()


async def test_the_password_is_shown_nowhere(
    tmp_path: Path, server: RedisServer, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "wrong").write_text(f"not-{SECRET}")
    async with services(tmp_path, server, "one", password_file="wrong") as (one,), aiohttp.ClientSession() as session:
        for _ in range(5):
            await ask(one, READ)
        async with session.get(f"http://{one.addresses['diagnostics']}/health/ready") as answer:
            shown = await answer.text()
        assert "fail" in shown
        shown += one.metrics().decode()
    out, err = capfd.readouterr()
    shown += (
        out
        + err
        + "".join(file.read_text(errors="replace") for file in (tmp_path / "one").rglob("*") if file.is_file())
    )
    assert SECRET not in shown


async def test_one_round_trip_for_a_thousand_tables(tmp_path: Path, server: RedisServer) -> None:
    names = [f"table:lake/sales/t{number}" for number in range(1000)]
    check = {"principal": READ["principal"], "action": "read_data", "resources": names}
    async with services(tmp_path, server, "one", "two") as (one, two):
        assert not any(marks(await ask(one, check)))
        client = server.client(password=SECRET)
        client.config_resetstat()
        started = time.perf_counter()
        assert all(marks(await ask(two, check)))
        assert time.perf_counter() - started < 20
        stats = client.info("commandstats")
        assert stats["cmdstat_hmget"]["calls"] == 2, "one for the rules and one for the grants, in one pipeline"


async def test_a_stop_does_not_wait_for_redis(tmp_path: Path, server: RedisServer) -> None:
    async with AsyncExitStack() as stack:
        (one,) = await stack.enter_async_context(services(tmp_path, server, "one"))
        await ask(one, READ)
        server.freeze()
        stack.callback(server.thaw)
        await post(one, "/v1/check", {"checks": [HIDDEN]})
        started = time.perf_counter()
        await asyncio.wait_for(one.stop(), 30)
        assert time.perf_counter() - started < 10
