"""Grants engine: decides by stored grants under Lakekeeper's model.

Maps a check to a relation of the model, and relations to verdicts. `model` defines the relations, `effective_access`
computes the relations of a principal. The engine never forbids: without a grant the engine abstains.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Final

from immutables import Map

from pdp.engines.engine import ABSTAIN, PERMIT, Group, Verdicts
from pdp.engines.grants.container_access import CacheBudget, ContainerAccess
from pdp.engines.grants.effective_access import EffectiveAccess, ExtraPrivileges, grantees_of
from pdp.engines.grants.explain import explain_denial, trace_objects
from pdp.engines.grants.model import ACTIONS, CONTENT, MODEL, NESSIE
from pdp.facts.nodes import GranteeNode
from pdp.facts.objects import SERVER, ContainerPath, ObjectKey, ObjectName, key_of, key_text, mask_of
from pdp.facts.snapshot import Facts
from pdp.model.checks import CONTENT_TYPES, Principal, Reason, Resource, Trace
from pdp.model.columns import PathColumn
from pdp.model.vocabulary import TABULAR_TYPES

_CONCRETE_CONTENT: Final = CONTENT_TYPES - {"table_or_view"}
_APPLIES: Final = frozenset(
    [(action, type) for type, actions in ACTIONS.items() for action in actions]
    + [(action, type) for action in NESSIE for type in _CONCRETE_CONTENT]
)
_BOOTSTRAP: Final[ExtraPrivileges] = {SERVER: mask_of("operator")}
_NO_EXTRA: Final[ExtraPrivileges] = {}
_NAMES_PER_EXCEPTION: Final = 8
"""Names in a list for each exception, above which a search for each exception costs less than one look-up per name."""
_MAX_PRINCIPALS: Final = 4096
_MAX_ENTRIES: Final = 65_536
"""Cached containers and objects outside containers, for all principals together: about 15 MB."""


class GrantsEngine:
    """Engine of grants. `bootstrap_admins` are principal ids with `operator` on the server without a stored grant."""

    def __init__(self, bootstrap_admins: frozenset[str] = frozenset()) -> None:
        self._bootstrap_admins = bootstrap_admins
        self._cache: dict[tuple[str, tuple[str, ...]], EffectiveAccess] = {}
        self._budget = CacheBudget(_MAX_ENTRIES)
        self._digest = sha256(repr((MODEL, NESSIE, CONTENT, sorted(bootstrap_admins))).encode()).hexdigest()

    @property
    def name(self) -> str:
        """Return the name of the engine in `by` and `engines`."""
        return "grants"

    @property
    def digest(self) -> str:
        """Return the digest of the model and the configured administrators."""
        return self._digest

    @property
    def reads_facts(self) -> bool:
        """Return True: every verdict rests on facts."""
        return True

    def applies(self, action: str, type: str) -> bool:
        """Tell whether the action is a canonical action of the type, or a content check of Nessie on a path."""
        return (action, type) in _APPLIES

    def decide(self, group: Group, resources: Sequence[Resource], facts: Facts) -> Verdicts:
        """Decide every resource. Work for the principal and for a container is done once."""
        if not self.applies(group.action, group.type):
            return Verdicts(bytes(len(resources)), [None] * len(resources))
        access = self._access(group.principal, group.type, facts)
        if group.type in TABULAR_TYPES and group.action not in NESSIE:
            decide = (
                _decide_siblings
                if isinstance(resources, PathColumn) and len(resources.parents) == 1
                else _decide_tabular
            )
            return decide(access, group, resources)  # type: ignore[arg-type]
        effects = bytearray(len(resources))
        by: list[Reason | None] = [None] * len(resources)
        for i, resource in enumerate(resources):
            relation, key, id = _relation_of(group.action, group.type, resource)
            witness = access.relations_on(key, id).relations.get(relation)
            if witness is not None:
                effects[i] = PERMIT
                by[i] = access.reason(key, id, witness)
        return Verdicts(bytes(effects), by)

    def may(self, principal: Principal, action: str, key: ObjectKey, facts: Facts) -> bool:
        """Tell whether grants alone permit an action of the model on an object."""
        return action in self._access(principal, key[0], facts).relations_on(key).relations

    def explain(self, group: Group, resource: Resource, facts: Facts) -> Trace:
        """Return the relations on the object and on all objects above; for a denial also the smallest missing grant."""
        if not self.applies(group.action, group.type):
            return Trace("grants", "silent", f"does not apply to {group.action} on {group.type}")
        access = self._new_access(group.principal, facts)
        relation, key, id = _relation_of(group.action, group.type, resource)
        verdicts = self.decide(group, (resource,), facts)
        permitted = verdicts.effects[0] != ABSTAIN
        return Trace(
            f"grants: {relation} on {key_text(key)} for {group.principal.id}",
            "permit" if permitted else "silent",
            verdicts.by[0] or explain_denial(access, relation, key, id),
            trace_objects(access, key, id),
        )

    def _access(self, principal: Principal, type: str, facts: Facts) -> EffectiveAccess:
        """Return the effective access of a principal, from the cache while valid.

        The cache is bounded. All principals without a grant and with the same token roles share an entry, so that
        unknown principals cannot fill the memory. Their relations are equal, except on their own user or role
        object (the circumstance `self`): checks on users and roles do not use the cache.
        """
        if type in ("user", "role"):
            return self._new_access(principal, facts)
        if self._budget.left <= 0 or len(self._cache) >= _MAX_PRINCIPALS:
            self._cache.clear()
            self._budget = CacheBudget(_MAX_ENTRIES)
        cache_key = principal.id, principal.member_of
        access = self._cache.get(cache_key)
        if access is None and principal.type != "anonymous" and not self._has_grants(principal.id, facts):
            principal = self._unknown_principal(principal.member_of, facts)
            cache_key = principal.id, principal.member_of
            access = self._cache.get(cache_key)
        if access is not None and access.advance_to(facts):
            return access
        access = self._cache[cache_key] = self._new_access(principal, facts)
        return access

    def _unknown_principal(self, member_of: tuple[str, ...], facts: Facts) -> Principal:
        """Return the common stand-in for all principals without a grant and with these roles from a token."""
        return Principal("user", "", member_of=tuple(r for r in member_of if self._has_grants(f"role:{r}", facts)))

    def _has_grants(self, id: str, facts: Facts) -> bool:
        """Tell whether a user or role has a grant, a membership or a place in the configuration."""
        index = facts.index
        return id in index.grantees or id in index.memberships or id in self._bootstrap_admins

    def _new_access(self, principal: Principal, facts: Facts) -> EffectiveAccess:
        is_admin = self._bootstrap_admins and not self._bootstrap_admins.isdisjoint(grantees_of(facts, principal))
        return EffectiveAccess(facts, principal, _BOOTSTRAP if is_admin else _NO_EXTRA, self._budget)


def _decide_siblings(access: EffectiveAccess, group: Group, resources: PathColumn) -> Verdicts:
    """Decide the tabular objects of one container: one answer for all, then the few exceptions again."""
    size = len(resources)
    if not size:
        return Verdicts(b"", [])
    type = group.type
    path = (resources.warehouse, *resources.parents[0])
    container, reason = _default_answer(access, group, path, resources.names[0])
    effects = bytearray([ABSTAIN if reason is None else PERMIT]) * size
    by: list[Reason | None] = [reason] * size
    for nodes in container.exceptions:
        for i, name in _exceptions(resources.names, type, nodes):
            by[i] = own_reason = _exception_answer(access, group, (container, path, name), "")
            effects[i] = ABSTAIN if own_reason is None else PERMIT
    return Verdicts(bytes(effects), by)


def _exceptions(names: Sequence[str], type: str, nodes: Map[ObjectName, GranteeNode]) -> Iterator[tuple[int, str]]:
    """Yield the names with a node of this type, and their positions. Loops over the smaller side."""
    if len(nodes) * _NAMES_PER_EXCEPTION > len(names):
        yield from ((i, name) for i, name in enumerate(names) if (type, name) in nodes)
        return
    for node_type, name in nodes:
        if node_type == type and name in names:
            yield from ((i, name) for i, other in enumerate(names) if other == name)


def _decide_tabular(access: EffectiveAccess, group: Group, resources: Sequence[Resource]) -> Verdicts:
    """Decide the tabular objects of many containers: one answer for each container, and the exceptions."""
    effects = bytearray(len(resources))
    by: list[Reason | None] = []
    warehouse, type = group.warehouse, group.type
    answers: dict[tuple[str, ...], tuple[ContainerAccess, Reason | None]] = {}
    for i, resource in enumerate(resources):
        path = resource.path
        above, name = path[:-1], path[-1]
        answer = answers.get(above)
        if answer is None:
            answer = answers[above] = _default_answer(access, group, (warehouse, *above), name)
        container, reason = answer
        for nodes in container.exceptions:
            if (type, name) in nodes:
                reason = _exception_answer(access, group, (container, (warehouse, *above), name), resource.id)
                break
        if reason is not None:
            effects[i] = PERMIT
        by.append(reason)
    return Verdicts(bytes(effects), by)


def _default_answer(
    access: EffectiveAccess, group: Group, path: ContainerPath, name: str
) -> tuple[ContainerAccess, Reason | None]:
    """Return a container, and the reason that permits all its objects except the exceptions; None for no permit.

    The witness of such an object is above the object, so the reason is the same for each of them: `name` is any.
    """
    container = access.container(path)
    witness = container.default_relations(group.type).relations.get(group.action)
    return container, None if witness is None else access.reason((group.type, (*path, name)), "", witness)


def _exception_answer(
    access: EffectiveAccess, group: Group, at: tuple[ContainerAccess, ContainerPath, str], id: str
) -> Reason | None:
    """Return the reason that permits an exception; None for no permit."""
    container, path, name = at
    relations = access.relations_inside(container, path, (group.type, name), id).relations
    witness = relations.get(group.action)
    return None if witness is None else access.reason((group.type, (*path, name)), id, witness)


def _relation_of(action: str, type: str, resource: Resource) -> tuple[str, ObjectKey, str]:
    """Return the relation that a check asks for, the object of the relation, and the id in the check."""
    key = key_of(resource, type)
    nessie = NESSIE.get(action)
    if nessie is None:
        return action, key, resource.id
    concrete = CONTENT.get(resource.content_type, "table") if type == "content" else type
    direction, _, relation = nessie.get(concrete, nessie[""]).rpartition(".")
    if not direction:
        return relation, (concrete, key[1]), resource.id
    # The relation is on the parent, a namespace or the warehouse. The id in the check is the child's: drop the id.
    parts = key[1][:-1]
    return relation, ("namespace" if len(parts) > 1 else "warehouse", parts), ""
