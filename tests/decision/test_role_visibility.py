"""Memberships in traces of rules: nobody sees a role there that `GET /v1/grants` refuses to list."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.authentication import oidc
from support.clients.http_client import HttpClient, client_of
from support.servers.idp import provider, token
from support.service.serving import settings_of

from pdp.cel.unparse import unparse_value
from pdp.decision.inspection import GrantVisibility
from pdp.decision.turns import finish
from pdp.model.answer import Trace

ALICE, BOB = "user:oidc~alice", "user:oidc~bob"
MINE = "table:lake/s/mine"
WORLD = {
    "objects": [
        "project:p1", "project:p2", {"object": "warehouse:lake", "parent": "project:p1"},
        {"object": "role:analyst", "parent": "project:p1"}, {"object": "role:hidden-p2", "parent": "project:p2"},
        {"object": "role:nested-p2", "parent": "project:p2"},
    ],
    "grants": [
        {"principal": ALICE, "privilege": "ownership", "object": MINE},
        *({"principal": who, "privilege": "assignee", "object": f"role:{role}"}
          for who in (ALICE, BOB) for role in ("analyst", "hidden-p2")),
        {"principal": "role:hidden-p2", "privilege": "assignee", "object": "role:nested-p2"},
    ],
}  # fmt: skip
RULES = [
    "'banned' in roles && path != ''",
    "path == 's.mine' && roles.exists(r, r == 'banned')",
    "size(roles) > 100",
    "!(roles.all(r, r != 'banned'))",
]


@asynccontextmanager
async def users(folder: Path, rule: str, engines: list[str]) -> AsyncIterator[HttpClient]:
    """Serve the world with a rule that reads roles to users who assert nothing."""
    (folder / "world.json").write_text(json.dumps(WORLD))
    (folder / "rules.yaml").write_text(json.dumps({"rules": {"one": rule}}))
    async with provider() as idp:
        config = {
            "warehouses": {"lake": {"default_ref": "main"}},
            "authorities": {"default": {"engines": engines}},
            "policies": {"rules": ["rules.yaml"] if "cel" in engines else [], "forbid": ["rules.yaml"]},
            "store": {"url": "file:world.json"},
            "identity": {"providers": {"oidc": oidc(idp)}, "cel_roles": "all"},
        }
        async with client_of(settings_of(config, folder)) as client:
            yield client


async def explained(client: HttpClient, principal: str) -> str:
    """Return all that an answer to the owner of the table says."""
    check = {"principal": principal, "action": "read_data", "resource": MINE}
    headers = {"Authorization": f"Bearer {token(sub='alice')}"}
    answer = await client.send("POST", "/v1/check", {"checks": [check], "explain": True}, headers)
    (decision,) = answer.json()["decisions"]
    assert "trace" in decision
    return json.dumps(decision)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("engines", [["grants"], ["cel", "grants"]])
async def test_a_trace_names_no_role_that_may_not_be_listed(tmp_path: Path, rule: str, engines: list[str]) -> None:
    async with users(tmp_path, rule, engines) as client:
        headers = {"Authorization": f"Bearer {token(sub='alice')}"}
        for role, status in (("analyst", 200), ("hidden-p2", 403), ("nested-p2", 403)):
            assert (await client.send("GET", f"/v1/grants?object=role:{role}", headers=headers)).status == status
        said = await explained(client, BOB)
        assert not [role for role in ("hidden-p2", "nested-p2") if role in said], said
        assert "hidden-p2" in await explained(client, ALICE), "one sees the own roles"


VALUES: list[list[Any]] = [
    [], ["a"], ["a", "b"], ["b"], ["it's", "a"], ['x"y', "b]"], ["a, 'b'", "b"], ["\u2028", "a"], ["back\\slash'", "b"],
]  # fmt: skip


@pytest.mark.parametrize("roles", VALUES)
@pytest.mark.parametrize("name", ["roles", "roles by any evidence"])
@pytest.mark.parametrize("end", ["", ", path is 's.t'", ")"])
def test_a_list_of_roles_keeps_those_that_may_be_listed(roles: list[str], name: str, end: str) -> None:
    visibility = GrantVisibility("user:x", lambda key: key == ("role", ("a",)))
    given = Trace("rule x", "true", f"op is 'X', {name} is {unparse_value(roles)}{end}")
    kept = [unparse_value("a")] * ("a" in roles) + ["..."] * (roles not in ([], ["a"]))
    assert finish(visibility.trace(given)).why == f"op is 'X', {name} is [{', '.join(kept)}]{end}"


@pytest.mark.parametrize("cut", range(1, 30))
def test_nothing_is_shown_of_a_list_that_is_cut(cut: int) -> None:
    visibility = GrantVisibility("user:x", lambda key: key == ("role", ("a",)))
    text = unparse_value(["hidden", "secret", "also it's hidden"])
    said = finish(visibility.trace(Trace("rule x", "true", f"roles is {text[:cut]}..."))).why
    assert said == "roles is not shown"
