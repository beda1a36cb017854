"""Rules and inputs for property tests: expressions of every type over few words, small enough to collide."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st

WORDS = ("", "a", "main", "dev", "a.b", "a.b.c", "feature/x", "prod", "é😀", "x\ny")
NAMES = ("op", "role", "ref", "path", "contentType", "type", "warehouse")
PATTERNS = (
    "main",
    "^a",
    "b$",
    "^dev$",
    "a[.].*",
    "^(main|dev)$",
    ".*b.*",
    "^a.*$",
    "^.*c$",
    "[",
    "(?=x)",
    "a+b?",
    "\\\\w+",
)
FRAGMENTS = st.sampled_from(
    [
        "op", "ref", "roles", "api", "path", "actions", "type", "delegated", "true", "false", "null", "1", "-1",
        "0x1u", "1.5", "'a'", '"b"', "b'c'", "r'\\d'", "'\\x41'", "(", ")", "[", "]", "{", "}", ".", ",", ":", "?",
        "&&", "||", "!", "-", "+", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "in", "has", "all", "exists",
        "exists_one", "map", "filter", "matches", "startsWith", "size", "int", "string", "dyn", "timestamp",
        "duration", "x", "y", "//", "\n", "`", "\\", "'", '"', "@", "#", "$", ";", "😀",
    ]
)  # fmt: skip
"""Tokens and pieces of tokens, for texts that are rarely expressions."""


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
        st.sampled_from(
            ["has(api.apiName)", "has(api.nope)", "api.nope == 1", "api.apiName == 'Nessie'", "api.apiVersion"]
        ),
        _format("(dyn({}) == dyn({}))", text, number),
        _format("bool({})", text),
    )


@cache
def rules(depth: int) -> dict[str, st.SearchStrategy[str]]:
    """Expressions of each type, `text`, `number`, `items` and `test`, up to `depth`."""
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
    below = rules(depth - 1)
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


_INTS = ("0", "1", "-1", "2", "3", "9223372036854775807", "-9223372036854775808", "9007199254740993")
_UINTS = ("0u", "1u", "2u", "18446744073709551615u", "9223372036854775808u")
_DOUBLES = (
    "0.0",
    "-0.0",
    "1.0",
    "1.5",
    "-1.0",
    "1e300",
    "9223372036854775808.0",
    "9007199254740992.0",
    "double('NaN')",
)
_TIMES = ("timestamp(0)", "timestamp('2009-02-13T23:31:30.5Z')", "timestamp('2024-02-29T12:00:00+05:30')")
_SPANS = ("duration('0s')", "duration('1h30m')", "duration('-1.5s')", "duration('100ms')")
_TEXTS = (
    "''",
    "'a'",
    "'1'",
    "'-7'",
    "'1.5'",
    "'true'",
    "'é😀'",
    "'1h'",
    "'2009-02-13T23:31:30Z'",
    "'9223372036854775808'",
)
_BYTES = ("b''", "b'a'", "b'\\xff'", "b'é'")


@cache
def _values(depth: int) -> st.SearchStrategy[str]:
    """Closed expressions of any type, as dyn."""
    leaf = st.sampled_from(
        [*_INTS, *_UINTS, *_DOUBLES, *_TIMES, *_SPANS, *_TEXTS, *_BYTES, "true", "false", "null", "[]", "{}"]
    )
    if depth == 0:
        return leaf.map("dyn({})".format)
    below = _values(depth - 1)
    conversions = st.sampled_from(["bool", "bytes", "timestamp", "duration", "type", "size"])
    parts = st.sampled_from(["getFullYear", "getMonth", "getDayOfYear", "getDayOfWeek", "getHours", "getMilliseconds"])
    sums = [
        _format("{} {} {}", st.sampled_from(family), st.sampled_from(operators), st.sampled_from(family))
        for family, operators in ((_INTS, "+-*/%"), (_UINTS, "+-*/%"), (_SPANS, "+-"))
    ]
    numbers = _format("{} {} {}", st.sampled_from(_DOUBLES), st.sampled_from("+-*/"), st.sampled_from(_DOUBLES))
    texts = _format("{} + {}", st.sampled_from(_TEXTS), st.sampled_from(_TEXTS))
    moments = _format("{} {} {}", st.sampled_from(_TIMES), st.sampled_from("+-"), st.sampled_from(_SPANS))
    zone = st.sampled_from(["", "'America/New_York'", "'+05:30'", "'nowhere'"])
    key, other = st.sampled_from(["1", "1u"]), st.sampled_from(["2", "'a'", "true"])
    return st.one_of(
        below,
        _format("dyn({} {} {})", below, st.sampled_from("+-*/%"), below),
        st.one_of(*sums, numbers, texts, moments).map("dyn({})".format),
        _format(
            "dyn({}({}))",
            st.sampled_from(["int", "uint", "double"]),
            st.sampled_from([*_INTS, *_UINTS, *_DOUBLES, *_TEXTS]),
        ),
        _format("dyn({}.{}())", st.sampled_from(_TIMES), parts),
        _format("dyn(-{})", below),
        _format("dyn({}({}))", conversions, below),
        _format("dyn({}.{}({}))", below, parts, zone),
        _format("dyn([{}, {}])", below, below),
        _format("dyn([{}, {}][{}])", below, below, below),
        _format("dyn({{{}: {}, {}: {}}})", key, below, other, below),
        _format("dyn({{{}: {}, 'b': 2}}[{}])", key, below, below),
        _format("dyn([{}, {}].map(x, x + {}))", below, below, below),
    )


def closed() -> st.SearchStrategy[str]:
    """Tests without variables, over values of every type and of mixed types."""
    value = _values(2)
    leaf = st.one_of(_values(0), _values(1))
    order = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
    same = st.sampled_from(["==", "!="])
    return st.one_of(
        _format("{} {} {}", leaf, order, leaf),
        _format("{} {} {}", value, same, value),
        _format("{} in [{}, {}]", leaf, value, value),
        _format("{} in {}", leaf, value),
        _format("[{}, {}].exists(x, x {} {})", leaf, leaf, order, leaf),
        _format("{} {} {} || {} == {}", leaf, order, leaf, leaf, leaf),
    )
