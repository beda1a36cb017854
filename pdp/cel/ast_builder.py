"""Syntax nodes from the parts that the parser has read. Macros are expanded here."""

from __future__ import annotations

from typing import Final

from pdp.cel.syntax import (
    MAX_DEPTH,
    Call,
    CompileError,
    Comprehension,
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

KEYWORDS: Final = frozenset({"in", "true", "false", "null"})
RESERVED: Final = (
    KEYWORDS
    | frozenset({"as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop"})
    | frozenset({"package", "namespace", "return", "var", "void", "while"})
)
"""Words that are no names of variables and functions. Only keywords are no names of fields and methods."""
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


def refuse_word(word: str, pos: int) -> CompileError:
    """Return the error for a reserved word in the place of a name."""
    return CompileError(f"reserved word `{word}`", pos)


def build_unary(function: str, _: None, operand: Node) -> Node:
    """Build a signed operand."""
    return Call(operand.pos, depth_above(operand.pos, operand), function, None, (operand,))


def build_binary(function: str, left: Node, right: Node) -> Node:
    """Build the call of a binary operator."""
    depth = 1 + max(left.depth, right.depth)
    if depth > MAX_DEPTH:
        depth_above(left.pos, left, right)
    return Call(left.pos, depth, function, None, (left, right))


def build_logic(sign: str, left: list[Node], right: Node) -> Node:
    """Build a chain of `&&` or `||`. A chain of thousands of operands stays one level deep."""
    conjunction = sign == "&&"
    parts: list[Node] = []
    for part in (*left, right):
        if isinstance(part, Logic) and part.conjunction is conjunction:
            parts += part.parts
        else:
            parts.append(part)
    return Logic(parts[0].pos, depth_above(parts[0].pos, *parts), conjunction, tuple(parts))


def build_list(items: list[Node]) -> Node:
    """Build a list literal."""
    pos = items[0].pos if items else 0
    return ListOf(pos, depth_above(pos, *items), tuple(items))


def build_map(parts: list[Node]) -> Node:
    """Build a map literal from alternating keys and values."""
    pos = parts[0].pos if parts else 0
    return MapOf(pos, depth_above(pos, *parts), tuple(zip(parts[::2], parts[1::2], strict=True)))


def build_function_call(name: str, pos: int, args: list[Node]) -> Node:
    """Build a function call or the macro `has`. A dot before the name changes nothing: functions have no containers."""
    if name == _HAS:
        return _has(pos, args)
    if name in RESERVED:
        raise refuse_word(name, pos)
    return Call(pos, depth_above(pos, *args), name, None, tuple(args))


def build_method_call(target: Node, name: str, pos: int, args: list[Node]) -> Node:
    """Build a macro or a method call."""
    macro, counts = _MACROS.get(name, ("all", ()))
    if len(args) in counts:
        return _comprehension(macro, name, target, args)
    if name in KEYWORDS:
        raise refuse_word(name, pos)
    return Call(pos, depth_above(pos, target, *args), name, target, tuple(args))


def _has(pos: int, args: list[Node]) -> Node:
    if len(args) != 1 or not isinstance(args[0], Select):
        raise CompileError("has() takes one field selection", pos)
    return Has(args[0].pos, args[0].depth, args[0].operand, args[0].field)


def _comprehension(macro: Macro, name: str, target: Node, args: list[Node]) -> Node:
    variable, *rest = args
    if not isinstance(variable, Name) or variable.rooted:
        raise CompileError(f"{name}() takes a name as its first argument", variable.pos)
    where, body = (rest[0], rest[1]) if len(rest) == 2 else (None, rest[0])
    depth = depth_above(target.pos, target, *rest)
    return Comprehension(target.pos, depth, macro, variable.name, target, body, where)
