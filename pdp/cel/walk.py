"""Traversal of a checked tree, and a canonical text of a tree that shows its meaning, not its spelling."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pdp.cel.checker import CheckedExpression, Variable
from pdp.cel.syntax import Call, Constant, ListOf, Logic, Name, Node


def variable_name(node: Node, checked: CheckedExpression) -> str:
    """Return the name of the variable that `node` reads, or "" for any other node."""
    meaning = checked.names.get(node)
    return meaning.name if isinstance(node, Name) and isinstance(meaning, Variable) else ""


def children(node: Node) -> Iterator[Node]:
    """Yield the nodes directly below `node`, in the order of the text."""
    for field in node.__struct_fields__:
        yield from _nodes_in(getattr(node, field))


def _nodes_in(value: Any) -> Iterator[Node]:
    if isinstance(value, Node):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _nodes_in(item)


def walk(node: Node) -> Iterator[Node]:
    """Yield `node` and all nodes below, parents first, in the order of the text."""
    stack = [node]
    while stack:
        current = stack.pop()
        yield current
        stack.extend(reversed(list(children(current))))


def canonical_text(node: Node) -> str:
    """Return a text of the tree. Equal texts mean equal results, whatever the values of the variables.

    Operands of commutative operators are sorted. Different texts may still mean the same.
    """
    if isinstance(node, Constant):
        return f"{type(node.value).__name__} {node.value!r}"
    below = [canonical_text(child) for child in children(node)]
    if isinstance(node, Logic) or (isinstance(node, Call) and node.function in ("_==_", "_!=_")):
        below.sort()
    if isinstance(node, Call) and node.function == "@in" and isinstance(node.args[1], ListOf):
        below[1] = f"one of ({', '.join(sorted(map(canonical_text, node.args[1].items)))})"
    return f"{_label(node)}({', '.join(below)})"


def _label(node: Node) -> str:
    """Return the class and the plain fields of `node`, without its children, offset and depth."""
    fields = (field for field in node.__struct_fields__ if field not in ("pos", "depth"))
    words = [getattr(node, field) for field in fields]
    plain = [repr(word) for word in words if isinstance(word, (str, bool)) or word is None]
    return " ".join([type(node).__name__, *plain])
