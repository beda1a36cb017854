"""Compiler of policy files to the engine: resolves names, checks expressions, refuses contradictions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from pdp.config.names import NO_NAMES, KnownNames, NameFault, name_fault
from pdp.config.references import known_names, unknown_warehouse
from pdp.config.settings import Settings
from pdp.engines.row_access.dialects import (
    UntranslatableSql,
    translate_constant,
    translate_expression,
    translate_filter,
)
from pdp.engines.row_access.engine import RowPolicies
from pdp.engines.row_access.lookups import check_lookups
from pdp.engines.row_access.members import Grantee, Members, configured_members, refuse_wrong_form
from pdp.engines.row_access.policies import (
    KINDS_WITH_VALUE,
    Mask,
    MaskBody,
    NamedDocument,
    Policy,
    PolicyBody,
    TablePolicies,
    check_constant,
    check_sql_size,
    policy_grantee,
    policy_path,
    refuse_column_pattern,
    refuse_wrong_table,
    sort_masks,
)
from pdp.engines.row_access.trino import FALSE
from pdp.errors import DuplicateRule, InvalidReference, Notice, Place, PolicyError
from pdp.facts.row_policies import FoldedName, fold_column, fold_name
from pdp.model.references import is_id, refuse_star

_FILTERS: Final = 16_384
_SHORT: Final = 512
"""Translated filters that are remembered from one load to the next, and characters of a remembered filter."""
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""Characters that break a line of a message or hide a part of the line."""


class RowNames(NamedTuple):
    """Names that grantees and tables are compared with. Without `members` the forms alone are judged.

    With `strict`, an unknown name is an error, and not a warning.
    """

    known: KnownNames = NO_NAMES
    members: Members | None = None
    strict: bool = False

    def fault(self, grantee: Grantee) -> NameFault | None:
        """Return the fault of a grantee whom no principal can be; raise ValueError for a form of no grantee at all."""
        refuse_wrong_form(grantee)
        if grantee.kind == "role":
            return name_fault("role", "equals", grantee.name, replace(self.known, token_roles=frozenset()))
        if grantee.kind == "group":
            provider, sign, name = grantee.name.partition("~")
            is_known = sign and provider in {*self.known.providers, self.known.provider}
            return NameFault(True, f"a group has no provider: write `group:{name}`") if is_known else None
        if grantee.kind not in ("user", "serviceAccount") or self.members is None:
            return None
        stated = self.members.stated_user(grantee)
        if stated is None:
            # Files of BigQuery name members of other hosts and service accounts, who may never ask here.
            is_wrong = grantee.kind == "user" and "@" not in grantee.name
            return NameFault(is_wrong, f"`{grantee.text}` is no member that `row_access.member` makes of a user")
        provider, subject = stated
        return name_fault("provider" if provider else "user", "equals", provider or subject, self.known)


def names_of(settings: Settings) -> RowNames:
    """Return the names of a configuration."""
    return RowNames(known_names(settings), configured_members(settings), settings.policies.strict_names)


def compile_policies(
    sources: Iterable[NamedDocument],
    warehouses: frozenset[str] = frozenset(),
    names: RowNames | None = None,
    *,
    recorded: Iterable[NamedDocument] = (),
    are_complete: bool = True,
) -> RowPolicies:
    """Return the policies of documents; raise PolicyError with the place of the entry at fault and the cause.

    Tables are in one of the `warehouses`, unless these are none. With `names`, grantees and tables must have a form and
    case that a request can have, but those of `recorded` documents, which decided before. `are_complete`: no other
    document describes tables, so that names of subqueries are checked.
    """
    judged, others = list(sources), list(recorded)
    compiler = _Compiler(warehouses)
    for source in judged:
        compiler.add(source, names)
    for source in others:
        compiler.add(source, None)
    if are_complete:
        compiler.check_lookups()
    texts = [msgspec.to_builtins(source.document) for source in (*judged, *others)]
    return RowPolicies(compiler.tables(), texts, tuple(compiler.warnings), compiler.columns)


@dataclass
class _Spot:
    """Entry of a document, and the field at work: the place of an error is looked up only if there is one."""

    source: NamedDocument
    where: tuple[str | int, ...]
    field: tuple[str | int, ...] = ()

    def place(self) -> Place:
        return self.source.place((*self.where, *self.field))


class _Compiler:
    """Policies and masks of the documents so far."""

    def __init__(self, warehouses: frozenset[str]) -> None:
        self._warehouses = warehouses
        self._names: RowNames | None = None
        self.warnings: list[Notice] = []
        self._policies: dict[FoldedName, dict[str, Policy]] = {}
        self._masks: dict[FoldedName, dict[str, dict[str, Mask]]] = {}
        self._spots: dict[tuple[FoldedName, str], _Spot] = {}
        self.columns: dict[FoldedName, dict[str, str]] = {}

    def add(self, source: NamedDocument, names: RowNames | None) -> None:
        self._names = names
        document, columns = source.document, self._columns(source)
        for number, policy in enumerate(document.policies):
            spot = _Spot(source, ("policies", number))
            with _located(f"policy `{policy.id}`", spot):
                name = self._name(policy, document.default, spot)
                self._insert(self._policies.setdefault(name, {}), self._policy(policy, spot), spot)
                self._spots[name, policy.id] = spot
        for number, mask in enumerate(document.masks):
            spot = _Spot(source, ("masks", number))
            with _located(f"mask `{mask.id}`", spot):
                name = self._name(mask, document.default, spot)
                _known_column(mask, columns.get(name), spot)
                masks = self._masks.setdefault(name, {}).setdefault(fold_column(mask.column), {})
                self._insert(masks, self._mask(mask, spot), spot)

    def check_lookups(self) -> None:
        """Raise PolicyError for a subquery that may read the filtered table's own column. All `tables` are known."""
        for (name, _), spot in self._spots.items():
            body = spot.source.document.policies[spot.where[1]]  # type: ignore[index]
            spot.field = ("filter",)
            with _located(f"policy `{body.id}`", spot):
                check_lookups(body.text, body.dialect, name, self.columns)

    def tables(self) -> dict[FoldedName, TablePolicies]:
        return {
            name: TablePolicies(self._policies_of(name), _sort_masks(self._masks.get(name, {})))
            for name in sorted({*self._policies, *self._masks})
        }

    def _policies_of(self, name: FoldedName) -> tuple[Policy, ...]:
        """Return a table's policies by id. Trino evaluates the joined filters as one user: all need one identity."""
        policies = self._policies.get(name, {})
        by_id = tuple(policies[id] for id in sorted(policies))
        filters = [policy for policy in by_id if policy.predicate is not None]
        other = next((policy.id for policy in filters if policy.identity != filters[0].identity), None)
        if other:
            message = f"policies `{filters[0].id}` and `{other}` of one table have different identities"
            raise PolicyError(message, self._spots[name, other].place())
        return by_id

    def _policy(self, body: PolicyBody, spot: _Spot) -> Policy:
        spot.field = ("filter",)
        check_sql_size(body.text)
        try:
            sql = (_remembered_filter if len(body.text) <= _SHORT else translate_filter)(body.text, body.dialect)
        except UntranslatableSql as error:
            self._warn(f"policy `{body.id}` lets no row through in Trino: {error}", spot)
            sql = FALSE
        return Policy(body.id, self._grantees(body.grantees, "grantees", spot), sql, body.identity)

    def _mask(self, body: MaskBody, spot: _Spot) -> Mask:
        kind, value = body.kind or "null", ""
        spot.field = ("grantees",)
        if not body.grantees:
            raise ValueError("it has no grantees, so it masks nothing")
        spot.field = ("expression",)
        if (kind in KINDS_WITH_VALUE) != (body.expression is not None):
            raise ValueError(f"the kind `{kind}` takes {'an' if kind in KINDS_WITH_VALUE else 'no'} `expression`")
        (check_constant if kind == "constant" else check_sql_size)(body.text)
        try:
            if kind in KINDS_WITH_VALUE:
                value = (
                    translate_constant(body.text)
                    if kind == "constant"
                    else translate_expression(body.text, body.dialect)
                )
        except UntranslatableSql as error:
            self._warn(f"mask `{body.id}` is NULL in Trino: {error}", spot)
            kind = "null"
        grantees, exempt = (
            self._grantees(texts, field, spot)
            for field, texts in (("grantees", body.grantees), ("except", body.exempt))
        )
        return Mask(body.id, kind, grantees, exempt, value, body.identity)

    def _insert(self, entries: dict[str, Any], entry: Policy | Mask, spot: _Spot) -> None:
        spot.field = ("id",)
        if entry.id in entries:
            raise DuplicateRule(f"`{entry.id}` stands there already for this table", spot.place())
        entries[entry.id] = entry

    def _warn(self, message: str, spot: _Spot) -> None:
        self.warnings.append(Notice(spot.place(), message))

    def _name(self, body: PolicyBody | MaskBody, default: Sequence[str], spot: _Spot) -> FoldedName:
        """Return the table of an entry with a usable id; raise ValueError or InvalidReference."""
        spot.field = ("id",)
        if not body.id or not is_id(body.id):
            raise ValueError("an id is up to 128 letters, digits and `._:-`")
        spot.field = ("identity",)
        refuse_star(body.identity, "write the one user of Trino who evaluates")
        spot.field = ("table",)
        if self._names is not None:
            refuse_wrong_table(body.table)
        return self._known(_table(body.table, default))

    def _known(self, name: FoldedName) -> FoldedName:
        """Return the name of a table; raise ValueError if its warehouse is unknown."""
        if unknown := unknown_warehouse(name[0], self._warehouses):
            raise ValueError(unknown)
        return name

    def _grantees(self, texts: Iterable[str], field: str, spot: _Spot) -> tuple[Grantee, ...]:
        grantees = []
        for number, text in enumerate(texts):
            spot.field = (field, number)
            grantees.append(policy_grantee(text))
            fault = self._names.fault(grantees[-1]) if self._names is not None else None
            if fault and self._names and (fault.is_wrong or self._names.strict):
                raise ValueError(fault.message)
            if fault:
                self._warn(fault.message, spot)
        return tuple(grantees)

    def _columns(self, source: NamedDocument) -> dict[FoldedName, dict[str, str]]:
        """Return the columns of the document's tables with their types, by table."""
        columns = {}
        for name, table in source.document.tables.items():
            with _located("`tables`", _Spot(source, ("tables", name))):
                refuse_star(name, "write each table, as policies name the table")
            if table.columns:
                with _located("`tables`", _Spot(source, ("tables", name))):
                    known = self._known(_table(name, source.document.default))
                    columns[known] = {fold_column(column): kind for column, kind in table.columns.items()}
        self.columns |= columns
        return columns


@lru_cache(maxsize=_FILTERS)
def _remembered_filter(text: str, dialect: str) -> str | None:
    """Return a translated filter: most filters are the same after a reload."""
    return translate_filter(text, dialect)


@contextmanager
def _located(entry: str, spot: _Spot) -> Iterator[None]:
    """Raise errors in an entry as a PolicyError with the place of the field at work."""
    try:
        yield
    except (ValueError, InvalidReference) as error:
        raise PolicyError(_CONTROL.sub(" ", f"{entry}: {error}"), spot.place()) from None


def _sort_masks(masks: dict[str, dict[str, Mask]]) -> dict[str, tuple[Mask, ...]]:
    return {column: sort_masks(here.values()) for column, here in masks.items()}


def _known_column(body: MaskBody, columns: Mapping[str, str] | None, spot: _Spot) -> None:
    spot.field = ("column",)
    if not body.column:
        raise ValueError("it names no column")
    refuse_column_pattern(body.column, columns)
    if columns is not None and fold_column(body.column) not in columns:
        raise ValueError(f"`tables` has no column `{body.column}` in `{body.table}`")


def _table(text: str, default: Sequence[str]) -> FoldedName:
    """Return the name of a table of an entry; raise ValueError or InvalidReference."""
    warehouse, *path = policy_path(text, default)
    return fold_name(warehouse, path)
