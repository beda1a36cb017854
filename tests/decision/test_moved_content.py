"""A move of a namespace takes known objects along: forbids are asked about each, at its new path and at the old one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from support.generators.generated_pdps import batch
from support.paths import TESTS

from pdp.app.facts import build_pdp
from pdp.decision.plan_cache import in_parts
from pdp.decision.service import Pdp
from pdp.decision.turns import finish
from pdp.model.answer import MISSING_ARGUMENT, Answer
from pdp.offline.cases.cases import Case
from pdp.offline.cases.runner import MemoryAudit, build_case_pdp

PAT = "user:oidc~pat"
KNOWN = ["namespace:lake/gs", "table:lake/gs/t", "view:lake/gs/v", "namespace:lake/gs/deep", "table:lake/gs/deep/u"]
GRANTS = [
    {"principal": PAT, "privilege": "project_admin", "object": "project:p"},
    {"principal": PAT, "privilege": "ownership", "object": "warehouse:lake"},
    {"principal": "user:oidc~x", "privilege": "select", "object": "table:lake/granted/only"},
]


def pdp_of(forbid: str = "", cedar: str = "", known: Sequence[str] = KNOWN, rows: Any = None, **more: Any) -> Pdp:
    """Return a service with one forbid, of CEL or Cedar. `rows` is a file of row policies, `more` are sections."""
    data: dict[str, Any] = {
        "config": {
            "warehouses": {"lake": {"default_ref": "main", "project": "p"}},
            "trino": {"catalogs": {"lakehouse": {"warehouse": "lake", "ref": "main"}}},
            "authorities": {"default": {"engines": ["cedar", "grants"] if cedar else ["grants"]}},
            **more,
        },
        "world": {
            "objects": [
                {"object": "project:p"},
                {"object": "warehouse:lake", "parent": "project:p"},
                *({"object": name} for name in known),
            ],
            "grants": GRANTS,
        },
        "forbid": {"f": forbid} if forbid else {},
        **({"cedar": {"policies": f'@id("f") {cedar}'}} if cedar else {}),
        **({"policies": rows} if rows else {}),
    }
    return build_case_pdp(Case("generated", TESTS, data), build_pdp, MemoryAudit())[0]


def move(source: str, target: str | None, action: str = "move", **more: Any) -> dict[str, Any]:
    arguments = {"destination": f"namespace:lake/{target}"} if target else {}
    named = {"resource": f"namespace:lake/{source}", "context": {"arguments": arguments}}
    return {"principal": PAT, "action": action, **named, **more}


def ask(pdp: Pdp, *checks: dict[str, Any]) -> Answer:
    asked = batch(list(checks))
    result = pdp.decide_now(asked)
    return result.answer if result else asyncio.run(pdp.check(asked))


def allowed(pdp: Pdp, *checks: dict[str, Any]) -> list[bool]:
    """Decide checks one by one and as a batch: both agree."""
    alone = [bool(ask(pdp, each).allowed[0]) for each in checks]
    assert [*map(bool, ask(pdp, *checks).allowed)] == alone
    return alone


ACTIONS = ["move", "trino:RenameSchema"]
FORBIDS = {
    "op == 'CREATE_ENTITY' && path.startsWith('closed.')": ("closed", ["gs", "granted"], ["other"]),
    "op == 'CREATE_ENTITY' && path == 'closed.t'": ("closed", ["gs"], ["granted", "other"]),
    "op == 'CREATE_ENTITY' && path == 'closed.only'": ("closed", ["granted"], ["gs", "other"]),
    "op == 'CREATE_ENTITY' && path.endsWith('.deep.u')": ("closed", ["gs"], ["granted", "gs/deep"]),
    "op == 'CREATE_ENTITY' && contentType == 'ICEBERG_VIEW' && path.startsWith('c')": ("closed", ["gs"], ["granted"]),
    "'CATALOG_RENAME_ENTITY_TO' in actions && path == 'closed.t'": ("closed", ["gs"], ["granted", "other"]),
    "op == 'DELETE_ENTITY' && path == 'gs.t'": ("fresh", ["gs"], ["granted", "gs/deep"]),
    "op == 'DELETE_ENTITY' && path.startsWith('gs.deep.')": ("fresh", ["gs", "gs/deep"], ["granted"]),
    "op == 'CREATE_ENTITY' && path == 'a.b.t'": ("a/b", ["gs"], ["gs/deep", "granted"]),
}  # fmt: skip
"""Forbid -> a target, and the namespaces that may not and may move there."""


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("forbid", FORBIDS)
def test_known_objects_below_are_asked_at_both_ends(forbid: str, action: str) -> None:
    target, denied, permitted = FORBIDS[forbid]
    if "closed." in forbid or "'c'" in forbid or "a.b." in forbid:
        denied, permitted = [*denied, *permitted], []  # what nobody knows may come along to a name that forbids name
    every = [move(name, target, action) for name in (*denied, *permitted)]
    assert all(allowed(pdp_of(), *every))
    found = allowed(pdp_of(forbid), *every)
    assert found == [False] * len(denied) + [True] * (len(every) - len(denied))


CEDAR = {
    'action == Lakekeeper::Action::"CreateTable", resource in Lakekeeper::Namespace::"lake/closed"': ("closed", ["gs", "granted"], ["empty"]),
    'action == Lakekeeper::Action::"CreateView", resource == Lakekeeper::Namespace::"lake/closed"': ("closed", ["gs"], ["granted", "gs/deep"]),
    'action == Lakekeeper::Action::"CreateTable", resource) when { context has table_name && context.table_name == "u" }': ("closed", ["gs", "gs/deep"], ["granted"]),
}  # fmt: skip


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("scope", CEDAR)
def test_forbids_of_cedar_are_asked_about_known_objects_below(scope: str, action: str) -> None:
    target, denied, permitted = CEDAR[scope]
    if "lake/closed" in scope:
        denied, permitted = [*denied, *permitted], []  # what nobody knows may come along
    pdp = pdp_of(cedar=f"forbid(principal, {scope};" if scope.endswith("}") else f"forbid(principal, {scope});")
    found = allowed(pdp, *(move(name, target, action) for name in (*denied, *permitted)))
    assert found == [False] * len(denied) + [True] * len(permitted)


def test_no_right_is_needed_at_the_new_paths() -> None:
    pdp = pdp_of("path == 'nowhere'")
    assert allowed(pdp, move("gs", "fresh"))
    denial = ask(pdp_of("op == 'CREATE_ENTITY' && path == 'closed.deep.u'"), move("gs", "closed"))
    assert list(denial.by) == ["table:lake/gs/deep/u@main: cel:f"]


def test_nothing_more_is_asked_where_nothing_forbids() -> None:
    result = pdp_of().decide_now(batch([move("gs", "closed")]))
    assert result
    assert len(result.record.checks[0].concrete) == 2


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize(("count", "permitted"), [(499, True), (501, False)])
def test_too_many_objects_below_are_denied(action: str, count: int, permitted: bool) -> None:
    known = ["namespace:lake/gs", *(f"table:lake/gs/t{number}" for number in range(count))]
    answer = ask(pdp_of("path == 'nowhere'", known=known), move("gs", "fresh", action))
    assert bool(answer.allowed[0]) is permitted
    assert permitted or "rule:too_many_objects" in str(answer.by[0])
    free = ask(pdp_of(known=known), move("gs", "fresh", "move"))
    assert free.allowed[0]


@pytest.mark.parametrize("kind", ["ICEBERG_TABLE", "ICEBERG_VIEW"])
def test_a_move_to_an_unknown_place_takes_known_objects_along(kind: str) -> None:
    pdp = pdp_of(f"op == 'CREATE_ENTITY' && contentType == '{kind}' && path.startsWith('closed.')")
    answer = ask(pdp, move("gs", None), move("empty", None), move("gs/deep", None))
    assert [*map(bool, answer.allowed)] == [False, True, kind == "ICEBERG_VIEW"]
    assert MISSING_ARGUMENT in answer.errors[0]


def test_an_acting_role_takes_along_what_its_person_may() -> None:
    pdp = pdp_of("op == 'CREATE_ENTITY' && path == 'closed.t' && role == 'pat'")
    assert allowed(pdp, move("gs", "closed"), move("gs", "other")) == [False, True]


@pytest.mark.parametrize("spelled", ["closed.T", "Closed.t", "closed.Deep.u", "CLOSED.deep.U"])
def test_trino_meets_the_spelling_of_a_forbid(spelled: str) -> None:
    pdp = pdp_of(f"op == 'CREATE_ENTITY' && path == '{spelled}'")
    assert allowed(pdp, move("gs", "closed", "trino:RenameSchema"), move("gs", "open", "trino:RenameSchema")) == [
        False,
        True,
    ]


NAMED = {
    "path.startsWith('hr.')": [],
    "path == 'hr.pay'": [],
    "op == 'DELETE_ENTITY' && path.startsWith('hr.a.')": ["namespace:lake/hr/a"],
    "path.matches('^hr[.].*_pii$')": [],
    "path.startsWith('hr.') && path.endsWith('_pii')": [],
    "path.startsWith('hr') && contentType == 'ICEBERG_VIEW'": [],
    "path.contains('r.pay')": [],
    "op in ['DELETE_ENTITY', 'CREATE_ENTITY'] && path in ['x.y', 'hr.pay']": ["namespace:lake/hr"],
    'resource in Lakekeeper::Namespace::"lake/hr"': [],
    'resource == Lakekeeper::Table::"lake/hr/a/pay"': [],
    'resource == Lakekeeper::View::"lake/hr/pay"': [],
}
"""Forbid that names objects in `hr`, and what facts know there."""
LEAVING: dict[str, Callable[[str], dict[str, Any]]] = {
    "move": lambda name: move(name, "fresh"),
    "delete": lambda name: {"principal": PAT, "action": "delete", "resource": f"namespace:lake/{name}"},
    "rename of a schema": lambda name: move(name, "fresh", "trino:RenameSchema"),
    "drop of a schema": lambda name: {"principal": PAT, "action": "trino:DropSchema", "resource": f"namespace:lake/{name}"},
    "move to an unknown place": lambda name: move(name, None),
}  # fmt: skip


@pytest.mark.parametrize("deed", LEAVING)
@pytest.mark.parametrize("forbid", NAMED)
def test_what_forbids_name_below_a_namespace_neither_leaves_nor_ends(forbid: str, deed: str) -> None:
    """Only the catalog knows the objects, or no catalog: nobody can tell."""
    is_cedar, known = "Lakekeeper" in forbid, NAMED[forbid]
    denying = (
        pdp_of(cedar=f"forbid(principal, action, {forbid});", known=known) if is_cedar else pdp_of(forbid, known=known)
    )
    make = LEAVING[deed]
    assert allowed(pdp_of(known=known), make("hr"))
    found = allowed(denying, make("hr"), make("own"), make("hr2"), make("own/hr"))
    assert not found[0]
    if deed != "move to an unknown place":  # it may come to `hr`
        assert found[1:] == [True, "startsWith('hr')" not in forbid, "contains" not in forbid]


@pytest.mark.parametrize(
    "forbid", ["op == 'CREATE_ENTITY' && path.startsWith('hr.')", "op == 'READ_ENTITY_VALUE' && path == 'hr.pay'"]
)
def test_other_forbids_below_a_namespace_keep_no_namespace(forbid: str) -> None:
    assert allowed(pdp_of(forbid), LEAVING["delete"]("hr")) == [True]


def test_the_end_of_a_namespace_needs_no_right_below() -> None:
    forbid = "op == 'DELETE_ENTITY' && path == 'gs.deep.u'"
    denial = ask(pdp_of(forbid), LEAVING["delete"]("gs"))
    assert list(denial.by) == ["table:lake/gs/deep/u@main: cel:f"]
    assert allowed(pdp_of(forbid), *map(LEAVING["delete"], ("granted", "gs/deep"))) == [True, False]
    known = ["namespace:lake/gs", *(f"table:lake/gs/t{number}" for number in range(501))]
    answer = ask(pdp_of("path == 'nowhere'", known=known), LEAVING["delete"]("gs"))
    assert list(answer.by) == ["rule:too_many_objects"]
    assert allowed(pdp_of(known=known), LEAVING["delete"]("gs"))


@pytest.mark.parametrize("name", ["x" * 4000, ".".join("x" * 240)])
@pytest.mark.parametrize("deed", ["move", "delete"])
def test_long_names_below_a_namespace_are_too_many(deed: str, name: str) -> None:
    """Each would be asked about in each spelling: a request of a few kilobytes would hold all others up."""
    words = " || ".join(f"path.endsWith('{word}')" for word in ("a1", "b2", "c3", "d4", "e5", "f6", "g7", "h8"))
    pdp = pdp_of(f"path.contains('x') && ({words})")
    answer = ask(pdp, LEAVING[deed](name))
    assert list(answer.by) == ["rule:too_many_objects"]
    assert allowed(pdp, LEAVING[deed]("other"))


@pytest.mark.parametrize("action", ["delete", "move", "rename"])
def test_namespaces_are_planned_few_at_once(action: str) -> None:
    """Ten namespaces, and what forbids name below each, are one part: others get turns between the parts."""
    named = [f"namespace:lake/hr{at}" for at in range(95)]
    asked = batch([{"principal": PAT, "action": action, "resources": named}])
    assert pdp_of("path.startsWith('hr')").decide_now(asked) is None
    parts = finish(in_parts(asked)).checks
    assert max(len(part.resources) for part in parts) <= 10
    assert [one.path[0] for part in parts for one in part.resources] == [name.partition("/")[2] for name in named]


ENDED = {
    "warehouse == 'lake' && path.startsWith('hr.') && role == 'other'": True,
    "warehouse in ['pond', 'lake'] && role == 'other'": True,
    "warehouse != 'pond' && role == 'other'": True,
    "warehouse.startsWith('la') && role == 'other'": True,
    "role == 'other' && (warehouse == 'lake' || path == 'x')": True,
    "warehouse == 'fresh' && role == 'other'": True,
    "warehouse == 'pond' && role == 'other'": False,
    "path.startsWith('hr.') && role == 'other'": False,
    "role == 'lake'": False,
    'principal == Lakekeeper::User::"oidc~x", action, resource in Lakekeeper::Warehouse::"lake");': True,
    'principal == Lakekeeper::User::"oidc~x", action, resource == Lakekeeper::Table::"lake/hr/pay");': True,
    'principal == Lakekeeper::User::"oidc~x", action, resource in Lakekeeper::Namespace::"lake/hr");': True,
    'principal == Lakekeeper::User::"oidc~x", action, resource is Lakekeeper::Warehouse) when { resource.name == "lake" };': True,
    'principal == Lakekeeper::User::"oidc~x", action, resource is Lakekeeper::Table) when { resource.warehouse.name == "lake" };': True,
    'principal == Lakekeeper::User::"oidc~x", action, resource in Lakekeeper::Warehouse::"pond");': False,
    'principal == Lakekeeper::User::"oidc~x", action, resource is Lakekeeper::Table) when { resource.name like "tmp_*" };': False,
}  # fmt: skip
"""Forbid about somebody else, and whether a rename of `lake` to `fresh` could end it, or begin it."""
RENAME: dict[str, Any] = {"principal": PAT, "action": "rename", "resource": "warehouse:lake"}


@pytest.mark.parametrize("forbid", ENDED)
def test_a_warehouse_that_a_policy_names_keeps_its_name(forbid: str) -> None:
    target = {"context": {"arguments": {"destination": "warehouse:fresh"}}}
    made = {"cedar": f"forbid({forbid}"} if "Lakekeeper" in forbid else {"forbid": forbid}
    warehouses = {name: {"default_ref": "main", "project": "p"} for name in ("lake", "pond")}
    pdp = pdp_of(**made, warehouses=warehouses)
    answer = ask(pdp, {**RENAME, **target})
    assert bool(answer.allowed[0]) is not ENDED[forbid]
    assert answer.allowed[0] or answer.by[0] == "rule:named_by_policy"
    assert allowed(pdp_of(), {**RENAME, **target}) == [True]
    assert bool(ask(pdp, RENAME).allowed[0]) is not (ENDED[forbid] and "fresh" not in forbid)
    admin = pdp_of(**made, warehouses=warehouses, identity={"instance_admins": [PAT]})
    assert allowed(admin, {**RENAME, **target}) == [True]


OTHER = {"default": {"engines": ["grants"]}, "other": {"engines": ["grants"], "warehouses": ["lake"]}}
MINE = {"grantees": [PAT], "filter": "TRUE"}


@pytest.mark.parametrize(
    ("more", "permitted"),
    [
        ({"authorities": OTHER}, False),
        ({"rows": {"policies": [{"id": "r", "table": "lake.hr.pay", **MINE}]}}, False),
        ({"rows": {"policies": [{"id": "r", "table": "pond.hr.pay", **MINE}]}}, True),
    ],
)
def test_a_warehouse_of_other_policies_keeps_its_name(more: dict[str, Any], permitted: bool) -> None:
    """Pat sees every row, and may rename tables: the warehouse would leave the policies of others."""
    warehouses = {name: {"default_ref": "main", "project": "p"} for name in ("lake", "pond")}
    assert allowed(pdp_of(warehouses=warehouses, **more), RENAME) == [permitted]


STEPS = [
    ("move", "other/t", {"move"}),
    ("move", "other/new", {"move", "rename"}),
    ("move", "gs/new", {"move", "rename"}),
    ("rename", "gs/new", {"rename"}),
    ("rename", "other/t", {"move", "rename"}),
    ("rename", "other/new", {"move", "rename"}),
    ("rename", None, {"move", "rename"}),
    ("move", None, {"move", "rename"}),
]
"""Action, new path, and the actions that the step is."""


@pytest.mark.parametrize(("action", "target", "both"), STEPS)
@pytest.mark.parametrize("type", ["table", "view", "generic_table", "dataset"])
def test_a_rename_elsewhere_is_a_move_and_a_move_to_another_name_a_rename(
    action: str, target: str | None, both: set[str], type: str
) -> None:
    """Forbids on either bind. A right to one is enough, as before."""
    arguments = {"destination": f"{type}:lake/{target}"} if target else {}
    check = {"principal": PAT, "action": action, "resource": f"{type}:lake/gs/t", "context": {"arguments": arguments}}
    for forbidden in ("move", "rename"):
        pdp = pdp_of(f"action == '{forbidden}' && path == 'gs.t'")
        assert allowed(pdp, check, check) == [forbidden not in both] * 2, forbidden
    assert allowed(pdp_of("action == 'drop'"), check) == [True]


def test_a_rename_of_trino_into_another_schema_is_a_move() -> None:
    pdp = pdp_of("action == 'move' && path.startsWith('gs.')")
    for name, is_allowed in (("gs/new", True), ("other/t", False)):
        check = {"resource": "table:lake/gs/t", "context": {"arguments": {"destination": f"table:lake/{name}"}}}
        assert allowed(pdp, {"principal": PAT, "action": "trino:RenameTable", **check}) == [is_allowed], name
