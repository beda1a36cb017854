"""Recorded decisions of OpenFGA with Lakekeeper's model, all of them through the engine."""

import json
from functools import cache
from typing import Any

import pytest
from spec.grant_worlds import ask
from spec.grants import Spec
from support.paths import RECORDED as RECORDED_FOLDER

from pdp.engines.grants.engine import GrantsEngine
from pdp.facts.snapshot import Facts
from pdp.model.references import parse_principal
from pdp.store.world import load_world

RECORDED = RECORDED_FOLDER / "lakekeeper"
CASES = [json.loads(line) for line in (RECORDED / "golden.jsonl").read_text(encoding="utf-8").splitlines()]
ENGINE = GrantsEngine()
WORLDS = sorted({case["world"] for case in CASES})


@cache
def facts_of(world: str) -> Facts:
    return load_world(RECORDED / world)


def test_nothing_recorded_is_missing() -> None:
    assert len(CASES) == 910


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["note"].partition(":")[0])
def test_recorded_decision(case: Any) -> None:
    facts = facts_of(case["world"])
    for check, want in zip(case["checks"], case["want"], strict=True):
        principal, role = check["principal"], check.get("actingRole")
        assumed = role is None or facts.can_assume(parse_principal(principal), parse_principal(role).name)
        allowed, _ = ask(ENGINE, facts, role or principal, check["action"], check["resource"])
        assert (assumed and allowed) == want


def test_the_oracle_agrees_with_what_was_recorded() -> None:
    data = {world: json.loads((RECORDED / world).read_text(encoding="utf-8")) for world in WORLDS}
    for case in CASES:
        [check], [want] = case["checks"], case["want"]
        spec = Spec(data[case["world"]], check.get("actingRole", check["principal"]), check["resource"])
        user = Spec(data[case["world"]], check["principal"], check["resource"])
        assumed = "actingRole" not in check or user.may("assume", check["actingRole"])
        assert (assumed and spec.may(check["action"], check["resource"])) == want, case["note"]
