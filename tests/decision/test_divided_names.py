"""What is made or moved has a name that dots may divide otherwise: forbids bind each division, as for what stands there."""

from __future__ import annotations

import pytest
from decision.test_moved_content import PAT, ask, pdp_of

CEL = ["path == 'hr' || path.startsWith('hr.')", "op == 'CREATE_ENTITY' && path.startsWith('hr.')"]
CEDAR = ['forbid(principal, action, resource in Lakekeeper::Namespace::"lake/hr");']
INSIDE = ["hr/x", "hr.x", "HR.x", "Hr/x", "hr/x/y", "hr.x/y", "hr/x.y", "hr.x.y", "HR.x/Y"]
OUTSIDE = ["own", "hrx", "own/hr", "own.x", "own/hr.x", "h/r.x"]
MAKING = ["create_namespace", "create_table", "create_view", "create_generic_table"]


def make(action: str, path: str) -> dict[str, object] | None:
    """Return the check that makes an object at a path, as a catalog asks it; None where nothing stands."""
    container, _, name = path.rpartition("/")
    if not container and action != "create_namespace":
        return None
    resource = f"namespace:lake/{container}" if container else "warehouse:lake"
    context = {"arguments": {"name": name}}
    return {"principal": PAT, "action": action, "resource": resource, "context": context}


def carry(action: str, path: str) -> dict[str, object]:
    context = {"arguments": {"destination": f"table:lake/{path}/t"}}
    return {"principal": PAT, "action": action, "resource": "table:lake/gs/t", "context": context}


@pytest.mark.parametrize("rule", [*CEL, *CEDAR])
@pytest.mark.parametrize("action", MAKING)
def test_a_forbid_binds_what_is_made_however_its_name_is_divided(rule: str, action: str) -> None:
    pdp = pdp_of(**({"cedar": rule} if rule in CEDAR else {"forbid": rule}))
    for path in [*INSIDE, *(f"{name}/t" for name in INSIDE)]:
        if check := make(action, path):
            assert not ask(pdp, check).allowed[0], path
    for path in [*OUTSIDE, *(f"{name}/t" for name in OUTSIDE)]:
        if check := make(action, path):
            assert ask(pdp, check).allowed[0], path


@pytest.mark.parametrize("rule", [*CEL, *CEDAR])
@pytest.mark.parametrize("action", ["move", "rename"])
def test_a_forbid_binds_what_is_moved_however_its_target_is_divided(rule: str, action: str) -> None:
    pdp = pdp_of(**({"cedar": rule} if rule in CEDAR else {"forbid": rule}))
    for path in INSIDE:
        assert not ask(pdp, carry(action, path)).allowed[0], path
    for path in OUTSIDE:
        assert ask(pdp, carry(action, path)).allowed[0], path
