"""Forbids of Cedar bind beside other engines: also where Cedar itself has no word for the action."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace
from support.generators.generated_pdps import batch, decide
from support.paths import TESTS

from pdp.app.facts import build_pdp
from pdp.decision.service import Pdp
from pdp.engines.cedar.actions import CEDAR_ACTIONS
from pdp.model.vocabulary import CATALOG_ACTIONS, CEL_CHECKS, CONTENT_CHECKS, RENAMES
from pdp.offline.cases.cases import Case
from pdp.offline.cases.runner import MemoryAudit, build_case_pdp

ANN, DAVE = "user:oidc~ann", "user:oidc~dave"
L = "Lakekeeper"
OBJECTS: list[Any] = [
    "project:p",
    {"object": "warehouse:lake", "parent": "project:p"},
    {"object": "role:r", "parent": "project:p"},
    {"object": "tag:g", "parent": "project:p"},
]
GRANTS = [
    {"principal": who, "privilege": privilege, "object": place}
    for who in (ANN, DAVE)
    for privilege, place in (
        ("operator", "server"), ("admin", "server"), ("project_admin", "project:p"), ("ownership", "warehouse:lake"),
        ("ownership", "role:r"), ("ownership", "tag:g"),
    )
]  # fmt: skip
PLACES = {"server": "server", "project": "project:p", "warehouse": "warehouse:lake", "role": "role:r", "tag": "tag:g", "user": "user:oidc~eve", "namespace": "namespace:lake/hr"}  # fmt: skip
_KNOWN = {(type, action) for type, actions in CATALOG_ACTIONS.items() for action in actions}
_RAW = {(type, action) for type, action in CEL_CHECKS if action in CONTENT_CHECKS}
OUTSIDE = sorted((_KNOWN | _RAW) - {(type, action) for action, type in CEDAR_ACTIONS})
"""Questions that Cedar has no action for."""


def pdp_of(text: str, engines: Sequence[str] = ("cedar", "grants")) -> Pdp:
    config = {
        "warehouses": {"lake": {"project": "p", "default_ref": "main"}},
        "authorities": {"default": {"engines": list(engines)}},
        "trino": {"catalogs": {"lk": {"warehouse": "lake"}}, "unmanaged_catalogs": "allow"},
    }
    data = {
        "config": config,
        "world": {"objects": OBJECTS, "grants": GRANTS},
        "cedar": {"policies": f'@id("lock") {text}'},
    }
    return build_case_pdp(Case("generated", TESTS, data), build_pdp, MemoryAudit())[0]


def place(type: str, where: str = "hr") -> str:
    known = PLACES.get(type, f"{type}:lake/hr/t")
    return known.replace("lake/hr", f"lake/{where}")


def ask(who: str, action: str, resource: Any, sent: Sequence[str] = ()) -> dict[str, Any]:
    return {"principal": who, "action": action, "resource": resource, "context": {"actions": list(sent)}}


def allowed(pdp: Pdp, checks: Sequence[Any]) -> list[bool]:
    return [bool(one) for one in decide(pdp, checks).allowed]


NEVER = f'forbid(principal == {L}::User::"oidc~nobody", action == {L}::Action::"DropTable", resource);'
OPEN = pdp_of(NEVER)
GRANTED = [key for key in OUTSIDE if allowed(OPEN, [ask(DAVE, key[1], place(key[0]))])[0]]
"""Questions outside of Cedar's vocabulary that grants permit."""


def test_grants_permit_most_questions_outside() -> None:
    assert len(GRANTED) > 80
    assert {"dataset", "table", "namespace", "content", "role"} <= {type for type, _ in GRANTED}


@pytest.mark.parametrize(
    "text",
    [
        f'forbid(principal == {L}::User::"oidc~dave", action, resource);',
        f'forbid(principal, action, resource) when {{ principal == {L}::User::"oidc~dave" }};',
        f'forbid(principal, action // all\n, resource) unless {{ principal != {L}::User::"oidc~dave" }};',
    ],
)
def test_a_forbid_on_everything_binds_everything(text: str) -> None:
    pdp = pdp_of(text)
    for type, action in GRANTED:
        answer = decide(pdp, [ask(DAVE, action, place(type)), ask(ANN, action, place(type))])
        assert [*answer.allowed] == [0, 1], (type, action)
        assert answer.by[0] == "cedar:lock", (type, action)
    names = ["ExecuteQuery", "ReadSystemInformation"]
    assert allowed(pdp, [ask(who, f"trino:{name}", "server") for who in (DAVE, ANN) for name in names]) == [
        False,
        False,
        True,
        True,
    ]
    other = [ask(who, "trino:SelectFromColumns", "catalog:other/s/t") for who in (DAVE, ANN)]
    assert allowed(pdp, other) == [False, True]


def test_a_forbid_on_a_place_binds_what_is_inside() -> None:
    pdp = pdp_of(f'forbid(principal, action, resource in {L}::Namespace::"lake/hr");')
    for type, action in GRANTED:
        is_inside = "lake/hr" in place(type)
        answers = allowed(pdp, [ask(ANN, action, place(type)), ask(ANN, action, place(type, "sales"))])
        # a raw creation of the namespace itself is judged in the container, as Cedar judges creations
        # and a move without a destination could lead into the namespace
        if (type, action) != ("namespace", "CREATE_ENTITY") and action not in RENAMES:
            assert answers == [not is_inside, True], (type, action)


RAW = {
    ("table", "READ_ENTITY_VALUE"): ("ReadTableData", "GetTableMetadata"),
    ("table", "READ_CONTENT_KEY"): ("IncludeTableInList",),
    ("table", "UPDATE_ENTITY"): ("WriteTableData", "CommitTable"),
    ("table", "DELETE_ENTITY"): ("DropTable",),
    ("table", "CREATE_ENTITY"): ("CreateTable",),
    ("view", "READ_ENTITY_VALUE"): ("SelectView",),
    ("view", "CREATE_ENTITY"): ("CreateView",),
    ("view", "DELETE_ENTITY"): ("DropView",),
    ("generic_table", "CREATE_ENTITY"): ("CreateGenericTableInNamespace",),
    ("namespace", "DELETE_ENTITY"): ("DeleteNamespace",),
    ("dataset", "DELETE_ENTITY"): ("DropTable",),
    ("dataset", "read_data"): ("ReadTableData",),
    ("dataset", "commit"): ("CommitTable",),
    ("dataset", "promote"): ("CommitTable",),
    ("dataset", "rename"): ("RenameTable",),
    ("table", "move"): ("RenameTable",),
    ("namespace", "move"): ("DeleteNamespace",),
    ("namespace", "create_dataset"): ("CreateTable",),
    ("content", "DELETE_ENTITY"): ("DropTable", "DropView", "DeleteNamespace"),
}


@pytest.mark.parametrize("key", RAW)
def test_a_question_is_asked_as_what_it_does(key: tuple[str, str]) -> None:
    for action in RAW[key]:
        pdp = pdp_of(f'forbid(principal, action == {L}::Action::"{action}", resource);')
        assert allowed(pdp, [ask(ANN, key[1], place(key[0]))]) == [False], action
    other = pdp_of(f'forbid(principal, action == {L}::Action::"UndropTable", resource);')
    assert allowed(other, [ask(ANN, key[1], place(key[0]))]) == [True]


def test_content_is_asked_by_its_type() -> None:
    pdp = pdp_of(f'forbid(principal, action == {L}::Action::"DropView", resource);')
    kinds = {"ICEBERG_VIEW": False, "ICEBERG_TABLE": True, "NAMESPACE": True, "UDF": True, "": False}
    places = [{"type": "content", "warehouse": "lake", "path": ["hr", "t"], "contentType": kind} for kind in kinds]
    assert allowed(pdp, [ask(ANN, "DELETE_ENTITY", each) for each in places]) == [*kinds.values()]


def test_a_new_name_is_in_the_context() -> None:
    pdp = pdp_of(
        f'forbid(principal, action == {L}::Action::"CreateTable", resource)'
        ' when { context has table_name && context.table_name == "pay" };'
    )
    checks = [
        ask(ANN, "CREATE_ENTITY", f"{type}:lake/hr/{name}") for type in ("table", "dataset") for name in ("pay", "t")
    ]
    assert allowed(pdp, checks) == [False, True, False, True]


def test_a_question_that_cedar_cannot_judge_is_denied() -> None:
    pdp = pdp_of(NEVER)
    wrong = {"principal": ANN, "action": "CREATE_ENTITY", "context": {"arguments": {"properties": "x"}}}
    answer = decide(pdp, [wrong | {"resource": place("table")}, ask(ANN, "CREATE_ENTITY", place("table"))])
    assert ([*answer.allowed], answer.by[0]) == ([0, 1], "cedar:invalid_arguments")


def test_a_permit_of_cedar_opens_nothing_outside() -> None:
    pdp = pdp_of(
        f'permit(principal, action, resource); forbid(principal == {L}::User::"oidc~x", action, resource);', ["cedar"]
    )
    found = decide(pdp, [ask(ANN, action, place(type)) for type, action in GRANTED])
    assert not any(found.allowed)
    assert {*found.by} == {"unknown_action"}


def test_an_explanation_names_the_forbid() -> None:
    pdp = pdp_of(f'forbid(principal == {L}::User::"oidc~dave", action, resource);')
    for action, shown in (("DELETE_ENTITY", "DropTable"), ("grant_select", "grant_select")):
        asked = replace(batch([ask(who, action, place("table")) for who in (DAVE, ANN)]), explain=True)
        traces = asyncio.run(pdp.check(asked)).traces
        texts = [str(traces[at]) for at in (0, 1)]
        assert [f'Action::"{shown}"' in text and "policy lock" in text for text in texts] == [True, False], texts
        assert f"no forbid concerns {action} on table" in texts[1]


def test_the_start_names_a_forbid_that_closes_trino() -> None:
    for text, is_told in (
        (f'forbid(principal, action, resource) unless {{ principal in {L}::Role::"staff" }};', True),
        ("forbid(principal, action, resource) when { context.delegated };", False),
        (f'forbid(principal, action in {L}::Action::"TableActions", resource);', False),
    ):
        told = [line for line in pdp_of(text).bundle.warnings if "closes Trino" in line]
        assert [line.partition(" denies")[0] for line in told] == ["the forbid `lock` of Cedar"] * is_told, text
