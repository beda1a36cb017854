"""Asking about others, what answers show, instance admins, and roles that tokens bring."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.authentication import ORDERS, PEOPLE, ask, oidc, post, service_of, users
from support.oracles.audit_files import audit_records
from support.servers.idp import Provider, provider, token

from pdp.app.assembly import read_rules
from pdp.app.facts import build_pdp
from pdp.app.service import Service
from pdp.audit.reader import read_audit
from pdp.audit.records.recorded import ReadReport
from pdp.audit.records.rows import rows
from pdp.config.load import make_settings
from pdp.decision.active_policies import Authority
from pdp.decision.codec import decode_checks
from pdp.decision.service import Pdp
from pdp.engines.engine import READS_POLICIES, Cost
from pdp.facts.snapshot import Facts
from pdp.identity.callers import EMBEDDED_CALLER
from pdp.identity.evidence import admit, admit_check
from pdp.model.answer import Rejection
from pdp.model.question import Caller, Check, Principal, Question, Resource
from pdp.offline.cases.runner import MemoryAudit

READ = {"action": "read_data", "resource": ORDERS}
AS_BOB = {"principal": "user:oidc~bob", **READ}
SEES = {"action": "get_metadata", "resource": ORDERS}
CAROL = {"sub": "carol"}
NOBODY = {"sub": "mallory"}


@pytest.fixture
async def idp() -> AsyncIterator[Provider]:
    async with provider() as idp:
        yield idp


def codes(decisions: list[dict[str, Any]]) -> list[str]:
    return [decision["error"]["code"] if "error" in decision else "" for decision in decisions]


# --- asking about others ------------------------------------------------------------------------------------------


async def test_who_may_read_an_objects_grants_may_ask_about_others_on_it(tmp_path: Path) -> None:
    elsewhere = {**AS_BOB, "resource": PEOPLE}
    async with users(tmp_path) as service:
        carol = await ask(service, token(**CAROL), AS_BOB, elsewhere, READ, AS_BOB)
        alice = await ask(service, token(), AS_BOB, elsewhere, READ)
        mallory = await ask(service, token(**NOBODY), AS_BOB)
    assert [decision["allowed"] for decision in carol] == [True, False, False, True]
    assert codes(carol) == ["", "assertion_not_allowed", "", ""]
    assert carol[0]["by"] == ["grants:select on namespace:lake/sales via user:oidc~bob"]
    assert codes(alice) == ["assertion_not_allowed", "assertion_not_allowed", ""]
    assert [decision["allowed"] for decision in alice] == [False, False, True]
    assert codes(mallory) == ["assertion_not_allowed"]
    assert mallory[0]["by"] == ["invalid_check"]


async def test_who_may_list_users_may_ask_what_others_may_do_to_them(tmp_path: Path) -> None:
    about = {**AS_BOB, "action": "update", "resource": "user:oidc~alice"}
    async with users(tmp_path) as service:
        assert codes(await ask(service, token(sub="sam"), about)) == [""]
        assert codes(await ask(service, token(**CAROL), about)) == ["assertion_not_allowed"]


async def test_nobody_asks_about_others_where_that_is_denied(tmp_path: Path) -> None:
    async with users(tmp_path, identity={"inspect": "deny"}) as service:
        assert codes(await ask(service, token(**CAROL), AS_BOB)) == ["assertion_not_allowed"]


@pytest.mark.parametrize(
    ("check", "asked"),
    [
        ({"principal": "role:auditor", **READ}, True),
        ({"principal": "anonymous", **READ}, True),
        ({**AS_BOB, "action": "READ_ENTITY_VALUE", "resource": "content:lake/sales/orders@main"}, True),
        ({**AS_BOB, "resource": "table_or_view:lake/sales/orders"}, True),
        ({**AS_BOB, "action": "get_metadata", "resource": "namespace:lake/sales"}, True),
        ({**AS_BOB, "action": "get_metadata", "resource": "warehouse:lake"}, False),
        ({**AS_BOB, "action": "VIEW_REFERENCE", "resource": "reference:lake@main"}, False),
        ({**AS_BOB, "action": "READ_REPOSITORY_CONFIG", "resource": "repository_config:lake/GC"}, False),
        ({**AS_BOB, "action": "list_users", "resource": "server"}, False),
        ({**AS_BOB, "action": "read", "resource": "user:oidc~alice"}, False),
        ({**AS_BOB, "action": "read", "resource": "role:analyst"}, True),
        ({**AS_BOB, "action": "trino:ExecuteFunction", "resource": {"type": "function", "warehouse": "k", "path": ["s", "f"]}}, False),
        ({**AS_BOB, "actingRole": "role:analyst"}, True),
        ({**AS_BOB, "action": "read", "resource": "role:elsewhere"}, False),
        ({**AS_BOB, "actingRole": "role:elsewhere"}, False),
        ({**AS_BOB, "delegated": True}, False),
        ({"principal": {"id": "user:oidc~bob", "roles": ["analyst"]}, **READ}, False),
        ({**AS_BOB, "action": "rename", "context": {"arguments": {"destination": "table:lake/hr/orders"}}}, False),
    ],
    ids=str,
)  # fmt: skip
async def test_what_it_takes_to_ask_about_others(tmp_path: Path, check: dict[str, Any], asked: bool) -> None:
    async with users(tmp_path) as service:
        body = json.dumps({"checks": [check]}).encode()
        decision = (await over_http(service, body, token(**CAROL)))[0]
    assert ("error" in decision) != asked
    if not asked:
        assert decision["error"]["code"] == "assertion_not_allowed"


async def over_http(service: Service, body: bytes, bearer: str) -> list[dict[str, Any]]:
    status, _, reply = await post(service, json.loads(body), headers={"Authorization": f"Bearer {bearer}"})
    assert status == 200
    decisions: list[dict[str, Any]] = reply["decisions"]
    return decisions


async def test_an_inspection_is_recorded_with_what_was_refused(idp: Provider, tmp_path: Path) -> None:
    async with service_of(tmp_path, idp) as service:
        await ask(service, token(**CAROL), AS_BOB, {**AS_BOB, "resource": PEOPLE})
    record = audit_records(tmp_path)[0]
    assert record["caller"] == "user:oidc~carol"
    assert record["inputs"]["inspected"] is True
    assert [row["allowed"] for row in record["checks"]] == [True, False]
    assert record["checks"][1]["error"]["code"] == "assertion_not_allowed"
    again = list(read_audit(tmp_path / "audit", ReadReport()))
    assert {found.check.question.inspected for found in again} == {True}


# --- what answers show --------------------------------------------------------------------------------------------


async def test_reasons_are_for_those_who_may_read_the_grants(idp: Provider, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(
        json.dumps(
            {"rules": {"hidden_rule": "op == 'READ_ENTITY_VALUE' && int(role) > 0", "key": "op != 'READ_ENTITY_VALUE'"}}
        )
    )
    asked = [
        {**READ, "resource": f"{ORDERS}@main"},
        {**READ, "resource": f"{PEOPLE}@main"},
        {"action": "include_in_list", "resource": f"{PEOPLE}@main"},
    ]
    providers = {"providers": {"oidc": oidc(idp)}}
    callers = {"callers": {"svc": {"bearer": {"idp": "oidc", "subjects": ["svc"]}, "may_assert": ["principals"]}}}
    async with service_of(tmp_path, policies={"rules": ["rules.yaml"]}, identity=providers | callers) as service:
        alice = await ask(service, token(), *asked, explain=True)
        full = await ask(
            service, token(sub="svc"), *({"principal": "user:oidc~alice", **c} for c in asked), explain=True
        )
        carol = await ask(service, token(**CAROL), {"principal": "user:oidc~alice", **asked[0]}, explain=True)
    assert [decision["by"] for decision in alice] == [["grants"], ["denied"], ["cel"]]
    assert [decision["errors"] for decision in alice] == [[], [], []]
    assert not any("trace" in decision for decision in alice)
    assert full[0]["by"] == [f"grants:select on {ORDERS} via user:oidc~alice"]
    assert full[1]["errors"] == ["hidden_rule"]
    assert full[2]["by"] == ["cel:key"]
    assert all("trace" in decision for decision in full)
    assert carol[0]["by"] == full[0]["by"]
    assert "trace" in carol[0]
    for text in ("hidden_rule", "user:oidc", "on table"):
        assert text not in json.dumps(alice)


# --- instance admins ----------------------------------------------------------------------------------------------

ADMIN = "config:identity.instance_admins"
ROOT = {"identity": {"instance_admins": ["user:oidc~root"]}}
CONTROL: list[dict[str, Any]] = [
    {"action": "get_metadata", "resource": PEOPLE},
    {"action": "drop", "resource": PEOPLE},
    {"action": "create_project", "resource": "server"},
    {"action": "read_assignments", "resource": PEOPLE},
    {"action": "get_metadata", "resource": "view:lake/hr/v"},
    {"action": "rename", "resource": PEOPLE, "context": {"arguments": {"destination": "table:lake/sales/people"}}},
]
DATA: list[dict[str, Any]] = [
    {"action": "read_data", "resource": PEOPLE},
    {"action": "write_data", "resource": PEOPLE},
    {"action": "select", "resource": "view:lake/hr/v"},
    {"action": "read_data", "resource": "generic_table:lake/hr/g"},
    {"action": "read_data", "resource": "table_or_view:lake/hr/people"},
    {"action": "READ_ENTITY_VALUE", "resource": "content:lake/hr/people@main"},
    {"action": "no_such_action", "resource": PEOPLE},
]


async def decide(folder: Path, config: dict[str, Any], *checks: dict[str, Any]) -> list[tuple[bool, str]]:
    """Decisions in this process, for the embedded caller."""
    settings = make_settings({"policies": {"rules": []}, **config}, folder)
    batch = admit(decode_checks([json.dumps(check).encode() for check in checks]).request("test"), EMBEDDED_CALLER)
    answer = await build_pdp(settings, Facts.empty(), read_rules(settings)).check(batch)
    return [(decision.allowed, decision.by[0]) for decision in map(answer.decision, range(len(checks)))]


async def test_an_instance_admin_passes_the_control_plane_alone(tmp_path: Path) -> None:
    root = {"principal": "user:oidc~root"}
    control = await decide(tmp_path, ROOT, *({**check, **root} for check in CONTROL))
    assert control == [(True, ADMIN)] * len(CONTROL)
    data = await decide(tmp_path, ROOT, *({**check, **root} for check in DATA))
    assert [allowed for allowed, _ in data] == [False] * len(DATA)


@pytest.mark.parametrize(
    "change",
    [
        {"principal": "user:oidc~Root"},
        {"principal": "user:other~root"},
        {"principal": "role:root"},
        {"delegated": True},
        {"actingRole": "role:analyst"},
        {"action": "trino:CreateViewWithSelectFromColumns"},
    ],
    ids=str,
)
async def test_nobody_is_an_instance_admin_by_another_name_or_for_others(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    check = {"principal": "user:oidc~root", **CONTROL[0], **change}
    assert not (await decide(tmp_path, ROOT, check))[0][0]


async def test_under_a_role_that_it_may_assume_an_instance_admin_has_that_roles_rights_alone(tmp_path: Path) -> None:
    drop = {"principal": "user:oidc~alice", "action": "drop", "resource": PEOPLE}
    async with service_of(tmp_path, identity={"instance_admins": ["user:oidc~alice"]}) as service:
        itself, as_role, sees = await ask(
            service,
            None,
            drop,
            {**drop, "actingRole": "role:auditor"},
            {**drop, "actingRole": "role:auditor", "action": "get_metadata"},
        )
    assert itself["by"] == [ADMIN]
    assert (as_role["allowed"], as_role["by"]) == (False, ["default_deny"])
    assert sees["by"] == ["grants:describe on namespace:lake/hr via role:auditor"]


async def test_without_the_setting_nobody_is_one(tmp_path: Path) -> None:
    check = {"principal": "user:oidc~root", **CONTROL[0]}
    assert not (await decide(tmp_path, {}, check))[0][0]
    assert (await decide(tmp_path, {"identity": {"instance_admins": ["oidc~root"]}}, check))[0] == (True, ADMIN)


async def test_a_forbid_binds_instance_admins_too(tmp_path: Path) -> None:
    (tmp_path / "forbid.yaml").write_text(
        json.dumps({"rules": {"frozen": "path.startsWith('hr.') && op == 'DELETE_ENTITY'"}})
    )
    config = {**ROOT, "policies": {"rules": [], "forbid": ["forbid.yaml"]}}
    root = {"principal": "user:oidc~root"}
    asked = [{"action": action, "resource": f"{PEOPLE}@main", **root} for action in ("drop", "get_metadata")]
    assert await decide(tmp_path, config, *asked) == [(False, "cel:frozen"), (True, ADMIN)]


def forbidding(folder: Path) -> tuple[Pdp, MemoryAudit]:
    """A service that forbids to drop what is in hr, and its audit."""
    (folder / "forbid.yaml").write_text(
        json.dumps({"rules": {"frozen": "path.startsWith('hr.') && op == 'DELETE_ENTITY'"}})
    )
    settings = make_settings({**ROOT, "policies": {"rules": [], "forbid": ["forbid.yaml"]}}, folder)
    recorder = MemoryAudit()
    return build_pdp(settings, Facts.empty(), read_rules(settings), recorder), recorder


async def test_a_pass_beside_a_forbid_is_one_row_and_one_node_of_the_trace(tmp_path: Path) -> None:
    pdp, recorder = forbidding(tmp_path)
    checks = [
        {"action": action, "resource": f"{PEOPLE}@main", "principal": "user:oidc~root"}
        for action in ("drop", "get_metadata")
    ]
    batch = admit(
        decode_checks([json.dumps(check).encode() for check in checks]).request("test", explain=True), EMBEDDED_CALLER
    )
    answer = await pdp.check(batch)
    (record,) = recorder.records
    assert "requests" not in record
    assert [(row["allowed"], row["by"]) for row in rows(record)] == [(False, ["cel:frozen"]), (True, [ADMIN])]
    for at, (outcome, why) in enumerate((("forbid", "cel:frozen"), ("permit", ADMIN))):
        trace = answer.traces[at]
        assert (trace.outcome, trace.why) == (outcome, f"{why} (any of authority default)")
        assert (trace.parts[0].what, trace.parts[0].why) == ("instance admin", ADMIN)


@pytest.mark.parametrize("combine", ["any", "all"])
async def test_a_pass_needs_no_other_permit_and_gives_way_to_a_failure(tmp_path: Path, combine: Any) -> None:
    pdp, _ = forbidding(tmp_path)
    check = json.dumps({**CONTROL[0], "principal": "user:oidc~root"}).encode()
    batch = admit(decode_checks([check]).request("test"), EMBEDDED_CALLER)
    engines = pdp.bundle.default.engines
    pdp.bundle = msgspec.structs.replace(pdp.bundle, default=Authority("default", (*engines, *engines), combine))
    assert (await pdp.check(batch)).by == [ADMIN]

    class Broken:
        name = "broken"
        digest = ""
        forbids = counts_stored_roles = True
        reads = READS_POLICIES
        cost = Cost.MICROSECONDS

        def applies(self, action: str, type: str) -> bool:
            return True

        def decide(self, group: Any, resources: Any, facts: Any) -> Any:
            raise ValueError("injected")

    broken: Any = Broken()
    pdp.bundle = msgspec.structs.replace(pdp.bundle, default=Authority("default", (*engines, broken), combine))
    answer = await pdp.check(batch)
    assert (answer.allowed, answer.by) == (b"\0", ["broken:failed"])


async def test_somebody_who_asks_about_an_instance_admin_passes_nothing(tmp_path: Path) -> None:
    identity = {"instance_admins": ["user:oidc~bob", "user:oidc~root"]}
    async with users(tmp_path, identity=identity) as service:
        about = {**AS_BOB, "action": "drop"}
        carol = await ask(service, token(**CAROL), about, AS_BOB)
        bob = await ask(service, token(sub="bob"), {"action": "drop", "resource": ORDERS}, about)
        root = await ask(service, token(sub="root"), {**AS_BOB, "resource": PEOPLE}, {**about, "resource": PEOPLE})
    assert [decision["allowed"] for decision in carol] == [False, True]
    assert [decision["by"] for decision in bob] == [[ADMIN]] * 2
    assert [decision["allowed"] for decision in root] == [False, False]
    assert codes(root) == ["", ""]


# --- roles that tokens bring --------------------------------------------------------------------------------------


async def test_token_roles_are_memberships_by_the_providers_map_alone(idp: Provider, tmp_path: Path) -> None:
    reads = {"action": "read_data", "resource": PEOPLE}
    sent = {"roles": ["kc-analyst", "analyst", "kc-other"]}
    async with service_of(tmp_path, idp) as service:
        assert not (await ask(service, token(sub="dave", **sent), reads))[0]["allowed"]
    providers = {"oidc": oidc(idp, role_map={"kc-analyst": "analyst", "unheld": "auditor"})}
    async with service_of(tmp_path, identity={"providers": providers}) as service:
        held, assumed, other = await ask(
            service,
            token(sub="dave", **sent),
            reads,
            {**reads, "actingRole": "role:analyst"},
            {**reads, "actingRole": "role:auditor"},
        )
        without = await ask(service, token(sub="dave", roles=["analyst"]), reads)
        groups = await ask(service, token(sub="dave", groups=["kc-analyst"]), reads)
    assert held["allowed"]
    assert assumed["allowed"]
    assert not other["allowed"]
    assert not without[0]["allowed"]
    assert not groups[0]["allowed"]


async def test_asserted_roles_go_by_the_map_of_their_own_provider(tmp_path: Path) -> None:
    world = {"store": {"url": "file:world.json"}}
    known = {"issuer": "https://i", "jwks": "keys.json", "audiences": ["pdp"]}
    providers = {
        "oidc": {**known, "role_map": {"kc-analyst": "analyst"}},
        "partner": {**known, "issuer": "https://p", "role_map": {"boss": "analyst"}},
    }
    config = {**world, "identity": {"providers": providers}}
    settings = make_settings({"policies": {"rules": []}, **config}, tmp_path)
    bundle = build_pdp(settings, Facts.empty(), read_rules(settings)).bundle
    for name, roles, member_of in (
        ("oidc~dave", ("kc-analyst", "boss"), ("analyst",)),
        ("partner~dave", ("kc-analyst", "boss"), ("analyst",)),
        ("partner~dave", ("kc-analyst",), ()),
        ("other~dave", ("kc-analyst", "boss", "analyst"), ()),
    ):
        assert bundle.with_mapped_roles(Principal("user", name, roles)).member_of == member_of
    role = Principal("role", "oidc~x", ("kc-analyst",))
    assert bundle.with_mapped_roles(role) is role


async def test_mapped_groups_of_trino_are_memberships(tmp_path: Path) -> None:
    table = {"catalogName": "k", "schemaName": "hr", "tableName": "people", "columns": ["a"]}
    trino = {"catalogs": {"k": {"warehouse": "lake"}}, "groups": {"analysts": "analyst"}}
    answers = []
    async with service_of(tmp_path, trino=trino) as service:
        for groups in (["analysts"], ["analyst"], []):
            identity = {"user": "dave", "groups": groups}
            action = {"operation": "SelectFromColumns", "resource": {"table": table}}
            body = {"input": {"context": {"identity": identity}, "action": action}}
            answers.append((await post(service, body, "/v1/data/trino/allow"))[2]["result"])
    assert answers == [True, False, False]
    again = list(read_audit(tmp_path / "audit", ReadReport()))
    assert [found.check.question.principal.member_of for found in again] == [("analyst",), (), ()]


def test_memberships_count_like_stored_ones() -> None:
    dave = Principal("user", "oidc~dave", member_of=("analyst",))
    facts = Facts.empty()
    assert facts.roles_of(dave) == {"analyst"}
    assert facts.can_assume(dave, "analyst")
    assert not facts.can_assume(dave, "auditor")
    assert facts.roles_of(Principal("anonymous", "", member_of=("analyst",))) == frozenset()
    assert dave != Principal("user", "oidc~dave")
    known = Caller("gateway", frozenset({"principals"}))
    refused = admit_check(Check(Question(dave, "read_data"), (Resource("server"),), (0,)), known)
    assert isinstance(refused, Rejection)
    assert "roles" in refused.message
