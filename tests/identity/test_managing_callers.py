"""Callers with a principal of their own at the verbs that act for somebody: writes, lists, loads. HTTP and gRPC alike."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.json_format import MessageToDict, ParseDict
from support.authentication import ORDERS, PEOPLE, WORLD, bearer, oidc, service_of
from support.clients.http_client import http_client
from support.clients.stubs import wire_grpc
from support.servers.idp import Provider, provider, token

from pdp.app.service import Service
from pdp.surfaces.wire import decision_pb2 as wire

GRANTS: Any = WORLD["grants"]
SQLITE: Any = {"store": {"url": "sqlite:///pdp.db", "seed": "world.json"}}
OPERATOR = {"principal": "user:oidc~mallory", "privilege": "admin", "object": "server"}
ON_PEOPLE = {"principal": "user:oidc~mallory", "privilege": "select", "object": PEOPLE}
BY_CAROL = {"principal": "user:oidc~dave", "privilege": "select", "object": ORDERS}
TRINO = {"type": "trino", "owner_property": "owner", "identities": {"oidc": {"audiences": ["trino"]}}}
VIEW = "view:lake/sales/v"
VERBS: dict[str, tuple[str, str, Any]] = {
    "/v1/grants": ("GrantsService", "WriteGrants", wire.WriteGrantsRequest),
    "/v1/objects": ("GrantsService", "WriteObjects", wire.WriteObjectsRequest),
    "/v1/access": ("GrantsService", "Access", wire.AccessRequest),
    "/v1/list": ("DecisionService", "List", wire.ListRequest),
    "/v1/load": ("DecisionService", "CheckLoad", wire.CheckLoadRequest),
    "/v1/commit-view": ("DecisionService", "CheckViewCommit", wire.CheckViewCommitRequest),
    "GET": ("GrantsService", "ListGrants", wire.ListGrantsRequest),
}
STATUS = {"PERMISSION_DENIED": 403, "INVALID_ARGUMENT": 400, "UNAUTHENTICATED": 401}


@pytest.fixture
async def idp() -> AsyncIterator[Provider]:
    async with provider() as made:
        yield made


@asynccontextmanager
async def managed(folder: Path, idp: Provider, rule: Any = None, **more: Any) -> AsyncIterator[Service]:
    """A service on SQLite where everybody's token is for `pdp`; `rule` is what such tokens may."""
    identity = {"providers": {"oidc": oidc(idp, role_map={"kc-analyst": "analyst"})}, **more.pop("identity", {})}
    if rule is not None:
        identity["callers"] = {"all": {"bearer": {"idp": "oidc", "audiences": ["pdp"]}, **rule}}
    async with service_of(folder, identity=identity, **{**SQLITE, **more}) as service:
        yield service


async def both(service: Service, path: str, body: dict[str, Any], who: str | None) -> tuple[int, Any]:
    """Status and answer over HTTP; the same over gRPC, or this fails. Steps and objects are compared, too."""
    headers = bearer(who) if who else {}
    async with http_client(service) as client:
        if path == "GET":
            query = urllib.parse.urlencode(body)
            response = await client.send("GET", f"/v1/grants?{query}", headers=headers)
        else:
            response = await client.send("POST", path, body, headers)
    status, answer = response.status, response.json()
    name, method, kind = VERBS[path]
    metadata = (("authorization", f"Bearer {who}"),) if who else ()
    request = ParseDict(as_proto(path, body), kind())
    async with grpc.aio.insecure_channel(service.addresses["grpc"]) as channel:
        stub: Any = getattr(wire_grpc, f"{name}Stub")(channel)
        call = getattr(stub, method)(request, timeout=20, metadata=metadata)
        failed, details = await call.code(), await call.details() or ""
        replied = MessageToDict(await call) if failed is grpc.StatusCode.OK else {}
    if status != 200:
        assert (STATUS[failed.name], details.partition(":")[0]) == (status, answer["error"]["code"])
        return status, answer
    for key in ("allowed", "by", "objects", "storageAccess"):
        assert (replied.get(key) or []) == (answer.get(key) or []), key
    assert [step["by"] for step in replied.get("steps", [])] == [step["by"] for step in answer.get("steps", [])]
    assert len(replied.get("grants", [])) == len(answer.get("grants", []))
    return status, answer


def as_proto(path: str, body: Any) -> Any:
    """The JSON of a request as its message has it."""
    made = dict(body)
    for key in ("principal", "actor"):
        if isinstance(made.get(key), str) and (key == "actor" or path != "GET"):
            made[key] = {"id": made[key]}
    actor = {"principal": made.pop("actor")} if "actor" in made else {}
    if path in {"/v1/grants", "/v1/objects", "/v1/access", "GET"} and "actingRole" in made:
        actor["actingRole"] = made.pop("actingRole")
    for key in {"target", "view", "resource"} & made.keys():
        made[key] = {"reference": made[key]}
    if "views" in made:
        made["views"] = [{**view, "resource": {"reference": view["resource"]}} for view in made["views"]]
    return made | ({"actor": actor} if actor else {})


def code(answer: Any) -> str:
    return str(answer["error"]["code"]) if "error" in answer else ""


# --- writes -------------------------------------------------------------------------------------------------------


async def test_a_user_who_may_write_is_no_operator(idp: Provider, tmp_path: Path) -> None:
    async with managed(tmp_path, idp, {"may_write": True}) as service:
        mallory, carol = token(sub="mallory"), token(sub="carol")
        for body in (OPERATOR, ON_PEOPLE, {**ON_PEOPLE, "privilege": "ownership"}):
            status, answer = await both(service, "/v1/grants", {"add": [body]}, mallory)
            assert (status, code(answer)) == (403, "forbidden")
        objects = {"put": [{"object": "warehouse:mine", "parent": "project:p1"}]}
        assert (await both(service, "/v1/objects", objects, mallory))[0] == 403
        assert (await both(service, "/v1/objects", {"delete": [PEOPLE]}, mallory))[0] == 403
        assert (await both(service, "/v1/grants", {"add": [BY_CAROL]}, carol))[0] == 200
        assert (await both(service, "/v1/grants", {"add": [{**BY_CAROL, "object": PEOPLE}]}, carol))[0] == 403


async def test_an_owner_neither_moves_nor_deletes_what_only_a_catalog_knows(idp: Provider, tmp_path: Path) -> None:
    """The name of a move's target may be taken in the catalog; a delete would end the grants of others."""
    owned = {"principal": "user:oidc~mallory", "privilege": "ownership"}
    seed = {
        "objects": ["project:p", {"object": "warehouse:lake", "parent": "project:p"}, "table:lake/sales/mine"],
        "grants": [
            owned | {"object": "table:lake/sales/mine"},
            owned | {"privilege": "modify", "object": "namespace:lake/sales"},
            {"principal": "user:oidc~carol", "privilege": "ownership", "object": "table:lake/sales/hers"},
        ],
    }
    (tmp_path / "owned.json").write_text(json.dumps(seed))
    store = {"url": "sqlite:///pdp.db", "seed": "owned.json"}
    mallory = token(sub="mallory")
    attacks: tuple[dict[str, Any], ...] = (
        {"move": [{"from": "table:lake/sales/mine", "to": "table:lake/sales/payroll"}]},
        {"delete": ["namespace:lake/sales"]},
        {"delete": ["table:lake/sales/mine"]},
        {"put": [{"object": "table:lake/sales/mine", "id": "id-of-another"}]},
        {"put": [{"object": "table:lake/sales/payroll"}]},
    )
    async with managed(tmp_path, idp, {"may_write": True}, store=store) as service:
        before = service.source.facts
        for attack in attacks:
            status, answer = await both(service, "/v1/objects", attack, mallory)
            assert (status, code(answer)) == (403, "forbidden"), attack
        assert service.source.facts is before


async def test_nobody_writes_as_somebody_else(idp: Provider, tmp_path: Path) -> None:
    async with managed(tmp_path, idp, {"may_write": True}) as service:
        for who in ("user:oidc~carol", "user:oidc~sam", "role:analyst", "anonymous"):
            status, answer = await both(service, "/v1/grants", {"add": [BY_CAROL], "actor": who}, token(sub="mallory"))
            assert (status, code(answer)) == (403, "assertion_not_allowed")
        claimed = {"add": [BY_CAROL], "actor": {"id": "user:oidc~alice", "roles": ["kc-analyst"]}}
        async with http_client(service) as client:
            status, answer = await client.post("/v1/grants", claimed, bearer(token()))
            assert (status, code(answer)) == (403, "assertion_not_allowed")
        said = {"add": [BY_CAROL], "actor": "user:oidc~carol"}
        assert (await both(service, "/v1/grants", said, token(sub="carol")))[0] == 200


async def test_without_may_write_nobody_writes(idp: Provider, tmp_path: Path) -> None:
    async with managed(tmp_path, idp, {"may_assert": ["principals"]}) as service:
        status, answer = await both(service, "/v1/grants", {"add": [BY_CAROL]}, token(sub="carol"))
        assert (status, code(answer)) == (403, "forbidden")
    async with managed(tmp_path, idp) as service:
        assert (await both(service, "/v1/grants", {"add": [BY_CAROL]}, token(sub="carol")))[0] == 403


async def test_a_deployment_without_a_principal_is_an_operator(tmp_path: Path) -> None:
    async with service_of(tmp_path, **SQLITE) as service:
        assert (await both(service, "/v1/grants", {"add": [OPERATOR]}, None))[0] == 200
    callers = {"callers": {"here": {"loopback": True, "may_assert": ["principals"]}}}
    async with service_of(tmp_path, identity=callers, **SQLITE) as service:
        assert (await both(service, "/v1/grants", {"add": [OPERATOR]}, None))[0] == 403
        assert (await both(service, "GET", {}, None))[1]["grants"]
    callers = {"callers": {"here": {"loopback": True}}}
    async with service_of(tmp_path, identity=callers, **SQLITE) as service:
        assert (await both(service, "GET", {}, None))[0] == 403
        assert (await both(service, "GET", {"actor": "user:oidc~carol"}, None))[0] == 403


async def test_a_bad_token_or_a_page_in_a_browser_is_no_operator(idp: Provider, tmp_path: Path) -> None:
    async with managed(tmp_path, idp) as service:
        assert (await both(service, "/v1/grants", {"add": [OPERATOR]}, token(exp=1)))[0] == 401
        async with http_client(service) as client:
            plain = {"Content-Type": "text/plain"}
            assert (await client.send("POST", "/v1/grants", {"add": [OPERATOR]}, plain)).status == 415
            origin = {"Content-Type": "text/plain", "Origin": "http://evil.example"}
            assert (await client.send("GET", "/v1/grants", headers=origin)).status == 403
        assert (await both(service, "/v1/grants", {"add": [OPERATOR]}, None))[0] == 200


async def test_an_instance_admin_manages_for_itself_alone(idp: Provider, tmp_path: Path) -> None:
    identity = {"instance_admins": ["user:oidc~alice"]}
    async with managed(tmp_path, idp, {"may_write": True}, identity=identity) as service:
        assert (await both(service, "/v1/grants", {"add": [OPERATOR], "actingRole": "role:auditor"}, token()))[0] == 403
        assert (await both(service, "/v1/grants", {"add": [OPERATOR]}, token(sub="bob")))[0] == 403
        assert (await both(service, "/v1/grants", {"add": [OPERATOR]}, token()))[0] == 200


async def test_a_carried_role_manages_what_it_may(idp: Provider, tmp_path: Path) -> None:
    owner = {"principal": "role:analyst", "privilege": "ownership", "object": PEOPLE}
    seed = {**WORLD, "grants": [*GRANTS, owner]}
    (tmp_path / "more.json").write_text(json.dumps(seed))
    store = {"url": "sqlite:///pdp.db", "seed": "more.json"}
    async with managed(tmp_path, idp, {"may_write": True}, store=store) as service:
        carrier = token(sub="mallory", roles=["kc-analyst"])
        assert (await both(service, "/v1/grants", {"add": [ON_PEOPLE]}, token(sub="mallory")))[0] == 403
        assert (await both(service, "/v1/grants", {"add": [ON_PEOPLE]}, carrier))[0] == 200


# --- reads --------------------------------------------------------------------------------------------------------


async def test_a_user_sees_its_own_grants_and_those_that_it_may_read(idp: Provider, tmp_path: Path) -> None:
    async with managed(tmp_path, idp) as service:
        _, alice = await both(service, "GET", {}, token())
        _, carol = await both(service, "GET", {"object": ORDERS}, token(sub="carol"))
        refused = [
            await both(service, "GET", {"object": PEOPLE}, token()),
            await both(service, "GET", {"actor": "user:oidc~sam"}, token()),
            await both(service, "/v1/access", {"resource": ORDERS, "action": "read_data"}, token()),
        ]
        _, readers = await both(service, "/v1/access", {"resource": ORDERS, "action": "read_data"}, token(sub="carol"))
    assert {grant["principal"] for grant in alice["grants"]} == {"user:oidc~alice"}
    assert [grant["object"] for grant in carol["grants"]] == [ORDERS]
    assert [status for status, _ in refused] == [403, 403, 403]
    assert {found["principal"] for found in readers["principals"]} >= {"user:oidc~alice", "user:oidc~bob"}
    assert all(":" in found["by"][0] for found in readers["principals"])


async def test_nobody_is_told_who_has_access_where_inspection_is_off(idp: Provider, tmp_path: Path) -> None:
    async with managed(tmp_path, idp, identity={"inspect": "deny"}) as service:
        asked = {"resource": ORDERS, "action": "read_data"}
        status, answer = await both(service, "/v1/access", asked, token(sub="carol"))
        assert (status, code(answer)) == (403, "assertion_not_allowed")
        asked = {"principal": "user:oidc~bob", "action": "read_data", "type": "table", "container": "warehouse:lake"}
        status, answer = await both(service, "/v1/list", asked, token(sub="carol"))
        assert (status, code(answer)) == (403, "assertion_not_allowed")


async def test_a_list_is_about_the_caller_and_of_others_as_far_as_it_may_see(idp: Provider, tmp_path: Path) -> None:
    asked = {"action": "read_data", "type": "table", "container": "warehouse:lake"}
    grants = [*GRANTS, {"principal": "user:oidc~bob", "privilege": "select", "object": PEOPLE}]
    (tmp_path / "more.json").write_text(json.dumps({**WORLD, "grants": grants}))
    store = {"url": "sqlite:///pdp.db", "seed": "more.json"}
    async with managed(tmp_path, idp, store=store) as service:
        listed = {
            who: (await both(service, "/v1/list", {**asked, **about}, token(sub=who)))[1]["objects"]
            for who, about in (
                ("bob", {}),
                ("mallory", {"principal": "user:oidc~bob"}),
                ("carol", {"principal": "user:oidc~bob"}),
                ("alice", {"principal": "user:oidc~alice"}),
            )
        }
        claimed = {**asked, "principal": {"id": "user:oidc~bob", "roles": ["kc-analyst"]}}
        status, answer = await both(service, "/v1/list", claimed, token(sub="carol"))
    assert listed == {"bob": [PEOPLE, ORDERS], "mallory": [], "carol": [ORDERS], "alice": [ORDERS]}
    assert (status, code(answer)) == (403, "assertion_not_allowed")
    async with service_of(tmp_path, **SQLITE) as service:
        assert (await both(service, "/v1/list", asked, None))[0] == 400


# --- loads --------------------------------------------------------------------------------------------------------


LOAD = {"target": ORDERS, "action": "loadTable"}
CHAIN: dict[str, Any] = {
    **LOAD,
    "target": PEOPLE,
    "referencedBy": "sales%1Fv",
    "views": [{"resource": VIEW, "properties": {"owner": "root"}}],
}
CLAIMED: dict[str, Any] = {"principal": {"id": "user:oidc~alice", "roles": ["x"]}}
LOADERS = {
    "alice": {"principal": "user:oidc~alice", "privilege": "select", "object": VIEW},
    "root": {"principal": "user:oidc~root", "privilege": "select", "object": PEOPLE},
}


@asynccontextmanager
async def loading(folder: Path, idp: Provider, may_assert: list[str], **identity: Any) -> AsyncIterator[Service]:
    (folder / "more.json").write_text(json.dumps({**WORLD, "grants": [*GRANTS, *LOADERS.values()]}))
    store = {"url": "file:more.json"}
    callers = {"trino": {"bearer": {"idp": "oidc", "audiences": ["trino"]}, "may_assert": may_assert}}
    providers = {"oidc": oidc(idp, role_map={"kc-analyst": "analyst"})}
    identity = {"callers": callers, "providers": providers, **identity}
    async with service_of(folder, store=store, identity=identity, trusted_engines={"trino": TRINO}) as service:
        yield service


async def test_a_load_is_about_the_caller_and_shows_no_reasons(idp: Provider, tmp_path: Path) -> None:
    async with loading(tmp_path, idp, []) as service:
        _, alice = await both(service, "/v1/load", LOAD, token())
        _, mallory = await both(service, "/v1/load", LOAD, token(sub="mallory"))
        _, other = await both(service, "/v1/load", {**LOAD, "principal": "user:oidc~bob"}, token())
        _, carol = await both(service, "/v1/load", {**LOAD, "principal": "user:oidc~bob"}, token(sub="carol"))
    assert (alice["allowed"], alice["by"], alice["storageAccess"]) == (True, ["grants"], "read")
    assert {reason for step in alice["steps"] for reason in step["by"]} == {"grants", "denied"}
    assert (mallory["allowed"], mallory["by"]) == (False, ["denied"])
    assert (other["allowed"], code(other), other["steps"]) == (False, "assertion_not_allowed", [])
    assert carol["allowed"]
    assert carol["steps"][0]["by"] == ["grants:select on namespace:lake/sales via user:oidc~bob"]


async def test_evidence_of_loads_is_weighed(idp: Provider, tmp_path: Path) -> None:
    engine: dict[str, Any] = {"caller": {"idp": "oidc", "audiences": ["trino"]}}
    body = {key: value for key, value in CHAIN.items() if key != "views"}
    async with loading(tmp_path, idp, []) as service:
        for more in ({"views": CHAIN["views"]}, engine, CLAIMED):
            _, answer = await both(service, "/v1/load", {**body, **more}, token(aud=["trino", "pdp"]))
            assert (answer["allowed"], code(answer), answer["steps"]) == (False, "assertion_not_allowed", [])
        commit = {"view": VIEW, "operation": "commit", **engine}
        _, answer = await both(service, "/v1/commit-view", commit, token())
        assert (answer["allowed"], code(answer)) == (False, "assertion_not_allowed")
        about = {"view": VIEW, "operation": "commit", "principal": "user:oidc~bob"}
        _, answer = await both(service, "/v1/commit-view", about, token())
        assert (answer["allowed"], code(answer), answer["steps"]) == (False, "assertion_not_allowed", [])


async def test_steps_of_a_switched_owner_are_for_those_who_may_read_grants(idp: Provider, tmp_path: Path) -> None:
    """The engine's own user passes; what the owner may is not its business."""
    async with loading(tmp_path, idp, ["properties"]) as service:
        _, plain = await both(service, "/v1/load", CHAIN, token(aud=["trino", "pdp"]))
        _, sam = await both(
            service, "/v1/load", {**CHAIN, "principal": "user:oidc~alice"}, token(aud=["trino", "pdp"], sub="carol")
        )
    assert plain["allowed"]
    assert plain["referencedByUsed"]
    assert [(step["as"], step["by"]) for step in plain["steps"]] == [("user:oidc~alice", ["grants"])] * 2
    assert "root" not in json.dumps(plain)
    # who may read the view's grants but not the table's may not ask about it
    assert code(sam) == "assertion_not_allowed"


async def test_neither_roles_nor_an_admins_pass_follow_into_a_view(idp: Provider, tmp_path: Path) -> None:
    """Mapped roles are the caller's alone, and an instance admin's pass ends where an owner takes over."""
    asserting = ["principals", "roles", "properties"]
    analyst = {"id": "user:oidc~alice", "roles": ["kc-analyst"]}
    closed = {**CHAIN, "views": [{"resource": VIEW, "properties": {"owner": "nobody"}}]}
    admins = ["user:oidc~alice", "user:oidc~nobody"]
    async with loading(tmp_path, idp, asserting, instance_admins=admins) as service:
        svc = token(aud=["trino", "pdp"], sub="svc")
        direct = {"target": PEOPLE, "action": "loadTable"}
        _, role = await both(service, "/v1/load", {**direct, "principal": analyst}, svc)
        _, through = await both(service, "/v1/load", {**closed, "principal": analyst}, svc)
        _, nobody = await both(service, "/v1/load", {**direct, "principal": "user:oidc~nobody"}, svc)
        _, enters = await both(service, "/v1/load", {**closed, "principal": "user:oidc~nobody"}, svc)
    assert (role["allowed"], role["storageAccess"]) == (True, "read")
    assert not through["allowed"]
    assert through["steps"][2]["delegated"]
    assert {step["allowed"] for step in through["steps"][2:]} == {False}
    assert (nobody["allowed"], nobody["storageAccess"]) == (True, "none")
    assert [(step["action"], step["allowed"]) for step in enters["steps"][:2]] == [
        ("get_metadata", True),
        ("select", False),
    ]
