"""Compiler of policy files to the engine: resolves names, checks expressions, refuses contradictions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec

from pdp.config.references import unknown_warehouse
from pdp.engines.row_access.conditions import mask_for_trino, policy_for_trino
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
from pdp.engines.row_access.policies import (
    MaskBody,
    NamedDocument,
    PolicyBody,
    entry_name,
    one_line,
    policy_path,
    rule_of,
    table_path,
)
from pdp.engines.row_access.policy_set import Mask, Policy, TablePolicies, mask_of, policy_of, table_policies
from pdp.errors import DuplicateRule, InvalidReference, Notice, Place, PolicyError
from pdp.facts.objects import FoldedName, RowPolicy, TablePath, fold_column, fold_name
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
        self._entries: dict[FoldedName, dict[tuple[str, ...], Policy | Mask]] = {}
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
        make = self._mask if isinstance(body, MaskBody) else self._policy
        self._insert(name, make(rule, body.identity, spot), spot)

    def _judge(self, rule: RowPolicy, names: RowNames, spot: _Spot) -> None:
        """Raise ValueError for the first refused fault, and warn of the others."""
        for fault in faults_of(rule, names, self._described, is_complete=self._are_complete):
            spot.field = fault.field
            if fault.weight in REFUSED:
                raise ValueError(fault.message)
            if fault.weight != "column":  # a finding of lint: `tables` may lag behind the table
                self._warn(fault_message(rule, fault), spot)

    def tables(self) -> dict[FoldedName, TablePolicies]:
        found = {name: table_policies(self._entries[name].values()) for name in sorted(self._entries)}
        for name, table in found.items():
            self._check_identity(name, table.policies)
        return found

    def _check_identity(self, name: FoldedName, policies: Sequence[Policy]) -> None:
        """Raise PolicyError for two identities: Trino evaluates the joined filters of a table as one user."""
        filters = [policy for policy in policies if not policy.is_open]
        other = next((policy.id for policy in filters if policy.identity != filters[0].identity), None)
        if other:
            message = f"policies `{filters[0].id}` and `{other}` of one table have different identities"
            raise PolicyError(message, self._spots[name, other].place())

    def _policy(self, rule: RowPolicy, identity: str, spot: _Spot) -> Policy:
        spot.field = ("filter",)
        policy, closed = policy_for_trino(policy_of(rule, identity), self.columns.get(rule.covers))
        if closed:
            self._warn(f"policy `{rule.id}` lets no row through in Trino: {closed}", spot)
        return policy

    def _mask(self, rule: RowPolicy, identity: str, spot: _Spot) -> Mask:
        spot.field = ("expression",)
        mask, closed = mask_for_trino(mask_of(rule, identity), self.columns.get(rule.covers))
        if closed:
            self._warn(f"mask `{rule.id}` is NULL in Trino: {closed}", spot)
        return mask

    def _insert(self, name: FoldedName, entry: Policy | Mask, spot: _Spot) -> None:
        spot.field = ("id",)
        entries = self._entries.setdefault(name, {})
        key = (entry.id, entry.column) if isinstance(entry, Mask) else (entry.id,)
        if key in entries:
            raise DuplicateRule(f"`{entry.id}` stands there already for this table", spot.place())
        entries[key] = entry
        if isinstance(entry, Policy):
            self._spots[name, entry.id] = spot

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
