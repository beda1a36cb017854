"""Management over HTTP: grants, objects, who has access, what somebody may see; as users ask, and as attackers do."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import psutil  # type: ignore[import-untyped]
import pytest
import pytest_asyncio
from support.clients.http_client import HttpClient, client_of
from support.service.serving import settings_of

from pdp.app.facts import build_pdp
from pdp.engines.cel.rules import inline_rules
from pdp.engines.grants.administration import Administration
from pdp.engines.grants.edits import Actor, GrantEdits, ObjectEdits
from pdp.errors import Forbidden, InvalidArgument, Unavailable
from pdp.identity.callers import EMBEDDED_CALLER
from pdp.model.question import Batch, Check, Question, Resource
from pdp.model.references import parse_principal
from pdp.store.world import parse_world, read_grant, read_key, read_object

ALICE, BOB, CAROL = "user:oidc~alice", "user:oidc~bob", "user:oidc~carol"
TABLE = "table:lake/sales/orders"
MB = 1_000_000


def grant(principal: str, privilege: str, object: str, **more: str) -> dict[str, str]:
    return {"principal": principal, "privilege": privilege, "object": object, **more}


class ManagementClient:
    """ManagementClient of the management API of one service."""

    def __init__(self, http: HttpClient) -> None:
        self.service = http.service
        self._http = http

    async def post(self, path: str, body: Any = None, **fields: Any) -> tuple[int, dict[str, Any]]:
        return await self._http.post(f"/v1/{path}", fields if body is None else body)

    async def get(self, query: str = "", **parameters: Any) -> tuple[int, dict[str, Any]]:
        text = query or "&".join(f"{name}={quote(str(value), safe='')}" for name, value in parameters.items())
        response = await self._http.send("GET", f"/v1/grants?{text}")
        return response.status, response.json()

    async def done(self, path: str, **fields: Any) -> dict[str, Any]:
        status, answer = await self.post(path, **fields)
        assert status == 200, answer
        return answer

    async def refused(self, path: str, status: int, code: str, **fields: Any) -> str:
        found, answer = await self.post(path, **fields)
        assert (found, answer["error"]["code"]) == (status, code), answer
        message: str = answer["error"]["message"]
        return message

    async def grants(self, **parameters: Any) -> list[dict[str, Any]]:
        status, answer = await self.get(**parameters)
        assert status == 200, answer
        found: list[dict[str, Any]] = answer["grants"]
        return found

    async def may(self, principal: str, action: str, resource: str, **more: Any) -> bool:
        check = {"principal": principal, "action": action, "resource": resource}
        answer = await self.done("check", checks=[check], **more)
        allowed: bool = answer["decisions"][0]["allowed"]
        return allowed

    async def pages(self, ask: Callable[..., Awaitable[dict[str, Any]]], key: str, size: int) -> list[Any]:
        """All entries of all pages, each of which but the last is full."""
        found: list[Any] = []
        token = ""
        while True:
            answer = await ask(pageSize=size, pageToken=token)
            found += answer[key]
            token = answer["nextPageToken"]
            if not token:
                return found
            assert len(answer[key]) == size


@asynccontextmanager
async def asking(folder: Path, **config: Any) -> AsyncIterator[ManagementClient]:
    config.setdefault("store", {"url": f"sqlite:///{folder}/pdp.db"})
    async with client_of(settings_of(config, folder)) as http:
        yield ManagementClient(http)


@asynccontextmanager
async def asking_about_a_lake(folder: Path) -> AsyncIterator[ManagementClient]:
    async with asking(folder) as client:
        await client.done("objects", put=["project:p", {"object": "warehouse:lake", "parent": "project:p"}])
        yield client


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[ManagementClient]:
    async with asking_about_a_lake(tmp_path) as client:
        yield client


one_service = pytest.mark.asyncio(loop_scope="module")
"""Test of the shared service, which runs on one event loop."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def unchanged(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ManagementClient]:
    """Start one service for all tests whose requests are refused; the last check is that none changed anything."""
    async with asking_about_a_lake(tmp_path_factory.mktemp("shared")) as client:
        before = await everything(client)
        yield client
        assert await everything(client) == before


def sequence(revision: str) -> int:
    return int(revision.split(".")[1])


# --- writing --------------------------------------------------------------------------------------------------------


async def test_what_is_granted_counts_at_once_and_what_is_revoked_does_not(client: ManagementClient) -> None:
    wanted = grant(ALICE, "select", TABLE)
    before = 0
    for _ in range(5):
        for change, allowed in (({"add": [wanted]}, True), ({"remove": [wanted]}, False)):
            revision = (await client.done("grants", **change))["revision"]
            assert sequence(revision) > before
            before = sequence(revision)
            assert await client.may(ALICE, "read_data", TABLE, consistency={"atLeast": revision}) == allowed
            assert await client.grants(object=TABLE) == ([wanted | {"flags": ["unknown_principal"]}] if allowed else [])


async def test_writing_what_is_so_changes_nothing(client: ManagementClient) -> None:
    objects = {"put": [{"object": "namespace:lake/a", "managedAccess": True, "id": "7"}, "role:r"]}
    grants = {
        "add": [grant(ALICE, "select", TABLE), grant(ALICE, "select", TABLE)],
        "remove": [grant(BOB, "select", TABLE)],
    }
    for path, body in (("objects", objects), ("grants", grants)):
        first, second = await client.done(path, **body), await client.done(path, **body)
        assert first == second
    assert sequence(second["revision"]) == 3
    assert (await client.done("grants"))["revision"] == second["revision"]
    assert (await client.done("objects", delete=["namespace:lake/none"]))["revision"] == second["revision"]


async def test_revisions_are_monotonic_under_concurrent_writes(client: ManagementClient) -> None:
    answers = await asyncio.gather(
        *(client.done("grants", add=[grant(ALICE, "select", f"{TABLE}{i}")]) for i in range(20))
    )
    numbers = sorted(sequence(answer["revision"]) for answer in answers)
    assert numbers == list(range(2, 22))
    newest = max((answer["revision"] for answer in answers), key=sequence)
    for i in range(20):
        assert await client.may(ALICE, "read_data", f"{TABLE}{i}", consistency={"atLeast": newest})


BAD_GRANTS = {
    "unknown privilege": (grant(ALICE, "fly", TABLE), "add[1].privilege"),
    "privilege of another type": (grant(ALICE, "create", TABLE), "add[1].privilege"),
    "reference": (grant(ALICE, "select", "table:lake"), "add[1].object"),
    "empty part": (grant(ALICE, "select", "table:lake//t"), "add[1].object"),
    "ref": (grant(ALICE, "select", f"{TABLE}@dev"), "add[1].object"),
    "type": (grant(ALICE, "select", "table_or_view:lake/a/t"), "add[1].object"),
    "anonymous": (grant("anonymous", "select", TABLE), "add[1].principal"),
    "principal": (grant("group:x", "select", TABLE), "add[1].principal"),
    "itself": (grant("role:r", "assignee", "role:r"), "add[1].principal"),
    "id": (grant(ALICE, "select", TABLE, id="a b"), "add[1].id"),
    "unknown field": (grant(ALICE, "select", TABLE, until="2030"), "add[1].until"),
    "missing field": ({"principal": ALICE, "privilege": "select"}, "add[1].object"),
    "number": (7, "add[1]"),
    "null": (None, "add[1]"),
    "control character": (grant("user:oidc~a\nb", "select", TABLE), "add[1].principal"),
    "escaped control character": (grant(ALICE, "select", "table:lake/a/%00"), "add[1].object"),
}
BAD_OBJECTS: dict[str, tuple[dict[str, Any], str]] = {
    "parent": ({"put": [{"object": "namespace:lake/a", "parent": "warehouse:other"}]}, "put[0].parent"),
    "flag": ({"put": [{"object": TABLE, "managedAccess": True}]}, "put[0].managedAccess"),
    "server": ({"put": ["server"]}, "server"),
    "delete the server": ({"delete": ["server"]}, "server"),
    "bad reference": ({"delete": ["namespace:lake/"]}, "delete[0]"),
    "no text": ({"delete": [7]}, "$.delete[0]"),
    "no target": ({"move": [{"from": TABLE}]}, "move[0]"),
    "more than a move": ({"move": [{"from": TABLE, "to": TABLE, "as": "x"}]}, "move[0]"),
    "other type": ({"move": [{"from": TABLE, "to": "view:lake/sales/v"}]}, TABLE),
    "below itself": ({"move": [{"from": "namespace:lake/a", "to": "namespace:lake/a/b"}]}, "namespace:lake/a/b"),
    "twice": ({"put": ["role:r"], "delete": ["role:r"]}, "role:r"),
    "unknown field": ({"put": [{"object": "role:r", "owner": ALICE}]}, "put[0].owner"),
    "a project in use": ({"delete": ["project:p"]}, "warehouse:lake"),
}


async def everything(client: ManagementClient) -> tuple[str, list[Any], list[Any]]:
    listed = await client.done("list", principal="user:i~ops", action="read", type="role", container="server")
    return listed["revision"], listed["objects"], await client.grants()


@pytest.mark.parametrize(("bad", "named"), BAD_GRANTS.values(), ids=BAD_GRANTS)
@one_service
async def test_one_bad_grant_and_nothing_is_written(unchanged: ManagementClient, bad: Any, named: str) -> None:
    before = await everything(unchanged)
    for section in ("add", "remove"):
        body: dict[str, Any] = {section: [grant(ALICE, "select", TABLE), bad]}
        message = await unchanged.refused("grants", 400, "invalid_argument", **body)
        assert named.replace("add", section) in message
        assert "\n" not in message
    assert await everything(unchanged) == before


@pytest.mark.parametrize(("bad", "named"), BAD_OBJECTS.values(), ids=BAD_OBJECTS)
@one_service
async def test_one_bad_object_and_nothing_is_written(
    unchanged: ManagementClient, bad: dict[str, Any], named: str
) -> None:
    before = await everything(unchanged)
    body = {**bad, "put": [*bad.get("put", ()), "role:new"]}
    assert named in await unchanged.refused("objects", 400, "invalid_argument", **body)
    assert await everything(unchanged) == before


async def test_one_missing_right_and_nothing_is_written(client: ManagementClient) -> None:
    await client.done("grants", add=[grant(ALICE, "ownership", TABLE)])
    before = await everything(client)
    add = [grant(BOB, "select", TABLE), grant(BOB, "select", "table:lake/sales/other")]
    message = await client.refused("grants", 403, "forbidden", add=add, actor=ALICE)
    assert message == f"`{ALICE}` lacks grant_select on table:lake/sales/other"
    assert await everything(client) == before


@pytest.mark.parametrize("path", ["grants", "objects", "access", "list"])
@pytest.mark.parametrize(
    "body", [b"", b"[]", b"null", b'{"add":7,"put":7}', b'{"x":1}', b'{"actor":"a","actor":"b"}', b"[" * 100_000, b'{"actor":"\xff"}']
)  # fmt: skip
@one_service
async def test_nonsense_is_400(unchanged: ManagementClient, path: str, body: bytes) -> None:
    status, answer = await unchanged.post(path, body)
    assert (status, answer["error"]["code"]) == (400, "invalid_argument")


async def test_a_request_has_its_bounds(client: ManagementClient) -> None:
    many = [grant(ALICE, "select", f"table:lake/a/t{i}") for i in range(10_001)]
    assert "the limit is 10000" in await client.refused("grants", 400, "invalid_argument", add=many)
    await client.done("grants", add=many[:-1])
    for size in (0, -1, 10_001):
        ask = {
            "principal": ALICE,
            "action": "read_data",
            "type": "table",
            "container": "warehouse:lake",
            "pageSize": size,
        }
        assert "pageSize" in await client.refused("list", 400, "invalid_argument", **ask)
        assert (await client.get(pageSize=size))[0] == 400
    ask = {
        "principal": ALICE,
        "action": "read_data",
        "type": "table",
        "container": "warehouse:lake",
        "pageSize": 10_000,
    }
    answer = await client.done("list", **ask)
    assert (len(answer["objects"]), answer["nextPageToken"]) == (10_000, "")


HOSTILE = [
    "a/b",
    "50%",
    "x@dev",
    "sales eu",
    "'; DROP TABLE grants; --",
    "\u202eevil",
    "<script>",
    "=cmd()",
    "ß" * 200,
    "💥",
    "..",
    '"\\',
]


async def test_hostile_names_are_names(client: ManagementClient) -> None:
    def part(name: str) -> str:
        return name.replace("%", "%25").replace("/", "%2F").replace("@", "%40")

    wanted = [grant(f"user:oidc~{name}", "select", f"table:lake/{part(name)}/{part(name)}") for name in HOSTILE]
    await client.done("grants", add=wanted)
    await client.done("objects", put=[f"role:{name}" for name in HOSTILE])
    for entry, name in zip(wanted, HOSTILE, strict=True):
        assert await client.may(entry["principal"], "read_data", entry["object"])
        assert await client.grants(object=entry["object"]) == [entry | {"flags": ["unknown_principal"]}]
        assert await client.grants(principal=entry["principal"]) == [entry | {"flags": ["unknown_principal"]}]
        ask = {"principal": entry["principal"], "action": "read_data", "type": "table", "container": "warehouse:lake"}
        listed = await client.done("list", **ask)
        assert (listed["objects"], listed["nextPageToken"]) == ([entry["object"]], ""), name
    before = await client.grants()
    await client.service.source.catch_up()
    assert await client.grants() == before


async def test_a_name_that_no_database_can_index_is_refused(client: ManagementClient) -> None:
    for entry in (grant(f"user:oidc~{'x' * 1100}", "select", TABLE), grant(ALICE, "select", f"{TABLE}{'x' * 1100}")):
        assert "longer than 1024 bytes" in await client.refused("grants", 400, "invalid_argument", add=[entry])
    deep = "namespace:lake/" + "/".join(["a"] * 300)
    await client.refused("grants", 400, "invalid_argument", add=[grant(ALICE, "select", deep)])


def test_a_user_who_speaks_for_nobody_reports_no_new_objects() -> None:
    """Who may create in a namespace, but is no catalog, must not become the owner of what is there unregistered."""
    facts = parse_world({"grants": [grant(BOB, "create", "namespace:lake/sales")]})
    rules = Administration(warehouses=frozenset({"lake"}))
    edits = ObjectEdits([read_object(TABLE, ())])
    bob = Actor(BOB, parse_principal(BOB), may_report=False)
    with pytest.raises(Forbidden, match="cannot report new objects"):
        rules.edit_objects(facts, bob, edits)
    assert len(rules.edit_objects(facts, msgspec.structs.replace(bob, may_report=True), edits)) == 2


@pytest.mark.parametrize("object_", ["warehouse:lakes", "namespace:lakes/sales", "table:lakes/sales/orders"])
def test_no_grant_on_a_warehouse_that_nobody_knows(object_: str) -> None:
    rules = Administration(warehouses=frozenset({"lake", "pool"}))
    edits, cli = GrantEdits(add=[read_grant(grant(BOB, "select", object_), ())]), Actor("cli")
    unknown = re.escape(f"{object_}: no warehouse `lakes` is configured, the nearest known is `lake`")
    with pytest.raises(InvalidArgument, match=unknown):
        rules.edit_grants(parse_world({}), cli, edits)
    registered = parse_world({"objects": ["warehouse:lakes"]})
    assert len(rules.edit_grants(registered, cli, edits)) == 1
    assert len(Administration().edit_grants(parse_world({}), cli, edits)) == 1


@pytest.mark.parametrize("object_", ["namespace:pond/sales", "table:pond/sales/orders"])
def test_no_object_in_a_warehouse_that_nobody_knows(object_: str) -> None:
    rules, cli, key = Administration(warehouses=frozenset({"lake"})), Actor("cli"), read_key(object_, ())
    facts = parse_world({"objects": [TABLE]})
    for edits in (ObjectEdits([read_object(object_, ())]), ObjectEdits(move=[(read_key(TABLE, ()), key)])):
        with pytest.raises(InvalidArgument):
            rules.edit_objects(facts, cli, edits)
    registered = parse_world({"objects": ["warehouse:pond"]})
    assert rules.edit_objects(registered, cli, ObjectEdits([read_object(object_, ())]))


@pytest.mark.parametrize("there", [{"objects": [TABLE]}, {"grants": [grant(ALICE, "ownership", TABLE)]}])
def test_nobody_owns_a_name_that_another_object_has(there: dict[str, Any]) -> None:
    """An engine that asks about a table or view would take the right to the one for the right to the other."""
    rules, view = Administration(), TABLE.replace("table:", "view:")
    sales, mine = "namespace:lake/sales", f"{TABLE.replace('table:', 'view:')}_mine"
    facts = parse_world({"objects": there.get("objects", []), "grants": [
        *there.get("grants", []), grant(BOB, "create", sales), grant(BOB, "ownership", mine),
    ]})  # fmt: skip
    bob = Actor(BOB, parse_principal(BOB), may_report=True)
    put = ObjectEdits([read_object(view, ())])
    if "objects" in there:
        with pytest.raises(InvalidArgument, match="has the name of"):
            rules.edit_objects(facts, bob, put)
    else:
        after = facts.apply(facts.sequence + 1, rules.edit_objects(facts, bob, put))
        assert list(after.grants_on(read_key(view, ()))) == []
    with pytest.raises(InvalidArgument, match="is there already"):
        rules.edit_objects(facts, bob, ObjectEdits(move=[(read_key(mine, ()), read_key(view, ()))]))
    replaced = ObjectEdits([read_object(view, ())], delete=[read_key(TABLE, ())])
    assert rules.edit_objects(facts, Actor("catalog"), replaced)


async def test_a_silent_store_tells_no_actor_about_grants(tmp_path: Path) -> None:
    async with asking(tmp_path) as client:
        await client.done("grants", add=[grant(ALICE, "ownership", TABLE)])
        client.service.source.is_stale = lambda: True  # type: ignore[method-assign]
        status, answer = await client.get(actor=ALICE, object=TABLE)
        assert (status, answer["error"]["code"]) == (503, "unavailable")
        await client.refused("access", 503, "unavailable", resource=TABLE, action="read_data", actor=ALICE)
        # to an operator, nobody would seem to have access
        await client.refused("access", 503, "unavailable", resource=TABLE, action="read_data")


async def test_nothing_is_written_while_nothing_can_be_recorded(
    client: ManagementClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> None:
        raise Unavailable("too many records wait")

    with monkeypatch.context() as patched:
        patched.setattr(client.service.pdp.audit, "admit", full)
        await client.refused("grants", 503, "unavailable", add=[grant(ALICE, "select", TABLE)])
    assert await client.grants() == []


async def test_a_first_id_takes_the_right_to_hand_over(client: ManagementClient) -> None:
    await client.done(
        "grants", add=[grant(ALICE, "select", TABLE, id="abc"), grant(BOB, "create", "namespace:lake/sales")]
    )
    await client.refused("objects", 403, "forbidden", put=[{"object": TABLE, "id": "zzz"}], actor=BOB)
    assert await client.may(ALICE, "read_data", TABLE)


async def test_one_request_changes_so_much_and_no_more(
    client: ManagementClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pdp.management.service.MAX_CHANGES", 5)
    await client.done("grants", add=[grant(f"user:oidc~u{at}", "select", TABLE) for at in range(4)])
    move = {"from": "namespace:lake/sales", "to": "namespace:lake/old"}
    assert "8 rows would change" in await client.refused("objects", 400, "invalid_argument", move=[move])
    assert len(await client.grants()) == 4


async def test_a_page_ends_when_it_has_taken_long_enough(
    client: ManagementClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pdp.management.service.PAGE_SECONDS", 0.0)
    monkeypatch.setattr("pdp.management.service.CHECK_BATCH", 10)
    await client.done("objects", put=[f"table:lake/sales/t{at}" for at in range(35)])
    ask = {"principal": BOB, "action": "read_data", "type": "table", "container": "warehouse:lake"}
    pages, token = 0, ""
    while token or not pages:
        answer = await client.done("list", **ask, pageToken=token)
        pages, token = pages + 1, answer["nextPageToken"]
        assert answer["objects"] == []
        assert b"lake" not in base64.b64decode(token, b"-_"), "a token names a table that the reader may not see"
    assert pages == 4


async def test_pages_that_end_early_show_every_table_also_while_others_are_written(
    client: ManagementClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pdp.management.service.PAGE_SECONDS", 0.0)
    monkeypatch.setattr("pdp.management.service.CHECK_BATCH", 10)
    tables = [f"table:lake/sales/t{at:02}" for at in range(35)]
    shown = [tables[at] for at in (0, 14, 30, 34)]
    await client.done("objects", put=tables)
    await client.done("grants", add=[grant(BOB, "select", name) for name in shown])
    ask = {"principal": BOB, "action": "read_data", "type": "table", "container": "warehouse:lake"}
    for writes in (False, True):
        found, token, pages = [], "", 0
        while token or not pages:
            answer = await client.done("list", **ask, pageToken=token)
            found += answer["objects"]
            token, pages = answer["nextPageToken"], pages + 1
            assert {text for text in tables if text.encode() in base64.b64decode(token, b"-_")} <= set(found)
            if writes and pages == 1:  # what was counted behind the first table is gone: it counts no more
                await client.done("objects", delete=tables[1:9])
        assert found == shown


@pytest.mark.parametrize("cursor", ["t\n-1\nr", "t\nx\nr", "t\n1", "t\n\nr", "a\n1\nr\ns"])
async def test_a_token_that_no_page_gave_is_refused(client: ManagementClient, cursor: str) -> None:
    token = base64.urlsafe_b64encode(cursor.encode()).decode()
    ask = {"principal": BOB, "action": "read_data", "type": "table", "container": "warehouse:lake"}
    assert "pageToken" in await client.refused("list", 400, "invalid_argument", **ask, pageToken=token)


async def test_a_user_sheds_no_role_by_deleting_itself(client: ManagementClient) -> None:
    """A policy that binds the members of a role binds those who may not leave the role."""
    member = {"principal": BOB, "privilege": "assignee", "object": "role:contractor"}
    await client.done("grants", add=[member, grant(CAROL, "ownership", "role:contractor")])
    message = await client.refused("objects", 403, "forbidden", delete=[BOB], actor=BOB)
    assert "grant_assignee on role:contractor" in message
    assert await client.grants(object="role:contractor", principal=BOB)
    await client.done("grants", add=[grant(ALICE, "admin", "server")])
    await client.done("objects", delete=[BOB], actor=ALICE)
    assert await client.grants(object="role:contractor", principal=BOB) == []
    await client.done("objects", delete=[BOB], actor=BOB)


async def test_who_has_a_role_shows_no_users_of_other_projects(client: ManagementClient) -> None:
    """Whoever sees a project may list its roles, and so may ask about a role."""
    await client.done("objects", put=["project:q", {"object": "role:eu", "parent": "project:p"}])
    member = {"principal": BOB, "privilege": "assignee", "object": "role:eu"}
    hidden = [grant(f"user:oidc~hidden{at}", "create", "project:q") for at in range(3)]
    await client.done("grants", add=[member, grant(CAROL, "select", TABLE), *hidden])
    for action, found in (("read", []), ("read_metadata", [BOB]), ("assume", [BOB])):
        shown = await client.done("access", resource="role:eu", action=action, actor=CAROL)
        assert [each["principal"] for each in shown["principals"]] == found
    await client.done("grants", add=[grant(ALICE, "admin", "server")])
    shown = await client.done("access", resource="role:eu", action="read_metadata", actor=ALICE)
    assert {"user:oidc~hidden1", BOB, CAROL} <= {each["principal"] for each in shown["principals"]}


# --- who may write --------------------------------------------------------------------------------------------------


async def test_a_caller_that_may_not_write_writes_nothing(tmp_path: Path) -> None:
    callers = {"reader": {"loopback": True, "may_assert": ["principals"]}}
    async with asking(tmp_path, identity={"callers": callers}) as client:
        for more in ({}, {"actor": ALICE}):
            for path, body in (
                ("grants", {"add": [grant(ALICE, "admin", "server")]}),
                ("objects", {"put": ["project:p"]}),
            ):
                assert "may_write" in await client.refused(path, 403, "forbidden", **body, **more)
        assert await client.grants() == []


async def test_a_caller_speaks_only_for_whom_it_may(tmp_path: Path) -> None:
    callers = {"writer": {"loopback": True, "may_write": True}}
    asked = {"action": "read_data", "type": "table", "container": "warehouse:lake"}
    async with asking(tmp_path, identity={"callers": callers}) as client:
        await client.done("grants", add=[grant(ALICE, "select", TABLE)])
        for path, body in (
            ("grants", {"actor": ALICE}),
            ("objects", {"actor": ALICE}),
            ("access", {"actor": ALICE, "resource": TABLE, "action": "read_data"}),
            ("list", {"principal": ALICE, **asked}),
        ):
            assert "principals" in await client.refused(path, 403, "assertion_not_allowed", **body)
        status, answer = await client.get(actor=ALICE)
        assert (status, answer["error"]["code"]) == (403, "assertion_not_allowed")


async def test_every_kind_of_evidence_is_weighed(tmp_path: Path) -> None:
    callers = {"some": {"loopback": True, "may_assert": ["principals"], "may_write": True}}
    asked = {"action": "read_data", "type": "table", "container": "warehouse:lake"}
    async with asking(tmp_path, identity={"callers": callers}) as client:
        await client.done("list", principal=ALICE, **asked)
        for kind, value in (("roles", ["r"]), ("groups", ["g"]), ("attributes", {"a": 1})):
            principal = {"id": ALICE, kind: value}
            assert kind in await client.refused("list", 403, "assertion_not_allowed", principal=principal, **asked)
            assert kind in await client.refused("grants", 403, "assertion_not_allowed", actor=principal)
        resource = {"reference": TABLE, "properties": {"a": 1}}
        assert "properties" in await client.refused(
            "access", 403, "assertion_not_allowed", resource=resource, action="read_data"
        )


async def test_who_may_do_neither_sees_nothing(tmp_path: Path) -> None:
    async with asking(tmp_path, identity={"callers": {"nobody": {"loopback": True}}}) as client:
        assert (await client.get())[0] == 403
        await client.refused("access", 403, "forbidden", resource=TABLE, action="read_data")


async def test_a_world_file_takes_no_writes(tmp_path: Path) -> None:
    world = {"grants": [grant(ALICE, "select", TABLE)]}
    (tmp_path / "world.json").write_text(json.dumps(world))
    callers = {"operator": {"loopback": True, "may_assert": ["principals"], "may_write": True}}
    async with asking(tmp_path, store={"url": "file:world.json"}, identity={"callers": callers}) as client:
        for path, body in (("grants", {"add": [grant(BOB, "select", TABLE)]}), ("objects", {"put": ["project:p"]})):
            assert "world file, which takes no writes" in await client.refused(path, 400, "invalid_argument", **body)
        assert len(await client.grants()) == 1


async def test_an_actor_and_the_role_it_assumes(client: ManagementClient) -> None:
    await client.done("objects", put=[{"object": "role:etl", "parent": "project:p"}])
    await client.done(
        "grants", add=[grant(ALICE, "assignee", "role:etl"), grant("role:etl", "create", "warehouse:lake")]
    )
    chain = ["namespace:lake/a", "table:lake/a/t"]
    await client.refused("objects", 403, "forbidden", put=chain, actor=BOB, actingRole="role:etl")
    await client.refused("objects", 400, "invalid_argument", put=chain, actingRole="role:etl")
    await client.refused("objects", 400, "invalid_argument", put=chain, actor=ALICE, actingRole="")
    await client.done("objects", put=chain, actor=ALICE, actingRole="role:etl")
    owned = await client.grants(privilege="ownership")
    assert [(g["principal"], g["object"]) for g in owned] == [("role:etl", name) for name in chain]
    await client.done("grants", add=[grant(BOB, "select", "table:lake/a/t")], actor=ALICE)
    assert await client.may(BOB, "read_data", "table:lake/a/t")


# --- looking --------------------------------------------------------------------------------------------------------


async def test_flags_tell_what_is_odd(client: ManagementClient) -> None:
    table = {"object": TABLE, "id": "new"}
    await client.done("objects", put=[table, ALICE])
    odd = [grant(ALICE, "select", TABLE, id="old"), grant(BOB, "select", TABLE)]
    answer = await client.done("grants", add=[*odd, grant(ALICE, "modify", TABLE)])
    assert answer["flagged"] == [odd[0] | {"flags": ["orphaned"]}, odd[1] | {"flags": ["unknown_principal"]}]
    assert [entry.get("flags") for entry in await client.grants(object=TABLE)] == [
        None,
        ["orphaned"],
        ["unknown_principal"],
    ]
    assert "flagged" not in await client.done("grants", add=[grant(ALICE, "modify", TABLE)])


async def test_grants_are_narrowed(client: ManagementClient) -> None:
    wanted = [grant(ALICE, "select", TABLE), grant(ALICE, "describe", "namespace:lake/sales"), grant(BOB, "select", TABLE),
              grant(BOB, "describe", "namespace:lake/hr")]  # fmt: skip
    await client.done("grants", add=wanted)

    async def found(**parameters: Any) -> list[int]:
        bare = [{k: v for k, v in entry.items() if k != "flags"} for entry in await client.grants(**parameters)]
        return sorted(wanted.index(entry) for entry in bare)

    assert await found() == [0, 1, 2, 3]
    assert await found(principal=ALICE) == [0, 1]
    assert await found(object="namespace:lake/sales") == [1]
    assert await found(object="namespace:lake/sales", below="true") == [0, 1, 2]
    assert await found(object="project:p", below="true", principal=BOB) == [2, 3]
    assert await found(object="server", below="true", privilege="describe") == [1, 3]
    assert await found(object="", principal="", privilege="") == [0, 1, 2, 3]
    assert await found(object="table:lake/sales") == []


@pytest.mark.parametrize(
    "query",
    ["colour=red", "object=x", "object=table:lake//t", "object=table:lake/a/t@dev", "principal=alice", "principal=group:x",
     "privilege=fly", "below=yes", "pageSize=x", "pageSize=1e3", "pageSize=99999999999", "pageSize=%D9%A1", "object=server&object=server",
     "actor=", "below=", "pageSize=", "actingRole=role:r", "pageToken=x", "%ff=1", "principal=user:oidc~%00", "object=%ED%A0%80", "pageToken=%ff"],
)  # fmt: skip
@one_service
async def test_a_question_that_makes_no_sense_is_400(unchanged: ManagementClient, query: str) -> None:
    status, answer = await unchanged.get(query)
    assert (status, answer.get("error", {}).get("code")) == (400, "invalid_argument"), answer


async def test_pages_of_any_size_are_the_whole(client: ManagementClient) -> None:
    await client.done("grants", add=[grant(p, "select", f"table:lake/a/t{i}") for p in (ALICE, BOB) for i in range(6)])

    async def grants(**page: Any) -> dict[str, Any]:
        status, answer = await client.get(**page)
        assert status == 200
        return answer

    async def listed(**page: Any) -> dict[str, Any]:
        return await client.done("list", principal=ALICE, action="read_data", type="table", container="server", **page)

    async def access(**page: Any) -> dict[str, Any]:
        return await client.done("access", resource="project:p", action="get_metadata", **page)

    for ask, key, count in ((grants, "grants", 12), (listed, "objects", 6), (access, "principals", 2)):
        whole = (await ask())[key]
        assert len(whole) == count
        for size in range(1, count + 2):
            assert await client.pages(ask, key, size) == whole


GARBAGE = [
    "x",
    "!!!!",
    "====",
    "YWJj=",
    "YWJj\n",
    "YW Jj",
    "_w==",
    "é",
    "\x00",
    "YWJ",
    "a" * 1001,
    base64.b64encode(b"\xff\xfe").decode(),
]


@pytest.mark.parametrize("token", GARBAGE)
@one_service
async def test_a_token_that_no_answer_gave_is_400(unchanged: ManagementClient, token: str) -> None:
    ask: dict[str, Any] = {"principal": ALICE, "action": "read_data", "type": "table", "container": "server"}
    assert "pageToken" in await unchanged.refused("list", 400, "invalid_argument", **ask, pageToken=token)
    ask = {"resource": TABLE, "action": "read_data"}
    assert "pageToken" in await unchanged.refused("access", 400, "invalid_argument", **ask, pageToken=token)
    assert (await unchanged.get(pageToken=token))[0] == 400


async def test_an_actor_sees_the_grants_that_it_may_see(client: ManagementClient) -> None:
    wanted = [
        grant(ALICE, "ownership", TABLE),
        grant(BOB, "select", TABLE),
        grant(CAROL, "select", "table:lake/hr/pay"),
    ]
    await client.done("grants", add=wanted)

    async def seen(actor: str, **more: Any) -> set[tuple[str, str]]:
        return {(g["principal"], g["object"]) for g in await client.grants(actor=actor, **more)}

    assert await seen(ALICE) == {(ALICE, TABLE)}
    assert await seen(ALICE, object=TABLE) == {(ALICE, TABLE), (BOB, TABLE)}
    assert await seen(ALICE, principal=BOB) == {(BOB, TABLE)}
    assert await seen(ALICE, principal=CAROL) == set()
    assert await seen(BOB) == {(BOB, TABLE)}
    assert await seen(BOB, object=TABLE, principal=BOB) == {(BOB, TABLE)}
    assert await seen(CAROL, object="server", below="true", principal=CAROL) == {(CAROL, "table:lake/hr/pay")}
    assert await seen("user:oidc~stranger") == set()
    assert await seen("anonymous") == set()
    for actor, object in ((BOB, TABLE), (ALICE, "table:lake/hr/pay"), (ALICE, "server")):
        status, answer = await client.get(actor=actor, object=object)
        assert (status, answer["error"]["code"]) == (403, "forbidden")
    await client.done("access", resource=TABLE, action="read_data", actor=ALICE)
    await client.refused("access", 403, "forbidden", resource=TABLE, action="read_data", actor=BOB)
    await client.refused(
        "access", 403, "forbidden", resource=TABLE, action="read_data", actor=ALICE, actingRole="role:r"
    )


async def test_access_says_through_what(client: ManagementClient) -> None:
    await client.done("objects", put=["role:r"])
    await client.done(
        "grants",
        add=[
            grant("role:r", "select", "warehouse:lake"),
            grant(ALICE, "assignee", "role:r"),
            grant(BOB, "describe", TABLE),
        ],
    )
    answer = await client.done("access", resource=TABLE, action="read_data")
    through = "grants:select on warehouse:lake via role:r"
    assert answer["principals"] == [{"principal": "role:r", "by": [through]}, {"principal": ALICE, "by": [through]}]


async def test_access_to_a_ref_and_to_an_id_is_what_a_check_of_it_says(tmp_path: Path) -> None:
    (tmp_path / "r.properties").write_text("nessie.server.authorization.rules.dev=ref=='dev' && role=='alice'\n")
    config = {"policies": {"rules": ["r.properties"]}, "warehouses": {"lake": {"default_ref": "main"}}}
    async with asking(tmp_path, **config) as client:
        await client.done("objects", put=[{"object": TABLE, "id": "1"}, ALICE])
        await client.done("grants", add=[grant(BOB, "select", TABLE, id="1")])
        for resource, wanted in (
            (TABLE, [BOB]),
            (f"{TABLE}@dev", [ALICE, BOB]),
            ({"reference": f"{TABLE}@main", "id": "2"}, []),
            ({"reference": f"{TABLE}@dev", "id": "2"}, [ALICE]),
        ):
            answer = await client.done("access", resource=resource, action="read_data")
            assert [entry["principal"] for entry in answer["principals"]] == wanted


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"type": "chair"}, "type"),
        ({"type": "table_or_view"}, "type"),
        ({"action": "fly"}, "fly"),
        ({"type": "view"}, "read_data"),
        ({"container": "warehouse:lake@dev"}, "container"),
        ({"container": "reference:lake@dev"}, "container"),
        ({"principal": "alice"}, "alice"),
        ({"actor": ALICE}, "actor"),
        ({"actingRole": ALICE}, "actingRole"),
        ({"colour": "red"}, "colour"),
        ({"consistency": "sometimes"}, "sometimes"),
        ({"consistency": {"atLeast": "x"}}, "x"),
    ],
)  # fmt: skip
@one_service
async def test_a_list_that_makes_no_sense_is_400(
    unchanged: ManagementClient, fields: dict[str, Any], named: str
) -> None:
    asked = {"principal": ALICE, "action": "read_data", "type": "table", "container": "warehouse:lake"}
    assert named in await unchanged.refused("list", 400, "invalid_argument", **(asked | fields))


async def test_a_revision_to_come_is_503(tmp_path: Path) -> None:
    store = {"url": f"sqlite:///{tmp_path}/pdp.db", "wait_seconds": 0.1}
    async with asking(tmp_path, store=store) as client:
        epoch, number, _, digest = (await client.done("objects", put=["project:p"]))["revision"].split(".")
        ask: dict[str, Any] = {"principal": ALICE, "action": "read_data", "type": "table", "container": "server"}
        for revision in (f"{epoch}.{int(number) + 1}.{digest}", f"{'0' * 12}.1.{digest}"):
            await client.refused("list", 503, "unavailable", **ask, consistency={"atLeast": revision})


async def test_a_restart_finds_what_was_written(tmp_path: Path) -> None:
    async with asking(tmp_path) as client:
        await client.done(
            "objects", put=["project:p", {"object": "warehouse:lake", "parent": "project:p", "managedAccess": True}]
        )
        await client.done("grants", add=[grant(ALICE, "modify", TABLE)])
        moved = await client.done("objects", move=[{"from": "warehouse:lake", "to": "warehouse:sea"}])
    async with asking(tmp_path) as client:
        assert await client.may(ALICE, "write_data", "table:sea/sales/orders")
        assert not await client.may(ALICE, "write_data", TABLE)
        assert (await client.done("grants"))["revision"] == moved["revision"]


# --- many -----------------------------------------------------------------------------------------------------------

STRANGE: dict[str, Callable[[int], tuple[str, str, Resource]]] = {
    "principals": lambda i: (f"user:oidc~s{i}", "read_data", Resource("table", "lake", ("a", "t"))),
    "namespaces": lambda i: (f"user:oidc~s{i}", "read_data", Resource("table", "lake", (f"a{i}", "t"))),
    "namespaces of somebody known": lambda i: (ALICE, "read_data", Resource("table", "lake", (f"a{i}", "t"))),
    "warehouses": lambda i: (ALICE, "get_metadata", Resource("warehouse", f"lake{i}")),
    "projects": lambda i: (ALICE, "get_metadata", Resource("project", name=f"p{i}")),
    "long projects": lambda i: (ALICE, "get_metadata", Resource("project", name=f"p{i:04000}")),
    "roles": lambda i: (f"user:oidc~s{i}", "read", Resource("role", name=f"r{i}")),
}
MANY, BATCH = 40_000, 2_000


@pytest.mark.parametrize("ask", STRANGE.values(), ids=STRANGE)
async def test_strangers_do_not_fill_the_memory(
    tmp_path: Path, ask: Callable[[int], tuple[str, str, Resource]]
) -> None:
    """As if a million had asked: what is kept for 40,000 may take no more than a million's share, and a little."""
    world = {
        "objects": [{"object": "warehouse:lake", "parent": "project:p"}],
        "grants": [grant(ALICE, "select", "warehouse:lake")],
    }
    config = {"authorities": {"default": {"engines": ["grants"]}}}
    pdp = build_pdp(settings_of(config, tmp_path), parse_world(world), (inline_rules({}), inline_rules({})))

    async def batch(start: int) -> None:
        checks = []
        for at in range(BATCH):
            principal, action, resource = ask(start + at)
            checks.append(Check(Question(parse_principal(principal), action), (resource,), (at,)))
        await pdp.check(Batch("http", EMBEDDED_CALLER, BATCH, checks))

    for start in range(0, 2 * BATCH, BATCH):
        await batch(start)
    gc.collect()
    before = psutil.Process().memory_info().rss
    for start in range(2 * BATCH, MANY, BATCH):
        await batch(start)
    gc.collect()
    assert psutil.Process().memory_info().rss - before < 20 * MB
