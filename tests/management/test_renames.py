"""Rights of renames, whoever is asked: a check, Trino, or the report of a catalog."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.clients.http_client import HttpClient, client_of
from support.service.serving import settings_of

TYPES = {"table": "RenameTable", "view": "RenameView", "namespace": "RenameSchema", "generic_table": "", "dataset": ""}
"""Type -> the operation of Trino that renames it."""
OWN = ((), ("modify",), ("ownership",), ("modify", "manage_grants"), ("manage_grants",))
"""Privileges on the object that is renamed."""
THERE = ((), ("create",), ("create", "manage_grants"), ("manage_grants",))
"""Privileges on the new container."""
PLACES = {"free": False, "closed": True, "other": False, "shut": True}
"""Namespace -> its managed access. The first two hold the objects."""


class Rename(NamedTuple):
    """An object, its new name, and what the actor holds on the object and on the new container."""

    type: str
    source: str
    target: str
    own: Sequence[str]
    there: Sequence[str]

    @property
    def principal(self) -> str:
        return f"oidc~{'+'.join(self.own) or 'none'}.{'+'.join(self.there) or 'none'}.{self.target}"

    def reference(self, namespace: str, name: str = "x") -> str:
        return f"{self.type}:lake/{namespace}/{name}"

    def wanted(self, action: str) -> bool:
        """Return the plain answer: what `rename` needs in place, and `move` and acceptance elsewhere.

        A `rename` out of a container without managed access needs no right to manage grants.
        """
        modify = not {"modify", "ownership"}.isdisjoint(self.own)
        manage = "manage_grants" in self.own or ("ownership" in self.own and not PLACES[self.source])
        # whoever manages the grants of a container manages those of all that is in it
        manage |= self.source == self.target and "manage_grants" in self.there
        if "create" not in self.there or not modify:
            return False
        if self.source == self.target:
            return manage if self.type == "namespace" else True
        may_leave = manage or (action == "rename" and self.type != "namespace" and not PLACES[self.source])
        return may_leave and (not PLACES[self.target] or "manage_grants" in self.there)


RENAMES = [
    Rename(*each)
    for each in product(TYPES, ("free", "closed"), PLACES, OWN, THERE)
    if each[1] == each[2] or each[2] in ("other", "shut")
]


def world() -> dict[str, Any]:
    """Return all objects, and the grants of an actor for each rename."""
    objects: list[Any] = ["project:p", {"object": "warehouse:lake", "parent": "project:p"}]
    objects += [{"object": f"namespace:lake/{name}", "managedAccess": managed} for name, managed in PLACES.items()]
    objects += [f"{type}:lake/{name}/{type}" for type in TYPES for name in ("free", "closed")]
    grants: dict[tuple[str, str, str], None] = {}
    for each in RENAMES:
        source, _ = ends(each)
        grants |= {(each.principal, privilege, source): None for privilege in each.own}
        grants |= {(each.principal, privilege, f"namespace:lake/{each.target}"): None for privilege in each.there}
    listed = [{"principal": f"user:{who}", "privilege": what, "object": name} for who, what, name in grants]
    return {"objects": objects, "grants": listed}


def ends(rename: Rename) -> tuple[str, str]:
    """Return both names: objects are named by their type, so that no two of a container share a name."""
    new = "new" if rename.source == rename.target else rename.type
    return rename.reference(rename.source, rename.type), rename.reference(rename.target, new)


def asked(rename: Rename, action: str) -> dict[str, Any]:
    """Return a check with the new name."""
    source, target = ends(rename)
    context = {"arguments": {"destination": target}}
    return {"principal": f"user:{rename.principal}", "action": action, "resource": source, "context": context}


async def checked(client: HttpClient, action: str) -> list[bool]:
    """Return the answers to the checks of all renames."""
    status, answer = await client.post("/v1/check", {"checks": [asked(rename, action) for rename in RENAMES]})
    assert status == 200, answer
    return [decision["allowed"] for decision in answer["decisions"]]


def trino_resource(type: str, reference: str) -> Mapping[str, Any]:
    _, namespace, name = reference.split("/")
    if type == "namespace":
        return {"schema": {"catalogName": "lakehouse", "schemaName": f"{namespace}.{name}"}}
    return {"table": {"catalogName": "lakehouse", "schemaName": namespace, "tableName": name}}


async def trino(client: HttpClient, rename: Rename) -> bool:
    source, target = (trino_resource(rename.type, each) for each in ends(rename))
    action = {"operation": TYPES[rename.type], "resource": source, "targetResource": target}
    identity = {"user": rename.principal.removeprefix("oidc~"), "groups": []}
    body = {"input": {"context": {"identity": identity, "softwareStack": {"trinoVersion": "476"}}, "action": action}}
    status, answer = await client.post("/v1/data/trino/allow", body)
    assert status == 200, answer
    allowed: bool = answer["result"]
    return allowed


async def reported(client: HttpClient, rename: Rename) -> bool:
    """Report the move, and take it back."""
    source, target = ends(rename)
    move = {"move": [{"from": source, "to": target}]}
    status, answer = await client.post("/v1/objects", {**move, "actor": f"user:{rename.principal}"})
    assert status in (200, 403), answer
    if status == 200:
        assert (await client.post("/v1/objects", {"move": [{"from": target, "to": source}]}))[0] == 200
    return status == 200


async def test_a_rename_needs_the_same_rights_on_every_surface(tmp_path: Path) -> None:
    config = {
        "authorities": {"default": {"engines": ["grants"]}},
        "store": {"seed": "world.json"},
        "trino": {"catalogs": {"lakehouse": {"warehouse": "lake", "ref": "main"}}},
    }
    wrong = []
    (tmp_path / "world.json").write_text(json.dumps(world()))
    async with client_of(settings_of(config, tmp_path)) as client:
        by_check = {action: await checked(client, action) for action in ("rename", "move")}
        for at, rename in enumerate(RENAMES):
            answers = {action: found[at] for action, found in by_check.items()}
            wanted = {action: rename.wanted(action) for action in answers}
            if rename.type == "namespace":
                del answers["rename"]  # which catalogs do not ask of a namespace
            elif rename.source == rename.target:
                del answers["move"]
            if TYPES[rename.type]:
                answers["trino"], wanted["trino"] = await trino(client, rename), wanted["rename"]
            answers["objects"], wanted["objects"] = await reported(client, rename), wanted["move"]
            if any(wanted[one] != answer for one, answer in answers.items()):
                wrong.append((rename, wanted, answers))
    assert not wrong, (len(wrong), wrong[:8])


PROTECTED_ROWS = {"policies": [
    {"id": "eu", "table": "lake.safe.m", "grantees": ["user:ann"], "filter": "region = 'EU'"},
    {"id": "all", "table": "lake.safe.m", "grantees": ["user:bot"], "filter": "TRUE"},
    {"id": "none", "table": "lake.safe.shut", "grantees": ["user:ann"], "filter": "TRUE"},
]}  # fmt: skip


@pytest.mark.parametrize(
    ("source", "target", "may"),
    [
        ("safe/m__tmp", "safe/m", {"bot"}), ("safe/m", "safe/m__backup", {"bot"}), ("free/m__tmp", "safe/m", {"bot", "ann"}),
        ("safe/m__tmp", "safe/other", set()), ("safe/m__tmp", "safe/shut", {"ann"}), ("safe/m__tmp", "free/m", set()),
        ("safe/m", "safe/shut", {"bot"}), ("safe/shut", "safe/m", {"ann"}), ("safe/m__tmp", "safe/M", {"bot"}),
    ],
)  # fmt: skip
async def test_a_copy_in_a_protected_container_takes_a_name_whose_policies_show_all(
    source: str, target: str, may: set[str], tmp_path: Path
) -> None:
    """As dbt swaps tables: nobody sees rows of the copy, and who sees all under the name may put the copy there."""
    world = {"objects": ["warehouse:lake"], "grants": [{"principal": f"user:oidc~{who}", "privilege": "ownership", "object": "warehouse:lake"} for who in ("bot", "ann")]}  # fmt: skip
    (tmp_path / "world.json").write_text(json.dumps(world))
    (tmp_path / "rows.json").write_text(json.dumps(PROTECTED_ROWS))
    config = {
        "warehouses": {"lake": {}}, "store": {"url": "file:world.json"}, "authorities": {"default": {"engines": ["grants"]}},
        "policies": {"rules": [], "row_access": ["rows.json"]}, "row_access": {"protected": ["namespace:lake/safe"]},
        "trino": {"catalogs": {"lake": {"warehouse": "lake"}}, "user_prefix": "oidc~"},
    }  # fmt: skip
    async with client_of(settings_of(config, tmp_path)) as client:
        for who in ("bot", "ann"):
            check = {"principal": f"user:oidc~{who}", "action": "rename", "resource": f"table:lake/{source}", "context": {"arguments": {"destination": f"table:lake/{target}"}}}  # fmt: skip
            _, answer = await client.check(check)
            assert answer["decisions"][0]["allowed"] == (who in may), (who, answer)
            ends = [{"table": {"catalogName": "lake", "schemaName": path.split("/")[0], "tableName": path.split("/")[1].lower()}} for path in (source, target)]  # fmt: skip
            action = {"operation": "RenameTable", "resource": ends[0], "targetResource": ends[1]}
            body = {"input": {"context": {"identity": {"user": who, "groups": []}}, "action": action}}
            assert (await client.post("/v1/data/trino/allow", body))[1]["result"] == (who in may), who
