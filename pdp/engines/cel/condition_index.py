"""Index of items by a necessary condition, to find the few items for given values."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar

from pdp.engines.cel.conditions import Condition

T = TypeVar("T")
_EXACT: Final = frozenset({"equals", "holds"})
"""Kinds of conditions that name every text that can meet them."""
_PREFERENCE: Final = ("path", "role", "roles", "groups", "ref", "contentType", "type", "warehouse", "op")
"""Variables by how well their conditions tell rules apart. An item is indexed by the first with a condition."""

Texts: TypeAlias = Mapping[str, Collection[str]]
"""The possible values of each variable, by name. A variable that is missing may have any value."""


class ConditionIndex(Generic[T]):
    """Items with their necessary conditions, in the order of their addition."""

    def __init__(self) -> None:
        self._items: list[T] = []
        self._numbers: dict[str, dict[str, list[int]]] = {}
        self._unindexed: list[int] = []

    def add(self, item: T, conditions: Sequence[Condition]) -> None:
        """Add an item. Callers need the item only if all `conditions` hold."""
        exact = {condition.variable: condition.texts for condition in conditions if condition.kind in _EXACT}
        variable = next((name for name in _PREFERENCE if name in exact), "")
        number = len(self._items)
        self._items.append(item)
        for text in exact.get(variable, ()):
            self._numbers.setdefault(variable, {}).setdefault(text, []).append(number)
        if not variable:
            self._unindexed.append(number)

    def find(self, texts: Texts) -> list[T]:
        """Return all items whose conditions can hold for `texts`, and maybe others, in the order of addition.

        A single condition per item is enough: an item is left out only if this condition holds for none of the values.
        """
        numbers = set(self._unindexed)
        for variable, by_text in self._numbers.items():
            for text in texts.get(variable, by_text):
                numbers.update(by_text.get(text, ()))
        return [self._items[number] for number in sorted(numbers)]


def texts_of(values: Mapping[str, Any]) -> Texts:
    """Return the text of each string variable as the only possible value, and all texts of each list variable."""
    known = ((name, values[name]) for name in _PREFERENCE if name in values)
    return {name: (value,) if isinstance(value, str) else value for name, value in known}
