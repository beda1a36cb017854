"""Facts: one revision's snapshot of objects, grants and memberships; immutable.

Owns what can be asked of a snapshot, not what a privilege means: that is the grants engine's table. The next snapshot
is this one with some changes applied; it shares all that they do not touch.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pdp.errors import ConfigError
from pdp.facts.index import UNKNOWN, Index, ObjectNode, StoredPrivileges
from pdp.facts.objects import (
    BIT,
    SERVER,
    Change,
    ContainerPath,
    Grant,
    GrantAdded,
    Object,
    ObjectKey,
    ObjectPut,
    join_key,
)
from pdp.model.checks import CONTENT_TYPES, Principal

_PARENT_IS_PROJECT: Final = frozenset({"warehouse", "role", "tag"})
_CONTAINERS: Final = frozenset({"warehouse", "namespace"})
_MEMO_LIMIT: Final = 10_000
_LONGEST_KEPT: Final = 256
"""Characters of a name that anybody may ask about and that is remembered."""
_NO_ROLES: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """One snapshot. `projects` are the projects that configuration gives to warehouses; they hold over registered ones.

    `derived` is room for what is computed from this snapshot and may be computed again at any time; see `remember`.
    """

    epoch: str
    sequence: int
    index: Index = Index()  # noqa: RUF009  immutable
    projects: Mapping[str, str] = field(default_factory=dict)
    derived: dict[tuple[str, str], Any] = field(default_factory=dict, repr=False)

    @classmethod
    def empty(cls) -> Facts:
        """Nobody was granted anything."""
        return cls("none", 0)

    @classmethod
    def build(cls, epoch: str, sequence: int, objects: Iterable[Object], grants: Iterable[Grant]) -> Facts:
        """A snapshot from scratch; costs the size of the world. A grant given twice counts once."""

        def changes() -> Iterator[Change]:
            yield from map(ObjectPut, objects)
            yield from map(GrantAdded, grants)

        with _uncollected():
            return cls(epoch, sequence, Index().after(changes()))

    def apply(self, sequence: int, changes: Iterable[Change]) -> Facts:
        """The snapshot of revision `sequence`, which made these changes; costs their size, not the world's."""
        return replace(self, sequence=sequence, index=self.index.after(changes), derived={})

    def with_projects(self, projects: Mapping[str, str]) -> Facts:
        """The same facts with the projects that configuration gives; ConfigError where one is registered elsewhere."""
        for warehouse, project in projects.items():
            known = self.object(("warehouse", (warehouse,)))
            if known.project not in ("", project):
                said = f"warehouse `{warehouse}` belongs to `{known.project}`, not to `{project}`"
                raise ConfigError(f"`warehouses` contradicts the store: {said}")
        return replace(self, projects=dict(projects), derived={})

    def node(self, key: ObjectKey) -> ObjectNode:
        """What is known of an object, and what was granted on it."""
        return self.index.node(key)

    def object(self, key: ObjectKey) -> Object:
        """What is registered about an object; a blank one where nothing is."""
        return self.index.node(key).registered or Object(key)

    def is_registered(self, key: ObjectKey) -> bool:
        """Whether somebody registered this very object."""
        return self.index.node(key).registered is not None

    def has(self, grant: Grant) -> bool:
        """Whether this very grant is there."""
        stored = self.node(grant.object).grants.get(grant.principal)
        return stored is not None and stored.has(grant.privilege, grant.id)

    def objects(self) -> Iterator[Object]:
        """Everything registered, in no order."""
        for here in self.index.objects.values():
            for entry in here.values():
                if entry.registered is not None:
                    yield entry.registered

    def grants(self) -> Iterator[Grant]:
        """Every grant, in no order."""
        for place, here in self.index.objects.items():
            for leaf, entry in here.items():
                yield from _grants(join_key(place, leaf), entry)

    def grants_on(self, key: ObjectKey) -> Iterator[Grant]:
        """The grants on one object."""
        return _grants(key, self.node(key))

    def grants_to(self, principal: str) -> Iterator[Grant]:
        """What one grantee was granted, anywhere."""
        for place, here in self.index.grantees.get(principal, {}).items():
            for leaf, holding in here.items():
                yield from _unfold(join_key(place, leaf), principal, holding.stored)

    def grantees(self) -> Iterator[str]:
        """Everybody to whom something was granted."""
        return iter(self.index.grantees)

    def subtree(self, key: ObjectKey) -> Iterator[tuple[ObjectKey, ObjectNode]]:
        """An object, if it is known, and all known objects below it, each before those inside it."""
        entry = self.node(key)
        if entry is not UNKNOWN:
            yield key, entry
        if key[0] in _CONTAINERS:
            yield from self._inside(key[1])
        for other in self._top() if key[0] in ("project", "server") else ():
            if other != key and (key == SERVER or self.parent(other) == key):
                yield other, self.node(other)
                yield from self._inside(other[1]) if other[0] == "warehouse" else ()

    def warehouses(self, project: str) -> tuple[str, ...]:
        """The known warehouses of a project."""
        known: tuple[str, ...] | None = self.derived.get(("warehouses", project))
        if known is None:
            above = ("project", (project,))
            known = tuple(key[1][0] for key in self._top() if key[0] == "warehouse" and self.parent(key) == above)
            if len(project) <= _LONGEST_KEPT:
                self.remember("warehouses", project, known)
        return known

    def can_assume(self, principal: Principal, role: str) -> bool:
        """Whether the principal is, or is a member of, the role with this bare id; see `roles_of`."""
        return principal.id == f"role:{role}" or role in self.roles_of(principal)

    def roles_of(self, principal: Principal) -> frozenset[str]:
        """The bare ids of all roles that the principal is a member of, through other roles too.

        Stored memberships, and those that what it carries stands for (`member_of`).
        """
        if principal.type == "anonymous":
            return _NO_ROLES
        found = self._stored_roles_of(principal.id)
        for role in principal.member_of:
            found = found | {role} | self._stored_roles_of(f"role:{role}")
        return found

    def _stored_roles_of(self, grantee: str) -> frozenset[str]:
        if grantee not in self.index.memberships:
            return _NO_ROLES
        known: frozenset[str] | None = self.derived.get(("roles", grantee))
        if known is None:
            known = self._roles_of(grantee)
            self.remember("roles", grantee, known)
        return known

    def remember(self, kind: str, about: str, value: Any) -> None:
        """Keep what was derived. Bounded: when full, all is forgotten."""
        if len(self.derived) >= _MEMO_LIMIT:
            self.derived.clear()
        self.derived[kind, about] = value

    def parent(self, key: ObjectKey) -> ObjectKey | None:
        """The object above: by path below a warehouse, by registration for warehouse, role and tag."""
        type, parts = key
        if type in CONTENT_TYPES:
            return ("namespace", parts[:-1]) if parts[2:] else ("warehouse", parts[:1])
        if type in _PARENT_IS_PROJECT:
            project = (type == "warehouse" and self.projects.get(parts[0])) or self.object(key).project
            return ("project", (project,)) if project else None
        return None if type == "server" else SERVER

    def ancestors(self, key: ObjectKey) -> Iterator[ObjectKey]:
        """All objects above, nearest first."""
        above = self.parent(key)
        while above is not None:
            yield above
            above = self.parent(above)

    def _top(self) -> Iterable[ObjectKey]:
        """What stands below no warehouse: known, or named by something known or by configuration."""
        known = {join_key((), leaf) for leaf in self.index.objects.get((), ())}
        known |= {("warehouse", (name,)) for name in self.projects}
        return known | {above for key in known if (above := self.parent(key)) is not None}

    def _inside(self, place: ContainerPath) -> Iterator[tuple[ObjectKey, ObjectNode]]:
        places = [place]
        while places:  # no recursion: namespaces nest as deep as anybody likes
            place = places.pop()
            for leaf, entry in self.index.objects.get(place, {}).items():
                yield join_key(place, leaf), entry
                if leaf[0] == "namespace":
                    places.append((*place, leaf[1]))

    def _roles_of(self, principal: str) -> frozenset[str]:
        found: set[str] = set()
        fringe = [principal]
        while fringe:
            new = self.index.memberships.get(fringe.pop(), _NO_ROLES) - found
            found |= new
            fringe += [f"role:{role}" for role in new]
        return frozenset(found)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without garbage collection: while a world is built, all is kept, and looking through it doubles the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _grants(key: ObjectKey, entry: ObjectNode) -> Iterator[Grant]:
    for principal, stored in entry.grants.items():
        yield from _unfold(key, principal, stored)


def _unfold(key: ObjectKey, principal: str, stored: StoredPrivileges) -> Iterator[Grant]:
    for id, mask in (("", stored.mask), *stored.ids):
        for privilege, bit in BIT.items():
            if mask & bit:
                yield Grant(key, privilege, principal, id)
