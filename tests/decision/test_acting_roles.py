"""An acting role sheds no forbid on the person: each concrete check of the role is also asked about the person."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from support.generators.generated_pdps import batch, decide_and_record
from support.generators.recorded_runs import Run
from support.paths import TESTS
from support.service.caches import with_cache

from pdp.app.facts import build_pdp
from pdp.decision.service import Pdp
from pdp.dialects.trino.bodies import ResourceName
from pdp.dialects.trino.requests import RequestDecoder, TrinoRequest
from pdp.engines.guarded import GuardedEngine
from pdp.facts.objects import Grant, GrantAdded, key_from_text
from pdp.identity.callers import EMBEDDED_CALLER
from pdp.identity.evidence import admit
from pdp.model.answer import Answer
from pdp.model.question import Batch, BatchRequest, ChainView, Check, Load
from pdp.model.trino_operations import TRINO_OPERATIONS
from pdp.offline.cases.cases import Case
from pdp.offline.cases.runner import MemoryAudit, build_case_pdp

ANN = "user:oidc~ann"
TABLE, OTHER = "table:lake/g/t@main", "table:lake/h/t@main"
PLACES = ["namespace:lake/g", "namespace:lake/s", "table:lake/g/t", "view:lake/g/v", "table:lake/h/t", "table:lake/s/t"]
OBJECTS: list[Any] = [
    {"object": "project:p"},
    {"object": "warehouse:lake", "parent": "project:p"},
    *({"object": f"role:{name}", "parent": "project:p"} for name in ("etl", "hr")),
    *({"object": name} for name in PLACES),
]
GRANTS = [
    *({"principal": ANN, "privilege": "assignee", "object": f"role:{role}"} for role in ("etl", "hr")),
    {"principal": "role:etl", "privilege": "project_admin", "object": "project:p"},
    {"principal": "role:etl", "privilege": "ownership", "object": "warehouse:lake"},
]
CONFIG: dict[str, Any] = {
    "warehouses": {"lake": {"default_ref": "main", "project": "p"}},
    "trino": {"catalogs": {"lakehouse": {"warehouse": "lake", "ref": "main"}}},
}
PERSON = {"id": ANN, "roles": ["fte"], "groups": ["contractor"], "attributes": {"level": "low"}}


def pdp_of(forbid: str = "", cedar: str = "") -> Pdp:
    """Return a service with one forbid, of CEL or Cedar."""
    data = {
        "config": CONFIG | {"authorities": {"default": {"engines": ["cedar", "grants"] if cedar else ["grants"]}}},
        "world": {"objects": OBJECTS, "grants": GRANTS},
        "forbid": {"f": forbid} if forbid else {},
        **({"cedar": {"policies": f'@id("f") {cedar}'}} if cedar else {}),
    }
    return build_case_pdp(Case("generated", TESTS, data), build_pdp, MemoryAudit())[0]


def check(resource: str = TABLE, action: str = "read_data", principal: Any = PERSON, **more: Any) -> dict[str, Any]:
    return {"principal": principal, "action": action, "resource": resource, "actingRole": "role:etl", **more}


def ask(pdp: Pdp, asked: Batch) -> Answer:
    result = pdp.decide_now(asked)
    return result.answer if result else asyncio.run(pdp.check(asked))


def outcomes(answer: Answer) -> list[tuple[bool, str | None]]:
    return [(bool(allowed), by) for allowed, by in zip(answer.allowed, answer.by, strict=True)]


def decide(pdp: Pdp, *checks: dict[str, Any]) -> list[tuple[bool, str | None]]:
    """Decide checks one by one, as a batch in both orders, explained and with a cache: all agree."""
    every = list(checks)
    alone = [{outcomes(ask(pdp, batch([each])))[0] for _ in range(3)}.pop() for each in every]
    assert outcomes(ask(pdp, batch(every))) == alone
    assert outcomes(ask(pdp, batch(every[::-1]))) == alone[::-1]
    explained = msgspec.structs.replace(batch(every), explain=True)
    assert outcomes(asyncio.run(pdp.check(explained))) == alone
    with_cache(pdp)
    assert [outcomes(ask(pdp, batch(every))) for _ in range(2)] == [alone, alone]
    pdp.cache = None
    return alone


ON_PERSON = [
    "role == 'ann'",
    "'contractor' in groups",
    "attributes.level == 'low'",
    "'fte' in roles",
    "'hr' in roles",
    "role == 'ann' && 'etl' in roles",
    "'contractor' in groups && 'hr' in roles",
    "'contractor' in groups && !('hr' in roles)",
    "size(groups) > 0 && size(roles) == 1",
]
ON_NOBODY = [
    "role == 'bob'",
    "'staff' in groups",
    "!('etl' in roles)",
    "role == 'ann' && !('etl' in roles)",
    "size(groups) > 0 && !('etl' in roles)",
    "'x' in roles",
]
"""A test against a role sees the acting role alone, of the person, too."""


@pytest.mark.parametrize(
    "place", ["path.startsWith('g.')", "path == 'g.t'", "path == 'g.t' && op == 'READ_ENTITY_VALUE'"]
)
@pytest.mark.parametrize("who", [*ON_PERSON, *ON_NOBODY])
def test_an_acting_role_sheds_no_forbid_on_the_person_at_a_place(who: str, place: str) -> None:
    pdp, bound = pdp_of(f"{who} && {place}"), who in ON_PERSON
    table, other = decide(pdp, check(), check(OTHER))
    assert table == ((False, "cel:f") if bound else (True, table[1]))
    assert other[0]
    column = check() | {"resources": [TABLE, OTHER, TABLE]}
    del column["resource"]
    assert outcomes(ask(pdp, batch([column]))) == [table, other, table]
    assert decide(pdp, check(principal="user:oidc~bob"))[0] == (False, "cannot_assume")


@pytest.mark.parametrize(
    "who",
    [
        'principal == Lakekeeper::User::"oidc~ann", action, ',
        "principal is Lakekeeper::User, action, ",
        'principal in Lakekeeper::Role::"hr", action, ',
        'principal, action == Lakekeeper::Action::"ReadTableData", ',
    ],
)
@pytest.mark.parametrize(
    "when",
    ["", 'when { principal is Lakekeeper::User && principal.source_id == "ann" }', "unless { context.delegated }"],
)
def test_an_acting_role_sheds_no_forbid_of_cedar(who: str, when: str) -> None:
    pdp = pdp_of(cedar=f'forbid({who}resource in Lakekeeper::Namespace::"lake/g") {when};')
    table, other = decide(pdp, check(), check(OTHER))
    assert (table, other[0]) == ((False, "cedar:f"), True)
    spared = 'forbid(principal, action, resource) unless { principal in Lakekeeper::Role::"etl" };'
    assert all(allowed for allowed, _ in decide(pdp_of(cedar=spared), check(), check(OTHER)))


SHAPES: dict[str, Any] = yaml.safe_load((TESTS / "trino_cases" / "shapes" / "operations.yaml").read_text())
BOUND = "'contractor' in groups && "
"""The person of a forbid; without it, the forbid is on everybody."""
CEDAR_PLACES = [
    'resource in Lakekeeper::Namespace::"lake/s"',
    'resource in Lakekeeper::Warehouse::"lake"',
    'resource == Lakekeeper::Table::"lake/s/t"',
]
CEL_PLACES = [
    "path.startsWith('s')", "path == 's.t'", "op.startsWith('trino:')", "warehouse == 'lake'", "op == 'DELETE_ENTITY'",
    "delegated", "op == 'CREATE_ENTITY' && path.startsWith('s2')", "arguments.name == 's'",
]  # fmt: skip


def of_trino(pdp: Pdp, action: dict[str, Any], at: int) -> Check:
    """Return the question of a request of Trino, asked by a person who acts as a role."""
    identity = {"user": "ann", "groups": []}
    body = {"input": {"context": {"identity": identity, "softwareStack": {"trinoVersion": "476"}}, "action": action}}
    decoder = RequestDecoder(pdp, 1000)
    named = decoder.decode(json.dumps(body).encode())
    request = decoder.to_batch_request(TrinoRequest(named, [named.action.resource or ResourceName()]), EMBEDDED_CALLER)
    (check,) = request.checks
    person = msgspec.structs.replace(check.question.principal, groups=("contractor",), attributes='{"level":"low"}')
    return msgspec.structs.replace(check.asking(principal=person, acting_role="etl"), at=(at,))


def trino_permits(pdp: Pdp) -> list[bool]:
    """Return the answers for every shape of a request of Trino, in one batch."""
    checks = [of_trino(pdp, case["action"], at) for at, case in enumerate(SHAPES["cases"])]
    answer = asyncio.run(pdp.check(admit(BatchRequest("trino", len(checks), checks, {}), EMBEDDED_CALLER)))
    return [*map(bool, answer.allowed)]


def test_a_forbid_on_the_person_binds_the_acting_role_in_every_operation_of_trino() -> None:
    """A forbid on the person denies an acting role what the same forbid on everybody denies."""
    asked = {case["action"]["operation"] for case in SHAPES["cases"]}
    assert asked >= TRINO_OPERATIONS.keys() - {"GetRowFilters", "GetColumnMask"}
    free = trino_permits(pdp_of())
    assert sum(free) > 50
    denied = 0
    for place in CEL_PLACES:
        everybody, person = (trino_permits(pdp_of(who + place)) for who in ("", BOUND))
        assert person == everybody, place
        denied += sum(free) - sum(person)
    assert denied > 100
    assert trino_permits(pdp_of("'staff' in groups")) == free
    free = trino_permits(pdp_of(cedar="forbid(principal, action, resource) when { false };"))
    for place in CEDAR_PLACES:
        text = "forbid({}, action, " + place + ");"
        bound = 'principal == Lakekeeper::User::"oidc~ann"'
        everybody, person = (trino_permits(pdp_of(cedar=text.format(who))) for who in ("principal", bound))
        assert person == everybody, place
        assert sum(person) < sum(free)


def test_a_trace_names_the_person() -> None:
    explained = msgspec.structs.replace(batch([check()]), explain=True)
    answer = asyncio.run(pdp_of("'contractor' in groups && path == 'g.t'").check(explained))
    text = str(answer.traces[0])
    assert "read_data on table:lake/g/t@main as role:etl" in text
    assert f"read_data on table:lake/g/t@main as {ANN}" in text


def test_no_more_is_asked_where_nothing_forbids() -> None:
    _, record = decide_and_record(pdp_of(), [check()])
    (decided,) = record.checks
    assert [leaf.group.principal.id for leaf in decided.concrete] == ["role:etl"]
    _, record = decide_and_record(pdp_of(cedar="permit(principal, action, resource);"), [check()])
    assert [leaf.group.principal.id for leaf in record.checks[0].concrete] == ["role:etl"]
    _, record = decide_and_record(pdp_of("path == 'g.t'"), [check(OTHER)])
    asked = [(leaf.group.action, leaf.group.principal.id) for leaf in record.checks[0].concrete]
    assert asked == [("read_data", "role:etl"), ("read_data", ANN), ("assume", ANN)]


def test_the_views_of_owners_are_asked_as_their_owners_alone() -> None:
    pdp = pdp_of("'contractor' in groups && path == 'g.t'")
    (asked,) = batch([check(OTHER)]).checks
    security = Load((ChainView(("g", "v"), owner="oidc~own", engine="t", property="p"),), 1)
    loaded = asked.asking(action="loadTable", view_security=security)
    result = pdp.decide_now(Batch("test", EMBEDDED_CALLER, 1, (loaded,)))
    assert result
    subjects = [(leaf.group.type, leaf.group.principal.id) for leaf in result.record.checks[0].concrete]
    assert subjects.count(("view", ANN)) == subjects.count(("view", "role:etl")) == 2
    assert {who for type, who in subjects if type == "table"} == {"user:oidc~own"}


class Counting:
    """Engine of another package, which forbids one person everything, and notes whom it was asked about."""

    name, digest, cost = "cel", "d", None
    forbids, counts_stored_roles = True, False

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.reads, self.cost, self.applies = engine.reads, engine.cost, engine.applies
        self.asked: list[tuple[str, str | None]] = []

    def decide(self, group: Any, resources: Any, facts: Any) -> Any:
        self.asked.append((group.principal.id, group.question.acting_role))
        verdicts = self._engine.decide(group, resources, facts)
        if group.principal.id != ANN:
            return msgspec.structs.replace(verdicts, by=["cel:yes"] * len(resources))
        return msgspec.structs.replace(verdicts, effects=b"\x02" * len(resources), by=["cel:no"] * len(resources))


def test_an_engine_of_another_package_forbids_the_person() -> None:
    pdp = pdp_of()
    engine: Any = Counting(pdp.bundle.default.engines[0])
    default = msgspec.structs.replace(pdp.bundle.default, engines=(GuardedEngine("cel", engine, "d"),))
    pdp.bundle = msgspec.structs.replace(pdp.bundle, default=default)
    assert outcomes(ask(pdp, batch([check()]))) == [(False, "cel:no")]
    assert engine.asked[:2] == [("role:etl", None), (ANN, "etl")]


@pytest.mark.parametrize("columns_from", [1, 32])
def test_records_decide_again(tmp_path: Path, columns_from: int) -> None:
    run = Run(tmp_path, columns_from)
    config = CONFIG | {"authorities": {"default": {"engines": ["grants"]}}}
    run.load(config, {}, {"f": "('contractor' in groups || 'hr' in roles) && path == 'g.t'"}, {})
    run.write(
        [GrantAdded(Grant(key_from_text(each["object"]), each["privilege"], each["principal"])) for each in GRANTS]
    )
    run.check([check(), check(OTHER)])
    run.check([{**check(), "resources": [TABLE, OTHER]}] if columns_from == 1 else [check(action="get_metadata")])
    found, reading = run.repeat()
    assert not reading.skipped
    assert found.checks > 2
    assert not found
