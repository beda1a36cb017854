"""The row access engine: for a principal and a table, which rows it sees and which columns are masked.

A restriction is not a verdict: whether a table may be read at all is for the other engines to say. A table with
policies shows nothing to whom none of them names; filters of several policies widen what is seen, never narrow it.
Policies cover every reference of a table: on every ref, in any case, however dots divide its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from pdp.engines.rowaccess.members import Grantee, Members
from pdp.engines.rowaccess.trino_sql import FALSE, any_of, masked, null
from pdp.facts.snapshot import Facts
from pdp.model.checks import STORE_STALE, Predicate, Principal, Reason, Resource, RowView, TypedColumn

Name = tuple[str, str]
"""A table as policies know it: its warehouse, and its path in one text and one case."""
HIDDEN: Final = "$"
"""How names of columns begin that tell where a row is stored."""
REASON_PREFIX: Final = "row_access:"


def name_of(warehouse: str, path: Iterable[str]) -> Name:
    """The name under which policies cover a table."""
    return warehouse, ".".join(path).casefold()


class Policy(msgspec.Struct, frozen=True):
    """Who sees which rows; `predicate` is None for every row."""

    id: str
    grantees: tuple[Grantee, ...]
    predicate: str | None
    identity: str = ""


class Mask(msgspec.Struct, frozen=True):
    """For whom a column is masked, and how; `value` is SQL."""

    id: str
    kind: str
    grantees: tuple[Grantee, ...]
    exempt: tuple[Grantee, ...] = ()
    value: str = ""
    identity: str = ""


class TablePolicies(msgspec.Struct, frozen=True):
    """What covers one table: policies by id, masks by column in one case, the one that shows least first."""

    policies: tuple[Policy, ...] = ()
    masks: Mapping[str, tuple[Mask, ...]] = {}

    def reads_facts(self) -> bool:
        """Whether membership of a role makes a difference."""
        masks = [mask for masks in self.masks.values() for mask in masks]
        lists = [policy.grantees for policy in self.policies]
        lists += [grantees for mask in masks for grantees in (mask.grantees, mask.exempt)]
        return any(grantee.kind == "role" for grantees in lists for grantee in grantees)


class Restriction(msgspec.Struct, frozen=True):
    """What somebody sees of a table: the rows of a filter (None: every row), and columns through masks.

    `blank`: every column is NULL.
    """

    rows: Predicate | None
    by: Reason
    masks: Mapping[str, Mask] = {}
    blank: bool = False

    def mask(self, column: str, type: str) -> tuple[Predicate | None, Reason]:
        """What stands in a column's place, and why; None where it shows.

        A hidden column tells of rows and values that others are to hide, so it shows where nothing is hidden.
        """
        if self.blank:
            return Predicate(null(type)), self.by
        mask = self.masks.get(column.casefold())
        if mask is not None:
            return Predicate(masked(mask.kind, mask.value, column, type), mask.identity), REASON_PREFIX + mask.id
        if column.startswith(HIDDEN) and (self.rows or self.masks):
            return Predicate(null(type)), f"{REASON_PREFIX}hidden_column"
        return None, UNRESTRICTED.by

    def row_view(self, columns: Sequence[TypedColumn]) -> tuple[RowView, dict[str, Reason | None]]:
        """What is seen through it, and why each column is masked, None where it is not."""
        masks = [self.mask(column.name, column.type) for column in columns]
        why = {column.name: by if mask else None for column, (mask, by) in zip(columns, masks, strict=True)}
        return RowView(self.rows, tuple(mask for mask, _ in masks)), why

    @property
    def shows_rows(self) -> bool:
        """Whether there may be rows to see."""
        return self.rows != NO_ROWS

    @property
    def reason(self) -> Reason | None:
        """Why not everything is seen; None where it is."""
        if self.rows:
            return self.by
        return REASON_PREFIX + min(mask.id for mask in self.masks.values()) if self.masks else None


NO_ROWS: Final = Predicate(FALSE)
UNRESTRICTED: Final = Restriction(None, f"{REASON_PREFIX}unrestricted")


def hide_everything(by: Reason) -> Restriction:
    """No rows, and no values in the columns."""
    return Restriction(NO_ROWS, by, blank=True)


_PROTECTED: Final = Restriction(NO_ROWS, "config:row_access.protected")


class RowAccess:
    """All policies and masks. `protected` are containers in which a table without policies shows no rows."""

    def __init__(self, tables: Mapping[Name, TablePolicies], members: Members, protected: Sequence[Name] = ()) -> None:
        self._tables = tables
        self._members = members
        self._protected = tuple(protected)
        self._reading = frozenset(name for name, table in tables.items() if table.reads_facts())

    def restrict(self, principal: Principal, table: Resource, facts: Facts, *, stale: bool = False) -> Restriction:
        """What a principal sees of a table or view. `stale`: the facts are too old to widen what anybody sees."""
        if not self._tables and not self._protected:
            return UNRESTRICTED
        return self._of(principal, name_of(table.warehouse, table.path), facts, stale)

    def reason_below(
        self, principal: Principal, namespace: Resource, facts: Facts, *, stale: bool = False
    ) -> Reason | None:
        """Why a principal does not see all that a namespace or warehouse holds, or may come to hold."""
        warehouse, path = name_of(namespace.warehouse, namespace.path)
        inside = f"{path}." if path else ""
        if any(above == warehouse and f"{below}.".startswith(inside) for above, below in self._protected):
            return _PROTECTED.by
        if self._is_protected((warehouse, inside)):
            return _PROTECTED.by
        below = sorted(name for name in self._tables if name[0] == warehouse and name[1].startswith(inside))
        reasons = (self._of(principal, name, facts, stale).reason for name in below)
        return next((reason for reason in reasons if reason), None)

    def _of(self, principal: Principal, name: Name, facts: Facts, stale: bool) -> Restriction:
        covered = self._tables.get(name)
        if covered is None:
            return _PROTECTED if self._is_protected(name) else UNRESTRICTED
        if stale and name in self._reading:
            return hide_everything(STORE_STALE)
        masks = {column: mask for column in covered.masks if (mask := self._mask(principal, covered, column, facts))}
        if not covered.policies:
            rows = _PROTECTED if self._is_protected(name) else UNRESTRICTED
            return Restriction(rows.rows, rows.by, masks)
        matching = [policy for policy in covered.policies if self._names(principal, policy.grantees, facts)]
        return _rows(matching, masks)

    def _mask(self, principal: Principal, table: TablePolicies, column: str, facts: Facts) -> Mask | None:
        for mask in table.masks[column]:
            masked = self._members.may_match(principal, mask.grantees, facts)
            if masked and not self._names(principal, mask.exempt, facts):
                return mask
        return None

    def _names(self, principal: Principal, grantees: tuple[Grantee, ...], facts: Facts) -> bool:
        return self._members.matches(principal, grantees, facts)

    def _is_protected(self, name: Name) -> bool:
        warehouse, path = name
        return any(
            warehouse == above and (not below or path.startswith(f"{below}.")) for above, below in self._protected
        )


def _rows(matching: Sequence[Policy], masks: Mapping[str, Mask]) -> Restriction:
    if not matching:
        return Restriction(NO_ROWS, f"{REASON_PREFIX}no_policy", masks)
    everything = next((policy for policy in matching if policy.predicate is None), None)
    if everything:
        return Restriction(None, REASON_PREFIX + everything.id, masks)
    ids = ",".join(policy.id for policy in matching)
    filters = [policy.predicate for policy in matching if policy.predicate is not None]
    return Restriction(Predicate(any_of(filters), matching[0].identity), REASON_PREFIX + ids, masks)
