"""What a caller may not say of the principals that it names is unknown: no policy takes the silence for a "no"."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from support.clients.http_client import HttpClient, client_of
from support.servers.idp import ISSUER, jwk, token
from support.service.commands import run_pdp
from support.service.serving import settings_of

ALICE = "user:oidc~alice"
KINDS = ("groups", "roles", "attributes")
MAY_ASSERT = [tuple(kinds) for size in range(4) for kinds in combinations(KINDS, size)]
FORBIDS = {
    "groups": "'banned' in groups",
    "roles": "'banned' in roles",
    "attributes": "'banned' in attributes",
}


def config(caller: Mapping[str, Any], *, forbid: Mapping[str, str], **more: Any) -> dict[str, Any]:
    """Return a configuration with one local caller. Token roles map to roles of the store."""
    provider = {
        "issuer": ISSUER,
        "jwks": "keys.json",
        "audiences": ["pdp"],
        "role_map": {"banned": "banned"},
    }
    return {
        "warehouses": {"lake": {"default_ref": "main"}},
        "authorities": {"default": {"engines": ["cel", "grants"]}},
        "identity": {"providers": {"oidc": provider}, "callers": {"local": {"loopback": True, "may_write": True, **caller}}},
        "policies": {"rules": ["rules.yaml"], "forbid": ["forbid.yaml"] if forbid else [], "row_access": ["rows.json"]},
        **more,
    }  # fmt: skip


ROWS = {
    "policies": [
        {"id": "all", "table": "lake.s.grouped", "grantees": ["allUsers"], "filter": "TRUE"},
        {"id": "few", "table": "lake.s.grouped", "grantees": ["group:few@x.com"], "filter": "a = 2", "restrictive": True},
        {"id": "all", "table": "lake.s.roled", "grantees": ["allUsers"], "filter": "TRUE"},
        {"id": "few", "table": "lake.s.roled", "grantees": ["role:banned"], "filter": "a = 2", "restrictive": True},
    ],
    "masks": [
        {"id": "m", "table": "lake.s.masked", "column": "c", "grantees": ["group:few@x.com"], "kind": "hash"},
        {"id": "m", "table": "lake.s.veiled", "column": "c", "grantees": ["role:banned"], "kind": "hash"},
    ],
}  # fmt: skip


def write(folder: Path, forbid: Mapping[str, str]) -> None:
    (folder / "rules.yaml").write_text(json.dumps({"rules": {"all": "true"}}))
    (folder / "forbid.yaml").write_text(json.dumps({"rules": dict(forbid)}))
    (folder / "rows.json").write_text(json.dumps(ROWS))
    (folder / "keys.json").write_text(json.dumps({"keys": [jwk()]}))


@asynccontextmanager
async def serve(folder: Path, caller: Mapping[str, Any], forbid: Mapping[str, str]) -> AsyncIterator[HttpClient]:
    write(folder, forbid)
    async with client_of(settings_of(config(caller, forbid=forbid), folder)) as client:
        yield client


async def allowed(client: HttpClient, principal: Any = ALICE, table: str = "free") -> bool:
    """Ask a check and a load, which must agree."""
    target = f"table:lake/s/{table}"
    check = {"principal": principal, "action": "read_data", "resource": target}
    status, answer = await client.post("/v1/check", {"checks": [check]})
    assert status == 200, answer
    found: bool = answer["decisions"][0]["allowed"]
    load = {"principal": principal, "target": target, "action": "loadTable"}
    status, answer = await client.post("/v1/load", load)
    assert (status, answer["allowed"]) == (200, found), answer
    return found


async def shown(client: HttpClient, table: str) -> tuple[str, str]:
    """Return the row filter and the mask of a column."""
    body = {
        "dialect": "trino",
        "principal": ALICE,
        "resource": f"table:lake/s/{table}",
        "columns": [{"name": "c", "type": "VARCHAR"}],
    }
    status, answer = await client.post("/v1/filters", body)
    assert status == 200, answer
    masks = {mask["column"]: mask["expression"] for mask in answer["columnMasks"]}
    return (answer.get("rowFilter") or {}).get("expression", ""), masks.get("c", "")


@pytest.mark.parametrize("may_assert", MAY_ASSERT)
async def test_a_forbid_denies_what_the_caller_cannot_say(may_assert: Sequence[str], tmp_path: Path) -> None:
    for kind, rule in FORBIDS.items():
        folder = tmp_path / kind
        folder.mkdir()
        async with serve(folder, {"may_assert": ["principals", *may_assert]}, {"no": rule}) as client:
            assert await allowed(client) == (kind in may_assert), kind
            assert await allowed(client, "role:etl"), "a role has no token"
            assert await allowed(client, "anonymous"), "nobody has no token"


@pytest.mark.process
@pytest.mark.parametrize("may_assert", [(), ("groups",), ("roles",), ("groups", "roles")])
async def test_limits_and_masks_hide_in_doubt(may_assert: Sequence[str], tmp_path: Path) -> None:
    async with serve(tmp_path, {"may_assert": ["principals", *may_assert]}, {}) as client:
        for kind, limited, masked in (("groups", "grouped", "masked"), ("roles", "roled", "veiled")):
            is_known = kind in may_assert
            assert (await shown(client, limited))[0] == ("" if is_known else "a = 2"), kind
            assert (await shown(client, masked))[1] == ("" if is_known else "CAST(NULL AS VARCHAR)"), kind


@pytest.mark.process
async def test_the_configuration_may_say_that_there_is_none(tmp_path: Path) -> None:
    caller = {"may_assert": ["principals", "roles"], "empty": ["groups"]}
    async with serve(tmp_path, caller, {"no": FORBIDS["groups"], "nor": FORBIDS["roles"]}) as client:
        assert await allowed(client)
        assert not await allowed(client, {"id": ALICE, "roles": ["banned"]})
        assert await shown(client, "grouped") == ("", "")


async def test_rules_that_read_nothing_decide_as_before(tmp_path: Path) -> None:
    async with serve(tmp_path, {"may_assert": ["principals"]}, {"no": "path == 's.kept'"}) as client:
        assert await allowed(client)
        assert not await allowed(client, table="kept")


@pytest.mark.parametrize("stated", [(), ("groups",)])
async def test_trino_s_caller_knows_no_groups_without_the_right(stated: Sequence[str], tmp_path: Path) -> None:
    """What Trino does not send at all is for `trino.unknown` to say."""
    forbid = {"no": FORBIDS["groups"]} if not stated else {"no": FORBIDS["attributes"], "nor": FORBIDS["groups"]}
    write(tmp_path, forbid)
    catalogs = {"catalogs": {"lake": {"warehouse": "lake", "ref": "main"}}}
    settings = settings_of(config({"may_assert": ["principals", *stated]}, forbid=forbid, trino=catalogs), tmp_path)
    table = {"catalogName": "lake", "schemaName": "s", "tableName": "free", "columns": ["c"]}
    action = {"operation": "SelectFromColumns", "resource": {"table": table}}
    body = {"input": {"context": {"identity": {"user": "alice", "groups": []}}, "action": action}}
    async with client_of(settings) as client:
        status, answer = await client.post("/v1/data/trino/allow", body)
        assert (status, answer["result"]) == (200, bool(stated))


@pytest.mark.process
@pytest.mark.parametrize(
    ("caller", "told"),
    [
        ({"may_assert": ["principals"]}, "groups, roles"),
        ({"may_assert": ["principals", "groups"]}, "roles"),
        ({"may_assert": ["principals"], "empty": ["groups", "roles"]}, ""),
        ({"may_assert": ["groups"]}, ""),
    ],
)
async def test_the_start_and_config_check_name_the_caller(caller: Mapping[str, Any], told: str, tmp_path: Path) -> None:
    forbid = {"no": FORBIDS["groups"]}
    write(tmp_path, forbid)
    made = config(caller, forbid=forbid)
    settings = settings_of(made, tmp_path)
    wanted = [f"caller `local` may not assert {told}, which policies read"] if told else []
    async with client_of(settings) as client:
        at_start = [text for text in client.service.pdp.bundle.warnings if "may not assert" in text]
    assert [text.partition(":")[0] for text in at_start] == wanted
    (tmp_path / "pdp.yaml").write_text(json.dumps(made))
    checked = run_pdp("config", "check", cwd=tmp_path)
    assert [text in checked.stderr + checked.stdout for text in wanted] == [True] * len(wanted), checked
    assert told or "may not assert" not in checked.stderr + checked.stdout


def test_what_is_stated_is_not_empty(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="`groups` is in `may_assert` and in `empty`"):
        settings_of(config({"may_assert": ["groups"], "empty": ["groups"]}, forbid={}), tmp_path)


CEDAR = {
    "mapped": 'forbid(principal in Lakekeeper::Role::"mapped", action, resource in Lakekeeper::Namespace::"lake/mapped");',
    "mail": 'forbid(principal is Lakekeeper::User, action, resource in Lakekeeper::Namespace::"lake/mail")'
    ' when { principal has email && principal.email == "x" };',
}
PLACES = {"groups": "groups", "roles": "roles", "attributes": "attributes", "mapped": "roles", "mail": "attributes"}
"""Namespace with a forbid -> the evidence that the forbid reads."""
SAID: Mapping[str, Any] = {"groups": [], "roles": [], "email": "a@b.example"}


def users_of(folder: Path, *stated: str) -> dict[str, Any]:
    """Return a configuration where users ask about others by the right to read grants, and may state some evidence."""
    rules = {kind: f"path.startsWith('{kind}.') && {text}" for kind, text in FORBIDS.items()}
    write(folder, rules)
    permit = "permit(principal, action, resource);\n"
    (folder / "p.cedar").write_text(permit + "\n".join(CEDAR.values()))
    grants = [{"principal": "user:oidc~ann", "privilege": "ownership", "object": "warehouse:lake"}]
    tables = [f"table:lake/{place}/t" for place in (*PLACES, "free")]
    objects = ["project:p", {"object": "warehouse:lake", "parent": "project:p"}, "user:oidc~alice", *tables]
    (folder / "world.json").write_text(json.dumps({"objects": objects, "grants": grants}))
    made = config({}, forbid=rules, store={"url": "file:world.json"})
    claims = {"groups": "groups", "roles": "roles", "attributes": {"email": "email"}}
    provider = made["identity"]["providers"]["oidc"] | {"claims": claims, "role_map": {"banned": "mapped"}}
    made["identity"] = {"providers": {"oidc": provider}}
    if stated:
        bearer = {"idp": "oidc", "subjects": ["ann"]}
        made["identity"]["callers"] = {"some": {"bearer": bearer, "may_assert": list(stated)}}
    made["authorities"] = {"default": {"engines": ["cel", "cedar", "grants"]}}
    made["policies"] |= {"cedar": {"policies": ["p.cedar"]}, "row_access": []}
    return made


async def seen(client: HttpClient, principal: Any, said: Mapping[str, Any] = SAID) -> set[str]:
    """Return the places that a principal may read, as ann is told: by check, load, list and access alike."""
    headers = {"Authorization": f"Bearer {token(sub='ann', **said)}"}
    about = {} if principal is None else {"principal": principal}
    found = []
    for action in ("read_data", "get_metadata"):
        checks = [{**about, "action": action, "resource": f"table:lake/{place}/t"} for place in (*PLACES, "free")]
        _, answer = await client.post("/v1/check", {"checks": checks}, headers)
        assert "decisions" in answer, answer
        allowed = [each.get("allowed", each) for each in answer["decisions"]]
        found.append({place for place, may in zip((*PLACES, "free"), allowed, strict=True) if may is True})
        asked = {**about, "action": action, "type": "table", "container": "warehouse:lake"}
        _, listed = await client.post("/v1/list", asked, headers)
        found.append({name.split("/")[1] for name in listed["objects"]})
    loads = [{**about, "target": f"table:lake/{place}/t", "action": "loadTable"} for place in (*PLACES, "free")]
    answers = [(await client.post("/v1/load", load, headers))[1] for load in loads]
    found.append({place for place, one in zip((*PLACES, "free"), answers, strict=True) if one["allowed"]})
    if isinstance(principal, str):
        access = {
            place: (await client.post("/v1/access", {"action": "read_data", "resource": f"table:lake/{place}/t"}, headers))[1]
            for place in (*PLACES, "free")
        }  # fmt: skip
        found.append({p for p, one in access.items() if principal in {each["principal"] for each in one["principals"]}})
    assert all(each == found[0] for each in found), found
    return found[0]


@pytest.mark.parametrize("stated", MAY_ASSERT)
async def test_who_asks_about_others_by_right_does_not_know_their_tokens(stated: Sequence[str], tmp_path: Path) -> None:
    everywhere = {*PLACES, "free"}
    known = {place for place, kind in PLACES.items() if kind in stated}
    async with client_of(settings_of(users_of(tmp_path, *stated), tmp_path)) as client:
        assert await seen(client, None) == await seen(client, "user:oidc~ann") == everywhere
        assert await seen(client, ALICE) == {"free", *known}
        if "groups" in stated:
            assert await seen(client, {"id": ALICE, "groups": ["fine"]}) == {"free", *known}
            assert await seen(client, {"id": ALICE, "groups": ["banned"]}) == {"free", *known} - {"groups"}
            banned = {**SAID, "roles": ["banned"]}
            assert (
                not {"roles", "mapped"} & (await seen(client, {"id": "user:oidc~ann", "groups": ["x"]}, banned)) - known
            )
