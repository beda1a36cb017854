"""Stored grants of one principal and its roles, in one snapshot, and the circumstances around the grants.

Costs look-ups in the principal's own grants, never in the grants of others. Owns the answers that are kept for the
content of containers, and their shared budget. Must not know relations and rules.

Requests about many containers touch much memory. So everything that most containers need is in one dictionary.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from immutables import Map

from pdp.engines.grants.edits import RelationQuestion
from pdp.engines.grants.rules import CIRCUMSTANCE_BIT, EffectiveRelations, evaluate
from pdp.facts.nodes import GranteeNode, StoredPrivileges
from pdp.facts.objects import BIT, SERVER, VISIBILITY, ContainerPath, ObjectKey, ObjectName, join_key, split_key
from pdp.facts.snapshot import Facts
from pdp.model.answer import Reason
from pdp.model.arrays import Path
from pdp.model.question import Principal

ExtraPrivileges: TypeAlias = Mapping[ObjectKey, int]
"""Object -> mask of privileges without a stored grant."""
GranteeNodes: TypeAlias = tuple[str, Map[ObjectName, GranteeNode]]
"""Grantee with its nodes in a container, by name."""

_AUTHENTICATED: Final = CIRCUMSTANCE_BIT["authenticated"]
_MANAGED: Final = CIRCUMSTANCE_BIT["managed_access"]
_SELF: Final = CIRCUMSTANCE_BIT["self"]
_ON_SERVER: Final = frozenset({SERVER})
SELF_TYPES: Final = frozenset({"user", "role"})


class PrincipalGrants:
    """Stored grants of a principal.

    `grantees` are the ids whose grants count, the id of the principal first; empty for anonymous. `extra` adds
    privileges without a stored grant. `base_mask` has the circumstances that hold on every object. `is_bare`: no object
    but a user or role has further circumstances. `outer` has the nodes outside warehouses.
    """

    __slots__ = ("_managed", "_trees", "base_mask", "extra", "facts", "grantees", "is_bare", "outer", "principal")

    def __init__(self, facts: Facts, principal: Principal, extra: ExtraPrivileges) -> None:
        index = facts.index
        trees = index.grantees
        self.facts = facts
        self.principal = principal
        self.extra = extra
        self.grantees = grantees = facts.grantees_of(principal)
        self.base_mask = _AUTHENTICATED if grantees else 0
        self._managed = index.managed
        self.is_bare = not (extra or index.managed)
        self._trees = [(grantee, tree) for grantee in grantees if (tree := trees.get(grantee)) is not None]
        self.outer = self.nodes_in(())

    def advance_to(self, facts: Facts) -> bool:
        """Move to another snapshot if nothing about the principal differs there; return False otherwise.

        Four things matter. The grants and the memberships of each grantee: persistent maps keep the very same objects
        across a change elsewhere, so comparing identities is enough and cannot miss a change. The list of grantees: it
        follows from these memberships. Registrations (projects, managed access, ids): each change that can matter
        replaces `layout` or the grants of the grantee. The projects of the configuration.
        """
        now, new = self.facts.index, facts.index
        if facts.projects is not self.facts.projects or new.layout is not now.layout:
            return False
        for before, after in ((now.grantees, new.grantees), (now.memberships, new.memberships)):
            if before is not after:
                for grantee in self.grantees:
                    if before.get(grantee) is not after.get(grantee):
                        return False
        self._managed = new.managed
        self.is_bare = not (self.extra or new.managed)
        self.facts = facts
        return True

    @property
    def has_managed(self) -> bool:
        """Tell whether any object anywhere has managed access."""
        return bool(self._managed)

    def nodes_in(self, path: ContainerPath) -> tuple[GranteeNodes, ...]:
        """Return the nodes in a container, one map for each grantee with nodes there."""
        found = []
        for grantee, tree in self._trees:
            nodes = tree.get(path)
            if nodes is not None:
                found.append((grantee, nodes))
        return tuple(found)

    def is_empty(self, path: ContainerPath) -> bool:
        """Tell whether nothing below a container can have a grant, managed access or an extra privilege."""
        # INVARIANT: an object with any of them, and all objects above it, are known; extra privileges of the
        # configuration are on the server.
        return path not in self.facts.index.objects and self.extra.keys() <= _ON_SERVER

    def nodes_at(self, key: ObjectKey) -> list[tuple[str, GranteeNode]]:
        """Return the grantees with a node at an object, and the nodes."""
        path, name = split_key(key)
        return [(grantee, node) for grantee, nodes in self.nodes_in(path) if (node := nodes.get(name)) is not None]

    def mask_at(self, nodes: tuple[GranteeNodes, ...], path: ContainerPath, name: ObjectName, id: str = "") -> int:
        """Return the mask of an object: counting grants from the nodes of the container, and circumstances."""
        is_plain = self.is_bare and name[0] not in SELF_TYPES
        mask = self.base_mask if is_plain else self._circumstances(path, name)
        for _, names in nodes:
            node = names.get(name)
            if node is not None:
                stored = node.stored
                mask |= self.counting(path, name, stored, id) if stored.ids else stored.mask
        return mask

    def stored_mask(self, key: ObjectKey, id: str = "") -> int:
        """Return the mask of the principal's stored privileges on exactly this object, and of the circumstances."""
        path, name = split_key(key)
        return self.mask_at(self.nodes_in(path) if path else self.outer, path, name, id)

    def is_managed(self, path: ContainerPath, name: ObjectName) -> bool:
        """Tell whether an object is registered with managed access."""
        return bool(self._managed) and join_key(path, name) in self._managed

    def counting(self, path: ContainerPath, name: ObjectName, stored: StoredPrivileges, id: str = "") -> int:
        """Return the mask of the stored privileges that count for an object; `id` is the id in the check, or empty."""
        return stored.counting(self.facts.node(join_key(path, name)).id, id) if stored.ids else stored.mask

    def grantee_with(self, key: ObjectKey, privilege: str, id: str = "") -> str | None:
        """Return the grantee of a stored privilege: the principal before the smallest role; None without a grant."""
        path, name = split_key(key)
        bit = BIT[privilege]
        for grantee, tree in self._trees:
            nodes = tree.get(path)
            node = None if nodes is None else nodes.get(name)
            if node is not None and self.counting(path, name, node.stored, id) & bit:
                return grantee
        return None

    def is_visible(self, key: ObjectKey) -> bool:
        """Tell whether a stored privilege on the object, or on an object below, shows the object."""
        path, name = split_key(key)
        return any(node.below or self.counting(path, name, node.stored) & VISIBILITY for _, node in self.nodes_at(key))

    def is_visible_from_below(self, key: ObjectKey) -> bool:
        """Tell whether the principal sees an object below a warehouse or a project."""
        if key[0] == "project":
            return any(self.is_visible(("warehouse", (name,))) for name in self.facts.warehouses(key[1][0]))
        return any(node.below for _, node in self.nodes_at(key))

    def keys_inside(self, path: ContainerPath) -> set[ObjectKey]:
        """Return the objects in a container with a node of a grantee."""
        return {join_key(path, name) for _, nodes in self.nodes_in(path) for name in nodes}

    def _circumstances(self, path: ContainerPath, name: ObjectName) -> int:
        """Return the mask of the circumstances on an object, and of the extra privileges there."""
        mask = self.base_mask
        if self.is_managed(path, name):
            mask |= _MANAGED
        if name[0] in SELF_TYPES and self._is_self(name):
            mask |= _SELF
        return mask | self.extra.get(join_key(path, name), 0) if self.extra else mask

    def _is_self(self, name: ObjectName) -> bool:
        """Tell whether a user or role is the principal, or a role that the principal's token carries."""
        principal = self.principal
        type, id = name
        return name == (principal.type, principal.name) or (type == "role" and id in principal.member_of)


class ContainerAccess:
    """Access of a principal inside a warehouse or namespace: one answer for almost all objects, and few exceptions.

    `relations` are the relations on the container itself. `nodes` pairs each grantee that has grants inside with the
    nodes of these objects: with a grant of their own or with a visible object below. All other objects of a type have
    equal relations, because nothing but the container decides about them. `reasons` is a cache of the reasons that
    permit these other objects.
    """

    __slots__ = ("_plain_namespace", "nodes", "reasons", "relations")

    def __init__(self, relations: EffectiveRelations, nodes: tuple[GranteeNodes, ...] = ()) -> None:
        self.relations = relations
        self.nodes = nodes
        self.reasons: dict[RelationQuestion, Reason | None] = {}
        self._plain_namespace: ContainerAccess | None = None

    def plain_namespace(self, base_mask: int) -> ContainerAccess:
        """Return the access inside a namespace of the container, without a grant on or inside the namespace.

        All such namespaces share the access and its cache of reasons: every relation comes from further up, so no
        reason names the namespace.
        """
        plain = self._plain_namespace
        if plain is None:
            relations = evaluate("namespace", base_mask, self.relations, False)
            plain = self._plain_namespace = ContainerAccess(relations)
        return plain


class CacheBudget:
    """Number of further entries for all caches that share the budget, and the most characters of a path in them.

    A request can name any path, so caches that outlive the request keep no long one.
    """

    __slots__ = ("left", "longest")

    def __init__(self, left: int, longest: int = 256) -> None:
        self.left = left
        self.longest = longest


_MOST_NAMES: Final = 1000
"""Most nodes of a container whose names are remembered."""
OwnNames: TypeAlias = frozenset[str] | None
"""Names of the type that have a node in a container. None: any name may have one."""

NO_NAMES: Final[OwnNames] = frozenset()


class ContainerAnswers:
    """Answers by the path of the container below the warehouse.

    `reasons` has the reason that permits the objects of the type, except those with a node; None for no permit.
    `uneven` has the names of the objects with a node; containers without such an object are not in it.
    """

    __slots__ = ("reasons", "uneven")

    def __init__(self) -> None:
        self.reasons: dict[Path, Reason | None] = {}
        self.uneven: dict[Path, OwnNames] = {}

    def put(self, path: Path, reason: Reason | None, own_names: OwnNames) -> None:
        """Put the answer for a container."""
        if own_names is None or own_names:
            self.uneven[path] = own_names
        self.reasons[path] = reason


def own_names(container: ContainerAccess, type: str) -> OwnNames:
    """Return the names of the objects of a type that have a node in a container."""
    if sum([len(nodes) for _, nodes in container.nodes]) > _MOST_NAMES:
        return None
    return frozenset([name for _, nodes in container.nodes for node_type, name in nodes if node_type == type])
