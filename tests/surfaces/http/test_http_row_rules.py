"""Row policies and masks over HTTP: as their writers use them, as strangers attack them, and as Trino sees them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import pytest_asyncio
from support.clients.http_client import HttpClient, client_of
from support.oracles.audit_files import all_records
from support.servers.postgres import fresh_schema
from support.service.serving import settings_of

from pdp.engines.row_access.mask_kinds import MASK_KINDS

PATH, MASKS, ORDERS = "/v1/row-access-policies", "/v1/column-masks", "table:lake/sales/orders"
OWNER, EVE, ADMIN = "user:oidc~own@example.com", "user:oidc~eve@example.com", "user:oidc~admin"
EU = {"id": "eu", "table": ORDERS, "grantees": ["user:eve@example.com"], "filter": "region = 'EU'"}
MASK = {"id": "m", "table": ORDERS, "column": "email", "grantees": ["allUsers"], "kind": "hash"}
OBJECTS = [
    "project:p",
    {"object": "warehouse:lake", "parent": "project:p"},
    "namespace:lake/sales",
    {"object": ORDERS, "id": "1"},
]


def config_of(folder: Path) -> dict[str, Any]:
    return {
        "warehouses": {"lake": {"project": "p"}},
        "trino": {"catalogs": {"lakehouse": {"warehouse": "lake"}}},
        "store": {"url": f"sqlite:///{folder}/pdp.db"},
        "identity": {
            "instance_admins": [ADMIN],
            "callers": {"catalog": {"loopback": True, "may_assert": ["principals"], "may_write": True}},
        },
        "audit": {"sinks": [{"file": "audit/"}]},
    }


@asynccontextmanager
async def asking(folder: Path) -> AsyncIterator[HttpClient]:
    async with client_of(settings_of(config_of(folder), folder)) as http:
        assert (await http.post("/v1/objects", {"put": OBJECTS}))[0] == 200
        grants = [
            {"principal": OWNER, "privilege": "ownership", "object": "namespace:lake/sales"},
            {"principal": EVE, "privilege": "modify", "object": "namespace:lake/sales"},
        ]
        assert (await http.post("/v1/grants", {"add": grants}))[0] == 200
        yield http


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[HttpClient]:
    async with asking(tmp_path) as http:
        yield http


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def attacked(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[HttpClient]:
    """Start one service with a policy for all attacks, which it must refuse."""
    async with asking(tmp_path_factory.mktemp("attacked")) as http:
        assert (await ask(http, "POST", PATH, EU))[0] == 200
        yield http


async def ask(http: HttpClient, method: str, path: str, body: Any = None, **query: Any) -> tuple[int, Any]:
    text = f"{path}?{urlencode(query)}" if query else path
    response = await http.send(method, text, body)
    return response.status, response.json()


async def rows(http: HttpClient, who: str = EVE, table: str = "orders") -> str:
    """Trino's row filter of a user; an empty text for every row."""
    name = {"catalogName": "lakehouse", "schemaName": "sales", "tableName": table}
    body = {
        "context": {"identity": {"user": who.removeprefix("user:oidc~"), "groups": []}},
        "action": {"operation": "GetRowFilters", "resource": {"table": name}},
    }
    status, answer = await http.post("/v1/data/trino/rowFilters", {"input": body})
    assert status == 200, answer
    return " AND ".join(one["expression"] for one in answer["result"])


async def test_the_life_of_a_policy(client: HttpClient) -> None:
    assert await rows(client) == ""
    status, made = await ask(client, "POST", PATH, EU | {"actor": OWNER})
    assert status == 200, made
    assert (made["author"], made["dialect"], made["created"]) == (OWNER, "trino", made["updated"])
    assert await rows(client) == "region = 'EU'"
    assert await rows(client, OWNER) == "false"
    status, found = await ask(client, "GET", f"{PATH}/eu", table=ORDERS, actor=OWNER)
    assert (status, found) == (200, made)
    changed = EU | {"filter": True, "etag": made["etag"], "actor": OWNER}
    status, updated = await ask(client, "PUT", f"{PATH}/eu", changed)
    assert (status, updated["created"], updated["filter"]) == (200, made["created"], "TRUE")
    assert updated["etag"] != made["etag"]
    assert await rows(client) == ""
    assert (await ask(client, "PUT", f"{PATH}/eu", changed))[0] == 409
    status, _ = await ask(client, "DELETE", f"{PATH}/eu", table=ORDERS, etag=updated["etag"], actor=OWNER)
    assert status == 200
    assert (await ask(client, "GET", f"{PATH}/eu", table=ORDERS, actor=OWNER))[0] == 404
    assert await rows(client, OWNER) == ""


async def test_a_policy_without_grantees_is_for_all_who_are_known(client: HttpClient) -> None:
    body = {key: value for key, value in EU.items() if key != "grantees"}
    _, made = await ask(client, "POST", PATH, body)
    assert made["grantees"] == ["allAuthenticatedUsers"]
    assert made["author"] == "caller:loopback" or made["author"]
    assert await rows(client, OWNER) == "region = 'EU'"


async def test_every_kind_of_a_mask_is_stored(client: HttpClient) -> None:
    mask = {key: MASK[key] for key in ("id", "table", "column", "grantees")} | {"actor": OWNER}
    for kind, form in MASK_KINDS.items():
        more = {"expression": "'x'"} if form.has_text else {}
        status, made = await ask(client, "POST", MASKS, mask | {"id": kind, "kind": kind} | more)
        assert (status, made["kind"]) == (200, kind), made
    found = (await ask(client, "GET", MASKS, table=ORDERS))[1]["columnMasks"]
    assert {one["id"]: one["kind"] for one in found} == {kind: kind for kind in MASK_KINDS}
    status, refused = await ask(client, "POST", MASKS, mask | {"id": "n", "kind": "sha-256-global"})
    assert (status, refused["error"]["code"]) == (400, "invalid_argument")
    assert f"is one of {', '.join(MASK_KINDS)}, not 'sha-256-global': write `hash`" in refused["error"]["message"]


async def test_masks_reach_trino(client: HttpClient) -> None:
    status, made = await ask(client, "POST", MASKS, MASK | {"actor": OWNER, "except": ["user:own@example.com"]})
    assert status == 200, made
    for who, masked in ((EVE, True), (OWNER, False)):
        body = {
            "context": {"identity": {"user": who.removeprefix("user:oidc~"), "groups": []}},
            "action": {
                "operation": "GetColumnMask",
                "resource": {
                    "column": {
                        "catalogName": "lakehouse", "schemaName": "sales", "tableName": "orders",
                        "columnName": "email", "columnType": "varchar",
                    }
                },
            },
        }  # fmt: skip
        _, answer = await client.post("/v1/data/trino/columnMask", {"input": body})
        assert ("sha256" in json.dumps(answer)) == masked
    status, found = await ask(client, "GET", MASKS, table=ORDERS)
    assert (status, [one["id"] for one in found["columnMasks"]]) == (200, ["m"])
    assert (await ask(client, "GET", PATH, table=ORDERS))[1]["rowAccessPolicies"] == []
    assert (await ask(client, "DELETE", f"{MASKS}/m", table=ORDERS, column="Email"))[0] == 200


ATTACKS: list[tuple[str, str, Any, dict[str, Any], int, str]] = [
    ("POST", PATH, EU | {"actor": EVE, "filter": True}, {}, 403, "forbidden"),
    ("PUT", f"{PATH}/eu", EU | {"actor": EVE, "filter": True}, {}, 403, "forbidden"),
    ("DELETE", f"{PATH}/eu", None, {"table": ORDERS, "actor": EVE}, 403, "forbidden"),
    ("DELETE", f"{PATH}/none", None, {"table": ORDERS, "actor": EVE}, 403, "forbidden"),
    ("POST", f"{PATH}:batchDelete", {"table": ORDERS, "ids": ["eu"], "actor": EVE}, {}, 403, "forbidden"),
    ("GET", f"{PATH}/eu", None, {"table": ORDERS, "actor": EVE}, 403, "forbidden"),
    ("GET", PATH, None, {"table": ORDERS, "actor": EVE}, 403, "forbidden"),
    ("POST", PATH, EU | {"actor": "anonymous"}, {}, 403, "forbidden"),
    ("POST", PATH, EU | {"actor": EVE, "actingRole": "role:owner"}, {}, 403, "forbidden"),
    ("POST", PATH, EU, {}, 409, "already_exists"),
    ("POST", PATH, EU | {"table": "table:lake/SALES/Orders"}, {}, 409, "already_exists"),
    ("POST", PATH, EU | {"id": "x", "filter": "FALSE) OR (1=1"}, {}, 400, "RAP_FILTER_INVALID"),
    ("POST", PATH, EU | {"id": "x", "filter": "SELECT 1"}, {}, 400, "RAP_FILTER_INVALID"),
    ("POST", PATH, EU | {"id": "x", "filter": ""}, {}, 400, "RAP_FILTER_INVALID"),
    ("POST", PATH, EU | {"id": "x", "grantees": ["eve"]}, {}, 400, "invalid_argument"),
    ("POST", PATH, EU | {"id": "x", "grantees": []}, {}, 400, "invalid_argument"),
    ("POST", PATH, EU | {"id": ""}, {}, 400, "invalid_argument"),
    ("POST", PATH, EU | {"id": "x", "identity": "root"}, {}, 400, "invalid_argument"),
    ("POST", PATH, EU | {"id": "x", "more": 1}, {}, 400, "invalid_argument"),
    ("POST", PATH, EU | {"id": "x", "table": "table:lake/sales/orders@main"}, {}, 400, "invalid_argument"),
    ("POST", PATH, EU | {"id": "x", "table": "role:etl"}, {}, 400, "invalid_argument"),
    ("POST", PATH, EU | {"id": "x", "table": "orders"}, {}, 400, "invalid_argument"),
    ("POST", PATH, EU | {"id": "x", "table": "table:sea/sales/orders"}, {}, 400, "invalid_argument"),
    ("POST", PATH, "{", {}, 400, "invalid_argument"),
    ("POST", PATH, {}, {}, 400, "invalid_argument"),
    ("PUT", f"{PATH}/x", EU, {}, 400, "invalid_argument"),
    ("PUT", f"{PATH}/x", EU | {"id": "x"}, {}, 404, "not_found"),
    ("DELETE", f"{PATH}/x", None, {"table": ORDERS}, 404, "not_found"),
    ("DELETE", f"{PATH}/eu", None, {}, 400, "invalid_argument"),
    ("DELETE", f"{PATH}/eu", None, {"table": ORDERS, "column": "c"}, 400, "invalid_argument"),
    ("DELETE", f"{PATH}/eu", None, {"table": ORDERS, "etag": "0"}, 409, "conflict"),
    ("POST", f"{PATH}:batchDelete", {"table": ORDERS, "ids": ["eu", "x"]}, {}, 404, "not_found"),
    ("POST", f"{PATH}:batchDelete", {"table": ORDERS, "ids": []}, {}, 400, "invalid_argument"),
    ("POST", f"{PATH}:testPermissions", {"table": ORDERS, "permissions": ["x"]}, {}, 400, "invalid_argument"),
    ("GET", PATH, None, {"page": "1"}, 400, "invalid_argument"),
    ("GET", PATH, None, {"pageToken": "!"}, 400, "invalid_argument"),
    ("PATCH", f"{PATH}/eu", EU, {}, 405, "method_not_allowed"),
    ("GET", f"{PATH}/a/b", None, {}, 404, "not_found"),
    ("POST", MASKS, MASK | {"actor": EVE}, {}, 403, "forbidden"),
    ("POST", MASKS, MASK | {"kind": "nil"}, {}, 400, "invalid_argument"),
    ("POST", MASKS, MASK | {"column": ""}, {}, 400, "invalid_argument"),
]


@pytest.mark.parametrize(("method", "path", "body", "query", "status", "code"), ATTACKS)
@pytest.mark.asyncio(loop_scope="module")
async def test_nothing_wrong_is_done(
    attacked: HttpClient, method: str, path: str, body: Any, query: dict[str, Any], status: int, code: str
) -> None:
    found, answer = await ask(attacked, method, path, body, **query)
    assert (found, answer["error"]["code"]) == (status, code), answer
    assert await rows(attacked) == "region = 'EU'"
    assert await rows(attacked, OWNER) == "false"


async def test_who_may_list_sees_the_policies_of_readable_tables(client: HttpClient) -> None:
    for number in range(7):
        table = f"table:lake/{'sales' if number % 2 else 'other'}/t{number}"
        assert (await ask(client, "POST", PATH, EU | {"table": table, "id": f"p{number}"}))[0] == 200
    seen, token = [], ""
    while True:
        _, page = await ask(client, "GET", PATH, pageSize=2, pageToken=token, actor=OWNER)
        seen += [one["id"] for one in page["rowAccessPolicies"]]
        token = page["nextPageToken"]
        if not token:
            break
    assert seen == ["p1", "p3", "p5"]
    assert len((await ask(client, "GET", PATH))[1]["rowAccessPolicies"]) == 7
    assert (await ask(client, "GET", PATH, actor=EVE))[1]["rowAccessPolicies"] == []
    assert len((await ask(client, "GET", PATH, actor=ADMIN))[1]["rowAccessPolicies"]) == 7


async def test_permissions_are_those_that_writes_need(client: HttpClient) -> None:
    names = ["bigquery.rowAccessPolicies.create", "rowAccessPolicies.list"]
    for who, wanted in ((OWNER, names), (EVE, []), (ADMIN, names)):
        body = {"table": ORDERS, "permissions": names, "actor": who}
        assert await ask(client, "POST", f"{PATH}:testPermissions", body) == (200, {"permissions": wanted})


async def test_of_two_updates_of_one_version_one_wins(client: HttpClient) -> None:
    _, made = await ask(client, "POST", PATH, EU)
    bodies = [EU | {"filter": f"x = {number}", "etag": made["etag"]} for number in range(8)]
    answers = await asyncio.gather(*(ask(client, "PUT", f"{PATH}/eu", body) for body in bodies))
    assert sorted(status for status, _ in answers) == [200, *[409] * 7]
    (won,) = [answer["filter"] for status, answer in answers if status == 200]
    assert await rows(client) == won


async def test_rules_follow_a_move_of_an_owner_who_sees_no_row(client: HttpClient) -> None:
    """A move that a catalog reports takes the rules along, so the owner needs not see all rows."""
    assert (await ask(client, "POST", PATH, EU | {"actor": OWNER}))[0] == 200
    move = {"from": ORDERS, "to": "table:lake/sales/moved"}
    status, answer = await client.post("/v1/objects", {"move": [move], "actor": OWNER})
    assert status == 200, answer
    assert await rows(client, table="moved") == "region = 'EU'"
    assert await rows(client, OWNER, "moved") == "false"
    assert await rows(client, OWNER, "orders") == ""
    check = {"principal": OWNER, "action": "rename", "resource": "table:lake/sales/moved"}
    _, answer = await client.post("/v1/check", {"checks": [check]})
    assert not answer["decisions"][0]["allowed"], "a catalog that only asks could leave the rules behind"
    everything = {"id": "own", "table": check["resource"], "grantees": ["user:own@example.com"], "filter": True}
    assert (await ask(client, "POST", PATH, everything | {"actor": OWNER}))[0] == 200
    _, answer = await client.post("/v1/check", {"checks": [check]})
    assert answer["decisions"][0]["allowed"], "an owner who sees everything opens nothing by a rename"


async def test_a_table_of_a_dropped_name_shows_nothing_until_its_owner_says_so(client: HttpClient) -> None:
    assert (await ask(client, "POST", PATH, EU | {"actor": OWNER}))[0] == 200
    assert (await client.post("/v1/objects", {"delete": [ORDERS]}))[0] == 200
    assert (await client.post("/v1/objects", {"put": [{"object": ORDERS, "id": "2"}]}))[0] == 200
    assert await rows(client) == await rows(client, OWNER) == "false"
    _, found = await ask(client, "GET", PATH, table=ORDERS, actor=OWNER)
    assert [one["tombstone"] for one in found["rowAccessPolicies"]] == [True]
    assert (await ask(client, "DELETE", f"{PATH}/eu", table=ORDERS, actor=EVE))[0] == 403
    assert (await ask(client, "DELETE", f"{PATH}/eu", table=ORDERS, actor=OWNER))[0] == 200
    assert await rows(client) == ""


async def test_writes_are_recorded_done_and_refused(client: HttpClient, tmp_path: Path) -> None:
    await ask(client, "POST", PATH, EU | {"actor": OWNER})
    await ask(client, "POST", PATH, EU | {"actor": EVE})
    found: list[dict[str, Any]] = []
    for _ in range(200):
        written = all_records(tmp_path, running=True)
        found = [one for one in written if one.get("operation") == "write_row_rules"]
        if len(found) == 2:
            break
        await asyncio.sleep(0.1)
    assert [(one["actor"], one["allowed"], one["asked"]["put"][0]["id"]) for one in found] == [
        (OWNER, True, "eu"),
        (EVE, False, "eu"),
    ]


async def test_every_request_is_recorded_done_and_refused(client: HttpClient, tmp_path: Path) -> None:
    bodies: list[tuple[str, str, Any, dict[str, str]]] = [
        ("POST", PATH, EU, {}),
        ("GET", PATH, None, {"table": ORDERS}),
        ("GET", f"{PATH}/eu", None, {"table": ORDERS}),
        ("PUT", f"{PATH}/eu", EU, {}),
        ("POST", f"{PATH}:testPermissions", {"table": ORDERS, "permissions": ["rowAccessPolicies.get"]}, {}),
        ("POST", f"{PATH}:testPermissions", {"table": ORDERS, "permissions": ["nonsense"]}, {}),
        ("POST", f"{PATH}:batchDelete", {"table": ORDERS, "ids": ["eu"]}, {}),
        ("DELETE", f"{PATH}/eu", None, {"table": ORDERS}),
    ]
    wanted = []
    for who in (EVE, OWNER):
        for method, path, body, query in bodies:
            is_body = body is not None
            status, answer = await ask(
                client,
                method,
                path,
                body | {"actor": who} if is_body else None,
                **({} if is_body else query | {"actor": who}),
            )
            wanted.append((who, status == 200, answer.get("error", {}).get("code", "")))
    operations = {"write_row_rules", "list_row_rules", "get_row_rule", "test_row_rule_permissions"}
    found: list[dict[str, Any]] = []
    for _ in range(200):
        written = all_records(tmp_path, running=True)
        found = [one for one in written if one.get("operation") in operations]
        if len(found) == len(wanted):
            break
        await asyncio.sleep(0.1)
    assert [(one["actor"], one["allowed"], one.get("code", "")) for one in found] == wanted
    tested = [one["asked"] for one in found if one["operation"] == "test_row_rule_permissions"]
    assert tested[0] == {"table": ORDERS, "permissions": ["rowAccessPolicies.get"]}
    assert len(tested) == 4


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/pdp.db"
    return fresh_schema(request.getfixturevalue("postgres_server"))


async def test_of_updates_by_two_services_one_wins(tmp_path: Path, store_url: str) -> None:
    """Both services read the same version, and write at the same time, in turns of several rounds."""
    settings = settings_of(config_of(tmp_path) | {"audit": {"sinks": []}, "store": {"url": store_url}}, tmp_path)
    async with client_of(settings) as one, client_of(settings) as two:
        await one.post("/v1/objects", {"put": OBJECTS})
        status, made = await ask(one, "POST", PATH, EU)
        assert status == 200, made
        etag = made["etag"]
        for turn in range(5):
            bodies = [EU | {"filter": f"x = {turn}{number}", "etag": etag} for number in range(4)]
            asked = (ask((one, two)[number % 2], "PUT", f"{PATH}/eu", body) for number, body in enumerate(bodies))
            answers = await asyncio.gather(*asked)
            (won,) = [answer for status, answer in answers if status == 200]
            assert sorted(status for status, _ in answers) == [200, 409, 409, 409]
            etag = won["etag"]
            for service in (one, two):
                await service.post("/v1/check", {"checks": [], "consistency": {"atLeast": won["revision"]}})
                assert await rows(service) == won["filter"]


async def test_two_services_on_one_store_see_the_same_rules(tmp_path: Path, store_url: str) -> None:
    settings = settings_of(config_of(tmp_path) | {"audit": {"sinks": []}, "store": {"url": store_url}}, tmp_path)
    async with client_of(settings) as one, client_of(settings) as two:
        await one.post("/v1/objects", {"put": OBJECTS})
        _, made = await ask(one, "POST", PATH, EU)
        check = {"principal": EVE, "action": "read_data", "resource": ORDERS}
        await two.post("/v1/check", {"checks": [check], "consistency": {"atLeast": made["revision"]}})
        assert await rows(two) == "region = 'EU'"
        status, answer = await ask(two, "POST", PATH, EU)
        assert (status, answer["error"]["code"]) == (409, "already_exists")
        _, gone = await ask(two, "DELETE", f"{PATH}/eu", table=ORDERS)
        await one.post("/v1/check", {"checks": [check], "consistency": {"atLeast": gone["revision"]}})
        assert await rows(one) == ""


@pytest.mark.process
async def test_an_unknown_table_beside_known_ones_is_a_warning_in_the_answer(client: HttpClient) -> None:
    asked = {"actor": OWNER, "filter": "TRUE"}
    status, made = await ask(client, "POST", PATH, EU | asked)
    assert (status, "warnings" in made) == (200, False)
    status, made = await ask(client, "POST", PATH, EU | asked | {"table": "table:lake/sales/ordrs"})
    assert (status, len(made["warnings"])) == (200, 1), made
    assert "no table `ordrs` is known in its namespace" in made["warnings"][0]
    status, made = await ask(client, "POST", MASKS, MASK | {"actor": OWNER, "table": "table:lake/sales/ordrs"})
    assert "mask `m`: no table `ordrs`" in made["warnings"][0]
    text = "CREATE ROW ACCESS POLICY q ON lake.sales.nope GRANT TO ('allUsers') FILTER USING (TRUE)"
    status, made = await ask(client, "POST", "/v1/rewrite", {"principal": OWNER, "dialect": "bigquery", "sql": text})
    assert (status, "no table `nope`" in made["warnings"][0]) == (200, True), made
    for name, wanted in (("nope", 1), ("lake.sales.nope", 1), ("orders", 0), ("lake.hr.nope", 0)):
        read = {"id": f"r{name}", "filter": f"region IN (SELECT k.region FROM {name} AS k)"}
        status, made = await ask(client, "POST", PATH, EU | {"actor": OWNER} | read)
        assert (status, len(made.get("warnings", ()))) == (200, wanted), made
        assert all("the filter reads `nope`: no table `nope` is known" in text for text in made.get("warnings", ()))


LIMITED = "user:oidc~limited@example.com"


@pytest.mark.process
@pytest.mark.parametrize(
    ("described", "warned"),
    [((), {"nope", "described"}), (("sales", "hr"), {"hidden", "nope", "v", "other", "orders"})],
)
async def test_warnings_tell_nobody_of_tables_that_the_writer_may_not_see(
    tmp_path: Path, described: tuple[str, ...], warned: set[str]
) -> None:
    """The owner of one table gets one answer for siblings that exist and for names of nothing, in every spelling."""
    (tmp_path / "rows.json").write_text(
        json.dumps({"tables": {f"lake.{place}.described": {"columns": {"region": "VARCHAR"}} for place in described}})
    )
    config = config_of(tmp_path) | {
        "policies": {"rules": [], "row_access": [{"path": "rows.json", "allow_empty": True}]}
    }
    hidden = [
        "table:lake/sales/hidden",
        "view:lake/sales/v",
        "table:lake/sales/Other",
        "table:lake/hr/mine",
        "table:lake/hr/hidden",
    ]
    async with client_of(settings_of(config, tmp_path)) as http:
        assert (await http.post("/v1/objects", {"put": [*OBJECTS, "namespace:lake/hr", *hidden]}))[0] == 200
        grants = [
            {"principal": LIMITED, "privilege": "ownership", "object": each} for each in (ORDERS, "table:lake/hr/mine")
        ]
        grants += [{"principal": OWNER, "privilege": "ownership", "object": "namespace:lake/sales"}]
        assert (await http.post("/v1/grants", {"add": grants}))[0] == 200
        texts = {actor: dict[str, str]() for actor in (LIMITED, OWNER)}
        for actor, found in texts.items():
            for name in ("hidden", "nope", "v", "other", "described", "orders"):
                read = f"region IN (SELECT k.region FROM {name} AS k)"
                rule = EU | {"actor": actor, "id": f"{name}{actor[10:13]}", "filter": read}
                status, made = await ask(http, "POST", PATH, rule)
                assert status == 200, made
                found[name] = " ".join(made.get("warnings", ()))
    shown = {actor: {name for name, text in found.items() if text} for actor, found in texts.items()}
    assert shown == {LIMITED: warned & {"orders"}, OWNER: warned}


@pytest.mark.process
async def test_a_name_that_means_nothing_is_refused_with_what_to_write(client: HttpClient) -> None:
    ddl = "CREATE ROW ACCESS POLICY q ON {} GRANT TO ('{}') FILTER USING (TRUE)"
    tables = {
        "`lake.sales.orders$20240101`": "write `lake.sales.orders`", "lake.sales.`orders$2024010100`": "write `lake.sales.orders`",
        "`lake.sales.orders$__NULL__`": "write `lake.sales.orders`", "`lake.sales. orders`": "`lake.sales. orders`", "`lake.sales.orders `": "`lake.sales.orders `",
    }  # fmt: skip
    members = {
        "domain:@example.com": "write `domain:example.com`", "user: alice@example.com": "write `user:alice@example.com`",
        "user:alice@example.com ": "write `user:alice@example.com`", "domain:https://example.com": "write `domain:example.com`",
    }  # fmt: skip
    texts = {ddl.format(name, "allUsers"): hint for name, hint in tables.items()}
    texts |= {ddl.format("lake.sales.orders", name): hint for name, hint in members.items()}
    for text, hint in texts.items():
        status, found = await ask(
            client, "POST", "/v1/rewrite", {"principal": OWNER, "dialect": "bigquery", "sql": text}
        )
        assert (status, hint in found["error"]["message"]) == (400, True), (text, found)
    for table in ("table:lake/sales/orders$20240101", "lake.sales.orders$20240101"):
        for path, body in ((PATH, EU), (MASKS, MASK)):
            status, found = await ask(client, "POST", path, body | {"actor": OWNER, "table": table})
            assert (status, "is a partition" in found["error"]["message"]) == (400, True), found
    status, found = await ask(client, "POST", PATH, EU | {"actor": OWNER, "id": "d", "grantees": ["domain:@x"]})
    assert (status, "write `domain:x`" in found["error"]["message"]) == (400, True), found


@pytest.mark.parametrize("path", [PATH, MASKS])
async def test_a_grantee_whom_nobody_can_be_is_refused(client: HttpClient, path: str) -> None:
    body = (EU if path == PATH else MASK) | {"actor": OWNER}
    for grantee in ("user:oidc~alice", "user:oidc:alice", "group:oidc~eu", "domain:https://x", "role:a,b"):
        status, answer = await ask(client, "POST", path, body | {"grantees": [grantee]})
        assert (status, answer["error"]["code"]) == (400, "invalid_argument"), (grantee, answer)
        assert "write `" in answer["error"]["message"]


@pytest.mark.parametrize("more", [{"full": True}, {"atLeast2": ""}, {"at_least": "1"}])
async def test_a_demand_has_no_other_field(client: HttpClient, more: dict[str, Any]) -> None:
    """Of two demands, one would have no effect."""
    status, answer = await client.post("/v1/check", {"checks": [], "consistency": {"atLeast": "e.1", **more}})
    assert (status, answer["error"]["code"]) == (400, "invalid_argument"), answer
