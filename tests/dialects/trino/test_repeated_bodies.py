"""Repeated bodies are decided again and recorded each time; owners of queries are remembered for the audit alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace as with_changes
from pathlib import Path
from typing import Any

import msgspec
import psutil  # type: ignore[import-untyped]
import pytest
from support.oracles.audit_files import audit_records
from support.oracles.trino_row_access import RowAccessClient, row_access_client

from pdp.app.facts import build_pdp
from pdp.audit.queue.queue import NoAudit
from pdp.audit.reader import read_audit
from pdp.audit.records.recorded import ReadReport
from pdp.config.load import make_settings
from pdp.decision.active_policies import ActivePolicies
from pdp.dialects.trino.endpoints import TrinoSurface
from pdp.dialects.trino.requests import QueryOwners, QuerySessions
from pdp.engines.cel.rules import inline_rules
from pdp.errors import Unavailable
from pdp.facts.objects import Grant, GrantAdded, GrantRemoved
from pdp.facts.snapshot import Facts
from pdp.identity.callers import EMBEDDED_CALLER
from pdp.model.events import OPEN_GATE, AnswerHold
from pdp.model.question import Caller, Principal
from pdp.offline.cases.runner import MemoryAudit
from pdp.store.replica import FixedFacts

SELECT = Grant(("table", ("lake", "s", "t")), "select", "user:oidc~a")
TRINO, OTHER = Caller("trino", frozenset({"principals"})), Caller("other", frozenset())


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[RowAccessClient]:
    async with row_access_client(tmp_path) as client:
        yield client


class LocalService:
    """A surface in this process, with its records."""

    def __init__(self) -> None:
        config = {
            "authorities": {"default": {"engines": ["grants"]}},
            "trino": {"catalogs": {"k": {"warehouse": "lake", "ref": "main"}}},
        }
        self.recorder = MemoryAudit()
        rules = inline_rules({})
        self.pdp = build_pdp(
            make_settings(config, Path()), Facts.empty().apply(1, [GrantAdded(SELECT)]), (rules, rules), self.recorder
        )
        self.surface = TrinoSurface(self.pdp, 1000, 10)

    async def allow(self, body: bytes, caller: Caller = EMBEDDED_CALLER) -> bool:
        allowed: bool = json.loads(await self.surface.allow(body, caller))["result"]
        return allowed

    @property
    def cached(self) -> list[bool]:
        return [record["checks"][0]["cached"] for record in self.recorder.records]


def body_of(table: str = "t", user: str = "a", query: str = "", operation: str = "SelectFromColumns") -> bytes:
    named = {"table": {"catalogName": "k", "schemaName": "s", "tableName": table, "columns": ["c"]}}
    context = {"identity": {"user": user, "groups": []}, **({"queryId": query} if query else {})}
    return json.dumps({"input": {"context": context, "action": {"operation": operation, "resource": named}}}).encode()


async def test_the_same_body_gets_the_same_answer_and_a_record_of_its_own() -> None:
    service = LocalService()
    assert [await service.allow(body_of()) for _ in range(3)] == [True] * 3
    assert [await service.allow(body_of("u")) for _ in range(2)] == [False] * 2
    found = service.recorder.records
    assert service.cached == [False] * 5
    assert len({record["id"] for record in found}) == 5
    kept = ("checks", "requests")
    same = [
        {key: value for key, value in record.items() if key not in ("id", "seq", "time", "latencyUs", *kept)}
        for record in found
    ]
    assert same[0] == same[1] == same[2]
    assert found[0]["checks"] == found[1]["checks"]
    assert found[1]["checks"][0]["by"] == ["grants:select on table:lake/s/t via user:oidc~a"]


@pytest.mark.parametrize("endpoint", ["allow", "batch"])
async def test_an_answer_is_of_its_endpoint(endpoint: str) -> None:
    service = LocalService()
    action = {"operation": "FilterTables", "resource": {"catalog": {"name": "k"}}, "filterResources": []}
    body = json.dumps({"input": {"context": {"identity": {"user": "a"}}, "action": action}}).encode()
    first, second = (
        (service.surface.allow, service.surface.batch)
        if endpoint == "allow"
        else (service.surface.batch, service.surface.allow)
    )
    one, other = json.loads(await first(body, EMBEDDED_CALLER)), json.loads(await second(body, EMBEDDED_CALLER))
    assert {type(one["result"]), type(other["result"])} == {bool, list}


async def test_other_facts_are_asked_anew() -> None:
    service, facts = LocalService(), None
    assert await service.allow(body_of())
    facts = service.pdp.source.facts
    service.pdp.source = FixedFacts(facts.apply(2, [GrantRemoved(SELECT)]))
    assert not await service.allow(body_of())
    service.pdp.source = FixedFacts(facts)
    assert await service.allow(body_of())
    assert service.cached == [False] * 3
    assert await service.allow(body_of())
    service.pdp.source = FixedFacts(with_changes(facts))
    assert await service.allow(body_of()), "equal facts may be of another revision"
    assert service.cached == [False] * 5


async def test_another_bundle_is_asked_anew() -> None:
    service = LocalService()
    assert await service.allow(body_of())
    bundle: ActivePolicies = service.pdp.bundle
    service.pdp.bundle = msgspec.structs.replace(bundle, digest="f" * 16)
    assert await service.allow(body_of())
    assert service.cached == [False, False]
    assert service.recorder.records[1]["revision"].endswith(".ffffffffffffffff")


@pytest.mark.parametrize(
    "change",
    [{"name": "other"}, {"may_assert": frozenset({"principals"})}, {"may_inspect": True}, {"may_assert": frozenset()}],
)
async def test_another_caller_is_asked_anew(change: dict[str, Any]) -> None:
    service = LocalService()
    other = msgspec.structs.replace(EMBEDDED_CALLER, **change)
    assert await service.allow(body_of())
    assert await service.allow(body_of(), other) == (change.get("may_assert") != frozenset())
    assert service.cached == [False, False]


class Silent(FixedFacts):
    silent = False

    def is_stale(self) -> bool:
        return self.silent


async def test_a_silent_store_answers_from_no_memory_and_leaves_nothing_in_it() -> None:
    service = LocalService()
    source = service.pdp.source = Silent(service.pdp.source.facts)
    assert await service.allow(body_of())
    source.silent = True
    assert not await service.allow(body_of())
    assert not await service.allow(body_of())
    source.silent = False
    assert await service.allow(body_of())
    assert service.cached == [False] * 4
    assert service.recorder.records[1]["checks"][0]["by"] == ["store_stale"]


async def test_what_cannot_be_recorded_is_not_answered_from_memory() -> None:
    service = LocalService()
    assert await service.allow(body_of())

    class Full(MemoryAudit):
        gate: AnswerHold = OPEN_GATE

        def admit(self) -> None:
            raise Unavailable("the audit cannot be written")

    service.pdp.audit = Full()
    assert not await service.allow(body_of())
    service.pdp.audit = service.recorder
    assert await service.allow(body_of())
    assert service.cached == [False, False]


async def test_what_is_seen_is_never_answered_from_memory(client: RowAccessClient, tmp_path: Path) -> None:
    for _ in range(2):
        await client.rows("orders")
    await client.service.stop()
    assert [row["cached"] for record in audit_records(tmp_path) for row in record["checks"]] == [False, False]


# --- who runs a query ---------------------------------------------------------------------------------------------


async def test_the_record_of_a_view_s_owner_names_who_runs_the_query(client: RowAccessClient, tmp_path: Path) -> None:
    resource = {"table": {"catalogName": "k", "schemaName": "s", "tableName": "free", "columns": ["c"]}}
    select = {"operation": "SelectFromColumns", "resource": resource}
    for user in ("eve", "boss", "eve", "nobody"):
        assert await client.ask("allow", select, user) == (user != "nobody")
    await client.rows("orders", "boss")
    await client.service.stop()
    asked = [record["inputs"] for record in audit_records(tmp_path)]
    assert [inputs["context"]["queryId"] for inputs in asked] == ["q1"] * 5
    runs = [inputs["context"].get("queryUser") for inputs in asked]
    assert runs == [None, "user:oidc~eve", None, "user:oidc~eve", "user:oidc~eve"]


async def test_records_of_a_view_s_owner_read_back(client: RowAccessClient, tmp_path: Path) -> None:
    resource = {"table": {"catalogName": "k", "schemaName": "s", "tableName": "free", "columns": ["c"]}}
    for user in ("eve", "boss"):
        await client.ask("allow", {"operation": "SelectFromColumns", "resource": resource}, user)
    await client.service.stop()
    report = ReadReport()
    recorded = list(read_audit(tmp_path / "audit", report))
    assert {check.check.question.principal.id for check in recorded} == {"user:oidc~eve", "user:oidc~boss"}
    assert not report.skipped


async def test_no_decision_depends_on_who_else_ran_under_a_query() -> None:
    service = LocalService()
    bodies = [body_of(table, user, "q") for table in "tu" for user in "ab"]
    alone = [await LocalService().allow(body) for body in bodies]
    assert [await service.allow(body) for body in bodies] == alone == [True, False, False, False]
    assert [await service.allow(body) for body in reversed(bodies)] == alone[::-1]


def test_a_query_is_its_caller_s_own() -> None:
    queries = QueryOwners()
    queries.keep_first(TRINO, "q", "user:oidc~a")
    queries.keep_first(TRINO, "q", "user:oidc~b")
    assert queries.other_user(TRINO, "q", "user:oidc~a") == ""
    assert queries.other_user(TRINO, "q", "user:oidc~b") == "user:oidc~a"
    assert queries.other_user(OTHER, "q", "user:oidc~b") == ""
    for number in range(20_000):
        queries.keep_first(TRINO, f"q{number}", "user:oidc~a")
    assert queries.other_user(TRINO, "q", "user:oidc~b") == "", "the oldest are forgotten"


def user_caller(number: int) -> Caller:
    own = Principal("user", f"oidc~u{number}")
    return Caller(own.id, frozenset(), own=own)


@pytest.mark.parametrize("flooding", [[OTHER], [user_caller(0)], [user_caller(number) for number in range(40)]])
def test_no_caller_makes_the_queries_of_another_forgotten(flooding: list[Caller]) -> None:
    owners, sessions = QueryOwners(), QuerySessions()
    bob, eve = Principal("user", "oidc~bob"), Principal("user", "oidc~eve")
    owners.keep_first(TRINO, "q", bob.id)
    sessions.execute(TRINO, "q", bob)
    for number in range(10_100):
        caller = flooding[number % len(flooding)]
        owners.keep_first(caller, f"q{number}", eve.id)
        sessions.execute(caller, f"q{number}", eve)
    assert owners.other_user(TRINO, "q", eve.id) == bob.id
    assert sessions.session(TRINO, "q").user == bob
    assert sessions.session(flooding[0], "q").user is None, "a query is of its caller"


def test_users_with_tokens_share_one_memory_of_queries() -> None:
    sessions, eve = QuerySessions(), Principal("user", "oidc~eve")
    for number in range(20_000):
        sessions.execute(user_caller(number), "q", eve)
    known = [sessions.session(user_caller(number), "q").user for number in range(20_000)]
    assert known == [None] * 10_000 + [eve] * 10_000


def test_who_has_a_long_name_is_not_remembered() -> None:
    queries, long = QueryOwners(), "user:oidc~" + "x" * 1000
    queries.keep_first(TRINO, "q", long)
    assert queries.other_user(TRINO, "q", "user:oidc~a") == ""
    queries.keep_first(TRINO, "q", "user:oidc~a")
    assert queries.other_user(TRINO, "q", long) == "user:oidc~a"


def test_many_users_operations_and_queries_take_little_memory() -> None:
    service = LocalService()
    service.pdp.audit = NoAudit()
    operations = ("SelectFromColumns", "ShowCreateTable", "Operation{}")

    async def ask(numbers: range) -> None:
        for number in numbers:
            operation = operations[number % 3].format(number)
            await service.allow(body_of(f"t{number}", f"u{number}", f"q{number}", operation))

    asyncio.run(ask(range(1000)))
    before = psutil.Process().memory_info().rss
    asyncio.run(ask(range(1000, 25_000)))
    assert psutil.Process().memory_info().rss - before < 20_000_000
