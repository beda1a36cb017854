"""A forbid binds every field of a request to management that names, changes or moves something, and every listing.

Each case is a request that grants permit, and a forbid for what one field of it does. Under the forbid
it is refused, or its answer leaves out what the forbid hides.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import msgspec
import pytest
from support.clients.http_client import HttpClient, client_of
from support.service.serving import settings_of

from pdp.engines.grants.edits import ObjectPatch
from pdp.engines.row_access.policies import MaskBody, PolicyBody
from pdp.management import codec, row_policy_codec
from pdp.surfaces.http import endpoints

ANN, BOB = "user:oidc~ann", "user:oidc~bob"
T, KEEP = "table:lake/s/t", "table:lake/s/keep"
OBJECTS: list[Any] = [
    "project:p",
    "project:q",
    {"object": "warehouse:lake", "parent": "project:p"},
    {"object": "warehouse:pond", "parent": "project:p"},
    {"object": "role:r", "parent": "project:p"},
    {"object": "tag:pii", "parent": "project:p"},
    "namespace:lake/s",
    "namespace:lake/u",
    "namespace:pond/n",
    {"object": "table:lake/s/old", "id": "1"},
    T,
    KEEP,
    "table:pond/n/kept",
]
READERS = [{"principal": BOB, "privilege": "select", "object": name} for name in (T, KEEP, "namespace:lake/s")]


def all_rights(actor: str) -> list[dict[str, str]]:
    """Return grants that permit every case to an actor."""
    owned = ("warehouse:lake", "warehouse:pond", "role:r", "tag:pii")
    return [
        {"principal": actor, "privilege": "admin", "object": "server"},
        *({"principal": actor, "privilege": "ownership", "object": name} for name in owned),
        *({"principal": actor, "privilege": "project_admin", "object": f"project:{name}"} for name in "pq"),
    ]


RULES = "/v1/row-access-policies"
MASKS = "/v1/column-masks"
ROW = {"table": T, "id": "eu", "grantees": ["allUsers"], "filter": "x = 1"}
MASK = {"table": T, "id": "m", "column": "c", "grantees": ["allUsers"], "kind": "null"}


class Case(NamedTuple):
    """A request, the body fields that the forbid is about, and the forbid. `left_out` finds what an answer shows."""

    fields: str
    path: str
    body: Mapping[str, Any]
    forbid: str
    method: str = "POST"
    left_out: Callable[[Any], Any] | None = None


def put(fields: str, entry: Any, forbid: str) -> Case:
    return Case(f"put {fields}", "/v1/objects", {"put": [entry]}, forbid)


def move(source: str, target: str, forbid: str) -> Case:
    return Case("move", "/v1/objects", {"move": [{"from": source, "to": target}]}, forbid)


def at(op: str, path: str) -> str:
    return f"op == '{op}' && path == '{path}'"


def about(action: str, name: str) -> str:
    return f"op == 'catalog:{action}' && arguments.name == '{name}'"


def made(action: str, name: str, project: str = "q") -> str:
    return f"{about(action, name)} && arguments.project == '{project}'"


READ_T = at("catalog:read_assignments", "s.t")
MANAGE_T = at("catalog:grant_manage_grants", "s.t")
CASES = [
    put("object", "table:lake/s/new", at("CREATE_ENTITY", "s.new")),
    put("object", "namespace:lake/new", at("CREATE_ENTITY", "new")),
    put("object", "project:new", about("create_project", "new")),
    put("object", "user:oidc~new", "op == 'catalog:provision_users'"),
    put("object parent", {"object": "role:new", "parent": "project:q"}, made("create_role", "new")),
    put("object parent", {"object": "tag:new", "parent": "project:q"}, made("create_tag", "new")),
    put("object parent", {"object": "warehouse:new", "parent": "project:q"}, made("create_warehouse", "new")),
    put("parent", {"object": "role:r", "parent": "project:q"}, made("create_role", "r")),
    put("parent", {"object": "role:r", "parent": "project:q"}, about("delete", "r")),
    put("parent", {"object": "tag:pii", "parent": "project:q"}, made("create_tag", "pii")),
    put("parent", {"object": "tag:pii", "parent": "project:q"}, about("delete", "pii")),
    put("parent", {"object": "warehouse:pond", "parent": "project:q"}, made("create_warehouse", "pond")),
    put("parent", {"object": "warehouse:pond", "parent": "project:q"}, "op == 'catalog:delete'"),
    put("managedAccess", {"object": "namespace:lake/s", "managedAccess": True}, at("catalog:set_managed_access", "s")),
    put("managedAccess", {"object": "warehouse:lake", "managedAccess": True}, "op == 'catalog:set_managed_access'"),
    put("id", {"object": T, "id": "7"}, at("catalog:change_ownership", "s.t")),
    put("id", {"object": "namespace:lake/s", "id": "7"}, at("catalog:change_ownership", "s")),
    put("id", {"object": "table:lake/s/old", "id": "7"}, at("DELETE_ENTITY", "s.old")),
    put("id", {"object": "table:lake/s/old", "id": "7"}, at("CREATE_ENTITY", "s.old")),
    Case("delete", "/v1/objects", {"delete": [T]}, at("DELETE_ENTITY", "s.t")),
    Case("delete", "/v1/objects", {"delete": ["namespace:lake/s"]}, at("DELETE_ENTITY", "s.keep")),
    Case("delete", "/v1/objects", {"delete": ["namespace:lake/s"]}, at("DELETE_ENTITY", "s.unknown")),
    Case("delete", "/v1/objects", {"delete": ["warehouse:pond"]}, at("DELETE_ENTITY", "n.kept")),
    Case("delete", "/v1/objects", {"delete": ["role:r"]}, about("delete", "r")),
    move(T, "table:lake/s/other", at("DELETE_ENTITY", "s.t")),
    move(T, "table:lake/s/other", at("CREATE_ENTITY", "s.other")),
    move(T, "table:lake/u/t", at("DELETE_ENTITY", "s.t")),
    move(T, "table:lake/u/t", at("CREATE_ENTITY", "u.t")),
    move(T, "table:lake/u/t", at("catalog:accept_moved_tabular", "u")),
    move(T, "table:lake/u/t", "action == 'move'"),
    move("namespace:lake/s", "namespace:lake/v", at("DELETE_ENTITY", "s.keep")),
    move("namespace:lake/s", "namespace:lake/v", at("CREATE_ENTITY", "v.keep")),
    move("namespace:lake/s", "namespace:lake/u/s", at("catalog:accept_moved_namespace", "u")),
    move("namespace:lake/s", "namespace:lake/v", at("DELETE_ENTITY", "s.unknown")),
    move("namespace:lake/s", "namespace:lake/v", at("CREATE_ENTITY", "v.unknown")),
    move("namespace:lake/s", "namespace:lake/v", "op == 'DELETE_ENTITY' && path.startsWith('s.deep.')"),
    move("warehouse:pond", "warehouse:sea", "op == 'catalog:rename'"),
    move("warehouse:pond", "warehouse:sea", at("DELETE_ENTITY", "n.kept")),
    move("warehouse:pond", "warehouse:sea", at("CREATE_ENTITY", "n.kept") + " && ref == 'main'"),
    Case("add", "/v1/grants", {"add": [{"principal": BOB, "privilege": "modify", "object": T}]}, at("catalog:grant_modify", "s.t")),
    Case("add", "/v1/grants", {"add": [{"principal": BOB, "privilege": "ownership", "object": T}]}, at("catalog:change_ownership", "s.t")),
    Case("add", "/v1/grants", {"add": [{"principal": BOB, "privilege": "assignee", "object": "role:r"}]}, about("grant_assignee", "r")),
    Case("remove", "/v1/grants", {"remove": [{"principal": BOB, "privilege": "select", "object": T}]}, at("catalog:revoke_select", "s.t")),
    Case("object", "/v1/grants", {"object": T}, READ_T, "GET"),
    Case("object principal", "/v1/grants", {"object": T, "principal": BOB}, READ_T, "GET"),
    Case("object below", "/v1/grants", {"object": "namespace:lake/s", "below": "true"}, at("catalog:read_assignments", "s"), "GET"),
    Case("below", "/v1/grants", {"object": "namespace:lake/s", "below": "true"}, READ_T, "GET", lambda found: _objects(found, T)),
    Case("principal", "/v1/grants", {"principal": BOB}, READ_T, "GET", lambda found: _objects(found, T)),
    Case("privilege", "/v1/grants", {"principal": BOB, "privilege": "select"}, READ_T, "GET", lambda found: _objects(found, T)),
    Case("resource action", "/v1/access", {"resource": T, "action": "read_data"}, READ_T),
    Case("resource action", "/v1/access", {"resource": "role:r", "action": "assume"}, about("read_assignments", "r")),
    Case("table id", RULES, {**ROW, "id": "new"}, MANAGE_T),
    Case("table id", f"{RULES}/eu", ROW, MANAGE_T, "PUT"),
    Case("table", f"{RULES}/eu", {"table": T}, MANAGE_T, "DELETE"),
    Case("table ids", f"{RULES}:batchDelete", {"table": T, "ids": ["eu"]}, MANAGE_T),
    Case("table", RULES, {"table": T}, READ_T, "GET"),
    Case("", RULES, {}, READ_T, "GET", lambda found: found["rowAccessPolicies"]),
    Case("table", f"{RULES}/eu", {"table": T}, READ_T, "GET"),
    Case("table permissions", f"{RULES}:testPermissions", {"table": T, "permissions": ["rowAccessPolicies.get"]}, READ_T, left_out=lambda found: found["permissions"]),
    Case("table permissions", f"{RULES}:testPermissions", {"table": T, "permissions": ["rowAccessPolicies.update"]}, MANAGE_T, left_out=lambda found: found["permissions"]),
    Case("table column", MASKS, {**MASK, "id": "new"}, MANAGE_T),
    Case("table column", f"{MASKS}/m", MASK, MANAGE_T, "PUT"),
    Case("table column", f"{MASKS}/m", {"table": T, "column": "c"}, MANAGE_T, "DELETE"),
    Case("table column ids", f"{MASKS}:batchDelete", {"table": T, "ids": ["m"], "column": "c"}, MANAGE_T),
    Case("table", MASKS, {"table": T}, READ_T, "GET"),
    Case("", MASKS, {}, READ_T, "GET", lambda found: found["columnMasks"]),
    Case("table column", f"{MASKS}/m", {"table": T, "column": "c"}, READ_T, "GET"),
    Case("table permissions", f"{MASKS}:testPermissions", {"table": T, "permissions": ["rowAccessPolicies.list"]}, READ_T, left_out=lambda found: found["permissions"]),
]  # fmt: skip
LISTS = [
    Case("action type container", "/v1/list", {"principal": ANN, "action": "read_data", "type": "table", "container": "namespace:lake/s"}, at("READ_ENTITY_VALUE", "s.t"), left_out=lambda found: [name for name in found["objects"] if name == T]),
]  # fmt: skip


def _objects(found: Any, name: str) -> list[Any]:
    return [grant for grant in found["grants"] if grant["object"] == name]


@asynccontextmanager
async def serving_under(
    rules: Mapping[str, str], folder: Path, actors: Sequence[str] = (ANN,), *, rows: bool = True, **more: Any
) -> AsyncIterator[HttpClient]:
    files = {
        "forbid.yaml": {"rules": rules},
        "seed.json": {
            "objects": OBJECTS,
            "grants": [*READERS, *(each for actor in actors for each in all_rights(actor))],
        },
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    config = {
        "warehouses": {name: {"default_ref": "main"} for name in ("lake", "pond", "new")},
        "authorities": {"default": {"engines": ["grants"]}},
        "policies": {"rules": [], "forbid": ["forbid.yaml"] if rules else []},
        "store": {"url": f"sqlite:///{folder}/pdp.db", "seed": "seed.json"},
    }
    async with client_of(settings_of(config | more, folder)) as http:
        for path, body in ((RULES, ROW), (MASKS, MASK)) if rows else ():
            assert (await http.post(path, body))[0] == 200
        yield http


async def ask(http: HttpClient, case: Case, actor: str = ANN) -> tuple[int, Any]:
    body = {**case.body, "principal": actor} if case.path == "/v1/list" else {**case.body, "actor": actor}
    if case.method in ("GET", "DELETE"):
        response = await http.send(case.method, f"{case.path}?{urlencode(body)}")
    else:
        response = await http.send(case.method, case.path, body)
    return response.status, response.json()


async def test_a_forbid_binds_every_field(tmp_path: Path) -> None:
    """Rights are asked first, so that a refusal by the forbid tells that the actor has them."""
    cases = [*CASES, *LISTS]
    rules = {f"lock{at}": f"role == 'ann{at}' && ({case.forbid})" for at, case in enumerate(cases)}
    actors = [ANN, *(f"{ANN}{at}" for at in range(len(cases)))]
    async with serving_under(rules, tmp_path, actors) as http:
        for at, case in enumerate(cases):
            status, found = await ask(http, case, f"{ANN}{at}")
            if case.left_out is None:
                assert (status, found.get("error", {}).get("code")) == (403, "forbidden"), (case, found)
                assert f"cel:lock{at}" in found["error"]["message"], (case, found)
                continue
            assert status == 200, (case, found)
            assert not case.left_out(found), (case, found)
            other = await ask(http, case, ANN)
            assert case.left_out(other[1]), (case, other)


@pytest.mark.parametrize("case", [case for case in CASES if case.path == "/v1/objects"][::5])
async def test_without_the_forbid_the_edit_is_done(case: Case, tmp_path: Path) -> None:
    async with serving_under({"other": "role == 'bob'"}, tmp_path) as http:
        status, found = await ask(http, case)
        assert status == 200, found


@pytest.mark.parametrize("name", ["pond", "sea"])
async def test_a_warehouse_that_a_forbid_names_is_renamed_by_admins_alone(name: str, tmp_path: Path) -> None:
    case = move("warehouse:pond", "warehouse:sea", "")
    admins = {"instance_admins": [f"{ANN}9"]}
    forbid = {"other": f"op == 'READ_ENTITY_VALUE' && warehouse == '{name}' && role == 'bob'"}
    async with serving_under(forbid, tmp_path, [ANN, f"{ANN}9"], identity=admins) as http:
        status, found = await ask(http, case)
        assert (status, found["error"]["code"]) == (403, "forbidden")
        assert "rule:named_by_policy" in found["error"]["message"]
        assert (await ask(http, case, f"{ANN}9"))[0] == 200


NEVER_ASKED = {"actor", "actingRole", "consistency", "pageSize", "pageToken"}
"""Fields that name the asker or the page."""
CONTENT = {"grantees", "filter", "restrictive", "dialect", "etag", "kind", "expression", "exempt", "except"}
"""Fields of rules: the right to manage the rules of the table covers what they say."""


def _fields(body: type[msgspec.Struct]) -> set[str]:
    if body in (PolicyBody, MaskBody):  # what names who evaluates is for files alone
        own = {field.encode_name for field in msgspec.structs.fields(body)} - {"identity"}
        return own | {*row_policy_codec.WRITE_KEYS}
    return {field.encode_name for field in msgspec.structs.fields(body)}


def test_every_route_and_field_has_a_case() -> None:
    """A new field of a body, of an entry or of a query needs a case here, and so does a new route."""
    cases = [*CASES, *LISTS]
    by_path: dict[str, set[str]] = {}
    for case in cases:
        by_path.setdefault(f"{case.method} {case.path}", set()).update(case.fields.split(), case.body)
    bodies: dict[str, type[msgspec.Struct]] = {
        "POST /v1/grants": codec.GrantsBody,
        "POST /v1/objects": codec.ObjectsBody,
        "POST /v1/access": codec.AccessBody,
        "POST /v1/list": codec.ListBody,
        f"POST {RULES}": PolicyBody,
        f"POST {MASKS}": MaskBody,
        f"POST {RULES}:batchDelete": row_policy_codec.BatchDeleteBody,
        f"POST {RULES}:testPermissions": row_policy_codec.PermissionsBody,
    }
    for path, body in bodies.items():
        assert _fields(body) - NEVER_ASKED - CONTENT - by_path[path] - {"column"} <= set(), path
    assert by_path["GET /v1/grants"] >= codec._QUERY - NEVER_ASKED
    entry = {"key": "object", "project": "parent", "managed": "managedAccess", "id": "id"}
    assert entry.keys() == {*ObjectPatch.__struct_fields__}
    assert {*entry.values()} <= by_path["POST /v1/objects"]
    for path in endpoints.PATHS:
        routes = {
            f"{method} {path}{end}"
            for method, end in (("GET", ""), ("POST", ""), ("POST", ":batchDelete"), ("POST", ":testPermissions"))
        }
        name = "eu" if path == RULES else "m"
        assert routes | {f"{method} {path}/{name}" for method in ("GET", "PUT", "DELETE")} <= by_path.keys()


async def test_a_forbid_of_everything_leaves_the_own_grants_alone(tmp_path: Path) -> None:
    async with serving_under({"all": "true"}, tmp_path) as http:
        for case in [*CASES, *LISTS]:
            status, found = await ask(http, case)
            assert status == 403 or not (case.left_out or (lambda _: True))(found), case
        status, found = await ask(http, Case("", "/v1/grants", {}, "", "GET"))
        assert status == 200
        assert {grant["principal"] for grant in found["grants"]} == {ANN}


@pytest.mark.parametrize("rules", [{}, {"other": "role == 'bob'"}])
async def test_a_large_warehouse_is_renamed_where_nothing_can_deny(
    rules: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pdp.management.forbidden_edits.MOST_QUESTIONS", 2)
    async with serving_under(rules, tmp_path, rows=False) as http:
        status, found = await ask(http, move("warehouse:pond", "warehouse:sea", ""))
        assert status == (400 if rules else 200), found


async def test_a_later_move_takes_along_what_an_earlier_one_puts_there(tmp_path: Path) -> None:
    async with serving_under({"lock": "op == 'CREATE_ENTITY' && path.startsWith('closed.')"}, tmp_path) as http:
        moves = [{"from": T, "to": "table:lake/tmp/t"}, {"from": "namespace:lake/tmp", "to": "namespace:lake/closed"}]
        status, found = await ask(http, Case("", "/v1/objects", {"actor": ANN, "move": moves}, ""))
        assert (status, found["error"]["code"]) == (403, "forbidden"), found
        assert "closed" not in str((await ask(http, Case("", "/v1/grants", {"actor": ANN}, "", "GET")))[1])


async def test_pages_go_on_behind_what_is_hidden(tmp_path: Path) -> None:
    async with serving_under({"lock": READ_T}, tmp_path) as http:
        found: list[str] = []
        token = ""
        for _ in range(10):
            query = {"actor": ANN, "principal": BOB, "pageSize": 1, **({"pageToken": token} if token else {})}
            status, page = await ask(http, Case("", "/v1/grants", query, "", "GET"))
            assert status == 200
            assert len(page["grants"]) == 1
            found += [grant["object"] for grant in page["grants"]]
            token = page["nextPageToken"]
            if not token:
                break
        assert sorted(found) == ["namespace:lake/s", KEEP]


async def test_cedar_sees_the_name_of_what_an_edit_makes(tmp_path: Path) -> None:
    (tmp_path / "lock.cedar").write_text(
        '@id("lock") forbid(principal, action == Lakekeeper::Action::"CreateTable", resource)'
        ' when { context has table_name && context.table_name == "pay" };'
    )
    more: dict[str, Any] = {
        "authorities": {"default": {"engines": ["cedar", "grants"]}},
        "policies": {"rules": [], "cedar": {"policies": ["lock.cedar"]}},
    }
    async with serving_under({}, tmp_path, **more) as http:
        assert (await http.post("/v1/objects", {"actor": ANN, "put": ["table:lake/s/pay"]}))[0] == 403
        move = {"actor": ANN, "move": [{"from": T, "to": "table:lake/u/pay"}]}
        assert (await http.post("/v1/objects", move))[0] == 403
        assert (await http.post("/v1/objects", {"actor": ANN, "put": ["table:lake/s/play"]}))[0] == 200


async def test_a_cedar_forbid_on_a_person_binds_grants_and_row_policies(tmp_path: Path) -> None:
    """Cedar has no action for them."""
    (tmp_path / "lock.cedar").write_text(
        '@id("lock") forbid(principal == Lakekeeper::User::"oidc~ann", action, resource);'
    )
    more: dict[str, Any] = {
        "authorities": {"default": {"engines": ["cedar", "grants"]}},
        "policies": {"rules": [], "cedar": {"policies": ["lock.cedar"]}},
    }
    async with serving_under({}, tmp_path, (ANN, f"{ANN}2"), **more) as http:
        grant = {"add": [{"principal": BOB, "privilege": "select", "object": T}]}
        for path, body in (("/v1/grants", grant), (RULES, {**ROW, "id": "new"}), (MASKS, {**MASK, "id": "new"})):
            for actor, wanted in ((ANN, 403), (f"{ANN}2", 200)):
                status, found = await ask(http, Case("", path, body, ""), actor)
                assert status == wanted, (path, found)


SPELLED = {
    "op.startsWith('catalog:grant_') && path.startsWith('s.')": (
        "table:lake/S/t",
        "table:lake/s/T",
        "table:lake/S/fresh",
    ),
    "op == 'catalog:grant_manage_grants' && path == 's.T'": ("table:lake/s/t", "table:lake/S/T"),
    "op == 'catalog:grant_manage_grants' && path.contains('.Sub.')": ("table:lake/n%2Esub/t", "table:lake/n/SUB/t"),
    "op.startsWith('catalog:') && path.matches('^u[.]new$')": ("table:lake/U/new", "table:lake/u/NEW"),
}
"""Forbid -> tables of which no row policy may be written: a policy covers every spelling of a name."""


@pytest.mark.parametrize("forbid", SPELLED)
async def test_a_forbid_of_row_policies_binds_for_every_spelling_that_they_cover(forbid: str, tmp_path: Path) -> None:
    async with serving_under({"lock": forbid}, tmp_path) as http:
        for table in SPELLED[forbid]:
            body = {"actor": ANN, **ROW, "id": "other", "table": table}
            status, found = await ask(http, Case("", RULES, body, ""))
            assert (status, found["error"]["code"]) == (403, "forbidden"), (table, found)
            body = {"actor": ANN, **MASK, "id": "other", "table": table}
            assert (await ask(http, Case("", MASKS, body, "")))[0] == 403, table
        body = {"actor": ANN, **ROW, "id": "other", "table": "table:lake/u/open"}
        status, found = await ask(http, Case("", RULES, body, ""))
        assert status == 200, found


TRINO: dict[str, Any] = {"trino": {"catalogs": {"lakehouse": {"warehouse": "lake", "ref": "main"}}}}
NAMESAKES: list[tuple[str, str, dict[str, Any]]] = [
    ("op == 'catalog:grant_select' && path == 'ga'", "/v1/grants", {"add": [{"principal": BOB, "privilege": "select", "object": "namespace:lake/GA"}]}),
    ("op == 'catalog:grant_select' && path.startsWith('ga.')", "/v1/grants", {"add": [{"principal": BOB, "privilege": "select", "object": "table:lake/Ga/t"}]}),
    ("op == 'CREATE_ENTITY' && path == 'ga'", "/v1/objects", {"put": ["namespace:lake/GA"]}),
    ("op == 'CREATE_ENTITY' && path.startsWith('s.tmp')", "/v1/objects", {"put": ["table:lake/s/TMP1"]}),
    ("op == 'CREATE_ENTITY' && path == 'u.closed'", "/v1/objects", {"move": [{"from": T, "to": "table:lake/u/Closed"}]}),
    ("op == 'DELETE_ENTITY' && path == 's.KEEP'", "/v1/objects", {"delete": [KEEP]}),
]  # fmt: skip


@pytest.mark.parametrize(("forbid", "path", "body"), NAMESAKES)
async def test_a_forbid_binds_in_any_case_beside_an_engine_that_folds_names(
    forbid: str, path: str, body: dict[str, Any], tmp_path: Path
) -> None:
    """Trino means the namesake by the name: who may do what there would change."""
    for name, more, wanted in (("trino", TRINO, 403), ("none", {}, 200)):
        (tmp_path / name).mkdir()
        async with serving_under({"lock": forbid}, tmp_path / name, rows=False, **more) as http:
            status, found = await ask(http, Case("", path, body, ""))
            assert status == wanted, found


async def test_a_table_with_too_many_spellings_is_left_out_of_lists_alone(tmp_path: Path) -> None:
    """Nobody knows whether a forbid on one of them binds: the others are listed."""
    many = "table:lake/s/" + "_".join(["PAY"] * 6)
    async with serving_under(
        {"lock": "op == 'catalog:read_assignments' && path.contains('pay')"}, tmp_path, **TRINO
    ) as http:
        for body in (
            {**ROW, "id": "other", "table": many},
            {"add": [{"principal": BOB, "privilege": "select", "object": many}]},
        ):
            path = RULES if "filter" in body else "/v1/grants"
            assert (await http.post(path, body))[0] == 200
        status, found = await ask(http, Case("", RULES, {}, "", "GET"))
        assert (status, [rule["id"] for rule in found["rowAccessPolicies"]]) == (200, ["eu"]), found
        status, found = await ask(http, Case("", "/v1/grants", {}, "", "GET"))
        assert status == 200
        assert many not in {grant["object"] for grant in found["grants"]}


_H, _OTHER = "table:lake/HR/T", "table:lake/x/t"
EDITS_IN_ANOTHER_CASE: dict[str, tuple[str, Any]] = {
    "grant": ("/v1/grants", {"add": [{"principal": BOB, "privilege": "select", "object": _H}]}),
    "own": ("/v1/grants", {"add": [{"principal": BOB, "privilege": "ownership", "object": _H}]}),
    "put": ("/v1/objects", {"put": ["table:lake/Fin/n"]}),
    "move": ("/v1/objects", {"move": [{"from": _OTHER, "to": "table:lake/FIN/t"}]}),
    "move away": ("/v1/objects", {"move": [{"from": _H, "to": "table:lake/x/away"}]}),
    "delete": ("/v1/objects", {"delete": [_H]}),
    "free": ("/v1/objects", {"put": ["table:lake/x/n"]}),
}


@pytest.mark.parametrize("kind", ["hive", "trino", "iceberg"])
async def test_an_edit_in_another_case_is_bound_where_names_fold(kind: str, tmp_path: Path) -> None:
    """In warehouses of Hive, and beside catalogs of Trino, as a check is."""
    objects = ["project:p", {"object": "warehouse:lake", "parent": "project:p"}, _H, _OTHER]
    grants = [{"principal": ANN, "privilege": "ownership", "object": "warehouse:lake"}]
    (tmp_path / "world.yaml").write_text(json.dumps({"objects": objects, "grants": grants}))
    rules = {"a": "path == 'hr.t'", "b": "path.startsWith('fin.')"}
    (tmp_path / "forbid.yaml").write_text(json.dumps({"rules": rules}))
    config: dict[str, Any] = {
        "warehouses": {"lake": {"project": "p"} | ({"kind": "hive"} if kind == "hive" else {})},
        "trino": {"catalogs": {"lk": {"warehouse": "lake"}}} if kind == "trino" else {},
        "policies": {"rules": [], "forbid": ["forbid.yaml"]},
        "store": {"url": f"sqlite:///{tmp_path}/pdp.db", "seed": "world.yaml"},
        "identity": {"callers": {"local": {"loopback": True, "may_assert": ["principals"], "may_write": True}}},
    }
    async with client_of(settings_of(config, tmp_path)) as client:
        listed = (await client.send("GET", f"/v1/grants?{urlencode({'object': _H, 'actor': ANN})}")).status
        found = {
            name: (await client.post(path, {"actor": ANN, **body}))[0]
            for name, (path, body) in EDITS_IN_ANOTHER_CASE.items()
            if kind != "iceberg" or name in ("grant", "free")
        }
    if kind == "iceberg":
        assert (listed, found) == (200, {"grant": 200, "free": 200})
    else:
        assert (listed, found) == (403, dict.fromkeys(found, 403) | {"free": 200})


@pytest.mark.parametrize(
    "rule", ["'x' in groups", "'x' in roles", "has(attributes.level) && attributes.level == 'x'", "role == 'x'"]
)
async def test_a_query_leaves_evidence_of_its_actor_unknown(rule: str, tmp_path: Path) -> None:
    """A query has no place for groups, roles and attributes. A body has, so there they are known to be none."""
    objects = ["project:p", {"object": "warehouse:lake", "parent": "project:p"}, T]
    grants = [{"principal": ANN, "privilege": "ownership", "object": "warehouse:lake"}]
    (tmp_path / "world.yaml").write_text(json.dumps({"objects": objects, "grants": grants}))
    (tmp_path / "forbid.yaml").write_text(json.dumps({"rules": {"a": rule}}))
    everything = ["principals", "groups", "roles", "attributes"]
    config: dict[str, Any] = {
        "warehouses": {"lake": {"project": "p"}},
        "policies": {"rules": [], "forbid": ["forbid.yaml"]},
        "store": {"url": f"sqlite:///{tmp_path}/pdp.db", "seed": "world.yaml"},
        "identity": {"callers": {"local": {"loopback": True, "may_assert": everything, "may_write": True}}},
    }
    policy = {"id": "p", "table": T, "grantees": ["user:bob"], "filter": "a = 1"}
    wanted = 200 if rule == "role == 'x'" else 403
    async with client_of(settings_of(config, tmp_path)) as client:
        assert (await client.post("/v1/row-access-policies", {"actor": ANN, **policy}))[0] == 200
        for method, path in (
            ("GET", f"/v1/grants?{urlencode({'object': T, 'actor': ANN})}"),
            ("GET", f"/v1/row-access-policies?{urlencode({'table': T, 'actor': ANN})}"),
            ("DELETE", f"/v1/row-access-policies/p?{urlencode({'table': T, 'actor': ANN})}"),
        ):
            assert (await client.send(method, path)).status == wanted, path


async def test_a_membership_is_asked_about_in_each_role_above(tmp_path: Path) -> None:
    """Who joins `r` acts as `top`, too."""
    chain = [{"principal": f"role:{low}", "privilege": "assignee", "object": f"role:{high}"} for low, high in (("r", "mid"), ("mid", "top"))]  # fmt: skip
    async with serving_under({"lock": about("grant_assignee", "top")}, tmp_path) as http:
        for change, privilege, role, allowed in (
            ("add", "assignee", "r", False), ("add", "ownership", "r", False), ("add", "assignee", "mid", False),
            ("remove", "assignee", "r", True),
        ):  # fmt: skip
            await http.post("/v1/grants", {change: chain})
            body = {"actor": ANN, "add": [{"principal": BOB, "privilege": privilege, "object": f"role:{role}"}]}
            assert (await http.post("/v1/grants", body))[0] == (200 if allowed else 403), (privilege, role)
