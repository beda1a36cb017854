"""Nodes of the two trees of an index, known objects and the grants of a single grantee, and edits of the trees.

Both trees map the path of a container to the names in the container. Nodes are immutable and shared: millions of
grants have few different sets of privileges.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import lru_cache
from typing import Final, Generic, TypeAlias, TypeVar

import msgspec
from immutables import Map

from pdp.facts.objects import BIT, VISIBILITY, ContainerPath, Object, ObjectName

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class StoredPrivileges(msgspec.Struct, frozen=True, gc=False):
    """Grants of one grantee on one object. `mask` counts for every id of the object; `ids` pairs an id with a mask."""

    mask: int
    ids: tuple[tuple[str, int], ...] = ()

    def counting(self, registered: str, requested: str = "") -> int:
        """Return the mask of the grants that count for an object.

        `registered` is the id of the registration, `requested` the id in the check; each can be empty. A grant for an
        id counts unless one of the two ids contradicts: without a registered id and without a requested id, nobody can
        tell whether the object is still the same.
        """
        if not self.ids:
            return self.mask
        counting = self.mask
        for id, mask in self.ids:
            if registered in ("", id) and requested in ("", id):
                counting |= mask
        return counting

    def toggle(self, privilege: str, id: str) -> StoredPrivileges | None:
        """Return these privileges with a single grant added or removed; None if no grant is left."""
        bit = BIT[privilege]
        if not id:
            if not self.ids:
                return shared_privileges(self.mask ^ bit)
            return StoredPrivileges(self.mask ^ bit, self.ids)
        masks = dict(self.ids)
        masks[id] = masks.get(id, 0) ^ bit
        ids = tuple(sorted((id, mask) for id, mask in masks.items() if mask))
        return StoredPrivileges(self.mask, ids) if ids or self.mask else None

    def count(self) -> int:
        """Return the number of grants."""
        return self.mask.bit_count() + sum(mask.bit_count() for _, mask in self.ids)

    def has(self, privilege: str, id: str) -> bool:
        """Tell whether exactly this grant is stored."""
        return bool((dict(self.ids).get(id, 0) if id else self.mask) & BIT[privilege])


class ObjectNode(msgspec.Struct, frozen=True, gc=False):
    """Known object: registered, with grants, or above a known object. `children` counts the known objects inside."""

    registered: Object | None = None
    grants: Map[str, StoredPrivileges] = Map()
    children: int = 0

    @property
    def id(self) -> str:
        """Return the registered id, or an empty text."""
        return self.registered.id if self.registered else ""

    @property
    def is_known(self) -> bool:
        """Tell whether the index has a reason to store the node."""
        return self.registered is not None or self.children > 0 or bool(self.grants)


class GranteeNode(msgspec.Struct, frozen=True, gc=False):
    """Grants of one grantee at one object. `below` counts the visible objects directly inside the object."""

    stored: StoredPrivileges
    below: int = 0

    def is_visible(self, registered: str) -> bool:
        """Tell whether the grantee sees the object, which is registered with the id `registered`."""
        return self.below > 0 or bool(self.stored.counting(registered) & VISIBILITY)


GranteeTree: TypeAlias = Map[ContainerPath, Map[ObjectName, GranteeNode]]
"""All objects on which a grantee has a grant, and all objects above a visible object."""

NO_PRIVILEGES: Final = StoredPrivileges(0)
UNKNOWN: Final = ObjectNode()
NO_GRANTS: Final = GranteeNode(NO_PRIVILEGES)
EMPTY_TREE: Final[GranteeTree] = Map()


@lru_cache(maxsize=4096)
def shared_privileges(mask: int) -> StoredPrivileges | None:
    """Return the shared privileges of a mask without ids; None for an empty mask."""
    return StoredPrivileges(mask) if mask else None


def grantee_node(stored: StoredPrivileges, below: int) -> GranteeNode:
    """Return a node; a shared node where no grant has an id."""
    return GranteeNode(stored, below) if stored.ids else _shared_node(stored.mask, below)


@lru_cache(maxsize=4096)
def _shared_node(mask: int, below: int) -> GranteeNode:
    return GranteeNode(shared_privileges(mask) or NO_PRIVILEGES, below)


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
        """Return the edited tree, the same object without edits, and end the edit.

        A container without names is removed. The memory of each container's edit serves the next container.
        """
        if not self._new:
            return self._base
        tree = self._base.mutate()
        while self._new:
            path, names = self._new.popitem()
            if merged := merge(self._base.get(path), names):
                tree[path] = merged
            else:
                tree.pop(path, None)
        return tree.finish()


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
