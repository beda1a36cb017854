"""Forbids and storage access of loads: a check that only a forbid concerns gives nobody storage."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from support.clients.http_client import HttpClient, client_of
from support.service.serving import settings_of

ANN = "user:oidc~ann"
PRIVILEGES = {"describe": "none", "select": "read", "modify": "read_write", "ownership": "read_write"}
"""Privilege on a table -> storage access of a load."""


@asynccontextmanager
async def serving(rules: dict[str, str], folder: Path, grants: Sequence[Any], **more: Any) -> AsyncIterator[HttpClient]:
    (folder / "forbid.yaml").write_text(json.dumps({"rules": rules}))
    objects = ["project:p", {"object": "warehouse:lake", "parent": "project:p"}]
    objects += [{"object": f"role:{name}", "parent": "project:p"} for name in PRIVILEGES]
    (folder / "seed.json").write_text(json.dumps({"objects": objects, "grants": list(grants)}))
    config = {
        "warehouses": {"lake": {"default_ref": "main"}},
        "authorities": {"default": {"engines": ["grants"]}},
        "policies": {"rules": [], "forbid": ["forbid.yaml"]},
        "store": {"url": f"sqlite:///{folder}/pdp.db", "seed": "seed.json"},
    }
    async with client_of(settings_of(config | more, folder)) as http:
        yield http


async def load(http: HttpClient, target: str, **more: Any) -> dict[str, Any]:
    body = {"principal": ANN, "target": target, "action": "loadTable"} | more
    status, answer = await http.post("/v1/load", body)
    assert status == 200, answer
    return answer


def as_role(role: str) -> list[dict[str, str]]:
    return [
        {"principal": ANN, "privilege": "assignee", "object": f"role:{role}"},
        {"principal": f"role:{role}", "privilege": role, "object": "warehouse:lake"},
    ]


async def test_an_acting_role_gets_the_storage_that_the_role_may_access(tmp_path: Path) -> None:
    """Each check is asked once more about the person, and permits unless a forbid binds."""
    grants = [grant for role in PRIVILEGES for grant in as_role(role)]
    reads, writes = (
        f"op == '{op}' && path == 's.t' && 'no' in groups" for op in ("READ_ENTITY_VALUE", "UPDATE_ENTITY")
    )
    async with serving({"r": f"action == 'read_data' && {reads}", "w": writes}, tmp_path, grants) as http:
        for role, storage in PRIVILEGES.items():
            for action in ("loadTable", "loadCredentials"):
                found = await load(http, "table:lake/s/t", action=action, actingRole=f"role:{role}")
                assert (found["storageAccess"], found["allowed"]) == (
                    storage,
                    action == "loadTable" or storage != "none",
                )
            shut = {"id": ANN, "groups": ["no"]}
            found = await load(http, "table:lake/s/t", principal=shut, actingRole=f"role:{role}")
            assert (found["storageAccess"], found["allowed"]) == ("none", True), role
