"""Hostile rules: each ends soon, with an error of the rule."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.generators.cel_generated import FRAGMENTS
from support.generators.cel_values import arguments

from pdp.cel.syntax import MAX_SOURCE, CompileError
from pdp.cel.values import RuleError
from pdp.engines.cel.program import compile_program

STRINGS = frozenset({"strings"})
SECONDS = 5.0
"""Far longer than any test here takes, and far shorter than any would take without its limit."""


@contextmanager
def _soon() -> Iterator[None]:
    start = time.process_time()
    yield
    assert time.process_time() - start < SECONDS


@pytest.mark.parametrize(
    "text",
    [
        "[" * 5000 + "]" * 5000,
        "!(" * 3000 + "true" + ")" * 3000,
        "-(" * 3000 + "1" + ")" * 3000 + " == 1",
        "api" + ".a" * 5000 + " == 1",
        "true ? true : " * 2000 + "true",
        "ref" + " + ref" * 5000 + " == ''",
        "roles" + "[0]" * 5000 + " == ''",
        "size(" * 3000 + "ref" + ")" * 3000 + " == 1",
        "{1: " * 3000 + "1" + "}" * 3000 + " == 1",
        "roles.all(r, " * 2000 + "true" + ")" * 2000,
        "'" + "x" * MAX_SOURCE + "' == ref",
        "ref == '" + "\\x41" * 10_000,
        "ref == '''" + "\\''" * 10_000,
        "[" + "1, " * 21_000 + "1] == []",
    ],
    ids=lambda text: text[:20],
)
def test_refused_at_load(text: str) -> None:
    with _soon(), pytest.raises(CompileError):
        compile_program(text)


@pytest.mark.parametrize(
    "text",
    [
        "!" * 5000 + "true",
        "-" * 5000 + "1 == 1",
        "(" * 5000 + "true" + ")" * 5000,
        " && ".join(["op != 'x'"] * 4000),
        " || ".join(["op == 'x'"] * 4000 + ["true"]),
    ],
    ids=lambda text: text[:20],
)
def test_long_but_harmless(text: str) -> None:
    with _soon():
        assert compile_program(text).evaluate(*arguments()) is True


@pytest.mark.parametrize("levels", range(1, 97))
def test_every_depth_compiles_or_is_refused(levels: int) -> None:
    """At every depth below the limit, a limit of CPython becomes an error of the rule."""
    for start, end in (
        ("roles.exists(r, r == role || ", ")"),
        ("[", "] == []"),
        ("!(delegated && api.x == 1 || ", ")"),
    ):
        try:
            compile_program(start * levels + "true" + end * levels)
        except CompileError:
            continue


@pytest.mark.parametrize(
    "text",
    [
        "roles.all(a, roles.all(b, roles.all(c, a + b + c != 'x')))",
        "roles.exists(a, roles.exists(b, roles.exists(c, false)))",
        "roles.map(a, roles.map(b, roles.map(c, c))) == []",
        "roles.exists(a, roles.exists(b, api[a + b] == 1))",
        "roles.all(a, roles.all(b, b in roles && roles == roles))",
        "roles.map(a, roles + roles + roles) == []",
        "roles.all(a, roles == actions)",
        "roles.all(a, dyn(roles) == actions)",
        "roles.all(a, roles.all(b, (a + b).matches('(a+)+$') || true))",
        "roles.all(a, roles.all(b, path.matches('(' + a + '{0,30}){1,30}' + b) || true))",
        "roles.all(a, roles.all(b, timestamp(0).getHours(a + b) == 0 || true))",
        "roles.exists(a, roles.all(b, 1 / 0 == 1) || roles.exists(c, 1 / 0 == 1)) || roles.all(a, roles.all(b, true))",
    ],
)
def test_comprehensions_run_out_of_budget(text: str) -> None:
    roles = tuple(f"role-{number}-{'a' * 50}" for number in range(3000))
    with _soon(), pytest.raises(RuleError, match="budget"):
        compile_program(text).evaluate(*arguments(roles=roles, actions=roles))


@pytest.mark.parametrize(
    "text",
    [
        "path.replace('', path).replace('', path).size() > 0",
        "'%.999999f'.format([1.0]) == ''",
        "path.split('').map(c, path).join(path).size() > 0",
        "roles.map(r, path.replace('a', path)).size() > 0",
        "path.split('').map(a, path.split('').map(b, path.reverse())).size() > 0",
    ],
)
def test_texts_are_bounded(text: str) -> None:
    with _soon(), pytest.raises(RuleError):
        compile_program(text, STRINGS).evaluate(*arguments(path="a" * 4000, roles=("r",) * 1000))


def test_constant_texts_are_not_kept_when_they_grow() -> None:
    word = "a" * 100
    grown = f"'{word}'" + f".replace('a', '{word}')" * 2
    with _soon():
        program = compile_program(" || ".join([f"{grown} == ref"] * 100), STRINGS)
    assert program.evaluate(*arguments()) is False
    assert len(program.code) < MAX_SOURCE * 2


def test_patterns_take_linear_time() -> None:
    with _soon():
        assert compile_program("path.matches('(a+)+$')").evaluate(*arguments(path="a" * 50_000 + "b")) is False
        assert (
            compile_program("path.matches(ref)").evaluate(*arguments(path="a" * 50_000 + "b", ref="(a|aa)+$")) is False
        )


@pytest.mark.parametrize("pattern", ["a{1001}", "(a{1000}){1000}", "a" * 20_000, "\ud800", "(?<x>"])
def test_patterns_from_outside_that_cannot_be(pattern: str) -> None:
    with _soon(), pytest.raises(RuleError):
        compile_program("path.matches(ref)").evaluate(*arguments(ref=pattern))


def test_lone_surrogates_are_text_like_any_other() -> None:
    for text in ("ref.matches('a+b')", "path.matches('x')", "ref == path", "ref < path"):
        assert compile_program(text).evaluate(*arguments(ref="\ud800", path="\ud800a")) in (True, False)
    with pytest.raises(RuleError):
        compile_program("bytes(ref) == b''").evaluate(*arguments(ref="\ud800"))


@settings(max_examples=1500, deadline=None)
@given(
    st.one_of(
        st.text(max_size=40),
        st.lists(FRAGMENTS, max_size=25).map(" ".join),
        st.lists(FRAGMENTS, max_size=25).map("".join),
    )
)
@example("1 in [0, '")
def test_any_text_compiles_or_is_refused(text: str) -> None:
    """For any text, load raises CompileError only, and evaluation RuleError only."""
    try:
        program = compile_program(text, STRINGS)
    except CompileError:
        return
    try:
        assert program.evaluate(*arguments()) in (True, False)
    except RuleError:
        return
