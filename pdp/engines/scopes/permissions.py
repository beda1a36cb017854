"""Permissions of all users, compiled, and LakeQL's two decision tables. Knows no check and no group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, TypeAlias

from pdp.engines.engine import ABSTAIN, FAILED, PERMIT
from pdp.engines.scopes.document import EntryBody, RuleBody

Scope: TypeAlias = Literal["readPermission", "writePermission"]
ANY_TABLE: Final = "*"
"""Name that stands for all tables as the first of `tables`, and nowhere else."""
NO_ENTRY: Final = "(no entry)"
"""Reason of LakeQL's permit to read for a user without an entry."""


class SchemaTables(NamedTuple):
    """Tables of one schema that a slot permits. `others` is the effect on all other tables.

    FAILED: a rule without `tables` comes before any rule that permits the table.
    """

    names: frozenset[str]
    others: int

    def effect(self, table: str | None) -> int:
        """Return the effect on a table; None for a scope that names no table."""
        return PERMIT if table in self.names else self.others


NO_TABLES: Final = SchemaTables(frozenset(), ABSTAIN)
Slot: TypeAlias = Mapping[tuple[str, str | None], SchemaTables]
"""Permitted tables by catalog and schema."""


_EMPTY: Final[Slot] = MappingProxyType({})


class Access(NamedTuple):
    """Access of one user under one scope.

    `fixed` is the effect on every table. None: `slot` decides. `entry` is the name in reasons.
    """

    entry: str
    fixed: int | None
    slot: Slot = _EMPTY


_DENIED: Final = Access("", ABSTAIN)


class Permissions:
    """Permissions of entries. Of several entries with one name, only the first counts.

    `strict` turns both default permits of reads into denials.
    """

    def __init__(self, entries: Iterable[EntryBody], *, strict: bool) -> None:
        self.strict = strict
        self._reads: dict[str, Access] = {}
        self._writes: dict[str, Access] = {}
        for entry in entries:
            if entry.name not in self._reads:
                slots = entry.permissions
                self._reads[entry.name] = _access(entry.name, slots.query or (), self._default(PERMIT))
                self._writes[entry.name] = _access(entry.name, slots.mutation or (), ABSTAIN)
        self._unknown = Access(NO_ENTRY, self._default(PERMIT))

    def access(self, scope: Scope, user: str | None, *, known: bool = True) -> Access:
        """Return the access of a user, exactly as LakeQL's resolvers decide.

        `known` is False without any user. `user` is None for a user without a name.
        """
        if not known:
            return _DENIED
        if scope == "readPermission":
            return self._reads.get(user, self._unknown) if user is not None else self._unknown
        return self._writes.get(user, _DENIED) if user is not None else _DENIED

    def _default(self, effect: int) -> int:
        return ABSTAIN if self.strict else effect


def _access(name: str, rules: Iterable[RuleBody], without_rules: int) -> Access:
    slot: dict[tuple[str, str | None], SchemaTables] = {}
    for rule in rules:
        key = rule.catalog, rule.schema
        slot[key] = _with_rule(slot.get(key, NO_TABLES), rule)
    return Access(name, None, slot) if slot else Access(name, without_rules)


def _with_rule(before: SchemaTables, rule: RuleBody) -> SchemaTables:
    """Return the tables after one more rule: the first rule with an answer counts, so none follows a fixed one."""
    if before.others != ABSTAIN:
        return before
    if rule.tables is None:
        return SchemaTables(before.names, FAILED)
    if rule.tables[:1] == (ANY_TABLE,):
        return SchemaTables(before.names, PERMIT)
    return SchemaTables(before.names | frozenset(rule.tables), ABSTAIN)
