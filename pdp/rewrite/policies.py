"""Policies and masks by relation, with grantees, of files and of the facts, as the rewriter looks them up.

Owns the text of a filter. Reads no SQL.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from immutables import Map

from pdp.engines.row_access.dialects import translate_constant
from pdp.engines.row_access.members import Grantee, parse_grantee
from pdp.engines.row_access.policies import KINDS, Document, MaskBody, PolicyBody
from pdp.engines.row_access.stored import StoredMask, stored_masks, stored_policies
from pdp.facts.row_policies import DialectText, FoldedName, NearNames, RowPolicy, RuleKey, fold_column, widen_name
from pdp.facts.snapshot import Facts
from pdp.model.bounded_cache import BoundedCache
from pdp.rewrite.catalog import (
    NO_CONTAINERS,
    Catalog,
    Containers,
    RelationKey,
    catalogs_of,
    containers_of,
    key_of,
    table_parts,
)
from pdp.rewrite.errors import FILTER_INVALID, RewriteRefused
from pdp.rewrite.fast_ways import FastPass, FastVerification
from pdp.rewrite.identity import CallerIdentity

_MEMO_ENTRIES: Final = 5_000
_NO_MASKS: Final[ColumnMasks] = {}
_Entry = TypeVar("_Entry", "FilterPolicy", "MaskPolicy")


@dataclass(frozen=True, slots=True)
class FilterPolicy:
    """Policy: the grantees see the rows for which `text`, a condition in `dialect`, is true.

    `author` is the principal who wrote the policy into the store; empty for files and operators. `others` are the texts
    in other dialects, for `PolicySet.written_for`. `restrictive`: each row needs the filter, beside another policy.
    """

    id: str
    table: RelationKey
    grantees: tuple[Grantee, ...]
    text: str
    dialect: str
    author: str = ""
    others: tuple[DialectText, ...] = ()
    restrictive: bool = False

    @property
    def is_open(self) -> bool:
        """Tell whether the filter is the word TRUE: every row."""
        return self.text.strip().upper() == "TRUE"


class StoredTable(NamedTuple):
    """Stored policies and masks of one relation."""

    key: RelationKey
    policies: tuple[FilterPolicy, ...]
    masks: tuple[MaskPolicy, ...]


class CatalogMemory:
    """Values derived from a set of policies and one catalog: names and columns of another catalog give other values."""

    def __init__(self) -> None:
        self.filters: BoundedCache[tuple[Any, ...], str | None] = BoundedCache(_MEMO_ENTRIES)
        """Filters by relation, dialect and caller."""
        self.short_ways: dict[str, FastPass] = {}
        """Short ways by dialect, once a text was rewritten."""
        self.word_readings: dict[str, FastVerification] = {}
        """Readings of rewritten texts by dialect, once a text was rewritten."""


class PolicySet:
    """Policies and masks of all relations. A relation below one of `protected` shows no rows without a policy.

    An entry of `protected` is a container and a folded path, which is empty for the whole container.
    """

    def __init__(
        self,
        tables: Mapping[RelationKey, tuple[FilterPolicy, ...]],
        protected: Sequence[RelationKey] = (),
        masks: Mapping[RelationKey, ColumnMasks] | None = None,
    ) -> None:
        self._tables = tables
        self._masks = masks or {}
        self._protected = tuple(map(widen_name, protected))
        self._near = NearNames((*tables, *self._masks))
        self._memories: WeakKeyDictionary[Catalog, CatalogMemory] = WeakKeyDictionary()
        self.is_passing = False

    @property
    def has_containers(self) -> bool:
        """Tell whether some containers show no rows without a policy."""
        return bool(self._protected)

    def memory(self, catalog: Catalog) -> CatalogMemory:
        """Return the values derived from these policies and a catalog. They live as long as both."""
        found = self._memories.get(catalog)
        if found is None:
            found = self._memories[catalog] = CatalogMemory()
        return found

    def of(self, table: RelationKey) -> tuple[FilterPolicy, ...]:
        """Return the policies of a relation."""
        return self._tables.get(table, ())

    def protects(self, table: RelationKey) -> bool:
        """Tell whether a relation has policies, is in a protected container, or is near a relation with policies.

        A near name is equal by full case folding alone, so that an engine may read the relation with policies.
        """
        if table in self._tables or (self._protected and self._is_below(widen_name(table))):
            return True
        is_near = self._near.has_near(table, self._tables) or self._near.has_near(table, self._masks)
        return is_near and table not in self._masks

    def _is_below(self, table: RelationKey) -> bool:
        return any(_is_below(table, above) for above in self._protected)

    def masks(self, table: RelationKey) -> ColumnMasks:
        """Return the masks of a relation by folded column. The mask that hides most comes first."""
        return self._masks.get(table, _NO_MASKS)

    def names(self, table: RelationKey) -> bool:
        """Tell whether a policy or mask names a relation, or a near name."""
        return any(table in named or self._near.has_near(table, named) for named in (self._tables, self._masks))

    def hides(self, table: RelationKey) -> bool:
        """Tell whether a relation has policies or masks, or is in a protected container."""
        return table in self._masks or self.protects(table)

    def matching(self, table: RelationKey, caller: CallerIdentity) -> list[FilterPolicy]:
        """Return the policies of a relation that show rows to a caller, by id."""
        some = self._tables.get(table, ())
        return [policy for policy in some if not policy.restrictive and caller.is_named(policy.grantees)]

    def limiting(self, table: RelationKey, caller: CallerIdentity) -> list[FilterPolicy]:
        """Return the restrictive policies of a relation that may name a caller, by id."""
        some = self._tables.get(table, ())
        return [policy for policy in some if policy.restrictive and caller.may_be_named(policy.grantees)]

    def counting(self, table: RelationKey, caller: CallerIdentity) -> list[FilterPolicy]:
        """Return the policies of a relation that count for a caller, those that show rows first."""
        return [*self.matching(table, caller), *self.limiting(table, caller)]

    def tables(self) -> Iterable[RelationKey]:
        """Return the keys of all relations with policies."""
        return self._tables.keys()

    def restricted(self) -> frozenset[RelationKey]:
        """Return the keys of all relations with policies or masks."""
        return frozenset((*self._tables, *self._masks))

    def may_hide_behind(
        self, prefix: Sequence[str], known: Collection[RelationKey], readers: Iterable[CallerIdentity]
    ) -> bool:
        """Tell whether a table whose name begins with a prefix may hide rows or columns, beside the known tables."""
        start = ".".join(prefix).casefold()
        hidden = (key for key in self.restricted() if key not in known and _full_name(key).startswith(start))
        if any(not self.shows_all(key, readers) for key in hidden):
            return True
        above = [_full_name(key).rstrip(".") + "." for key in self._protected]
        return any(name.startswith(start) or start.startswith(name) for name in above)

    def shows_all(self, key: RelationKey, readers: Iterable[CallerIdentity]) -> bool:
        """Tell whether readers see all rows and columns of a table, by the policies alone."""
        masks = [mask for some in self.masks(key).values() for mask in some]
        return all(
            any(policy.is_open for policy in self.matching(key, reader))
            and all(policy.is_open for policy in self.limiting(key, reader))
            and not any(mask.holds(reader) for mask in masks)
            for reader in readers
        )

    def joined(self, others: Iterable[StoredTable]) -> PolicySet:
        """Return a set with more policies and masks of some tables. No two of the others have the same key."""
        tables, masks = dict(self._tables), dict(self._masks)
        for key, policies, more in others:
            if policies:
                tables[key] = tuple(sorted((*tables.get(key, ()), *policies), key=lambda policy: policy.id))
            if more:
                filed = (mask for some in masks.get(key, _NO_MASKS).values() for mask in some)
                masks |= masks_by_table((*filed, *more))
        return PolicySet(tables, self._protected, masks)

    def renamed(self, catalogs: Mapping[str, Sequence[str]]) -> PolicySet:
        """Return a set with the names of catalogs in place of those of warehouses. A warehouse can have several."""
        tables = {new: some for key, some in self._tables.items() for new in _renamed(key, catalogs)}
        masks = {new: some for key, some in self._masks.items() for new in _renamed(key, catalogs)}
        protected = [new for above in self._protected for new in _renamed(above, catalogs)]
        return PolicySet(tables, protected, masks)

    @cached_property
    def has_texts(self) -> bool:
        """Tell whether a policy or mask has texts in several dialects."""
        masks = (mask for columns in self._masks.values() for some in columns.values() for mask in some)
        return any(one.others for some in self._tables.values() for one in some) or any(mask.others for mask in masks)

    def written_for(self, dialect: str) -> PolicySet:
        """Return a set in which each policy and mask has the text for engines of a dialect, if it has several."""
        if not self.has_texts:
            return self
        tables = {key: tuple(_written_for(one, dialect) for one in some) for key, some in self._tables.items()}
        masks = {
            key: {name: tuple(_written_for(one, dialect) for one in some) for name, some in columns.items()}
            for key, columns in self._masks.items()
        }
        new = PolicySet(tables, self._protected, masks)
        new.is_passing = self.is_passing
        return new

    def replaced(self, policies: Iterable[FilterPolicy]) -> PolicySet:
        """Return a set with all policies of the named tables replaced."""
        tables = {**self._tables, **_by_table(policies)}
        new = PolicySet(tables, self._protected, self._masks)
        new.is_passing = True
        return new


def _written_for(entry: _Entry, dialect: str) -> _Entry:
    text = dict(entry.others).get(dialect)
    return replace(entry, others=()) if text is None else replace(entry, text=text, dialect=dialect, others=())


def _full_name(key: RelationKey) -> str:
    return ".".join(key).lstrip(".").casefold()


def _renamed(key: RelationKey, catalogs: Mapping[str, Sequence[str]]) -> list[RelationKey]:
    return [(catalog, key[1]) for catalog in catalogs_of(key[0], catalogs)] if key[0] else [key]


def _is_below(table: RelationKey, above: RelationKey) -> bool:
    return table[0] == above[0] and (not above[1] or table[1].startswith(f"{above[1]}."))


_LITERALS: Final = 1_024
"""Constants with remembered literals."""


@dataclass(frozen=True, slots=True)
class MaskPolicy:
    """Mask of a column for grantees, except for exempt members. `text` is an expression or a constant, as written."""

    id: str
    table: RelationKey
    column: str
    kind: str
    grantees: tuple[Grantee, ...]
    exempt: tuple[Grantee, ...] = ()
    text: str = ""
    dialect: str = "trino"
    others: tuple[DialectText, ...] = ()

    @property
    def value(self) -> str:
        """Return the expression, or the constant as a literal of Trino. The first use of a constant parses the text."""
        return _literal(self.text) if self.kind == "constant" else self.text

    @property
    def rank(self) -> tuple[int, str]:
        """Return the place among the masks of a column. The first one hides most."""
        return KINDS.index(self.kind), self.id

    def for_caller(self, caller: CallerIdentity) -> MaskPolicy:
        """Return the mask for a caller: NULL where unknown evidence alone makes the caller a grantee."""
        if not caller.is_in_doubt(self.grantees) or caller.is_named(self.grantees):
            return self
        return replace(self, kind="null", text="")

    def holds(self, caller: CallerIdentity) -> bool:
        """Tell whether the mask hides the column from a caller. Doubt about a grantee masks; doubt exempts nobody."""
        return caller.may_be_named(self.grantees) and not caller.is_named(self.exempt)


_literal: Final = lru_cache(_LITERALS)(translate_constant)


def mask_policy(body: MaskBody, default: Sequence[str], containers: Containers = NO_CONTAINERS) -> MaskPolicy:
    """Return the mask of a body; raise RewriteRefused for an unreadable grantee, table or constant."""
    try:
        grantees, exempt = (tuple(map(parse_grantee, texts)) for texts in (body.grantees, body.exempt))
    except ValueError as error:
        raise RewriteRefused(FILTER_INVALID, f"mask `{body.id}`: {error}") from None
    if not body.column:
        raise RewriteRefused(FILTER_INVALID, f"mask `{body.id}` names no column")
    kind = body.kind or "null"
    table = containers.spell_key(key_of(table_parts(body.table, default)))
    (dialect, text), *others = body.texts
    return MaskPolicy(
        body.id, table, fold_column(body.column), kind, grantees, exempt, text, dialect, others=tuple(others)
    )


ColumnMasks: TypeAlias = Mapping[str, tuple[MaskPolicy, ...]]
"""Column in lower case -> masks. The mask that hides most comes first."""


def masks_by_table(masks: Iterable[MaskPolicy]) -> dict[RelationKey, ColumnMasks]:
    """Return masks by table and column."""
    tables: dict[RelationKey, ColumnMasks] = {}
    for mask in sorted(masks, key=lambda mask: mask.rank):
        columns = tables.get(mask.table, {})
        tables[mask.table] = {**columns, mask.column: (*columns.get(mask.column, ()), mask)}
    return tables


def policy_set_of(
    documents: Sequence[Document], protected: Sequence[RelationKey] = (), containers: Containers | None = None
) -> PolicySet:
    """Return the policies and masks of documents; raise RewriteRefused for an unknown grantee.

    `containers` spell the containers of tables; by default those of the documents.
    """
    known = containers_of(documents) if containers is None else containers
    policies = [filter_policy(body, document.default, known) for document in documents for body in document.policies]
    masks = [mask_policy(body, document.default, known) for document in documents for body in document.masks]
    return PolicySet(_by_table(policies), protected, masks_by_table(masks))


def filter_policy(body: PolicyBody, default: Sequence[str], containers: Containers = NO_CONTAINERS) -> FilterPolicy:
    """Return the policy of a body; raise RewriteRefused for a grantee or table that cannot be read."""
    try:
        grantees = tuple(map(parse_grantee, body.grantees))
    except ValueError as error:
        raise RewriteRefused(FILTER_INVALID, f"policy `{body.id}`: {error}") from None
    key = containers.spell_key(key_of(table_parts(body.table, default)))
    (dialect, text), *others = body.texts
    is_limit = body.restrictive is True
    return FilterPolicy(body.id, key, grantees, text, dialect, others=tuple(others), restrictive=is_limit)


def _by_table(policies: Iterable[FilterPolicy]) -> dict[RelationKey, tuple[FilterPolicy, ...]]:
    tables: dict[RelationKey, list[FilterPolicy]] = {}
    for policy in policies:
        tables.setdefault(policy.table, []).append(policy)
    return {table: tuple(sorted(some, key=lambda policy: policy.id)) for table, some in tables.items()}


class StoredPolicySets:
    """Policy sets of one revision after the other. Revisions with the same rules share one set and all its memory.

    A new set costs a look at each table with rules, and the parsing of the grantees of tables with changed rules.
    """

    def __init__(self, filed: PolicySet) -> None:
        self._filed = filed
        self._rules: Map[FoldedName, Map[RuleKey, RowPolicy]] = Map()
        self._tables: dict[FoldedName, StoredTable] = {}
        self._set = filed

    def at(self, facts: Facts) -> PolicySet:
        """Return the policies and masks of files and of facts."""
        rules = facts.index.rules
        if rules is not self._rules:
            self._tables = {
                name: self._tables[name] if self._rules.get(name) is some else _stored(name, some)
                for name, some in rules.items()
            }
            self._rules = rules
            self._set = self._filed.joined(self._tables.values()) if rules else self._filed
        return self._set


def _stored(key: RelationKey, rules: Map[RuleKey, RowPolicy]) -> StoredTable:
    """Return the policies and masks of one table."""
    some = [rules[rule] for rule in sorted(rules)]
    policies = (FilterPolicy(one.id, key, *one[1:]) for one in stored_policies(some))
    return StoredTable(key, tuple(policies), tuple(_mask(key, mask) for mask in stored_masks(some)))


def _mask(key: RelationKey, mask: StoredMask) -> MaskPolicy:
    rule = mask.rule
    if mask.kind == "null":
        return MaskPolicy(rule.id, key, mask.column, mask.kind, mask.grantees, mask.exempt)
    return MaskPolicy(
        rule.id, key, mask.column, mask.kind, mask.grantees, mask.exempt, rule.text, rule.dialect, rule.others
    )
