"""Facts: an immutable snapshot of the objects, grants and memberships of one revision.

Answers questions about the snapshot. The meaning of a privilege is in the table of the grants engine. The next
snapshot is this snapshot with changes applied, and shares all unchanged parts.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from typing import Any, Final, NamedTuple

import msgspec
from immutables import Map

from pdp.errors import ConfigError
from pdp.facts.index import Index
from pdp.facts.nodes import UNKNOWN, ObjectNode, StoredPrivileges
from pdp.facts.objects import (
    BIT,
    SERVER,
    Change,
    ContainerPath,
    FoldedName,
    Grant,
    GrantAdded,
    Object,
    ObjectKey,
    ObjectName,
    ObjectPut,
    RowPolicy,
    RowPolicyPut,
    join_key,
)
from pdp.model.bounded_cache import BoundedCache
from pdp.model.question import CONTENT_TYPES, Principal
from pdp.model.revision import Revision

_PARENT_IS_PROJECT: Final = frozenset({"warehouse", "role", "tag"})
_CONTAINERS: Final = frozenset({"warehouse", "namespace"})
_MEMO_ENTRIES: Final = 5_000
_LONGEST_PROJECT: Final = 256
"""Characters of a project's name that is remembered. A request can name any project."""
_NO_ROLES: Final[frozenset[str]] = frozenset()
_RELEASE_SECONDS: Final = 60.0
"""Longest time for requests that still decide on facts of a lost history."""
_LOOK_SECONDS: Final = 0.5
_OWN_REFERENCES: Final = 2
"""References to an index that one variable has, and the call that counts them."""
_STEP: Final = 1_000
"""Nodes whose memory is released at once: less than a millisecond."""


class RoleClosure(NamedTuple):
    """Roles with all roles of these roles: bare ids, canonical ids in order, and bare ids in order."""

    names: frozenset[str]
    ids: tuple[str, ...]
    ordered: tuple[str, ...]


_NO_CLOSURE: Final = RoleClosure(_NO_ROLES, (), ())


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """Snapshot of one revision.

    `projects` maps a warehouse to the project from the configuration; the configuration wins over a registration.
    The caches hold values that follow from the snapshot. A new snapshot starts with empty ones, except that snapshots
    with the same memberships share the closures of roles. Many principals have equal roles and share a closure.
    """

    epoch: str
    sequence: int
    index: Index = Index()  # noqa: RUF009  immutable
    projects: Mapping[str, str] = field(default_factory=dict)
    role_memo: BoundedCache[frozenset[str], RoleClosure] = field(
        default_factory=partial(BoundedCache, _MEMO_ENTRIES), repr=False
    )
    warehouse_memo: BoundedCache[str, tuple[str, ...]] = field(
        default_factory=partial(BoundedCache, _MEMO_ENTRIES, _LONGEST_PROJECT), init=False, repr=False
    )
    token: str = ""
    """Random token of the log entry of this revision; empty before the first one, and if unknown."""

    @classmethod
    def empty(cls) -> Facts:
        """Return facts without objects and grants."""
        return cls("none", 0)

    @classmethod
    def build(cls, epoch: str, sequence: int, objects: Iterable[Object], grants: Iterable[Grant]) -> Facts:
        """Build a snapshot from nothing, at the cost of the size of the world. A repeated grant counts once."""
        return cls.from_changes(epoch, sequence, chain(map(ObjectPut, objects), map(GrantAdded, grants)))

    @classmethod
    def from_changes(cls, epoch: str, sequence: int, changes: Iterable[Change], token: str = "") -> Facts:
        """Build a snapshot from the changes that make it from nothing, as `as_changes` yields them."""
        with without_collection():
            return cls(epoch, sequence, Index().after(changes), token=token)

    def as_changes(self) -> Iterator[Change]:
        """Yield the changes that make the facts from nothing: all objects, all row policies, then all grants."""
        yield from map(ObjectPut, self.objects())
        yield from map(RowPolicyPut, self.row_rules())
        yield from map(GrantAdded, self.grants())

    def revision(self, digest: str = "") -> Revision:
        """Return the revision of the facts, under the bundle with a digest."""
        return Revision(self.epoch, self.sequence, digest, self.token)

    def apply(self, sequence: int, changes: Iterable[Change], token: str = "") -> Facts:
        """Return the snapshot of revision `sequence`, made by the changes. Costs the size of the changes."""
        index = self.index.after(changes)
        is_same = index.memberships is self.index.memberships
        role_memo = self.role_memo if is_same else BoundedCache(_MEMO_ENTRIES)
        return replace(self, sequence=sequence, index=index, role_memo=role_memo, token=token)

    def with_projects(self, projects: Mapping[str, str]) -> Facts:
        """Return the same facts with the projects of the configuration.

        Raise ConfigError if a warehouse is registered in another project.
        """
        for warehouse, project in projects.items():
            registered = self.object(("warehouse", (warehouse,)))
            if registered.project not in ("", project):
                cause = f"warehouse `{warehouse}` belongs to `{registered.project}`, not to `{project}`"
                raise ConfigError(f"`warehouses` contradicts the store: {cause}")
        return replace(self, projects=dict(projects))

    def without_rules(self) -> Facts:
        """Return the same facts without row policies and masks."""
        return replace(self, index=msgspec.structs.replace(self.index, rules=Map())) if self.index.rules else self

    def with_rules_of(self, other: Facts) -> Facts:
        """Return the same objects and grants with the row policies and masks of other facts."""
        return replace(self, index=msgspec.structs.replace(self.index, rules=other.index.rules))

    def node(self, key: ObjectKey) -> ObjectNode:
        """Return the node of an object: registration, grants and number of known objects inside."""
        return self.index.node(key)

    def object(self, key: ObjectKey) -> Object:
        """Return the registration of an object; a blank registration for an unregistered object."""
        return self.index.node(key).registered or Object(key)

    def is_registered(self, key: ObjectKey) -> bool:
        """Tell whether the object has a registration of its own."""
        return self.index.node(key).registered is not None

    def has(self, grant: Grant) -> bool:
        """Tell whether exactly this grant is stored."""
        stored = self.node(grant.object).grants.get(grant.principal)
        return stored is not None and stored.has(grant.privilege, grant.id)

    def objects(self) -> Iterator[Object]:
        """Yield every registration, in no order."""
        for names in self.index.objects.values():
            for node in names.values():
                if node.registered is not None:
                    yield node.registered

    def grants(self) -> Iterator[Grant]:
        """Yield every grant, in no order."""
        for path, names in self.index.objects.items():
            for name, node in names.items():
                yield from _grants(join_key(path, name), node)

    def row_rules(self) -> Iterator[RowPolicy]:
        """Yield every row policy and mask, in no order."""
        for rules in self.index.rules.values():
            yield from rules.values()

    def rules_of(self, table: FoldedName) -> tuple[RowPolicy, ...]:
        """Return the row policies and masks of a table, tombstones included, in the order of column and id."""
        rules = self.index.rules.get(table)
        return tuple(sorted(rules.values(), key=lambda rule: (rule.key[1:], rule.table))) if rules else ()

    def count_grants(self) -> int:
        """Return the number of grants, at the cost of a visit of each object with grants."""
        nodes = (node for names in self.index.objects.values() for node in names.values())
        return sum(stored.count() for node in nodes for stored in node.grants.values())

    def grants_on(self, key: ObjectKey) -> Iterator[Grant]:
        """Yield the grants on one object."""
        return _grants(key, self.node(key))

    def grants_to(self, principal: str) -> Iterator[Grant]:
        """Yield the grants to one grantee, on all objects."""
        for path, names in self.index.grantees.get(principal, {}).items():
            for name, node in names.items():
                yield from _unfold(join_key(path, name), principal, node.stored)

    def grantees(self) -> Iterator[str]:
        """Yield every principal with a grant."""
        return iter(self.index.grantees)

    def known_roles(self) -> frozenset[str]:
        """Return the bare ids of all roles that are registered, have members, or have grants."""
        registered = {name for type, name in self.index.objects.get((), {}) if type == "role"}
        grantees = {name.removeprefix("role:") for name in self.grantees() if name.startswith("role:")}
        return frozenset(registered | grantees)

    def subtree(self, key: ObjectKey) -> Iterator[tuple[ObjectKey, ObjectNode]]:
        """Yield an object, if known, and all known objects below; a container comes before its content."""
        node = self.node(key)
        if node is not UNKNOWN:
            yield key, node
        if key[0] in _CONTAINERS:
            yield from self._inside(key[1])
        for other in self._outside_warehouses() if key[0] in ("project", "server") else ():
            if other != key and (key == SERVER or self.parent(other) == key):
                yield other, self.node(other)
                yield from self._inside(other[1]) if other[0] == "warehouse" else ()

    def warehouses(self, project: str) -> tuple[str, ...]:
        """Return the names of the known warehouses of a project."""
        names = self.warehouse_memo.get(project)
        if names is None:
            parent = ("project", (project,))
            outside = self._outside_warehouses()
            names = tuple(key[1][0] for key in outside if key[0] == "warehouse" and self.parent(key) == parent)
            self.warehouse_memo.keep(project, names, len(project))
        return names

    def can_assume(self, principal: Principal, role: str) -> bool:
        """Tell whether the principal is the role with this bare id, or a member of the role; see `roles_of`."""
        return principal.id == f"role:{role}" or role in self.roles_of(principal)

    def roles_of(self, principal: Principal) -> frozenset[str]:
        """Return the bare ids of all roles of the principal, including roles of roles.

        Counts stored memberships and the memberships from the principal's token or groups (`member_of`).
        """
        return self._closure_of(principal).names

    def ordered_roles_of(self, principal: Principal) -> tuple[str, ...]:
        """Return the same ids in order. Principals with equal roles share the tuple."""
        return self._closure_of(principal).ordered

    def grantees_of(self, principal: Principal) -> tuple[str, ...]:
        """Return the ids whose grants count for a principal: the principal's id first, then all roles in order."""
        if principal.type == "anonymous":
            return ()
        id, roles = principal.id, self._closure_of(principal).ids
        if principal.type == "role" and id in roles:
            roles = tuple(role for role in roles if role != id)
        return (id, *roles)

    def parent(self, key: ObjectKey) -> ObjectKey | None:
        """Return the object above: by path below a warehouse, by registration for a warehouse, role or tag."""
        type, parts = key
        if type in CONTENT_TYPES:
            return ("namespace", parts[:-1]) if parts[2:] else ("warehouse", parts[:1])
        if type in _PARENT_IS_PROJECT:
            project = (type == "warehouse" and self.projects.get(parts[0])) or self.object(key).project
            return ("project", (project,)) if project else None
        return None if type == "server" else SERVER

    def ancestors(self, key: ObjectKey) -> Iterator[ObjectKey]:
        """Yield all objects above, nearest first."""
        above = self.parent(key)
        while above is not None:
            yield above
            above = self.parent(above)

    def _outside_warehouses(self) -> Iterable[ObjectKey]:
        """Return all objects outside warehouses: known, named by the configuration, or parent of such an object."""
        keys = {join_key((), name) for name in self.index.objects.get((), ())}
        keys |= {("warehouse", (name,)) for name in self.projects}
        return keys | {parent for key in keys if (parent := self.parent(key)) is not None}

    def _inside(self, path: ContainerPath) -> Iterator[tuple[ObjectKey, ObjectNode]]:
        paths = [path]
        while paths:  # no recursion: namespaces can nest without limit
            path = paths.pop()
            for name, node in self.index.objects.get(path, {}).items():
                yield join_key(path, name), node
                if name[0] == "namespace":
                    paths.append((*path, name[1]))

    def _closure_of(self, principal: Principal) -> RoleClosure:
        if principal.type == "anonymous":
            return _NO_CLOSURE
        direct = self.index.memberships.get(principal.id, _NO_ROLES)
        if principal.member_of:
            direct = direct.union(principal.member_of)
        if not direct:
            return _NO_CLOSURE
        closure = self.role_memo.get(direct)
        return self.role_memo.keep(direct, self._close(direct)) if closure is None else closure

    def _close(self, direct: frozenset[str]) -> RoleClosure:
        roles = set(direct)
        pending = list(direct)
        while pending:
            new = self.index.memberships.get(f"role:{pending.pop()}", _NO_ROLES) - roles
            roles |= new
            pending += new
        ordered = tuple(sorted(roles))
        return RoleClosure(frozenset(roles), tuple([f"role:{role}" for role in ordered]), ordered)


@contextmanager
def without_collection() -> Iterator[None]:
    """Stop the collection of cycles within the block: thousands of new values have none, each search visits all."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def release_in_steps(held: list[Facts]) -> None:
    """Take the facts out of a list, and release their memory in small steps when nobody else has them.

    Released at once, a million grants stop all threads for seconds. Give up after a minute.
    """
    index = held.pop().index
    deadline = time.monotonic() + _RELEASE_SECONDS
    while sys.getrefcount(index) > _OWN_REFERENCES:
        if time.monotonic() > deadline:
            return
        time.sleep(_LOOK_SECONDS)
    trees: list[Map[ContainerPath, Map[ObjectName, Any]]] = [index.objects, *index.grantees.values()]
    del index
    while trees:
        containers = list(trees.pop().values())
        while containers:
            names = containers.pop()
            if len(names) > _STEP:
                _release_names(iter(names.values()))


def _release_names(nodes: Iterator[Any]) -> None:
    """Release the nodes of a large container: a list at a time, after their map."""
    steps = []
    while step := list(islice(nodes, _STEP)):
        steps.append(step)
    del nodes
    while steps:
        steps.pop()


def _grants(key: ObjectKey, node: ObjectNode) -> Iterator[Grant]:
    for principal, stored in node.grants.items():
        yield from _unfold(key, principal, stored)


def _unfold(key: ObjectKey, principal: str, stored: StoredPrivileges) -> Iterator[Grant]:
    for id, mask in (("", stored.mask), *stored.ids):
        for privilege, bit in BIT.items():
            if mask & bit:
                yield Grant(key, privilege, principal, id)
