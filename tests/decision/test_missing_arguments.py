"""Checks that do not name what they make or move: policies on the path of that deny, grants decide as before.

Every action that takes a name or a destination, against every kind of policy, with the argument missing, null, empty,
misspelt or given.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clients.grpc_messages import check_message
from support.clients.http_client import client_of
from support.clients.rpc_clients import ConnectClient, GrpcClient
from support.generators.generated_pdps import decide
from support.generators.recorded_runs import Run
from support.oracles.table_rows import TableArchive, folder_records, table_rows
from support.oracles.trino_wants import asking
from support.paths import ROOT, TESTS
from support.service.caches import with_cache
from support.service.serving import settings_of

from pdp.app.archived_bundle import rebuild_pdp
from pdp.app.facts import build_pdp
from pdp.decision.service import Pdp
from pdp.engines.cedar.actions import CEDAR_ACTIONS
from pdp.facts.objects import Grant, GrantAdded
from pdp.model.answer import MISSING_ARGUMENT, Answer
from pdp.model.vocabulary import ARGUMENTS, CREATE_ACTION, RENAMES
from pdp.offline.cases.cases import Case
from pdp.offline.cases.runner import MemoryAudit, build_case_pdp
from pdp.offline.replay.table_replay import RowQuestion, TableReplay
from pdp.surfaces.wire import decision_pb2 as wire

ANN = "user:oidc~ann"
WORLD = {
    "objects": ["project:p", {"object": "warehouse:lake", "parent": "project:p"}],
    "grants": [
        {"principal": ANN, "privilege": privilege, "object": place}
        for privilege, place in (("ownership", "warehouse:lake"), ("project_admin", "project:p"), ("admin", "server"))
    ],
}
CASES = sorted(key for key in ARGUMENTS if key[0] != "warehouse" or key[1] == "create_namespace")
"""Actions that grants know: the types below a warehouse are made in a namespace."""
ON_PATHS = [key for key in CASES if key[0] not in ("server", "project")]
SOURCES = {"server": "server", "project": "project:p", "warehouse": "warehouse:lake", "namespace": "namespace:lake/eng"}
CEDAR = "Lakekeeper"


def place(type: str) -> str:
    return SOURCES.get(type, f"{type}:lake/eng/t")


def named(type: str, action: str, top: str = "eng") -> dict[str, Any]:
    """Return arguments that name what an action makes or moves, below the namespace `top`."""
    if action not in RENAMES:
        return {"name": "fresh"}
    target = "table" if type == "table_or_view" else type
    return {"destination": f"{target}:lake/{top}/fresh"}


ABSENT: list[dict[str, Any]] = [{}, {"name": None}, {"destination": None}, {"table": "t"}, {"newName": "t", "x": [1]}]
"""Arguments without any name of what is made or moved."""


def arguments_of(values: Sequence[Any], *names: str) -> list[dict[str, Any]]:
    """Return arguments of one name and value each."""
    return [{name: value} for name in names for value in values]


_NAMES = ("nam", "names", "Name", "NAME", "nmae", "naem", " name", "namee", "name ")
_DESTINATIONS = ("destinaton", "Destination", "destinations", "destnation", "desintation")
WRONG: dict[str, list[dict[str, Any]]] = {
    "name": [*arguments_of(["", 1, ["t"]], "name"), *arguments_of(["t"], *_NAMES)],
    "destination": [
        *arguments_of(["", {}, 1, "lake/eng/u"], "destination"),
        *arguments_of(["table:lake/eng/u"], *_DESTINATIONS),
    ],
}
"""Argument -> wrong values, and misspelt names."""


def check(type: str, action: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {"principal": ANN, "action": action, "resource": place(type), "context": {"arguments": arguments}}


def pdp_of(engines: Iterable[str] = ("grants",), **policies: Any) -> Pdp:
    config = {
        "warehouses": {"lake": {"project": "p", "default_ref": "main"}},
        "authorities": {"default": {"engines": list(engines)}},
    }
    data = {"config": config, "world": WORLD, **policies}
    return build_case_pdp(Case("generated", TESTS, data), build_pdp, MemoryAudit())[0]


def cedar_pdp(condition: str, resource: str = "resource", action: str = "action") -> Pdp:
    text = f'@id("lock") forbid(principal, {action}, {resource}) {condition};'
    return pdp_of(("cedar", "grants"), cedar={"policies": text})


def answers(pdp: Pdp, checks: list[dict[str, Any]]) -> list[tuple[bool, str | None, tuple[str, ...]]]:
    """Decide checks one by one, twice, and as one batch in both orders, with and without a cache: all agree."""
    alone = [[_entry(decide(pdp, [each]), 0) for each in checks] for _ in range(2)]
    found = alone[0]
    batches = [decide(with_cache(pdp), checks), decide(pdp, checks)]
    pdp.cache = None
    backwards = decide(pdp, checks[::-1])
    together = [[_entry(batch, at) for at in range(len(checks))] for batch in batches]
    assert [*alone, *together, [_entry(backwards, at) for at in range(len(checks))][::-1]] == [found] * 5
    return found


def _entry(answer: Answer, at: int) -> tuple[bool, str | None, tuple[str, ...]]:
    return bool(answer.allowed[at]), answer.by[at], tuple(answer.errors.get(at, ()))


LOCKS = {"lock": "op == 'CREATE_ENTITY' && path.startsWith('hr.')"}
UNNAMED = [check(*key, arguments) for key in ON_PATHS for arguments in ABSENT]


def test_a_forbid_on_the_path_denies_what_is_not_named() -> None:
    given_names = [check(*key, named(*key, top)) for key in ON_PATHS for top in ("eng", "hr")]
    found = answers(pdp_of(forbid=LOCKS), [*UNNAMED, *given_names])
    assert {(allowed, by, errors) for allowed, by, errors in found[: len(UNNAMED)]} == {
        (False, "cel:lock", ("lock", MISSING_ARGUMENT))
    }
    moves = [key[1] in RENAMES for key in ON_PATHS for _ in "eh"]
    for at, (allowed, _, errors) in enumerate(found[len(UNNAMED) :]):
        assert (allowed, errors) == (not (moves[at] and at % 2), ()), given_names[at]


@pytest.mark.parametrize(
    "rule",
    ["role == 'bob'", "op == 'DELETE_ENTITY' && path == 'hr.x'", "path == 'hr.x' && role == 'bob'", "warehouse == 'pond' && path != ''"],
)  # fmt: skip
def test_a_forbid_that_other_variables_decide_leaves_what_is_not_named(rule: str) -> None:
    assert all(allowed for allowed, _, _ in answers(pdp_of(forbid={"lock": rule}), UNNAMED))


def test_grants_alone_decide_as_before() -> None:
    checks = [check(*key, arguments) for key in CASES for arguments in ABSENT]
    for allowed, by, errors in answers(pdp_of(), checks):
        assert (allowed, errors) == (True, ())
        assert str(by).startswith("grants:")


def test_a_permit_on_the_path_is_silent() -> None:
    view = "op in ['VIEW_REFERENCE', 'COMMIT_CHANGE_AGAINST_REFERENCE', 'DELETE_ENTITY']"
    pdp = pdp_of(("cel",), rules={"all": view, "eng": "op == 'CREATE_ENTITY' && path.startsWith('eng')"})
    assert set(answers(pdp, UNNAMED)) == {(False, None, ("eng", MISSING_ARGUMENT))}
    open_pdp = pdp_of(("cel",), rules={"all": view, "new": "op == 'CREATE_ENTITY' || path == 'eng'"})
    assert {allowed for allowed, _, _ in answers(open_pdp, UNNAMED)} == {True}


ATTRIBUTES = {"create_project": "project_name", "create_generic_table": "generic_table_name"}
IN_CEDAR = {
    key: ATTRIBUTES.get(key[1], f"{key[1].removeprefix('create_')}_name")
    for key in CASES
    if key[1] not in RENAMES and "dataset" not in key[1]
}


@pytest.mark.parametrize("key", sorted(IN_CEDAR))
def test_a_cedar_forbid_on_a_name_denies_what_is_not_named(key: tuple[str, str]) -> None:
    attribute = IN_CEDAR[key]
    action = f'action == {CEDAR}::Action::"{CEDAR_ACTIONS[key[1], key[0]]}"'
    checks = [check(*key, arguments) for arguments in [*ABSENT, {"name": "fresh"}, {"name": "pay"}]]
    wanted = [(False, "cedar:lock", ("lock", MISSING_ARGUMENT))] * len(ABSENT) + [True, False]
    for condition in (
        f'when {{ context has {attribute} && context.{attribute} == "pay" }}',
        f'when {{ context has {attribute} && context["{attribute}"] like "pa*" }}',
        f'unless {{ !(context has {attribute} && context.{attribute} == "pay") }}',
    ):
        found = answers(cedar_pdp(condition, action=action), checks)
        assert [each if each[2] else each[0] for each in found] == wanted, condition
    beside = (
        f'when {{ context has {attribute} && context.{attribute} == "pay" && principal == {CEDAR}::User::"oidc~b" }}'
    )
    assert all(allowed for allowed, _, _ in answers(cedar_pdp(beside, action=action), checks))


PLACES = [
    ("", f'resource in {CEDAR}::Namespace::"lake/hr"'),
    (f'when {{ resource in {CEDAR}::Namespace::"lake/hr" }}', "resource"),
    ('when { resource.name == "hr" }', f"resource is {CEDAR}::Namespace"),
    (f'unless {{ resource != {CEDAR}::Namespace::"lake/hr" }}', f"resource is {CEDAR}::Namespace"),
    ("", f'resource is {CEDAR}::Namespace in {CEDAR}::Namespace::"lake/hr"'),
    ("", f'resource in {CEDAR}::Namespace//c\n::"lake/hr"'),
    ("", f'resource in {CEDAR}//c\r::// d\r\nNamespace // e\r\n :: // f\n"lake/hr"'),
    ("", f'resource is {CEDAR}::Namespace // resource\n in {CEDAR}::Namespace //c\r::"lake/hr"'),
    (f'when {{ resource//c\n in {CEDAR}::Namespace//c\n::"lake/hr" }}', "resource"),
]
ELSEWHERE = [
    ("", f'resource in {CEDAR}::Namespace::"pond/hr"'),
    ("", f'resource in {CEDAR}::Warehouse::"pond"'),
    (f'when {{ resource in {CEDAR}::Warehouse::"pond" }}', "resource"),
    (f'when {{ principal == {CEDAR}::User::"oidc~bob" && resource in {CEDAR}::Namespace::"lake/hr" }}', "resource"),
]


@pytest.mark.parametrize("condition", [*PLACES, *ELSEWHERE])
def test_a_cedar_forbid_on_a_place_denies_what_has_no_destination(condition: tuple[str, str]) -> None:
    keys = [("table", "rename"), ("view", "move"), ("generic_table", "rename"), ("table_or_view", "move")]
    pdp = cedar_pdp(*condition)
    for allowed, by, errors in answers(pdp, [check(*key, arguments) for key in keys for arguments in ABSENT[:2]]):
        denied = (False, "cedar:lock", ("lock", MISSING_ARGUMENT))
        assert (allowed, by, errors) == denied if condition in PLACES else allowed
    assert all(allowed for allowed, _, _ in answers(pdp, [check(*key, named(*key)) for key in keys]))


def row_policies(grantee: str, table: str) -> dict[str, Any]:
    filter = "TRUE" if grantee == "user:ann" else "x = 1"
    return {"policies": [{"id": "rows", "table": table, "grantees": [grantee], "filter": filter}]}


@pytest.mark.parametrize("table", ["lake.eng.pay", "lake.hr.pay", "lake.eng.deep.pay"])
def test_row_policies_that_may_name_it_deny(table: str) -> None:
    """A rename may lead to any table of the warehouse, a creation to those of its container."""
    hidden = pdp_of(policies=row_policies("user:bob", table))
    shown = pdp_of(policies=row_policies("user:ann", table))
    assert all(allowed for allowed, _, _ in answers(shown, UNNAMED))
    for each, found in zip(UNNAMED, answers(hidden, UNNAMED), strict=True):
        type = each["resource"].partition(":")[0]
        is_rename = each["action"] in RENAMES
        below = table.startswith("lake.eng.")
        if each["action"] == CREATE_ACTION["namespace"]:
            is_denied = below or type == "warehouse"
        else:
            is_denied = is_rename or table == "lake.eng.pay"
        assert found[0] is not is_denied, (each, table)
        if is_denied and not (type == "namespace" and is_rename):
            assert found[1:] == (MISSING_ARGUMENT, (MISSING_ARGUMENT,))


@pytest.mark.parametrize("key", CASES)
def test_wrong_and_misspelt_arguments_are_refused(key: tuple[str, str]) -> None:
    argument = ARGUMENTS[key]
    pdp = pdp_of()
    wrong = [check(*key, arguments) for arguments in WRONG[argument]]
    answer = decide(pdp, wrong)
    assert not any(answer.allowed)
    for at, each in enumerate(wrong):
        rejected = answer.rejected[at]
        assert rejected.code == "invalid_argument", each
        (name,) = each["context"]["arguments"]
        if name != argument:
            assert rejected.message == f"`context.arguments.{name}` is unknown: write `{argument}`"
    assert decide(pdp, [check(*key, named(*key) | {"table": "t", "nmae": 1})]).allowed == b"\1"


VALUES = {"path == 'hr.fresh'": None, "role == 'ann'": True, "op == 'CREATE_ENTITY'": True, "path != ''": None, "false": False}  # fmt: skip
"""Part of a rule -> the value for a creation without a name; None if the part raises."""


@given(
    st.lists(st.tuples(st.sampled_from(ON_PATHS), st.sampled_from([None, "eng", "hr"])), min_size=1, max_size=6),
    st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=3),
    st.booleans(),
)  # fmt: skip
def test_three_valued_logic_says_who_is_denied(asked: list[Any], parts: list[str], every: bool) -> None:
    """A conjunction or disjunction over an unknown path: what is not certainly false denies."""
    pdp = pdp_of(forbid={"lock": (" && " if every else " || ").join(parts)})
    checks = [check(type, action, named(type, action, top) if top else {}) for (type, action), top in asked]
    # the values for the creation behind an action; the other checks behind it have a path
    values = [VALUES[part] for part in parts]
    is_false = False in values if every else set(values) == {False}
    for (_, top), (allowed, _, _) in zip(asked, answers(pdp, checks), strict=True):
        if top is None:
            assert allowed is is_false, parts


async def test_every_protocol_decides_the_same(tmp_path: Path) -> None:
    (tmp_path / "forbid.yaml").write_text(json.dumps({"rules": LOCKS}))
    (tmp_path / "seed.json").write_text(json.dumps(WORLD))
    config = {
        "warehouses": {"lake": {"project": "p", "default_ref": "main"}},
        "authorities": {"default": {"engines": ["grants"]}},
        "policies": {"rules": [], "forbid": ["forbid.yaml"]},
        "store": {"url": f"sqlite:///{tmp_path}/pdp.db", "seed": "seed.json"},
    }
    checks = [*UNNAMED, *(check(*key, {"nmae": "t", "destinaton": "u"}) for key in ON_PATHS)]
    checks += [check(*key, named(*key)) for key in ON_PATHS]
    wanted = [False] * (len(checks) - len(ON_PATHS)) + [True] * len(ON_PATHS)
    async with client_of(settings_of(config, tmp_path)) as http:
        status, answer = await http.check(*checks)
        assert (status, [each["allowed"] for each in answer["decisions"]]) == (200, wanted)
        assert [MISSING_ARGUMENT in each.get("errors", ()) for each in answer["decisions"]] == [
            at < len(UNNAMED) for at in range(len(checks))
        ]
        request = wire.CheckRequest(checks=[check_message(each) for each in checks])
        async with grpc.aio.insecure_channel(http.service.addresses["grpc"]) as channel:
            for client in (GrpcClient(channel), ConnectClient(http, json=True), ConnectClient(http, json=False)):
                found = await client.call("Check", request)
                assert [each.allowed for each in found.decisions] == wanted
        listing = {"principal": ANN, "action": "create_table", "type": "namespace", "container": "warehouse:lake"}
        assert (await http.post("/v1/objects", {"put": ["namespace:lake/eng"]}))[0] == 200
        assert (await http.post("/v1/list", listing))[1]["objects"] == []
        put = {"actor": ANN, "put": ["table:lake/eng/free"]}
        assert (await http.post("/v1/objects", put))[0] == 200, "an edit names its object"
        move = {"actor": ANN, "move": [{"from": "table:lake/eng/free", "to": "table:lake/hr/free"}]}
        assert (await http.post("/v1/objects", move))[0] == 403


@pytest.mark.parametrize(
    "target", [None, {}, {"table": None}, {"schema": {"catalogName": "lakehouse", "schemaName": "s"}}]
)
async def test_a_rename_of_trino_without_a_target_is_denied(target: Any, tmp_path: Path) -> None:
    world = {
        "config": {
            "warehouses": {"lake": {"default_ref": "main"}},
            "authorities": {"default": {"engines": ["grants"]}},
            "trino": {"catalogs": {"lakehouse": {"warehouse": "lake", "ref": "main"}}},
        },
        "world": WORLD | {"grants": [{"principal": "user:oidc~ann", "privilege": "ownership", "object": "warehouse:lake"}]},
    }  # fmt: skip
    table = {"catalogName": "lakehouse", "schemaName": "s", "tableName": "t"}
    async with asking(world, tmp_path) as ask:
        for operation in ("RenameTable", "RenameView", "RenameMaterializedView"):
            action = {"operation": operation, "resource": {"table": table}, "targetResource": target}
            identity = {"user": "ann", "groups": []}
            body = {
                "input": {"context": {"identity": identity, "softwareStack": {"trinoVersion": "476"}}, "action": action}
            }
            assert (await ask("allow", body)).get("result") is not True
            action["targetResource"] = {"table": {**table, "tableName": "u"}}
            assert (await ask("allow", body))["result"] is True


def recorded(folder: Path, columns_from: int) -> Run:
    run = Run(folder, columns_from)
    run.load({}, {}, {}, [])
    run.write([GrantAdded(Grant(("warehouse", ("w",)), "ownership", "user:oidc~a"))])
    run.load({}, LOCKS, {}, [])
    shared = {"principal": "user:oidc~a"}
    run.check([{**shared, "action": "create_table", "resource": f"namespace:w/n{at}"} for at in range(3)])
    run.check([{**shared, "action": "create_table", "resources": ["namespace:w/n", "namespace:w/m"]}])
    run.check([{**shared, "action": action, "resource": "table:w/n/t"} for action in ("rename", "move", "read_data")])
    run.check([{**shared, "action": "rename", "resource": "table_or_view:w/n/t"}])
    run.check([{**shared, "action": "move", "resource": "namespace:w/n"}])
    run.check(
        [{**shared, "action": "create_table", "resource": "namespace:w/n", "context": {"arguments": {"name": "t"}}}]
    )
    return run


@pytest.mark.parametrize("columns_from", [1, 1000])
def test_records_are_decided_again_as_they_were(columns_from: int, tmp_path: Path) -> None:
    run = recorded(tmp_path, columns_from)
    found, reading = run.repeat()
    assert (found.totals, reading.skipped) == ({}, {})
    results = TableReplay(TableArchive(tmp_path), rebuild_pdp).decide(
        RowQuestion(row, 1) for record in folder_records(tmp_path) for row in table_rows(record)
    )
    assert {result.kind for result in results} == {"same"}


@pytest.mark.parametrize("columns_from", [1, 1000])
def test_records_of_older_versions_are_decided_again_as_they_were(columns_from: int, tmp_path: Path) -> None:
    """An older version took the container for the path, and wrote no `missing`."""
    run = recorded(tmp_path, columns_from)
    file = tmp_path / "decisions-i.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    permit = "grants:ownership on warehouse:w via user:oidc~a"
    changed = 0
    for line in (line for line in lines if line["event"] == "decision"):
        missing = [
            entry for part in ("checks", "requests") for entry in line.get(part, ()) if entry.pop("missing", None)
        ]
        # the plan had no creation at an unknown place
        line["checks"] = [
            entry for entry in line["checks"] if entry["by"] != ["rule:unknown_destination"] or entry in missing
        ]
        for entry in missing:
            count = len(entry["allowed"]) if isinstance(entry["allowed"], str) else 0
            entry.update(
                {"allowed": "1" * count, "reasons": [permit], "by": [0] * count, "errors": {}}
                if count
                else {"allowed": True, "by": [permit], "errors": []}
            )
            changed += count or 1
    assert changed >= 9
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found, reading = run.repeat()
    assert (found.totals, reading.skipped) == ({}, {})


def test_the_page_lists_the_actions_that_take_an_argument() -> None:
    page = (ROOT / "docs" / "checks.md").read_text()
    rows = [line.split("|") for line in page.splitlines() if line.startswith(("| `name` |", "| `destination` |"))]
    named = {argument.strip(" `"): {*re.findall(r"`([a-z_]+)`", actions)} for _, argument, _, actions, _ in rows}
    assert named == {
        argument: {action for (_, action), each in ARGUMENTS.items() if each == argument}
        | ({"table_or_view"} if argument == "destination" else set())
        for argument in ("name", "destination")
    }
