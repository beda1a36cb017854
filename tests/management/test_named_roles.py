"""Names of roles that policies know: who may create roles takes none of them, or would get what it permits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
from support.clients.http_client import HttpClient, client_of
from support.servers.idp import jwk
from support.service.serving import settings_of

from pdp.app.assembly import build_bundle, read_rules

RC: Final = "user:oidc~rc"
ADMIN: Final = "user:oidc~admin"
_L: Final = "Lakekeeper"
PERMITS: Final = {
    "in": "'cel1' in roles",
    "against": "path == 'plain1' && !('cel2' in roles)",
    "macro": "roles.exists(r, r == 'cel3')",
    "turned": "['cel4', 'x'].exists(x, x in roles)",
    "joined": "'cel5' in (roles + groups)",
    "escaped": r"'c\u0065l6' in roles",
    "sizes": "roles.filter(r, r == 'cel7').size() > 0",
    "other": "role == 'plain2' || 'plain3' in groups",
}
FORBIDS: Final = {
    "no": "!('cel8' in roles) && path == 'x'",
    "is": "path == 'x' && 'cel9' in roles",
    "sum": "path == 'x' && roles + ['cel10'] == roles",
}
CEDAR: Final = f"""
permit(principal in {_L}::Role::"ced1", action, resource);
forbid(principal, action, resource == {_L}::Namespace::"lake/plain4") unless {{ principal in {_L}::Role::"ced2" }};
permit(principal is {_L}::User, action, resource) when {{ principal.roles.contains({_L}::Role::"ced3") }};
permit(principal is {_L}::User, action, resource) when {{
  principal.project_roles.contains({{provider_id: "oidc", source_id: "ced4"}})
}};
permit(principal is {_L}::User, action, resource is {_L}::Table) when {{
  principal.project_roles.contains({{provider_id: "oidc", source_id: "ced4"}}) && resource.name like "tmp_*"
}};
permit(principal in {_L}::Role::"ced\\u{{35}}", action, resource);
permit(principal == {_L}::User::"oidc~plain5", action, resource);
"""
ENTITIES: Final = [
    {"uid": {"type": f"{_L}::User", "id": "oidc~zed"}, "attrs": {}, "parents": [{"type": f"{_L}::Role", "id": "ced6"}]},
]
ROWS: Final = {
    "tables": {"lake.s.t": {"columns": {"a": "INT", "b": "VARCHAR"}}},
    "policies": [
        {"id": "p", "table": "lake.s.t", "grantees": ["role:row1", "group:plain6"], "filter": "a = 1 AND b = 'plain7'"},
        {"id": "q", "table": "lake.s.t", "grantees": ["allUsers"], "filter": "contains(current_roles(), 'row2')"},
    ],
    "masks": [
        {
            "id": "m",
            "table": "lake.s.t",
            "column": "b",
            "grantees": ["allUsers"],
            "except": ["role:row3"],
            "kind": "hash",
        }
    ],
}
STORED: Final = {"id": "s", "table": "table:lake/s/t", "grantees": ["role:row4"], "filter": "a = 2"}
NAMED: Final = (
    *(f"cel{number}" for number in range(1, 11)), *(f"ced{number}" for number in range(1, 7)), "oidc~ced4", "p2/oidc~ced4",
    *(f"row{number}" for number in range(1, 5)), "mapped", "grouped",
)  # fmt: skip
PLAIN: Final = (*(f"plain{number}" for number in range(1, 8)), "new", "cel", "oidc~new", "oidc~cel1", "oidc~ced1")


def _config(folder: Path, *, report: bool = False) -> dict[str, Any]:
    (folder / "rules.yaml").write_text(json.dumps({"rules": PERMITS}))
    (folder / "forbid.yaml").write_text(json.dumps({"rules": FORBIDS}))
    (folder / "p.cedar").write_text(CEDAR)
    (folder / "e.json").write_text(json.dumps(ENTITIES))
    (folder / "rows.json").write_text(json.dumps(ROWS))
    (folder / "keys.json").write_text(json.dumps({"keys": [jwk()]}))
    grants = [
        {"principal": RC, "privilege": "role_creator", "object": "project:p2"},
        {"principal": ADMIN, "privilege": "operator", "object": "server"},
    ]
    objects = ["project:p1", "project:p2", {"object": "warehouse:lake", "parent": "project:p1"}]
    (folder / "seed.json").write_text(json.dumps({"objects": objects, "grants": grants}))
    provider = {"issuer": "https://idp.example", "jwks": "keys.json", "audiences": ["pdp"], "role_map": {"a": "mapped"}}
    local = {"loopback": True, "may_write": True, "may_assert": ["principals", "roles", "groups"]}
    engines = ["cel", "cedar", "grants"]
    shadow = {"next": {"engines": engines, "mode": "report"}}
    return {
        "warehouses": {"lake": {"project": "p1", "default_ref": "main"}},
        "authorities": {"default": {"engines": ["grants"]}, **shadow} if report else {"default": {"engines": engines}},
        "identity": {"providers": {"oidc": provider}, "callers": {"local": local}},
        "trino": {"catalogs": {"lk": {"warehouse": "lake"}}, "groups": {"g": "grouped"}},
        "policies": {
            "rules": ["rules.yaml"], "forbid": ["forbid.yaml"], "row_access": ["rows.json"],
            "cedar": {"policies": ["p.cedar"], "entities": ["e.json"]},
        },
        "store": {"url": f"sqlite:///{folder}/pdp.db", "seed": "seed.json"},
    }  # fmt: skip


async def _register(client: HttpClient, role: str, actor: str = RC) -> int:
    put = [{"object": f"role:{role}", "parent": "project:p2"}]
    status, answer = await client.post("/v1/objects", {"actor": actor, "put": put})
    assert status == 200 or f"lacks change_ownership on role:{role}" in answer["error"]["message"], answer
    return status


@pytest.mark.parametrize("report", [False, True])
async def test_a_creator_of_roles_takes_no_name_that_policies_know(tmp_path: Path, report: bool) -> None:
    async with client_of(settings_of(_config(tmp_path, report=report), tmp_path)) as client:
        assert (await client.post("/v1/row-access-policies", STORED))[0] == 200
        assert [role for role in NAMED if await _register(client, role) != 403] == []
        assert [role for role in PLAIN if await _register(client, role) != 200] == []
        for role in NAMED:
            assert await _register(client, role, ADMIN) == 200
        owned = (await client.send("GET", f"/v1/grants?object=role:{NAMED[0]}")).json()["grants"]
        assert [(grant["principal"], grant["privilege"]) for grant in owned] == [(ADMIN, "ownership")]


async def test_policies_that_come_later_guard_the_names_from_then_on(tmp_path: Path) -> None:
    config = _config(tmp_path)
    async with client_of(settings_of(config, tmp_path)) as client:
        assert await _register(client, "early") == 200
        (tmp_path / "rules.yaml").write_text(json.dumps({"rules": {"later": "'early' in roles || 'late' in roles"}}))
        settings = settings_of(config, tmp_path)
        client.service.pdp.bundle = build_bundle(settings, *read_rules(settings))
        assert [await _register(client, role) for role in ("late", "early", "cel1")] == [403, 200, 200]
