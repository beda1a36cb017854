"""The abstract syntax of a rule: small frozen nodes that know their offset in the text, and the limits they keep.

Owns nothing of parsing, types or evaluation. Nodes compare by identity, so that they can be keys of a type table.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import msgspec

MAX_SOURCE: Final = 65_536
"""Characters of one rule."""
MAX_DEPTH: Final = 96
"""Levels of one rule's tree: what the checker and the emitter recurse over, and what CPython's own parser takes."""
MAX_NODES: Final = 20_000
"""Nodes of one rule's tree."""

Macro: TypeAlias = Literal["all", "exists", "exists_one", "map", "filter"]


class CompileError(Exception):
    """A rule that does not parse or type-check; `offset` counts characters of its text from 0."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset


class Node(msgspec.Struct, frozen=True, eq=False):
    """Any expression: where it begins, and the height of the tree below it."""

    pos: int
    depth: int


class Constant(Node, frozen=True, eq=False):
    """A literal; `value` is a value of the language."""

    value: Any


class Name(Node, frozen=True, eq=False):
    """An identifier; `rooted` is `.name`, which no local name and no container changes."""

    name: str
    rooted: bool = False


class Select(Node, frozen=True, eq=False):
    """`operand.field`."""

    operand: Node
    field: str


class Has(Node, frozen=True, eq=False):
    """`has(operand.field)`."""

    operand: Node
    field: str


class Call(Node, frozen=True, eq=False):
    """A function, method (with `target`) or operator; operators are named as in the CEL standard, `_+_`."""

    function: str
    target: Node | None
    args: tuple[Node, ...]


class Logic(Node, frozen=True, eq=False):
    """A chain of `&&` or `||`, flattened: both are associative and absorb errors in any order."""

    conjunction: bool
    parts: tuple[Node, ...]


class Conditional(Node, frozen=True, eq=False):
    """`condition ? then : otherwise`."""

    condition: Node
    then: Node
    otherwise: Node


class ListOf(Node, frozen=True, eq=False):
    """`[a, b]`."""

    items: tuple[Node, ...]


class MapOf(Node, frozen=True, eq=False):
    """`{k: v}`."""

    entries: tuple[tuple[Node, Node], ...]


class Comprehension(Node, frozen=True, eq=False):
    """A macro over a list or the keys of a map; `where` is the filter of a three-argument `map`."""

    macro: Macro
    variable: str
    range: Node
    body: Node
    where: Node | None = None


def height(pos: int, *children: Node) -> int:
    """The depth of a node above `children`; raises CompileError beyond MAX_DEPTH."""
    depth = 1 + max((child.depth for child in children), default=0)
    if depth > MAX_DEPTH:
        raise CompileError(f"nested too deeply: more than {MAX_DEPTH} levels", pos)
    return depth
