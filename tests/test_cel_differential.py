"""Generated rules and inputs, decided by the compiled rule and by Google's own evaluator."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from cel_expr_python import cel
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pdp.engines.cel.program import CompileError, Program, RuleError, compile_program
from tests.cel_values import DEFAULTS, arguments

PAIRS = int(os.environ.get("PDP_CEL_PAIRS", "2000"))
"""(rule, input) pairs of one run."""
INPUTS = 5

WORDS = ("", "a", "main", "dev", "a.b", "a.b.c", "feature/x", "prod", "é😀", "x\ny")
NAMES = ("op", "role", "ref", "path", "contentType", "type", "warehouse")
PATTERNS = ("main", "^a", "b$", "^dev$", "a[.].*", "^(main|dev)$", ".*b.*", "^a.*$", "^.*c$", "[", "(?=x)", "a+b?", "\\\\w+")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"'{escaped}'"


def _format(template: str, *parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(*parts).map(lambda drawn: template.format(*drawn))


def _text(number: st.SearchStrategy[str], text: st.SearchStrategy[str], test: st.SearchStrategy[str]) -> Any:
    return st.one_of(
        _format("({} + {})", text, text),
        _format("({} ? {} : {})", test, text, text),
        _format("roles[{}]", number),
        _format("string({})", number),
        st.just("api.apiName"),
        _format("[{}, {}][{}]", text, text, number),
    )


def _number(number: st.SearchStrategy[str], text: st.SearchStrategy[str], items: st.SearchStrategy[str]) -> Any:
    return st.one_of(
        _format("({} {} {})", number, st.sampled_from("+-*/%"), number),
        _format("size({})", st.one_of(text, items)),
        st.just("api.apiVersion"),
        _format("int({})", text),
        _format("-({})", number),
        _format("{{'a': {}, 'b': 2}}[{}]", number, text),
    )


def _items(items: st.SearchStrategy[str], text: st.SearchStrategy[str], test: st.SearchStrategy[str]) -> Any:
    return st.one_of(
        st.lists(text, max_size=3).map(lambda parts: f"[{', '.join(parts)}]"),
        _format("({} + {})", items, items),
        _format("{}.filter(r, {})", items, test),
        _format("{}.map(r, r + {})", items, text),
        _format("{}.map(r, {}, r)", items, test),
    )


def _tests(
    test: st.SearchStrategy[str], text: st.SearchStrategy[str], number: st.SearchStrategy[str], items: Any
) -> Any:
    order = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
    return st.one_of(
        _format("{} && {}", test, test).map("({})".format),
        _format("{} || {}", test, test).map("({})".format),
        _format("!{}", test),
        _format("({} ? {} : {})", test, test, test),
        _format("({} {} {})", text, order, text),
        _format("({} {} {})", number, order, number),
        _format("({} in {})", text, items),
        _format("({} == {})", items, items),
        _format("{}.{}({})", text, st.sampled_from(["startsWith", "endsWith", "contains"]), text),
        _format("{}.matches({})", text, st.sampled_from([f"'{pattern}'" for pattern in PATTERNS])),
        _format("{}.{}(r, {})", items, st.sampled_from(["exists", "all", "exists_one"]), test),
        _format("{}.{}(r, r.startsWith({}))", items, st.sampled_from(["exists", "all", "exists_one"]), text),
        _format("{}.{}(r, r == {} || {} < 2)", items, st.sampled_from(["exists", "all"]), text, number),
        _format("(api.apiVersion {} {})", order, st.sampled_from(["1", "2.0", "2u", "'x'"])),
        st.sampled_from(["has(api.apiName)", "has(api.nope)", "api.nope == 1", "api.apiName == 'Nessie'", "api.apiVersion"]),
        _format("(dyn({}) == dyn({}))", text, number),
        _format("bool({})", text),
    )


@cache
def _rules(depth: int) -> dict[str, st.SearchStrategy[str]]:
    """Expressions of each type, up to `depth`."""
    if depth == 0:
        return {
            "text": st.one_of(st.sampled_from(NAMES), st.sampled_from(WORDS).map(_quoted)),
            "number": st.sampled_from(["0", "1", "2", "-1", "9223372036854775807", "-9223372036854775808"]),
            "items": st.sampled_from(["roles", "actions", "['a', 'main']", "[]", "['dev']"]),
            "test": st.one_of(
                st.sampled_from(["true", "false", "delegated", "roles[0] == 'a'", "1 / 0 == 1"]),
                _format("{} == {}", st.sampled_from(NAMES), st.sampled_from(WORDS).map(_quoted)).map("({})".format),
            ),
        }
    below = _rules(depth - 1)
    text, number, items, test = below["text"], below["number"], below["items"], below["test"]
    return {
        "text": st.one_of(text, _text(number, text, test)),
        "number": st.one_of(number, _number(number, text, items)),
        "items": st.one_of(items, _items(items, text, test)),
        "test": st.one_of(test, _tests(test, text, number, items)),
    }


WORD_LISTS = st.lists(st.sampled_from(WORDS), max_size=4).map(tuple)
WORLDS = st.fixed_dictionaries(
    {name: st.sampled_from(WORDS) for name in NAMES}
    | {
        "roles": WORD_LISTS,
        "actions": WORD_LISTS,
        "api": st.fixed_dictionaries(
            {"apiName": st.sampled_from(["Nessie", "Iceberg"]), "apiVersion": st.integers(1, 3)}
        ),
        "delegated": st.booleans(),
    }
)


@cache
def _reference() -> Any:
    """The reference refuses a variable called `type`; in the container `pdp` that name is `pdp.type`."""
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
    """The rule by either side, None where one refuses it."""
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
    """The decision, None for an error."""
    try:
        return program.evaluate(*arguments(**world))
    except RuleError:
        return None


def _theirs(expression: Any, world: dict[str, Any]) -> bool | None:
    data = {name: list(value) if isinstance(value, tuple) else value for name, value in {**DEFAULTS, **world}.items()}
    data["pdp.type"] = data.pop("type")
    value = expression.eval(data=data)
    return value.plain_value() if value.type() == cel.Type.BOOL else None


@settings(max_examples=max(1, PAIRS // INPUTS), deadline=None, suppress_health_check=list(HealthCheck))
@given(_rules(3)["test"], st.lists(WORLDS, min_size=INPUTS, max_size=INPUTS))
def test_decides_like_the_reference(text: str, worlds: list[dict[str, Any]]) -> None:
    ours, reference = _compiled(text)
    assert (ours is None) == (reference is None), text
    for world in worlds if ours is not None else ():
        assert _ours(ours, world) == _theirs(reference, world), (text, world)
