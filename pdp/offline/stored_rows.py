"""Row rules of a store for lint and dry runs. A stored rule has no file: table and id are its place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from pdp.engines.cel.lint.linter import Finding
from pdp.engines.cel.lint.remarks import Severity
from pdp.engines.row_access.engine import RowAccess
from pdp.engines.row_access.members import Members
from pdp.engines.row_access.policies import Document, MaskBody, NamedDocument, PolicyBody, table_path
from pdp.engines.row_access.validation import compile_policies
from pdp.errors import InvalidArgument, InvalidReference, PdpError, Place, PolicyError
from pdp.facts.objects import key_text
from pdp.facts.row_policies import FoldedName, RowRule, TablePath, fold_name
from pdp.management.row_policy_checks import check_rule

_ANY_COLUMNS: Final = RowAccess({}, Members("user:{subject}", "iam"))
"""Row access without described tables: unknown columns are a finding of their own."""


class StoredDocument(NamedDocument, frozen=True):
    """Sound rules of one table of a store. The name is the place of all of them."""

    def place(self, where: Sequence[str | int]) -> Place:
        """Return the table as the place of each value."""
        return Place(self.name, 0, 0)


def stored_findings(rules: Iterable[RowRule]) -> tuple[list[NamedDocument], list[Finding]]:
    """Return the sound rules as one document per table, and the findings on all other rules."""
    sound: dict[TablePath, list[RowRule]] = {}
    findings = []
    for rule in sorted(rules, key=lambda rule: rule.key):
        problem = _problem(rule)
        if problem is not None:
            findings.append(problem)
        else:
            sound.setdefault(rule.table, []).append(rule)
    documents = [_document(table, some) for table, some in sound.items()]
    return documents, [*findings, *(finding for one in documents for finding in _notices(one))]


def rules_of_documents(documents: Iterable[NamedDocument]) -> tuple[frozenset[FoldedName], list[RowRule]]:
    """Return the names of all tables of documents, and the policies and masks as rules of a store.

    Raise InvalidArgument for a rule that the store refuses.
    """
    tables, rules = set(), []
    for source in documents:
        default = source.document.default
        tables |= {_covers(_path(name, default)) for name in source.document.tables}
        rules += [_rule(body, default) for body in _bodies(source.document)]
    for rule in rules:
        check_rule(rule, _ANY_COLUMNS)
    return frozenset((*tables, *(rule.covers for rule in rules))), rules


def store_place(table: TablePath) -> str:
    """Return the place of the rules of a table, in place of a file."""
    return f"store:{key_text(('table', table)).removeprefix('table:')}"


def _problem(rule: RowRule) -> Finding | None:
    """Return the finding on a rule that hides everything; None for a sound rule."""
    if rule.tombstone:
        message = "the table was dropped: a new table of the name shows no row"
        return _finding("row-tombstone", "info", rule, message)
    try:
        check_rule(rule, _ANY_COLUMNS)
    except PdpError as error:
        hides = "the column is NULL for everybody" if rule.column else "the policy shows no row"
        return _finding("row-unusable", "error", rule, f"{error}; {hides}")
    return None


def _notices(source: NamedDocument) -> Iterator[Finding]:
    """Yield the findings on filters and masks without a certain meaning in Trino."""
    for body in _bodies(source.document):
        alone = Document(policies=(body,)) if isinstance(body, PolicyBody) else Document(masks=(body,))
        try:
            for notice in compile_policies([NamedDocument(source.name, alone)]).warnings:
                yield Finding("row-closed-in-trino", "warning", source.name, 0, 0, body.id, notice.message)
        except PolicyError as error:
            yield Finding("row-unusable", "error", source.name, 0, 0, body.id, error.message)


def _document(table: TablePath, rules: Sequence[RowRule]) -> NamedDocument:
    name = key_text(("table", table))
    policies = [PolicyBody(rule.id, name, rule.text, rule.grantees, rule.dialect) for rule in rules if not rule.column]
    masks = [_mask_body(name, rule) for rule in rules if rule.column]
    return StoredDocument(store_place(table), Document(policies=tuple(policies), masks=tuple(masks)))


def _bodies(document: Document) -> list[PolicyBody | MaskBody]:
    return [*document.policies, *document.masks]


def _mask_body(table: str, rule: RowRule) -> MaskBody:
    kind: Any = rule.kind  # checked
    return MaskBody(
        rule.id, table, rule.column, rule.grantees, kind, rule.text or None, rule.dialect, exempt=rule.exempt
    )


def _rule(body: PolicyBody | MaskBody, default: Sequence[str]) -> RowRule:
    table = _path(body.table, default)
    if isinstance(body, PolicyBody):
        return RowRule(table, body.id, body.grantees, body.text, body.dialect)
    kind = body.kind or "null"
    return RowRule(table, body.id, body.grantees, body.text, body.dialect, body.column, kind, body.exempt)


def _path(text: str, default: Sequence[str]) -> TablePath:
    try:
        return table_path(text, default)
    except (ValueError, InvalidReference) as error:
        raise InvalidArgument(str(error)) from None


def _covers(table: TablePath) -> FoldedName:
    return fold_name(table[0], table[1:])


def _finding(code: str, severity: Severity, rule: RowRule, message: str) -> Finding:
    return Finding(code, severity, store_place(rule.table), 0, 0, rule.id, message)
