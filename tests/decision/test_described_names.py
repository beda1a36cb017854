"""A forbid of Cedar on an attribute binds an object that an entity file describes in another case, where names fold."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from support.clients.http_client import HttpClient, client_of
from support.generators.generated_pdps import decide
from support.paths import TESTS
from support.service.serving import settings_of

from pdp.app.facts import build_pdp
from pdp.decision.service import Pdp
from pdp.offline.cases.cases import Case
from pdp.offline.cases.runner import MemoryAudit, build_case_pdp

PAT = "user:oidc~pat"
DESCRIBED = ["HR/Prot", "hr/prot", "Top/HR/Prot", "top/hr/Prot", "STRASSE/t"]
TABLE = "resource is Lakekeeper::Table && resource.protected"
ABOVE = "resource is Lakekeeper::Table && resource.namespace.protected"
NAMESPACE = "resource is Lakekeeper::Namespace && resource.protected"
RULES = {TABLE: "Table", ABOVE: "Namespace", NAMESPACE: "Namespace"}
CONFIG: dict[str, Any] = {
    "warehouses": {"lake": {"project": "p"}, "other": {"project": "p"}},
    "trino": {"catalogs": {"lk": {"warehouse": "lake"}}},
    "authorities": {"default": {"engines": ["cedar", "grants"]}},
}
WORLD = {
    "objects": ["project:p", *({"object": f"warehouse:{name}", "parent": "project:p"} for name in ("lake", "other"))],
    "grants": [{"principal": PAT, "privilege": "ownership", "object": f"warehouse:{one}"} for one in ("lake", "other")],
}


def entity(type: str, path: str, warehouse: str = "lake") -> dict[str, Any]:
    return {
        "uid": {"type": f"Lakekeeper::{type}", "id": f"{warehouse}/{path}"},
        "attrs": {"protected": True},
        "parents": [],
    }


def pdp_of(condition: str, described: list[dict[str, Any]]) -> Pdp:
    """Return a service with one forbid and described objects, and warehouses that Pat owns."""
    policies = f'@id("f") forbid(principal, action, resource) when {{ {condition} }};'
    data = {"config": CONFIG, "world": WORLD, "cedar": {"policies": policies, "entities": described}}
    return build_case_pdp(Case("generated", TESTS, data), build_pdp, MemoryAudit())[0]


def spellings(path: str) -> list[str]:
    return list(dict.fromkeys((path, path.lower(), path.upper(), path.title(), path.swapcase())))


@pytest.mark.parametrize(("path", "condition"), list(product(DESCRIBED, RULES)))
def test_each_spelling_of_a_described_object_is_bound(path: str, condition: str) -> None:
    type = RULES[condition]
    *container, _ = path.split("/")
    at = path if type == "Table" else "/".join(container)
    described = [entity(type, at), entity(type, at, "other")]
    pdp = pdp_of(condition, described)
    below = "namespace:{}/{}" if condition == NAMESPACE else "table:{}/{}"
    named = "/".join(container) if condition == NAMESPACE else path
    action = "get_metadata" if condition == NAMESPACE else "read_data"

    def asked(warehouse: str, names: list[str]) -> list[bool]:
        every = [{"principal": PAT, "action": action, "resource": below.format(warehouse, name)} for name in names]
        singles = [bool(decide(pdp, [check]).allowed[0]) for check in every]
        many = {"principal": PAT, "action": action, "resources": [check["resource"] for check in every]}
        assert list(map(bool, decide(pdp, [many]).allowed)) == singles
        return singles

    def is_described(name: str) -> bool:
        return at in (name, name.rpartition("/")[0] if condition == ABOVE else name)

    names = spellings(named)
    assert asked("lake", names) == [False] * len(names)
    assert asked("other", names) == [not is_described(name) for name in names]
    free = [f"x{name}" for name in names]
    assert asked("lake", free) == [True] * len(free)


async def test_each_door_binds_a_described_object(tmp_path: Path) -> None:
    (tmp_path / "p.cedar").write_text(
        f"permit(principal, action, resource); forbid(principal, action, resource) when {{ {TABLE} }};"
    )
    (tmp_path / "e.json").write_text(json.dumps([entity("Table", "HR/Prot")]))
    (tmp_path / "world.yaml").write_text(json.dumps(WORLD))
    policies = {"rules": [], "cedar": {"policies": ["p.cedar"], "entities": ["e.json"]}}
    config = {**CONFIG, "policies": policies, "store": {"url": "file:world.yaml"}}

    async def answers(client: HttpClient, schema: str, table: str) -> list[bool]:
        name, found = f"lake/{schema}/{table}", []
        named = {"subject": {"type": "user", "id": "oidc~pat"}, "action": {"name": "read_data"}}
        bodies = {
            "/v1/check": {"checks": [{"principal": PAT, "action": "read_data", "resource": f"table:{name}"}]},
            "/v1/load": {"principal": PAT, "action": "loadTable", "target": f"table:{name}"},
            "/access/v1/evaluation": {**named, "resource": {"type": "table", "id": name}},
        }
        for path, body in bodies.items():
            _, answer = await client.post(path, body)
            answer = answer["decisions"][0] if "decisions" in answer else answer
            found.append(bool(answer.get("allowed", answer.get("decision"))))
        return found

    async with client_of(settings_of(config, tmp_path)) as client:
        for schema, table in (("HR", "Prot"), ("hr", "prot"), ("Hr", "PROT")):
            assert await answers(client, schema, table) == [False] * 3
        assert await answers(client, "hr", "free") == [True] * 3
