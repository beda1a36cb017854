"""Grouping of items by key. The positions let callers put results back in order."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


def positions_by(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[int]]:
    """Return the positions of the items of each key, keys in order of first appearance."""
    positions: dict[K, list[int]] = {}
    for position, item in enumerate(items):
        positions.setdefault(key(item), []).append(position)
    return positions
