"""Access of one principal to the content of one container, and the shared budget of such caches."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from immutables import Map

from pdp.engines.grants.rules import EffectiveRelations, evaluate
from pdp.facts.nodes import GranteeNode
from pdp.facts.objects import ObjectName

_LONGEST_PATH: Final = 256
"""Characters of a path in a cache. A request can name any path."""


class ContainerAccess:
    """Access of a principal inside a warehouse or namespace: one answer for almost all objects, and few exceptions.

    `parent` has the relations on the container. `exceptions` has, for each grantee with grants inside, the names of
    the objects with a grant of their own or with a visible object below; mostly there are no exceptions. All other
    objects of a type have equal relations, because nothing but the container decides about them.
    """

    __slots__ = ("_base_mask", "_defaults", "exceptions", "parent")

    def __init__(
        self, parent: EffectiveRelations, exceptions: tuple[Map[ObjectName, GranteeNode], ...], base_mask: int
    ) -> None:
        self.parent = parent
        self.exceptions = exceptions
        self._base_mask = base_mask
        self._defaults: dict[str, EffectiveRelations] = {}

    def default_relations(self, type: str) -> EffectiveRelations:
        """Return the relations on any object of a type in the container, except on the exceptions."""
        relations = self._defaults.get(type)
        if relations is None:
            relations = self._defaults[type] = evaluate(type, self._base_mask, self.parent, False)
        return relations


@lru_cache(maxsize=4096)
def uniform_access(parent: EffectiveRelations, base_mask: int) -> ContainerAccess:
    """Return the access to a container without exceptions; one instance for all containers with equal relations."""
    return ContainerAccess(parent, (), base_mask)


class CacheBudget:
    """Number of further entries for all caches that share the budget."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self, length: int) -> bool:
        """Take a single entry for a path of `length` characters; return False if there is no entry for the path."""
        if length > _LONGEST_PATH or self.left <= 0:
            return False
        self.left -= 1
        return True
