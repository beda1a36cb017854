"""Requests of Polaris's authorizer are decided as the native checks of their operations, and anything else is denied."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support.clients.http_client import HttpClient, client_of
from support.oracles.audit_files import audit_records
from support.paths import TESTS
from support.service.serving import settings_of

from pdp.model.polaris_operations import POLARIS_OPERATIONS, PolarisOperation, PolarisStep

pytestmark = pytest.mark.asyncio(loop_scope="module")
RECORDED = TESTS / "recorded" / "polaris"
AUTHZ = "/v1/data/polaris/authz"
ROOT = {"type": "ROOT", "name": "root_container", "parents": []}
LAKE = {"type": "CATALOG", "name": "lake"}
PEOPLE = ("root", "ann", "bob", "carl", "dora", "eve", "fay")
WORLD = {
    "objects": [
        "project:p1",
        {"object": "warehouse:wh", "parent": "project:p1"},
        {"object": "warehouse:other", "parent": "project:p2"},
        {"object": "role:analyst", "parent": "project:p1"},
        {"object": "namespace:wh/closed", "managedAccess": True},
    ],
    "grants": [
        {"principal": "user:oidc~root", "privilege": "admin", "object": "server"},
        {"principal": "user:oidc~ann", "privilege": "ownership", "object": "warehouse:wh"},
        {"principal": "user:oidc~gus", "privilege": "ownership", "object": "warehouse:wh"},
        {"principal": "user:oidc~bob", "privilege": "select", "object": "namespace:wh/sales"},
        {"principal": "user:oidc~carl", "privilege": "modify", "object": "namespace:wh/sales"},
        {"principal": "user:oidc~carl", "privilege": "create", "object": "namespace:wh/sales"},
        {"principal": "user:oidc~carl", "privilege": "create", "object": "namespace:wh/closed"},
        {"principal": "user:oidc~dora", "privilege": "create", "object": "namespace:wh/sales"},
        {"principal": "user:oidc~dora", "privilege": "modify", "object": "table:wh/closed/t"},
        {"principal": "user:oidc~eve", "privilege": "project_admin", "object": "project:p1"},
        {"principal": "role:analyst", "privilege": "describe", "object": "warehouse:wh"},
    ],
}
ROWS = {"masks": [{"id": "m", "table": "wh.sales.masked", "column": "c", "grantees": ["user:gus"], "kind": "partial"}]}
FORBID = {
    "no-secrets": "op in ['READ_ENTITY_VALUE', 'UPDATE_ENTITY'] && path.startsWith('sales.secret')",
    "no-policies": "op == 'polaris:DROP_POLICY' && role == 'amy'",
}
CONFIG: dict[str, Any] = {
    "warehouses": {"wh": {}, "other": {}},
    "policies": {"rules": [], "forbid": ["forbid.yaml"], "row_access": ["rows.yaml"]},
    "store": {"url": "file:world.yaml"},
    "polaris": {
        "catalogs": {"lake": "wh", "catalog-1": "wh", "catalog-2": "wh"},
        "realms": ["test-realm"],
        "roles": {"data_analyst": "analyst"},
        "admins": ["ann", "amy"],
    },
    "identity": {"callers": {"local": {"loopback": True, "may_assert": ["principals", "roles"]}}},
}


def write_policies(folder: Path) -> None:
    """Write the files of CONFIG."""
    for name, content in (("world", WORLD), ("rows", ROWS), ("forbid", {"rules": FORBID})):
        (folder / f"{name}.yaml").write_text(json.dumps(content))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("polaris")
    write_policies(folder)
    return folder


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(folder: Path) -> AsyncIterator[HttpClient]:
    async with client_of(settings_of(CONFIG, folder)) as client:
        yield client


def target(type: str, *path: str, root: bool = False) -> dict[str, Any]:
    """Return an object below the catalog `lake`; the catalog itself without a path, the root for ROOT."""
    if type == "ROOT":
        return dict(ROOT)
    names = [{"type": "NAMESPACE", "name": name, "parents": []} for name in path[:-1]]
    above = [] if type in ("CATALOG", "PRINCIPAL", "PRINCIPAL_ROLE") else [LAKE | {"parents": []}, *names]
    return {"type": type, "name": path[-1] if path else "lake", "parents": [*([ROOT] if root else []), *above]}


def body_of(user: str, action: str, targets: list[Any] | None, **more: Any) -> dict[str, Any]:
    """Return a body. `secondaries`, `roles` and `context` may be among `more`."""
    resource = {} if targets is None else {"targets": targets}
    if "secondaries" in more:
        resource["secondaries"] = more["secondaries"]
    context = more.get("context", {"request_id": "r-1", "realm": "test-realm"})
    actor = {"principal": user, "roles": more.get("roles", [])}
    return {"input": {"actor": actor, "action": action, "resource": resource, "context": context}}


async def ask(client: HttpClient, body: Any) -> bool:
    status, answer = await client.post(AUTHZ, body)
    assert status == 200, answer
    assert answer in ({"result": {"allow": True}}, {"result": {"allow": False}})
    return bool(answer["result"]["allow"])


PATHS: dict[str, list[tuple[str, ...]]] = {
    "table": [("sales", "orders"), ("sales", "eu", "x.y"), ("closed", "t"), ("sales", "secret")],
    "namespace": [("sales",), ("sales", "eu"), ("closed",)],
    "principal": [("zoe",)],
    "principal_role": [("data_analyst",)],
}
TYPES = {"table": "TABLE_LIKE", "view": "TABLE_LIKE", "namespace": "NAMESPACE", "principal": "PRINCIPAL", "principal_role": "PRINCIPAL_ROLE"}  # fmt: skip


def targets_of(operation: PolarisOperation) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield types and paths of targets of an operation."""
    kind = operation.target
    if kind == "root":
        yield "ROOT", ()
    if kind in ("catalog", "container"):
        yield "CATALOG", ()
    kind = "namespace" if kind == "container" else kind
    for path in PATHS.get("table" if kind == "view" else kind, []):
        yield TYPES[kind], path


def native(step: PolarisStep, kind: str, type: str, path: tuple[str, ...]) -> tuple[str, str]:
    """Return the action and the resource of a step in the native API."""
    action = {"loadCredentials": "read_data"}.get(step.action, step.action)
    if step.on not in ("target", "content"):
        return action, {"server": "server", "project": "project:p1"}[step.on]
    if type == "CATALOG":
        return action, "warehouse:wh"
    if kind == "principal_role":
        return action, "role:analyst"
    if kind == "principal":
        return action, f"user:oidc~{path[0]}"
    return action, f"{'namespace' if type == 'NAMESPACE' else kind}:wh/{'/'.join(path)}"


SINGLES = [name for name, one in POLARIS_OPERATIONS.items() if one.steps and "NAMESPACE" not in one.secondary]


@pytest.mark.parametrize("name", SINGLES)
async def test_an_operation_is_decided_as_its_native_checks_in_both_dialects(name: str, client: HttpClient) -> None:
    operation = POLARIS_OPERATIONS[name]
    for type, path in targets_of(operation):
        for user in PEOPLE:
            checks = [native(step, operation.target, type, path) for step in operation.steps]
            principal = {"principal": f"user:oidc~{user}"}
            _, answer = await client.check(*({**principal, "action": a, "resource": r} for a, r in checks))
            wanted = all(one["allowed"] for one in answer["decisions"])
            for root in (False, True):
                named = None if type == "ROOT" and not root else [target(type, *path, root=root and type != "ROOT")]
                assert await ask(client, body_of(user, name, named)) == wanted, (name, user, path, root)


async def test_the_table_has_all_operations() -> None:
    known = json.loads((RECORDED / "operations.json").read_text())["operations"]
    assert POLARIS_OPERATIONS.keys() == known.keys()
    assert len(known) == 117
    for name, one in POLARIS_OPERATIONS.items():
        assert bool(one.steps) != any("deny by default" in text for text in known[name]["pdp"]), name


async def test_each_kind_of_answer_is_one_that_polaris_reads_so() -> None:
    answers = [json.loads(line) for line in (RECORDED / "answers.jsonl").read_text().splitlines()]
    read = {json.dumps(one["answer"]): one["allowed"] for one in answers if one["status"] == 200}
    assert read['{"result": {"allow": true}}'] is True
    assert read['{"result": {"allow": false}}'] is False


async def test_recorded_bodies_are_decided(client: HttpClient) -> None:
    lines = [json.loads(line) for line in (RECORDED / "bodies.jsonl").read_text().splitlines()]
    for line in lines:
        body = line["body"]
        actor = body["input"]["actor"]
        allowed = {}
        for actor["principal"] in ("ann", "eve", "nobody"):
            allowed[actor["principal"]] = await ask(client, body)
        of_project = body["input"]["action"] in ("LIST_CATALOGS", "CREATE_CATALOG")
        # `LOAD_VIEW` without a target is of a unit test
        is_whole = body["input"]["action"] != "LOAD_VIEW"
        assert allowed.pop("eve") or not of_project
        assert of_project or allowed["ann"] == is_whole, line
        assert not allowed["nobody"]


SPOILED: list[Any] = [
    {},
    {"input": None},
    {"input": {}},
    {"input": {"actor": {"principal": ""}, "action": "LOAD_TABLE", "resource": {}}},
    b"{",
    b'{"input":',
    b"{" * 50_000,
    b'{"input":' + b"[" * 100_000,
    b'{"a":' * 50_000,
    b'{"input":"' + b"x" * 900_000 + b'"}',
    b'{"input":"' + b"x" * 3_000_000 + b'"}',
    b'{"input":[' + b"1," * 400_000 + b"1]}",
    '{"input":{"actor":{"principal":"ann","principal":"bob"}}}',
    "\ufeff{}",
]


@pytest.mark.parametrize("number", range(len(SPOILED)))
async def test_every_object_is_answered_and_what_is_not_understood_is_denied(number: int, client: HttpClient) -> None:
    body = SPOILED[number]
    started = time.monotonic()
    if isinstance(body, str) and body[0] == "\ufeff":
        assert (await client.post(AUTHZ, body))[0] == 400  # no object
        return
    assert not await ask(client, body)
    assert time.monotonic() - started < 1.5


def spoiled_values(value: Any) -> Iterator[Any]:
    """Yield the value with one part replaced by a value of another type, left out, or made another name."""
    others: list[Any] = [None, True, 1, 1.5, "", "\x07", "x" * 5000, [], {}, [[]], {"a": {}}]
    if isinstance(value, dict):
        for key, below in value.items():
            yield {name: each for name, each in value.items() if name != key}
            yield from ({**value, key: each} for each in (*others, *spoiled_values(below)))
    if isinstance(value, list):
        yield from ([*value[:at], each, *value[at + 1 :]] for at, below in enumerate(value) for each in spoiled_values(below))  # fmt: skip
        yield [*value, *value, {"type": "ROOT", "name": "r"}]


async def test_spoiled_bodies_are_answered_and_never_allow_more_than_the_whole(client: HttpClient) -> None:
    good = body_of("bob", "UPDATE_TABLE", [target("TABLE_LIKE", "sales", "orders", root=True)])
    assert not await ask(client, good)
    answers = [await ask(client, body) for body in spoiled_values(good)]
    assert len(answers) > 150
    assert not any(answers)  # bob may not write, whatever is left out
    readable = body_of("ann", "LOAD_TABLE", [target("TABLE_LIKE", "sales", "orders", root=True)])
    assert await ask(client, readable)
    kept = {"input", "actor", "principal", "action", "resource", "targets", "type", "name"}
    for key in kept:
        text = json.dumps(readable)
        assert not await ask(client, text.replace(f'"{key}"', f'"{key}x"'))
        doubled = text.replace(f'"{key}":', f'"{key}": null, "{key}":', 1)
        assert not await ask(client, doubled)


async def test_all_targets_must_permit_and_their_number_is_bounded(client: HttpClient) -> None:
    tables = [target("TABLE_LIKE", "sales", f"t{at}", root=True) for at in range(1001)]
    assert await ask(client, body_of("carl", "COMMIT_TRANSACTION", tables[:1000]))
    assert not await ask(client, body_of("carl", "COMMIT_TRANSACTION", tables))
    assert not await ask(client, body_of("carl", "COMMIT_TRANSACTION", tables * 10))
    for place in (0, 500, 999):
        some = [*tables[:place], target("TABLE_LIKE", "closed", "t"), *tables[place + 1 : 1000]]
        assert not await ask(client, body_of("carl", "COMMIT_TRANSACTION", some))
    bare = [{"type": "TABLE_LIKE", "name": "t"}] * 10_000
    assert not await ask(client, body_of("carl", "COMMIT_TRANSACTION", bare))
    assert not await ask(client, body_of("carl", "COMMIT_TRANSACTION", []))


@pytest.mark.parametrize("kind", ["TABLE", "VIEW"])
async def test_renames_agree_in_both_dialects(kind: str, client: HttpClient) -> None:
    outcomes = set()
    spaces: list[tuple[str, ...]] = [("sales",), ("sales", "eu"), ("closed",), ("free",)]
    for user in PEOPLE:
        for source in spaces:
            for place in spaces:
                new = await ask(client, body_of(user, f"RENAME_{kind}", [target("TABLE_LIKE", *source, "t")], secondaries=[target("TABLE_LIKE", *place, "new")]))  # fmt: skip
                old = await ask(client, body_of(user, f"RENAME_{kind}", [target("TABLE_LIKE", *source, "t", root=True)], secondaries=[target("NAMESPACE", *place, root=True)]))  # fmt: skip
                assert old == new, (user, source, place)
                outcomes.add((user, new))
    assert {("ann", True), ("carl", True), ("carl", False), ("bob", False)} <= outcomes


async def test_a_rename_takes_one_destination(client: HttpClient) -> None:
    table, place = target("TABLE_LIKE", "sales", "t"), target("NAMESPACE", "sales")
    assert await ask(client, body_of("ann", "RENAME_TABLE", [table], secondaries=[place]))
    assert not await ask(client, body_of("ann", "RENAME_TABLE", [table]))
    assert not await ask(client, body_of("ann", "RENAME_TABLE", [table, table], secondaries=[place, place]))
    assert not await ask(client, body_of("ann", "RENAME_TABLE", [table], secondaries=[target("CATALOG")]))
    assert not await ask(client, body_of("ann", "LOAD_TABLE", [table], secondaries=[place]))


async def test_a_write_probe_is_refused_and_the_read_allowed(client: HttpClient) -> None:
    table = [target("TABLE_LIKE", "sales", "orders")]
    assert not await ask(client, body_of("bob", "LOAD_TABLE_WITH_WRITE_DELEGATION", table))
    assert await ask(client, body_of("bob", "LOAD_TABLE_WITH_READ_DELEGATION", table))
    assert await ask(client, body_of("carl", "LOAD_TABLE_WITH_WRITE_DELEGATION", table))


@pytest.mark.parametrize("operation", [name for name, one in POLARIS_OPERATIONS.items() if one.target == "table" and any(step.action in ("read_data", "write_data", "loadCredentials") for step in one.steps)])  # fmt: skip
async def test_no_right_to_data_is_given_where_columns_are_hidden(operation: str, client: HttpClient) -> None:
    assert not await ask(client, body_of("gus", operation, [target("TABLE_LIKE", "sales", "masked")]))
    both = [target("TABLE_LIKE", "sales", "t"), target("TABLE_LIKE", "sales", "masked")]
    assert await ask(client, body_of("gus", operation, both[:1]))
    assert not await ask(client, body_of("gus", operation, both))
    assert await ask(client, body_of("gus", "LOAD_TABLE", both))


NEW_WITH_DATA = [name for name, one in POLARIS_OPERATIONS.items() if any(step.on == "content" for step in one.steps)]


@pytest.mark.parametrize("operation", NEW_WITH_DATA)
async def test_no_credentials_for_a_new_table_beside_hidden_columns(operation: str, client: HttpClient) -> None:
    """A registration can name the files of the table that hides something."""
    for user, namespace, allowed in (("gus", "sales", False), ("gus", "free", True), ("ann", "sales", True), ("bob", "free", False)):  # fmt: skip
        assert await ask(client, body_of(user, operation, [target("NAMESPACE", namespace)])) == allowed, (user, namespace)  # fmt: skip


async def test_no_credentials_for_a_new_table_in_a_protected_container(tmp_path: Path) -> None:
    write_policies(tmp_path)
    config = CONFIG | {"row_access": {"protected": ["namespace:wh/prot"]}}
    async with client_of(settings_of(config, tmp_path)) as client:
        for operation, namespace in product(NEW_WITH_DATA, ("prot", "free")):
            place = [target("NAMESPACE", namespace)]
            assert await ask(client, body_of("ann", operation, place)) == (namespace == "free")
            assert await ask(client, body_of("ann", "CREATE_TABLE_DIRECT", place)), "metadata alone are no data"


async def test_forbids_bind(client: HttpClient) -> None:
    for name in ("SECRET", "Secret"):
        assert not await ask(
            client, body_of("ann", "LOAD_TABLE_WITH_READ_DELEGATION", [target("TABLE_LIKE", "sales", name)])
        )
    secret = [target("TABLE_LIKE", "sales", "secret")]
    for operation in ("LOAD_TABLE", "LOAD_TABLE_WITH_READ_DELEGATION", "UPDATE_TABLE", "LOAD_VIEW", "REPLACE_VIEW"):
        assert not await ask(client, body_of("ann", operation, secret))
        assert await ask(client, body_of("ann", operation, [target("TABLE_LIKE", "sales", "open")]))
    for user, operation, allowed in (("amy", "DROP_POLICY", False), ("amy", "LOAD_POLICY", True), ("ann", "DROP_POLICY", True)):  # fmt: skip
        assert await ask(client, body_of(user, operation, [target("POLICY", "sales", "p")])) == allowed


ADMIN_ONLY = [name for name, one in POLARIS_OPERATIONS.items() if not one.steps]


@pytest.mark.parametrize("name", ADMIN_ONLY)
async def test_operations_without_checks_are_for_the_administrators_of_polaris(name: str, client: HttpClient) -> None:
    known = json.loads((RECORDED / "operations.json").read_text())["operations"][name]
    paths: dict[str, tuple[str, ...]] = {
        "CATALOG": (),
        "ROOT": (),
        "NAMESPACE": ("sales",),
        "PRINCIPAL_ROLE": ("r",),
        "CATALOG_ROLE": ("r",),
    }
    kind, second = known["target"].split(" ")[0], known["secondaryFrom1.8"]
    for root in (False, True):
        targets = None if kind == "ROOT" and not root else [target(kind, *paths.get(kind, ("sales", "x")), root=root)]
        more = {"secondaries": [target(second, *paths.get(second, ("sales", "x")), root=root)]} if second else {}
        assert await ask(client, body_of("ann", name, targets, **more)), known
        for user in ("root", "bob", "eve", "oidc~ann", "user:oidc~ann"):
            assert not await ask(client, body_of(user, name, targets, **more))
    other = {"type": "CATALOG", "name": "elsewhere", "parents": []}
    assert not await ask(client, body_of("ann", name, [other]))


async def test_unmapped_catalogs_realms_and_roles_are_denied(client: HttpClient) -> None:
    table = target("TABLE_LIKE", "sales", "orders")
    elsewhere = json.loads(json.dumps(table).replace('"lake"', '"elsewhere"'))
    assert not await ask(client, body_of("ann", "LOAD_TABLE", [elsewhere]))
    assert not await ask(client, body_of("ann", "LOAD_TABLE", [table, elsewhere]))
    assert not await ask(
        client, body_of("ann", "LOAD_TABLE", [json.loads(json.dumps(table).replace('"lake"', '"wh"'))])
    )
    for context, allowed in (({"realm": "other"}, False), ({"realm": ""}, False), ({"realm": None}, False), ({}, True), ({"realm": "test-realm"}, True)):  # fmt: skip
        assert await ask(client, body_of("ann", "LOAD_TABLE", [table], context=context)) == allowed
    assert await ask(client, body_of("fay", "LOAD_TABLE", [table], roles=["data_analyst", "unmapped"]))
    assert not await ask(client, body_of("fay", "LOAD_TABLE", [table], roles=["analyst", "unmapped"]))
    assert not await ask(client, body_of("eve", "GET_PRINCIPAL_ROLE", [target("PRINCIPAL_ROLE", "unmapped")]))


async def test_targets_of_another_type_are_denied(client: HttpClient) -> None:
    wrong = [
        {"type": "TABLE_LIKE", "name": "t", "parents": []},
        {"type": "TABLE_LIKE", "name": "t", "parents": [LAKE]},
        {"type": "TABLE_LIKE", "name": "t", "parents": [{"type": "NAMESPACE", "name": "lake"}, LAKE]},
        {"type": "TABLE_LIKE", "name": "t", "parents": [LAKE, ROOT, {"type": "NAMESPACE", "name": "sales"}]},
        {"type": "TABLE_LIKE", "name": "t", "parents": [LAKE, LAKE, {"type": "NAMESPACE", "name": "sales"}]},
        {
            "type": "TABLE_LIKE",
            "name": "t",
            "parents": [LAKE, {"type": "NAMESPACE", "name": "sales", "parents": [LAKE]}],
        },
        {"type": "TABLE_LIKE", "name": "", "parents": [LAKE, {"type": "NAMESPACE", "name": "sales"}]},
        target("NAMESPACE", "sales"),
        target("CATALOG"),
        target("ROOT"),
        target("POLICY", "sales", "t"),
    ]
    for each in wrong:
        assert not await ask(client, body_of("ann", "LOAD_TABLE", [each])), each
    assert not await ask(client, body_of("root", "LIST_CATALOGS", [target("CATALOG")]))


async def test_unknown_operations_are_denied_and_counted_by_name(client: HttpClient) -> None:
    names = [f"NEW_OPERATION_{at}" for at in range(150)]
    for name in (*names, "new one", "load_table", "X" * 200, "É"):
        assert not await ask(client, body_of("ann", name, [target("TABLE_LIKE", "sales", "orders")]))
    text = (await client.send("GET", "/metrics", listener="diagnostics")).text
    counted = {line for line in text.splitlines() if line.startswith("pdp_polaris_unknown_operations_total{")}
    assert 'pdp_polaris_unknown_operations_total{operation="NEW_OPERATION_3"} 1.0' in counted
    assert len(counted) <= 101
    assert any('operation="other"' in line for line in counted)


PAGE_SIGNS: list[dict[str, str]] = [
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Host": "evil.example"},
    {"Host": "evil.example:8181"},
    {"X-Forwarded-For": "10.0.0.1"},
]


@pytest.mark.parametrize("headers", PAGE_SIGNS)
async def test_pages_of_browsers_are_refused(headers: dict[str, str], client: HttpClient) -> None:
    good = body_of("ann", "LOAD_TABLE", [target("TABLE_LIKE", "sales", "orders")])
    for more in ({}, {"Content-Type": "text/plain"}):
        response = await client.send("POST", AUTHZ, good, headers | more)
        assert response.status in (401, 403, 415), response.text
        assert b"allow" not in response.content
    assert (await client.send("GET", AUTHZ, headers=headers)).status == 405


async def test_shuffled_targets_and_repeated_bodies_decide_alike(client: HttpClient) -> None:
    chosen = random.Random(7)
    tables = [target("TABLE_LIKE", *path) for path in PATHS["table"][:3]]
    for _ in range(20):
        chosen.shuffle(tables)
        assert await ask(client, body_of("ann", "DROP_TABLE_WITH_PURGE", tables))
        assert not await ask(client, body_of("carl", "DROP_TABLE_WITH_PURGE", tables))


async def test_records_have_the_surface_the_operation_and_the_probe(client: HttpClient, folder: Path) -> None:
    table = [target("TABLE_LIKE", "sales", "probed")]
    for user, name in (("bob", "LOAD_TABLE_WITH_WRITE_DELEGATION"), ("carl", "LOAD_TABLE_WITH_WRITE_DELEGATION"), ("bob", "LOAD_TABLE_WITH_READ_DELEGATION")):  # fmt: skip
        for _ in range(3):  # a plan is prepared from the second use on
            await ask(client, body_of(user, name, table))
    await ask(client, body_of("ann", "NEW_NAME", table))
    await ask(client, b'{"input":1}')
    await asyncio.sleep(0.2)
    records = [one for one in audit_records(folder, running=True) if one["event"] == "decision"]
    mine = [one for one in records if one["surface"] == "polaris" and "probed" in json.dumps(one["checks"])]
    probes = [one for one in mine if one.get("probe")]
    assert len(mine) == 9
    assert len(probes) == 3
    assert {one["operation"] for one in mine} == {"LOAD_TABLE_WITH_WRITE_DELEGATION", "LOAD_TABLE_WITH_READ_DELEGATION"}
    assert {one["operation"] for one in probes} == {"LOAD_TABLE_WITH_WRITE_DELEGATION"}
    assert any(one.get("operation") == "NEW_NAME" for one in records)
    assert any(one["checks"] and one["checks"][0].get("error") for one in records if one["surface"] == "polaris")
