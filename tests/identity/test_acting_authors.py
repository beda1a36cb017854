"""Stored row policies by roles: the person who acted as the role is bound by forbids, as in each other question."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from support.clients.http_client import HttpClient, client_of
from support.servers.idp import ISSUER, jwk, token
from support.service.serving import settings_of

from pdp.audit.reader import read_audit
from pdp.audit.records.recorded import ReadReport
from pdp.facts.objects import RowPolicy
from pdp.offline.replay.replay import replay
from pdp.store.schema import read_rules

pytestmark = pytest.mark.process
DAVE: Final = "user:oidc~dave"
MGR: Final = "role:mgr"
FORBIDS: Final = {
    "name": "role == 'dave'",
    "listed": "role in ['eve', 'dave']",
    "spared": "role != 'ann' && role != ''",
    "nested": "'contractor' in roles",
    "groups": "'banned' in groups",
    "attributes": "attributes.level == 'banned'",
}
_L: Final = "Lakekeeper"
_HEAD: Final = f'action, resource in {_L}::Namespace::"lake/{{}}")'
CEDAR: Final = {
    "user": f'forbid(principal == {_L}::User::"oidc~dave", {_HEAD};',
    "member": f'forbid(principal in {_L}::Role::"contractor", {_HEAD};',
    "clause": f'forbid(principal is {_L}::User, {_HEAD} unless {{{{ principal == {_L}::User::"oidc~ann" }}}};',
    "email": f"forbid(principal is {_L}::User, {_HEAD}"
    ' when {{ principal has email && principal.email == "banned" }};',
}
FORBIDDEN: Final = (*FORBIDS, *CEDAR)
"""Namespaces, each with one forbid that binds dave and not the role."""
FREE: Final = {
    "free": "role == 'eve'",
    "mine": "!('mgr' in roles)",
    "team": "'other' in roles && role == 'eve'",
}
"""Namespaces with a forbid that does not bind dave as `mgr`."""
PLACES: Final = (*FORBIDDEN, *FREE)


def _write(folder: Path, *, forbids: bool = True) -> None:
    rules = {name: f"path.startsWith('{name}.') && {text}" for name, text in (FORBIDS | FREE).items()}
    (folder / "forbid.yaml").write_text(json.dumps({"rules": rules}))
    permit = "permit(principal, action, resource);\n"
    forbidden = [text.format(name) for name, text in CEDAR.items()] if forbids else []
    (folder / "p.cedar").write_text(permit + "\n".join(forbidden))
    (folder / "jwks.json").write_text(json.dumps({"keys": [jwk()]}))
    tables = {table: {"columns": {"a": "INT"}} for name in PLACES for table in (f"lake.{name}.t", f"lake.own.{name}")}
    (folder / "rows.json").write_text(json.dumps({"tables": tables}))
    grants = [
        {"principal": MGR, "privilege": "ownership", "object": "warehouse:lake"},
        {"principal": DAVE, "privilege": "assignee", "object": MGR},
        {"principal": DAVE, "privilege": "assignee", "object": "role:inner"},
        {"principal": "role:inner", "privilege": "assignee", "object": "role:contractor"},
        {"principal": "role:inner", "privilege": "assignee", "object": MGR},
    ]
    objects = ["project:p", {"object": "warehouse:lake", "parent": "project:p"}]
    (folder / "seed.json").write_text(json.dumps({"objects": objects, "grants": grants}))


def _config(folder: Path, *, forbids: bool = True) -> dict[str, Any]:
    provider = {
        "issuer": ISSUER, "jwks": "jwks.json", "audiences": ["pdp"], "role_map": {"boss": "mgr"},
        "claims": {"groups": "groups", "roles": "roles", "attributes": {"level": "level", "email": "email"}},
    }  # fmt: skip
    kinds = ["principals", "roles", "groups", "attributes", "delegated", "properties"]
    local = {"loopback": True, "may_write": True, "may_assert": kinds}
    writer = {"bearer": {"idp": "oidc", "subjects": ["dave", "gil"]}, "may_write": True}
    return {
        "warehouses": {"lake": {"default_ref": "main"}},
        "authorities": {"default": {"engines": ["cedar", "grants"]}},
        "identity": {"providers": {"oidc": provider}, "callers": {"writer": writer, "local": local}},
        "policies": {
            "rules": [], "forbid": ["forbid.yaml"] if forbids else [], "cedar": {"policies": ["p.cedar"]},
            "row_access": [{"path": "rows.json", "allow_empty": True}],
        },
        "audit": {"sinks": [{"file": str(folder / "audit")}]},
        "store": {"url": f"sqlite:///{folder}/pdp.db", "seed": "seed.json"},
    }  # fmt: skip


SAID: Final = {"groups": ["banned"], "level": "banned", "email": "banned"}


async def _put(client: HttpClient, name: str, headers: Any = None, **actor: Any) -> None:
    policy = {
        "id": "p", "table": f"table:lake/own/{name}", "grantees": ["allUsers"], "dialect": "duckdb", **actor,
        "filter": f"a IN (SELECT y.a FROM lake.{name}.t y)",
    }  # fmt: skip
    await client.post("/v1/row-access-policies:batchDelete", {"table": policy["table"], "ids": ["p"]})
    status, answer = await client.post("/v1/row-access-policies", policy, headers or {})
    assert status == 200, answer


async def _readable(client: HttpClient, name: str) -> bool:
    """Return whether a reader gets rows by the filter: the same in each dialect, of text and of filter."""
    table, reader = f"table:lake/own/{name}", {"principal": "user:oidc~reader"}
    found = set()
    for dialect in ("duckdb", "spark"):
        text = {"sql": f"SELECT * FROM lake.own.{name}", "dialect": dialect}
        asked = {"resource": table, "dialect": dialect}
        for path, body in (("/v1/rewrite", text), ("/v1/filters", asked)):
            status, answer = await client.post(path, {**reader, **body})
            assert status == 200 or answer["error"]["code"] == "RAP_ACCESS_DENIED", answer
            found.add(status == 200)
    assert len(found) == 1, (name, found)
    return found.pop()


async def test_an_acting_role_frees_no_author_of_forbids(tmp_path: Path) -> None:
    _write(tmp_path)
    async with client_of(settings_of(_config(tmp_path), tmp_path)) as client:
        own = {"Authorization": f"Bearer {token(sub='dave', **SAID)}"}
        mapped = {"Authorization": f"Bearer {token(sub='gil', roles=['boss'], **SAID)}"}
        for name in PLACES:
            await _put(client, name, own, actingRole=MGR)
            assert await _readable(client, name) == (name in FREE), name
            await _put(client, name, actor=DAVE, actingRole=MGR)
            assert await _readable(client, name) == (name in FREE), name
        for name in ("groups", "email", "clause", "spared"):
            await _put(client, name, mapped, actingRole=MGR)
            assert not await _readable(client, name), name
        for name in ("free", "mine", "name", "user"):
            await _put(client, name, mapped, actingRole=MGR)
            assert await _readable(client, name), f"{name}: gil was a member by the own token"
        for name in PLACES:
            await _put(client, name, actor=MGR)
            assert await _readable(client, name) == (name != "attributes"), f"{name}: a role has no level to read"
        for name in ("nested", "member", "free", "name"):
            await _put(client, name, actor="role:inner", actingRole=MGR)
            assert await _readable(client, name) == (name in ("free", "name")), f"{name}: a role acts as another"
        pdp = client.service.pdp
    again = await replay(read_audit(tmp_path / "audit", ReadReport()), None, pdp)
    assert again.checks > 2 * len(PLACES)
    assert not again.totals, "records carry the person, and what is unknown of the person"


async def test_whoever_writes_last_is_the_person(tmp_path: Path) -> None:
    _write(tmp_path)
    ann = {"add": [{"principal": "user:oidc~ann", "privilege": "assignee", "object": MGR}]}
    async with client_of(settings_of(_config(tmp_path), tmp_path)) as client:
        assert (await client.post("/v1/grants", ann))[0] == 200
        for actor in ("user:oidc~ann", DAVE, "user:oidc~ann"):
            await _put(client, "name", actor=actor, actingRole=MGR)
            assert await _readable(client, "name") == (actor != DAVE)


@pytest.mark.parametrize("forbids", [True, False])
async def test_a_policy_of_an_older_version_denies_where_a_forbid_could_bind(tmp_path: Path, forbids: bool) -> None:
    _write(tmp_path, forbids=forbids)
    config = _config(tmp_path, forbids=forbids)
    async with client_of(settings_of(config, tmp_path)) as client:
        for name in ("free", "name"):
            await _put(client, name, actor="user:oidc~dave", actingRole=MGR)
    with sqlite3.connect(tmp_path / "pdp.db") as database:
        changed = database.execute("UPDATE row_rules SET body = json_remove(body, '$.person')").rowcount
        assert changed == 2
    async with client_of(settings_of(config, tmp_path)) as client:
        for name in ("free", "name"):
            assert await _readable(client, name) == (not forbids)
        await _put(client, "free", actor="user:oidc~dave", actingRole=MGR)
        assert await _readable(client, "free")


def test_rows_of_other_versions_are_read() -> None:
    rule = RowPolicy(("lake", "s", "t"), "p", ("allUsers",), author=MGR, person=DAVE)
    body = json.loads(msgspec.json.encode(rule))
    assert [*read_rules([(json.dumps(body | {"later": 1}),)])] == [rule]
    del body["person"]
    assert [*read_rules([(json.dumps(body),)])] == [msgspec.structs.replace(rule, person="")]
