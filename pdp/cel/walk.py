"""Walking a rule's tree, and a text of it that shows what it means rather than how it is written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pdp.cel.checker import CheckedExpression, Variable
from pdp.cel.syntax import Call, Constant, ListOf, Logic, Name, Node


def variable_name(node: Node, checked: CheckedExpression) -> str:
    """The variable that a node is, or ""."""
    meaning = checked.names.get(node)
    return meaning.name if isinstance(node, Name) and isinstance(meaning, Variable) else ""


def children(node: Node) -> Iterator[Node]:
    """The nodes right below."""
    for field in node.__struct_fields__:
        yield from _nodes(getattr(node, field))


def _nodes(value: Any) -> Iterator[Node]:
    if isinstance(value, Node):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _nodes(item)


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and all nodes below, in the order of the text."""
    stack = [node]
    while stack:
        current = stack.pop()
        yield current
        stack.extend(reversed(list(children(current))))


def canonical_text(node: Node) -> str:
    """A text that two nodes share only if they mean the same; the order of commutative operands does not show."""
    if isinstance(node, Constant):
        return f"{type(node.value).__name__} {node.value!r}"
    below = [canonical_text(child) for child in children(node)]
    if isinstance(node, Logic) or (isinstance(node, Call) and node.function in ("_==_", "_!=_")):
        below.sort()
    if isinstance(node, Call) and node.function == "@in" and isinstance(node.args[1], ListOf):
        below[1] = f"one of ({', '.join(sorted(map(canonical_text, node.args[1].items)))})"
    return f"{_label(node)}({', '.join(below)})"


def _label(node: Node) -> str:
    """All of a node but its children and its place."""
    kept = (field for field in node.__struct_fields__ if field not in ("pos", "depth"))
    words = [getattr(node, field) for field in kept]
    plain = [repr(word) for word in words if isinstance(word, (str, bool)) or word is None]
    return " ".join([type(node).__name__, *plain])
