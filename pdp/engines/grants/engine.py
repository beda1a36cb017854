"""Grants engine: decides by stored grants under Lakekeeper's model.

Maps a check to a relation of the model, and relations to verdicts; also for one resource after another, and for the
smallest grant that would permit. `model` defines the relations, `effective_access` computes the relations of a
principal. The engine never forbids: without a grant the engine abstains. Explanations name the relations of each
object, and the missing grant.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from typing import Final

from pdp.engines.engine import ABSTAIN, PERMIT, SILENT, Cost, Dependency, EngineQuestion, ResourceCall, Verdicts
from pdp.engines.grants.edits import QUESTIONS, RelationQuestion
from pdp.engines.grants.effective_access import EffectiveAccess
from pdp.engines.grants.many_objects import decide_column, decide_tables
from pdp.engines.grants.model import CONTENT, MODEL, NESSIE, STORED
from pdp.engines.grants.principal_grants import (
    SELF_TYPES,
    CacheBudget,
    ExtraPrivileges,
    GranteeNodes,
    PrincipalGrants,
)
from pdp.engines.grants.rules import CIRCUMSTANCE_BIT
from pdp.facts.objects import (
    BIT,
    SERVER,
    ContainerPath,
    Grant,
    ObjectKey,
    ObjectName,
    join_key,
    key_text,
    mask_of,
)
from pdp.facts.snapshot import Facts
from pdp.model.answer import Reason, Trace
from pdp.model.arrays import PathArray
from pdp.model.question import Principal, Resource
from pdp.model.vocabulary import PRIVILEGES

_WEAKEST_FIRST: Final = tuple(reversed(PRIVILEGES))
_NAMES: Final = tuple((BIT | CIRCUMSTANCE_BIT).items())


def trace_objects(access: EffectiveAccess, key: ObjectKey, id: str) -> tuple[Trace, ...]:
    """Return a node for the object and for each object above: the effective relations and the stored privileges."""
    nearest = _trace_object(access, key, id)
    return (nearest, *(_trace_object(access, above, "") for above in access.grants.facts.ancestors(key)))


def explain_denial(access: EffectiveAccess, relation: str, key: ObjectKey, id: str) -> str:
    """Return a line that names the weakest privilege on the nearest object that would permit the relation."""
    who = access.grants.principal.id
    if not access.grants.grantees:
        return f"{who} has no grants"
    grant = smallest_grant(access, relation, key, id)
    if grant is None:
        return f"no single grant to {who} would permit {relation} on {key_text(key)}"
    target, privilege = grant
    return f"{privilege} on {key_text(target)} to {who} would permit it"


def _trace_object(access: EffectiveAccess, key: ObjectKey, id: str) -> Trace:
    relations = access.relations_on(key, id)
    effective = [name for name in MODEL[key[0]].relations if relations.witness(name) is not None]
    mask = access.grants.stored_mask(key, id)
    stored = sorted(name for name, bit in _NAMES if mask & bit and name != "authenticated")
    return Trace(
        key_text(key), ", ".join(effective) or "nothing", ", ".join(_source(access, key, p, id) for p in stored)
    )


def _source(access: EffectiveAccess, key: ObjectKey, privilege: str, id: str) -> str:
    if privilege in CIRCUMSTANCE_BIT:
        return privilege
    grantee = access.grants.grantee_with(key, privilege, id)
    return f"{privilege} via {grantee}" if grantee else f"{privilege} by configuration"


class _WidenedGrants(PrincipalGrants):
    """Grants of a principal with extra privileges. Reads stored grants once: there may be many roles."""

    __slots__ = ("_before", "_masks", "_nodes")

    def __init__(self, before: PrincipalGrants) -> None:
        for name in PrincipalGrants.__slots__:
            setattr(self, name, getattr(before, name))
        self.is_bare = False
        self._before = before
        self._nodes: dict[ContainerPath, tuple[GranteeNodes, ...]] = {}
        self._masks: dict[tuple[ContainerPath, ObjectName, str], int] = {}

    def nodes_in(self, path: ContainerPath) -> tuple[GranteeNodes, ...]:
        """Return the nodes in a container, one map for each grantee with nodes there."""
        found = self._nodes.get(path)
        if found is None:
            found = self._nodes[path] = self._before.nodes_in(path)
        return found

    def mask_at(self, nodes: tuple[GranteeNodes, ...], path: ContainerPath, name: ObjectName, id: str = "") -> int:
        """Return the mask of an object as before, with the extra privileges. Extra privileges only add."""
        mask = self._masks.get((path, name, id))
        if mask is None:
            mask = self._masks[path, name, id] = self._before.mask_at(nodes, path, name, id)
        return mask | self.extra.get(join_key(path, name), 0)


def smallest_grant(access: EffectiveAccess, relation: str, key: ObjectKey, id: str) -> tuple[ObjectKey, str] | None:
    """Return the nearest object and the weakest privilege on it that would permit a relation; None without any."""
    # tries each grant in turn: as an extra privilege, without a change of the facts
    grants = _WidenedGrants(access.grants)
    extra = grants.extra
    for target in (key, *grants.facts.ancestors(key)):
        for privilege in _WEAKEST_FIRST:
            if privilege in STORED[target[0]]:
                grants.extra = {**extra, target: extra.get(target, 0) | BIT[privilege]}
                if EffectiveAccess.of(grants).relations_on(key, id).witness(relation) is not None:
                    return target, privilege
    return None


_PERMITTED: Final = bytes([PERMIT])
_BOOTSTRAP: Final[ExtraPrivileges] = {SERVER: mask_of("operator")}
_NO_EXTRA: Final[ExtraPrivileges] = {}
_READS: Final = frozenset({Dependency.POLICIES, Dependency.FACTS})
_MAX_PRINCIPALS: Final = 4096
_MAX_ENTRIES: Final = 98_304
"""Cached relations and reasons, of all principals together: about 20 MB."""


class GrantsEngine:
    """Engine of grants. `bootstrap_admins` are principal ids with `operator` on the server without a stored grant."""

    forbids = False
    """No grant forbids."""
    counts_stored_roles = False
    """The engine reads memberships in the facts."""

    def __init__(self, bootstrap_admins: frozenset[str] = frozenset()) -> None:
        self._bootstrap_admins = bootstrap_admins
        self._cache: OrderedDict[tuple[str, tuple[str, ...]], EffectiveAccess] = OrderedDict()
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
    def reads(self) -> frozenset[Dependency]:
        """Return the sources of verdicts: not the time, for grants do not end by themselves."""
        return _READS

    @property
    def cost(self) -> Cost:
        """Return the cost of a verdict: all facts are in memory."""
        return Cost.MICROSECONDS

    def applies(self, action: str, type: str) -> bool:
        """Tell whether the action is a canonical action of the type, or a content check of Nessie on a path."""
        return (action, type) in QUESTIONS

    def decide(self, group: EngineQuestion, resources: Sequence[Resource], facts: Facts) -> Verdicts:
        """Decide every resource. Work for the principal and for a container is done once."""
        size = len(resources)
        question = QUESTIONS.get((group.action, group.type))
        if question is None or not size:
            return Verdicts(bytes(size), [None] * size)
        access = self._access(group.principal, group.type, facts)
        if size > 1:
            return _decide_many(access, question, resources)
        reason = decide_one(access, question, resources[0])
        return SILENT if reason is None else Verdicts(_PERMITTED, [reason])

    def prepare(self, group: EngineQuestion, facts: Facts) -> ResourceCall | None:
        """Return the call that decides one resource of a group; None for users, roles and unknown actions."""
        question = QUESTIONS.get((group.action, group.type))
        if question is None or group.type in SELF_TYPES:
            return None
        find_access = partial(self._access, group.principal, group.type, facts)
        return AccessQuestion(question, facts, self._budget, find_access)

    def may(self, principal: Principal, action: str, key: ObjectKey, facts: Facts) -> bool:
        """Tell whether grants alone permit an action of the model on an object."""
        return self._access(principal, key[0], facts).relations_on(key).witness(action) is not None

    def explain(self, group: EngineQuestion, resource: Resource, facts: Facts) -> Trace:
        """Return the relations on the object and on all objects above; for a denial also the smallest missing grant."""
        if not self.applies(group.action, group.type):
            return Trace("grants", "silent", f"does not apply to {group.action} on {group.type}")
        access = EffectiveAccess.of(_WidenedGrants(self._new_access(group.principal, facts).grants))
        relation, key, id = QUESTIONS[group.action, group.type].target_of(resource)
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
        if type in SELF_TYPES:
            return self._new_access(principal, facts)
        cache, budget = self._cache, self._budget
        if budget.left <= 0 or len(cache) >= _MAX_PRINCIPALS:
            self._evict()
        id = principal.id
        cache_key = id, principal.member_of
        access = cache.get(cache_key)
        if access is None and principal.type != "anonymous" and not self._has_grants(id, facts):
            principal = self._unknown_principal(principal.member_of, facts)
            cache_key = principal.id, principal.member_of
            access = cache.get(cache_key)
        if access is not None:
            if access.advance_to(facts):
                return access
            budget.left += access.entries
            access.retired = True
        access = cache[cache_key] = self._new_access(principal, facts, budget)
        return access

    def _evict(self) -> None:
        """Remove the oldest entries until an eighth of the budget and the place of a principal are free."""
        budget = self._budget
        while budget.left <= _MAX_ENTRIES // 8 or len(self._cache) >= _MAX_PRINCIPALS:
            try:
                oldest = self._cache.popitem(last=False)[1]
                budget.left += oldest.entries
                oldest.retired = True
            except KeyError:  # all are gone, perhaps by another thread of the administration
                budget.left = _MAX_ENTRIES

    def _unknown_principal(self, member_of: tuple[str, ...], facts: Facts) -> Principal:
        """Return the common stand-in for all principals without a grant and with these roles from a token."""
        return Principal("user", "", member_of=tuple(r for r in member_of if self._has_grants(f"role:{r}", facts)))

    def _has_grants(self, id: str, facts: Facts) -> bool:
        """Tell whether a user or role has a grant, a membership or a place in the configuration."""
        index = facts.index
        return id in index.grantees or id in index.memberships or id in self._bootstrap_admins

    def _new_access(self, principal: Principal, facts: Facts, budget: CacheBudget | None = None) -> EffectiveAccess:
        """Return a new effective access. Without a budget, its caches are its own and end with it."""
        is_admin = self._bootstrap_admins and not self._bootstrap_admins.isdisjoint(facts.grantees_of(principal))
        return EffectiveAccess(facts, principal, _BOOTSTRAP if is_admin else _NO_EXTRA, budget)


def _decide_many(access: EffectiveAccess, question: RelationQuestion, resources: Sequence[Resource]) -> Verdicts:
    """Decide resources by their containers if possible, else one by one."""
    if question.is_inside and type(resources) is PathArray:
        return decide_column(access, question, resources)
    if question.is_inside and question.type != "namespace" and not question.move:
        return decide_tables(access, question, resources)
    by = [decide_one(access, question, resource) for resource in resources]
    return Verdicts(bytes([ABSTAIN if reason is None else PERMIT for reason in by]), by)


class AccessQuestion:
    """Question about the access of one principal in one snapshot of the facts. Compared by identity."""

    __slots__ = ("_access", "_budget", "_facts", "_find_access", "_question")

    def __init__(
        self, question: RelationQuestion, facts: Facts, budget: CacheBudget, find_access: Callable[[], EffectiveAccess]
    ) -> None:
        """Find the access of the principal. `find_access` finds it again after a change of the engine's cache."""
        self._question = question
        self._facts = facts
        self._budget = budget
        self._find_access = find_access
        self._access = find_access()

    def __call__(self, resource: Resource) -> Verdicts:
        """Return the verdicts on a resource."""
        access = self._access
        # The engine retires accesses when the budget is used up, and moves the others to newer facts.
        if access.retired or access.grants.facts is not self._facts or self._budget.left <= 0:
            access = self._access = self._find_access()
        reason = decide_one(access, self._question, resource)
        return SILENT if reason is None else Verdicts(_PERMITTED, [reason])


def decide_one(access: EffectiveAccess, question: RelationQuestion, resource: Resource) -> Reason | None:
    """Return the reason that permits a resource; None for no permit."""
    if question.is_inside and not (question.move and question.is_move(resource)):
        return access.reason_inside(question, (resource.warehouse, *resource.path), resource.id)
    relation, key, id = question.target_of(resource)
    witness = access.relations_on(key, id).witness(relation)
    return None if witness is None else access.reason(key, id, witness)


def grant_for(facts: Facts, grantee: Principal, action: str, resource: Resource) -> Grant | None:
    """Return the weakest grant on the nearest object that permits a question to a grantee; None without one.

    The facts have objects alone: a grant among them would permit the question already.
    """
    question = QUESTIONS.get((action, resource.type))
    if question is None:
        return None
    relation, key, id = question.target_of(resource)
    found = smallest_grant(EffectiveAccess(facts, grantee, {}), relation, key, id)
    return Grant(found[0], found[1], grantee.id) if found else None


def conveyed(facts: Facts, grant: Grant, keys: Iterator[ObjectKey]) -> int:
    """Return the number of pairs of relation and object that a grant alone conveys, for some objects."""
    access = EffectiveAccess(facts, Principal("user", "x"), {grant.object: BIT[grant.privilege]})
    return sum(
        access.relations_on(key).witness(relation) is not None for key in keys for relation in MODEL[key[0]].relations
    )
