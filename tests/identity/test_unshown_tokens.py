"""Owners of views and authors of filters: whatever a token of such a user would say is unknown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
from support.clients.http_client import HttpClient, client_of
from support.servers.idp import ISSUER, jwk, token
from support.service.serving import settings_of

pytestmark = pytest.mark.process
OWNER: Final = "user:oidc~owner"
FORBIDS: Final = {
    "groups": "'banned' in groups",
    "roles": "'banned' in roles",
    "attributes": "attributes.level == 'banned'",
}
_HEAD: Final = 'action, resource in Lakekeeper::Namespace::"lake/{}")'
_ROLE: Final = 'Lakekeeper::Role::"mapped"'
_KNOWN: Final = 'Lakekeeper::Role::"known"'
_STORED: Final = 'Lakekeeper::Namespace::"lake/stored"'
CEDAR: Final = {
    "mapped": f"forbid(principal in {_ROLE}, {_HEAD};",
    "clause": f"forbid(principal, {_HEAD} when {{{{ principal in {_ROLE} }}}};",
    "held": f"forbid(principal is Lakekeeper::User, {_HEAD} when {{{{ principal.roles.contains({_ROLE}) }}}};",
    "email": f"forbid(principal is Lakekeeper::User, {_HEAD}"
    ' when {{ principal has email && principal.email == "banned" }};',
}
FORBIDDEN: Final = (*FORBIDS, *CEDAR)
"""Namespaces, each with one forbid on one kind of evidence."""
FREE: Final = ("free", "stored", "spared")
"""Namespaces without a forbid, with a permit for a stored role alone, and with a forbid that spares this role."""
PLACES: Final = (*FORBIDDEN, *FREE)
PERMITS: Final = f"""
permit(principal, action, resource) unless {{ resource in {_STORED} }};
permit(principal in {_KNOWN}, action, resource in {_STORED});
forbid(principal, action, resource in Lakekeeper::Namespace::"lake/spared") unless {{ principal in {_KNOWN} }};
"""
ROWS: Final = [{"path": "rows.json", "allow_empty": True}]
SAID: Final = {"groups": ["banned"], "roles": ["banned"], "level": "banned", "email": "banned"}


def _write(folder: Path) -> None:
    rules = {name: f"path.startsWith('{name}.') && {text}" for name, text in FORBIDS.items()}
    (folder / "forbid.yaml").write_text(json.dumps({"rules": rules}))
    (folder / "p.cedar").write_text(PERMITS + "\n".join(text.format(name) for name, text in CEDAR.items()))
    (folder / "jwks.json").write_text(json.dumps({"keys": [jwk()]}))
    columns = {"columns": {"a": "INT"}}
    tables = {table: columns for name in PLACES for table in (f"lake.{name}.t", f"lake.own.{name}")}
    views = {f"lake.own.v_{name}": {"sql": f"SELECT * FROM lake.{name}.t", "owner": "user:owner"} for name in PLACES}
    (folder / "rows.json").write_text(json.dumps({"tables": tables, "views": views}))
    objects = ["project:p", {"object": "warehouse:lake", "parent": "project:p"}]
    grants = [
        {"principal": OWNER, "privilege": "ownership", "object": "warehouse:lake"},
        {"principal": OWNER, "privilege": "assignee", "object": "role:known"},
    ]
    (folder / "seed.json").write_text(json.dumps({"objects": objects, "grants": grants}))


def _config(folder: Path) -> dict[str, Any]:
    provider = {
        "issuer": ISSUER, "jwks": "jwks.json", "audiences": ["pdp"], "role_map": {"banned": "mapped"},
        "claims": {"groups": "groups", "roles": "roles", "attributes": {"level": "level", "email": "email"}},
    }  # fmt: skip
    kinds = ["principals", "roles", "groups", "attributes", "delegated", "properties", "callers"]
    engine = {"type": "trino", "owner_property": "owner", "identities": {"oidc": {"audiences": ["trino"]}}}
    return {
        "warehouses": {"lake": {"default_ref": "main"}},
        "authorities": {"default": {"engines": ["cedar"]}},
        "identity": {
            "providers": {"oidc": provider},
            "callers": {"local": {"loopback": True, "may_write": True, "may_assert": kinds}},
        },
        "trusted_engines": {"trino": engine},
        "policies": {"rules": [], "forbid": ["forbid.yaml"], "cedar": {"policies": ["p.cedar"]}, "row_access": ROWS},
        "store": {"url": f"sqlite:///{folder}/pdp.db", "seed": "seed.json"},
    }  # fmt: skip


async def _by_token(client: HttpClient, name: str) -> bool:
    headers = {"Authorization": f"Bearer {token(sub='owner', **SAID)}"}
    checks = {"checks": [{"action": "read_data", "resource": f"table:lake/{name}/t"}]}
    status, answer = await client.post("/v1/check", checks, headers)
    assert status == 200, answer
    return bool(answer["decisions"][0]["allowed"])


async def _by_load(client: HttpClient, name: str, action: str) -> bool:
    body = {
        "principal": "user:oidc~reader", "target": f"table:lake/{name}/t", "action": action,
        "referencedBy": "own%1Fv", "views": [{"resource": "view:lake/own/v", "properties": {"owner": "owner"}}],
        "caller": {"idp": "oidc", "subject": "svc", "audiences": ["trino"]},
    }  # fmt: skip
    status, answer = await client.post("/v1/load", body)
    assert status == 200, answer
    return bool(answer["allowed"] or answer["storageAccess"] != "none")


async def _by_text(client: HttpClient, path: str, **body: str) -> bool:
    asked = {"principal": "user:oidc~reader", "dialect": "duckdb", **body}
    status, answer = await client.post(path, asked)
    assert status == 200 or answer["error"]["code"] == "RAP_ACCESS_DENIED", answer
    return bool(status == 200)


async def _write_filters(client: HttpClient) -> None:
    for name in PLACES:
        policy = {
            "id": "p", "table": f"table:lake/own/{name}", "grantees": ["allUsers"], "actor": OWNER,
            "filter": f"a IN (SELECT y.a FROM lake.{name}.t y)",
        }  # fmt: skip
        status, answer = await client.post("/v1/row-access-policies", policy)
        assert status == 200, answer


async def _ways(client: HttpClient, name: str) -> dict[str, bool]:
    return {
        "token": await _by_token(client, name),
        "load behind the view": await _by_load(client, name, "loadTable"),
        "credentials behind the view": await _by_load(client, name, "loadCredentials"),
        "rewrite behind the view": await _by_text(client, "/v1/rewrite", sql=f"SELECT * FROM lake.own.v_{name}"),
        "rewrite by the author's filter": await _by_text(client, "/v1/rewrite", sql=f"SELECT * FROM lake.own.{name}"),
        "the author's filter": await _by_text(client, "/v1/filters", resource=f"table:lake/own/{name}"),
    }


async def test_who_is_denied_by_the_own_token_is_denied_in_every_other_way(tmp_path: Path) -> None:
    _write(tmp_path)
    async with client_of(settings_of(_config(tmp_path), tmp_path)) as client:
        await _write_filters(client)
        for name in FREE:
            assert all((await _ways(client, name)).values()), name
        found = [(name, way) for name in FORBIDDEN for way, passes in (await _ways(client, name)).items() if passes]
    assert not found
