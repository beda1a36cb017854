"""Effective access of one principal: the relations on an object, and the grant that decides.

Walks from an object up to the server, and looks up the visible objects below. Knows no action and no rule.

Access to a container is computed on demand and cached while no change touches the grants of the principal. This walk is
the check of the original, in another order: OpenFGA starts at a relation and follows `x from parent` upward for each
check (https://openfga.dev/docs/concepts); here all relations on a container are computed once, from the top down.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final, TypeAlias, TypeVar

from immutables import Map

from pdp.engines.grants.container_access import CacheBudget, ContainerAccess, uniform_access
from pdp.engines.grants.rules import (
    CIRCUMSTANCE_BIT,
    PRECEDENCE,
    RESTS_ON_SIBLINGS,
    EffectiveRelations,
    Witness,
    evaluate,
)
from pdp.facts.nodes import EMPTY_TREE, GranteeNode, GranteeTree, StoredPrivileges
from pdp.facts.objects import (
    BIT,
    VISIBILITY,
    ContainerPath,
    ObjectKey,
    ObjectName,
    container_key,
    join_key,
    key_text,
    split_key,
)
from pdp.facts.snapshot import Facts
from pdp.model.checks import CONTENT_TYPES, Principal
from pdp.model.vocabulary import PRIVILEGES

K = TypeVar("K")
V = TypeVar("V")
ExtraPrivileges: TypeAlias = Mapping[ObjectKey, int]
"""Object -> mask of privileges without a stored grant."""

_AUTHENTICATED: Final = CIRCUMSTANCE_BIT["authenticated"]
_MANAGED: Final = CIRCUMSTANCE_BIT["managed_access"]
_SELF: Final = CIRCUMSTANCE_BIT["self"]
_OWN_BUDGET: Final = 4096
"""Cache entries of an effective access that shares no budget."""
_VISIBLE_FROM_BELOW: Final = frozenset({"project", "warehouse"})


class EffectiveAccess:
    """Access of one principal in one snapshot, or in a later snapshot without a change for the principal.

    `grantees` are the ids whose grants count, the id of the principal first; empty for anonymous. `extra` adds
    privileges without a stored grant.
    """

    def __init__(
        self, facts: Facts, principal: Principal, extra: ExtraPrivileges, budget: CacheBudget | None = None
    ) -> None:
        self.facts = facts
        self.principal = principal
        self.extra = extra
        self.grantees = grantees_of(facts, principal)
        self._own_keys = {(principal.type, (principal.name,)), *(("role", (role,)) for role in principal.member_of)}
        self._base_mask = _AUTHENTICATED if self.grantees else 0
        self._managed = facts.index.managed
        self._sources = self._read_sources(facts)
        self._trees = [tree for tree, _ in self._sources if tree]
        self._budget = budget or CacheBudget(_OWN_BUDGET)
        self._containers: dict[ContainerPath, ContainerAccess] = {}
        self._outside_containers: dict[ObjectKey, EffectiveRelations] = {}
        self._parents: dict[ObjectKey, EffectiveRelations] = {}
        self._reasons: dict[tuple[ObjectKey, int, bool], str] = {}

    def advance_to(self, facts: Facts) -> bool:
        """Move to another snapshot if all caches stay valid there; return False otherwise, without a change.

        The caches rest on four things. The grants and the memberships of each grantee: persistent maps keep the very
        same objects across a change elsewhere, so comparing identities is enough and cannot miss a change. The list of
        grantees: it follows from these memberships. Registrations (projects, managed access, ids): each change that
        can matter replaces `layout`. The projects of the configuration.
        """
        if facts is self.facts:
            return True
        current = self.facts
        if facts.index.layout is not current.index.layout or facts.projects is not current.projects:
            return False
        pairs = zip(self._sources, self._read_sources(facts), strict=True)
        if any(tree is not new_tree or roles is not new_roles for (tree, roles), (new_tree, new_roles) in pairs):
            return False
        self.facts = facts
        return True

    def relations_on(self, key: ObjectKey, id: str = "") -> EffectiveRelations:
        """Return the relations on an object. `id` is the id in the check, or empty."""
        path, name = split_key(key)
        if path:
            return self.relations_inside(self.container(path), path, name, id)
        relations = self._outside_containers.get(key)
        if relations is None or id:
            below = self._is_visible_from_below(key) if key[0] in _VISIBLE_FROM_BELOW else False
            relations = self._evaluate_outside(key, id, below)
            if not id:
                self._cache(self._outside_containers, key, relations, key)
        return relations

    def relations_inside(
        self, container: ContainerAccess, path: ContainerPath, name: ObjectName, id: str
    ) -> EffectiveRelations:
        """Return the relations on an object in a container."""
        type = name[0]
        # Without exceptions no grant and no visible object below counts. Of the objects in a container, namespaces
        # alone have a circumstance of their own: managed access.
        if not container.exceptions and not self.extra and type != "namespace":
            return container.default_relations(type)
        below = any(node.below for node in _nodes_of(name, container.exceptions))
        return evaluate(type, self._mask_at(container.exceptions, path, name, id), container.parent, below)

    def container(self, path: ContainerPath) -> ContainerAccess:
        """Return the access inside a warehouse or namespace. Computes missing containers above on the way."""
        container = self._containers.get(path)
        if container is not None:
            return container
        depth = len(path)
        # up to the nearest cached container, then down again: a path of any depth needs no recursion
        while container is None and depth > 1:
            depth -= 1
            container = self._containers.get(path[:depth])
        if container is None:
            depth, container = 1, self._open(path[:1], self._relations_as_parent(("warehouse", path[:1])))
        for length in range(depth + 1, len(path) + 1):
            relations = self._relations_on_namespace(container, path[: length - 1], path[length - 1])
            container = self._open(path[:length], relations)
        return container

    def stored_mask(self, key: ObjectKey, id: str = "") -> int:
        """Return the mask of the principal's stored privileges on exactly this object, and of the circumstances."""
        path, name = split_key(key)
        return self._mask_at(self._nodes_in(path), path, name, id)

    def reason(self, key: ObjectKey, id: str, witness: Witness) -> str:
        """Return the text of the determining grant, as in `by` of a decision."""
        below, distance, rank = witness
        if distance == 0 and not below:
            return self._describe(key, PRECEDENCE[rank], id)
        # The grant is on another object, and so the same for all objects with this witness in a container.
        target = self._ancestor(key, distance) if distance else key
        cache_key = (target, rank, below)
        text = self._reasons.get(cache_key)
        if text is None:
            text = self._describe_below(target) if below else self._describe(target, PRECEDENCE[rank], "")
            self._cache(self._reasons, cache_key, text, target)
        return text

    def grantee_with(self, key: ObjectKey, privilege: str, id: str = "") -> str | None:
        """Return the grantee of a stored privilege: the principal before the smallest role; None without a grant."""
        grants = self.facts.node(key).grants
        bit = BIT[privilege]
        path, name = split_key(key)
        for grantee in self.grantees:
            stored = grants.get(grantee)
            if stored is not None and self._counting(path, name, stored, id) & bit:
                return grantee
        return None

    def _read_sources(self, facts: Facts) -> list[tuple[GranteeTree, frozenset[str] | None]]:
        """Return the grants and the memberships of each grantee."""
        index = facts.index
        return [(index.grantees.get(g, EMPTY_TREE), index.memberships.get(g)) for g in self.grantees]

    def _nodes_in(self, path: ContainerPath) -> tuple[Map[ObjectName, GranteeNode], ...]:
        """Return the nodes in a container, one map for each grantee with nodes there."""
        return tuple([nodes for tree in self._trees if (nodes := tree.get(path)) is not None])

    def _mask_at(
        self, nodes: tuple[Map[ObjectName, GranteeNode], ...], path: ContainerPath, name: ObjectName, id: str
    ) -> int:
        """Return the mask of an object: counting grants from the nodes of the container, and circumstances."""
        mask = self._base_mask | self._circumstances(join_key(path, name))
        for node in _nodes_of(name, nodes):
            mask |= self._counting(path, name, node.stored, id)
        return mask

    def _counting(self, path: ContainerPath, name: ObjectName, stored: StoredPrivileges, id: str) -> int:
        return stored.counting(self.facts.node(join_key(path, name)).id, id) if stored.ids else stored.mask

    def _circumstances(self, key: ObjectKey) -> int:
        """Return the mask of the circumstances on an object, and of the extra privileges there."""
        mask = _MANAGED if self._managed and key in self._managed else 0
        if key in self._own_keys:
            mask |= _SELF
        return mask | self.extra.get(key, 0) if self.extra else mask

    def _relations_as_parent(self, key: ObjectKey) -> EffectiveRelations:
        """Return the relations on a server, project or warehouse, for the evaluation of its content.

        Ignores the objects below, because no rule of the content rests on siblings (see RESTS_ON_SIBLINGS). So equal
        containers share a result, with and without visible content.
        """
        relations = self._parents.get(key)
        if relations is None:
            relations = self._evaluate_outside(key, "", False)
            self._cache(self._parents, key, relations, key)
        return relations

    def _evaluate_outside(self, key: ObjectKey, id: str, below: bool) -> EffectiveRelations:
        """Evaluate the rules of an object outside containers."""
        above = self.facts.parent(key)
        parent = None
        if above is not None:
            parent = self.relations_on(above) if key[0] in RESTS_ON_SIBLINGS else self._relations_as_parent(above)
        return evaluate(key[0], self.stored_mask(key, id), parent, below)

    def _relations_on_namespace(self, container: ContainerAccess, path: ContainerPath, name: str) -> EffectiveRelations:
        """Return the relations on a namespace in a container, for the evaluation of the namespace's content."""
        mask = self._mask_at(container.exceptions, path, ("namespace", name), "")
        return evaluate("namespace", mask, container.parent, False)

    def _open(self, path: ContainerPath, parent: EffectiveRelations) -> ContainerAccess:
        """Return the access inside a container with these relations, and cache the access."""
        exceptions = self._nodes_in(path)
        if exceptions:
            container = ContainerAccess(parent, exceptions, self._base_mask)
        else:
            container = uniform_access(parent, self._base_mask)
        if self._budget.take(sum(map(len, path))):
            self._containers[path] = container
        return container

    def _cache(self, entries: dict[K, V], cache_key: K, value: V, key: ObjectKey) -> None:
        if self._budget.take(sum(map(len, key[1]))):
            entries[cache_key] = value

    def _is_visible_from_below(self, key: ObjectKey) -> bool:
        """Tell whether the principal sees an object below a warehouse or a project."""
        if key[0] == "project":
            return any(self._is_visible(("warehouse", (name,))) for name in self.facts.warehouses(key[1][0]))
        return any(node.below for node in self._nodes_at(key))

    def _is_visible(self, key: ObjectKey) -> bool:
        """Tell whether a stored privilege on the object, or on an object below, shows the object."""
        path, name = split_key(key)
        return any(
            node.below or self._counting(path, name, node.stored, "") & VISIBILITY for node in self._nodes_at(key)
        )

    def _nodes_at(self, key: ObjectKey) -> list[GranteeNode]:
        path, name = split_key(key)
        return _nodes_of(name, self._nodes_in(path))

    def _ancestor(self, key: ObjectKey, distance: int) -> ObjectKey:
        """Return the object at a distance above another object."""
        type, parts = key
        left = len(parts) - distance
        if left > 0 and type in CONTENT_TYPES:
            return container_key(parts[:left])
        return next(islice(self.facts.ancestors(key), distance - 1, None))

    def _describe(self, key: ObjectKey, privilege: str, id: str) -> str:
        if privilege in CIRCUMSTANCE_BIT:
            return f"grants:{privilege}"
        grantee = self.grantee_with(key, privilege, id)
        if grantee is None:
            return "config:store.bootstrap_admins"
        return f"grants:{privilege} on {key_text(key)} via {grantee}"

    def _describe_below(self, target: ObjectKey) -> str:
        nearest = self._nearest_visible_below(target)
        mask = self.stored_mask(nearest) & VISIBILITY
        return self._describe(nearest, next(p for p in PRIVILEGES if mask & BIT[p]), "")

    def _nearest_visible_below(self, target: ObjectKey) -> ObjectKey:
        """Return the nearest object below that a grant of its own shows; among equals the smallest by name.

        Searches level by level, only through objects with a visible object below. So a decision names the same grant
        whatever the order of the maps, and the search is as small as the principal's visible part of the tree.
        """
        level: Iterable[ObjectKey]
        if target[0] == "project":
            level = [("warehouse", (name,)) for name in self.facts.warehouses(target[1][0])]
        else:
            level = self._keys_inside(target[1])
        while True:
            visible = [key for key in level if self.stored_mask(key) & VISIBILITY]
            if visible:
                return min(visible, key=key_text)
            level = {key for above in level if self._is_visible(above) for key in self._keys_inside(above[1])}
            assert level, f"no visible object below {key_text(target)}"

    def _keys_inside(self, path: ContainerPath) -> set[ObjectKey]:
        """Return the objects in a container with a node of a grantee."""
        return {join_key(path, name) for tree in self._trees for name in tree.get(path, ())}


def grantees_of(facts: Facts, principal: Principal) -> tuple[str, ...]:
    """Return the ids whose grants count for a principal: the principal's id first, then all roles in order."""
    if principal.type == "anonymous":
        return ()
    return (principal.id, *sorted({f"role:{role}" for role in facts.roles_of(principal)} - {principal.id}))


def _nodes_of(name: ObjectName, nodes: tuple[Map[ObjectName, GranteeNode], ...]) -> list[GranteeNode]:
    return [node for names in nodes if (node := names.get(name)) is not None]
