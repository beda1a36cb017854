"""Changes of row policies, of files or of a store: who sees more or fewer rows and columns.

Readers are the members that policies and masks name. Proofs about filters tell the direction of a change; rows of a
table, where somebody has them, tell the number. Needs no engine and no table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec
from sqlglot import exp

from pdp.engines.cel.lint.linter import Finding
from pdp.engines.cel.lint.remarks import Severity
from pdp.engines.row_access.entries import NO_ROW_NAMES, NO_TABLES, REFUSED, Fault, Weight, fault_message, faults_of
from pdp.engines.row_access.members import ALL_AUTHENTICATED, ALL_USERS, ANONYMOUS_MEMBER, Grantee, Members
from pdp.engines.row_access.policies import (
    Document,
    MaskBody,
    NamedDocument,
    PolicyBody,
    body_of,
    entry_name,
    rule_of,
    table_path,
)
from pdp.engines.row_access.policy_set import Policy, PolicySet, StoredPolicySets, stored_policies
from pdp.engines.row_access.validation import compile_policies
from pdp.errors import InvalidArgument, InvalidReference, Place, PolicyError
from pdp.facts.objects import FoldedName, RowPolicy, RowPolicyPut, TablePath, fold_name, key_text
from pdp.facts.snapshot import Facts
from pdp.model.question import Principal
from pdp.offline.row_policies.column_values import Truth
from pdp.offline.row_policies.proofs import implies, truth_of_row
from pdp.rewrite.catalog import RelationKey, key_name, policy_set_of
from pdp.rewrite.errors import RewriteRefused
from pdp.rewrite.identity import CallerIdentity, PrincipalCaller
from pdp.rewrite.process.messages import DIALECTS
from pdp.rewrite.sql import ParsedText

_SOMEBODY: Final = "user:somebody@"
"""Start of the member of a reader who stands for a whole group or domain."""
_NOWHERE: Final = "nowhere.invalid"
_TRUE: Final = exp.true()
_FALSE: Final = exp.false()
Direction: TypeAlias = Literal["same", "more", "fewer", "other"]
"""Rows after a change, compared with the rows before. `other`: more and fewer, or not proven."""
TableRows: TypeAlias = Sequence[Mapping[str, Any]]
"""Rows of a table: values by column in lower case."""


class RowChange(msgspec.Struct, frozen=True, rename="camel"):
    """Change of one table for one reader.

    `before` and `after` are filters, `TRUE` for every row. The numbers of rows are None without rows of the table, and
    for filters that only an engine can evaluate.
    """

    table: str
    reader: str
    rows: Direction
    before: str
    after: str
    rows_before: int | None
    rows_after: int | None
    columns_shown: tuple[str, ...]
    columns_hidden: tuple[str, ...]
    columns_changed: tuple[str, ...]


def row_changes(
    before: Sequence[NamedDocument], after: Sequence[NamedDocument], data: Mapping[RelationKey, TableRows]
) -> list[RowChange]:
    """Return the changes between two sets of policies, by table and reader; raise RewriteRefused for unusable ones."""
    old, new = (policy_set_of([source.document for source in side]) for side in (before, after))
    return set_changes(old, new, data)


def stored_changes(
    filed: PolicySet, before: Iterable[RowPolicy], after: Iterable[RowPolicy], data: Mapping[RelationKey, TableRows]
) -> list[RowChange]:
    """Return the changes between two lists of rules of a store, beside the policies of files."""
    old, new = (
        StoredPolicySets(filed).at(Facts.empty().apply(1, map(RowPolicyPut, rules))) for rules in (before, after)
    )
    return set_changes(old, new, data)


def set_changes(old: PolicySet, new: PolicySet, data: Mapping[RelationKey, TableRows]) -> list[RowChange]:
    """Return the changes between two sets of policies, by table and reader."""
    tables = sorted({key for side in (old, new) for key in side.tables})
    changes = []
    for table in tables:
        for label, reader in _readers(table, (old, new)):
            change = _change(table, label, reader, (old, new), data.get(table))
            if change is not None:
                changes.append(change)
    return changes


def _readers(table: RelationKey, sides: Iterable[PolicySet]) -> Iterator[tuple[str, CallerIdentity]]:
    """Yield a reader for each member that policies and masks of a table name, and one whom nobody names."""
    named: dict[str, Grantee] = {}
    for side in sides:
        lists = [policy.grantees for policy in side.of(table).policies]
        lists += [
            some for masks in side.of(table).masks.values() for mask in masks for some in (mask.grantees, mask.exempt)
        ]
        for grantee in (one for some in lists for one in some):
            named[f"{grantee.kind}:{grantee.name}" if grantee.name else grantee.kind] = grantee
    for label in sorted(named):
        if label not in (ALL_USERS, ALL_AUTHENTICATED):
            yield label, _reader(named[label])
    yield "any other user", CallerIdentity(f"{_SOMEBODY}{_NOWHERE}", roles=())
    yield "anybody without a name", CallerIdentity(ANONYMOUS_MEMBER, authenticated=False)


def _reader(grantee: Grantee) -> CallerIdentity:
    """Return a caller who is a member, and nothing else."""
    if grantee.kind == "group":
        return CallerIdentity(f"{_SOMEBODY}{_NOWHERE}", (grantee.name,), roles=())
    if grantee.kind == "domain":
        return CallerIdentity(f"{_SOMEBODY}{grantee.name}", roles=())
    if grantee.kind == "role":
        return PrincipalCaller(Principal("role", grantee.name), Members("user:{subject}", "iam"))
    return CallerIdentity(f"{grantee.kind}:{grantee.name}", roles=())


def _change(
    table: RelationKey, label: str, reader: CallerIdentity, sides: tuple[PolicySet, PolicySet], data: TableRows | None
) -> RowChange | None:
    """Return the change of a table for a reader; None without any."""
    old, new = (_Filter(side, table, reader) for side in sides)
    masks_before, masks_after = (_masks(side, table, reader) for side in sides)
    both = masks_before.keys() & masks_after.keys()
    change = RowChange(
        key_name(table), label, _direction(old, new), old.text, new.text, old.count(data), new.count(data),
        tuple(sorted(masks_before.keys() - both)), tuple(sorted(masks_after.keys() - both)),
        tuple(sorted(column for column in both if masks_before[column] != masks_after[column])),
    )  # fmt: skip
    columns = change.columns_shown or change.columns_hidden or change.columns_changed
    return change if change.rows != "same" or columns else None


def _direction(old: _Filter, new: _Filter) -> Direction:
    if old.text == new.text and old.others == new.others:
        return "same"
    # a proof reads the first text of each policy alone
    if old.others or new.others or old.tree is None or new.tree is None:
        return "other"
    keeps, adds_nothing = implies(old.tree, new.tree), implies(new.tree, old.tree)
    if keeps and adds_nothing:
        return "same"
    return "more" if keeps else "fewer" if adds_nothing else "other"


def _masks(side: PolicySet, table: RelationKey, reader: CallerIdentity) -> dict[str, tuple[object, ...]]:
    """Return the masks that hide columns from a reader, each by kind, text and dialect."""
    found: dict[str, tuple[object, ...]] = {}
    for column, masks in side.of(table).masks.items():
        mask = next((mask for mask in masks if mask.holds(reader)), None)
        if mask is not None:
            texts = ((mask.dialect, mask.text), *mask.others) if mask.kind == "expression" else (("", mask.text),)
            found[column] = (mask.kind, *texts)
    return found


class _Filter:
    """Filter of a table for a reader. `tree` is None if a text has no certain reading."""

    def __init__(self, side: PolicySet, table: RelationKey, reader: CallerIdentity) -> None:
        matching, limiting = side.of(table).matching(reader), side.of(table).limiting(reader)
        counting = [*matching, *limiting]
        has_others = any(policy.others for policy in counting)
        self.others = [(policy.dialect, policy.text, policy.others) for policy in counting] if has_others else []
        needed = [text for text in _texts(limiting) if text.upper() != "TRUE"]
        self.text = _joined([_joined(_texts(matching), "OR"), *needed], "AND")
        self.tree: exp.Expr | None = None
        if not side.protects(table):
            self.text, self.tree = "TRUE", _TRUE
        elif not matching:
            self.text, self.tree = "FALSE", _FALSE
        else:
            shown, limits = (
                [tree for policy in some if (tree := _tree(policy, reader)) is not None]
                for some in (matching, limiting)
            )
            if len(shown) + len(limits) == len(counting):
                self.tree = exp.and_(exp.or_(*shown, copy=True), *limits, copy=True)

    def count(self, data: TableRows | None) -> int | None:
        """Return the number of visible rows; None for a condition that only an engine can evaluate."""
        if data is None or self.tree is None:
            return None
        truths: list[Truth | Literal["unknown"]] = [truth_of_row(self.tree, row) for row in data]
        return None if "unknown" in truths else truths.count(True)


def _texts(policies: Iterable[Policy]) -> list[str]:
    return list(dict.fromkeys(policy.text.strip() for policy in policies))


def _joined(texts: Sequence[str], word: str) -> str:
    return texts[0] if len(texts) == 1 else f" {word} ".join(f"({text})" for text in texts)


def _tree(policy: Policy, reader: CallerIdentity) -> exp.Expr | None:
    """Return the tree of a filter with the name of the reader; None for a text without a certain reading."""
    if policy.dialect not in DIALECTS:
        return None
    try:
        tree = ParsedText(policy.text, policy.dialect).tree.copy()
    except RewriteRefused:
        return None

    def bound(node: exp.Expr) -> exp.Expr:
        is_caller = isinstance(node, (exp.SessionUser, exp.CurrentUser))
        return exp.Literal.string(reader.session_user) if is_caller else node

    return tree.transform(bound, copy=False)


class StoredDocument(NamedDocument, frozen=True):
    """Sound rules of one table of a store. The name is the place of all of them."""

    def place(self, where: Sequence[str | int]) -> Place:
        """Return the table as the place of each value."""
        return Place(self.name, 0, 0)


def stored_findings(rules: Iterable[RowPolicy]) -> tuple[list[NamedDocument], list[Finding]]:
    """Return the sound rules as one document per table, and the findings on all other rules."""
    sound: dict[TablePath, list[RowPolicy]] = {}
    findings = []
    for rule in sorted(rules, key=lambda rule: rule.key):
        problem = _problem(rule)
        if problem is not None:
            findings.append(problem)
        else:
            sound.setdefault(rule.table, []).append(rule)
    documents = [_document(table, some) for table, some in sound.items()]
    return documents, [*findings, *(finding for one in documents for finding in _notices(one))]


def rules_of_documents(documents: Iterable[NamedDocument]) -> tuple[frozenset[FoldedName], list[RowPolicy]]:
    """Return the names of all tables of documents, and the policies and masks as rules of a store.

    Raise InvalidArgument for a rule that the store refuses.
    """
    tables, rules = set(), []
    for source in documents:
        default = source.document.default
        tables |= {_covers(_path(name, default)) for name in source.document.tables}
        rules += [rule_of(body, _path(body.table, default)) for body in _bodies(source.document)]
    for rule in rules:
        for fault in _faults(rule, REFUSED):
            raise InvalidArgument(fault_message(rule, fault))
    return frozenset((*tables, *(rule.covers for rule in rules))), rules


def store_place(table: TablePath) -> str:
    """Return the place of the rules of a table, in place of a file."""
    return f"store:{key_text(('table', table)).removeprefix('table:')}"


def _problem(rule: RowPolicy) -> Finding | None:
    """Return the finding on a rule that hides everything; None for a sound rule."""
    if rule.tombstone:
        message = "the table was dropped: a new table of the name shows no row"
        return _finding("row-tombstone", "info", rule, message)
    for fault in _faults(rule, REFUSED - {"spelling"}):
        hides = "; the column is NULL for everybody" if rule.column else "; the policy shows no row"
        is_closed = fault.weight == "sql" or not any(one.grantees for one in stored_policies([rule]) if not rule.column)
        return _finding("row-unusable", "error", rule, f"{fault.message}{hides if is_closed else ''}")
    return None


def _faults(rule: RowPolicy, weights: Collection[Weight]) -> Iterator[Fault]:
    """Yield the faults of some weights of a rule of a store, whose tables and columns nobody knows here."""
    faults = faults_of(rule, NO_ROW_NAMES, NO_TABLES, is_complete=False)
    return (fault for fault in faults if fault.weight in weights)


def _notices(source: NamedDocument) -> Iterator[Finding]:
    """Yield the findings on filters and masks without a certain meaning in Trino."""
    for body in _bodies(source.document):
        alone = Document(policies=(body,)) if isinstance(body, PolicyBody) else Document(masks=(body,))
        try:
            for notice in compile_policies([NamedDocument(source.name, alone)], are_complete=False).warnings:
                yield Finding("row-closed-in-trino", "warning", source.name, 0, 0, body.id, notice.message)
        except PolicyError as error:
            message = error.message.removeprefix(f"{entry_name(body)}: ")
            yield Finding("row-unusable", "error", source.name, 0, 0, body.id, message)


def _document(table: TablePath, rules: Iterable[RowPolicy]) -> NamedDocument:
    bodies = [body_of(rule) for rule in rules]
    policies = tuple(body for body in bodies if isinstance(body, PolicyBody))
    masks = tuple(body for body in bodies if isinstance(body, MaskBody))
    return StoredDocument(store_place(table), Document(policies=policies, masks=masks))


def _bodies(document: Document) -> list[PolicyBody | MaskBody]:
    return [*document.policies, *document.masks]


def _path(text: str, default: Sequence[str]) -> TablePath:
    try:
        return table_path(text, default)
    except (ValueError, InvalidReference) as error:
        raise InvalidArgument(str(error)) from None


def _covers(table: TablePath) -> FoldedName:
    return fold_name(table[0], table[1:])


def _finding(code: str, severity: Severity, rule: RowPolicy, message: str) -> Finding:
    return Finding(code, severity, store_place(rule.table), 0, 0, rule.id, message)
