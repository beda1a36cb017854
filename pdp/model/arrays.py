"""Columns: many resources as one value, and grouping of items by key with positions."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from operator import itemgetter
from typing import TypeAlias, TypeVar, final, overload

from pdp.model.question import Resource

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

Path: TypeAlias = tuple[str, ...]
"""Parts of a path below the warehouse."""


@final
class PathArray(Sequence[Resource]):
    """Resources of one type, warehouse and ref, with nothing but a path. Each access to an item makes the resource.

    Test with `type(x) is PathArray`: `isinstance` takes long for the classes of `collections.abc`.

    Row i is `names[i]` in the container `parents[parent_at[i]]`. The containers are distinct, and each has a row.
    """

    __slots__ = ("names", "parent_at", "parents", "ref", "type", "warehouse")

    def __init__(self, like: Resource, parents: Sequence[Path], parent_at: Sequence[int], names: Sequence[str]) -> None:
        """Make a column. `like` has the type, the warehouse and the ref."""
        self.type = like.type
        self.warehouse = like.warehouse
        self.ref = like.ref
        self.parents = parents
        self.parent_at = parent_at
        self.names = names

    @classmethod
    def in_one(cls, like: Resource, parent: Path, names: Sequence[str]) -> PathArray:
        """Return a column of resources in one container."""
        return cls(like, (parent,), bytes(len(names)), names)

    def __len__(self) -> int:
        return len(self.names)

    @overload
    def __getitem__(self, at: int) -> Resource: ...
    @overload
    def __getitem__(self, at: slice) -> PathArray: ...
    def __getitem__(self, at: int | slice) -> Resource | PathArray:
        if isinstance(at, slice):
            return self._part(at)
        return Resource(self.type, self.warehouse, (*self.parents[self.parent_at[at]], self.names[at]), self.ref)

    def _part(self, rows: slice) -> PathArray:
        """Return some rows, with their containers only."""
        parent_at = self.parent_at[rows]
        places = {place: number for number, place in enumerate(dict.fromkeys(parent_at))}
        parents = [self.parents[place] for place in places]
        like = Resource(self.type, self.warehouse, ref=self.ref)
        return PathArray(like, parents, list(map(places.__getitem__, parent_at)), self.names[rows])


def pick(column: Sequence[T], rows: Sequence[int]) -> Sequence[T]:
    """Return the items of a column in some rows."""
    if len(rows) > 1:
        picked: Sequence[T] = itemgetter(*rows)(column)
        return picked
    return [column[row] for row in rows]


def positions_by(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[int]]:
    """Return the positions of the items of each key, keys in order of first appearance."""
    positions: dict[K, list[int]] = {}
    for position, item in enumerate(items):
        positions.setdefault(key(item), []).append(position)
    return positions
