"""What the tests of Trino's OPA plugin give and expect, where it concerns the policy service: against a running one."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.oracles.trino_wants import Ask, asking
from support.paths import TESTS

from pdp.model.trino_operations import TRINO_OPERATIONS

SHAPES = yaml.safe_load((TESTS / "trino_cases" / "shapes" / "operations.yaml").read_text())
CASES = SHAPES["cases"]
USERS = ("alice", "bob")


def body_of(action: dict[str, Any], user: str = "alice", **identity: Any) -> dict[str, Any]:
    context = {"identity": {"user": user, "groups": [], **identity}, "softwareStack": {"trinoVersion": "476"}}
    return {"input": {"context": context, "action": action}}


@pytest.fixture
async def shapes(tmp_path: Path) -> AsyncIterator[Ask]:
    async with asking(SHAPES, tmp_path) as ask:
        yield ask


def at_path(body: dict[str, Any], path: str) -> dict[str, Any] | None:
    """The object at a dotted path of a body, where there is one."""
    found: Any = body
    for part in path.split(".") if path else ():
        found = found.get(part) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else None


def test_every_operation_has_a_shape() -> None:
    assert {case["action"]["operation"] for case in CASES} >= TRINO_OPERATIONS.keys() - {
        "GetRowFilters",
        "GetColumnMask",
    }


async def test_every_shape_is_answered(shapes: Ask) -> None:
    for case in CASES:
        for user in USERS:
            wanted = {"result": user in case.get("may", ["alice"])}
            assert await shapes("allow", body_of(case["action"], user)) == wanted, (user, case)


async def test_what_is_added_anywhere_changes_no_answer(shapes: Ask) -> None:
    used = set()
    for case in CASES:
        for user in USERS:
            for path, fields in SHAPES["added"].items():
                body = copy.deepcopy(body_of(case["action"], user))
                at = at_path(body, path)
                if at is None:
                    continue
                used.add(path)
                at.update({key: value for key, value in fields.items() if key not in at})
                assert await shapes("allow", body) == {"result": user in case.get("may", ["alice"])}, (user, path, case)
    assert used == SHAPES["added"].keys()


@pytest.mark.parametrize(
    "context",
    [
        {"identity": {"user": "alice"}},
        {"identity": {"user": "alice", "groups": []}},
        {"identity": {"user": "alice", "groups": ["a", "b"]}, "softwareStack": {"trinoVersion": "UNKNOWN"}},
        {"softwareStack": {}, "identity": {"groups": ["x"], "user": "alice"}, "queryId": "20261121_040233_00000_abcde"},
        {"identity": {"user": "alice"}, "softwareStack": {"trinoVersion": "999-SNAPSHOT"}, "queryId": "not an id\n"},
    ],
)
async def test_the_circumstances_may_be_few_or_many(shapes: Ask, context: dict[str, Any]) -> None:
    for case in CASES:
        body = {"input": {"context": context, "action": case["action"]}}
        assert await shapes("allow", body) == {"result": "alice" in case.get("may", ["alice"])}, case


async def test_a_group_gives_its_role_and_no_other_group_does(shapes: Ask) -> None:
    table = {"catalogName": "lakehouse", "schemaName": "s", "tableName": "t"}
    action = {"operation": "InsertIntoTable", "resource": {"table": table}}
    for groups, allowed in ((["engineers"], True), (["x", "engineers"], True), (["engineer"], False), ([], False)):
        assert await shapes("allow", body_of(action, "bob", groups=groups)) == {"result": allowed}, groups


# --- filters: each subset of three ---------------------------------------------------------------------------------

SUBSETS = [some for size in range(4) for some in combinations(range(3), size)]


def granted() -> dict[str, Any]:
    """Three of everything, and a user for every subset of them."""
    grants = [
        {"principal": f"user:oidc~{what}{''.join(map(str, some))}", "privilege": "describe", "object": form.format(at)}
        for what, form in GRANTED_ON.items()
        for some in SUBSETS
        for at in some
    ]
    return {
        "config": {
            "authorities": {"default": {"engines": ["grants"]}},
            "warehouses": {f"w{at}": {} for at in range(3)},
            "trino": {"catalogs": {f"c{at}": {"warehouse": f"w{at}"} for at in range(3)}},
        },
        "world": {
            "objects": [{"object": f"warehouse:w{at}", "parent": "project:p"} for at in range(3)],
            "grants": grants,
        },
    }


GRANTED_ON = {
    "catalog": "warehouse:w{0}",
    "schema": "namespace:w0/s{0}",
    "table": "table:w0/s/t{0}",
    "view": "view:w0/s/t{0}",
    "function": "namespace:w0/s{0}",
}
FILTERS: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "catalog": ("FilterCatalogs", [{"catalog": {"name": f"c{at}"}} for at in range(3)]),
    "schema": ("FilterSchemas", [{"schema": {"catalogName": "c0", "schemaName": f"s{at}"}} for at in range(3)]),
    "table": ("FilterTables", [{"table": {"catalogName": "c0", "schemaName": "s", "tableName": f"t{at}"}} for at in range(3)]),
    "view": ("FilterTables", [{"table": {"catalogName": "c0", "schemaName": "s", "tableName": f"t{at}"}} for at in range(3)]),
    "function": (
        "FilterFunctions",
        [{"function": {"catalogName": "c0", "schemaName": f"s{at}", "functionName": "f"}} for at in range(3)],
    ),
}  # fmt: skip


@pytest.fixture
async def filters(tmp_path: Path) -> AsyncIterator[Ask]:
    async with asking(granted(), tmp_path) as ask:
        yield ask


@pytest.mark.parametrize("what", FILTERS)
async def test_each_subset_maps_back_in_any_order(filters: Ask, what: str) -> None:
    operation, resources = FILTERS[what]
    for some in SUBSETS:
        user = f"{what}{''.join(map(str, some))}"
        for order in permutations(range(3)):
            action = {"operation": operation, "filterResources": [resources[at] for at in order]}
            wanted = [position for position, at in enumerate(order) if at in some]
            assert await filters("batch", body_of(action, user)) == {"result": wanted}, (some, order)
        for at, resource in enumerate(resources):
            single = body_of({"operation": operation, "resource": resource}, user)
            assert await filters("allow", single) == {"result": at in some}


@pytest.mark.parametrize("what", FILTERS)
async def test_what_is_asked_twice_is_answered_twice(filters: Ask, what: str) -> None:
    operation, (first, second, third) = FILTERS[what]
    action = {"operation": operation, "filterResources": [first, second, first, third, second, first]}
    assert await filters("batch", body_of(action, f"{what}02")) == {"result": [0, 2, 3, 5]}


async def test_queries_of_each_subset_of_owners(filters: Ask) -> None:
    for some in SUBSETS:
        owners = ["me" if at in some else "another" for at in range(3)]
        users = [{"user": {"user": owner, "groups": []}} for owner in owners]
        action = {"operation": "FilterViewQueryOwnedBy", "filterResources": users}
        assert await filters("batch", body_of(action, "me")) == {"result": list(some)}
        for at, user in enumerate(users):
            single = body_of({"operation": "FilterViewQueryOwnedBy", "resource": user}, "me")
            assert await filters("allow", single) == {"result": at in some}


async def test_the_same_owner_in_other_groups_is_the_same_owner(filters: Ask) -> None:
    users = [{"user": {"user": "me", "groups": groups}} for groups in ([], ["a"], ["a", "b"])]
    action = {"operation": "FilterViewQueryOwnedBy", "filterResources": [*users, {"user": {"user": "me"}}]}
    assert await filters("batch", body_of(action, "me", groups=["other"])) == {"result": [0, 1, 2, 3]}


async def test_catalogs_and_schemas_of_several_places_in_one_filter(filters: Ask) -> None:
    tables = [
        {"table": {"catalogName": catalog, "schemaName": schema, "tableName": table}}
        for catalog in ("c0", "c1", "system", "elsewhere")
        for schema, table in (("s", "t0"), ("s", "t1"), ("information_schema", "tables"), ("runtime", "queries"))
    ]
    action = {"operation": "FilterTables", "filterResources": tables}
    assert await filters("batch", body_of(action, "table1")) == {"result": [1, 2, 10, 11]}


FILTER_OPERATIONS = [
    *sorted({operation for operation, _ in FILTERS.values()}),
    "FilterViewQueryOwnedBy",
    "FilterColumns",
]


@pytest.mark.parametrize("operation", FILTER_OPERATIONS)
async def test_nothing_asked_is_nothing_answered(filters: Ask, operation: str) -> None:
    body = body_of({"operation": operation, "filterResources": []}, "table012")
    assert await filters("batch", body) == {"result": []}


# --- FilterColumns: one table, and indices into its columns --------------------------------------------------------

HIDDEN = ["row_number", "$path", "$partition", "$file_modified_time"]


def columns_of(table: str, columns: Any) -> dict[str, Any]:
    named = {"catalogName": "c0", "schemaName": "s", "tableName": table, "columns": columns}
    return {"operation": "FilterColumns", "filterResources": [{"table": named}]}


@pytest.mark.parametrize(
    "columns", [["a"], ["a", "b"], HIDDEN, [*HIDDEN, "a", "b c", "ä", ""], ["x"] * 5, list("abc") * 100]
)
@pytest.mark.parametrize("form", ["table", "view"])
async def test_columns_are_all_or_none_hidden_ones_too(filters: Ask, form: str, columns: list[str]) -> None:
    for table, wanted in (("t0", list(range(len(columns)))), ("t1", [])):
        assert await filters("batch", body_of(columns_of(table, columns), f"{form}0")) == {"result": wanted}
        for column in columns[:10]:
            named = {"catalogName": "c0", "schemaName": "s", "tableName": table, "columns": [column]}
            single = body_of({"operation": "FilterColumns", "resource": {"table": named}}, f"{form}0")
            assert await filters("allow", single) == {"result": bool(wanted)}


@pytest.mark.parametrize("columns", [[], None])
async def test_a_table_without_columns_shows_none(filters: Ask, columns: Any) -> None:
    body = body_of(columns_of("t0", columns), "table0")
    assert await filters("batch", body) == {"result": []}
    del body["input"]["action"]["filterResources"][0]["table"]["columns"]
    assert await filters("batch", body) == {"result": []}


# --- what a statement asks, one request after the other --------------------------------------------------------------


async def test_a_user_with_four_rights_can_ask_for_the_version(tmp_path: Path) -> None:
    """SELECT version() as bob, whom alice became; nothing else is bob's."""
    policies = {
        "config": {
            "authorities": {"default": {"engines": ["grants"]}},
            "warehouses": {"w": {}},
            "trino": {
                "catalogs": {"k": {"warehouse": "w"}},
                "functions": {"builtin_catalogs": ["b"]},
                "impersonation": {"alice": ["bob"]},
            },
        },
        "world": {"grants": [{"principal": "user:oidc~bob", "privilege": "describe", "object": "table:w/other/x"}]},
    }
    version = {"function": {"catalogName": "b", "schemaName": "builtin", "functionName": "version"}}
    table = {"table": {"catalogName": "k", "schemaName": "s", "tableName": "t"}}
    asked: list[tuple[str, dict[str, Any], bool]] = [
        ("alice", {"operation": "ImpersonateUser", "resource": {"user": {"user": "bob"}}}, True),
        ("bob", {"operation": "ExecuteQuery"}, True),
        ("bob", {"operation": "AccessCatalog", "resource": {"catalog": {"name": "k"}}}, True),
        ("bob", {"operation": "ExecuteFunction", "resource": version}, True),
        ("bob", {"operation": "ImpersonateUser", "resource": {"user": {"user": "alice"}}}, False),
        ("bob", {"operation": "SelectFromColumns", "resource": table}, False),
        ("bob", {"operation": "ShowCreateTable", "resource": table}, False),
        ("alice", {"operation": "AccessCatalog", "resource": {"catalog": {"name": "k"}}}, False),
    ]
    async with asking(policies, tmp_path) as ask:
        for user, action, allowed in asked:
            assert await ask("allow", body_of(action, user)) == {"result": allowed}, (user, action)


# --- row filters and masks --------------------------------------------------------------------------------------------

PEOPLE = {"catalogName": "k", "schemaName": "s", "tableName": "people"}
COLUMNS = {"id": "bigint", "name": "varchar", "salary": "decimal(10,2)", "dept": "varchar(20)", "$path": "varchar"}
ROWS = {
    "config": {
        "warehouses": {"w": {}},
        "trino": {"catalogs": {"k": {"warehouse": "w"}}, "groups": {"analysts": "analyst"}},
    },
    "world": {"grants": []},
    "row_access": {
        "policies": [
            {"id": "boss", "table": "w.s.people", "grantees": ["user:admin"], "filter": "TRUE"},
            {"id": "eng", "table": "w.s.people", "grantees": ["role:analyst"], "filter": "dept = 'eng'"},
            {"id": "ops", "table": "w.s.people", "grantees": ["group:ops"], "filter": "dept = 'ops' AND id > 1"},
            {"id": "as_admin", "table": "w.s.other", "grantees": ["user:bob"], "filter": "a = 1", "identity": "admin"},
        ],
        "masks": [
            {"id": "no_salary", "table": "w.s.people", "column": "salary", "grantees": ["user:bob"], "kind": "null"},
            {"id": "stars", "table": "w.s.people", "column": "name", "grantees": ["user:bob", "user:zed"],
             "except": ["group:ops"], "kind": "expression", "expression": "'****' || substring(name, 5)"},
            {"id": "alone", "table": "w.s.masked", "column": "a", "grantees": ["allUsers"], "kind": "null"},
        ],
    },
}  # fmt: skip
SHOWN = "'****' || substring(name, 5)"


@pytest.fixture
async def rows(tmp_path: Path) -> AsyncIterator[Ask]:
    async with asking(ROWS, tmp_path) as ask:
        yield ask


@pytest.mark.parametrize(
    ("user", "groups", "wanted"),
    [
        ("admin", [], []),
        ("admin", ["analysts", "ops"], []),
        ("bob", ["analysts"], [{"expression": "dept = 'eng'"}]),
        ("bob", ["ops"], [{"expression": "dept = 'ops' AND id > 1"}]),
        ("bob", ["ops", "analysts"], [{"expression": "(dept = 'eng') OR (dept = 'ops' AND id > 1)"}]),
        ("bob", ["analyst"], [{"expression": "false"}]),
        ("bob", [], [{"expression": "false"}]),
        ("ADMIN", [], [{"expression": "false"}]),
        ("admin ", [], [{"expression": "false"}]),
    ],
)
async def test_who_sees_which_rows(rows: Ask, user: str, groups: list[str], wanted: list[Any]) -> None:
    for spelt in ("people", "PEOPLE", "People"):
        action = {"operation": "GetRowFilters", "resource": {"table": {**PEOPLE, "tableName": spelt}}}
        assert await rows("rowFilters", body_of(action, user, groups=groups)) == {"result": wanted}


async def test_a_filter_may_run_as_another_user(rows: Ask) -> None:
    action = {"operation": "GetRowFilters", "resource": {"table": {**PEOPLE, "tableName": "other"}}}
    wanted = {"result": [{"expression": "a = 1", "identity": "admin"}]}
    assert await rows("rowFilters", body_of(action, "bob")) == wanted


@pytest.mark.parametrize("catalog", ["k", "elsewhere", "system"])
async def test_a_table_without_policies_shows_all_rows(rows: Ask, catalog: str) -> None:
    table = {"catalogName": catalog, "schemaName": "s", "tableName": "free"}
    assert await rows("rowFilters", body_of({"operation": "GetRowFilters", "resource": {"table": table}})) == {
        "result": []
    }
    column = {"column": {**table, "columnName": "a", "columnType": "bigint"}}
    assert await rows("columnMask", body_of({"operation": "GetColumnMask", "resource": column})) == {}
    assert await rows("batchColumnMasks", body_of({"operation": "GetColumnMask", "filterResources": [column]})) == {
        "result": []
    }


def columns(table: str, some: dict[str, str]) -> list[dict[str, Any]]:
    named = {**PEOPLE, "tableName": table}
    return [{"column": {**named, "columnName": name, "columnType": type}} for name, type in some.items()]


@pytest.mark.parametrize(
    ("user", "groups", "masked"),
    [
        ("admin", [], {}),
        ("carol", ["ops"], {"$path": "CAST(NULL AS varchar)"}),
        (
            "bob",
            [],
            {
                "name": f"CAST({SHOWN} AS varchar)",
                "salary": "CAST(NULL AS decimal(10,2))",
                "$path": "CAST(NULL AS varchar)",
            },
        ),
        ("bob", ["ops"], {"salary": "CAST(NULL AS decimal(10,2))", "$path": "CAST(NULL AS varchar)"}),
        ("zed", [], {"name": f"CAST({SHOWN} AS varchar)", "$path": "CAST(NULL AS varchar)"}),
    ],
)
async def test_masks_of_columns_in_any_order_are_those_of_each(
    rows: Ask, user: str, groups: list[str], masked: dict[str, str]
) -> None:
    asked = columns("people", COLUMNS)
    for order in (asked, asked[::-1], [asked[2], asked[0], asked[2]], asked[:1], []):
        body = body_of({"operation": "GetColumnMask", "filterResources": order}, user, groups=groups)
        wanted = [
            {"index": at, "viewExpression": {"expression": masked[name]}}
            for at, column in enumerate(order)
            if (name := column["column"]["columnName"]) in masked
        ]
        assert await rows("batchColumnMasks", body) == {"result": wanted}
    for column in asked:
        body = body_of({"operation": "GetColumnMask", "resource": column}, user, groups=groups)
        name = column["column"]["columnName"]
        assert await rows("columnMask", body) == ({"result": {"expression": masked[name]}} if name in masked else {})


@pytest.mark.parametrize(
    "type",
    ["bigint", "varchar(25)", "decimal(10,2)", "timestamp(3) with time zone", "array(varchar)", "map(varchar, varchar)",
     "row(c varchar, d array(decimal(10,2)))", "json", "HyperLogLog", "char(3)", "interval day to second"],
)  # fmt: skip
async def test_a_mask_has_exactly_the_type_of_its_column(rows: Ask, type: str) -> None:
    [column] = columns("masked", {"a": type})
    body = body_of({"operation": "GetColumnMask", "resource": column}, "anybody")
    assert await rows("columnMask", body) == {"result": {"expression": f"CAST(NULL AS {type})"}}
