"""StarRocks's access controller: privileges are native checks, filters and masks are its SQL, and all else is denied."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support.clients.http_client import HttpClient, client_of
from support.generators.recorded_runs import repeat
from support.oracles.audit_files import audit_records
from support.oracles.trino_answers import readers_that_allow, readers_that_show_all
from support.paths import ROOT
from support.service.serving import settings_of

from pdp.dialects.starrocks.endpoints import PRIVILEGES

one_service = pytest.mark.asyncio(loop_scope="module")
ALLOW, FILTERS, MASK, MASKS = (f"/v1/data/starrocks/{name}" for name in ("allow", "rowFilters", "columnMask", "batchColumnMasks"))  # fmt: skip
PEOPLE = ("ann", "bob", "carl", "dora", "gus", "nobody")
WORLD = {
    "objects": ["project:p1", {"object": "warehouse:wh", "parent": "project:p1"}, {"object": "namespace:wh/sales"}],
    "grants": [
        {"principal": "user:oidc~ann", "privilege": "ownership", "object": "warehouse:wh"},
        {"principal": "user:oidc~gus", "privilege": "ownership", "object": "warehouse:wh"},
        {"principal": "user:oidc~bob", "privilege": "select", "object": "namespace:wh/sales"},
        {"principal": "user:oidc~carl", "privilege": "modify", "object": "namespace:wh/sales"},
        {"principal": "user:oidc~dora", "privilege": "create", "object": "namespace:wh/sales"},
        {"principal": "role:analyst", "privilege": "select", "object": "namespace:wh/sales"},
    ],
}
COLUMNS = {"id": "INTEGER", "region": "VARCHAR", "email": "VARCHAR", "day": "DATE"}
ROWS = {
    "default": ["wh", "sales"],
    "tables": {"orders": {"columns": COLUMNS}, "odd": {"columns": COLUMNS}},
    "policies": [
        {"id": "eu", "table": "orders", "grantees": ["user:gus"], "filter": "region = 'EU' AND id > 3"},
        {"id": "own", "table": "orders", "grantees": ["user:bob"], "filter": "email = current_user OR lower(region) = 'eu'"},
        {"id": "open", "table": "orders", "grantees": ["user:ann"], "filter": "TRUE"},
        {"id": "team", "table": "orders", "grantees": ["user:carl"], "filter": "contains(current_groups(), region)"},
        {"id": "like", "table": "odd", "grantees": ["user:gus"], "filter": "region LIKE 'a%'"},
    ],
    "masks": [
        {"id": "mail", "table": "orders", "column": "email", "kind": "constant", "expression": "'no''ne'", "grantees": ["user:gus"]},
        {"id": "code", "table": "orders", "column": "id", "kind": "null", "grantees": ["user:gus"]},
        {"id": "part", "table": "masked", "column": "c", "kind": "partial", "grantees": ["user:gus"]},
    ],
}  # fmt: skip
FORBID = {
    "lock": "path == 'sales.locked' && role != 'ann'",
    "of-group": "path == 'sales.group' && 'contractor' in groups",
}
CALLER = {"loopback": True, "may_assert": ["principals", "groups"], "empty": ["roles", "attributes"]}


@asynccontextmanager
async def asking(folder: Path, **more: Any) -> AsyncIterator[HttpClient]:
    for name, content in (("world", WORLD), ("rows", ROWS), ("forbid", {"rules": FORBID})):
        (folder / f"{name}.yaml").write_text(json.dumps(content))
    config: dict[str, Any] = {
        "identity": {"callers": {"starrocks": CALLER}},
        "warehouses": {"wh": {}, "other": {}, "nes": {"kind": "nessie", "default_ref": "main"}},
        "store": {"url": "file:world.yaml"},
        "policies": {"rules": [], "row_access": ["rows.yaml"], "forbid": ["forbid.yaml"]},
        "starrocks": {"catalogs": {"lake": "wh", "ns": "nes"}},
    } | more
    async with client_of(settings_of(config, folder)) as client:
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[HttpClient]:
    async with asking(tmp_path_factory.mktemp("starrocks")) as client:
        yield client


def body_of(user: str, privilege: str, type: str, operation: str = "check", /, **names: Any) -> dict[str, Any]:
    """Return a body as StarRocks writes it. `groups` and `columns` may be among the names."""
    groups, columns = names.pop("groups", []), names.pop("columns", None)
    resource = {"catalog": "lake"} | {key: value for key, value in names.items() if value is not None}
    context = {"user": user, "groups": groups, "host": "%", "queryId": "9f9c1e1b-0000-0000-0000-000000000001"}
    context |= {key: resource[key] for key in ("catalog", "database") if key in resource}
    action = {"operation": operation, "privilege": privilege, "objectType": type, "resource": resource}
    if columns is not None:
        action["filterResources"] = [resource | {"column": column} for column in columns]
    return {"input": {"context": context, "action": action}}


async def allowed(client: HttpClient, body: Any) -> bool:
    status, answer = await client.post(ALLOW, body)
    assert status == 200, answer
    assert answer in ({"result": True}, {"result": False})
    return answer["result"] is True


async def result_of(client: HttpClient, path: str, body: Any) -> Any:
    status, answer = await client.post(path, body)
    assert status == 200, answer
    assert answer.keys() == {"result"}
    return answer["result"]


def rows_body(user: str, table: str = "orders", **more: Any) -> dict[str, Any]:
    return body_of(user, "SELECT", "TABLE", "get_row_filters", database="sales", table=table, **more)


def masks_body(user: str, *columns: str, table: str = "orders", **more: Any) -> dict[str, Any]:
    return body_of(user, "SELECT", "COLUMN", "get_column_masks", database="sales", table=table, columns=columns, **more)


def mask_body(user: str, column: str, table: str = "orders", **more: Any) -> dict[str, Any]:
    return body_of(user, "SELECT", "COLUMN", "get_column_mask", database="sales", table=table, column=column, **more)


PLACES: dict[str, list[dict[str, str]]] = {
    "CATALOG": [{}],
    "DATABASE": [{"database": "sales"}, {"database": "sales.eu"}, {"database": "hr"}],
    "TABLE": [{"database": "sales", "table": name} for name in ("t", "locked")] + [{"database": "hr", "table": "t"}],
    "VIEW": [{"database": "sales", "view": "v"}, {"database": "hr", "view": "v"}],
}
PLACES["COLUMN"] = [place | {"column": "c"} for place in PLACES["TABLE"]]
KINDS = {"CATALOG": "warehouse", "DATABASE": "namespace", "TABLE": "table", "COLUMN": "table", "VIEW": "view"}


def native(type: str, place: dict[str, str]) -> tuple[str, str]:
    names = [*place.get("database", "").split("."), place.get("table", place.get("view", ""))]
    return KINDS[type], "/".join(["wh", *filter(None, names)])


@one_service
@pytest.mark.parametrize(("type", "privilege"), PRIVILEGES)
async def test_a_privilege_is_decided_as_its_native_checks(type: str, privilege: str, client: HttpClient) -> None:
    outcomes = set()
    for user, place in product(PEOPLE, PLACES[type]):
        kind, path = native(type, place)
        steps = PRIVILEGES[type, privilege]
        checks = [
            {"principal": f"user:oidc~{user}", "action": step.action, "resource": f"{step.type or kind}:{path}"}
            for step in steps
        ]
        _, answer = await client.check(*checks)
        wanted = all(each["allowed"] for each in answer["decisions"])
        assert await allowed(client, body_of(user, privilege, type, **place)) == wanted, (user, place)
        outcomes.add(wanted)
    # a forbid that reads paths denies where nobody knows the new name: what an ALTER alters, the name of a database
    assert outcomes == ({False} if privilege in ("ALTER", "CREATE DATABASE") else {True, False})


def test_the_page_has_the_checks_of_every_privilege() -> None:
    rows = re.findall(
        r"^\| `([A-Z]+)` \| (`.*?`) \| (`.*`.*) \|$", (ROOT / "docs" / "starrocks.md").read_text(), re.MULTILINE
    )
    found = {
        (type, privilege): [(name, bool(whole)) for name, whole in re.findall(r"`(\w+)`( whole)?", checks)]
        for type, privileges, checks in rows
        for privilege in re.findall(r"`([A-Z ]+)`", privileges)
    }
    assert found == {key: [(step.action, step.is_whole) for step in steps] for key, steps in PRIVILEGES.items()}


UNKNOWN = [
    ("OPERATE", "SYSTEM", {"system": "*"}), ("NODE", "SYSTEM", {"system": "*"}), ("USAGE", "FUNCTION", {"database": "sales", "function": "f(INT)"}),
    ("SELECT", "MATERIALIZED VIEW", {"database": "sales", "materialized_view": "m"}), ("IMPERSONATE", "USER", {"user": "ann"}),
    ("USAGE", "GLOBAL FUNCTION", {"global_function": "f()"}), ("USAGE", "RESOURCE", {"resource": "r"}), ("ANY", "PIPE", {"database": "sales", "pipe": "p"}),
    ("USAGE", "STORAGE VOLUME", {"storage_volume": "s"}), ("USAGE", "WAREHOUSE", {"warehouse": "w"}), ("ALTER", "RESOURCE GROUP", {"resource_group": "g"}),
    ("DROP", "CATALOG", {}), ("ALTER", "CATALOG", {}), ("ALTER", "DATABASE", {"database": "sales"}), ("CREATE MATERIALIZED VIEW", "DATABASE", {"database": "sales"}),
    ("REFRESH", "TABLE", {"database": "sales", "table": "t"}), ("UNKNOWN", "TABLE", {"database": "sales", "table": "t"}), ("select", "TABLE", {"database": "sales", "table": "t"}),
    ("SELECT", "UNKNOWN", {"database": "sales", "table": "t"}), ("UPDATE", "COLUMN", {"database": "sales", "table": "t", "column": "c"}),
]  # fmt: skip


@one_service
async def test_what_is_not_mapped_is_denied(client: HttpClient) -> None:
    for privilege, type, names in UNKNOWN:
        assert not await allowed(client, body_of("ann", privilege, type, **names)), (privilege, type)
    table = {"database": "sales", "table": "t"}
    assert await allowed(client, body_of("ann", "SELECT", "TABLE", **table))
    assert not await allowed(client, body_of("ann", "SELECT", "DATABASE", "check_action_in_db", database="sales"))
    assert not await allowed(client, body_of("ann", "SELECT", "TABLE", "check_action_in_db", **table))
    for catalog in ("default_catalog", "LAKE", "wh", ""):
        assert not await allowed(client, body_of("ann", "SELECT", "TABLE", **table | {"catalog": catalog})), catalog
    for more in (
        {"table": "*"},
        {"database": "*"},
        {"view": "v"},
        {"column": "c"},
        {"table": ""},
        {"table": None},
        {"database": "sales..x"},
    ):
        assert not await allowed(client, body_of("ann", "SELECT", "TABLE", **table | more)), more  # fmt: skip
    assert not await allowed(client, body_of("ann", "ANY", "TABLE", database="sales", table="*"))


@one_service
async def test_filters_and_masks_are_sql_of_starrocks(client: HttpClient) -> None:
    assert await result_of(client, FILTERS, rows_body("ann")) == []
    assert await result_of(client, FILTERS, rows_body("gus", "t")) == []
    assert await result_of(client, FILTERS, rows_body("gus")) == [{"expression": "((`region` = 'EU') AND (`id` > 3))"}]
    assert await result_of(client, FILTERS, rows_body("bob")) == [{"expression": "((`email` = 'bob') OR FALSE)"}]
    assert await result_of(client, FILTERS, rows_body("nobody")) == [{"expression": "FALSE"}]
    team = [{"expression": "(`region` IN ('a', 'it''s'))"}]
    assert await result_of(client, FILTERS, rows_body("carl", groups=["a", "it's"])) == team
    assert await result_of(client, FILTERS, rows_body("gus", "odd")) == [{"expression": "FALSE"}]
    assert await result_of(client, MASKS, masks_body("ann", "id", "email")) == []
    masked = [{"column": "id", "expression": "NULL"}, {"column": "EMAIL", "expression": "'no''ne'"}]
    assert await result_of(client, MASKS, masks_body("gus", "id", "region", "EMAIL")) == masked
    assert await result_of(client, MASKS, masks_body("gus", "c", "d", table="masked")) == [{"column": "c", "expression": "NULL"}]  # fmt: skip
    assert await result_of(client, MASK, mask_body("gus", "email")) == {"expression": "'no''ne'"}
    assert await result_of(client, MASK, mask_body("gus", "region")) is None


@one_service
async def test_what_is_unknown_shows_no_rows_and_values(client: HttpClient) -> None:
    hidden = [{"expression": "FALSE"}]
    for more in ({"catalog": "other"}, {"table": "*"}, {"table": ""}, {"column": "c"}, {"database": "sales..x"}):
        names = {"database": "sales", "table": "t", "catalog": "lake"} | more
        assert await result_of(client, FILTERS, body_of("ann", "SELECT", "TABLE", "get_row_filters", **names)) == hidden
    table = {"catalog": "other", "database": "sales", "table": "t"}
    masked = [{"column": "c", "expression": "NULL"}]
    assert await result_of(client, MASKS, body_of("ann", "SELECT", "COLUMN", "get_column_masks", columns=["c"], **table)) == masked  # fmt: skip
    one = body_of("ann", "SELECT", "COLUMN", "get_column_mask", column="c", **table)
    assert await result_of(client, MASK, one) == {"expression": "NULL"}
    assert await result_of(client, FILTERS, rows_body("")) == hidden


@one_service
async def test_rights_without_filters_need_all_rows_and_columns(client: HttpClient) -> None:
    for table, privilege in product(("orders", "masked"), ("INSERT", "UPDATE", "DELETE", "EXPORT")):
        names = {"database": "sales", "table": table}
        assert await allowed(client, body_of("ann", privilege, "TABLE", **names)), privilege
        assert not await allowed(client, body_of("gus", privilege, "TABLE", **names)), privilege
        assert await allowed(client, body_of("gus", privilege, "TABLE", **names | {"table": "t"})), privilege
        assert await allowed(client, body_of("gus", "SELECT", "TABLE", **names))


@one_service
async def test_forbids_bind_in_any_case_and_by_groups(client: HttpClient) -> None:
    for name, privilege in product(("locked", "LOCKED", "Locked"), ("SELECT", "INSERT", "ANY", "DROP", "ALTER")):
        assert not await allowed(client, body_of("gus", privilege, "TABLE", database="sales", table=name))
        if privilege != "DROP":  # another spelling of the schema alone is another object to a catalog
            assert not await allowed(client, body_of("gus", privilege, "TABLE", database="SALES", table=name))
    assert await allowed(client, body_of("ann", "SELECT", "TABLE", database="sales", table="locked"))
    for groups, want in (([], True), (["staff"], True), (["contractor"], False), (None, False)):
        body = body_of("gus", "SELECT", "TABLE", database="sales", table="group", groups=groups)
        assert await allowed(client, body) == want, groups
    assert not await allowed(client, body_of("ann", "SELECT", "TABLE", catalog="ns", database="s", table="t@branch"))


def spoiled(value: Any) -> Iterator[Any]:
    """Yield the value with a part replaced by another value, left out, or doubled in a list."""
    others: list[Any] = [None, True, 1, "", "\x07", "x" * 5000, [], {}, ["a"], {"a": {}}]
    if isinstance(value, dict):
        for key, below in value.items():
            yield {name: each for name, each in value.items() if name != key}
            yield from ({**value, key: each} for each in (*others, *spoiled(below)))
    if isinstance(value, list):
        yield from ([*value[:at], each, *value[at + 1 :]] for at, below in enumerate(value) for each in spoiled(below))


def _place(body: Any) -> Any:
    """Return what a body asks about, and for whom; None for a body in another form."""
    try:
        action, columns = body["input"]["action"], body["input"]["action"].get("filterResources")
        return body["input"]["context"]["user"], action["resource"], columns
    except (AttributeError, KeyError, TypeError):
        return None


@one_service
async def test_no_spoiled_body_reads_as_more_than_the_whole(client: HttpClient) -> None:
    for path, body in (
        (ALLOW, body_of("bob", "INSERT", "TABLE", database="sales", table="t", groups=["x"])),
        (FILTERS, rows_body("nobody", groups=["x"])),
        (MASK, mask_body("gus", "email", groups=["x"])),
        (MASKS, masks_body("gus", "email", groups=["x"])),
    ):
        answers = [await client.send("POST", path, each) for each in spoiled(body)]
        assert len(answers) > 100
        for each, found in zip(spoiled(body), answers, strict=True):
            assert found.status in (200, 400), (each, found)
            assert readers_that_allow(found.status, found.content) == set(), each
            if path != ALLOW and _place(each) == _place(body):
                assert not readers_that_show_all(found.status, found.content), each
        for text in (b"", b"{}", b"null", b"[]", b'{"input":null}', b"{", b'{"input":{}}', b'{"input":' + b"[" * 9000):
            for other in (ALLOW, FILTERS, MASK, MASKS):
                found = await client.send("POST", other, text)
                assert readers_that_allow(found.status, found.content) == set()
                assert not readers_that_show_all(found.status, found.content), (other, text)
        doubled = json.dumps(body).replace('"user":', '"user": "ann", "user":', 1)
        assert (await client.send("POST", path, doubled)).status == 400


@one_service
async def test_the_path_of_another_endpoint_is_an_error(client: HttpClient) -> None:
    bodies = {
        ALLOW: body_of("ann", "SELECT", "TABLE", database="sales", table="t"), FILTERS: rows_body("ann"),
        MASK: mask_body("ann", "id"), MASKS: masks_body("ann", "id"),
    }  # fmt: skip
    for path, own in product(bodies, bodies):
        found = await client.send("POST", path, bodies[own])
        assert (found.status == 200) == (path == own)
        for mistyped in (f"{path}/", path.lower() + "s", path.replace("starrocks", "trino/starrocks")):
            other = await client.send("POST", mistyped, bodies[own])
            assert other.status == 404
            assert not readers_that_show_all(other.status, other.content)
    assert (await client.send("GET", ALLOW)).json()["result"] is False
    columns = masks_body("ann", "id")
    columns["input"]["action"]["filterResources"].append(
        {"catalog": "lake", "database": "sales", "table": "t", "column": "c"}
    )
    assert (await client.send("POST", MASKS, columns)).status == 400
    assert (await client.send("POST", MASKS, masks_body("ann"))).status == 400
    assert (await client.send("POST", MASKS, masks_body("ann", *map(str, range(10_001))))).status == 400
    many = await result_of(client, MASKS, masks_body("nobody", *map(str, range(10_000)), table="t"))
    assert many == []


@one_service
async def test_pages_of_browsers_are_refused(client: HttpClient) -> None:
    body = body_of("ann", "SELECT", "TABLE", database="sales", table="t")
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Host": "evil.example"},
    ):
        for path in (ALLOW, FILTERS, MASK, MASKS):
            found = await client.send("POST", path, body, headers)
            assert found.status in (401, 403, 421)
            assert readers_that_allow(found.status, found.content) == set()


@pytest.mark.parametrize(("rights", "names", "groups"), [((), False, False), (("principals",), True, False), (("principals", "groups"), True, True)])  # fmt: skip
async def test_a_caller_needs_the_right_to_what_it_says(
    rights: tuple[str, ...], names: bool, groups: bool, tmp_path: Path
) -> None:
    caller = {"loopback": True, "may_assert": list(rights)}
    async with asking(tmp_path, identity={"callers": {"starrocks": caller}}) as client:
        table = {"database": "sales", "table": "t"}
        assert await allowed(client, body_of("ann", "SELECT", "TABLE", **table)) == names
        assert await allowed(client, body_of("ann", "SELECT", "TABLE", **table, groups=["a"])) == groups
        assert (await result_of(client, FILTERS, rows_body("ann", groups=["a"])) == []) == groups
        # roles and attributes are unknown, and so are groups without a right to them: a forbid that reads them denies
        assert await allowed(client, body_of("ann", "SELECT", "TABLE", database="sales", table="group")) == groups


async def test_groups_and_names_are_those_of_the_settings(tmp_path: Path) -> None:
    caller = {"loopback": True, "may_assert": ["principals", "groups", "roles"]}
    starrocks = {"catalogs": {"lake": "wh"}, "user_prefix": "other~", "groups": {"analysts": "analyst"}}
    async with asking(tmp_path, identity={"callers": {"s": caller}}, starrocks=starrocks) as client:
        table = {"database": "sales", "table": "t"}
        assert not await allowed(client, body_of("ann", "SELECT", "TABLE", **table))
        assert await allowed(client, body_of("x", "SELECT", "TABLE", **table, groups=["analysts"]))
        assert not await allowed(client, body_of("x", "SELECT", "TABLE", **table, groups=["analyst"]))


async def test_records_are_decided_again_as_they_were(tmp_path: Path) -> None:
    store = {"url": "sqlite:///pdp.db", "seed": "world.yaml"}
    async with asking(tmp_path, store=store) as client:
        for user, (type, privilege) in product(("ann", "gus", "bob"), PRIVILEGES):
            for name in ("t", "orders", "LOCKED"):
                place = PLACES[type][0]
                names = place | ({"table": name} if "table" in place else {})
                await allowed(client, body_of(user, privilege, type, **names))
        for user in ("ann", "gus", "bob"):
            await result_of(client, FILTERS, rows_body(user))
            await result_of(client, MASKS, masks_body(user, "id", "email"))
        await allowed(client, body_of("ann", "OPERATE", "SYSTEM", system="*"))
    records = [one for one in audit_records(tmp_path) if one.get("surface") == "starrocks"]
    operations = {f"{privilege} {type}" for type, privilege in PRIVILEGES}
    assert {one["operation"] for one in records} == {
        *operations,
        "OPERATE SYSTEM",
        "get_row_filters",
        "get_column_masks",
    }
    found, reading = await asyncio.to_thread(repeat, tmp_path / "audit")
    assert (found.totals, reading.skipped) == ({}, {})
    assert reading.checks >= len(records) / 2
