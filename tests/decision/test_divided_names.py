"""What is made or moved has a name that dots may divide otherwise: forbids bind each division, as for what stands there."""

from __future__ import annotations

from typing import Any

import pytest
from support.generators.generated_pdps import decide
from support.paths import TESTS

from pdp.app.facts import build_pdp
from pdp.decision.service import Pdp
from pdp.offline.cases.cases import Case
from pdp.offline.cases.runner import MemoryAudit, build_case_pdp

PAT = "user:oidc~pat"
CEL = ["path == 'hr' || path.startsWith('hr.')", "op == 'CREATE_ENTITY' && path.startsWith('hr.')"]
CEDAR = ['forbid(principal, action, resource in Lakekeeper::Namespace::"lake/hr");']
INSIDE = ["hr/x", "hr.x", "HR.x", "Hr/x", "hr/x/y", "hr.x/y", "hr/x.y", "hr.x.y", "HR.x/Y"]
OUTSIDE = ["own", "hrx", "own/hr", "own.x", "own/hr.x", "h/r.x"]
MAKING = ["create_namespace", "create_table", "create_view", "create_generic_table"]


def pdp_of(rule: str) -> Pdp:
    """Return a service with one forbid, of CEL or Cedar, and a warehouse that Pat owns."""
    data: dict[str, Any] = {
        "config": {
            "warehouses": {"lake": {"default_ref": "main", "project": "p"}},
            "trino": {"catalogs": {"lakehouse": {"warehouse": "lake", "ref": "main"}}},
            "authorities": {"default": {"engines": ["cedar", "grants"] if rule in CEDAR else ["grants"]}},
        },
        "world": {
            "objects": ["project:p", {"object": "warehouse:lake", "parent": "project:p"}, "table:lake/gs/t"],
            "grants": [{"principal": PAT, "privilege": "ownership", "object": "warehouse:lake"}],
        },
        **({"cedar": {"policies": f'@id("f") {rule}'}} if rule in CEDAR else {"forbid": {"f": rule}}),
    }
    return build_case_pdp(Case("generated", TESTS, data), build_pdp, MemoryAudit())[0]


def is_allowed(pdp: Pdp, check: dict[str, Any]) -> bool:
    return bool(decide(pdp, [check]).allowed[0])


def make(action: str, path: str) -> dict[str, Any] | None:
    """Return the check that makes an object at a path, as a catalog asks it; None where nothing stands."""
    container, _, name = path.rpartition("/")
    if not container and action != "create_namespace":
        return None
    resource = f"namespace:lake/{container}" if container else "warehouse:lake"
    context = {"arguments": {"name": name}}
    return {"principal": PAT, "action": action, "resource": resource, "context": context}


def carry(action: str, path: str) -> dict[str, Any]:
    context = {"arguments": {"destination": f"table:lake/{path}/t"}}
    return {"principal": PAT, "action": action, "resource": "table:lake/gs/t", "context": context}


@pytest.mark.parametrize("rule", [*CEL, *CEDAR])
@pytest.mark.parametrize("action", MAKING)
def test_a_forbid_binds_what_is_made_however_its_name_is_divided(rule: str, action: str) -> None:
    pdp = pdp_of(rule)
    for path in [*INSIDE, *(f"{name}/t" for name in INSIDE)]:
        if check := make(action, path):
            assert not is_allowed(pdp, check), path
    for path in [*OUTSIDE, *(f"{name}/t" for name in OUTSIDE)]:
        if check := make(action, path):
            assert is_allowed(pdp, check), path


@pytest.mark.parametrize("rule", [*CEL, *CEDAR])
@pytest.mark.parametrize("action", ["move", "rename"])
def test_a_forbid_binds_what_is_moved_however_its_target_is_divided(rule: str, action: str) -> None:
    pdp = pdp_of(rule)
    for path in INSIDE:
        assert not is_allowed(pdp, carry(action, path)), path
    for path in OUTSIDE:
        assert is_allowed(pdp, carry(action, path)), path


def test_a_name_that_forbids_may_spell_in_too_many_ways_is_denied() -> None:
    """Long names: such that meet no text of the forbid, or meet it once, nearly everywhere, or in too many parts."""
    pdp = pdp_of("path.contains('pii')")
    permitted_by = {
        "qIi" * 1300: True,
        "pIi" * 1300: False,
        "PII" + "a" * 4000: False,
        "a." * 200: True,
        "a." * 300: False,
    }
    for name, permitted in permitted_by.items():
        check = {"principal": PAT, "action": "read_data", "resource": f"table:lake/own/{name}"}
        assert is_allowed(pdp, check) == permitted
