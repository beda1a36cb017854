"""A bounded cache of derived values, for every place that remembers by a key from strangers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(OrderedDict[K, V]):
    """Derived values by key, at most `entries` of them. The oldest value goes first.

    Values of keys above `longest` characters are not kept, so that few entries cannot hold much memory. Read with
    `get`, which costs as much as a dict's. Not safe for use by several threads at once.
    """

    def __init__(self, entries: int, longest: int = 0) -> None:
        super().__init__()
        self.entries = entries
        self.longest = longest

    def keep(self, key: K, value: V, length: int = 0) -> V:
        """Keep a value and return it. `length` counts the characters of the key."""
        if length <= self.longest:
            self[key] = value
            if len(self) > self.entries:
                self.popitem(last=False)
        return value
