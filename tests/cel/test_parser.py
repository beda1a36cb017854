"""The parser and the reference parser: equal trees of equal texts, and syntax errors at the same places."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.generators.cel_generated import FRAGMENTS, rules
from support.generators.cel_values import conformance
from support.oracles import reference_parser

from pdp.cel import parser
from pdp.cel.syntax import MAX_DEPTH, CompileError, Node, Select

TEXTS = int(os.environ.get("PDP_CEL_PAIRS", "20000"))
"""Texts of one long run."""
RULES = rules(3)["test"]
BROKEN = st.tuples(RULES, st.integers(0, 200), st.integers(0, 3), FRAGMENTS).map(
    lambda drawn: drawn[0][: drawn[1]] + drawn[3] + drawn[0][drawn[1] + drawn[2] :]
)
"""Rules with some characters replaced by others."""
ANY_TEXT = st.one_of(
    RULES,
    BROKEN,
    st.lists(FRAGMENTS, max_size=25).map(" ".join),
    st.lists(FRAGMENTS, max_size=25).map("".join),
    st.text(max_size=40),
)


def form(value: Any) -> Any:
    """Return a tree as tuples that compare by value. The reference counts brackets around signs as a level of depth."""
    if isinstance(value, Node):
        fields = (getattr(value, field) for field in value.__struct_fields__ if field != "depth")
        return (type(value).__name__, *map(form, fields))
    return tuple(map(form, value)) if isinstance(value, tuple) else (type(value).__name__, repr(value))


def outcome(parse: Any, text: str) -> Any:
    """Return the form of the tree, or the error."""
    try:
        return form(parse(text))
    except CompileError as error:
        return error


def assert_equal(text: str) -> None:
    """Compare both parsers. Of two mistakes in one text, each parser may report the one that it meets first."""
    ours, theirs = outcome(parser.parse, text), outcome(reference_parser.parse, text)
    if not isinstance(ours, CompileError) or not isinstance(theirs, CompileError):
        assert ours == theirs, text
    elif ours.message.startswith("syntax error") and theirs.message.startswith("syntax error"):
        assert (ours.message, ours.offset) == (theirs.message, theirs.offset), text


@settings(max_examples=600, deadline=None)
@given(ANY_TEXT)
def test_parses_like_the_reference(text: str) -> None:
    assert_equal(text)


@pytest.mark.long
@settings(max_examples=TEXTS, deadline=None)
@given(ANY_TEXT)
def test_parses_like_the_reference_for_long(text: str) -> None:
    assert_equal(text)


def test_parses_every_expression_of_the_conformance_tests_like_the_reference() -> None:
    texts = {case["expr"] for case in conformance()}
    assert len(texts) > 1000
    for text in texts:
        assert_equal(text)


@pytest.mark.parametrize(
    "text",
    [
        "a ? b : c ? d : e",
        "(a ? b : c) ? (d ? e : f) : g",
        "{a ? b : c: d ? e : f,}",
        "a || b && c || (d || e) && f",
        "a < b == c in d",
        "a - -1 - - 1 -1",
        "!!!a && - - -b == !-c",
        "[[], {}, f(), .g(h.i())]",
        "a.b[c.d(e)[f]].`g h`.i",
        ".a.b(.c)",
        "x.map(y, z, w).filter(a, has(a.b))",
        "1.5.a + .5 + 1e3",
        "a // comment\n && b",
        '\'\'\'a\'b\'\'\' + r"\\d" + """a\nb"""',
    ],
)
def test_the_tree_is_that_of_the_reference(text: str) -> None:
    assert not isinstance(outcome(parser.parse, text), CompileError)
    assert_equal(text)


@pytest.mark.parametrize(
    ("text", "message", "offset"),
    [
        ("a ? b ? c : d : e", "unexpected `?`", 6),
        ("a ? b", "unexpected end", 5),
        ("(a ? b)", "unexpected `)`", 6),
        ("a : b", "unexpected `:`", 2),
        ("{a}", "unexpected `}`", 2),
        ("{a: b: c}", "unexpected `:`", 5),
        ("{a: b, c}", "unexpected `}`", 8),
        ("{a, b}", "unexpected `,`", 2),
        ("{a:}", "unexpected `}`", 3),
        ("{,}", "unexpected `,`", 1),
        ("[,]", "unexpected `,`", 1),
        ("[a,,]", "unexpected `,`", 3),
        ("[a)", "unexpected `)`", 2),
        ("[!]", "unexpected `]`", 2),
        ("f(a,)", "unexpected `)`", 4),
        ("(a, b)", "unexpected `,`", 2),
        ("a[b, c]", "unexpected `,`", 3),
        ("a[]", "unexpected `]`", 2),
        ("()", "unexpected `)`", 1),
        ("(a", "unexpected end", 2),
        ("a)", "unexpected `)`", 1),
        ("a.1", "unexpected `1`", 2),
        ("a.-1", "unexpected `-1`", 2),
        (".`a`", "unexpected ``a``", 1),
        ("a.`b`(c)", "unexpected `(`", 5),
        ("true(a)", "unexpected `(`", 4),
        ("f(a)(b)", "unexpected `(`", 4),
        ("a b", "unexpected `b`", 2),
        ("a ! b", "unexpected `!`", 2),
        ("-1u", "unexpected `u`", 2),
        ("'a", 'unexpected character "\'"', 0),
        ("a & b", "unexpected character '&'", 2),
    ],
)
def test_a_syntax_error_says_what_and_where(text: str, message: str, offset: int) -> None:
    for parse in (parser.parse, reference_parser.parse):
        with pytest.raises(CompileError) as caught:
            parse(text)
        assert (caught.value.message, caught.value.offset) == (f"syntax error: {message}", offset)


@pytest.mark.parametrize(
    ("text", "message", "offset"),
    [
        ("a{b: 1}", "messages are not supported", 0),
        ("in == 1", "reserved word `in`", 0),
        ("a.in", "reserved word `in`", 2),
        ("a.true()", "reserved word `true`", 2),
        ("while(a)", "reserved word `while`", 0),
        ("a + .false", "reserved word `false`", 5),
    ],
)
def test_words_that_are_no_names(text: str, message: str, offset: int) -> None:
    with pytest.raises(CompileError) as caught:
        parser.parse(text)
    assert (caught.value.message, caught.value.offset) == (message, offset)


def test_a_keyword_in_backquotes_is_a_field() -> None:
    tree = parser.parse("a.`in`")
    assert isinstance(tree, Select)
    assert tree.field == "in"


def test_brackets_have_no_depth() -> None:
    assert parser.parse("(" * 20_000 + "a" + ")" * 20_000).depth == 1


@pytest.mark.parametrize("text", ["!(", "-(", "[", "f(", "a.g(", "a[", "{a: ", "a + (", "a && (b || ", "a ? b : "])
def test_every_construct_counts_as_a_level(text: str) -> None:
    assert 40 < parser.parse(nested(text, 40)).depth <= MAX_DEPTH
    with pytest.raises(CompileError, match="nested too deeply"):
        parser.parse(nested(text, MAX_DEPTH))


def nested(start: str, levels: int) -> str:
    """Return an expression that opens the same construct again and again."""
    ends = {"(": ")", "[": "]", "{": "}"}
    closing = "".join(ends[sign] for sign in reversed(start) if sign in ends)
    return start * levels + "x" + closing * levels
