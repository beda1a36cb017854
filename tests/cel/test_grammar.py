"""The rules of cel-python's grammar that the reference parser depends on, and the trees of some texts."""

from __future__ import annotations

import re
from importlib.metadata import version

import pytest
from support.oracles import reference_parser
from support.oracles.reference_parser import load_grammar

from pdp.cel import syntax
from pdp.cel.parser import parse
from pdp.cel.syntax import CompileError

RULES = {
    "expr", "conditionalor", "conditionaland",
    "relation", "relation_lt", "relation_le", "relation_gt", "relation_ge", "relation_eq", "relation_ne", "relation_in",
    "addition", "addition_add", "addition_sub",
    "multiplication", "multiplication_mul", "multiplication_div", "multiplication_mod",
    "unary", "unary_not", "unary_neg",
    "member", "member_dot", "member_dot_arg", "member_index", "member_object",
    "primary", "literal", "dot_ident_arg", "dot_ident", "ident_arg", "ident", "paren_expr", "list_lit", "map_lit",
    "exprlist", "fieldinits",
}  # fmt: skip
LITERALS = {
    "UINT_LIT", "FLOAT_LIT", "INT_LIT", "MLSTRING_LIT", "STRING_LIT", "BYTES_LIT", "BOOL_LIT", "NULL_LIT",
}  # fmt: skip


def test_the_version_is_the_pinned_one() -> None:
    assert version("cel-python") == "0.5.0"


def test_rule_names() -> None:
    """Every grammar rule has a method of the builder, and every literal token a parser."""
    rules = {name for name in re.findall(r"^([a-z_]+) *:", load_grammar(), re.MULTILINE) if not name.startswith("_")}
    assert rules == RULES
    assert RULES.issubset(dir(reference_parser.AstBuilder))
    assert set(reference_parser.LITERALS) == LITERALS


def test_a_changed_grammar_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference_parser, "RULES", (("no such rule", ""),))
    with pytest.raises(RuntimeError, match="has changed"):
        load_grammar()


def test_positions_are_offsets_of_the_text() -> None:
    tree = parse("op == 'x' && ref.startsWith(path)")
    assert isinstance(tree, syntax.Logic)
    assert [part.pos for part in tree.parts] == [0, 17]


def test_chains_are_flat() -> None:
    tree = parse("true && (true && false) && true")
    assert isinstance(tree, syntax.Logic)
    assert (len(tree.parts), tree.depth) == (4, 2)


@pytest.mark.parametrize(
    "text",
    [
        "inlist in inlist",
        "trueish || nullable",
        "x.all(in_, true)",
        "a.as()",
        "[1, 2,]",
        "{1: 2,}",
        "// only\ntrue",
        ".5 < 1."[:-1],
    ],
)
def test_accepted(text: str) -> None:
    parse(text)


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("op=='X' &&", 10),
        ("(op=='X'", 8),
        ("op = 'X'", 3),
        ("op=='X' & true", 8),
        ("path=='a` && role=='b')", 20),
        ("role inroles", 5),
        ("true && if", 8),
        ("true && 99999999999999999999", 8),
        (r"ref == '\d'", 8),
        (r"ref == 'ab\ud800'", 10),
        ("has(ref)", 0),
        ("roles.all(1, true)", 10),
        ("1.", 2),
        ("1e999 > 0.0", 0),
        ("a{b: 1}", 0),
        ("ref == 'a\nb'", 7),
        ("", 0),
        ("  // nothing", 12),
    ],
)
def test_refused_with_the_offset(text: str, offset: int) -> None:
    with pytest.raises(CompileError) as caught:
        parse(text)
    assert caught.value.offset == offset
