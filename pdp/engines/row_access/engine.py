"""Row access engine: the visible rows and the masked columns of a table, for one principal.

Joins the policies and masks of files with those of the store.

A restriction is not a verdict: the other engines decide whether a table may be read at all. A table with policies
shows no rows to a principal whom no policy names. Several matching policies show the union of their rows: adding a
policy never hides a row. Both follow https://cloud.google.com/bigquery/docs/row-level-security-intro. Policies cover a
table on every ref, in any case, and however dots divide its name.

Policies of the store are texts. A text is parsed when a decision first needs the table, and again after a change of the
table's policies. The parser of SQL is loaded then, not before. An unusable text shows nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec
from immutables import Map

from pdp.engines.row_access.entries import NO_ROW_NAMES, DescribedTables, RowNames
from pdp.engines.row_access.members import Grantee, Members
from pdp.engines.row_access.policies import NO_POLICIES, Mask, Policy, TablePolicies, sort_masks, with_filter
from pdp.engines.row_access.stored import compile_stored_mask, compile_stored_policy, stored_masks, stored_policies
from pdp.engines.row_access.trino import CALLER, FALSE, join_filters, mask_sql, null_sql, require_filters
from pdp.errors import AmbiguousName, InvalidReference, Notice
from pdp.facts.row_policies import (
    FoldedName,
    NearNames,
    RowPolicy,
    RuleKey,
    TablePath,
    fold_column,
    fold_name,
    widen_name,
)
from pdp.facts.snapshot import Facts
from pdp.model.answer import STORE_STALE, Predicate, Reason, TableAccess, TypedColumn
from pdp.model.bounded_cache import BoundedCache
from pdp.model.question import Principal, Resource
from pdp.model.references import parse_resource

_MEMO_ENTRIES: Final = 20_000
KnownMasks: TypeAlias = dict[tuple[str, str], tuple[Predicate | None, Reason]]
"""Name and type of a column -> mask and reason, for the columns of one request."""
HIDDEN_COLUMN_PREFIX: Final = "$"
"""First character of the columns that say where a row is stored, such as `$path`."""
REASON_PREFIX: Final = "row_access:"


class Restriction(msgspec.Struct, frozen=True):
    """Visible part of a table for a principal: the rows of a filter (None: every row), and masks by folded column name.

    `blank`: every column is NULL.
    """

    rows: Predicate | None
    by: Reason
    masks: Mapping[str, Mask] = {}
    blank: bool = False
    more_rows: Predicate | None = None
    """Second filter, beside `rows`, which another user evaluates."""

    def mask_column(self, column: str, type: str) -> tuple[Predicate | None, Reason]:
        """Return the expression in place of a column, and its reason; None for an unmasked column.

        A hidden column reveals rows and values, so a hidden column is NULL if anything of the table is restricted.
        """
        if self.blank:
            return Predicate(null_sql(type)), self.by
        mask = self.masks.get(fold_column(column))
        if mask is not None:
            return Predicate(mask_sql(mask.kind, mask.value, column, type), mask.identity), REASON_PREFIX + mask.id
        if column.startswith(HIDDEN_COLUMN_PREFIX) and (self.rows or self.masks):
            return Predicate(null_sql(type)), f"{REASON_PREFIX}hidden_column"
        return None, UNRESTRICTED.by

    def row_view(self, columns: Sequence[TypedColumn]) -> tuple[TableAccess, dict[str, Reason | None]]:
        """Return the view of a table through the restriction, and the reason of each mask; None without a mask."""
        reasons: dict[str, Reason | None] = {}
        masks = self.mask_columns(columns, {}, reasons)
        return TableAccess(self.rows, tuple(masks), self.more_rows), reasons

    def mask_columns(
        self, columns: Sequence[TypedColumn], known: KnownMasks, reasons: dict[str, Reason | None]
    ) -> list[Predicate | None]:
        """Return the mask of each column. Equal columns cost once: `known` and `reasons` get what is new."""
        masks: list[Predicate | None] = []
        for column in columns:
            key = (column.name, column.type)
            found = known.get(key)
            if found is None:
                found = known[key] = self.mask_column(*key)
                reasons[column.name] = found[1] if found[0] else None
            masks.append(found[0])
        return masks

    @property
    def shows_rows(self) -> bool:
        """Tell whether rows can be visible."""
        return self.rows != NO_ROWS

    @property
    def reason(self) -> Reason | None:
        """Return the reason of the restriction; None if everything is visible."""
        if self.rows:
            return self.by
        return REASON_PREFIX + min(mask.id for mask in self.masks.values()) if self.masks else None


NO_ROWS: Final = Predicate(FALSE)
UNRESTRICTED: Final = Restriction(None, f"{REASON_PREFIX}unrestricted")


def hide_everything(by: Reason) -> Restriction:
    """Return a restriction without rows and with NULL in every column."""
    return Restriction(NO_ROWS, by, blank=True)


_PROTECTED: Final = Restriction(NO_ROWS, "config:row_access.protected")
_NEAR: Final = hide_everything(AmbiguousName.code)
_NO_FACTS: Final = Facts.empty()


class RowAccessEngine:
    """Policies and masks of files, joined with the rules of facts, for each table.

    `tables` has the policies of files. A table without policies in one of the `protected` containers shows no rows.
    """

    def __init__(
        self,
        tables: Mapping[FoldedName, TablePolicies],
        members: Members,
        protected: Sequence[TablePath] = (),
        columns: Mapping[FoldedName, Mapping[str, str]] = {},
        names: RowNames = NO_ROW_NAMES,
    ) -> None:
        self.tables = tables
        self.described = DescribedTables(columns)
        self.names = names
        """Names that grantees of new policies are compared with."""
        self.members = members
        self.protected = tuple(protected)
        """Paths of the protected containers, as configured."""
        self._protected = tuple(widen_name(fold_name(path[0], path[1:])) for path in protected)
        self._warehouses = frozenset(name[0] for name in (*tables, *self._protected))
        self._near = NearNames(tables)
        self._stored = StoredPolicies(columns)

    def restrict(self, principal: Principal, table: Resource, facts: Facts, *, stale: bool = False) -> Restriction:
        """Return the restriction of a table or view for a principal.

        With `stale` facts a table with roles in its lists, or with policies of the store, shows nothing: a membership
        or a policy may have ended since.
        """
        if not self.tables and not self._protected and not facts.index.rules:
            return UNRESTRICTED
        return self._restrict(principal, fold_name(table.warehouse, table.path), facts, stale)

    def reason_below(
        self, principal: Principal, container: Resource, facts: Facts, *, stale: bool = False
    ) -> Reason | None:
        """Return the reason of a restriction on any table below a namespace or warehouse; None without a restriction.

        A protected container counts even without tables: a table can appear there later.
        """
        warehouse, path = fold_name(container.warehouse, container.path)
        inside = f"{path}." if path else ""
        wide = widen_name((warehouse, inside))
        if any(above == warehouse and f"{below}.".startswith(wide[1]) for above, below in self._protected):
            return _PROTECTED.by
        if self._is_protected((warehouse, inside)):
            return _PROTECTED.by
        below = sorted(name for name in self._names(facts) if name[0] == warehouse and name[1].startswith(inside))
        reasons = (self._restrict(principal, name, facts, stale).reason for name in below)
        return next((reason for reason in reasons if reason), None)

    def count(self) -> int:
        """Return the number of policies and masks of files."""
        masks = (mask for table in self.tables.values() for mask in table.masks.values())
        return sum(len(table.policies) for table in self.tables.values()) + sum(map(len, masks))

    def has_policies(self, table: Resource, facts: Facts = _NO_FACTS) -> bool:
        """Tell whether a policy or mask names a table."""
        name = fold_name(table.warehouse, table.path)
        return name in self.tables or name in facts.index.rules

    def policies_of(self, table: Resource, facts: Facts = _NO_FACTS) -> TablePolicies:
        """Return the policies and masks of a table; empty if none names the table."""
        return self.named_policies(table, facts)[1]

    def named_policies(self, table: Resource, facts: Facts = _NO_FACTS) -> tuple[FoldedName, TablePolicies]:
        """Return the policies and masks of a table with the name under which they cover the table."""
        name = fold_name(table.warehouse, table.path)
        return name, self._policies(name, facts) or NO_POLICIES

    def hidden_by(self) -> frozenset[str]:
        """Return the evidence of principals by which policies and masks of files hide something."""
        return frozenset[str]().union(*(table.hidden_by() for table in self.tables.values()))

    def restricts_in(self, warehouse: str, facts: Facts = _NO_FACTS) -> bool:
        """Tell whether a policy, a mask or a protected container is in a warehouse."""
        return warehouse in self._warehouses or warehouse in self._stored.warehouses(facts.index.rules)

    def covers(self, table: Resource, facts: Facts = _NO_FACTS) -> bool:
        """Tell whether a policy or mask names a table, or whether a protected container holds the table."""
        name = fold_name(table.warehouse, table.path)
        return self.has_policies(table, facts) or self._is_protected(name) or self._is_near(name, facts)

    def tables_below(self, container: Resource, facts: Facts = _NO_FACTS) -> list[tuple[str, ...]]:
        """Return the folded paths of the tables with policies or masks below a namespace or warehouse."""
        warehouse, path = fold_name(container.warehouse, container.path)
        inside = f"{path}." if path else ""
        below = sorted(name for above, name in self._names(facts) if above == warehouse and name.startswith(inside))
        return [tuple(name.split(".")) for name in below]

    def _names(self, facts: Facts) -> Iterable[FoldedName]:
        """Return the names of all tables with policies or masks."""
        return {*self.tables, *facts.index.rules} if facts.index.rules else self.tables

    def _policies(self, name: FoldedName, facts: Facts) -> TablePolicies | None:
        """Return the policies and masks of a table in files and facts; None without any."""
        filed, stored = self.tables.get(name), facts.index.rules.get(name)
        return filed if stored is None else self._stored.joined(name, filed or NO_POLICIES, stored)

    def _restrict(self, principal: Principal, name: FoldedName, facts: Facts, stale: bool) -> Restriction:
        table = self._policies(name, facts)
        if table is None:
            if self._is_near(name, facts):
                return _NEAR
            return _PROTECTED if self._is_protected(name) else UNRESTRICTED
        if stale and (name in facts.index.rules or table.reads_facts()):
            return hide_everything(STORE_STALE)
        bind = self.members.bind
        masks = {
            column: mask.with_value(bind(mask.value, principal, facts))
            for column in table.masks
            if (mask := self._mask(principal, table, column, facts))
        }
        if not table.policies:
            rows = _PROTECTED if self._is_protected(name) else UNRESTRICTED
            return Restriction(rows.rows, rows.by, masks)
        matching = [policy for policy in table.policies if self._counts(principal, policy, facts)]
        filters = [policy.predicate for policy in matching if policy.predicate is not None]
        if any(CALLER in text for text in filters) and self.members.is_unnamed(principal):
            return Restriction(NO_ROWS, f"{REASON_PREFIX}unknown_user", masks)
        return _join(matching, [bind(text, principal, facts) or FALSE for text in filters], masks)

    def _counts(self, principal: Principal, policy: Policy, facts: Facts) -> bool:
        """Tell whether a policy counts for a principal. In doubt, a restrictive policy counts, and no other."""
        matches = self.members.may_match if policy.restrictive else self.members.matches
        return matches(principal, policy.grantees, facts)

    def _mask(self, principal: Principal, table: TablePolicies, column: str, facts: Facts) -> Mask | None:
        """Return the first mask that holds and hides most. Doubt about a grantee masks; doubt exempts nobody.

        Where unknown evidence alone makes the principal a grantee, the column is NULL.
        """
        first: Mask | None = None
        for mask in table.masks[column]:
            is_masked = self.members.may_match(principal, mask.grantees, facts)
            if is_masked and not self._matches(principal, mask.exempt, facts):
                if not principal.unknown:
                    return mask
                if self._is_in_doubt(principal, mask, facts):
                    return Mask(mask.id, "null", mask.grantees, mask.exempt)
                first = first or mask
        return first

    def _is_in_doubt(self, principal: Principal, mask: Mask, facts: Facts) -> bool:
        members = self.members
        if members.is_unnamed(principal) and CALLER in mask.value:
            return True
        return members.is_in_doubt(principal, mask.grantees) and not self._matches(principal, mask.grantees, facts)

    def _matches(self, principal: Principal, grantees: tuple[Grantee, ...], facts: Facts) -> bool:
        return self.members.matches(principal, grantees, facts)

    def _is_near(self, name: FoldedName, facts: Facts) -> bool:
        """Tell whether a table without policies may be one with policies, for an engine that folds case another way."""
        rules = facts.index.rules
        return self._near.has_near(name, self.tables) or self._stored.near(rules).has_near(name, rules)

    def _is_protected(self, name: FoldedName) -> bool:
        if not self._protected:
            return False
        warehouse, path = widen_name(name)
        return any(
            warehouse == above and (not below or path.startswith(f"{below}.")) for above, below in self._protected
        )


def _join(policies: Sequence[Policy], filters: Sequence[str], masks: Mapping[str, Mask]) -> Restriction:
    """Return the restriction of policies of a principal: the union of the rows of their filters, None for every row.

    `filters` are those of the policies without `TRUE`, in order. Rows need the filter of each restrictive policy, too.
    """
    pairs = list(zip(with_filter(policies), filters, strict=True))
    everything = next((one for one in policies if one.predicate is None and not one.restrictive), None)
    shown = [(one, text) for one, text in pairs if not one.restrictive and not everything]
    limits = [(one, text) for one, text in pairs if one.restrictive]
    if not shown and not everything:
        return Restriction(NO_ROWS, f"{REASON_PREFIX}no_policy", masks)
    counting = [*shown, *limits]
    ids = [one.id for one, _ in counting]
    by = REASON_PREFIX + ",".join([everything.id, *ids] if everything else ids)
    if not counting:
        return Restriction(None, by, masks)
    parts = [join_filters([text for _, text in shown])] if shown else []
    # The compiler and `stored` see to one identity of all policies of a table with a filter.
    rows = Predicate(require_filters([*parts, *(text for _, text in limits)]), counting[0][0].identity)
    return Restriction(rows, by, masks)


_CONTAINERS: Final = frozenset({"warehouse", "namespace"})


class RowPolicies(msgspec.Struct, frozen=True):
    """Policies of all files: by table, as canonical data, with warnings, and with the columns of described tables."""

    tables: dict[FoldedName, TablePolicies]
    texts: Sequence[dict[str, Any]]
    warnings: tuple[Notice, ...]
    columns: Mapping[FoldedName, Mapping[str, str]] = {}

    def build_engine(
        self, members: Members, protected: Iterable[str], names: RowNames = NO_ROW_NAMES
    ) -> RowAccessEngine:
        """Return the engine; raise ValueError if an entry of `protected` is not a container."""
        containers = list(map(_container, protected))
        return RowAccessEngine(self.tables, members, containers, self.columns, names)


def _container(text: str) -> TablePath:
    try:
        resource = parse_resource(text)
    except InvalidReference as error:
        raise ValueError(str(error)) from None
    if resource.type not in _CONTAINERS:
        raise ValueError(f"`{text}` is no warehouse or namespace")
    if resource.ref is not None:
        raise ValueError(f"`{text}`: row access holds on every ref: write the container without a ref")
    return resource.warehouse, *resource.path


class StoredPolicies:
    """Compiled rules by table. An entry is valid as long as the rules are the very same map."""

    def __init__(self, columns: Mapping[FoldedName, Mapping[str, str]]) -> None:
        self._columns = columns
        self._known: BoundedCache[FoldedName, tuple[Map[RuleKey, RowPolicy], TablePolicies]] = BoundedCache(
            _MEMO_ENTRIES
        )
        self._rules: Map[FoldedName, Map[RuleKey, RowPolicy]] = Map()
        self._near = NearNames(())
        self._warehouses: frozenset[str] = frozenset()

    def near(self, rules: Map[FoldedName, Map[RuleKey, RowPolicy]]) -> NearNames:
        """Return the near names of tables with rules. Costs a look at each table after a change of rules."""
        self._follow(rules)
        return self._near

    def warehouses(self, rules: Map[FoldedName, Map[RuleKey, RowPolicy]]) -> frozenset[str]:
        """Return the warehouses of tables with rules, at the same cost."""
        self._follow(rules)
        return self._warehouses

    def _follow(self, rules: Map[FoldedName, Map[RuleKey, RowPolicy]]) -> None:
        if rules is not self._rules:
            self._near, self._warehouses = NearNames(rules), frozenset(name[0] for name in rules)
            self._rules = rules

    def joined(self, table: FoldedName, filed: TablePolicies, rules: Map[RuleKey, RowPolicy]) -> TablePolicies:
        """Return the policies and masks of files and of the store for one table."""
        known = self._known.get(table)
        if known is not None and known[0] is rules:
            return known[1]
        return self._known.keep(table, (rules, _with_stored(filed, rules, self._columns.get(table))))[1]


def _with_stored(
    filed: TablePolicies, rules: Map[RuleKey, RowPolicy], types: Mapping[str, str] | None
) -> TablePolicies:
    stored = [rules[key] for key in sorted(rules)]
    identity = next((policy.identity for policy in filed.policies if policy.identity), "")
    policies = [
        *filed.policies,
        *(compile_stored_policy(policy, identity, types) for policy in stored_policies(stored)),
    ]
    masks = {column: {f"{number}": mask for number, mask in enumerate(some)} for column, some in filed.masks.items()}
    for mask in stored_masks(stored):
        masks.setdefault(mask.column, {})[f"{mask.rule.table}:{mask.rule.id}"] = compile_stored_mask(mask, types)
    by_id = sorted(policies, key=lambda policy: policy.id)
    return TablePolicies(tuple(by_id), {column: sort_masks(some.values()) for column, some in masks.items()})
