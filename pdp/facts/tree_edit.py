"""Edits of persistent maps: many new values become one new map, and unchanged parts stay shared."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

from immutables import Map

from pdp.facts.objects import ContainerPath, ObjectName

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class TreeEdit(Generic[V]):
    """Edit of one tree. New values cover the values of the base tree; the base tree does not change."""

    __slots__ = ("_base", "_new")

    def __init__(self, base: Map[ContainerPath, Map[ObjectName, V]]) -> None:
        self._base = base
        self._new: dict[ContainerPath, dict[ObjectName, V | None]] = {}

    def get(self, path: ContainerPath, name: ObjectName) -> V | None:
        """Return the current value of a name in a container; None if there is no value."""
        new = self._new.get(path)
        if new is not None and name in new:
            return new[name]
        names = self._base.get(path)
        return None if names is None else names.get(name)

    def set(self, path: ContainerPath, name: ObjectName, value: V | None) -> None:
        """Set the value of a name in a container; None removes the name."""
        new = self._new.get(path)
        if new is None:
            new = self._new[path] = {}
        new[name] = value

    def tree(self) -> Map[ContainerPath, Map[ObjectName, V]]:
        """Return the edited tree. A container without names is removed."""
        containers = {path: merge(self._base.get(path), names) for path, names in self._new.items()}
        return merge(self._base, {path: names or None for path, names in containers.items()})


def merge(base: Map[K, V] | None, values: Mapping[K, V | None]) -> Map[K, V]:
    """Return a map with new values; None removes a key. Without values, return the very same map."""
    if base is not None and not values:
        return base
    edit = (base if base is not None else Map[K, V]()).mutate()
    for key, value in values.items():
        if value is not None:
            edit[key] = value
        else:
            edit.pop(key, None)
    return edit.finish()
