"""Ranger's PDP protocol: permissions are native checks, permits to select have Spark's filters and masks, all else is denied."""

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
from support.oracles.trino_answers import ranger_allows, readers_that_allow
from support.paths import RECORDED, ROOT
from support.service.serving import settings_of

from pdp.dialects.ranger import PERMISSIONS

pytestmark = pytest.mark.process
one_service = pytest.mark.asyncio(loop_scope="module")
PAIRS = [json.loads(line) for line in (RECORDED / "ranger" / "pdp-authorize.jsonl").read_text().splitlines()]
ONE, MANY, LISTING = (f"/authz/v1/{path}" for path in ("authorize", "authorizeMulti", "permissions"))
PEOPLE = ("ann", "bob", "carl", "dora", "gus", "nobody")
WORLD = {
    "objects": ["project:p1", {"object": "warehouse:wh", "parent": "project:p1"}, "namespace:wh/sales", "table:wh/sales/t", "table:wh/sales/orders"],
    "grants": [
        {"principal": "user:oidc~ann", "privilege": "ownership", "object": "warehouse:wh"},
        {"principal": "user:oidc~gus", "privilege": "ownership", "object": "warehouse:wh"},
        {"principal": "user:oidc~bob", "privilege": "select", "object": "namespace:wh/sales"},
        {"principal": "user:oidc~carl", "privilege": "modify", "object": "namespace:wh/sales"},
        {"principal": "user:oidc~dora", "privilege": "create", "object": "namespace:wh/sales"},
        {"principal": "user:other~x", "privilege": "select", "object": "namespace:wh/sales"},
        {"principal": "role:analyst", "privilege": "select", "object": "namespace:wh/sales"},
    ],
}  # fmt: skip
COLUMNS = {"id": "INTEGER", "region": "VARCHAR", "email": "VARCHAR"}
ROWS = {
    "default": ["wh", "sales"],
    "tables": {name: {"columns": COLUMNS} for name in ("orders", "filtered", "vars", "odd", "braces")},
    "policies": [
        {"id": "eu", "table": "orders", "grantees": ["user:gus"], "filter": "region = 'EU'"},
        {"id": "all", "table": "orders", "grantees": ["user:ann", "user:bob"], "filter": "TRUE"},
        {"id": "eu", "table": "filtered", "grantees": ["user:gus"], "filter": "region = 'EU'"},
        {"id": "vars", "table": "vars", "grantees": ["user:gus"], "filter": "region = '${spark.app.name}'", "dialect": "spark"},
        {"id": "odd", "table": "odd", "grantees": ["user:gus"], "filter": "cardinality(ARRAY[id]) = 1"},
    ],
    "masks": [
        {"id": "mail", "table": "orders", "column": "email", "kind": "partial", "grantees": ["user:gus"]},
        {"id": "brace", "table": "braces", "column": "email", "kind": "constant", "expression": "'{col}'", "grantees": ["user:gus"]},
    ],
}  # fmt: skip
FORBID = {
    "lock": "op == 'READ_ENTITY_VALUE' && path == 'sales.locked'",
    "of-group": "op == 'READ_ENTITY_VALUE' && path == 'sales.group' && 'contractor' in groups",
}
EVIDENCE = ["principals", "groups", "roles", "attributes"]
CALLER = {"loopback": True, "may_assert": ["principals", "groups"], "empty": ["roles", "attributes"], "may_write": True}


@asynccontextmanager
async def asking(folder: Path, **more: Any) -> AsyncIterator[HttpClient]:
    for name, content in (("world", WORLD), ("rows", ROWS), ("forbid", {"rules": FORBID})):
        (folder / f"{name}.yaml").write_text(json.dumps(content))
    config: dict[str, Any] = {
        "identity": {"callers": {"ranger": CALLER}},
        "warehouses": {"wh": {}, "other": {}, "nes": {"kind": "nessie", "default_ref": "main"}},
        "store": {"url": "sqlite:///pdp.db", "seed": "world.yaml"},
        "authorities": {"default": {"engines": ["grants"]}},
        "policies": {"rules": [], "row_access": ["rows.yaml"], "forbid": ["forbid.yaml"]},
        "ranger": {"services": {"dev_hive": "wh", "nes": "nes"}},
    } | more
    async with client_of(settings_of(config, folder)) as client:
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[HttpClient]:
    async with asking(tmp_path_factory.mktemp("ranger")) as client:
        yield client


def body_of(user: str, resource: str, *permissions: str, **more: Any) -> dict[str, Any]:
    """Return a body of authorize. `columns`, `groups`, `context` and parts of the resource may be among `more`."""
    named: dict[str, Any] = {"name": resource}
    if columns := more.pop("columns", None):
        named["subResources"] = [f"column:{column}" for column in columns]
    context = {"serviceType": "hive", "serviceName": "dev_hive"} | more.pop("context", {})
    person = {"name": user} | {key: more.pop(key) for key in ("groups", "roles", "attributes") if key in more}
    access = {"resource": named | more, "action": "query", "permissions": list(permissions)}
    return {"requestId": "r-1", "user": person, "access": access, "context": context}


async def answer_of(client: HttpClient, body: Any, path: str = ONE) -> Any:
    status, answer = await client.post(path, body)
    assert status == 200, answer
    return answer


async def allowed(client: HttpClient, body: Any) -> bool:
    answer = await answer_of(client, body)
    assert answer["decision"] in ("ALLOW", "DENY")
    assert answer.keys() == {"requestId", "decision", "permissions"}
    each = [one["access"]["decision"] for one in answer["permissions"].values()]
    assert (answer["decision"] == "ALLOW") == (bool(each) and set(each) == {"ALLOW"})
    assert answer["permissions"].keys() == set(body["access"]["permissions"])
    return bool(answer["decision"] == "ALLOW")


NAMES = {"database": ["sales", "hr"], "table": ["sales/t", "sales/new", "hr/t"], "column": ["sales/t/id", "hr/t/id"]}


@one_service
@pytest.mark.parametrize(("type", "permission"), PERMISSIONS)
async def test_a_permission_is_decided_as_its_native_checks(type: str, permission: str, client: HttpClient) -> None:
    outcomes = set()
    for user, name in product(PEOPLE, NAMES[type]):
        path = ["wh", *name.split("/")][: 3 if type == "column" else None]
        checks = []
        for step in PERMISSIONS[type, permission]:
            check: dict[str, Any] = {"principal": f"user:oidc~{user}", "action": step.action}
            place = path[:-1] if step.on == "parent" else path
            kind = ("warehouse", "namespace")[len(place) > 1] if step.on == "parent" else step.type
            check["resource"] = f"{kind}:{'/'.join(place)}"
            if step.on == "parent":
                check["context"] = {"arguments": {"name": path[-1]}}
            checks.append(check)
        _, answer = await client.check(*checks)
        wanted = all(each["allowed"] for each in answer["decisions"])
        assert await allowed(client, body_of(user, f"{type}:{name}", permission)) == wanted, (user, name)
        outcomes.add(wanted)
    # a forbid that reads paths denies where nobody knows the new name: an alteration may be a rename
    assert outcomes == ({False} if (type, permission) == ("table", "alter") else {True, False})


@one_service
async def test_recorded_requests_have_answers_of_their_structure(client: HttpClient) -> None:
    """The policies are others, so each decision is compared with native checks, and the keys with the recorded ones."""
    assert len(PAIRS) > 60
    for pair in PAIRS:
        answer = await answer_of(client, pair["request"], pair["endpoint"])
        assert answer.keys() == pair["response"].keys(), pair
        assert answer["requestId"] == pair["request"]["requestId"]
        mine, theirs = ([one] if "permissions" in one else one["accesses"] for one in (answer, pair["response"]))
        assert len(mine) == len(theirs)
        for one, other in zip(mine, theirs, strict=True):
            assert one["decision"] == "DENY"  # nobody of the recording has a right here
            assert one["permissions"].keys() == other["permissions"].keys()
            for name, permission in one["permissions"].items():
                assert permission["permission"] == name
                assert permission["access"] == {"decision": "DENY"}
                assert permission.get("subResources", {}).keys() == other["permissions"][name].get("subResources", {}).keys()  # fmt: skip


@one_service
async def test_several_accesses_are_partial_if_mixed(client: HttpClient) -> None:
    may, may_not = (
        body_of("bob", "table:sales/t", "select")["access"],
        body_of("bob", "table:sales/t", "update")["access"],
    )
    for accesses, want in (([may], "ALLOW"), ([may, may], "ALLOW"), ([may_not], "DENY"), ([may_not] * 3, "DENY"), ([may, may_not], "PARTIAL"), ([may_not, may], "PARTIAL")):  # fmt: skip
        body = body_of("bob", "table:sales/t", "select") | {"accesses": accesses}
        del body["access"]
        answer = await answer_of(client, body, MANY)
        assert answer["decision"] == want
        assert [one["decision"] for one in answer["accesses"]] == [
            "ALLOW" if one is may else "DENY" for one in accesses
        ]
    both = await answer_of(client, body_of("bob", "table:sales/t", "update", "select"))
    assert both["decision"] == "DENY"
    assert {name: one["access"]["decision"] for name, one in both["permissions"].items()} == {
        "update": "DENY",
        "select": "ALLOW",
    }
    wide = await answer_of(client, body_of("ann", "table:sales/t", "_any", "select", "drop", "nothing", "update"))
    assert [one["access"]["decision"] for one in wide["permissions"].values()] == [
        "ALLOW",
        "ALLOW",
        "ALLOW",
        "DENY",
        "ALLOW",
    ]


@one_service
async def test_what_is_not_mapped_is_denied(client: HttpClient) -> None:
    assert await allowed(client, body_of("ann", "table:sales/t", "select"))
    for permission in ("", "SELECT", "read", "all", "index", "lock", "_all", "query", "x" * 5000):
        assert not await allowed(client, body_of("ann", "table:sales/t", permission)), permission
    assert not await allowed(client, body_of("ann", "table:sales/t"))
    names = [
        "table:sales",
        "table:sales/t/x",
        "table:/t",
        "table:sales/",
        "table:*/t",
        "table:sales/*",
        "table:sales\\/x/t",
        "database:*",
        "path:bucket/x",
        "url:s3://b",
        "udf:sales/f",
        "sales/t",
        "",
        "table:sales/t\\",
    ]
    for name in names:
        assert not await allowed(client, body_of("ann", name, "select", "_any")), name
    for context in (
        {"serviceName": "dev_s3"},
        {"serviceName": ""},
        {"serviceName": "wh"},
        {"serviceName": None},
        {"serviceType": "s3"},
    ):
        assert not await allowed(client, body_of("ann", "table:sales/t", "select", context=context)), context
    assert not await allowed(client, body_of("ann", "table:sales/t", "select", nameMatchScope="SELF_OR_ANY_DESCENDANT"))
    assert await allowed(client, body_of("ann", "table:sales/t", "select", nameMatchScope="SELF"))
    assert not await allowed(client, body_of("ann", "database:sales", "_any", columns=["id"]))
    assert not await allowed(client, body_of("ann", "table:sales/t", "select", columns=["*"]))
    assert not await allowed(client, body_of("ann", "table:s/t@branch", "select", context={"serviceName": "nes"}))


@one_service
async def test_a_permit_to_select_has_the_filter_and_the_masks(client: HttpClient) -> None:
    whole = (await answer_of(client, body_of("ann", "table:sales/orders", "select", columns=["id", "email"])))["permissions"]["select"]  # fmt: skip
    assert whole == {
        "permission": "select", "access": {"decision": "ALLOW"},
        "subResources": {f"column:{name}": {"permission": "select", "access": {"decision": "ALLOW"}} for name in ("id", "email")},
    }  # fmt: skip
    part = (await answer_of(client, body_of("gus", "table:sales/orders", "select", columns=["id", "EMAIL"])))["permissions"]["select"]  # fmt: skip
    assert part["rowFilter"] == {"filterExpr": "region = 'EU'"}
    assert "dataMask" not in part["subResources"]["column:id"]
    mask = part["subResources"]["column:EMAIL"]["dataMask"]
    assert mask["maskType"] == "CUSTOM"
    assert "`{col}`" in mask["maskedValue"]
    assert "`email`" not in mask["maskedValue"]
    column = (await answer_of(client, body_of("gus", "column:sales/orders/email", "select")))["permissions"]["select"]
    assert column == {"permission": "select", "access": {"decision": "ALLOW"}, "rowFilter": part["rowFilter"], "dataMask": mask}  # fmt: skip
    # a client that names no columns masks none
    assert not await allowed(client, body_of("gus", "table:sales/orders", "select"))
    plain = (await answer_of(client, body_of("gus", "table:sales/filtered", "select")))["permissions"]["select"]
    assert plain == {"permission": "select", "access": {"decision": "ALLOW"}, "rowFilter": part["rowFilter"]}
    nobody = (await answer_of(client, body_of("carl", "table:sales/filtered", "select")))["permissions"]["select"]
    assert nobody["rowFilter"] == {"filterExpr": "FALSE"}


@one_service
async def test_no_text_is_changed_by_the_client_or_by_spark(client: HttpClient) -> None:
    found = (await answer_of(client, body_of("gus", "table:sales/braces", "select", columns=["email"])))["permissions"]["select"]  # fmt: skip
    assert found["subResources"]["column:email"]["dataMask"] == {"maskType": "CUSTOM", "maskedValue": "NULL"}
    # a filter that Spark cannot read for certain: a variable, and a function without a meaning there
    assert not await allowed(client, body_of("gus", "table:sales/vars", "select", columns=["id"]))
    assert not await allowed(client, body_of("gus", "table:sales/odd", "select", columns=["id"]))


@one_service
async def test_rights_without_filters_need_all_rows_and_columns(client: HttpClient) -> None:
    for table in ("orders", "filtered"):
        assert not await allowed(client, body_of("gus", f"table:sales/{table}", "update"))
        assert not await allowed(client, body_of("gus", f"table:sales/{table}", "alter"))
    assert await allowed(client, body_of("gus", "table:sales/t", "update"))
    assert await allowed(client, body_of("ann", "table:sales/orders", "update"))


@one_service
async def test_forbids_bind_in_any_case_and_by_groups(client: HttpClient) -> None:
    for name in ("sales/locked", "sales/LOCKED", "SALES/Locked"):
        assert not await allowed(client, body_of("ann", f"table:{name}", "select"))
        assert not await allowed(client, body_of("ann", f"column:{name}/id", "select"))
    table = "table:sales/group"
    assert not await allowed(client, body_of("ann", table, "select", groups=["contractor"]))
    assert await allowed(client, body_of("ann", table, "select", groups=["staff"]))
    assert not await allowed(client, body_of("ann", table, "select")), "Jackson leaves out empty groups: unknown"


def spoiled(value: Any) -> Iterator[Any]:
    """Yield the value with a part replaced by another value, or left out."""
    others: list[Any] = [None, True, 1, "", "\x07", "x" * 5000, [], {}, ["a"], {"a": {}}]
    if isinstance(value, dict):
        for key, below in value.items():
            yield {name: each for name, each in value.items() if name != key}
            yield from ({**value, key: each} for each in (*others, *spoiled(below)))
    if isinstance(value, list):
        yield from ([*value[:at], each, *value[at + 1 :]] for at, below in enumerate(value) for each in spoiled(below))


@one_service
async def test_no_spoiled_body_reads_as_an_allow(client: HttpClient) -> None:
    denied = body_of("bob", "table:sales/t", "update", columns=["id"], groups=["x"])
    many = {key: value for key, value in denied.items() if key != "access"} | {"accesses": [denied["access"]]}
    for path, body in ((ONE, denied), (MANY, many)):
        for each in spoiled(body):
            found = await client.send("POST", path, each)
            assert found.status in (200, 400), each
            assert not ranger_allows(found.status, found.content), each
            assert readers_that_allow(found.status, found.content) == set()
            if found.status != 200:
                assert found.json().keys() == {"code", "message"}
        for text in (b"", b"{}", b"null", b"[]", b"{", b'{"user":{"name":"ann"}}', b'{"access":' + b"[" * 9000):
            for other in (ONE, MANY, LISTING):
                found = await client.send("POST", other, text)
                assert found.status == 400
        doubled = json.dumps(body).replace('"name":', '"name": "ann", "name":', 1)
        assert (await client.send("POST", path, doubled)).status == 400
    assert (await client.send("POST", ONE, many)).status == (await client.send("POST", MANY, denied)).status == 400
    assert (
        await client.send("POST", ONE, body_of("ann", "table:sales/t", *(f"p{at}" for at in range(1001))))
    ).status == 400
    for path in (f"{ONE}/", ONE.lower().replace("authz", "Authz"), "/authz/v1/nothing"):
        assert (await client.send("POST", path, denied)).status == 404


@one_service
async def test_a_listing_has_those_whom_authorize_allows(client: HttpClient) -> None:
    for resource in ("table:sales/t", "table:sales/orders", "database:sales"):
        body = {"resource": {"name": resource}, "context": {"serviceName": "dev_hive"}}
        found = await answer_of(client, body, LISTING)
        assert found["resource"] == {"name": resource}
        assert found["groups"] == {}
        for user in PEOPLE:
            listed = set(found["users"].get(user, {}))
            for permission in ("select", "update", "drop", "_any"):
                if (resource.partition(":")[0], permission) in PERMISSIONS:
                    may = await allowed(client, body_of(user, resource, permission, groups=["staff"]))
                    assert permission not in listed or may, (user, resource, permission)
                    # who sees a part of the rows has no right in a list, which cannot say which
                    assert permission in listed or not may or resource == "table:sales/orders", (user, permission)
        if resource == "table:sales/t":
            assert "select" in found["roles"]["analyst"]
    other = {"resource": {"name": "path:b/x"}, "context": {"serviceName": "dev_s3"}}
    assert await answer_of(client, other, LISTING) == {
        "resource": {"name": "path:b/x"},
        "users": {},
        "groups": {},
        "roles": {},
    }


@one_service
async def test_pages_of_browsers_are_refused(client: HttpClient) -> None:
    body = body_of("ann", "table:sales/t", "select")
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Host": "evil.example"},
        {"Content-Type": "text/plain"},
    ):
        found = await client.send("POST", ONE, body, headers)
        assert found.status in (401, 403, 415, 421), headers
        assert not ranger_allows(found.status, found.content)


@pytest.mark.parametrize(("rights", "names", "groups"), [([], 403, 403), (["principals"], 200, 403), (["principals", "groups"], 200, 200)])  # fmt: skip
async def test_a_caller_needs_the_right_to_what_it_says(
    rights: list[str], names: int, groups: int, tmp_path: Path
) -> None:
    caller = {"loopback": True, "may_assert": rights}
    async with asking(tmp_path, identity={"callers": {"ranger": caller}}) as client:
        status, answer = await client.post(ONE, body_of("ann", "table:sales/t", "select"))
        assert (status, answer.get("decision", "DENY")) == (names, "ALLOW" if names == 200 else "DENY")
        assert (await client.post(ONE, body_of("ann", "table:sales/t", "select", groups=["a"])))[0] == groups
        assert (await client.post(ONE, body_of("ann", "table:sales/t", "select", roles=["a"])))[0] == 403
        assert (await client.post(ONE, body_of("ann", "table:sales/t", "select", attributes={"a": 1})))[0] == 403


async def test_services_and_users_have_the_names_of_the_settings(tmp_path: Path) -> None:
    ranger = {"services": {"cl1_hive": "wh"}, "user_prefix": "other~"}
    async with asking(tmp_path, ranger=ranger) as client:
        context = {"serviceName": "cl1_hive"}
        assert await allowed(client, body_of("x", "table:sales/t", "select", context=context))
        assert not await allowed(client, body_of("ann", "table:sales/t", "select", context=context))
        assert not await allowed(client, body_of("x", "table:sales/t", "select"))


async def test_records_are_decided_again_as_they_were(tmp_path: Path) -> None:
    async with asking(tmp_path) as client:
        for user, (type, permission) in product(("ann", "gus", "bob"), PERMISSIONS):
            for name in (NAMES[type][0], "sales/ORDERS/email" if type == "column" else "sales/LOCKED"):
                await answer_of(client, body_of(user, f"{type}:{name}", permission))
        await answer_of(client, body_of("gus", "table:sales/orders", "select", "update", columns=["id"]))
        await answer_of(client, body_of("gus", "path:b/x", "read"))
    records = [
        one for one in audit_records(tmp_path) if one.get("surface") == "ranger" and one.get("event") == "decision"
    ]
    assert {one.get("operation", "") for one in records} == {"query", ""}
    found, reading = await asyncio.to_thread(repeat, tmp_path / "audit")
    assert (found.totals, reading.skipped) == ({}, {})
    assert reading.checks >= len(records) / 2


def test_the_page_has_the_checks_of_every_permission() -> None:
    rows = re.findall(
        r"^\| `([a-z]+)` \| `([a-z_]+)` \| (`.*?) \|$", (ROOT / "docs" / "ranger.md").read_text(), re.MULTILINE
    )
    found = {
        (type, permission): [
            (name, bool(whole)) for name, whole in re.findall(r"`(\w+)`( whole)?", checks.partition(", or else")[0])
        ]
        for type, permission, checks in rows
    }
    assert found == {key: [(step.action, step.is_whole) for step in steps] for key, steps in PERMISSIONS.items()}
