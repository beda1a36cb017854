"""The grants engine: decides by stored grants under Lakekeeper's model.

Owns the mapping of a check to a relation of the model and the shape of verdicts; what a relation means stands in
`model`, who holds it in `standing`. It never forbids: without a grant it is silent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Final

from immutables import Map

from pdp.engines.engine import ABSTAIN, PERMIT, Group, Verdicts
from pdp.engines.grants.effective_access import CacheBudget, ContainerAccess, EffectiveAccess, Extra, grantees_of
from pdp.engines.grants.explain import explain_denial, trace_objects
from pdp.engines.grants.model import ACTIONS, CONTENT, MODEL, NESSIE
from pdp.facts.nodes import GranteeNode
from pdp.facts.objects import SERVER, ContainerPath, ObjectKey, ObjectName, key_of, key_text, mask_of
from pdp.facts.snapshot import Facts
from pdp.model.checks import CONTENT_TYPES, Principal, Reason, Resource, Siblings, Trace
from pdp.model.vocabulary import TABULAR_TYPES

_CONCRETE_CONTENT: Final = CONTENT_TYPES - {"table_or_view"}
_APPLIES: Final = frozenset(
    [(action, type) for type, actions in ACTIONS.items() for action in actions]
    + [(action, type) for action in NESSIE for type in _CONCRETE_CONTENT]
)
_BOOTSTRAP: Final[Extra] = {SERVER: mask_of("operator")}
_NO_EXTRA: Final[Extra] = {}
_FEW: Final = 8
"""Names to look through for one that is held, where looking through what is held costs less."""
_MOST_STANDINGS: Final = 4096
_MOST_KEPT: Final = 65_536
"""Containers and objects outside containers that are remembered, for all principals together: about 15 MB."""


class GrantsEngine:
    """Decides by grants. `bootstrap_admins` are principal ids that hold server `operator` without a stored grant."""

    def __init__(self, bootstrap_admins: frozenset[str] = frozenset()) -> None:
        self._bootstrap_admins = bootstrap_admins
        self._standings: dict[tuple[str, tuple[str, ...]], EffectiveAccess] = {}
        self._room = CacheBudget(_MOST_KEPT)
        self._digest = sha256(repr((MODEL, NESSIE, CONTENT, sorted(bootstrap_admins))).encode()).hexdigest()

    @property
    def name(self) -> str:
        """What `by` and `engines` call it."""
        return "grants"

    @property
    def digest(self) -> str:
        """Identifies the model and the configured administrators."""
        return self._digest

    @property
    def reads_facts(self) -> bool:
        """It reads nothing else."""
        return True

    def applies(self, action: str, type: str) -> bool:
        """Canonical actions of the type, and Nessie's content checks on anything with a path."""
        return (action, type) in _APPLIES

    def decide(self, group: Group, resources: Sequence[Resource], facts: Facts) -> Verdicts:
        """Judge every resource; what depends on the principal or on a container is worked out once."""
        if not self.applies(group.action, group.type):
            return Verdicts(bytes(len(resources)), [None] * len(resources))
        standing = self._standing(group.principal, group.type, facts)
        if group.type in TABULAR_TYPES and group.action not in NESSIE:
            decide = _decide_siblings if isinstance(resources, Siblings) else _decide_tabular
            return decide(standing, group, resources)  # type: ignore[arg-type]
        effects = bytearray(len(resources))
        by: list[Reason | None] = [None] * len(resources)
        for i, resource in enumerate(resources):
            relation, key, id = _question(group.action, group.type, resource)
            witness = standing.held(key, id).relations.get(relation)
            if witness is not None:
                effects[i] = PERMIT
                by[i] = standing.reason(key, id, witness)
        return Verdicts(bytes(effects), by)

    def may(self, principal: Principal, action: str, key: ObjectKey, facts: Facts) -> bool:
        """Whether grants alone permit an action of the model on an object."""
        return action in self._standing(principal, key[0], facts).held(key).relations

    def explain(self, group: Group, resource: Resource, facts: Facts) -> Trace:
        """What the principal holds on the object and on all above it; on a denial, the smallest missing grant."""
        if not self.applies(group.action, group.type):
            return Trace("grants", "silent", f"does not apply to {group.action} on {group.type}")
        standing = self._made(group.principal, facts)
        relation, key, id = _question(group.action, group.type, resource)
        verdicts = self.decide(group, (resource,), facts)
        permitted = verdicts.effects[0] != ABSTAIN
        return Trace(
            f"grants: {relation} on {key_text(key)} for {group.principal.id}",
            "permit" if permitted else "silent",
            verdicts.by[0] or explain_denial(standing, relation, key, id),
            trace_objects(standing, key, id),
        )

    def _standing(self, principal: Principal, of: str, facts: Facts) -> EffectiveAccess:
        """Where a principal stands: kept from call to call, as long as nothing that it rests on changes.

        Bounded, and the many to whom nothing was granted share one for the roles that they carry, so that strangers
        cannot fill the memory.
        """
        if of in ("user", "role"):
            return self._made(principal, facts)
        if self._room.left <= 0 or len(self._standings) >= _MOST_STANDINGS:
            self._standings.clear()
            self._room = CacheBudget(_MOST_KEPT)
        key = principal.id, principal.member_of
        standing = self._standings.get(key)
        if standing is None and principal.type != "anonymous" and not self._is_known(principal.id, facts):
            principal = self._stranger(principal.member_of, facts)
            key = principal.id, principal.member_of
            standing = self._standings.get(key)
        if standing is not None and standing.serves(facts):
            return standing
        standing = self._standings[key] = self._made(principal, facts)
        return standing

    def _stranger(self, member_of: tuple[str, ...], facts: Facts) -> Principal:
        """Who stands for everybody to whom nothing was granted, and who carries the same roles."""
        return Principal("user", "", member_of=tuple(r for r in member_of if self._is_known(f"role:{r}", facts)))

    def _is_known(self, id: str, facts: Facts) -> bool:
        """Whether anything was granted to a user or role."""
        index = facts.index
        return id in index.grantees or id in index.memberships or id in self._bootstrap_admins

    def _made(self, principal: Principal, facts: Facts) -> EffectiveAccess:
        bootstrap = self._bootstrap_admins and not self._bootstrap_admins.isdisjoint(grantees_of(facts, principal))
        return EffectiveAccess(facts, principal, _BOOTSTRAP if bootstrap else _NO_EXTRA, self._room)


def _decide_siblings(standing: EffectiveAccess, group: Group, resources: Siblings) -> Verdicts:
    """The tabular objects of one container: one answer for all, but for those on which more was granted."""
    size = len(resources)
    if not size:
        return Verdicts(b"", [])
    type, like = group.type, resources.like
    place = (like.warehouse, *like.path)
    column, reason = _plain(standing, group, place, resources.names[0])
    effects = bytearray([ABSTAIN if reason is None else PERMIT]) * size
    by: list[Reason | None] = [reason] * size
    for here in column.granted:
        for i, name in _found(resources.names, type, here):
            by[i] = own = _own(standing, group, (column, place, name), "")
            effects[i] = ABSTAIN if own is None else PERMIT
    return Verdicts(bytes(effects), by)


def _found(names: Sequence[str], type: str, here: Map[ObjectName, GranteeNode]) -> Iterator[tuple[int, str]]:
    """The names at which something of a type is held, with their positions."""
    if len(here) * _FEW > len(names):
        yield from ((i, name) for i, name in enumerate(names) if (type, name) in here)
        return
    for held, name in here:
        if held == type and name in names:
            yield from ((i, name) for i, other in enumerate(names) if other == name)


def _decide_tabular(standing: EffectiveAccess, group: Group, resources: Sequence[Resource]) -> Verdicts:
    """The tabular objects of many containers: one answer for each, but for objects on which more was granted."""
    effects = bytearray(len(resources))
    by: list[Reason | None] = []
    warehouse, type = group.warehouse, group.type
    known: dict[tuple[str, ...], tuple[ContainerAccess, Reason | None]] = {}
    for i, resource in enumerate(resources):
        path = resource.path
        above, name = path[:-1], path[-1]
        found = known.get(above)
        if found is None:
            found = known[above] = _plain(standing, group, (warehouse, *above), name)
        column, reason = found
        for here in column.granted:
            if (type, name) in here:
                reason = _own(standing, group, (column, (warehouse, *above), name), resource.id)
                break
        if reason is not None:
            effects[i] = PERMIT
        by.append(reason)
    return Verdicts(bytes(effects), by)


def _plain(
    standing: EffectiveAccess, group: Group, place: ContainerPath, name: str
) -> tuple[ContainerAccess, Reason | None]:
    """The inside of a container, and why all in it is permitted on which nothing was granted, if it is."""
    column = standing.inside(place)
    witness = column.plain(group.type).relations.get(group.action)
    return column, None if witness is None else standing.reason((group.type, (*place, name)), "", witness)


def _own(
    standing: EffectiveAccess, group: Group, at: tuple[ContainerAccess, ContainerPath, str], id: str
) -> Reason | None:
    """Why something on which more was granted is permitted, if it is."""
    column, place, name = at
    witness = standing.held_inside(column, place, (group.type, name), id).relations.get(group.action)
    return None if witness is None else standing.reason((group.type, (*place, name)), id, witness)


def _question(action: str, of: str, resource: Resource) -> tuple[str, ObjectKey, str]:
    """The relation that a check asks, the object on which it is asked, and the id that the resource carries."""
    key = key_of(resource, of)
    nessie = NESSIE.get(action)
    if nessie is None:
        return action, key, resource.id
    type = CONTENT.get(resource.content_type, "table") if of == "content" else of
    where, _, relation = nessie.get(type, nessie[""]).rpartition(".")
    if not where:
        return relation, (type, key[1]), resource.id
    # the parent of something with a path is a namespace or its warehouse: the id of what is below says nothing of it
    parts = key[1][:-1]
    return relation, ("namespace" if len(parts) > 1 else "warehouse", parts), ""
