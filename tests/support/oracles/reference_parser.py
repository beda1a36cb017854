"""Reference parser of CEL: the grammar of cel-python, corrected and extended, run by lark.

The product has a parser of its own, which is much faster. Tests compare the trees and the errors of both.
Only the grammar file of cel-python is read: an import of the package would load its evaluator and a global parser.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, Final, TypeAlias

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedInput, UnexpectedToken

from pdp.cel import ast_builder
from pdp.cel.syntax import (
    MAX_SOURCE,
    Call,
    CompileError,
    Comprehension,
    Conditional,
    Constant,
    Has,
    ListOf,
    Logic,
    Macro,
    MapOf,
    Name,
    Node,
    Select,
    depth_above,
)

_KEYWORDS: Final = frozenset({"in", "true", "false", "null"})
_RESERVED: Final = (
    _KEYWORDS
    | frozenset({"as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop"})
    | frozenset({"package", "namespace", "return", "var", "void", "while"})
)
_MACROS: Final[dict[str, tuple[Macro, tuple[int, ...]]]] = {
    "all": ("all", (2,)),
    "exists": ("exists", (2,)),
    "exists_one": ("exists_one", (2,)),
    "existsOne": ("exists_one", (2,)),
    "map": ("map", (2, 3)),
    "filter": ("filter", (2,)),
}
"""Macro and its numbers of arguments, by the name in the text. Any other number of arguments makes a method call."""
_HAS: Final = "has"
_SIGNS: Final = frozenset({"!_", "-_"})
_OperatorAndLeft: TypeAlias = tuple[str, Node]


def only_node(children: Any) -> Node:
    """Return the node of a reduction with one child; lark passes the node itself or a list."""
    node: Node = children if isinstance(children, Node) else children[0]
    return node


def _operator(function: str, *args: Node) -> Call:
    return Call(args[0].pos, depth_above(args[0].pos, *args), function, None, args)


def _is_doubled_sign(sign: str, operand: Node) -> bool:
    """Tell whether `operand` begins with the same sign and has no parentheses around it.

    The reference parser reads `!!x` and `--x` as `x`, but keeps both signs of `!(!x)`. `paren_expr` adds one level of
    depth to a signed expression in parentheses; this function recognises parentheses by that level.
    """
    return isinstance(operand, Call) and operand.function == sign and operand.depth == operand.args[0].depth + 1


def _variable_name(token: Token) -> str:
    if str(token) in _RESERVED:
        raise CompileError(f"reserved word `{token}`", token.start_pos or 0)
    return str(token)


def _field_name(token: Token) -> str:
    if str(token) in _KEYWORDS:
        raise CompileError(f"reserved word `{token}`", token.start_pos or 0)
    return str(token).strip("`")


def _logic(conjunction: bool, left: Node, right: Node) -> Logic:
    """Append `right` to the chain `left`. A chain of thousands of operands stays one level deep."""
    parts: list[Node] = []
    for part in (left, right):
        parts += part.parts if isinstance(part, Logic) and part.conjunction is conjunction else (part,)
    return Logic(left.pos, depth_above(left.pos, *parts), conjunction, tuple(parts))


def _has(token: Token, args: list[Node]) -> Node:
    if len(args) != 1 or not isinstance(args[0], Select):
        raise CompileError("has() takes one field selection", token.start_pos or 0)
    return Has(args[0].pos, args[0].depth, args[0].operand, args[0].field)


def _comprehension(token: Token, target: Node, args: list[Node]) -> Node:
    macro, _ = _MACROS[str(token)]
    variable, *rest = args
    if not isinstance(variable, Name) or variable.rooted:
        raise CompileError(f"{token}() takes a name as its first argument", variable.pos)
    where, body = (rest[0], rest[1]) if len(rest) == 2 else (None, rest[0])
    depth = depth_above(target.pos, target, *rest)
    return Comprehension(target.pos, depth, macro, variable.name, target, body, where)


def _binary(children: list[Any]) -> Node:
    if len(children) == 1:
        return only_node(children)
    (operator, left), right = children
    return _operator(operator, left, right)


def _left_side(operator: str) -> Any:
    """Make the method of a grammar rule that holds the left operand and the operator sign."""

    def build(self: AstBuilder, children: list[Any]) -> _OperatorAndLeft:
        return operator, children[0]

    return build


class AstBuilder(Transformer[Token, Any]):
    """Builder of syntax nodes. Each method has the name of a rule in cel-python's grammar."""

    relation_lt = _left_side("_<_")
    relation_le = _left_side("_<=_")
    relation_gt = _left_side("_>_")
    relation_ge = _left_side("_>=_")
    relation_eq = _left_side("_==_")
    relation_ne = _left_side("_!=_")
    relation_in = _left_side("@in")
    addition_add = _left_side("_+_")
    addition_sub = _left_side("_-_")
    multiplication_mul = _left_side("_*_")
    multiplication_div = _left_side("_/_")
    multiplication_mod = _left_side("_%_")

    def expr(self, children: list[Node]) -> Node:
        """Build a conditional, or return the only child."""
        if len(children) == 1:
            return children[0]
        condition, then, otherwise = children
        return Conditional(condition.pos, depth_above(condition.pos, *children), condition, then, otherwise)

    def conditionalor(self, children: list[Node]) -> Node:
        """Build a chain of `||`, or return the only child."""
        return children[0] if len(children) == 1 else _logic(False, *children)

    def conditionaland(self, children: list[Node]) -> Node:
        """Build a chain of `&&`, or return the only child."""
        return children[0] if len(children) == 1 else _logic(True, *children)

    def relation(self, children: list[Any]) -> Node:
        """Build a comparison or a membership test, or return the only child."""
        return _binary(children)

    def addition(self, children: list[Any]) -> Node:
        """Build a sum or a difference, or return the only child."""
        return _binary(children)

    def multiplication(self, children: list[Any]) -> Node:
        """Build a product, quotient or remainder, or return the only child."""
        return _binary(children)

    def unary_not(self, children: list[Any]) -> str:
        """Return the function of the sign `!`."""
        return "!_"

    def unary_neg(self, children: list[Any]) -> str:
        """Return the function of the sign `-`."""
        return "-_"

    def unary(self, children: list[Any]) -> Node:
        """Build a signed operand, or return the only child. Two equal signs in a row cancel each other."""
        if len(children) == 1:
            return only_node(children)
        sign, operand = children
        return operand.args[0] if _is_doubled_sign(sign, operand) else _operator(sign, operand)

    def member(self, children: list[Node]) -> Node:
        """Return the only child."""
        return children[0]

    def primary(self, children: list[Node]) -> Node:
        """Return the only child."""
        return children[0]

    def paren_expr(self, children: list[Node]) -> Node:
        """Return the expression in parentheses; a signed expression gets one more level of depth."""
        inner = children[0]
        if isinstance(inner, Call) and inner.function in _SIGNS:
            return Call(inner.pos, depth_above(inner.pos, inner), inner.function, None, inner.args)
        return inner

    def member_dot(self, children: list[Any]) -> Node:
        """Build a field selection."""
        operand, token = children
        return Select(operand.pos, depth_above(operand.pos, operand), operand, _field_name(token))

    def member_dot_arg(self, children: list[Any]) -> Node:
        """Build a macro or a method call."""
        target, token, *rest = children
        args: list[Node] = rest[0] if rest else []
        if str(token) in _MACROS and len(args) in _MACROS[token][1]:
            return _comprehension(token, target, args)
        pos = token.start_pos
        return Call(pos, depth_above(pos, target, *args), _field_name(token), target, tuple(args))

    def member_index(self, children: list[Node]) -> Node:
        """Build `operand[index]`."""
        return _operator("_[_]", *children)

    def member_object(self, children: list[Any]) -> Node:
        """Raise CompileError: the language here has no message literals."""
        raise CompileError("messages are not supported", children[0].pos)

    def ident(self, children: list[Token]) -> Node:
        """Build a name. Raise CompileError for a reserved word."""
        return Name(children[0].start_pos or 0, 1, _variable_name(children[0]))

    def dot_ident(self, children: list[Token]) -> Node:
        """Build a rooted name. Raise CompileError for a reserved word."""
        return Name(children[0].start_pos or 0, 1, _variable_name(children[0]), rooted=True)

    def ident_arg(self, children: list[Any]) -> Node:
        """Build a function call or the macro `has`."""
        token, *rest = children
        args: list[Node] = rest[0] if rest else []
        if str(token) == _HAS:
            return _has(token, args)
        return Call(token.start_pos, depth_above(token.start_pos, *args), _variable_name(token), None, tuple(args))

    def dot_ident_arg(self, children: list[Any]) -> Node:
        """Build the call of a rooted function name; functions have no containers, so the dot changes nothing."""
        return self.ident_arg(children)

    def list_lit(self, items: list[Node]) -> Node:
        """Build a list literal."""
        pos = items[0].pos if items else 0
        return ListOf(pos, depth_above(pos, *items), tuple(items))

    def map_lit(self, parts: list[Node]) -> Node:
        """Build a map literal from alternating keys and values."""
        pos = parts[0].pos if parts else 0
        return MapOf(pos, depth_above(pos, *parts), tuple(zip(parts[::2], parts[1::2], strict=True)))

    def exprlist(self, children: list[Node]) -> list[Node]:
        """Return the arguments of a call."""
        return children

    def fieldinits(self, children: list[Any]) -> list[Any]:
        """Return the fields of a message literal, which `member_object` refuses."""
        return children

    def literal(self, children: list[Token]) -> Node:
        """Build a constant from a literal token. Raise CompileError for a bad escape or a number out of range."""
        token = children[0]
        pos = token.start_pos or 0
        return Constant(pos, 1, LITERALS[token.type](str(token), pos))


LITERALS: Final[dict[str, Any]] = {
    "INT_LIT": ast_builder.parse_int,
    "UINT_LIT": ast_builder.parse_uint,
    "FLOAT_LIT": ast_builder.parse_double,
    "STRING_LIT": ast_builder.parse_string,
    "MLSTRING_LIT": ast_builder.parse_string,
    "BYTES_LIT": ast_builder.parse_bytes,
    "BOOL_LIT": lambda text, pos: text == "true",
    "NULL_LIT": lambda text, pos: None,
}
"""Function from the text and offset of a literal token to its value, by the type of the token."""

_STRING: Final = r"""(?:[rR](?:"[^"\r\n]*"|'[^'\r\n]*')|"(?:[^"\\\r\n]|\\[^\r\n])*"|'(?:[^'\\\r\n]|\\[^\r\n])*')"""
_LONG_STRING: Final = (
    r'(?:[rR](?:"""[\s\S]*?"""|' + r"'''[\s\S]*?''')"
    r'|"""(?:[^"\\]|\\[\s\S]|"(?!""))*"""' + r"|'''(?:[^'\\]|\\[\s\S]|'(?!''))*''')"
)
TERMINALS: Final = {
    "STRING_LIT": f"STRING_LIT.5 : /{_STRING}/",
    "MLSTRING_LIT": f"MLSTRING_LIT.6 : /{_LONG_STRING}/",
    "BYTES_LIT": f"BYTES_LIT.7 : /[bB](?:{_LONG_STRING}|{_STRING})/",
    "FLOAT_LIT": r"FLOAT_LIT.4 : /-?(?:[0-9]*\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)/",
    "UINT_LIT": "UINT_LIT.3 : /(?:0x[0-9a-fA-F]+|[0-9]+)[uU]/",
    "INT_LIT": "INT_LIT.2 : /-?(?:0x[0-9a-fA-F]+|[0-9]+)/",
    "BOOL_LIT": "BOOL_LIT.1 : /(?:true|false)(?![_a-zA-Z0-9])/",
    "NULL_LIT": "NULL_LIT.1 : /null(?![_a-zA-Z0-9])/",
    "COMMENT": r"COMMENT : /\/\/[^\r\n]*/" + "\nIN.1 : /in(?![_a-zA-Z0-9])/\nQUOTED : /`[a-zA-Z0-9_.\\-\\/ ]+`/",
}
"""Replacements for terminals of cel-python, by name.

The string patterns of cel-python backtrack exponentially, and its keywords match the beginning of longer names. The
patterns here accept every escape; `literals` validates escapes.
"""
RULES: Final = (
    ('relation_in    : relation "in"', "relation_in    : relation IN"),
    ('member_dot     : member "." IDENT', 'member_dot     : member "." (IDENT | QUOTED)'),
    ('list_lit       : "[" [exprlist] "]"', 'list_lit       : "[" [_exprs [","]] "]"'),
    ('map_lit        : "{" [mapinits] "}"', 'map_lit        : "{" [_pairs [","]] "}"'),
    ('exprlist       : expr ("," expr)*', 'exprlist       : _exprs\n_exprs         : expr | _exprs "," expr'),
    ('mapinits       : expr ":" expr ("," expr ":" expr)*', '_pairs : expr ":" expr | _pairs "," expr ":" expr'),
)
"""Extended rules of the grammar: old text, new text.

Fields may be quoted, lists and maps may end with a comma, and list rules are left-recursive. `_exprs` and `_pairs` are
inlined into their parents by lark, because their names begin with an underscore.
"""


def load_grammar() -> str:
    """Return the extended grammar. Raise RuntimeError if cel-python's grammar lacks a text that is replaced here."""
    grammar = Path(str(distribution("cel-python").locate_file("celpy/cel.lark"))).read_text("utf-8")
    for name, replacement in TERMINALS.items():
        pattern = rf"(?ms)^{name}\s*:.*?(?=^(?:[A-Z]|//|%)|\Z)"
        grammar, count = re.subn(pattern, lambda _, new=replacement: f"{new}\n\n", grammar)  # type: ignore[misc]
        _expect_once(count, name)
    for old, new in RULES:
        _expect_once(grammar.count(old), old)
        grammar = grammar.replace(old, new)
    return grammar


def _expect_once(count: int, text: str) -> None:
    if count != 1:
        raise RuntimeError(f"cel-python's grammar has changed: expected `{text}` once, but it occurs {count} times")


def parse(text: str) -> Node:
    """Return the syntax tree of `text`. Raise CompileError for a syntax error or a text over a limit."""
    if len(text) > MAX_SOURCE:
        raise CompileError(f"too long: more than {MAX_SOURCE} characters", MAX_SOURCE)
    if not text.strip():
        raise CompileError("empty rule", 0)
    try:
        tree: Any = _parser().parse(text)
    except UnexpectedInput as error:
        raise _syntax_error(text, error) from None
    return only_node(tree)


def _syntax_error(text: str, error: UnexpectedInput) -> CompileError:
    if isinstance(error, UnexpectedEOF) or (isinstance(error, UnexpectedToken) and error.token.type == "$END"):
        return CompileError("syntax error: unexpected end", len(text))
    offset = error.pos_in_stream or 0
    if isinstance(error, UnexpectedToken):
        return CompileError(f"syntax error: unexpected `{error.token!s:.40}`", offset)
    assert isinstance(error, UnexpectedCharacters)
    return CompileError(f"syntax error: unexpected character {text[offset : offset + 1]!r}", offset)


@cache
def _parser() -> Lark:
    return Lark(
        load_grammar(),
        parser="lalr",
        start="expr",
        lexer="contextual",
        maybe_placeholders=False,
        transformer=AstBuilder(visit_tokens=False),
        g_regex_flags=re.MULTILINE,
    )
