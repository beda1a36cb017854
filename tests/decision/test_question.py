"""A new field of a question: engines that read it are never answered by what another value of it has left behind.

The field comes by a subclass, and only the decoders of the surfaces know it, as they would in a change that adds one.
Everything between must tell two questions apart by itself: groups, plans, prepared plans, caches, joins, and records.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import msgspec
import pytest
from support.clients.http_client import HttpClient, http_client
from support.clients.rpc_clients import ConnectClient, GrpcClient
from support.oracles.audit_files import audit_records
from support.service.caches import with_cache, written
from support.service.serving import serving, settings_of

from pdp.audit.records import tables
from pdp.audit.records.inputs import InputsEncoder, inputs_key
from pdp.audit.records.recorded import RecordedOutcome, ReplayCheck, ask, check_with
from pdp.audit.records.schema import IN_ENTRIES, EntryRest, Inputs, inputs_type
from pdp.decision import batch_builder
from pdp.decision.active_policies import Authority
from pdp.decision.bodies import CheckBody, make_question
from pdp.dialects.trino import requests as trino_requests
from pdp.engines.engine import (
    ABSTAIN,
    PERMIT,
    READS_POLICIES,
    Cost,
    EngineQuestion,
    FixedAnswer,
    ResourceCall,
    Verdicts,
)
from pdp.facts.snapshot import Facts
from pdp.model.answer import Trace
from pdp.model.question import (
    Check,
    CheckGrouper,
    Principal,
    QuerySession,
    Question,
    RequestContext,
    Resource,
    ViewCommit,
    grouping_key,
)
from pdp.offline.replay.replay import windows
from pdp.surfaces.wire import decision_pb2 as wire

PURPOSES = ("audit", "marketing", "")
TABLES = ("table:w/n/t", "table:w/n/u")


class PurposeQuestion(Question, frozen=True, gc=False, cache_hash=True):
    """A question with the purpose of the access."""

    purpose: str = ""


class PurposeEngine:
    """Engine that permits what is asked for an audit. `prepares`: single checks are decided by a prepared call."""

    name = "purpose"
    digest = "d"
    forbids, counts_stored_roles = True, False
    reads = READS_POLICIES
    cost = Cost.MICROSECONDS

    def applies(self, action: str, type: str) -> bool:
        return True

    def decide(self, group: EngineQuestion, resources: Sequence[Resource], facts: Facts) -> Verdicts:
        return Verdicts(self.effect(group) * len(resources), [f"purpose:{self.purpose(group)}"] * len(resources))

    def explain(self, group: EngineQuestion, resource: Resource, facts: Facts) -> Trace:
        return Trace("purpose", self.purpose(group))

    def prepare(self, group: EngineQuestion, facts: Facts) -> ResourceCall | None:
        return FixedAnswer(self.decide(group, [Resource("table")], facts))

    @staticmethod
    def purpose(group: EngineQuestion) -> str:
        return group.question.purpose if isinstance(group.question, PurposeQuestion) else "unknown"

    def effect(self, group: EngineQuestion) -> bytes:
        return bytes([PERMIT if self.purpose(group) == "audit" else ABSTAIN])


def decoded(body: CheckBody, principal: Principal, context: RequestContext) -> Question:
    """Decode a body whose `actions` end with the purpose, which the context of the question does not keep."""
    *actions, purpose = context.actions
    plain = make_question(body, principal, msgspec.structs.replace(context, actions=tuple(actions)))
    return PurposeQuestion(**(msgspec.structs.asdict(plain) | {"purpose": purpose}))


class Asking(NamedTuple):
    """A running service, and the purpose of the requests of its Trino."""

    client: HttpClient
    grpc: GrpcClient
    connect: ConnectClient
    trino_purpose: Callable[[str], None]
    folder: Path


@pytest.fixture(params=["without a cache", "with a cache"])
async def asking(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Asking]:
    """Serve the engine, with decoders that know the field."""
    monkeypatch.setattr(batch_builder, "make_question", decoded)
    now = [""]

    def trino_question(*fields: Any, **more: Any) -> Question:
        return PurposeQuestion(*fields, **(more | {"purpose": now[0]}))

    monkeypatch.setattr(trino_requests, "Question", trino_question)
    config = {
        "authorities": {"default": {"engines": ["grants"]}},
        "warehouses": {"w": {}},
        "trino": {"catalogs": {"w": {"warehouse": "w"}}},
    }
    async with AsyncExitStack() as stack:
        service = await stack.enter_async_context(serving(settings_of(config, tmp_path)))
        default = Authority("default", (PurposeEngine(),), "any")
        service.pdp.bundle = msgspec.structs.replace(service.pdp.bundle, authorities={}, default=default)
        if request.param == "with a cache":
            with_cache(service.pdp)
        client = await stack.enter_async_context(http_client(service))
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(service.addresses["grpc"]))
        connect = ConnectClient(client, json=True)
        yield Asking(client, GrpcClient(channel), connect, lambda purpose: now.__setitem__(0, purpose), tmp_path)


def check(purpose: str, *resources: str) -> dict[str, Any]:
    named = {"resource": resources[0]} if len(resources) == 1 else {"resources": list(resources)}
    return {"principal": "user:oidc~a", "action": "read_data", "context": {"actions": ["X", purpose]}, **named}


def orders() -> list[str]:
    """Purposes in every order, one order after the other, so that each follows each."""
    return [purpose for order in permutations(PURPOSES) for purpose in order]


async def test_single_checks_over_http_are_answered_for_their_own_purpose(asking: Asking) -> None:
    for purpose in orders():
        _, answer = await asking.client.check(check(purpose, TABLES[0]))
        (decision,) = answer["decisions"]
        assert (decision["allowed"], decision["by"]) == wanted(purpose)


def wanted(purpose: str) -> tuple[bool, list[str]]:
    return purpose == "audit", [f"purpose:{purpose}"]


@pytest.mark.parametrize("resources", [TABLES[:1], TABLES], ids=["one", "list"])
async def test_one_batch_mixes_purposes(asking: Asking, resources: tuple[str, ...]) -> None:
    purposes = orders()
    for _ in range(3):
        _, answer = await asking.client.check(*[check(purpose, *resources) for purpose in purposes])
        found = [(decision["allowed"], decision["by"]) for decision in answer["decisions"]]
        assert found == [wanted(purpose) for purpose in purposes for _ in resources]
        await asyncio.sleep(0)


async def test_grpc_and_connect_tell_purposes_apart(asking: Asking) -> None:
    def message(purpose: str) -> wire.Check:
        context = wire.Context(actions=["X", purpose])
        reference = wire.Resource(reference=TABLES[0])
        return wire.Check(
            principal=wire.Principal(id="user:oidc~a"), action="read_data", resource=reference, context=context
        )

    purposes = orders()
    for client in (asking.grpc, asking.connect):
        for purpose in purposes:
            answer = await client.call("Check", wire.CheckRequest(checks=[message(purpose)]))
            assert (answer.decisions[0].allowed, [*answer.decisions[0].by]) == wanted(purpose)
        answer = await client.call("Check", wire.CheckRequest(checks=list(map(message, purposes))))
        assert [(one.allowed, [*one.by]) for one in answer.decisions] == list(map(wanted, purposes))


async def test_trino_is_answered_for_the_purpose_of_the_request(asking: Asking) -> None:
    table = {"table": {"catalogName": "w", "schemaName": "n", "tableName": "t", "columns": ["c"]}}
    identity = {"identity": {"user": "a", "groups": []}}
    for purpose in orders():
        asking.trino_purpose(purpose)
        for action in (
            {"operation": "SelectFromColumns", "resource": table},
            {"operation": "FilterTables", "filterResources": [table, table]},
        ):
            endpoint = "batch" if "filterResources" in action else "allow"
            _, answer = await asking.client.trino(endpoint, {"input": {"context": identity, "action": action}})
            count = 2 if endpoint == "batch" else 1
            allowed = len(answer["result"]) if endpoint == "batch" else int(answer["result"])
            assert allowed == (count if purpose == "audit" else 0), (purpose, action)


def as_inputs(written: Any, inputs: type[Inputs]) -> Inputs:
    return msgspec.json.decode(msgspec.json.encode(written), type=inputs)


async def test_records_keep_the_field_and_its_readers_follow(asking: Asking) -> None:
    purposes = orders()
    for purpose in purposes:
        await asking.client.check(check(purpose, TABLES[0]))
    await asking.client.check(*[check(purpose, *TABLES) for purpose in purposes])
    if asking.client.service.pdp.cache:
        await written(asking.client.service.pdp)
    await asking.client.service.stop()
    records = [record for record in audit_records(asking.folder) if record["event"] == "decision"]
    singles = [record for record in records if len(record.get("checks", ())) == 1]
    assert [record["inputs"].get("purpose", "") for record in singles] == purposes
    batch = records[-1]
    inputs = [batch["inputs"], *batch["otherInputs"]]
    assert sorted(each.get("purpose", "") for each in inputs) == sorted(PURPOSES)
    reader = inputs_type(PurposeQuestion)
    read = [check_with(as_inputs(each, reader), PurposeQuestion) for each in inputs]
    assert [getattr(each.question, "purpose", None) for each in read] == [each.get("purpose", "") for each in inputs]
    with pytest.raises(msgspec.ValidationError, match="purpose"):
        as_inputs({**batch["inputs"], "purpose": "x"}, Inputs)


def test_replay_keeps_purposes_apart() -> None:
    inputs = inputs_type(PurposeQuestion)
    principal = {"id": "user:oidc~a", "roles": [], "groups": [], "attributes": {}}
    checks = [
        ask(
            check_with(as_inputs({"principal": principal, "purpose": purpose}, inputs), PurposeQuestion),
            "read_data", EntryRest(), delegated=False,
        )
        for purpose in orders()
    ]  # fmt: skip
    (window,) = windows(ReplayCheck(each, "k", RecordedOutcome(True, "x")) for each in checks)
    assert len(window) == len(PURPOSES)


def test_the_schema_the_export_and_the_lake_follow() -> None:
    schema = msgspec.json.schema(inputs_type(PurposeQuestion))["$defs"]["Inputs"]["properties"]
    assert schema["purpose"] == {"type": "string", "default": ""}
    assert tables.question_columns(PurposeQuestion) == {"purpose": "text"}
    assert tables.question_columns(Question) == {}


def test_every_field_of_a_question_is_recorded() -> None:
    """Each field is one of an entry, or one of the inputs; and what is read back is the same question."""
    entries = {"action", "delegated", "view_security"}
    assert {*Inputs.__struct_fields__} | entries == {*Question.__struct_fields__}


# --- the fields of today ------------------------------------------------------------------------------------------

ASKED = Question(Principal("user", "oidc~a"), "read_data")
OTHERS: dict[str, Any] = {
    "principal": Principal("user", "oidc~a", roles=("r",)),
    "action": "write_data",
    "delegated": True,
    "acting_role": "r",
    "context": RequestContext(now=1),
    "view_security": ViewCommit(),
    "inspected": True,
    "rules_follow": True,
    "session": QuerySession(None),
    "nameless": True,
    "unfiltered": True,
}
"""Field -> a value that differs from that of `ASKED`."""


def test_every_field_has_another_value() -> None:
    assert OTHERS.keys() == {*Question.__struct_fields__}


EVIDENCE: dict[str, Any] = {
    "roles": ("r",), "groups": ("g",), "attributes": '{"a":1}', "member_of": ("r",), "bare": True,
    "unknown": ("groups",), "unseen": ("groups",),
}  # fmt: skip
"""Evidence of a principal -> a value that differs from that of `ASKED`."""


def principals() -> list[Principal]:
    return [msgspec.structs.replace(ASKED.principal, **{name: value}) for name, value in EVIDENCE.items()]


def test_all_evidence_of_a_principal_has_another_value() -> None:
    assert EVIDENCE.keys() == {*Principal.__struct_fields__} - {"type", "name"}


VARIANTS = [
    *((field, {field: value}) for field, value in OTHERS.items()),
    *(("principal", {"principal": principal}) for principal in principals()),
    *(("session", {"session": QuerySession(principal)}) for principal in [ASKED.principal, *principals()]),
]
"""Field of a question, and questions that differ from `ASKED` in this field, or in one part of it."""


@pytest.mark.parametrize(("field", "changes"), VARIANTS)
def test_questions_that_differ_in_one_field_are_told_apart(field: str, changes: dict[str, Any]) -> None:
    other = msgspec.structs.replace(ASKED, **changes)
    assert other != ASKED
    assert len({ASKED, other}) == 2
    table = Resource("table", "w", ("n", "t"))
    checks = [Check(question, (table,), (0,)) for question in (ASKED, other)]
    assert grouping_key(checks[0], table) != grouping_key(checks[1], table)
    grouper = CheckGrouper()
    for at, each in enumerate(checks):
        grouper.put(each, at)
    assert len(grouper.checks()) == 2
    (window,) = windows(ReplayCheck(each, "k", RecordedOutcome(True, "x")) for each in checks)
    assert len(window) == 2
    asked = [EngineQuestion(question, "table", "w", None) for question in (ASKED, other)]
    assert asked[0] != asked[1]
    assert (inputs_key(checks[0]) == inputs_key(checks[1])) == (field in IN_ENTRIES)


def test_sessions_of_users_with_other_evidence_are_told_apart() -> None:
    sessions = [QuerySession(principal) for principal in [ASKED.principal, *principals()]]
    assert len({msgspec.structs.replace(ASKED, session=session) for session in sessions}) == len(sessions)
    assert len({*principals()}) == len(EVIDENCE)


@pytest.mark.parametrize("principal", [each for each in principals() if not each.bare])
def test_evidence_is_recorded_and_read_back(principal: Principal) -> None:
    """A record that lost the evidence would be decided again as another question. View owners are not recorded."""
    for question in (
        msgspec.structs.replace(ASKED, principal=principal),
        msgspec.structs.replace(ASKED, session=QuerySession(principal)),
    ):
        text = InputsEncoder().encode(Check(question, (Resource("table"),), (0,)))
        read = check_with(msgspec.json.decode(text, type=Inputs))
        assert read.question == msgspec.structs.replace(question, action="")


def test_engines_get_every_field_but_those_that_the_plan_obeys() -> None:
    planned = {"acting_role", "view_security", "inspected", "rules_follow", "session", "unfiltered"}
    for field, value in OTHERS.items():
        given = msgspec.structs.replace(ASKED, **{field: value})
        assert (given.planned(given.principal) == ASKED) == (field in planned), field
