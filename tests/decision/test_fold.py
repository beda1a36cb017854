"""Fold of parts that must all permit: the denial of the strongest part is the answer."""

from __future__ import annotations

import itertools

import pytest

from pdp.decision.combine import fold
from pdp.decision.plan import AllOf, Leaf
from pdp.engines.engine import ABSTAIN, FAILED, FORBID, PERMIT, EngineQuestion, Verdicts
from pdp.model.question import Principal, Question, Resource

GROUP = EngineQuestion(Question(Principal("user", "oidc~a"), "rename"), "table", "w", "main")
STRONGEST_FIRST = (FORBID, FAILED, ABSTAIN, PERMIT)
REASONS = {FORBID: "cel:f", FAILED: "cel:failed", ABSTAIN: None, PERMIT: "cel:p"}


@pytest.mark.parametrize("effects", list(itertools.permutations(STRONGEST_FIRST, 2)))
def test_the_strongest_denial_is_the_answer(effects: tuple[int, int]) -> None:
    parts = tuple(Leaf(GROUP, (Resource("table", "w", (name,)),)) for name in ("a", "b"))
    verdicts = {
        id(part): Verdicts(bytes([effect]), [REASONS[effect]]) for part, effect in zip(parts, effects, strict=True)
    }
    found = fold(AllOf(parts), lambda leaf: verdicts[id(leaf)])
    strongest = min(effects, key=STRONGEST_FIRST.index)
    name = "ab"[effects.index(strongest)]
    assert found.effects == bytes([strongest])
    assert found.by == [f"table:w/{name}@main: {REASONS[strongest] or 'default_deny'}"]
