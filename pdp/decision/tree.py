"""Decision trees: a check as an AND/OR tree whose leaves are concrete checks or fixed decisions.

One tree covers all resources of a check: every node holds a column of resources, not one resource. This module knows
neither how trees are planned (`plan`) nor how their outcomes are folded (`fold`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeAlias, TypeVar

import msgspec

from pdp.engines.engine import Group
from pdp.model.columns import positions_by
from pdp.model.question import Reason, Resource

K = TypeVar("K", bound=Hashable)


class Leaf(msgspec.Struct, frozen=True, gc=False):
    """Concrete check of many resources: one action on one concrete type, for the engines to decide.

    `override` is a reason to permit where the engines neither forbid nor fail. None without an override.
    """

    group: Group
    resources: Sequence[Resource]
    override: Reason | None = None


class FixedDecision(msgspec.Struct, frozen=True, gc=False):
    """Decision without an engine: the same outcome and reason for every resource."""

    allowed: bool
    by: Reason
    group: Group
    resources: Sequence[Resource]
    errors: tuple[str, ...] = ()


class AllOf(msgspec.Struct, frozen=True, gc=False):
    """Conjunction: every part must permit."""

    parts: tuple[Node, ...]


class AnyOf(msgspec.Struct, frozen=True, gc=False):
    """Disjunction of dependent parts: one permit suffices, but a forbid or a failure of any part denies."""

    parts: tuple[Node, ...]


class EachOf(msgspec.Struct, frozen=True, gc=False):
    """Disjunction of independent parts: one permit suffices even if another part forbids or fails.

    With `optional`, no permit is needed: the parts are only reported.
    """

    parts: tuple[Node, ...]
    optional: bool = False


class Split(msgspec.Struct, frozen=True, gc=False):
    """Resources that need different trees. `parts[k]` is the tree of the rows `at[k]`."""

    at: tuple[Sequence[int], ...]
    parts: tuple[Node, ...]


Node: TypeAlias = Leaf | FixedDecision | AllOf | AnyOf | EachOf | Split


def split(
    resources: Sequence[Resource], key: Callable[[Resource], K], node: Callable[[K, list[Resource]], Node]
) -> Node:
    """Return the tree of resources with different keys. `node` plans the resources of one key."""
    rows_by = positions_by(resources, key)
    parts = tuple(node(value, [resources[row] for row in rows]) for value, rows in rows_by.items())
    return parts[0] if len(parts) == 1 else Split(tuple(rows_by.values()), parts)


def leaves_of(node: Node) -> list[Leaf | FixedDecision]:
    """Return the leaves of a tree in order."""
    kind = type(node)
    if kind is Leaf or kind is FixedDecision:
        return [node]  # type: ignore[list-item]
    return [leaf for part in node.parts for leaf in leaves_of(part)]  # type: ignore[union-attr]


def leaves(node: Node, at: Sequence[int]) -> list[tuple[Leaf | FixedDecision, Sequence[int]]]:
    """Return the leaves of a tree in order, each with the positions of its resources in the answer.

    `at[i]` is the position of the tree's resource i.
    """
    found: list[tuple[Leaf | FixedDecision, Sequence[int]]] = []
    _collect(node, at, found)
    return found


def _collect(node: Node, at: Sequence[int], found: list[tuple[Leaf | FixedDecision, Sequence[int]]]) -> None:
    kind = type(node)
    if kind is Leaf or kind is FixedDecision:
        found.append((node, at))  # type: ignore[arg-type]
    elif isinstance(node, Split):
        for rows, part in zip(node.at, node.parts, strict=True):
            _collect(part, [at[row] for row in rows], found)
    else:
        for part in node.parts:  # type: ignore[union-attr]
            _collect(part, at, found)


def first_leaf(node: Node, row: int) -> tuple[Leaf | FixedDecision, int]:
    """Return the first leaf that decides a row of a tree, and the row within the leaf."""
    if isinstance(node, Leaf | FixedDecision):
        return node, row
    if isinstance(node, Split):
        part, row = branch(node, row)
        return first_leaf(part, row)
    return first_leaf(node.parts[0], row)


def branch(node: Split, row: int) -> tuple[Node, int]:
    """Return the part that decides a row, and the row within the part."""
    for rows, part in zip(node.at, node.parts, strict=True):
        if row in rows:
            return part, rows.index(row)
    raise IndexError(row)
