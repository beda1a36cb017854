"""Rules on shelves, one condition each, so that of many only those are looked at that some values can concern."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from pdp.engines.cel.conditions import Condition

T = TypeVar("T")
_ORDER: Final = ("path", "role", "roles", "ref", "contentType", "type", "warehouse", "op")
"""Which condition chooses the shelf: the first of these, as what tells rules apart best."""

Texts = Mapping[str, Collection[str]]
"""The values a variable may have; one that is not there may have any."""


class ConditionIndex(Generic[T]):
    """Items with the conditions that they need, in the order in which they were added."""

    def __init__(self) -> None:
        self._items: list[T] = []
        self._shelves: dict[str, dict[str, list[int]]] = {}
        self._rest: list[int] = []

    def add(self, item: T, conditions: Sequence[Condition]) -> None:
        exact = {condition.variable: condition.texts for condition in conditions if condition.kind != "starts"}
        variable = next((name for name in _ORDER if name in exact), "")
        number = len(self._items)
        self._items.append(item)
        for text in exact.get(variable, ()):
            self._shelves.setdefault(variable, {}).setdefault(text, []).append(number)
        if not variable:
            self._rest.append(number)

    def find(self, texts: Texts) -> list[T]:
        """All items whose conditions hold for some of `texts`, and others."""
        numbers = set(self._rest)
        for variable, shelves in self._shelves.items():
            for text in texts.get(variable, shelves):
                numbers.update(shelves.get(text, ()))
        return [self._items[number] for number in sorted(numbers)]


def texts_of(values: Mapping[str, Any]) -> Texts:
    """The one text of a string variable, all texts of a list."""
    listed = ((name, values[name]) for name in _ORDER if name in values)
    return {name: (value,) if isinstance(value, str) else value for name, value in listed}
