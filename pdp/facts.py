"""Facts: one revision's snapshot of objects, grants and memberships; immutable.

Owns the data and its indexes, not what a privilege means: that is the grants engine's table. The one exception is
membership, which decides whose grants are looked up at all: an assignee or owner of a role is its member.

Objects are known by keys without a ref, because a grant holds on every ref. What lies below a warehouse is not
registered: the parent follows from the path.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import msgspec

from pdp.model import CONTENT_TYPES, NAMED_TYPES, Principal, Resource
from pdp.references import format_resource

Key: TypeAlias = tuple[str, tuple[str, ...]]
"""An object: its type and decoded parts, warehouse first (`("table", ("lake", "sales", "orders"))`)."""

SERVER: Final[Key] = ("server", ())
MEMBERSHIP: Final = frozenset({"assignee", "ownership"})
"""Stored privileges on a role that make the grantee its member."""

_PARENT_IS_PROJECT: Final = frozenset({"warehouse", "role", "tag"})
_MEMO_LIMIT: Final = 10_000


class Object(msgspec.Struct, frozen=True):
    """What is registered about an object: the `project` of a warehouse, role or tag, and the managed-access flag."""

    key: Key
    project: str = ""
    managed: bool = False


class Grant(msgspec.Struct, frozen=True, order=True):
    """A stored privilege. `principal` is a canonical id; a grant with an `id` is for the object with that id alone."""

    object: Key
    privilege: str
    principal: str
    id: str = ""


Grants: TypeAlias = Mapping[str, tuple[Grant, ...]]
"""The grants on one object, by grantee."""
NO_GRANTS: Final[Grants] = {}
_NO_ROLES: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """One snapshot. Every index is a mapping by object or principal, so that a successor can share what is unchanged.

    `derived` is room for what engines compute from this snapshot and may compute again at any time; see `remember`.
    """

    epoch: str
    sequence: int
    objects: Mapping[Key, Object]
    grants: Mapping[Key, Grants]
    objects_of: Mapping[str, frozenset[Key]]
    """Grantee -> the objects on which it has grants."""
    memberships: Mapping[str, frozenset[str]]
    """Grantee -> the roles (bare ids) that it is a direct member of."""
    derived: dict[tuple[str, str], Any] = field(default_factory=dict, repr=False)

    @classmethod
    def empty(cls) -> Facts:
        """Nobody was granted anything."""
        return cls.build("none", 0, (), ())

    @classmethod
    def build(cls, epoch: str, sequence: int, objects: Iterable[Object], grants: Iterable[Grant]) -> Facts:
        """A snapshot from scratch; costs the size of the world. A grant given twice counts once."""
        on: dict[Key, dict[str, tuple[Grant, ...]]] = {}
        objects_of: dict[str, set[Key]] = {}
        memberships: dict[str, set[str]] = {}
        for grant in sorted(set(grants)):
            grantees = on.setdefault(grant.object, {})
            grantees[grant.principal] = (*grantees.get(grant.principal, ()), grant)
            objects_of.setdefault(grant.principal, set()).add(grant.object)
            if grant.object[0] == "role" and grant.privilege in MEMBERSHIP:
                memberships.setdefault(grant.principal, set()).add(grant.object[1][0])
        return cls(
            epoch,
            sequence,
            {registered.key: registered for registered in objects},
            on,
            {principal: frozenset(keys) for principal, keys in objects_of.items()},
            {principal: frozenset(roles) for principal, roles in memberships.items()},
        )

    def with_projects(self, projects: Mapping[str, str]) -> Facts:
        """The same facts with the projects of some warehouses; ValueError where one is registered elsewhere."""
        objects = dict(self.objects)
        for warehouse, project in projects.items():
            key = ("warehouse", (warehouse,))
            known = objects.get(key, Object(key))
            if known.project not in ("", project):
                raise ValueError(f"warehouse `{warehouse}` belongs to `{known.project}`, not to `{project}`")
            objects[key] = msgspec.structs.replace(known, project=project)
        return replace(self, objects=objects, derived={})

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
        if grantee not in self.memberships:
            return _NO_ROLES
        known = self.derived.get(("roles", grantee))
        if known is None:
            known = self.remember("roles", grantee, self._roles_of(grantee))
        found: frozenset[str] = known
        return found

    def remember(self, kind: str, principal: str, value: Any) -> Any:
        """Keep a value derived for a grantee, and return it. Bounded: when full, all is forgotten."""
        if len(self.derived) >= _MEMO_LIMIT:
            self.derived.clear()
        self.derived[kind, principal] = value
        return value

    def parent(self, key: Key) -> Key | None:
        """The object above: by path below a warehouse, by registration for warehouse, role and tag."""
        type, parts = key
        if type in CONTENT_TYPES:
            return ("namespace", parts[:-1]) if parts[2:] else ("warehouse", parts[:1])
        if type in _PARENT_IS_PROJECT:
            registered = self.objects.get(key)
            return ("project", (registered.project,)) if registered and registered.project else None
        return None if type == "server" else SERVER

    def ancestors(self, key: Key) -> Iterator[Key]:
        """All objects above, nearest first."""
        above = self.parent(key)
        while above is not None:
            yield above
            above = self.parent(above)

    def _roles_of(self, principal: str) -> frozenset[str]:
        found: set[str] = set()
        fringe = [principal]
        while fringe:
            new = self.memberships.get(fringe.pop(), _NO_ROLES) - found
            found |= new
            fringe += [f"role:{role}" for role in new]
        return frozenset(found)


def key_of(resource: Resource, type: str = "") -> Key:
    """The key of a resource, as the concrete `type` that is asked about; its ref does not matter."""
    if resource.warehouse:
        return type or resource.type, (resource.warehouse, *resource.path)
    return type or resource.type, (resource.name,) if resource.name else ()


def key_text(key: Key) -> str:
    """The canonical reference string of a key."""
    type, parts = key
    if type in NAMED_TYPES:
        return format_resource(Resource(type, name=parts[0]))
    return format_resource(Resource(type, "".join(parts[:1]), parts[1:]))
