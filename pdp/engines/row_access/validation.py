"""Compiler of policy files to the engine: resolves names, checks expressions, refuses contradictions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from pdp.config.references import unknown_warehouse
from pdp.engines.row_access.conditions import read_expression, read_filter
from pdp.engines.row_access.dialects import translate_constant
from pdp.engines.row_access.engine import RowPolicies
from pdp.engines.row_access.entries import (
    NO_ROW_NAMES,
    NO_TABLES,
    REFUSED,
    DescribedTables,
    RowNames,
    fault_message,
    faults_of,
)
from pdp.engines.row_access.members import parse_grantee
from pdp.engines.row_access.policies import (
    Mask,
    MaskBody,
    NamedDocument,
    Policy,
    PolicyBody,
    TablePolicies,
    entry_name,
    one_line,
    policy_path,
    rule_of,
    sort_masks,
    table_path,
)
from pdp.engines.row_access.trino import FALSE
from pdp.errors import DuplicateRule, InvalidReference, Notice, Place, PolicyError
from pdp.facts.row_policies import FoldedName, RowPolicy, TablePath, fold_column, fold_name
from pdp.model.references import refuse_star


def compile_policies(
    sources: Iterable[NamedDocument],
    warehouses: frozenset[str] = frozenset(),
    names: RowNames = NO_ROW_NAMES,
    *,
    recorded: Iterable[NamedDocument] = (),
    are_complete: bool = True,
) -> RowPolicies:
    """Return the policies of documents; raise PolicyError with the place of the entry at fault and the cause.

    Tables are in one of the `warehouses`, unless these are none. `names` are those that grantees are compared with.
    Entries of `recorded` documents decided before, and are not judged. `are_complete`: no other document describes
    tables, so that names of subqueries are judged.
    """
    judged, others = list(sources), list(recorded)
    compiler = _Compiler(warehouses, are_complete)
    for source in (*judged, *others):
        compiler.describe(source)
    for source in judged:
        compiler.add(source, names)
    for source in others:
        compiler.add(source, None)
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
    """Policies and masks of the documents so far. `columns` has the columns of all documents, described before."""

    def __init__(self, warehouses: frozenset[str], are_complete: bool) -> None:
        self._warehouses = warehouses
        self._are_complete = are_complete
        self._described = NO_TABLES
        self.warnings: list[Notice] = []
        self._policies: dict[FoldedName, dict[str, Policy]] = {}
        self._masks: dict[FoldedName, dict[str, dict[str, Mask]]] = {}
        self._spots: dict[tuple[FoldedName, str], _Spot] = {}
        self.columns: dict[FoldedName, dict[str, str]] = {}

    def describe(self, source: NamedDocument) -> None:
        """Note the columns of the document's tables with their types."""
        for name, table in source.document.tables.items():
            with _located("`tables`", _Spot(source, ("tables", name))):
                refuse_star(name, "write each table, as policies name the table")
                if table.columns:
                    path = table_path(name, source.document.default)
                    known = self._known(fold_name(path[0], path[1:]))
                    self.columns[known] = {fold_column(column): kind for column, kind in table.columns.items()}
        self._described = DescribedTables(self.columns)

    def add(self, source: NamedDocument, names: RowNames | None) -> None:
        """Add the entries of a document. Without `names` they are not judged."""
        document = source.document
        both: Mapping[str, Sequence[PolicyBody | MaskBody]] = {"policies": document.policies, "masks": document.masks}
        for key, bodies in both.items():
            for number, body in enumerate(bodies):
                spot = _Spot(source, (key, number))
                with _located(entry_name(body), spot):
                    self._add(body, rule_of(body, self._path(body, document.default, spot, names)), spot, names)

    def _add(self, body: PolicyBody | MaskBody, rule: RowPolicy, spot: _Spot, names: RowNames | None) -> None:
        if names is not None:
            self._judge(rule, names, spot)
        name = self._known(rule.covers)
        if isinstance(body, MaskBody):
            masks = self._masks.setdefault(name, {}).setdefault(fold_column(rule.column), {})
            self._insert(masks, self._mask(rule, body.identity, spot), spot)
        else:
            self._insert(self._policies.setdefault(name, {}), self._policy(rule, body.identity, spot), spot)
            self._spots[name, rule.id] = spot

    def _judge(self, rule: RowPolicy, names: RowNames, spot: _Spot) -> None:
        """Raise ValueError for the first refused fault, and warn of the others."""
        for fault in faults_of(rule, names, self._described, is_complete=self._are_complete):
            spot.field = fault.field
            if fault.weight in REFUSED:
                raise ValueError(fault.message)
            if fault.weight != "column":  # a finding of lint: `tables` may lag behind the table
                self._warn(fault_message(rule, fault), spot)

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

    def _policy(self, rule: RowPolicy, identity: str, spot: _Spot) -> Policy:
        spot.field = ("filter",)
        reading = read_filter(rule.text, rule.dialect, self.columns.get(rule.covers))
        if reading.closed:
            self._warn(f"policy `{rule.id}` lets no row through in Trino: {reading.closed}", spot)
        sql = FALSE if reading.closed else reading.sql
        return Policy(rule.id, tuple(map(parse_grantee, rule.grantees)), sql, identity, rule.restrictive)

    def _mask(self, rule: RowPolicy, identity: str, spot: _Spot) -> Mask:
        kind, value = rule.kind, ""
        spot.field = ("expression",)
        if kind == "constant":
            value = translate_constant(rule.text)
        elif kind == "expression":
            reading = read_expression(rule.text, rule.dialect, self.columns.get(rule.covers))
            value = reading.sql or ""
            if reading.closed:
                self._warn(f"mask `{rule.id}` is NULL in Trino: {reading.closed}", spot)
                kind = "null"
        grantees, exempt = (tuple(map(parse_grantee, texts)) for texts in (rule.grantees, rule.exempt))
        return Mask(rule.id, kind, grantees, exempt, value, identity)

    def _insert(self, entries: dict[str, Any], entry: Policy | Mask, spot: _Spot) -> None:
        spot.field = ("id",)
        if entry.id in entries:
            raise DuplicateRule(f"`{entry.id}` stands there already for this table", spot.place())
        entries[entry.id] = entry

    def _warn(self, message: str, spot: _Spot) -> None:
        self.warnings.append(Notice(spot.place(), message))

    def _path(
        self, body: PolicyBody | MaskBody, default: Sequence[str], spot: _Spot, names: RowNames | None
    ) -> TablePath:
        """Return the path of the table of an entry; raise ValueError or InvalidReference."""
        spot.field = ("identity",)
        refuse_star(body.identity, "write the one user of Trino who evaluates")
        spot.field = ("table",)
        path = (table_path if names is None else policy_path)(body.table, default)
        self._known(fold_name(path[0], path[1:]))
        return path

    def _known(self, name: FoldedName) -> FoldedName:
        """Return the name of a table; raise ValueError if its warehouse is unknown."""
        if unknown := unknown_warehouse(name[0], self._warehouses):
            raise ValueError(unknown)
        return name


@contextmanager
def _located(entry: str, spot: _Spot) -> Iterator[None]:
    """Raise errors in an entry as a PolicyError with the place of the field at work."""
    try:
        yield
    except (ValueError, InvalidReference) as error:
        raise PolicyError(one_line(f"{entry}: {error}"), spot.place()) from None


def _sort_masks(masks: dict[str, dict[str, Mask]]) -> dict[str, tuple[Mask, ...]]:
    return {column: sort_masks(here.values()) for column, here in masks.items()}
