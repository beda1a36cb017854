"""What the tests of Trino's OPA plugin give and expect, where it concerns the policy service: against a running one."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from serving import serving
from trino_wants import settings

from pdp.vocabulary import TRINO_OPERATIONS

SHAPES = yaml.safe_load((Path(__file__).parent / "trino_cases" / "shapes" / "operations.yaml").read_text())
CASES = SHAPES["cases"]
USERS = ("alice", "bob")
Ask = Callable[..., Awaitable[Any]]


def body_of(action: dict[str, Any], user: str = "alice", **identity: Any) -> dict[str, Any]:
    context = {"identity": {"user": user, "groups": [], **identity}, "softwareStack": {"trinoVersion": "476"}}
    return {"input": {"context": context, "action": action}}


async def asking(policies: dict[str, Any], folder: Path) -> AsyncIterator[Ask]:
    async with serving(settings(policies, folder)) as service, aiohttp.ClientSession() as session:

        async def ask(endpoint: str, body: Any) -> Any:
            url = f"http://{service.addresses['http']}/v1/data/trino/{endpoint}"
            async with session.post(url, json=body) as response:
                assert (response.status, response.content_type) == (200, "application/json"), await response.text()
                return await response.json()

        yield ask


@pytest.fixture
async def shapes(tmp_path: Path) -> AsyncIterator[Ask]:
    async for ask in asking(SHAPES, tmp_path):
        yield ask


def objects(body: dict[str, Any], path: str) -> dict[str, Any] | None:
    """The object at a dotted path of a body, where there is one."""
    found: Any = body
    for part in path.split(".") if path else ():
        found = found.get(part)
        if not isinstance(found, dict):
            return None
    return dict(found) and found if isinstance(found, dict) else None


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
                at = objects(body, path)
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


def named(place: str) -> str:
    """A user's name that says what is granted."""
    return f"u{place}"


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
    async for ask in asking(granted(), tmp_path):
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
    asked = [
        ("alice", {"operation": "ImpersonateUser", "resource": {"user": {"user": "bob"}}}, True),
        ("bob", {"operation": "ExecuteQuery"}, True),
        ("bob", {"operation": "AccessCatalog", "resource": {"catalog": {"name": "k"}}}, True),
        ("bob", {"operation": "ExecuteFunction", "resource": version}, True),
        ("bob", {"operation": "ImpersonateUser", "resource": {"user": {"user": "alice"}}}, False),
        ("bob", {"operation": "SelectFromColumns", "resource": table}, False),
        ("bob", {"operation": "ShowCreateTable", "resource": table}, False),
        ("alice", {"operation": "AccessCatalog", "resource": {"catalog": {"name": "k"}}}, False),
    ]
    async for ask in asking(policies, tmp_path):
        for user, action, allowed in asked:
            assert await ask("allow", body_of(action, user)) == {"result": allowed}, (user, action)
