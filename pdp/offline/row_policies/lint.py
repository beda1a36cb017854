"""Findings on files of row policies: filters without effect, policies that others make superfluous, unknown columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from sqlglot import exp

from pdp.config.origins import suggest
from pdp.engines.cel.lint.linter import Finding
from pdp.engines.cel.lint.remarks import Severity
from pdp.engines.row_access.entries import type_fault
from pdp.engines.row_access.lookups import check_lookups, unknown_columns
from pdp.engines.row_access.members import ALL_AUTHENTICATED, ALL_USERS, Grantee, parse_grantee
from pdp.engines.row_access.policies import KINDS, MaskBody, NamedDocument, PolicyBody, read_documents
from pdp.engines.row_access.validation import compile_policies
from pdp.errors import Place, PolicyError
from pdp.facts.objects import RowPolicy
from pdp.offline.row_policies.changes import stored_findings
from pdp.offline.row_policies.column_values import domain_of
from pdp.offline.row_policies.proofs import NO_DOMAINS, Domains, implies, is_always_true, is_never_true
from pdp.rewrite.catalog import Catalog, RelationKey, catalog_of, table_parts
from pdp.rewrite.errors import RewriteRefused
from pdp.rewrite.filters import known_columns
from pdp.rewrite.process.messages import DIALECTS
from pdp.rewrite.sql import ParsedText

ROW_CODES: Final[Mapping[str, Severity]] = {
    "row-never-true": "warning",
    "row-always-true": "warning",
    "row-shadowed": "warning",
    "row-restrictive-alone": "warning",
    "row-unknown-column": "error",
    "row-unusable": "error",
    "row-closed-in-trino": "warning",
    "row-tombstone": "info",
}
"""Codes of findings on row policies, beside `configuration`. Codes are stable, messages are not."""
_CONFIGURATION: Final = "configuration"
Body: TypeAlias = PolicyBody | MaskBody
_Names: TypeAlias = Sequence[Grantee]


class _Entry(NamedTuple):
    """Policy or mask of a document, with one of its texts: its place, its table, and the tree, None for an unread text.

    `domains` are those of the columns of the table.
    """

    source: NamedDocument
    where: tuple[str | int, ...]
    body: Body
    table: RelationKey
    dialect: str
    text: str
    tree: exp.Expr | None
    domains: Domains = NO_DOMAINS

    def place(self, field: str) -> Place:
        has_many = field in ("filter", "expression") and len(self.body.texts) > 1
        return self.source.place((*self.where, field, self.dialect) if has_many else (*self.where, field))

    @property
    def is_limit(self) -> bool:
        """Tell whether the entry is a restrictive policy."""
        return isinstance(self.body, PolicyBody) and self.body.restrictive is True

    @property
    def grantees(self) -> _Names:
        return [parse_grantee(text) for text in self.body.grantees]


def lint_row_files(paths: Sequence[Path], stored: Iterable[RowPolicy] = ()) -> list[Finding]:
    """Return the findings on files of row policies, and on rules of a store.

    Without an error in a file, the files and the sound rules are looked at together.
    """
    sound, unsound = stored_findings(stored)
    documents: list[NamedDocument] = []
    findings: list[Finding] = []
    for path in paths:
        try:
            documents += read_documents([path])
        except PolicyError as error:
            findings.append(_failure(error))
    try:
        notices = compile_policies(documents).warnings
    except PolicyError as error:
        return [*findings, _failure(error), *unsound]
    findings += [_configuration("warning", notice.place, notice.message) for notice in notices]
    is_readable = not any(finding.severity == "error" for finding in findings)
    return [*findings, *unsound, *(lint_rows([*documents, *sound]) if is_readable else ())]


def lint_rows(documents: Sequence[NamedDocument]) -> list[Finding]:
    """Return the findings on documents that the compiler takes, in the order of files and lines."""
    try:
        catalog = catalog_of([source.document for source in documents])
    except RewriteRefused:
        return []
    tables: dict[RelationKey, list[_Entry]] = {}
    for entry in _entries(documents, catalog):
        tables.setdefault(entry.table, []).append(entry)
    found = [finding for entries in tables.values() for finding in _findings(entries, catalog)]
    order = {source.name: number for number, source in enumerate(documents)}
    return sorted(found, key=lambda finding: (order[finding.file], finding.line, finding.column, finding.code))


def _entries(documents: Sequence[NamedDocument], catalog: Catalog) -> Iterator[_Entry]:
    for source in documents:
        document = source.document
        for at, policy in enumerate(document.policies):
            table = catalog.key(table_parts(policy.table, document.default))
            for dialect, text in policy.texts:
                domains = _domains(catalog, table, dialect)
                yield _Entry(source, ("policies", at), policy, table, dialect, text, _tree(text, dialect), domains)
        for at, mask in enumerate(document.masks):
            table = catalog.key(table_parts(mask.table, document.default))
            for dialect, text in mask.texts:
                tree = _tree(text, dialect) if mask.kind == "expression" and text else None
                yield _Entry(source, ("masks", at), mask, table, dialect, text, tree)


def _tree(text: str, dialect: str) -> exp.Expr | None:
    """Return the tree of a filter; None for a text of another dialect, or with two readings."""
    try:
        return ParsedText(text, dialect).tree.unnest() if dialect in DIALECTS else None
    except RewriteRefused:
        return None


def _domains(catalog: Catalog, table: RelationKey, dialect: str) -> Domains:
    """Return the domains of the columns that `tables` describes."""
    relations = catalog.of_key(table)
    if len(relations) != 1 or dialect not in DIALECTS:
        return {}
    types = known_columns(relations[0], dialect)
    return {name: domain_of(type, dialect) for name, type in types.items()}


def _findings(entries: Sequence[_Entry], catalog: Catalog) -> Iterator[Finding]:
    """Yield the findings on the policies and masks of one table."""
    policies = [entry for entry in entries if isinstance(entry.body, PolicyBody)]
    alone = policies[0] if policies and all(entry.is_limit for entry in policies) else None
    if alone is not None:
        message = "the table has no other policy, so it shows no row"
        yield _finding("row-restrictive-alone", alone, "restrictive", message, "write a policy that shows rows")
    for entry in policies:
        yield from _lookup_findings(entry, catalog)
        if entry.tree is not None:
            yield from _truth_findings(entry, entry.tree)
            yield from _shadow_findings(entry, policies)
    for entry in entries:
        if isinstance(entry.body, MaskBody):
            yield from _mask_findings(entry, entry.body, entries)
            yield from _kind_findings(entry, entry.body, catalog)
        yield from _column_findings(entry, catalog)


def _lookup_findings(entry: _Entry, catalog: Catalog) -> Iterator[Finding]:
    """Yield findings on names in subqueries: unknown columns, and possible columns of the filtered table.

    Files with a filter of the second kind do not start.
    """
    known = {relation.key: relation.columns for relation in catalog if relation.columns}
    try:
        check_lookups(entry.text, entry.dialect, entry.table, known)
    except ValueError as error:
        yield _finding("row-unusable", entry, "filter", f"the filter may show every row: {error}")
    if entry.tree is not None:
        for message in dict.fromkeys(unknown_columns(entry.tree, entry.table, known)):
            yield _finding("row-unknown-column", entry, "filter", message)


def _truth_findings(entry: _Entry, tree: exp.Expr) -> Iterator[Finding]:
    if isinstance(tree, exp.Boolean):
        return  # the author says so
    if is_never_true(tree, domains=entry.domains):
        effect = "the grantees see no row" if entry.is_limit else "the policy shows nothing"
        yield _finding("row-never-true", entry, "filter", f"the filter is true for no row: {effect}")
    elif is_always_true(tree, domains=entry.domains):
        hint = "delete the policy" if entry.is_limit else "write TRUE if the grantees may see every row"
        yield _finding("row-always-true", entry, "filter", "the filter is true for every row", hint)


def _shadow_findings(entry: _Entry, others: Sequence[_Entry]) -> Iterator[Finding]:
    """Yield a finding if another policy makes a policy superfluous for all grantees."""
    tree = entry.tree
    for other in others:
        if other.body is entry.body or other.tree is None or tree is None or is_never_true(tree, domains=entry.domains):
            continue
        if other.is_limit != entry.is_limit:
            continue
        # Of two restrictive policies, the one with fewer rows makes the other one superfluous.
        narrow, wide = (other.tree, tree) if entry.is_limit else (tree, other.tree)
        if not _covers(other.grantees, entry.grantees) or not implies(narrow, wide, domains=entry.domains):
            continue
        is_equal = _covers(entry.grantees, other.grantees) and implies(wide, narrow, domains=entry.domains)
        if is_equal and entry.body.id < other.body.id:
            continue  # the finding is on the other one
        effect = (
            "leaves these grantees no other rows" if entry.is_limit else "shows all these rows to all these grantees"
        )
        message = f"policy `{other.body.id}` {effect}"
        yield _finding("row-shadowed", entry, "filter", message, "the policy can be deleted")
        return


def _mask_findings(entry: _Entry, mask: MaskBody, others: Sequence[_Entry]) -> Iterator[Finding]:
    """Yield a finding if a stricter mask of the column holds for all grantees."""
    rank = KINDS.index(mask.kind or "null"), mask.id
    for other in others:
        body = other.body
        if body is mask or not isinstance(body, MaskBody) or body.column.lower() != mask.column.lower():
            continue
        exempt = [parse_grantee(text) for text in body.exempt], [parse_grantee(text) for text in mask.exempt]
        is_stricter = (KINDS.index(body.kind or "null"), body.id) < rank
        if is_stricter and _covers(other.grantees, entry.grantees) and set(exempt[0]) <= set(exempt[1]):
            message = f"mask `{body.id}` of the column holds for all these grantees, and hides more"
            yield _finding("row-shadowed", entry, "column", message, "the mask can be deleted")
            return


def _kind_findings(entry: _Entry, mask: MaskBody, catalog: Catalog) -> Iterator[Finding]:
    """Yield a finding if the kind of a stored mask is for other types. Files with such a mask do not start."""
    for relation in catalog.of_key(entry.table):
        if message := type_fault(mask.kind or "null", mask.column, relation.columns.get(mask.column.lower(), "")):
            yield _finding("row-unusable", entry, "kind", f"the column is NULL: {message}")


def _column_findings(entry: _Entry, catalog: Catalog) -> Iterator[Finding]:
    """Yield a finding for each column outside of subqueries that the described table does not have."""
    relations = catalog.of_key(entry.table)
    columns = known_columns(relations[0], entry.dialect) if len(relations) == 1 else {}
    if not columns:
        return
    names: list[str] = []
    if isinstance(entry.body, MaskBody):
        names.append(entry.body.column.lower())
    if entry.tree is not None:
        outside = entry.tree.walk(prune=lambda node: isinstance(node, exp.Query))
        names += [_column_name(node, relations[0].name[-1]) for node in outside if isinstance(node, exp.Column)]
    field = "filter" if isinstance(entry.body, PolicyBody) else "expression"
    for name in dict.fromkeys(name for name in names if name not in columns):
        message = f"`tables` has no column `{name}` in `{entry.body.table}`{suggest(name, columns)}"
        yield _finding("row-unknown-column", entry, field, message)


def _column_name(column: exp.Column, table: str) -> str:
    first, *fields = [part.name.lower() for part in column.parts]
    return fields[0] if fields and first == table.lower() else first


def _covers(wide: _Names, narrow: _Names) -> bool:
    """Tell whether all members of the second list are certainly members of the first list."""
    return bool(narrow) and all(any(_includes(one, other) for one in wide) for other in narrow)


def _includes(wide: Grantee, narrow: Grantee) -> bool:
    if wide == narrow or wide.kind == ALL_USERS:
        return True
    if wide.kind == ALL_AUTHENTICATED:
        return narrow.kind in ("user", "serviceAccount", "domain")
    return wide.kind == "domain" and narrow.kind == "user" and narrow.name.partition("@")[2] == wide.name


def _finding(code: str, entry: _Entry, field: str, message: str, hint: str = "") -> Finding:
    place = entry.place(field)
    return Finding(code, ROW_CODES[code], place.file, place.line, place.column, entry.body.id, message, hint)


def _failure(error: PolicyError) -> Finding:
    return _configuration("error", error.place, error.message)


def _configuration(severity: Severity, place: Place, message: str) -> Finding:
    return Finding(_CONFIGURATION, severity, place.file, place.line, place.column, "", message)
