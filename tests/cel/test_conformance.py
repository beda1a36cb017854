"""Google's conformance tests: the core, and the `strings` extension when it is enabled."""

from __future__ import annotations

from typing import Any

import pytest
from support.generators.cel_values import conformance, recorded, same

from pdp.cel.compiler import compile_expression
from pdp.cel.syntax import CompileError
from pdp.cel.values import RuleError

MISSES = {
    "bytes_literals/triple_single_quoted_unescaped_punctuation",
    "bytes_literals/triple_double_quoted_unescaped_punctuation",
}
"""The test expects a backslash that the expression does not have; see docs/cel.md."""

CORE = [case for case in conformance() if case["core"]]
STRINGS = [case for case in conformance() if case["file"] == "string_ext"]


def _id(case: dict[str, Any]) -> str:
    return f"{case['section']}/{case['name']}"


def _outcome(case: dict[str, Any], strict: bool) -> Any:
    """Return the value, or the exception of any error."""
    declarations = {variable["name"]: variable["type"] for variable in case.get("type_env", ())}
    bindings = {name: recorded(value) for name, value in case.get("bindings", {}).items()}
    extensions = frozenset({"strings"} if case["file"] == "string_ext" else ())
    try:
        run = compile_expression(case["expr"], declarations, case.get("container", ""), extensions, strict)
        return run(bindings)
    except (CompileError, RuleError) as error:
        return error


def _passes(case: dict[str, Any], strict: bool) -> bool:
    outcome = _outcome(case, strict)
    if "error" in case:
        return isinstance(outcome, (CompileError, RuleError))
    return same(outcome, recorded(case["value"]))


def test_the_core_is_there() -> None:
    assert len(CORE) == 1091
    assert len(STRINGS) == 216


@pytest.mark.parametrize("case", CORE, ids=_id)
def test_core(case: dict[str, Any]) -> None:
    assert _passes(case, not case.get("disable_check")) == (_id(case) not in MISSES)


@pytest.mark.parametrize("case", STRINGS, ids=_id)
def test_strings_extension(case: dict[str, Any]) -> None:
    assert _passes(case, not case.get("disable_check"))


@pytest.mark.parametrize("case", [case for case in CORE if _id(case) not in MISSES], ids=_id)
def test_unchecked_code_agrees(case: dict[str, Any]) -> None:
    """Code that chooses overloads at run time gives the results of code with known types, if the checker accepts."""
    assert _passes(case, strict=False)
