"""Lakekeeper's batch-check: the checks of its published policies for OPA, decided as native checks of the same."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support.clients.http_client import HttpClient, client_of
from support.oracles.audit_files import audit_records
from support.paths import RECORDED
from support.service.serving import settings_of

one_service = pytest.mark.asyncio(loop_scope="module")
SHAPES = [
    json.loads(line)["check"] for line in (RECORDED / "lakekeeper" / "check-shapes.jsonl").read_text().splitlines()
]
ALICE, BOB, EVE = "user:oidc~alice", "user:oidc~bob", "user:oidc~eve"
WORLD = {
    "objects": [
        {"object": "warehouse:lake"}, {"object": "namespace:lake/s", "id": "n-1"}, {"object": "table:lake/s/people", "id": "t-1"},
        {"object": "view:lake/s/seen", "id": "v-1"},
    ],
    "grants": [
        {"principal": ALICE, "privilege": "ownership", "object": "warehouse:lake"},
        {"principal": BOB, "privilege": "select", "object": "namespace:lake/s"},
        {"principal": "role:etl", "privilege": "modify", "object": "namespace:lake/s"},
        {"principal": EVE, "privilege": "ownership", "object": "warehouse:open"},
    ],
}  # fmt: skip
ROWS = {
    "default": ["lake", "s"],
    "tables": {"closed": {"columns": {"id": "INTEGER"}}, "masked": {"columns": {"id": "INTEGER"}}},
    "policies": [{"id": "p", "table": "closed", "grantees": ["user:bob"], "filter": "id > 1"}],
    "masks": [{"id": "m", "table": "masked", "column": "id", "kind": "null", "grantees": ["user:bob"]}],
}
BRIDGE = {"loopback": True, "may_assert": ["principals"], "may_write": True, "empty": ["roles", "groups", "attributes"]}
PATH = "/management/v1/action/batch-check"


@asynccontextmanager
async def asking(folder: Path, **more: Any) -> AsyncIterator[HttpClient]:
    (folder / "rows.json").write_text(json.dumps(ROWS))
    (folder / "forbid.yaml").write_text(json.dumps({"rules": {"lock": "path == 's.locked' || role == 'gone'"}}))
    (folder / "world.json").write_text(json.dumps(more.pop("world", WORLD)))
    engines = {"default": {"engines": ["grants"]}}
    policies = {"rules": [], "row_access": ["rows.json"], "forbid": ["forbid.yaml"]}
    config: dict[str, Any] = {
        "identity": {"callers": {"bridge": BRIDGE}}, "warehouses": {"lake": {}, "open": {}}, "store": {"url": "file:world.json"}, "policies": policies, "authorities": engines,
    } | more  # fmt: skip
    async with client_of(settings_of(config, folder)) as client:
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[HttpClient]:
    async with asking(tmp_path_factory.mktemp("shared")) as client:
        yield client


def check(operation: str, action: Any, user: str = "oidc~bob", **given: Any) -> dict[str, Any]:
    named = {"action": action if isinstance(action, dict) else {"action": action}, "warehouse-id": "lake", **given}
    return {"identity": {"user": user}, "operation": {operation: named}}


def on_table(action: Any, name: str, user: str = "oidc~bob", operation: str = "table", **given: Any) -> dict[str, Any]:
    return check(operation, action, user, namespace=["s"], table=name, **given)


async def post(client: HttpClient, body: Any, headers: Any = None) -> tuple[int, Any]:
    answer = await client.send("POST", PATH, body, headers)
    return answer.status, answer.json()


async def answers(client: HttpClient, *checks: Any) -> list[bool]:
    status, found = await post(client, {"error-on-not-found": False, "checks": list(checks)})
    assert status == 200, found
    return [each["allowed"] for each in found["results"]]


async def natively(client: HttpClient, *checks: dict[str, Any]) -> list[bool]:
    answer = await client.send("POST", "/v1/check", {"checks": list(checks)})
    return [each["allowed"] for each in answer.json()["decisions"]]


@one_service
async def test_recorded_checks_are_decided_as_native_ones(client: HttpClient) -> None:
    """All shapes of checks that the published policies send. A write of a view's comment means a commit."""
    assert len(SHAPES) == 21
    for shape in SHAPES:
        ((kind, given),) = shape["operation"].items()
        action = given["action"]["action"]
        place = "/".join(["lake", *given.get("namespace", []), *([given["table"]] if "table" in given else [])])
        meant = {"write_data": "commit", "read_data": "select"}.get(action, action) if kind == "view" else action
        arguments = {"name": given["action"]["name"]} if "name" in given["action"] else {}
        for user in ("oidc~alice", "oidc~bob", "oidc~nobody"):
            asked = {"identity": {"user": user}, "operation": {kind: given | {"warehouse-id": "lake"}}}
            same = {"principal": f"user:{user}", "action": meant, "resource": f"{kind}:{place}", "context": {"arguments": arguments}}  # fmt: skip
            want = [False] if action == "list_everything" else await natively(client, same)
            assert await answers(client, asked) == want, (shape, user)


@one_service
async def test_answers_are_in_order_with_the_ids_of_checks(client: HttpClient) -> None:
    several = [
        on_table("read_data", "people") | {"id": "a"}, on_table("read_data", "people", "oidc~nobody"), {"identity": {"role": "etl"}, "operation": check("table", "write_data", namespace=["s"], table="people")["operation"]},
        on_table("unheard_of", "people") | {"id": "b"}, on_table("read_data", "people") | {"id": None}, on_table("select", "seen", operation="view"),
    ]  # fmt: skip
    status, found = await post(client, {"checks": several})
    assert (status, found["results"]) == (200, [
        {"id": "a", "allowed": True}, {"allowed": False}, {"allowed": True}, {"id": "b", "allowed": False}, {"allowed": True}, {"allowed": True},
    ])  # fmt: skip
    many = [on_table("read_data", "people", f"oidc~{('bob', 'x')[at % 2]}") for at in range(1000)]
    assert await answers(client, *many) == [True, False] * 500


BAD: list[Any] = [
    None, 7, [], {"table": None}, {"table": []}, {}, {"table": {}}, {"tables": {"action": {"action": "drop"}}}, {"table": {"action": {"action": "read_data"}, "warehouse-id": "lake"}},
    {"table": {"action": {"action": "read_data"}, "warehouse-id": "other", "namespace": ["s"], "table": "people"}},
    {"table": {"action": {}, "warehouse-id": "lake", "namespace": ["s"], "table": "people"}},
    {"table": {"action": {"action": "read_data"}, "warehouse-id": "lake", "namespace": "s", "table": "people"}},
    {"table": {"action": {"action": "read_data"}, "warehouse-id": "lake", "namespace": [1], "table": "people"}},
    {"table": {"action": {"action": "read_data"}, "warehouse-id": "lake", "namespace": ["s"], "table": ""}},
    {"table": {"action": {"action": "read_data"}, "warehouse-id": "lake", "namespace": ["s"], "table": "x\x00"}},
    {"table": {"action": {"action": "read_data"}, "warehouse-id": "lake", "table-id": "n-1"}},
    {"table": {"action": {"action": "read_data"}, "warehouse-id": "open", "table-id": "t-1"}},
    {"table": {"action": {"action": "read_data"}, "warehouse-id": "lake", "table-id": ["t-1"]}},
    {"server": {"action": {"action": "read_data"}}, "table": {"action": {"action": "read_data"}}},
]  # fmt: skip


@one_service
@pytest.mark.parametrize("operation", BAD)
async def test_a_bad_check_is_denied_alone(client: HttpClient, operation: Any) -> None:
    good, bad = on_table("read_data", "people"), {"identity": {"user": "oidc~bob"}, "operation": operation}
    assert await answers(client, good, bad, good) == [True, False, True]


@one_service
@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"{}", {"checks": []}, {"checks": [1]}, {"checks": [{"operation": {}}]}, {"checks": [{"identity": {}}]}, b'{"checks":[],"checks":[]}',
        {"checks": [on_table("drop", "t") | {"identity": {"user": "oidc~bob", "role": "etl"}}]}, {"checks": [on_table("drop", "t") | {"identity": {"group": "x"}}]},
        {"checks": [on_table("drop", "t") | {"identity": {"user": 1}}]}, {"checks": [on_table("drop", "t")] * 1001}, b'{"checks":[{"identity":{"user":"oidc~bob","user":"oidc~alice"},"operation":{}}]}',
    ],
)  # fmt: skip
async def test_what_cannot_be_read_is_an_error_of_iceberg(client: HttpClient, body: Any) -> None:
    status, found = await post(client, body)
    assert status == 400
    assert found["error"].keys() == {"message", "type", "code"}
    assert (found["error"]["type"], found["error"]["code"]) == ("BadRequestException", 400)


@one_service
async def test_objects_are_known_by_their_ids(client: HttpClient) -> None:
    by_id = [
        check("table", "read_data", **{"table-id": "t-1"}), check("table", "read_data", table_id="t-1"), check("view", "select", view_id="v-1"),
        check("view", "select", **{"table-id": "v-1"}), check("namespace", "get_metadata", **{"namespace-id": "n-1"}), check("view", "select", **{"view-id": "t-1"}),
    ]  # fmt: skip
    assert await answers(client, *by_id) == [True, True, True, True, True, False]


@one_service
async def test_a_right_to_data_needs_all_rows_and_columns(client: HttpClient) -> None:
    """The sender shows whole tables. Other rights are as ever."""
    rows = [
        on_table(action, name)
        for name in ("people", "closed", "masked")
        for action in ("read_data", "write_data", "get_metadata")
    ]
    assert await answers(client, *rows) == [True, False, True, False, False, True, False, False, True]
    mine = [on_table(action, "closed", "oidc~alice") for action in ("read_data", "write_data", "get_metadata")]
    assert await answers(client, *mine) == [False, False, True]
    assert await natively(client, {"principal": BOB, "action": "read_data", "resource": "table:lake/s/closed"}) == [
        True
    ]
    for _ in range(3):  # a plan that is remembered for one table serves no other
        assert await answers(client, on_table("read_data", "people")) == [True]
        assert await answers(client, on_table("read_data", "closed")) == [False]


@one_service
async def test_forbids_bind(client: HttpClient) -> None:
    assert await answers(client, on_table("drop", "locked", "oidc~alice"), on_table("drop", "other", "oidc~alice")) == [
        False,
        True,
    ]
    assert await answers(client, on_table("get_metadata", "people", "oidc~gone")) == [False]
    made = check("namespace", {"action": "create_table", "name": "locked"}, "oidc~alice", namespace=["s"])
    unnamed = check("namespace", "create_table", "oidc~alice", namespace=["s"])
    free = check(
        "namespace", {"action": "create_table", "name": "t", "properties": {"v": 2}}, "oidc~alice", namespace=["s"]
    )
    assert await answers(client, made, unnamed, free) == [False, False, True]


async def test_a_list_is_shown_unasked_where_grants_alone_decide(tmp_path: Path) -> None:
    lists = [
        check("warehouse", "list_everything", "oidc~alice"),
        check("namespace", "list_everything", "oidc~alice", namespace=["s"]),
    ]
    async with asking(tmp_path, policies={"rules": []}) as client:
        assert await answers(client, *lists) == [True, True]
        assert await answers(client, check("warehouse", "list_everything", "oidc~nobody")) == [False]
    for more in (
        {"policies": {"rules": [], "row_access": ["rows.json"]}},
        {"policies": {"rules": [], "forbid": ["forbid.yaml"]}},
    ):
        async with asking(tmp_path, **more) as client:
            assert await answers(client, *lists) == [False, False]
    async with asking(
        tmp_path, policies={"rules": []}, authorities={"default": {"engines": ["cel", "grants"]}}
    ) as client:
        assert await answers(client, *lists) == [False, False]


async def test_warehouses_have_the_names_of_the_configuration(tmp_path: Path) -> None:
    async with asking(tmp_path, lakekeeper={"warehouses": {"demo": "lake", "0198-id": "lake"}}) as client:
        found = await client.send("GET", "/catalog/v1/config?warehouse=demo")
        assert (found.status, found.json()) == (200, {"overrides": {}, "defaults": {"prefix": "demo"}})
        for name, status in (("lake", 404), ("other", 404), ("", 400)):
            missing = await client.send("GET", f"/catalog/v1/config?warehouse={name}")
            assert (missing.status, missing.json()["error"]["code"]) == (status, status)
        tables = [on_table("read_data", "people", **{"warehouse-id": name}) for name in ("demo", "0198-id", "lake")]
        assert await answers(client, *tables) == [True, True, False]


async def test_only_a_caller_who_may_name_principals_asks(tmp_path: Path) -> None:
    callers = {"identity": {"callers": {"local": {"loopback": True, "may_assert": ["groups"]}}}}
    async with asking(tmp_path, **callers) as client:
        status, found = await post(client, {"checks": [on_table("read_data", "people")]})
        assert (status, found["error"]["type"]) == (403, "ForbiddenException")
        assert (await client.send("GET", "/catalog/v1/config?warehouse=lake")).status == 403


@one_service
async def test_pages_cannot_ask(client: HttpClient) -> None:
    body = json.dumps({"checks": [on_table("read_data", "people")]})
    for headers in (
        {"Origin": "http://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Host": "evil.example"},
        {"Content-Type": "text/plain"},
    ):
        assert (await post(client, body, {"Content-Type": "application/json", **headers}))[0] in (401, 403, 415, 421), (
            headers
        )
    assert (await client.send("GET", PATH)).status == 405
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Host": "evil.example"}):
        assert (await client.send("GET", "/catalog/v1/config?warehouse=lake", headers=headers)).status in (
            401,
            403,
            421,
        )


async def test_records_tell_the_surface_and_the_reasons(tmp_path: Path) -> None:
    async with asking(tmp_path) as client:
        assert await answers(client, on_table("read_data", "closed"), on_table("read_data", "people")) == [False, True]
    (record,) = [each for each in audit_records(tmp_path) if each["event"] == "decision"]
    assert (record["surface"], record["inputs"]["unfiltered"]) == ("lakekeeper", True)
    assert [check["by"] for check in record["checks"]] == [
        ["row_access:p"],
        ["grants:select on namespace:lake/s via user:oidc~bob"],
    ]


@pytest.mark.parametrize("kind", ["roles", "groups", "attributes"])
@pytest.mark.parametrize(("asserted", "empty"), [(True, False), (False, True), (False, False)])  # both are refused
async def test_what_the_api_cannot_send_is_unknown_unless_the_caller_says_that_nobody_has_any(
    kind: str, asserted: bool, empty: bool, tmp_path: Path
) -> None:
    """Also of a caller who may assert it on other surfaces."""
    all_kinds = {"roles", "groups", "attributes"}
    caller = {"loopback": True, "may_assert": ["principals", *([kind] if asserted else [])], "empty": sorted(all_kinds - {kind} if not empty else all_kinds)}  # fmt: skip
    reads = {"roles": "'gone' in roles", "groups": "'gone' in groups", "attributes": "attributes.team == 'gone'"}[kind]
    (tmp_path / "lock.yaml").write_text(json.dumps({"rules": {"lock": f"path == 's.people' && ({reads})"}}))
    policies = {"rules": [], "forbid": ["lock.yaml"]}
    async with asking(tmp_path, policies=policies, identity={"callers": {"bridge": caller}}) as client:
        known = empty and kind != "attributes"  # an attribute that a principal does not have is unknown to a rule
        assert await answers(client, on_table("read_data", "people"), on_table("read_data", "other")) == [known, True]


@one_service
async def test_a_forbid_binds_a_name_in_any_case(client: HttpClient) -> None:
    """Behind OPA asks Trino, which sends names in lower case, and Lakekeeper reads them in any."""
    names = ["locked", "LOCKED", "Locked", "other", "OTHER"]
    asked = [on_table("get_metadata", name, "oidc~alice") for name in names]
    assert await answers(client, *asked) == [False] * 3 + [True] * 2


async def test_an_id_of_several_objects_names_none(tmp_path: Path) -> None:
    names = ["table:lake/s/one", "table:lake/s/two", "table:open/s/one", "view:lake/s/other"]
    world = WORLD | {"objects": [*WORLD["objects"], *({"object": name, "id": "same"} for name in names)]}
    async with asking(tmp_path, world=world) as client:
        by_id = {"table-id": "same"}
        asked = [check("table", "read_data", **by_id), check("view", "select", **{"view-id": "same"})]
        other = check("table", "read_data", "oidc~eve", **by_id)
        other["operation"]["table"]["warehouse-id"] = "open"
        assert await answers(client, *asked, other) == [False, True, True]
