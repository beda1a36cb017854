"""Scopes engine: decides reads and writes of tables by LakeQL's permission files.

`permissions` has the decision tables, `questions` maps checks to scopes. The engine never forbids. Where LakeQL fails,
the engine has failed, and the service denies.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Final

import msgspec

from pdp.engines.engine import (
    ABSTAIN,
    EFFECT_NAMES,
    FAILED,
    PERMIT,
    READS_POLICIES,
    SILENT,
    Cost,
    Dependency,
    EngineQuestion,
    FixedAnswer,
    ResourceCall,
    Verdicts,
)
from pdp.engines.scopes.explain import explain_access
from pdp.engines.scopes.permissions import (
    NO_TABLES,
    QUESTIONS,
    Access,
    EntryBody,
    Permissions,
    SchemaTables,
    Target,
    target_of,
    user_of,
)
from pdp.facts.snapshot import Facts
from pdp.model.answer import Trace
from pdp.model.arrays import PathArray
from pdp.model.question import Resource
from pdp.model.vocabulary import TABULAR_TYPES

NAME: Final = "scopes"


class ScopesEngine:
    """Engine of LakeQL's scopes. `entries` name subjects of `provider`."""

    forbids = True
    """A rule without tables fails, which denies."""
    counts_stored_roles = False
    """An entry names users alone."""

    def __init__(self, entries: Sequence[EntryBody], provider: str, *, strict: bool = False) -> None:
        self.entries = entries
        self.permissions = Permissions(entries, strict=strict)
        self.provider = provider
        self._digest = sha256(msgspec.json.encode((entries, provider, strict))).hexdigest()

    @property
    def name(self) -> str:
        """Return the name of the engine in `by` and `engines`."""
        return NAME

    @property
    def digest(self) -> str:
        """Return the digest of the entries and of the mode."""
        return self._digest

    @property
    def reads(self) -> frozenset[Dependency]:
        """Return the sources of verdicts: the files alone."""
        return READS_POLICIES

    @property
    def cost(self) -> Cost:
        """Return the cost of a verdict: two look-ups."""
        return Cost.MICROSECONDS

    def applies(self, action: str, type: str) -> bool:
        """Tell whether a scope stands for the action on the type."""
        return (action, type) in QUESTIONS

    def decide(self, group: EngineQuestion, resources: Sequence[Resource], facts: Facts) -> Verdicts:
        """Decide every resource. Work for the user is done once."""
        access = self.access(group)
        if access.fixed is not None:
            verdicts = _verdicts(access.entry, access.fixed)
            count = len(resources)
            errors = dict.fromkeys(range(count), verdicts.errors[0]) if verdicts.errors else {}
            return Verdicts(verdicts.effects * count, [verdicts.by[0]] * count, errors)
        effects = _effects(access, group, resources)
        by = list(map(_REASONS[access.entry].__getitem__, effects))
        if FAILED not in effects:
            return Verdicts(effects, by)
        errors = {row: (access.entry,) for row, effect in enumerate(effects) if effect == FAILED}
        return Verdicts(effects, by, errors)

    def prepare(self, group: EngineQuestion, facts: Facts) -> ResourceCall | None:
        """Return the call that decides one resource of a group."""
        access = self.access(group)
        if access.fixed is not None:
            return FixedAnswer(_verdicts(access.entry, access.fixed))
        return ScopeQuestion(group, access)

    def explain(self, group: EngineQuestion, resource: Resource, facts: Facts) -> Trace:
        """Return the verdict with the rules of the user's entry; for a denial also the smallest change."""
        user, scope = user_of(group.principal, self.provider), QUESTIONS[group.action, group.type]
        verdicts = self.decide(group, (resource,), facts)
        target = target_of(group, resource)
        entry = next((entry for entry in self.entries if entry.name == user.name), None)
        outcome = EFFECT_NAMES[verdicts.effects[0]]
        return explain_access(scope, user, target, (outcome, verdicts.by[0]), entry)

    def access(self, group: EngineQuestion) -> Access:
        """Return the access of the group's user under the scope of the group's action."""
        user = user_of(group.principal, self.provider)
        return self.permissions.access(QUESTIONS[group.action, group.type], user.name, known=user.known)


class ScopeQuestion(msgspec.Struct, frozen=True):
    """Prepared question about the tables of one user."""

    group: EngineQuestion
    access: Access

    def __call__(self, resource: Resource) -> Verdicts:
        """Return the verdicts on a resource."""
        target = target_of(self.group, resource)
        return _verdicts(self.access.entry, _tables(self.access, target).effect(target.table))


class _Reasons(dict[str, dict[int, str | None]]):
    """Reasons by entry and effect. The names of entries are few."""

    def __missing__(self, entry: str) -> dict[int, str | None]:
        text = f"{NAME}:{entry}"
        if len(self) > _MOST_NAMES:
            self.clear()
        found = self[entry] = {ABSTAIN: None, PERMIT: text, FAILED: text}
        return found


_MOST_NAMES: Final = 100_000
_REASONS: Final = _Reasons()


def _verdicts(entry: str, effect: int) -> Verdicts:
    if effect == ABSTAIN:
        return SILENT
    reason = _REASONS[entry][effect]
    return Verdicts(bytes([effect]), (reason,), {0: (entry,)} if effect == FAILED else {})


def _effects(access: Access, group: EngineQuestion, resources: Sequence[Resource]) -> bytes:
    """Return the effects on resources. A column of tables needs one look-up for each namespace, and no object."""
    if type(resources) is PathArray and group.type in TABULAR_TYPES:
        schemas = [access.slot.get((group.warehouse, ".".join(parent)), NO_TABLES) for parent in resources.parents]
        rows = zip(resources.names, map(schemas.__getitem__, resources.parent_at), strict=True)
        return bytes([PERMIT if name in schema[0] else schema[1] for name, schema in rows])
    targets = [target_of(group, resource) for resource in resources]
    return bytes([_tables(access, target).effect(target.table) for target in targets])


def _tables(access: Access, target: Target) -> SchemaTables:
    return access.slot.get((target.catalog, target.schema), NO_TABLES)
