"""The parser's reductions to syntax nodes: one method per rule of the grammar, macros expanded.

The tree is built while the LALR parser reduces, without recursion, so that no nesting exhausts the stack.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from lark import Token, Transformer

from pdp.cel import literals
from pdp.cel.syntax import (
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
    height,
)

_KEYWORDS: Final = frozenset({"in", "true", "false", "null"})
_RESERVED: Final = _KEYWORDS | frozenset(
    [
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ]
)
_MACROS: Final[dict[str, tuple[Macro, tuple[int, ...]]]] = {
    "all": ("all", (2,)),
    "exists": ("exists", (2,)),
    "exists_one": ("exists_one", (2,)),
    "existsOne": ("exists_one", (2,)),
    "map": ("map", (2, 3)),
    "filter": ("filter", (2,)),
}

_SIGNS: Final = frozenset({"!_", "-_"})
_HAS: Final = "has"
_Left: TypeAlias = tuple[str, Node]


def single(children: Any) -> Node:
    node: Node = children if isinstance(children, Node) else children[0]
    return node


def _call(function: str, *args: Node) -> Call:
    return Call(args[0].pos, height(args[0].pos, *args), function, None, args)


def _is_bare(sign: str, operand: Node) -> bool:
    """Whether `operand` is the same sign without parentheses: `!!x` and `--x` are x, as the reference parser has it.

    Parentheses add a level to the depth of what they hold, which tells `!(!x)` apart.
    """
    return isinstance(operand, Call) and operand.function == sign and operand.depth == operand.args[0].depth + 1


def _name(token: Token) -> str:
    if str(token) in _RESERVED:
        raise CompileError(f"reserved word `{token}`", token.start_pos or 0)
    return str(token)


def _field_name(token: Token) -> str:
    if str(token) in _KEYWORDS:
        raise CompileError(f"reserved word `{token}`", token.start_pos or 0)
    return str(token).strip("`")


def _logic(conjunction: bool, left: Node, right: Node) -> Logic:
    """One more part of a chain; a chain of thousands stays one level deep."""
    parts: list[Node] = []
    for part in (left, right):
        parts += part.parts if isinstance(part, Logic) and part.conjunction is conjunction else (part,)
    return Logic(left.pos, height(left.pos, *parts), conjunction, tuple(parts))


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
    depth = height(target.pos, target, *rest)
    return Comprehension(target.pos, depth, macro, variable.name, target, body, where)


def _binary(children: list[Any]) -> Node:
    if len(children) == 1:
        return single(children)
    (operator, left), right = children
    return _call(operator, left, right)


def _left_side(operator: str) -> Any:
    def build(self: AstBuilder, children: list[Any]) -> _Left:
        return operator, children[0]

    return build


class AstBuilder(Transformer[Token, Any]):
    """One method per rule of the grammar; the names are cel-python's."""

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
        if len(children) == 1:
            return children[0]
        condition, then, otherwise = children
        return Conditional(condition.pos, height(condition.pos, *children), condition, then, otherwise)

    def conditionalor(self, children: list[Node]) -> Node:
        return children[0] if len(children) == 1 else _logic(False, *children)

    def conditionaland(self, children: list[Node]) -> Node:
        return children[0] if len(children) == 1 else _logic(True, *children)

    def relation(self, children: list[Any]) -> Node:
        return _binary(children)

    def addition(self, children: list[Any]) -> Node:
        return _binary(children)

    def multiplication(self, children: list[Any]) -> Node:
        return _binary(children)

    def unary_not(self, children: list[Any]) -> str:
        return "!_"

    def unary_neg(self, children: list[Any]) -> str:
        return "-_"

    def unary(self, children: list[Any]) -> Node:
        if len(children) == 1:
            return single(children)
        sign, operand = children
        return operand.args[0] if _is_bare(sign, operand) else _call(sign, operand)

    def member(self, children: list[Node]) -> Node:
        return children[0]

    def primary(self, children: list[Node]) -> Node:
        return children[0]

    def paren_expr(self, children: list[Node]) -> Node:
        inner = children[0]
        if isinstance(inner, Call) and inner.function in _SIGNS:
            return Call(inner.pos, height(inner.pos, inner), inner.function, None, inner.args)
        return inner

    def member_dot(self, children: list[Any]) -> Node:
        operand, token = children
        return Select(operand.pos, height(operand.pos, operand), operand, _field_name(token))

    def member_dot_arg(self, children: list[Any]) -> Node:
        target, token, *rest = children
        args: list[Node] = rest[0] if rest else []
        if str(token) in _MACROS and len(args) in _MACROS[token][1]:
            return _comprehension(token, target, args)
        pos = token.start_pos
        return Call(pos, height(pos, target, *args), _field_name(token), target, tuple(args))

    def member_index(self, children: list[Node]) -> Node:
        return _call("_[_]", *children)

    def member_object(self, children: list[Any]) -> Node:
        raise CompileError("messages are not supported", children[0].pos)

    def ident(self, children: list[Token]) -> Node:
        return Name(children[0].start_pos or 0, 1, _name(children[0]))

    def dot_ident(self, children: list[Token]) -> Node:
        return Name(children[0].start_pos or 0, 1, _name(children[0]), rooted=True)

    def ident_arg(self, children: list[Any]) -> Node:
        token, *rest = children
        args: list[Node] = rest[0] if rest else []
        if str(token) == _HAS:
            return _has(token, args)
        return Call(token.start_pos, height(token.start_pos, *args), _name(token), None, tuple(args))

    def dot_ident_arg(self, children: list[Any]) -> Node:
        return self.ident_arg(children)

    def list_lit(self, items: list[Node]) -> Node:
        pos = items[0].pos if items else 0
        return ListOf(pos, height(pos, *items), tuple(items))

    def map_lit(self, parts: list[Node]) -> Node:
        pos = parts[0].pos if parts else 0
        return MapOf(pos, height(pos, *parts), tuple(zip(parts[::2], parts[1::2], strict=True)))

    def exprlist(self, children: list[Node]) -> list[Node]:
        return children

    def fieldinits(self, children: list[Any]) -> list[Any]:
        return children

    def literal(self, children: list[Token]) -> Node:
        token = children[0]
        pos = token.start_pos or 0
        return Constant(pos, 1, LITERALS[token.type](str(token), pos))


LITERALS: Final[dict[str, Any]] = {
    "INT_LIT": literals.integer,
    "UINT_LIT": literals.unsigned,
    "FLOAT_LIT": literals.double,
    "STRING_LIT": literals.string,
    "MLSTRING_LIT": literals.string,
    "BYTES_LIT": literals.octets,
    "BOOL_LIT": lambda text, pos: text == "true",
    "NULL_LIT": lambda text, pos: None,
}
