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

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from pdp.engines.row_access.entries import NO_ROW_NAMES, DescribedTables, RowNames
from pdp.engines.row_access.members import Grantee, Members
from pdp.engines.row_access.policies import KINDS_WITH_VALUE
from pdp.engines.row_access.policy_set import (
    NO_POLICIES,
    Mask,
    Policy,
    PolicySet,
    StoredPolicySets,
    TablePolicies,
    table_policies,
)
from pdp.engines.row_access.trino import CALLER, FALSE, ROLES, join_filters, mask_sql, null_sql, require_filters
from pdp.errors import AmbiguousName, InvalidReference, Notice
from pdp.facts.objects import FoldedName, RowPolicy, TablePath, fold_column, fold_name, key_text
from pdp.facts.snapshot import Facts
from pdp.model.answer import STORE_STALE, Predicate, Reason, TableAccess, TypedColumn
from pdp.model.question import Principal, Resource
from pdp.model.references import parse_resource

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
            return Predicate(mask_sql(mask.kind, mask.text, column, type), mask.identity), REASON_PREFIX + mask.id
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


PROTECTED: Final[Reason] = "config:row_access.protected"
"""Reason of no rows: a table without a policy in a protected container."""
_PROTECTED: Final = Restriction(NO_ROWS, PROTECTED)
_NEAR: Final = hide_everything(AmbiguousName.code)
_NO_FACTS: Final = Facts.empty()


class _PrincipalReader(NamedTuple):
    """Principal as a reader of tables, by the facts of one revision."""

    members: Members
    principal: Principal
    facts: Facts

    def is_named(self, grantees: tuple[Grantee, ...]) -> bool:
        return self.members.matches(self.principal, grantees, self.facts)

    def may_be_named(self, grantees: tuple[Grantee, ...]) -> bool:
        return self.members.may_match(self.principal, grantees, self.facts)

    def is_in_doubt(self, grantees: tuple[Grantee, ...]) -> bool:
        return self.members.is_in_doubt(self.principal, grantees)

    @property
    def is_unnamed(self) -> bool:
        return self.members.is_unnamed(self.principal)

    def bind(self, text: str) -> str | None:
        return self.members.bind(text, self.principal, self.facts)


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
        filed = PolicySet(tables, [fold_name(path[0], path[1:]) for path in protected])
        self._sets = StoredPolicySets(filed, self._join_stored)

    def _join_stored(self, name: FoldedName, filed: TablePolicies, stored: TablePolicies) -> TablePolicies:
        """Return the policies and masks of a table in Trino's SQL. Those of files are in it."""
        identity = next((policy.identity for policy in filed.policies if policy.identity), "")
        types = self.described.columns.get(name)
        return filed.joined(table_policies(_stored_for_trino(one, identity, types) for one in stored.entries()))

    def restrict(self, principal: Principal, table: Resource, facts: Facts, *, stale: bool = False) -> Restriction:
        """Return the restriction of a table or view for a principal.

        With `stale` facts a table with roles in its lists, or with policies of the store, shows nothing: a membership
        or a policy may have ended since.
        """
        if not self.tables and not self.protected and not facts.index.rules:
            return UNRESTRICTED
        return self._restrict(principal, fold_name(table.warehouse, table.path), facts, stale)

    def reason_below(
        self, principal: Principal, container: Resource, facts: Facts, *, stale: bool = False
    ) -> Reason | None:
        """Return the reason of a restriction on any table below a namespace or warehouse; None without a restriction.

        A protected container counts even without tables: a table can appear there later.
        """
        if self._sets.at(facts).protects_in(fold_name(container.warehouse, container.path)):
            return _PROTECTED.by
        reasons = (self._restrict(principal, name, facts, stale).reason for name in self._names_in(container, facts))
        return next((reason for reason in reasons if reason), None)

    def count(self) -> int:
        """Return the number of policies and masks of files."""
        return sum(len([*table.entries()]) for table in self.tables.values())

    def has_policies(self, table: Resource, facts: Facts = _NO_FACTS) -> bool:
        """Tell whether a policy or mask names a table."""
        return fold_name(table.warehouse, table.path) in self._sets.at(facts).tables

    def policies_of(self, table: Resource, facts: Facts = _NO_FACTS) -> TablePolicies:
        """Return the policies and masks of a table; empty if none names the table."""
        return self.named_policies(table, facts)[1]

    def named_policies(self, table: Resource, facts: Facts = _NO_FACTS) -> tuple[FoldedName, TablePolicies]:
        """Return the policies and masks of a table with the name under which they cover the table."""
        name = fold_name(table.warehouse, table.path)
        return name, self._sets.at(facts).of(name)

    def hidden_by(self) -> frozenset[str]:
        """Return the evidence of principals by which policies and masks of files hide something."""
        return frozenset[str]().union(*(table.hidden_by() for table in self.tables.values()))

    def names_role(self, role: str, facts: Facts) -> bool:
        """Tell whether a policy or mask, of files or of facts, may name a role."""
        filed = (each for table in self.tables.values() for each in table.entries())
        names = {Grantee("role", role), f"role:{role}"}
        return any(
            not names.isdisjoint((*each.grantees, *getattr(each, "exempt", ()))) or _reads_role(each, role)
            for each in chain(filed, facts.row_rules())
        )

    def restricts_in(self, warehouse: str, facts: Facts = _NO_FACTS) -> bool:
        """Tell whether a policy, a mask or a protected container is in a warehouse."""
        return warehouse in self._sets.at(facts).containers

    def covers(self, table: Resource, facts: Facts = _NO_FACTS) -> bool:
        """Tell whether a policy or mask names a table, or whether a protected container holds the table."""
        return self._sets.at(facts).hides(fold_name(table.warehouse, table.path))

    def tables_below(self, container: Resource, facts: Facts = _NO_FACTS) -> list[tuple[str, ...]]:
        """Return the folded paths of the tables with policies or masks below a namespace or warehouse."""
        return [tuple(name.split(".")) for _, name in self._names_in(container, facts)]

    def _names_in(self, container: Resource, facts: Facts) -> list[FoldedName]:
        """Return the names of the tables with policies or masks below a namespace or warehouse, in order."""
        warehouse, path = fold_name(container.warehouse, container.path)
        inside = f"{path}." if path else ""
        names = self._sets.at(facts).tables
        return sorted(name for name in names if name[0] == warehouse and name[1].startswith(inside))

    def _restrict(self, principal: Principal, name: FoldedName, facts: Facts, stale: bool) -> Restriction:
        policies = self._sets.at(facts)
        table = policies.of(name)
        if table is NO_POLICIES:
            return _NEAR if policies.is_near(name) else _unnamed(policies, name)
        if stale and (name in facts.index.rules or table.reads_facts()):
            return hide_everything(STORE_STALE)
        reader = _PrincipalReader(self.members, principal, facts)
        found = (_held(masks, reader) for masks in table.masks.values())
        masks = {mask.column: _bound(mask, reader) for mask in found if mask}
        if not table.policies:
            return replace(_unnamed(policies, name), masks=masks)
        return _rows(table.matching(reader), table.limiting(reader), reader, masks)


def _unnamed(policies: PolicySet, name: FoldedName) -> Restriction:
    """Return the restriction of a table without policies."""
    return _PROTECTED if policies.is_below(name) else UNRESTRICTED


def _held(masks: Iterable[Mask], reader: _PrincipalReader) -> Mask | None:
    """Return the mask of a column that holds and hides most.

    Where unknown evidence alone makes the principal a grantee, or decides the name of the caller, the column is NULL.
    """
    held = (mask for mask in masks if mask.holds(reader))
    if not reader.principal.unknown:
        return next(held, None)
    doubted = (mask.for_reader(reader) for mask in held)
    certain = (mask.closed() if reader.is_unnamed and CALLER in mask.text else mask for mask in doubted)
    return min(certain, key=lambda mask: mask.rank, default=None)


def _bound(mask: Mask, reader: _PrincipalReader) -> Mask:
    """Return a mask with the values of the principal; NULL without a certain literal."""
    text = reader.bind(mask.text)
    if text == mask.text:
        return mask
    return replace(mask, kind="null", text="") if text is None else replace(mask, text=text)


def _rows(
    matching: Sequence[Policy], limiting: Sequence[Policy], reader: _PrincipalReader, masks: Mapping[str, Mask]
) -> Restriction:
    """Return the restriction of policies of a principal: the union of the rows of the matching ones.

    Rows need the filter of each limiting one, too.
    """
    filters = [policy for policy in (*matching, *limiting) if not policy.is_open]
    if reader.is_unnamed and any(CALLER in policy.text for policy in filters):
        return Restriction(NO_ROWS, f"{REASON_PREFIX}unknown_user", masks)
    if not matching:
        return Restriction(NO_ROWS, f"{REASON_PREFIX}no_policy", masks)
    everything = next((policy for policy in matching if policy.is_open), None)
    shown = [] if everything else matching
    limits = [policy for policy in limiting if not policy.is_open]
    counting = [*shown, *limits]
    by = REASON_PREFIX + ",".join(policy.id for policy in ([everything] if everything else []) + counting)
    if not counting:
        return Restriction(None, by, masks)
    texts = [reader.bind(policy.text) or FALSE for policy in counting]
    parts = [join_filters(texts[: len(shown)])] if shown else []
    # The compiler and `_stored_for_trino` see to one identity of all policies of a table with a filter.
    rows = Predicate(require_filters([*parts, *texts[len(shown) :]]), counting[0].identity)
    return Restriction(rows, by, masks)


def _stored_for_trino(one: Policy | Mask, identity: str, types: Mapping[str, str] | None) -> Policy | Mask:
    """Return a policy or mask of the store in Trino's SQL. Without a certain meaning there, the result hides.

    Trino evaluates the joined filters of a table as one user. Beside a file that names this user, a filter of the store
    shows no row: the filter was written for the caller.
    """
    if isinstance(one, Mask):
        if one.kind not in KINDS_WITH_VALUE:
            return one
        from pdp.engines.row_access.conditions import mask_for_trino  # noqa: PLC0415  its parser of SQL takes 30 MB

        try:
            return mask_for_trino(one, types)[0]
        except ValueError:
            return one.closed()
    if not one.grantees:
        return replace(one, text=FALSE, identity=identity)
    from pdp.engines.row_access.conditions import policy_for_trino  # noqa: PLC0415  its parser of SQL takes 30 MB

    try:
        found = policy_for_trino(one, types)[0]
    except ValueError:
        grantees = one.grantees if one.restrictive else ()
        return replace(one, grantees=grantees, text=FALSE, dialect="trino", others=(), identity=identity)
    return replace(found, text=FALSE if identity and not found.is_open else found.text, identity=identity)


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


def _reads_role(entry: Policy | Mask | RowPolicy, role: str) -> bool:
    """Tell whether a text that reads the roles of the caller has a role in quotes."""
    texts = (entry.text, *(text for _, text in entry.others))
    read = (text for text in texts if ROLES in text or "current_roles" in text.lower())
    return any(f"'{role}'" in text or f'"{role}"' in text for text in read)


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


def is_filed(tables: Mapping[FoldedName, TablePolicies], rule: RowPolicy) -> bool:
    """Tell whether files give the id of a policy or mask to another one of the same table or column."""
    filed = tables.get(rule.covers, NO_POLICIES)
    others: Sequence[Policy | Mask] = filed.policies
    if rule.column:
        others = filed.masks.get(fold_column(rule.column), ())
    return any(other.id == rule.id for other in others)


def find_doubled_ids(tables: Mapping[FoldedName, TablePolicies], rules: Iterable[RowPolicy]) -> Iterator[str]:
    """Yield a warning for each id that both files and the store give."""
    for rule in sorted(rules, key=lambda rule: rule.key):
        if not rule.tombstone and is_filed(tables, rule):
            table = key_text(("table", rule.table))
            yield (
                f"the id `{rule.id}` of `{table}` is in a file and in the store: both count, and reasons do not tell "
                "them apart: drop the stored one, or give the one of the file another id"
            )
