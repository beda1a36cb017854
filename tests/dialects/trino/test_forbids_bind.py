"""A forbid binds wherever the service permits: in every operation of Trino, action, list, load, scope and edit."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.clients.http_client import client_of
from support.oracles.trino_wants import asking
from support.paths import TESTS
from support.service.serving import settings_of

from pdp.model.trino_operations import SAME_RIGHT, TRINO_OPERATIONS
from pdp.model.vocabulary import CATALOG_ACTIONS, CEL_CHECKS, KIN

SHAPES: dict[str, Any] = yaml.safe_load((TESTS / "trino_cases" / "shapes" / "operations.yaml").read_text())
EVERYTHING = {"all": "true"}
OPEN_TRINO = {
    "catalogs": {"lakehouse": {"warehouse": "lake", "ref": "main"}},
    "unmanaged_catalogs": "allow",
    "admin_users": ["alice"],
    "impersonation": {"alice": ["bob"], "bob": ["carol"]},
    "functions": {"builtin_catalogs": ["builtin"], "allow": ["lakehouse.system.table_changes"]},
    "procedures": {"allow": ["lakehouse.system.flush"]},
    "execute_query": {"allow": ["*"]},
}
UNMANAGED: list[dict[str, Any]] = [
    {"operation": "AccessCatalog", "resource": {"catalog": {"name": "other"}}},
    {"operation": "ShowTables", "resource": {"schema": {"catalogName": "other", "schemaName": "s"}}},
    *(
        {"operation": name, "resource": {"table": {"catalogName": "other", "schemaName": "s", "tableName": "t"}}}
        for name in ("SelectFromColumns", "InsertIntoTable", "DropTable", "CreateTable", "TruncateTable")
    ),
    {"operation": "ExecuteFunction", "resource": {"function": {"catalogName": "other", "schemaName": "s", "functionName": "f"}}},
    *(
        {"operation": "SelectFromColumns", "resource": {"table": {"catalogName": "system", "schemaName": schema, "tableName": name, "columns": ["c"]}}}
        for schema, name in (("jdbc", "tables"), ("metadata", "catalogs"))
    ),
]  # fmt: skip


def body_of(action: dict[str, Any], user: str) -> dict[str, Any]:
    identity = {"user": user, "groups": []}
    return {"input": {"context": {"identity": identity, "softwareStack": {"trinoVersion": "476"}}, "action": action}}


def world(forbid: dict[str, str] | None) -> dict[str, Any]:
    made = copy.deepcopy(SHAPES)
    made["config"]["trino"] |= OPEN_TRINO
    return made | ({"forbid": forbid} if forbid else {})


def actions() -> list[dict[str, Any]]:
    return [case["action"] for case in SHAPES["cases"]] + UNMANAGED


async def _answers(forbid: dict[str, str] | None, folder: Path) -> dict[tuple[int, str], bool]:
    async with asking(world(forbid), folder) as ask:
        return {
            (number, user): (await ask("allow", body_of(action, user)))["result"]
            for number, action in enumerate(actions())
            for user in ("alice", "bob")
        }


async def test_a_forbid_of_everything_leaves_no_operation_of_trino(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "shut").mkdir()
    free = await _answers(None, tmp_path / "open")
    permitted = {actions()[number]["operation"] for (number, _), allowed in free.items() if allowed}
    assert permitted >= TRINO_OPERATIONS.keys() - {"GetRowFilters", "GetColumnMask"}
    shut = await _answers(EVERYTHING, tmp_path / "shut")
    assert not any(shut.values()), [actions()[number] for (number, _), allowed in shut.items() if allowed]


async def test_a_forbid_of_one_user_binds_that_user_alone(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "shut").mkdir()
    free = await _answers(None, tmp_path / "open")
    shut = await _answers({"left": "role in ['alice']"}, tmp_path / "shut")
    assert {key: allowed and key[1] == "bob" for key, allowed in free.items()} == shut


@pytest.mark.parametrize(
    ("rule", "action"),
    [
        ("op == 'trino:ExecuteQuery'", {"operation": "ExecuteQuery"}),
        ("op == 'trino:ImpersonateUser' && arguments.user == 'carol'", {"operation": "ImpersonateUser", "resource": {"user": {"user": "carol"}}}),
        ("op == 'trino:SetSystemSessionProperty' && arguments.property == 'task_concurrency'", {"operation": "SetSystemSessionProperty", "resource": {"systemSessionProperty": {"name": "task_concurrency"}}}),
        ("op == 'trino:SetCatalogSessionProperty' && arguments.property == 'lakehouse.free'", {"operation": "SetCatalogSessionProperty", "resource": {"catalogSessionProperty": {"catalogName": "lakehouse", "propertyName": "free"}}}),
        ("op == 'trino:ExecuteProcedure' && arguments.function == 'lakehouse.system.flush'", {"operation": "ExecuteProcedure", "resource": {"function": {"catalogName": "lakehouse", "schemaName": "system", "functionName": "flush"}}}),
        ("op == 'trino:DropTable' && arguments.catalog == 'other' && arguments.table == 't'", UNMANAGED[4]),
        ("op.startsWith('trino:') && path == '' && ref == '' && warehouse == '' && contentType == '' && 'schema' in arguments && arguments.schema == 'jdbc'", UNMANAGED[-2]),
    ],
)  # fmt: skip
async def test_a_question_about_the_cluster_has_its_names(rule: str, action: dict[str, Any], tmp_path: Path) -> None:
    answers = []
    for name, forbid in (
        ("open", None),
        ("shut", {"one": rule}),
        ("other", {"one": "op == 'trino:KillQueryOwnedBy'"}),
    ):
        (tmp_path / name).mkdir()
        async with asking(world(forbid), tmp_path / name) as ask:
            answers.append((await ask("allow", body_of(action, "bob")))["result"])
    assert answers == [True, False, True]


async def test_a_view_gets_no_owner_whose_impersonation_is_forbidden(tmp_path: Path) -> None:
    view = {"table": {"catalogName": "lakehouse", "schemaName": "s", "tableName": "v"}}
    rule = {"one": "op == 'trino:ImpersonateUser' && arguments.user == 'bob'"}
    found = []
    for name, forbid in (("open", None), ("shut", rule)):
        (tmp_path / name).mkdir()
        made = world(forbid)
        made["world"]["grants"].append(
            {"principal": "user:oidc~alice", "privilege": "ownership", "object": "warehouse:lake"}
        )
        async with asking(made, tmp_path / name) as ask:
            for owner in ("alice", "bob"):
                action = {
                    "operation": "SetViewAuthorization",
                    "resource": view,
                    "grantee": {"type": "USER", "name": owner},
                }
                found.append((await ask("allow", body_of(action, "alice")))["result"])
    assert found == [True, True, True, False]


async def test_forbids_in_an_unmanaged_catalog_bind_for_targets_and_content(tmp_path: Path) -> None:
    def at(schema: str, table: str = "") -> dict[str, Any]:
        place = {"catalogName": "other", "schemaName": schema}
        return {"table": place | {"tableName": table}} if table else {"schema": place}

    rules = {
        "in": "op.startsWith('trino:') && arguments.catalog == 'other' && arguments.schema == 'hr'",
        "drop": "op == 'trino:DropTable' && arguments.catalog == 'other' && arguments.schema == 'keep'",
        "view": "op == 'trino:RenameView' && arguments.catalog == 'other' && arguments.schema == 'vs' && arguments.table == 'v'",
    }
    asked = [
        {"operation": "RenameTable", "resource": at("zz", "t"), "targetResource": at("hr", "t")},
        {"operation": "RenameSchema", "resource": at("zz"), "targetResource": at("hr")},
        {"operation": "DropSchema", "resource": at("keep")},
        {"operation": "RenameSchema", "resource": at("vs"), "targetResource": at("zz")},
        {"operation": "RenameTable", "resource": at("zz", "t"), "targetResource": at("zz", "u")},
        {"operation": "DropSchema", "resource": at("zz")},
        {"operation": "RenameSchema", "resource": at("zz"), "targetResource": at("yy")},
    ]
    async with asking(world(rules), tmp_path) as ask:
        found = [(await ask("allow", body_of(action, "bob")))["result"] for action in asked]
    assert found == [False] * 4 + [True] * 3


def _at(schema: str, table: str = "", catalog: str = "other") -> dict[str, Any]:
    place = {"catalogName": catalog, "schemaName": schema}
    return {"table": place | {"tableName": table}} if table else {"schema": place}


def _of_operation(name: str) -> str:
    where = "arguments.catalog == 'other' && arguments.schema == 'hr' && arguments.table == 'pay'"
    return f"op == 'trino:{name}' && {where}"


THROUGH_VIEWS = {
    "CreateViewWithSelectFromColumns": "SelectFromColumns",
    "CreateViewWithExecuteFunction": "ExecuteFunction",
}


@pytest.mark.parametrize("kind", ["Table", "View", "MaterializedView"])
async def test_what_a_forbid_denies_in_an_unmanaged_catalog_no_other_operation_does(tmp_path: Path, kind: str) -> None:
    """A forbid of DROP binds where a name is replaced, renamed away or goes with its schema; one of CREATE at targets."""
    pay, other = _at("hr", "pay"), _at("zz", "t")
    asked = {
        "create": {"operation": f"Create{kind}", "resource": pay},
        "drop": {"operation": f"Drop{kind}", "resource": pay},
        "away": {"operation": f"Rename{kind}", "resource": pay, "targetResource": other},
        "onto": {"operation": f"Rename{kind}", "resource": other, "targetResource": pay},
        "schema": {"operation": "DropSchema", "resource": _at("hr")},
        "schema away": {"operation": "RenameSchema", "resource": _at("hr"), "targetResource": _at("zz")},
        "schema onto": {"operation": "RenameSchema", "resource": _at("zz"), "targetResource": _at("hr")},
        "elsewhere": {"operation": f"Rename{kind}", "resource": other, "targetResource": _at("zz", "u")},
    }  # fmt: skip
    denied = {
        f"Drop{kind}": {"create", "drop", "away", "schema", "schema away"},
        f"Create{kind}": {"create", "onto", "schema onto"},
        f"Rename{kind}": {"away", "onto", "schema away", "schema onto"},
        "SelectFromColumns": set(),
    }
    for name, wanted in denied.items():
        (tmp_path / name).mkdir()
        async with asking(world({"f": _of_operation(name)}), tmp_path / name) as ask:
            answers = {key: (await ask("allow", body_of(one, "bob")))["result"] for key, one in asked.items()}
        assert {key for key, allowed in answers.items() if not allowed} == wanted, name


async def test_a_forbid_on_a_table_of_an_unmanaged_catalog_binds_for_its_hidden_tables(tmp_path: Path) -> None:
    names = ["pay", "pay$files", "pay$partitions", "pay$a$b", "pax", "pax$files", "$files"]
    rules = {"f": "op.startsWith('trino:') && has(arguments.table) && arguments.table == 'pay'"}
    tables = [_at("hr", name) for name in names]
    open_ones = [at for at, name in enumerate(names) if not name.startswith("pay")]
    async with asking(world(rules), tmp_path) as ask:
        for name in ("SelectFromColumns", "CreateViewWithSelectFromColumns", "InsertIntoTable", "ShowColumns"):
            found = [
                (await ask("allow", body_of({"operation": name, "resource": one}, "bob")))["result"] for one in tables
            ]
            assert [at for at, allowed in enumerate(found) if allowed] == open_ones, name
        listed = {"operation": "FilterTables", "filterResources": tables}
        assert (await ask("batch", body_of(listed, "bob")))["result"] == open_ones


async def test_hidden_tables_are_taken_and_made_as_their_tables(tmp_path: Path) -> None:
    """Before each `$`, in every way that a name goes or comes. A name of many `$` is denied."""
    rules = {
        "drop": _of_operation("DropTable"),
        "make": _of_operation("CreateTable").replace("'pay'", "'new'"),
        "deep": "op == 'trino:SelectFromColumns' && arguments.table == 'a$b'",
    }
    other = _at("zz", "t")
    denied = [
        {"operation": "DropTable", "resource": _at("hr", "pay$files")},
        {"operation": "CreateTable", "resource": _at("hr", "pay$files")},
        {"operation": "RenameTable", "resource": _at("hr", "pay$x$y"), "targetResource": other},
        {"operation": "RenameTable", "resource": other, "targetResource": _at("hr", "new$files")},
        {"operation": "SelectFromColumns", "resource": _at("hr", "a$b$files")},
        {"operation": "SelectFromColumns", "resource": _at("zz", "t" + "$x" * 9)},
    ]
    allowed = [
        {"operation": "SelectFromColumns", "resource": _at("hr", "a$c$files")},
        {"operation": "SelectFromColumns", "resource": _at("zz", "t" + "$x" * 8)},
        {"operation": "RenameTable", "resource": other, "targetResource": _at("zz", "u$files")},
    ]
    async with asking(world(rules), tmp_path) as ask:
        found = [(await ask("allow", body_of(one, "bob")))["result"] for one in [*denied, *allowed]]
    assert found == [False] * len(denied) + [True] * len(allowed)


async def test_names_of_several_depths_in_one_check(tmp_path: Path) -> None:
    rules = {"f": "op == 'trino:AccessCatalog' && has(arguments.schema)"}
    (tmp_path / "forbid.yaml").write_text(json.dumps({"rules": rules}))
    policies = {"rules": [], "forbid": ["forbid.yaml"]}
    config = {
        "warehouses": {"lake": {}},
        "policies": policies,
        "trino": OPEN_TRINO | {"catalogs": {"lk": {"warehouse": "lake"}}},
    }
    check = {
        "principal": "user:oidc~bob",
        "action": "trino:AccessCatalog",
        "resources": ["catalog:other", "catalog:other/s/t$x"],
    }
    async with client_of(settings_of(config, tmp_path)) as client:
        status, answer = await client.post("/v1/check", {"checks": [check]})
    assert (status, [one.get("error") for one in answer["decisions"]]) == (200, [None, None])


async def test_a_forbid_of_a_use_binds_for_the_use_through_a_view(tmp_path: Path) -> None:
    function = {"function": {"catalogName": "other", "schemaName": "hr", "functionName": "query"}}
    rules = {
        "t": _of_operation("SelectFromColumns"),
        "f": "op == 'trino:ExecuteFunction' && arguments.function.endsWith('.query')",
    }
    async with asking(world(rules), tmp_path) as ask:
        for name, kin in THROUGH_VIEWS.items():
            resource = function if "Function" in name else _at("hr", "pay")
            for operation in (name, kin):
                assert not (await ask("allow", body_of({"operation": operation, "resource": resource}, "bob")))[
                    "result"
                ]
        free = {"operation": "CreateViewWithSelectFromColumns", "resource": _at("hr", "free")}
        assert (await ask("allow", body_of(free, "bob")))["result"]


async def test_lists_leave_out_what_is_forbidden(tmp_path: Path) -> None:
    names = ["elsewhere", "lakehouse", "system"]
    action = {"operation": "FilterCatalogs", "filterResources": [{"catalog": {"name": name}} for name in names]}
    schemas = [{"schema": {"catalogName": "other", "schemaName": name}} for name in ("a", "b")]
    for number, forbid in enumerate(
        (None, {"one": "op == 'trino:FilterSchemas' && arguments.schema == 'b'"}, EVERYTHING)
    ):
        (tmp_path / str(number)).mkdir()
        async with asking(world(forbid), tmp_path / str(number)) as ask:
            found = (await ask("batch", body_of(action, "bob")))["result"]
            below = (await ask("batch", body_of({"operation": "FilterSchemas", "filterResources": schemas}, "bob")))[
                "result"
            ]
        assert (found, below) == [([0, 1, 2], [0, 1]), ([0, 1, 2], [0]), ([], [])][number]


LISTED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "FilterViewQueryOwnedBy": ("ViewQueryOwnedBy", "arguments.user == 'boss'", {"user": {"user": "boss"}}),
    "FilterCatalogs": ("AccessCatalog", "arguments.catalog == 'other'", {"catalog": {"name": "other"}}),
    "FilterFunctions": (
        "ExecuteFunction",
        "arguments.function == 'other.s.f'",
        {"function": {"catalogName": "other", "schemaName": "s", "functionName": "f"}},
    ),
    "FilterColumns": (
        "ShowColumns",
        "arguments.catalog == 'other' && arguments.schema == 's'",
        {"table": {"catalogName": "other", "schemaName": "s", "tableName": "t", "columns": ["c"]}},
    ),
}
"""Operation that filters a list -> the operation with the same right, a forbid, and what both are asked about."""
OWN_RIGHT = {
    "FilterSchemas": ("ShowTables", {"schema": {"catalogName": "other", "schemaName": "s"}}),
    "FilterTables": (
        "SelectFromColumns",
        {"table": {"catalogName": "other", "schemaName": "s", "tableName": "t", "columns": ["c"]}},
    ),
}
"""The same for operations that need a right of their own: the name of an object in a list."""


def test_an_operation_that_filters_a_list_has_the_right_of_another_or_its_own() -> None:
    filters = {name for name in TRINO_OPERATIONS if name.startswith("Filter")}
    assert filters == LISTED.keys() | OWN_RIGHT.keys()
    assert {name: kin for name, (kin, *_) in LISTED.items()}.items() == SAME_RIGHT.items() - THROUGH_VIEWS.items()
    for name, kin in SAME_RIGHT.items():
        assert TRINO_OPERATIONS[name]._replace(delegated=False) == TRINO_OPERATIONS[kin]
    for name, (kin, _) in OWN_RIGHT.items():
        assert TRINO_OPERATIONS[name] != TRINO_OPERATIONS[kin]


async def test_a_list_leaves_out_what_a_forbid_of_the_same_right_denies(tmp_path: Path) -> None:
    """In a mapped catalog the two operations are one check. Elsewhere a forbid of the list alone denies the list."""

    async def shown(rules: dict[str, str]) -> list[tuple[bool, list[int], bool]]:
        (folder := tmp_path / "_".join(sorted(rules) or "-")).mkdir()
        found = []
        async with asking(world(rules), folder) as ask:
            for name, (kin, *_, object) in {**LISTED, **OWN_RIGHT}.items():
                single = {"operation": name, "resource": object}
                listed = {"operation": name, "filterResources": [object]}
                opened = {"operation": kin, "resource": object}
                answers = [
                    (await ask(door, body_of(action, "alice")))["result"]
                    for door, action in (("allow", single), ("batch", listed), ("allow", opened))
                ]
                found.append(tuple(answers))
        return found

    many, own = len(LISTED), len(OWN_RIGHT)
    assert await shown({}) == [(True, [0], True)] * (many + own)
    rules = {kin: f"op == 'trino:{kin}' && {test}" for kin, test, _ in LISTED.values()}
    assert await shown(rules) == [(False, [], False)] * many + [(True, [0], True)] * own
    rules = {name: f"op == 'trino:{name}' && {test}" for name, (_, test, _) in LISTED.items()}
    assert await shown(rules) == [(False, [], True)] * many + [(True, [0], True)] * own
    assert await shown({kin: f"op == 'trino:{kin}'" for kin, _ in OWN_RIGHT.values()}) == [
        *[(True, [0], True)] * many,
        *[(True, [0], False)] * own,
    ]


def _resource(type: str) -> dict[str, Any]:
    if type in ("server", "project"):
        return {"type": type, "name": "p"} if type == "project" else {"type": type}
    if type in ("role", "tag", "user"):
        return {"type": type, "name": "oidc~x" if type == "user" else "x"}
    if type in ("warehouse", "reference"):
        return {"type": type, "warehouse": "lake"} | ({"ref": "main"} if type == "reference" else {})
    if type == "repository_config":
        return {"type": type, "warehouse": "lake", "path": ["GARBAGE_COLLECTOR"]}
    return {"type": type, "warehouse": "lake", "path": ["s", "t"], "ref": "main"}


ACTIONS = sorted({(type, action) for type, found in CATALOG_ACTIONS.items() for action in found} | set(CEL_CHECKS))


@pytest.mark.parametrize("forbid", [None, {"all": "true"}, {"left": "role == 'ann'"}])
async def test_a_forbid_binds_for_every_action(
    forbid: dict[str, str] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PDP_DEVELOPMENT", "1")
    policies: dict[str, Any] = {"rules": []}
    if forbid:
        (tmp_path / "forbid.yaml").write_text(yaml.safe_dump({"rules": forbid}))
        policies["forbid"] = ["forbid.yaml"]
    config = {
        "warehouses": {"lake": {"project": "p", "default_ref": "main"}},
        "authorities": {"default": {"engines": ["allow_all"]}},
        "policies": policies,
        "store": {"url": f"sqlite:///{tmp_path}/pdp.db"},
    }
    async with client_of(settings_of(config, tmp_path)) as http:
        for user in ("ann", "bob"):
            checks = [
                {"principal": f"user:oidc~{user}", "action": action, "resource": _resource(type)}
                for type, action in ACTIONS
            ]
            status, answer = await http.post("/v1/check", {"checks": checks})
            assert status == 200, answer
            denied = forbid is not None and (user == "ann" or "all" in forbid)
            found = zip(ACTIONS, answer["decisions"], strict=True)
            for key, each in found:
                assert each["allowed"] is not denied, (key, each)


ANN = "user:oidc~ann"
TABLE = "table:lake/s/t"
DOORS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/check", {"checks": [{"principal": ANN, "action": "commit", "resource": TABLE}]}),
    ("/v1/check", {"checks": [{"principal": "user:oidc~admin", "action": "create_project", "resource": "server"}]}),
    ("/v1/load", {"principal": ANN, "target": TABLE, "action": "loadTable"}),
    ("/v1/list", {"principal": ANN, "action": "read_data", "type": "table", "container": "warehouse:lake"}),
    ("/v1/scopes", {"currentUser": {"userName": "ann"}, "scopes": {"authorized": True}}),
    ("/v1/scopes", {"currentUser": {"userName": "ann"}}),
    ("/v1/row-access-policies", {"actor": ANN, "table": TABLE, "id": "r", "grantees": ["role:r"], "filter": "x = 1"}),
    ("/v1/grants", {"actor": ANN, "add": [{"principal": "role:r", "privilege": "select", "object": TABLE}]}),
    ("/v1/objects", {"actor": ANN, "put": ["table:lake/s/new"]}),
    ("/v1/objects", {"actor": "user:oidc~admin", "put": ["project:fresh"]}),
]  # fmt: skip


def _is_permitted(status: int, answer: dict[str, Any]) -> bool:
    if status != 200:
        assert status == 403, (status, answer)
        return False
    decisions = answer.get("decisions") or [answer.get("decision") or answer]
    return bool(decisions[0].get("allowed", answer.get("objects", True)))


@pytest.mark.parametrize("forbid", [None, EVERYTHING])
async def test_a_forbid_binds_at_every_door(forbid: dict[str, str] | None, tmp_path: Path) -> None:
    (tmp_path / "forbid.yaml").write_text(yaml.safe_dump({"rules": forbid or {"none": "false"}}))
    objects = ["project:p", {"object": "warehouse:lake", "parent": "project:p"}, "namespace:lake/s", TABLE]
    grants = [
        {"principal": ANN, "privilege": "ownership", "object": name}
        for name in ("warehouse:lake", "namespace:lake/s", TABLE)
    ]
    seed = {"objects": [*objects, {"object": "role:r", "parent": "project:p"}], "grants": grants}
    (tmp_path / "seed.json").write_text(json.dumps(seed))
    config = {
        "warehouses": {"lake": {"project": "p", "default_ref": "main"}},
        "authorities": {"default": {"engines": ["grants"]}},
        "policies": {"rules": [], "forbid": ["forbid.yaml"]},
        "store": {"url": f"sqlite:///{tmp_path}/pdp.db", "seed": "seed.json"},
        "identity": {"instance_admins": ["user:oidc~admin"]},
    }
    async with client_of(settings_of(config, tmp_path)) as http:
        for path, body in DOORS:
            status, answer = await http.post(path, body)
            assert _is_permitted(status, answer) is (forbid is None), (path, body, status, answer)


@pytest.mark.parametrize(
    ("rule", "places"),
    [
        ("true", ["ExecuteQuery", "ReadSystemInformation", "`system.jdbc`", "AccessCatalog on `lakehouse`"]),
        ("ref != 'dev' && !('eng' in roles)", ["ExecuteQuery", "ReadSystemInformation", "`system.jdbc`", "AccessCatalog on `lakehouse`"]),
        ("roles[0] == 'x' && op == 'trino:ExecuteQuery'", ["ExecuteQuery"]),
        ("warehouse == 'lake' && !('eng' in roles)", ["AccessCatalog on `lakehouse`"]),
        ("path.startsWith('hr') && !('hr' in roles)", []),
        ("'gone' in roles", []),
    ],
)  # fmt: skip
async def test_a_forbid_that_closes_trino_is_named_at_the_start(rule: str, places: list[str], tmp_path: Path) -> None:
    (tmp_path / "forbid.yaml").write_text(yaml.safe_dump({"rules": {"broad": rule}}))
    config = {
        "warehouses": {"lake": {"default_ref": "main"}},
        "policies": {"rules": [], "forbid": ["forbid.yaml"]},
        "trino": OPEN_TRINO,
        "store": {"url": f"sqlite:///{tmp_path}/pdp.db"},
    }
    async with client_of(settings_of(config, tmp_path)) as http:
        warned = [text for text in http.service.pdp.bundle.warnings if text.startswith("the forbid `broad` denies")]
    said = f"the forbid `broad` denies {', '.join(places)} to a user without roles"
    assert [text.startswith(said) for text in warned] == ([True] if places else [])


async def test_an_acting_role_does_not_shed_a_forbid_on_the_person(tmp_path: Path) -> None:
    rules = {
        "gone": "role in ['gone']",
        "out": "'contractor' in groups",
        "last": "op == 'catalog:assume' && role == 'last'",
        "here": "role == 'here' && path.startsWith('s.')",
    }
    (tmp_path / "forbid.yaml").write_text(yaml.safe_dump({"rules": rules}))
    people = ["ann", "gone", "last", "here"]
    grants = [{"principal": f"user:oidc~{name}", "privilege": "assignee", "object": "role:etl"} for name in people]
    grants.append({"principal": "role:etl", "privilege": "ownership", "object": "warehouse:lake"})
    objects = ["project:p", {"object": "warehouse:lake", "parent": "project:p"}, "namespace:lake/s", TABLE]
    seed = {"objects": [*objects, {"object": "role:etl", "parent": "project:p"}], "grants": grants}
    (tmp_path / "seed.json").write_text(json.dumps(seed))
    config = {
        "warehouses": {"lake": {"project": "p", "default_ref": "main"}},
        "authorities": {"default": {"engines": ["grants"]}},
        "policies": {"rules": [], "forbid": ["forbid.yaml"]},
        "store": {"url": f"sqlite:///{tmp_path}/pdp.db", "seed": "seed.json"},
    }
    async with client_of(settings_of(config, tmp_path)) as http:

        async def may(action: str, principal: Any, *resources: str) -> list[bool]:
            asked = {"principal": principal, "action": action, "resources": resources, "actingRole": "role:etl"}
            status, answer = await http.post("/v1/check", {"checks": [asked]})
            assert status == 200, answer
            return [each["allowed"] for each in answer["decisions"]]

        for action, places in (("read_data", (TABLE, "table:lake/s/u")), ("delete", ("warehouse:lake",))):
            assert await may(action, "user:oidc~ann", *places) == [True] * len(places)
            assert await may(action, "user:oidc~gone", *places) == [False] * len(places)
            assert await may(action, "user:oidc~last", *places) == [False] * len(places)
            contractor = {"id": "user:oidc~ann", "groups": ["contractor"]}
            assert await may(action, contractor, *places) == [False] * len(places)
        put = {"put": ["table:lake/s/new"], "actor": "user:oidc~gone", "actingRole": "role:etl"}
        assert (await http.post("/v1/objects", put))[0] == 403
        here = {"actor": "user:oidc~here", "actingRole": "role:etl"}
        assert (await http.post("/v1/objects", {"put": ["table:lake/s/new"], **here}))[0] == 403
        assert (await http.post("/v1/objects", {"put": ["table:lake/r/new"], **here}))[0] == 200
        for user, listed in (("ann", ["r/new", "s/t"]), ("here", ["r/new"]), ("gone", [])):
            named = {"action": "read_data", "type": "table", "container": "warehouse:lake"}
            body = {"principal": f"user:oidc~{user}", "actingRole": "role:etl", **named}
            status, found = await http.post("/v1/list", body)
            assert (status, [*found["objects"]]) == (200, [f"table:lake/{name}" for name in listed])
        for user, table, permitted in (("ann", "s/t", True), ("here", "s/t", False), ("here", "r/new", True)):
            body = {"target": f"table:lake/{table}", "action": "loadTable", "actingRole": "role:etl"}
            status, found = await http.post("/v1/load", {"principal": f"user:oidc~{user}", **body})
            assert (status, found["allowed"]) == (200, permitted)


@pytest.mark.parametrize("catalog", ["other", "lakehouse"])
async def test_a_creation_of_a_function_takes_the_right_to_drop_what_it_replaces(catalog: str, tmp_path: Path) -> None:
    rules = {
        "unmanaged": "op == 'trino:DropFunction' && arguments.function.startsWith('other.hr.')",
        "mapped": "'CATALOG_DROP_ENTITY' in actions && path == 'hr'",
    }
    made = world(rules)
    made["world"]["grants"].append({"principal": "user:oidc~bob", "privilege": "ownership", "object": "warehouse:lake"})
    async with asking(made, tmp_path) as ask:
        for schema, allowed in (("hr", False), ("free", True)):
            function = {"function": {"catalogName": catalog, "schemaName": schema, "functionName": "f"}}
            for operation in ("CreateFunction", "DropFunction"):
                body = body_of({"operation": operation, "resource": function}, "bob")
                assert (await ask("allow", body))["result"] is allowed, (operation, schema)


async def test_a_forbid_by_any_name_of_an_action_binds_each_action(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its own action, by each catalog action that does the same, by the implied word, and by the place in capitals."""
    monkeypatch.setenv("PDP_DEVELOPMENT", "1")
    words = {"CREATE_ENTITY": "CATALOG_CREATE_ENTITY", "UPDATE_ENTITY": "CATALOG_UPDATE_ENTITY", "DELETE_ENTITY": "CATALOG_DROP_ENTITY"}  # fmt: skip
    rules: dict[str, str] = {}
    asked: list[tuple[str, str, str]] = []
    for type, action in ACTIONS:
        tests = [f"action == '{name}'" for name in (action, *KIN.get((type, action), ()))]
        checks = CEL_CHECKS.get((type, action), ())
        tests += [f"'{words[one.op]}' in actions" for one in checks if one.op in words and not one.actions]
        tests += (
            [f"path == '{'.'.join(_resource(type)['path']).upper()}'"] if checks and checks[-1].path == "self" else []
        )
        for test in tests:
            rules[f"f{len(rules)}"] = f"role == 'u{len(rules)}' && {test}"
            asked.append((type, action, test))
    (tmp_path / "forbid.yaml").write_text(yaml.safe_dump({"rules": rules}))
    config = {
        "warehouses": {"lake": {"project": "p", "default_ref": "main"}},
        "authorities": {"default": {"engines": ["allow_all"]}},
        "policies": {"rules": [], "forbid": ["forbid.yaml"]},
        "store": {"url": f"sqlite:///{tmp_path}/pdp.db"},
        "trino": {"catalogs": {"lakehouse": {"warehouse": "lake"}}},
    }
    async with client_of(settings_of(config, tmp_path)) as http:
        for bound in (True, False):
            questions = [
                {"principal": f"user:oidc~u{at if bound else 'x'}", "action": action, "resource": _resource(type)}
                for at, (type, action, _) in enumerate(asked)
            ]
            status, answer = await http.post("/v1/check", {"checks": questions})
            assert status == 200, answer
            for at, (key, each) in enumerate(zip(asked, answer["decisions"], strict=True)):
                assert each["allowed"] is not bound, (key, each)
                assert not bound or each["by"][0].endswith(f"cel:f{at}"), (key, each)


_FOLDED = {"catalogName", "schemaName", "tableName", "functionName", "propertyName", "name"}


def _in_capitals(value: Any, spell: Callable[[str], str], parent: str = "") -> Any:
    """Return an action with the names of objects in another case; those of users and roles stay."""
    if isinstance(value, dict):
        return {
            key: spell(found)
            if key in _FOLDED and isinstance(found, str) and parent not in ("user", "grantee")
            else _in_capitals(found, spell, key)
            for key, found in value.items()
        }
    return [_in_capitals(each, spell, parent) for each in value] if isinstance(value, list) else value


def _at_catalog(name: str) -> list[dict[str, Any]]:
    """Return questions about a catalog, a schema, a table, a function and a property."""
    place = {"catalogName": name, "schemaName": "runtime"}
    table = {"table": place | {"tableName": "nodes", "columns": ["c"]}}
    return [
        {"operation": "AccessCatalog", "resource": {"catalog": {"name": name}}},
        {"operation": "CreateCatalog", "resource": {"catalog": {"name": name}}},
        {"operation": "ShowTables", "resource": {"schema": place}},
        {"operation": "DropSchema", "resource": {"schema": place}},
        *({"operation": one, "resource": table} for one in ("SelectFromColumns", "DropTable", "CreateTable")),
        {"operation": "RenameTable", "resource": table, "targetResource": _at("s", "t", name)},
        {"operation": "RenameTable", "resource": _at("s", "t", name), "targetResource": table},
        *(
            {"operation": one, "resource": {"function": place | {"functionName": "flush"}}}
            for one in ("ExecuteProcedure", "ExecuteFunction", "CreateFunction")
        ),
        {"operation": "SetCatalogSessionProperty", "resource": {"catalogSessionProperty": {"catalogName": name, "propertyName": "free"}}},
    ]  # fmt: skip


CAPITALS: list[dict[str, Any]] = [
    *UNMANAGED,
    *(one for name in ("other", "system", "lakehouse") for one in _at_catalog(name)),
    {"operation": "ExecuteProcedure", "resource": {"function": {"catalogName": "lakehouse", "schemaName": "system", "functionName": "flush"}}},
    {"operation": "SelectFromColumns", "resource": {"table": {"catalogName": "lakehouse", "schemaName": "information_schema", "tableName": "columns", "columns": ["c"]}}},
    {"operation": "SetSystemSessionProperty", "resource": {"systemSessionProperty": {"name": "task_concurrency"}}},
]  # fmt: skip
ON_NAMES = {
    "op == 'trino:SelectFromColumns' && arguments.schema == 'runtime'": "SelectFromColumns",
    "op.startsWith('trino:') && has(arguments.catalog) && arguments.catalog in ['other', 'system']": "AccessCatalog",
    "op.startsWith('trino:') && has(arguments.table) && arguments.table == 'nodes'": "DropTable",
    "op.startsWith('trino:') && has(arguments.function) && arguments.function.endsWith('.flush')": "ExecuteProcedure",
    "op.startsWith('trino:') && has(arguments.property) && arguments.property in ['other.free', 'task_concurrency']": "SetSystemSessionProperty",
}  # fmt: skip


@pytest.mark.parametrize("rule", [None, *ON_NAMES])
@pytest.mark.parametrize("spell", [str.upper, str.title])
async def test_names_in_capitals_are_judged_in_lower_case(
    rule: str | None, spell: Callable[[str], str], tmp_path: Path
) -> None:
    """Trino lowers each name: outside of a warehouse, too, no other case goes around a forbid or the administrators."""
    made = world({"f": rule} if rule else None)
    made["config"]["trino"]["admin_users"] = []
    async with asking(made, tmp_path) as ask:

        async def told(action: dict[str, Any]) -> Any:
            single = (await ask("allow", body_of(action, "alice")))["result"]
            resources = [action["resource"], action["resource"]]
            listed = {"operation": action["operation"], "filterResources": resources}
            many = [] if "targetResource" in action else (await ask("batch", body_of(listed, "alice")))["result"]
            return single, many

        found = [await told(action) for action in CAPITALS]
        spelled = [await told(_in_capitals(action, spell)) for action in CAPITALS]
    assert spelled == found
    denied = {action["operation"] for action, (allowed, _) in zip(CAPITALS, found, strict=True) if not allowed}
    assert rule is None or ON_NAMES[rule] in denied


async def test_native_questions_of_trino_are_judged_in_lower_case(tmp_path: Path) -> None:
    (tmp_path / "forbid.yaml").write_text(json.dumps({"rules": {str(at): rule for at, rule in enumerate(ON_NAMES)}}))
    config = {
        "warehouses": {"lake": {}},
        "policies": {"rules": [], "forbid": ["forbid.yaml"]},
        "trino": OPEN_TRINO | {"catalogs": {"lk": {"warehouse": "lake"}}},
    }
    names = ["other/runtime/nodes", "free/s/t", "free/s/nodes"]
    checks = [
        {"principal": "user:oidc~bob", "action": f"trino:{operation}", "resources": [f"catalog:{spell(n)}" for n in names]}
        for operation in ("SelectFromColumns", "DropTable", "CreateTable")
        for spell in (str.lower, str.upper, str.title)
    ]  # fmt: skip
    async with client_of(settings_of(config, tmp_path)) as client:
        status, answer = await client.post("/v1/check", {"checks": checks})
        single = [{**check, "resources": [one]} for check in checks for one in check["resources"]]
        alone = await client.post("/v1/check", {"checks": single})
    found = [one["allowed"] for one in answer["decisions"]]
    assert (status, found) == (200, [False, True, False] * 9)
    assert [one["allowed"] for one in alone[1]["decisions"]] == found
