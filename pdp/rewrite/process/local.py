"""Rewriting in this process, for the command line: requests as JSON, answers, explanations. Knows no transport."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import msgspec

from pdp.engines.row_access.engine import REASON_PREFIX
from pdp.engines.row_access.entries import NO_TABLES, REFUSED, DescribedTables, Fault, binding_faults, fault_message
from pdp.engines.row_access.explain import ExplainedEntry, RowExplanation
from pdp.engines.row_access.policies import (
    MaskBody,
    PolicyBody,
    entry_name,
    read_documents,
    refuse_patterns,
    rule_of,
)
from pdp.engines.row_access.policy_set import Mask, Policy, PolicySet
from pdp.errors import InvalidArgument, InvalidReference, PolicyError
from pdp.facts.objects import RowPolicy, fold_column
from pdp.model.strict import decode
from pdp.rewrite.catalog import (
    Catalog,
    RelationKey,
    catalog_of,
    key_of,
    policy_set_of,
    read_entry,
    table_parts,
    tables_of,
)
from pdp.rewrite.errors import FILTER_INVALID, RewriteRefused
from pdp.rewrite.filters import NO_ROWS
from pdp.rewrite.identity import CallerIdentity, owner_identity
from pdp.rewrite.process.messages import RelationUse
from pdp.rewrite.rewriter import Rewriter


class RewriteRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Statement to rewrite for an IAM member. `policies` replace all policies of the named tables.

    `roles` of the member are None if unknown. `claims` are texts by name, and all others are unknown.
    """

    sql: str
    dialect: str
    principal: str
    groups: tuple[str, ...] = ()
    authenticated: bool = True
    policies: tuple[PolicyBody, ...] = ()
    roles: tuple[str, ...] | None = None
    claims: dict[str, str] = {}

    def caller(self) -> CallerIdentity:
        """Return the caller."""
        named = (group.strip().removeprefix("group:") for group in self.groups)
        roles = None if self.roles is None else [role.strip().removeprefix("role:") for role in self.roles]
        return CallerIdentity(
            self.principal.strip(), tuple(filter(None, named)), authenticated=self.authenticated,
            roles=None if roles is None else tuple(filter(None, roles)), claims=self.claims,
        )  # fmt: skip


_REQUEST: Final = msgspec.json.Decoder(RewriteRequest)


class LocalRewriter:
    """Rewriter with the policies and the catalog of files."""

    def __init__(self, catalog: Catalog, policies: PolicySet, rewriter: Rewriter) -> None:
        self._catalog, self._policies, self._rewriter = catalog, policies, rewriter

    @property
    def default(self) -> tuple[str, ...]:
        """Return the catalog and schema of short names."""
        return self._catalog.default

    @cached_property
    def short_names(self) -> frozenset[str]:
        """Return the last parts of the names of all relations, in lower case."""
        return frozenset(relation.name[-1].lower() for relation in self._catalog)

    @cached_property
    def schema_names(self) -> frozenset[str]:
        """Return the first parts of the schemas of all relations, in lower case."""
        return frozenset(relation.name[1].lower() for relation in self._catalog if len(relation.name) > 1)

    def answer(self, body: bytes) -> dict[str, Any]:
        """Return the answer to one request: `sql`, or `error` with a code and a message."""
        try:
            request = decode(body, _REQUEST)
        except InvalidArgument as error:
            return _error("invalid_argument", str(error))
        try:
            return {"sql": self.rewrite(request)}
        except RewriteRefused as error:
            return _error(error.rap, str(error))

    def rewrite(self, request: RewriteRequest) -> str:
        """Return the statement of a request with row access enforced; raise RewriteRefused."""
        policies = self._policies
        if request.policies:
            policies = policies.replaced(tables_of(self._entries(request.policies)))
        policies = policies.written_for(request.dialect)
        return self._rewriter.rewrite(request.sql, request.dialect, request.caller(), policies).sql

    def _entries(self, bodies: Iterable[PolicyBody]) -> dict[RelationKey, list[Policy | Mask]]:
        """Return the policies of a request by table; raise RewriteRefused for one that binds nobody."""
        found: dict[RelationKey, list[Policy | Mask]] = {}
        for body in bodies:
            if fault := _fault(body, self._catalog, self._catalog.default):
                raise RewriteRefused(FILTER_INVALID, fault.message)
            key, entry = read_entry(body, self._catalog.default, self._catalog.containers)
            found.setdefault(key, []).append(entry)
        return found

    def explain(self, request: RewriteRequest) -> ExplainedStatement:
        """Return the statement with each relation, and why policies and masks count or not; raise RewriteRefused."""
        policies = self._policies.written_for(request.dialect)
        return explain_statement(self._rewriter, request.sql, request.dialect, request.caller(), policies)


def service_of_files(paths: Sequence[Path]) -> LocalRewriter:
    """Return the service of policy files; raise PolicyError or InvalidArgument for an unusable file."""
    sources = list(read_documents(paths))
    documents = [source.document for source in sources]
    try:
        catalog = catalog_of(documents)
    except RewriteRefused as error:
        raise InvalidArgument(str(error)) from None
    for source in sources:
        for key in ("policies", "masks"):
            for place, body in enumerate(getattr(source.document, key)):
                fault = _fault(body, catalog, source.document.default)
                if fault:
                    raise PolicyError(fault.message, source.place((key, place, *fault.field)))
    try:
        policies = policy_set_of(documents)
    except RewriteRefused as error:
        raise InvalidArgument(str(error)) from None
    return LocalRewriter(catalog, policies, Rewriter(catalog))


def _fault(body: PolicyBody | MaskBody, catalog: Catalog, default: Sequence[str]) -> Fault | None:
    """Return the fault of an entry that binds nobody; None for a sound one. Filters are judged when they are used."""
    try:
        rule = rule_of(body, (body.table,))
    except ValueError as error:
        return Fault(f"{entry_name(body)}: {error}", ("dialect",))
    try:
        refuse_patterns(body)
    except InvalidReference as error:
        return Fault(f"{entry_name(body)}: {error}", ("table",))
    for fault in binding_faults(rule, known=_described(rule, catalog, default)):
        if fault.weight in REFUSED:
            return Fault(fault_message(rule, fault), fault.field)
    return None


def _described(rule: RowPolicy, catalog: Catalog, default: Sequence[str]) -> DescribedTables:
    """Return the columns of the table of a mask. A column that files describe may have any name."""
    if not rule.column:
        return NO_TABLES
    relations = catalog.of_key(catalog.key(table_parts(rule.table[-1], default)))
    columns = {fold_column(name): "" for relation in relations for name in relation.spelled}
    return DescribedTables({rule.covers: columns}) if fold_column(rule.column) in columns else NO_TABLES


def _error(code: str, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message}}


def answers(service: LocalRewriter, lines: Iterable[bytes]) -> Iterable[bytes]:
    """Yield the answer to each line that is not blank, in order."""
    return (msgspec.json.encode(service.answer(line)) for line in lines if line.strip())


class ExplainedRelation(msgspec.Struct, frozen=True):
    """Relation of a statement: the full name, the role in the statement, the reader, and the visible part."""

    table: str
    role: str
    reader: str
    rows: RowExplanation


class ExplainedStatement(msgspec.Struct, frozen=True):
    """Rewritten statement with its relations."""

    sql: str
    tables: tuple[ExplainedRelation, ...]


def explain_statement(
    rewriter: Rewriter, text: str, dialect: str, caller: CallerIdentity, policies: PolicySet
) -> ExplainedStatement:
    """Return a rewritten statement with the visible part of each relation; raise RewriteRefused."""
    rewritten = rewriter.examine(text, dialect, caller, policies)
    tables = []
    for use in rewritten.uses:
        reader = owner_identity(use.owner) if use.owner else caller
        rows = _rows(rewriter, use, dialect, reader, policies)
        tables.append(ExplainedRelation(".".join(use.name), use.role, reader.member, rows))
    return ExplainedStatement(rewritten.sql, tuple(tables))


def _rows(
    rewriter: Rewriter, use: RelationUse, dialect: str, reader: CallerIdentity, policies: PolicySet
) -> RowExplanation:
    key = key_of(use.name)
    is_new = not policies.hides(key)
    rows, columns = ("", []) if is_new else rewriter.visible(use.name, dialect, reader, policies)
    entries = []
    for policy in policies.of(key).policies:
        counts, why = reader.explain_policy(policy.grantees, restrictive=policy.restrictive)
        entries.append(ExplainedEntry(policy.id, counts, why, policy.text))
    by = ",".join(entry.id for entry in entries if entry.counts)
    if not policies.of(key).matching(reader):
        by = "no_policy" if entries else "unrestricted"
    shown = {"": True, NO_ROWS: False}.get(rows, rows)
    return RowExplanation(
        shown, REASON_PREFIX + by, tuple(entries), tuple(_masks(policies, key, reader, dict(columns)))
    )


def _masks(
    policies: PolicySet, key: RelationKey, reader: CallerIdentity, columns: dict[str, str]
) -> Iterator[ExplainedEntry]:
    """Yield the masks of a relation. The first mask that counts hides the column."""
    expressions = {fold_column(name): sql for name, sql in columns.items()}
    for column, masks in policies.of(key).masks.items():
        held = ""
        for mask in masks:
            counts, why = reader.explain_mask(mask.grantees, mask.exempt)
            if counts and held:
                counts, why = False, f"the mask `{held}` of the column hides more"
            held = mask.id if counts else held
            text = expressions.get(column, mask.kind) if counts else mask.kind
            yield ExplainedEntry(mask.id, counts, why, text, column)
