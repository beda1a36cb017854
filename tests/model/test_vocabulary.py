"""The one table of actions is whole, and the engines agree with it."""

from __future__ import annotations

import json

import pytest
from support.paths import RECORDED as RECORDED_FOLDER

from pdp.dialects.trino.operations import RULES
from pdp.engines.grants.model import ACTIONS
from pdp.model.trino_operations import TRINO_OPERATIONS
from pdp.model.vocabulary import ALIASES, CATALOG_ACTIONS, CEL_CHECKS, NESSIE_CHECKS, NESSIE_TARGETS, TABLE_OR_VIEW

RECORDED = RECORDED_FOLDER / "trino"


def test_the_grants_engine_knows_every_catalog_action() -> None:
    assert {type: set(actions) for type, actions in ACTIONS.items()} == {
        type: set(actions) for type, actions in CATALOG_ACTIONS.items()
    }


def test_fourteen_check_types_of_nessie() -> None:
    assert len(NESSIE_CHECKS) == 14
    assert set(NESSIE_TARGETS) == NESSIE_CHECKS


def test_the_operations_of_trino_are_each_decided_by_something() -> None:
    """Trino 476 has sixty-three, and the next release one more."""
    assert len(TRINO_OPERATIONS) == 64
    for name, operation in TRINO_OPERATIONS.items():
        assert operation.steps or operation.rule, name
    assert {operation.rule for operation in TRINO_OPERATIONS.values() if operation.rule} == set(RULES)


def test_every_recorded_operation_is_in_the_table() -> None:
    lines = (RECORDED / "requests.jsonl").read_text().splitlines()
    operations = {json.loads(line)["request"]["input"]["action"]["operation"] for line in lines}
    assert operations <= set(TRINO_OPERATIONS)
    assert len(operations) == 63


def test_cel_checks_stand_on_actions_that_exist() -> None:
    for (type, action), checks in CEL_CHECKS.items():
        listed = (
            action in CATALOG_ACTIONS.get(type, ())
            or action in NESSIE_CHECKS
            or action.startswith(("list_", "create_"))
        )
        assert listed, (type, action)
        assert {check.op for check in checks} <= NESSIE_CHECKS


def test_aliases_lead_to_actions() -> None:
    for type, aliases in ALIASES.items():
        assert set(aliases.values()) <= CATALOG_ACTIONS[type]
        assert not set(aliases) & CATALOG_ACTIONS[type]


def test_table_or_view_leads_to_concrete_actions() -> None:
    for pairs in TABLE_OR_VIEW.values():
        assert pairs
        for type, action in pairs:
            assert action in CATALOG_ACTIONS[type] or action in NESSIE_CHECKS


@pytest.mark.parametrize(("type", "action"), sorted(CEL_CHECKS))
def test_a_catalog_action_needs_its_reference_first(type: str, action: str) -> None:
    ops = [check.op for check in CEL_CHECKS[type, action]]
    if action not in NESSIE_CHECKS:
        assert ops[0] == "VIEW_REFERENCE"
        assert ("COMMIT_CHANGE_AGAINST_REFERENCE" in ops) == any(
            op in ops for op in ("UPDATE_ENTITY", "CREATE_ENTITY", "DELETE_ENTITY")
        )
