"""Effective access of one principal: the relations on an object, and the grant that decides, also as text.

Walks from an object up to the server, and looks up the visible objects below. Must not know actions and rules.

Access to a container is computed on demand and cached while no change touches the grants of the principal. This walk is
the check of the original, in another order: OpenFGA starts at a relation and follows `x from parent` upward for each
check (https://openfga.dev/docs/concepts); here all relations on a container are computed once, from the top down.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, TypeVar

from pdp.engines.grants.edits import RelationQuestion
from pdp.engines.grants.principal_grants import (
    NO_NAMES,
    CacheBudget,
    ContainerAccess,
    ContainerAnswers,
    ExtraPrivileges,
    OwnNames,
    PrincipalGrants,
    own_names,
)
from pdp.engines.grants.rules import (
    CIRCUMSTANCE_BIT,
    PRECEDENCE,
    RESTS_ON_SIBLINGS,
    EffectiveRelations,
    Witness,
    evaluate,
)
from pdp.facts.objects import (
    BIT,
    SERVER,
    VISIBILITY,
    ContainerPath,
    ObjectKey,
    ObjectName,
    container_key,
    key_text,
    split_key,
)
from pdp.facts.snapshot import Facts
from pdp.model.answer import Reason
from pdp.model.arrays import Path
from pdp.model.question import CONTENT_TYPES, Principal
from pdp.model.vocabulary import PRIVILEGES

K = TypeVar("K")
V = TypeVar("V")

_OWN_ENTRIES: Final = 4096
"""Cache entries of an effective access that shares no budget. They end with it, so that paths may be long."""
_SERVER_NAME: Final = split_key(SERVER)[1]
_VISIBLE_FROM_BELOW: Final = frozenset({"project", "warehouse"})
_NOBODY: Final = Principal("anonymous", "")
_MISSING: Final = object()
"""Marker of a reason that is not in a cache. None is a reason too: no permit."""


class EffectiveAccess:
    """Access of one principal in one snapshot, or in a later snapshot without a change for the principal.

    `entries` counts the entries of these caches in the budget. `retired`: the engine has given these entries back, and
    does not use the access any more.
    """

    __slots__ = (
        "_answers",
        "_budget",
        "_containers",
        "_outside_containers",
        "_parents",
        "_reasons",
        "entries",
        "grants",
        "retired",
    )

    def __init__(
        self, facts: Facts, principal: Principal, extra: ExtraPrivileges, budget: CacheBudget | None = None
    ) -> None:
        self.grants = PrincipalGrants(facts, principal, extra)
        self.entries = 0
        self.retired = False
        self._budget = budget or CacheBudget(_OWN_ENTRIES, sys.maxsize)
        self._containers: dict[ContainerPath, ContainerAccess] = {}
        self._answers: dict[tuple[RelationQuestion, str], ContainerAnswers] = {}
        self._outside_containers: dict[ObjectKey, EffectiveRelations] = {}
        self._parents: dict[ObjectKey, EffectiveRelations] = {}
        self._reasons: dict[tuple[ObjectKey, int, bool], Reason] = {}

    @classmethod
    def of(cls, grants: PrincipalGrants) -> EffectiveAccess:
        """Return the access by some grants, with caches of its own."""
        access = cls(grants.facts, _NOBODY, grants.extra)
        access.grants = grants
        return access

    def advance_to(self, facts: Facts) -> bool:
        """Move to another snapshot if all caches stay valid there; return False otherwise, without a change."""
        return facts is self.grants.facts or self.grants.advance_to(facts)

    def relations_on(self, key: ObjectKey, id: str = "") -> EffectiveRelations:
        """Return the relations on an object. `id` is the id in the check, or empty."""
        path, name = split_key(key)
        if path:
            return self._relations_inside(self.container(path), path, name, id)
        relations = self._outside_containers.get(key)
        if relations is None or id:
            below = key[0] in _VISIBLE_FROM_BELOW and self.grants.is_visible_from_below(key)
            relations = self._evaluate_outside(key, id, below)
            # The project of a role or tag can change without a sign to the caches.
            if not id and key[0] not in RESTS_ON_SIBLINGS:
                self._cache(self._outside_containers, key, relations, key[1])
        return relations

    def container(self, path: ContainerPath) -> ContainerAccess:
        """Return the access inside a warehouse or namespace. Computes missing containers above on the way."""
        container = self._containers.get(path)
        return self._open(path) if container is None else container

    def answers(
        self, question: RelationQuestion, warehouse: str, parents: Sequence[Path]
    ) -> tuple[list[Reason | None], Mapping[Path, OwnNames]]:
        """Return the reason of each container in a warehouse, and the names with a node of the uneven containers.

        `parents` are below the warehouse. Other containers may be among the uneven ones.
        """
        known = self._answers.get((question, warehouse))
        if known is None:
            known = ContainerAnswers()
            self._cache(self._answers, (question, warehouse), known, (warehouse,))
        try:
            return list(map(known.reasons.__getitem__, parents)), known.uneven
        except KeyError:
            found = self._more_answers(known, question, warehouse, parents)
        return list(map(found.reasons.__getitem__, parents)), found.uneven

    def reason_inside(self, question: RelationQuestion, parts: tuple[str, ...], id: str = "") -> Reason | None:
        """Return the reason that permits an object inside a warehouse, at the path `parts`; None for no permit."""
        path = parts[:-1]
        name = (question.type, parts[-1])
        container = self._containers.get(path)
        if container is None:
            container = self._open(path)
        for _, nodes in container.nodes:
            if name in nodes:
                return self._own_reason(container, question, parts, id)
        # Of the objects in a container, namespaces alone have a circumstance of their own.
        if question.type == "namespace" and self.grants.is_managed(path, name):
            return self._own_reason(container, question, parts, id)
        return self.default_reason(container, path, question)

    def default_reason(
        self, container: ContainerAccess, path: ContainerPath, question: RelationQuestion
    ) -> Reason | None:
        """Return the reason that permits all objects of a type in a container, except those with a node.

        The witness of such an object is above the object, so the reason is the same for each of them.
        """
        reason = container.reasons.get(question, _MISSING)
        if reason is _MISSING:
            relations = evaluate(question.type, self.grants.base_mask, container.relations, False)
            witness = relations.witness(question.relation)
            reason = None if witness is None else self.reason((question.type, (*path, "")), "", witness)
            self._cache(container.reasons, question, reason)
        return reason  # type: ignore[return-value]

    def reason(self, key: ObjectKey, id: str, witness: Witness) -> Reason:
        """Return the text of the determining grant, as in `by` of a decision."""
        below, distance, rank = witness
        if distance == 0 and not below:
            return reason_on(self.grants, key, PRECEDENCE[rank], id)
        # The grant is on another object, and so the same for all objects with this witness in a container.
        target = self._ancestor(key, distance) if distance else key
        cache_key = (target, rank, below)
        text = self._reasons.get(cache_key)
        if text is None:
            grants = self.grants
            text = reason_below(grants, target) if below else reason_on(grants, target, PRECEDENCE[rank])
            self._cache(self._reasons, cache_key, text)
        return text

    def _more_answers(
        self, known: ContainerAnswers, question: RelationQuestion, warehouse: str, parents: Sequence[Path]
    ) -> ContainerAnswers:
        """Return the answers for containers of which some are not known. Keep these while the budget lasts."""
        found, budget = ContainerAnswers(), self._budget
        for above in parents:
            if above in known.reasons:
                found.put(above, known.reasons[above], known.uneven.get(above, NO_NAMES))
                continue
            path = (warehouse, *above)
            container = self.container(path)
            reason, names = self.default_reason(container, path, question), own_names(container, question.type)
            found.put(above, reason, names)
            size = 1 + len(names or ())
            if budget.left >= size and len("".join(path)) <= budget.longest:
                budget.left -= size
                self.entries += size
                known.put(above, reason, names)
        return found

    def _relations_inside(
        self, container: ContainerAccess, path: ContainerPath, name: ObjectName, id: str
    ) -> EffectiveRelations:
        """Return the relations on an object in a container."""
        below = any(nodes[name].below for _, nodes in container.nodes if name in nodes)
        mask = self.grants.mask_at(container.nodes, path, name, id)
        return evaluate(name[0], mask, container.relations, below)

    def _own_reason(
        self, container: ContainerAccess, question: RelationQuestion, parts: tuple[str, ...], id: str
    ) -> Reason | None:
        """Return the reason that permits an object with a node; None for no permit."""
        path, name = parts[:-1], (question.type, parts[-1])
        witness = self._relations_inside(container, path, name, id).witness(question.relation)
        if witness is None:
            return None
        below, distance, rank = witness
        if not (below or distance):
            bit = BIT.get(PRECEDENCE[rank], 0)
            for grantee, nodes in container.nodes:
                node = nodes.get(name)
                if node is not None and self.grants.counting(path, name, node.stored, id) & bit:
                    return grant_reason((question.type, parts), PRECEDENCE[rank], grantee)
        return self.reason((question.type, parts), id, witness)

    def _relations_as_parent(self, key: ObjectKey | None) -> EffectiveRelations | None:
        """Return the relations on a server or project, for the evaluation of its content; None without an object.

        Ignores the objects below, because no rule of the content rests on siblings (see RESTS_ON_SIBLINGS). So equal
        containers share a result, with and without visible content.
        """
        if key is None:
            return None
        relations = self._parents.get(key)
        if relations is None:
            grants = self.grants
            relations = evaluate("server", grants.mask_at(grants.outer, (), _SERVER_NAME), None, False)
            if key != SERVER:
                mask = grants.mask_at(grants.outer, (), ("project", key[1][0]))
                relations = evaluate("project", mask, relations, False)
            self._cache(self._parents, key, relations)
        return relations

    def _evaluate_outside(self, key: ObjectKey, id: str, below: bool) -> EffectiveRelations:
        """Evaluate the rules of an object outside containers."""
        grants = self.grants
        above = grants.facts.parent(key)
        if above is not None and key[0] in RESTS_ON_SIBLINGS:
            parent: EffectiveRelations | None = self.relations_on(above)
        else:
            parent = self._relations_as_parent(above)
        path, name = split_key(key)
        return evaluate(key[0], grants.mask_at(grants.outer, path, name, id), parent, below)

    def _open(self, path: ContainerPath) -> ContainerAccess:
        """Compute the access inside a container, after missing containers above."""
        opened, budget = self._containers, self._budget
        depth, container = 0, None
        # from the top, down the cached containers and then the others: a caller chooses how many names are below them
        while depth < len(path) and (known := opened.get(path[: depth + 1])) is not None:
            depth, container = depth + 1, known
        characters = budget.longest - len("".join(path[:depth]))
        for length in range(depth + 1, len(path) + 1):
            at = path[:length]
            container = self._open_warehouse(at) if container is None else self._open_namespace(container, at)
            characters -= len(at[-1])
            if characters >= 0 and budget.left > 0:
                budget.left -= 1
                self.entries += 1
                opened[at] = container
            if self.grants.is_empty(at):
                return self._open_empty(container, path, length)
        assert container is not None, "a path has a warehouse"
        return container

    def _open_empty(self, container: ContainerAccess, path: ContainerPath, depth: int) -> ContainerAccess:
        """Compute the access inside a container below another one without known objects. Looks at no name."""
        for _ in range(len(path) - depth):
            container = container.plain_namespace(self.grants.base_mask)
        if depth < len(path):
            self._cache(self._containers, path, container, path)
        return container

    def _open_warehouse(self, path: ContainerPath) -> ContainerAccess:
        """Compute the access inside a warehouse."""
        grants = self.grants
        above = self._relations_as_parent(grants.facts.parent(("warehouse", path)))
        mask = grants.mask_at(grants.outer, (), ("warehouse", path[0]))
        return ContainerAccess(evaluate("warehouse", mask, above, False), grants.nodes_in(path))

    def _open_namespace(self, above: ContainerAccess, path: ContainerPath) -> ContainerAccess:
        """Compute the access inside a namespace in another container."""
        grants = self.grants
        nodes = grants.nodes_in(path)
        name = ("namespace", path[-1])
        if not nodes and grants.is_bare:
            for _, names in above.nodes:
                if name in names:
                    break
            else:
                return above.plain_namespace(grants.base_mask)
        mask = grants.mask_at(above.nodes, path[:-1], name)
        if nodes or mask != grants.base_mask:
            return ContainerAccess(evaluate("namespace", mask, above.relations, False), nodes)
        return above.plain_namespace(mask)

    def _cache(self, entries: dict[K, V], cache_key: K, value: V, parts: tuple[str, ...] = ()) -> None:
        """Keep a value while the budget lasts. `parts` is the path from the request, if the cache key has one."""
        # INVARIANT: no entry depends on the id in a check. Answers that do are computed each time.
        budget = self._budget
        if budget.left > 0 and len("".join(parts)) <= budget.longest:
            budget.left -= 1
            self.entries += 1
            entries[cache_key] = value

    def _ancestor(self, key: ObjectKey, distance: int) -> ObjectKey:
        """Return the object at a distance above another object."""
        type, parts = key
        left = len(parts) - distance
        if left > 0 and type in CONTENT_TYPES:
            return container_key(parts[:left])
        return next(islice(self.grants.facts.ancestors(key), distance - 1, None))


def grant_reason(key: ObjectKey, privilege: str, grantee: str) -> Reason:
    """Return the text of a stored grant."""
    return f"grants:{privilege} on {key_text(key)} via {grantee}"


def grant_reason_around(type: str, path: ContainerPath, privilege: str, grantee: str) -> tuple[str, str]:
    """Return the text of a stored grant on an object in a container: the text before and after the object's name."""
    return f"grants:{privilege} on {key_text((type, path))}/", f" via {grantee}"


def reason_on(grants: PrincipalGrants, key: ObjectKey, privilege: str, id: str = "") -> Reason:
    """Return the text of a privilege or circumstance of a principal on an object."""
    if privilege in CIRCUMSTANCE_BIT:
        return f"grants:{privilege}"
    grantee = grants.grantee_with(key, privilege, id)
    return "config:store.bootstrap_admins" if grantee is None else grant_reason(key, privilege, grantee)


def reason_below(grants: PrincipalGrants, key: ObjectKey) -> Reason:
    """Return the text of the grant below an object that shows the object to the principal."""
    nearest = _nearest_visible_below(grants, key)
    mask = grants.stored_mask(nearest) & VISIBILITY
    return reason_on(grants, nearest, next(privilege for privilege in PRIVILEGES if mask & BIT[privilege]))


def _nearest_visible_below(grants: PrincipalGrants, target: ObjectKey) -> ObjectKey:
    """Return the nearest object below that a grant of its own shows; among equals the smallest by name.

    Searches level by level, only through objects with a visible object below. So a decision names the same grant
    whatever the order of the maps, and the search is as small as the principal's visible part of the tree.
    """
    level: Iterable[ObjectKey]
    if target[0] == "project":
        level = [("warehouse", (name,)) for name in grants.facts.warehouses(target[1][0])]
    else:
        level = grants.keys_inside(target[1])
    while True:
        visible = [key for key in level if grants.stored_mask(key) & VISIBILITY]
        if visible:
            return min(visible, key=key_text)
        level = {key for above in level if grants.is_visible(above) for key in grants.keys_inside(above[1])}
        assert level, f"no visible object below {key_text(target)}"
