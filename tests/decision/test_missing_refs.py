"""Rules where no ref is known: those that need none are decided, those that need one raise."""

from __future__ import annotations

from typing import Any

import pytest
from support.generators.generated_pdps import decide, make_pdp

from pdp.config.warehouses import WarehouseSettings

ANN = "user:oidc~ann"
READ, USE = "table:pg/s/t", "warehouse:pg"


def allowed(
    rules: dict[str, str], checks: list[Any], forbid: dict[str, str] | None = None, **warehouse: Any
) -> list[bool]:
    config = {"warehouses": {"pg": warehouse}, "authorities": {"default": {"engines": ["cel"]}}}
    return [bool(one) for one in decide(make_pdp(config, rules, [], forbid), checks).allowed]


def ask(action: str, resource: Any, who: str = ANN) -> dict[str, Any]:
    return {"principal": who, "action": action, "resource": resource}


VIEW = {"view": "op == 'VIEW_REFERENCE' && role == 'ann'"}
READS = "op == 'READ_ENTITY_VALUE'"


@pytest.mark.parametrize(
    ("rule", "want"),
    [
        ("true", True), (f"{READS} && role == 'ann'", True), ("role == 'ann' && path.startsWith('s.')", True), ("role == 'ann' && path.startsWith('x.')", False),
        (f"{READS} && ref == 'prod'", False), (f"{READS} && ref != 'prod'", False), (f"{READS} && ref.startsWith('')", False), (f"{READS} && ref == ''", False),
        (f"{READS} && (ref == 'prod' || role == 'ann')", True), (f"{READS} && (role == 'bob' || ref == 'prod')", False),
        (f"{READS} && (ref == 'prod' && role == 'bob' ? false : true)", True), (f"{READS} && !(ref == 'prod' && role == 'bob')", True), (f"{READS} && !(ref == 'prod')", False),
    ],
)  # fmt: skip
def test_a_permit_is_decided_where_it_needs_no_ref(rule: str, want: bool) -> None:
    checks = [ask("read_data", READ), {**ask("read_data", READ), "resources": [READ, "table:pg/s/u"]}]
    del checks[1]["resource"]
    for _ in range(2):
        assert allowed(VIEW | {"read": rule}, checks) == [want] * 3
    nobody = ask("read_data", READ, "user:oidc~eve")
    assert allowed(VIEW | {"read": rule}, [nobody]) == [rule == "true"]


def test_a_permit_names_the_missing_ref() -> None:
    config = {"warehouses": {"pg": {}}, "authorities": {"default": {"engines": ["cel"]}}}
    found = decide(make_pdp(config, VIEW | {"read": f"{READS} && ref == 'prod'"}), [ask("read_data", READ)])
    assert found.errors[0] == ("missing_reference", "read")


@pytest.mark.parametrize(
    ("forbid", "want"),
    [
        ("ref == 'prod'", False), ("ref != 'prod'", False), ("ref == 'prod' && path == 's.other'", True), ("role == 'ann'", False), ("role == 'bob'", True),
        ("role == 'bob' && ref == 'prod'", True), ("role == 'ann' && ref == 'prod'", False), ("ref == 'prod' || role == 'bob'", False),
    ],
)  # fmt: skip
def test_a_forbid_that_needs_the_ref_denies(forbid: str, want: bool) -> None:
    assert allowed({"all": "true"}, [ask("read_data", READ)], {"lock": forbid}) == [want]


def test_a_warehouse_without_refs_has_an_empty_one() -> None:
    rules = VIEW | {"read": f"{READS} && ref == ''"}
    assert allowed(rules, [ask("read_data", READ)], refs="none") == [True]
    assert allowed({"all": "true"}, [ask("read_data", READ)], {"lock": "ref == 'prod'"}, refs="none") == [True]
    assert allowed(rules, [ask("read_data", f"{READ}@dev")], refs="none") == [False]
    with pytest.raises(ValueError, match="default_ref"):
        WarehouseSettings(refs="none", default_ref="main")


@pytest.mark.parametrize("warehouse", [{}, {"refs": "none"}, {"default_ref": "main"}])
def test_a_catalog_opens_by_the_implicit_rule_to_who_may_read_entries(warehouse: dict[str, Any]) -> None:
    """Nessie's implicit rule lets everybody view references. It opens nothing by itself."""
    checks = [ask(action, USE) for action in ("use", "get_config", "get_metadata", "include_in_list")]
    assert allowed({"entries": "op == 'READ_ENTRIES' && role == 'ann'"}, checks, **warehouse) == [True] * 4
    assert allowed({"read": f"{READS} && role == 'ann'"}, checks, **warehouse) == [False] * 4
    assert allowed({"entries": "op == 'READ_ENTRIES' && role == 'bob'"}, checks, **warehouse) == [False] * 4
    assert allowed(VIEW, checks, **warehouse) == [True] * 4
    assert allowed({"entries": "op == 'READ_ENTRIES'"}, [ask("list_everything", USE)], **warehouse) == [False]
    assert allowed({"read": f"{READS} && role == 'ann'"}, [ask("read_data", READ)], **warehouse) == [True]
