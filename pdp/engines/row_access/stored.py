"""Policies and masks of the store: who they name, and their SQL in Trino's. An unusable one hides, and never shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from pdp.engines.row_access.members import ALL_USERS, Grantee, parse_grantee
from pdp.engines.row_access.policies import KINDS, KINDS_WITH_VALUE, Mask, Policy, TablePolicies, Texts
from pdp.engines.row_access.trino import FALSE, UntranslatableSql
from pdp.facts.objects import key_text
from pdp.facts.row_policies import FoldedName, RowPolicy, fold_column

_PRINCIPALS: Final = ("user:", "role:")
_CLOSED: Final = "FALSE"
_EVERYBODY: Final = (Grantee(ALL_USERS),)


class StoredPolicy(NamedTuple):
    """Policy of a rule. A policy that shows no row has no grantees and the filter FALSE.

    An unusable `restrictive` one is for everybody, so that no row is left.

    `author` is the writer if the writer is a principal, whose rights bound what the filter may read.
    """

    id: str
    grantees: tuple[Grantee, ...] = ()
    text: str = _CLOSED
    dialect: str = "trino"
    author: str = ""
    others: Texts = ()
    restrictive: bool = False


class StoredMask(NamedTuple):
    """Mask of a rule on a folded column. The mask of an unusable rule is NULL for everybody."""

    rule: RowPolicy
    column: str
    kind: str = "null"
    grantees: tuple[Grantee, ...] = _EVERYBODY
    exempt: tuple[Grantee, ...] = ()


def stored_policies(rules: Iterable[RowPolicy]) -> Iterator[StoredPolicy]:
    """Yield the policies of one table. The tombstone of a mask closes a new table of the name, too."""
    for rule in rules:
        if rule.tombstone:
            yield StoredPolicy(rule.id)
        elif not rule.column:
            found = _members(rule)
            author = rule.author if rule.author.startswith(_PRINCIPALS) else ""
            if found:
                yield StoredPolicy(rule.id, found[0], rule.text, rule.dialect, author, rule.others, rule.restrictive)
            elif rule.restrictive:
                yield StoredPolicy(rule.id, _EVERYBODY, restrictive=True)
            else:
                yield StoredPolicy(rule.id)


def stored_masks(rules: Iterable[RowPolicy]) -> Iterator[StoredMask]:
    """Yield the masks of one table."""
    for rule in rules:
        if rule.column:
            column, found = fold_column(rule.column), _members(rule)
            is_usable = found is not None and not rule.tombstone and rule.kind in KINDS
            yield StoredMask(rule, column, rule.kind, *found) if found and is_usable else StoredMask(rule, column)


def is_filed(tables: Mapping[FoldedName, TablePolicies], rule: RowPolicy) -> bool:
    """Tell whether files give the id of a policy or mask to another one of the same table or column."""
    filed = tables.get(rule.covers)
    if filed is None:
        return False
    others = filed.masks.get(fold_column(rule.column), ()) if rule.column else filed.policies
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


def _members(rule: RowPolicy) -> tuple[tuple[Grantee, ...], tuple[Grantee, ...]] | None:
    """Return grantees and exempt members; None for an unreadable one, and for a rule without grantees."""
    try:
        grantees, exempt = (tuple(map(parse_grantee, texts)) for texts in (rule.grantees, rule.exempt))
    except ValueError:
        return None
    return (grantees, exempt) if grantees else None


def compile_stored_policy(policy: StoredPolicy, identity: str, types: Mapping[str, str] | None = None) -> Policy:
    """Return a policy in Trino's SQL.

    Trino evaluates the joined filters of a table as one user. Beside a file that names this user, a filter of the store
    shows no row: the filter was written for the caller.
    """
    if not policy.grantees:
        return Policy(policy.id, (), FALSE, identity)
    try:
        predicate = _filter(policy, types)
    except ValueError:
        return Policy(policy.id, policy.grantees if policy.restrictive else (), FALSE, identity, policy.restrictive)
    if predicate is not None and identity:
        predicate = FALSE
    return Policy(policy.id, policy.grantees, predicate, identity, policy.restrictive)


def _filter(policy: StoredPolicy, types: Mapping[str, str] | None) -> str | None:
    from pdp.engines.row_access.dialects import translate_filter  # noqa: PLC0415  30 MB

    try:
        return translate_filter(policy.text, policy.dialect, types)
    except UntranslatableSql:
        return FALSE


def compile_stored_mask(mask: StoredMask, types: Mapping[str, str] | None = None) -> Mask:
    """Return a mask in Trino's SQL; NULL if the value has no certain meaning there."""
    rule = mask.rule
    if mask.kind not in KINDS_WITH_VALUE:
        return Mask(rule.id, mask.kind, mask.grantees, mask.exempt)
    from pdp.engines.row_access.dialects import translate_constant, translate_expression  # noqa: PLC0415  30 MB

    try:
        is_constant = mask.kind == "constant"
        value = translate_constant(rule.text) if is_constant else translate_expression(rule.text, rule.dialect, types)
    except ValueError:
        return Mask(rule.id, "null", mask.grantees, mask.exempt)
    return Mask(rule.id, mask.kind, mask.grantees, mask.exempt, value)
