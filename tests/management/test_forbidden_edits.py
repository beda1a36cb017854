"""Edits of objects that policies deny to the actor: as a check of the same action, whatever grants say."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.clients.http_client import HttpClient, client_of
from support.generators.generated_pdps import make_pdp
from support.service.serving import settings_of

from pdp.identity.callers import EMBEDDED_CALLER
from pdp.management.forbidden_edits import denials, unforbidden
from pdp.management.requests import Requester
from pdp.model.references import parse_principal, parse_resource

OWNER, READER, ROOT = "user:oidc~own", "user:oidc~rest", "user:oidc~root"
RULES = {
    "keep": "op == 'DELETE_ENTITY' && path.startsWith('sales.keep')",
    "reserved": "op == 'CREATE_ENTITY' && path == 'sales.reserved'",
    "broken": "op == 'CREATE_ENTITY' && path == 'other.broken' && roles[5] == 'x'",
}
ROWS = {
    "default": ["lake", "rls"],
    "policies": [{"id": "eu_only", "table": "orders", "grantees": ["user:rest"], "filter": "region = 'EU'"}],
}
OBJECTS = [
    "project:p",
    {"object": "warehouse:lake", "parent": "project:p"},
    *(f"namespace:lake/{name}" for name in ("sales", "rls", "other")),
    *(f"table:lake/{name}" for name in ("sales/keep", "sales/free", "rls/orders", "rls/open")),
]


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[HttpClient]:
    (tmp_path / "forbid.yaml").write_text(json.dumps({"rules": RULES}))
    (tmp_path / "rows.yaml").write_text(json.dumps(ROWS))
    config = {
        "warehouses": {"lake": {"project": "p", "default_ref": "main"}},
        "policies": {"rules": [], "forbid": ["forbid.yaml"], "row_access": ["rows.yaml"]},
        "store": {"url": f"sqlite:///{tmp_path}/pdp.db"},
        "identity": {"instance_admins": [ROOT]},
    }
    async with client_of(settings_of(config, tmp_path)) as http:
        assert (await http.post("/v1/objects", {"put": OBJECTS}))[0] == 200
        grants = [
            {"principal": who, "privilege": "ownership", "object": "namespace:lake/" + name}
            for who in (OWNER, READER)
            for name in ("sales", "rls", "other")
        ]
        assert (await http.post("/v1/grants", {"add": grants}))[0] == 200
        yield http


EDITS: list[tuple[str, dict[str, Any], str]] = [
    (OWNER, {"delete": ["table:lake/sales/keep"]}, "cel:keep"),
    (OWNER, {"delete": ["namespace:lake/sales"]}, "cel:keep"),
    (OWNER, {"move": [{"from": "table:lake/sales/keep", "to": "table:lake/sales/kept"}]}, "cel:keep"),
    (OWNER, {"move": [{"from": "table:lake/sales/keep", "to": "table:lake/other/kept"}]}, "cel:keep"),
    (OWNER, {"delete": ["table:lake/sales/free", "table:lake/sales/keep"]}, "cel:keep"),
    (OWNER, {"put": ["table:lake/sales/reserved"]}, "cel:reserved"),
    (ROOT, {"delete": ["table:lake/sales/keep"]}, "cel:keep"),
    (ROOT, {"move": [{"from": "namespace:lake/sales", "to": "namespace:lake/moved"}]}, "cel:keep"),
    (ROOT, {"move": [{"from": "namespace:lake/other", "to": "namespace:lake/moved"}]}, ""),
    (OWNER, {"move": [{"from": "table:lake/sales/free", "to": "table:lake/other/broken"}]}, "cel:broken"),
    (READER, {"move": [{"from": "table:lake/rls/orders", "to": "table:lake/rls/o9"}]}, "row_access"),
    (READER, {"move": [{"from": "table:lake/rls/orders", "to": "table:lake/other/orders"}]}, "row_access"),
    (READER, {"move": [{"from": "table:lake/rls/open", "to": "table:lake/rls/free"}]}, ""),
    (OWNER, {"delete": ["table:lake/sales/free"]}, ""),
    (OWNER, {"move": [{"from": "table:lake/sales/free", "to": "table:lake/other/free"}]}, ""),
    (OWNER, {"put": ["table:lake/sales/new"]}, ""),
    (OWNER, {"put": [{"object": "namespace:lake/sales", "managedAccess": True}]}, ""),
    ("", {"delete": ["table:lake/sales/keep"]}, ""),
]
"""Actor, edits, and a part of the reason for a refusal; an empty reason for what is done. Without an actor the caller
writes as the operator."""


@pytest.mark.parametrize(("actor", "edits", "reason"), EDITS)
async def test_policies_deny_edits_of_objects(
    client: HttpClient, actor: str, edits: dict[str, Any], reason: str
) -> None:
    status, answer = await client.post("/v1/objects", edits | ({"actor": actor} if actor else {}))
    if not reason:
        assert status == 200, answer
        return
    assert (status, answer["error"]["code"]) == (403, "forbidden")
    assert reason in answer["error"]["message"]


async def test_rights_are_asked_before_policies(client: HttpClient) -> None:
    """An actor without rights learns nothing about policies, and costs no question about what is below."""
    body = {"actor": "user:oidc~nobody", "delete": ["namespace:lake/sales"]}
    status, answer = await client.post("/v1/objects", body)
    assert status == 403
    assert "lacks delete on namespace:lake/sales" in answer["error"]["message"]


async def test_more_objects_than_policies_are_asked_about_are_refused(
    client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pdp.management.forbidden_edits.MOST_QUESTIONS", 2)
    body = {"delete": ["namespace:lake/rls"]}
    status, answer = await client.post("/v1/objects", body | {"actor": OWNER})
    assert (status, answer["error"]["code"]) == (400, "invalid_argument")
    assert "more than 2 objects" in answer["error"]["message"]
    assert (await client.post("/v1/objects", body))[0] == 200, "the operator is not judged"


@pytest.mark.parametrize("actor", [None, "user:oidc~ann"])
async def test_each_question_has_an_answer(actor: str | None) -> None:
    """An answer that is missing would read as not denied."""
    pdp = make_pdp({}, {}, forbid={"no": "path == 'n.t'"})
    requester = Requester(EMBEDDED_CALLER, parse_principal(actor) if actor else None)
    questions = [("drop", parse_resource(f"table:w/n/{name}@main")) for name in "tut"]
    denied = "cel:no" if actor else None
    assert list(await denials(pdp, requester, questions)) == [denied, None, denied]
    assert list(await denials(pdp, requester, [])) == []
    keys = [("table", ("w", "n", name)) for name in "tu"]
    assert await unforbidden(pdp, requester, "drop", keys) == frozenset(keys[1:] if actor else keys)


GRANTED = "user:oidc~friend"


async def test_a_forbid_on_a_grant_binds_grants_that_include_it_and_no_removal(tmp_path: Path) -> None:
    rules = {"no_select": "action == 'grant_select' && path == 'sales.free'", "no_member": "action == 'grant_assignee'"}
    (tmp_path / "forbid.yaml").write_text(json.dumps({"rules": rules}))
    config = {
        "warehouses": {"lake": {"project": "p", "default_ref": "main"}},
        "policies": {"rules": [], "forbid": ["forbid.yaml"]},
        "store": {"url": f"sqlite:///{tmp_path}/pdp.db"},
        "identity": {"instance_admins": [ROOT]},
    }
    async with client_of(settings_of(config, tmp_path)) as http:
        roles = [{"object": "role:r", "parent": "project:p"}]
        assert (await http.post("/v1/objects", {"put": [*OBJECTS, *roles]}))[0] == 200
        for object, privileges in (
            ("table:lake/sales/free", "ownership modify select describe"),
            ("role:r", "ownership assignee"),
        ):
            for privilege in privileges.split():
                grant = {"principal": GRANTED, "privilege": privilege, "object": object}
                status, answer = await http.post("/v1/grants", {"actor": ROOT, "add": [grant]})
                assert status == (200 if privilege == "describe" else 403), (grant, answer)
                assert (await http.post("/v1/grants", {"add": [grant]}))[0] == 200
                if object.startswith("table"):
                    assert (await http.post("/v1/grants", {"actor": ROOT, "remove": [grant]}))[0] == 200, grant
