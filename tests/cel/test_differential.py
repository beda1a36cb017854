"""Generated rules and inputs, decided by the compiled rule and by Google's own evaluator."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import pytest
from cel_expr_python import cel
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.generators.cel_generated import NAMES, WORLDS, closed, rules
from support.generators.cel_values import DEFAULTS, arguments

from pdp.cel.syntax import CompileError
from pdp.cel.values import RuleError
from pdp.engines.cel.program import Program, compile_program

PAIRS = int(os.environ.get("PDP_CEL_PAIRS", "20000"))
"""(rule, input) pairs of one run."""
INPUTS = 5


@cache
def _reference() -> Any:
    """Return the environment of cel-cpp, which refuses a variable `type`: in the container `pdp`, `type` is `pdp.type`."""
    kinds = cel.Type
    variables = {name: kinds.STRING for name in NAMES if name != "type"} | {
        "pdp.type": kinds.STRING,
        "roles": kinds.List(kinds.STRING),
        "actions": kinds.List(kinds.STRING),
        "api": kinds.Map(kinds.STRING, kinds.DYN),
        "delegated": kinds.BOOL,
    }
    return cel.NewEnv(variables=variables, container="pdp")


def _compiled(text: str) -> tuple[Program | None, Any]:
    """Return the rule as compiled by both sides, with None for a side that refuses the rule."""
    try:
        ours = compile_program(text)
    except CompileError:
        ours = None
    try:
        reference = _reference().compile(text)
    except RuntimeError:
        reference = None
    return ours, reference


def _ours(program: Program, world: dict[str, Any]) -> bool | None:
    """Return the decision, or None for an error."""
    try:
        return program.evaluate(*arguments(**world))
    except RuleError:
        return None


def _theirs(expression: Any, world: dict[str, Any]) -> bool | None:
    data = {name: list(value) if isinstance(value, tuple) else value for name, value in {**DEFAULTS, **world}.items()}
    data["pdp.type"] = data.pop("type")
    try:
        value = expression.eval(data=data)
    except RuntimeError:
        return None
    return value.plain_value() if value.type() == cel.Type.BOOL else None


@pytest.mark.long
@pytest.mark.timeout(900)
@settings(max_examples=max(1, PAIRS // INPUTS), deadline=None, suppress_health_check=list(HealthCheck))
@given(rules(3)["test"], st.lists(WORLDS, min_size=INPUTS, max_size=INPUTS))
def test_decides_like_the_reference(text: str, worlds: list[dict[str, Any]]) -> None:
    ours, reference = _compiled(text)
    assert (ours is None) == (reference is None), text
    if ours is None:
        return
    for world in worlds:
        assert _ours(ours, world) == _theirs(reference, world), (text, world)


@pytest.mark.long
@pytest.mark.timeout(900)
@settings(max_examples=PAIRS // 2, deadline=None, suppress_health_check=list(HealthCheck))
@given(closed())
def test_computes_like_the_reference(text: str) -> None:
    """Values of every type, mixed: arithmetic, conversions, order, equality, membership."""
    ours, reference = _compiled(text)
    assert (ours is None) == (reference is None), text
    if ours is not None:
        assert _ours(ours, {}) == _theirs(reference, {}), text
