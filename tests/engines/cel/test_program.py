"""Compiled rules: types at load, errors and their absorption at run time, and the generated code."""

from __future__ import annotations

import re
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.generators.cel_generated import WORLDS, rules
from support.generators.cel_values import DEFAULTS, arguments

from pdp.cel.compiler import compile_expression
from pdp.cel.patterns import MAX_PATTERN, compile_pattern, find_string_test
from pdp.cel.syntax import CompileError
from pdp.cel.values import RuleError
from pdp.engines.cel.program import RULE_VARIABLES, compile_program


def _run(text: str, **changes: Any) -> bool:
    return compile_program(text).evaluate(*arguments(**changes))


@pytest.mark.parametrize(
    "text",
    [
        "ref[0] == 'm'", "'a' in ref", "1 in roles", "ref && true", "!ref", "has(ref.x)", "ref.size", "nope == 'x'",
        "unknown(ref)", "role == roles", "ref == 1", "role in roles[0]", "ref.upperAscii() == 'X'", "true ? 1 : 'a'",
        "ref.exists(c, true)", "roles[0u] == 'a'", "-5u == 1u", "OP == 'X'", "dyn == 1", "x.matches('a')", "size(1) == 1",
    ],
)  # fmt: skip
def test_ill_typed_rules_do_not_compile(text: str) -> None:
    with pytest.raises(CompileError):
        compile_program(text)


def test_a_type_error_says_what_and_where() -> None:
    with pytest.raises(CompileError) as caught:
        compile_program("op == 'X' && 1 in roles")
    assert caught.value.message == "no overload of `@in` for (int, list(string))"
    assert caught.value.offset == 13


@pytest.mark.parametrize(
    "text",
    [
        "ref", "1", "null", "[true]", "size(ref)", "roles", "roles[7] == 'u'", "1 / 0 == 1", "api.nope == 'x'",
        "ref.matches('[')", "-9223372036854775808 % -1 == 0", "api.apiVersion && true", "!api.apiName", "int('x') == 1", "9223372036854775807 + 1 > 0",
        "0u - 1u == 0u", "timestamp('x') == timestamp(0)", "{'a': 1}['b'] == 1", "api.apiName < 1", "roles[api.apiName] == ''",
        "timestamp(0).getHours('America') == 0", "timestamp(0).getHours('../../etc/passwd') == 0",
    ],
)  # fmt: skip
def test_errors_of_the_evaluation(text: str) -> None:
    """Rules that compile and raise, also with constants only: folding keeps every error."""
    with pytest.raises(RuleError):
        _run(text)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("1 / 0 == 1 || true", True),
        ("true || 1 / 0 == 1", True),
        ("false && 1 / 0 == 1", False),
        ("1 / 0 == 1 && false", False),
        ("1 / 0 == 1 && roles[9] == 'x' && ref == 'nope'", False),
        ("roles[9] == 'x' || api.nope == 1 || ref == 'main'", True),
        ("roles[9] == 'x' || api.nope == 1 || roles[0] == 'alice'", True),
        ("ref == 'main' ? true : roles[9] == 'x'", True),
        ("roles.exists(r, api[r] == 1 || r == 'dev')", True),
        ("roles.all(r, api[r] == 1 && r != 'dev')", False),
        ("[1, 0].exists(n, 4 / n == 4)", True),
        ("[0, 1].all(n, 4 / n == 5)", False),
        ("api.apiVersion || true", True),
        ("!(1 / 0 == 1 && false)", True),
        ("[double('NaN')].exists(x, x in [x] || [x] == [x] || x == x)", False),
        ("[1, 1.0, 1u].all(x, x == 1 && x in [1u] && x in {1: 0})", True),
        ("true in [dyn(1)] || dyn(1) == true || dyn(1) in {true: 1} || [1] == [dyn(true)]", False),
        ("dyn(9007199254740993) == 9007199254740992.0", True),
        ("-9223372036854775808 % -1 == 0 || -9223372036854775808 % 3 == -2", True),
    ],
)
def test_absorption(text: str, want: bool) -> None:
    assert _run(text) is want


@pytest.mark.parametrize(
    "text",
    ["1 / 0 == 1 || false", "1 / 0 == 1 && true", "[1, 0].exists_one(n, 4 / n == 4)", "[2, 0].exists(n, 4 / n == 4)",
     "roles[9] == 'x' && api.nope == 1 && true", "1 / 0 == 1 ? true : true"],
)  # fmt: skip
def test_errors_that_nothing_absorbs(text: str) -> None:
    with pytest.raises(RuleError):
        _run(text)


def test_typical_rules_are_plain_expressions() -> None:
    text = "op in ['READ_ENTITY_VALUE'] && ref=='prod' && path.startsWith('a.') && role in ['Alice','Dave']"
    line = compile_program(text).code.splitlines()[1].strip()
    assert re.fullmatch(r"return op == _k\d+ and ref == _k\d+ and path\.startswith\(_k\d+\) and role in _s\d+", line), (
        line
    )


def test_nothing_of_the_rule_is_pasted_into_code() -> None:
    program = compile_program(
        "ref == '\\n    import os #' || path.startsWith(\"''' + evil() + '''\") || {'x\\ny': 1}['x\\ny'] == 2"
    )
    source = program.code.split("#")[0]
    assert "import" not in source
    assert "evil" not in source
    assert all(line.startswith(("def ", "    return ", "# ")) for line in program.code.splitlines())


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("main", ["main", "xmainx"], ["mai", ""]),
        ("^main$", ["main"], ["xmain", "main\n", "mainx"]),
        ("^dev.*", ["dev", "devx", "dev\nx"], ["xdev"]),
        ("^dev.*$", ["dev", "devx"], ["dev\nx", "x"]),
        (".*dev$", ["dev", "xdev", "a\ndev"], ["devx", "dev\n"]),
        ("^.*dev$", ["xdev"], ["a\ndev"]),
        ("^.*dev", ["xdevx", "xdev\n"], ["a\ndev"]),
        ("^(main|dev)$", ["main", "dev"], ["mainx", ""]),
        ("^(a|b)", ["ax", "b"], ["ca"]),
        ("(a|b)$", ["xa"], ["ax"]),
        ("a[.]b", ["a.b"], ["axb"]),
        (r"a\\.b", ["xa.bx"], ["axb"]),
        ("a|^b", ["xa", "bx"], ["xb"]),
        ("", ["", "x"], []),
        (".*", ["", "\n"], []),
        ("^.*$", ["", "x"], ["\n"]),
        ("(?i)MAIN", ["main"], ["man"]),
        (r"\\d+$", ["a1"], ["a1b", "٣"]),
    ],
)
def test_patterns_with_and_without_a_regex(pattern: str, matching: list[str], other: list[str]) -> None:
    """A constant pattern and the same pattern known at run time only give the same results."""
    fixed = compile_program(f"ref.matches('{pattern}')").evaluate
    plain = pattern.replace("\\\\", "\\")
    dynamic = compile_program("ref.matches(role)").evaluate
    for text, want in [*((text, True) for text in matching), *((text, False) for text in other)]:
        assert fixed(*arguments(ref=text)) is want, text
        assert dynamic(*arguments(ref=text, role=plain)) is want, text


@pytest.mark.parametrize(
    ("pattern", "code"),
    [
        ("^main$", r"ref == _k\d+"),
        ("^(main|dev)$", r"ref in _s\d+"),
        ("^main.*", r"ref\.startswith\(_k\d+\)"),
        (".*(a|b)$", r"ref\.endswith\(_k\d+\)"),
        (".*main.*", r"_k\d+ in ref"),
        ("^a[.]b.*$", r"ref\.startswith\(_k\d+\) and _k\d+ not in ref"),
        ("^a.c$", r"_m\d+\(ref\)"),
    ],
)
def test_patterns_that_need_no_regex_have_none(pattern: str, code: str) -> None:
    line = compile_program(f"ref.matches('{pattern}')").code.splitlines()[1].strip()
    assert re.fullmatch(f"return {code}", line), line


def test_a_refused_pattern_is_a_warning_with_its_offset() -> None:
    program = compile_program("op == 'X' && ref.matches('(?=x)')")
    ((message, offset),) = program.warnings
    assert "(?=x)" in message
    assert offset == 25
    assert program.evaluate(*arguments()) is False


def test_variables_are_those_mentioned() -> None:
    assert compile_program("op == 'X' && roles.exists(ref, ref == role)").variables == {"op", "roles", "role"}


def test_without_a_reference() -> None:
    rule = compile_program("op == 'X' || ref == 'main'")
    assert rule.without(frozenset({"ref"}))(*arguments(op="X")) is True
    with pytest.raises(RuleError, match="missing_reference"):
        rule.without(frozenset({"ref"}))(*arguments())
    calm = compile_program("op == 'X'")
    assert calm.without(frozenset({"ref"})) is calm.evaluate


@settings(max_examples=300, deadline=None)
@given(rules(3)["test"], WORLDS)
def test_without_a_reference_is_an_error_in_its_place(text: str, world: dict[str, Any]) -> None:
    """Without a ref, a rule decides as if every `ref` were an expression that raises."""
    try:
        missing = compile_program(text).without(frozenset({"ref"}))
        raising = compile_program(re.sub(r"\bref\b", "string(1 / 0)", text)).evaluate
    except CompileError:
        return
    assert _outcome(missing, world) == _outcome(raising, world)


RAISING = {"roles": "[string(1 / 0)]", "groups": "[string(1 / 0)]", "attributes": "{string(1 / 0): dyn(1)}"}
"""Evidence -> an expression of its type that raises."""


@settings(max_examples=300, deadline=None)
@given(
    rules(3)["test"], WORLDS, st.sets(st.sampled_from(sorted(RAISING)), min_size=1), st.sampled_from(sorted(RAISING))
)
def test_unknown_evidence_is_an_error_in_its_place(
    text: str, world: dict[str, Any], unknown: set[str], read: str
) -> None:
    """Without some evidence, a rule decides as if every use of it were an expression that raises."""
    tests = {"roles": "'a' in roles", "groups": "size(groups) > 0", "attributes": "has(attributes.a)"}
    for whole in (text, f"({text}) || {tests[read]}", f"{tests[read]} ? ({text}) : !({text})"):
        raising = whole
        for name in unknown:
            raising = re.sub(rf"\b{name}\b", RAISING[name], raising)
        try:
            program, other = compile_program(whole), compile_program(raising)
        except CompileError:
            return
        missing = program.without(program.lacking(unknown))
        assert _outcome(missing, world) == _outcome(other.evaluate, world)


@settings(max_examples=300, deadline=None)
@given(rules(3)["test"], WORLDS)
def test_repeated_and_permuted_logic(text: str, world: dict[str, Any]) -> None:
    """The order of the operands of `&&` and `||` changes no result."""
    for operator in ("&&", "||"):
        try:
            one, other = (
                compile_program(f"({left}) {operator} ({right})").evaluate
                for left, right in ((text, "roles[1] == 'a'"), ("roles[1] == 'a'", text))
            )
        except CompileError:
            return
        assert _outcome(one, world) == _outcome(other, world)


@settings(max_examples=300, deadline=None)
@given(rules(3)["test"], WORLDS)
def test_checked_and_unchecked_code_agree(text: str, world: dict[str, Any]) -> None:
    """Code for known types gives the results of code that chooses every overload at run time."""
    try:
        checked = compile_expression(text, RULE_VARIABLES)
    except CompileError:
        return
    unchecked = compile_expression(text, RULE_VARIABLES, strict=False)
    bindings = {**DEFAULTS, **world}
    assert _value(checked, bindings) == _value(unchecked, bindings)


def _value(run: Any, bindings: dict[str, Any]) -> Any:
    try:
        return run(bindings)
    except RuleError:
        return "an error"


def _outcome(evaluate: Any, world: dict[str, Any]) -> bool | None:
    try:
        decided: bool = evaluate(*arguments(**world))
    except RuleError:
        return None
    assert decided is True or decided is False
    return decided


def test_a_rule_of_conditions_has_no_function_before_the_first_use() -> None:
    conditions = compile_program("role == 'first use' && path.startsWith('a.')")
    twice = compile_program("role == 'first use' && path.startsWith('a.') && path.startsWith('a.b')")
    other = compile_program("role == 'first use' && path.startsWith(ref)")
    assert [program.requirements.sufficient for program in (conditions, twice, other)] == [True, True, False]
    assert [program._function is None for program in (conditions, twice, other)] == [True, False, False]
    assert conditions.evaluate is conditions.evaluate
    assert conditions.evaluate(*arguments(role="first use", path="a.b")) is True
    assert conditions.evaluate(*arguments(role="first use", path="b.a")) is False


@pytest.mark.parametrize(("start", "end"), [("op == 'X' && (op == 'Y' || ", ")"), ("(op == 'X' || (true && ", "))")])
def test_no_rule_fails_to_compile_after_the_load(start: str, end: str) -> None:
    """Whatever its depth, a rule that loads has a function, be it made at load or later."""
    for levels in range(97):
        try:
            program = compile_program(start * levels + "op == 'X'" + end * levels)
        except CompileError:
            continue
        assert program.evaluate(*arguments(op="Z")) is False


@given(st.text(alphabet="ab.^$*+?()[]{}|\\/-\n:&é😀\0=!<>#,0 9", max_size=12))
def test_the_regex_engine_accepts_every_pattern_that_is_a_string_test(pattern: str) -> None:
    if find_string_test(pattern) is not None:
        compile_pattern(pattern)


@pytest.mark.parametrize("pattern", ["a" * (MAX_PATTERN + 1), "^a\ud800"])
def test_a_pattern_that_the_regex_engine_refuses_is_no_string_test(pattern: str) -> None:
    assert find_string_test(pattern) is None
    with pytest.raises(RuleError):
        compile_pattern(pattern)


def test_programs_are_compiled_once() -> None:
    assert compile_program("ref == 'once'") is compile_program("ref == 'once'")


def test_a_rule_takes_little_memory() -> None:
    texts = [
        f"op == 'READ_CONTENT_KEY' && role == 'r{number}' && path.startsWith('ns{number}.')" for number in range(500)
    ]
    programs = [compile_program("op == 'a' && role == 'b' && path.startsWith('c')")]
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    programs += map(compile_program, texts)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (after - before) / len(texts) < 1_700


def test_an_extension_must_be_enabled_and_exist() -> None:
    upper = compile_program("ref.upperAscii() == 'MAIN'", frozenset({"strings"}))
    assert upper.evaluate(*arguments()) is True
    with pytest.raises(ValueError, match="unknown CEL extension"):
        compile_program("true", frozenset({"math"}))


def test_expressions_over_other_variables() -> None:
    run = compile_expression("x.y + 1", {"x": "map(string, int)"})
    assert run({"x": {"y": 2}}) == 3
    with pytest.raises(RuleError):
        run({})


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("!!delegated", False),
        ("!!!delegated", True),
        ("!(!delegated)", False),
        ("!!(!delegated)", True),
        ("!!ref == 'x'", False),
        ("--1 == 1", True),
        ("-(-1) == 1", True),
    ],
)
def test_signs_without_parentheses_cancel_in_pairs(text: str, want: bool) -> None:
    """Two signs cancel as in the reference parser; with parentheses, each sign is an operation."""
    assert compile_program(text).evaluate(*arguments(delegated=False)) is want


@pytest.mark.parametrize("text", ["!(!ref) == 'x'", "!!!ref == 'x'", "-(-ref) == 'x'"])
def test_signs_with_parentheses_have_types(text: str) -> None:
    with pytest.raises(CompileError):
        compile_program(text)
