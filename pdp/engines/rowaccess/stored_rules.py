"""Rules of the store as policies and masks, before any engine translates their SQL. An unusable rule shows nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from pdp.engines.rowaccess.document import KINDS
from pdp.engines.rowaccess.members import ALL_USERS, Grantee, parse_grantee
from pdp.facts.row_policies import RowRule, fold_column

_PRINCIPALS: Final = ("user:", "role:")
_CLOSED: Final = "FALSE"
_EVERYBODY: Final = (Grantee(ALL_USERS),)


class StoredPolicy(NamedTuple):
    """Policy of a rule. A policy that shows no row has no grantees and the filter FALSE.

    `author` is the writer if the writer is a principal, whose rights bound what the filter may read.
    """

    id: str
    grantees: tuple[Grantee, ...] = ()
    text: str = _CLOSED
    dialect: str = "trino"
    author: str = ""


class StoredMask(NamedTuple):
    """Mask of a rule on a folded column. The mask of an unusable rule is NULL for everybody."""

    rule: RowRule
    column: str
    kind: str = "null"
    grantees: tuple[Grantee, ...] = _EVERYBODY
    exempt: tuple[Grantee, ...] = ()


def stored_policies(rules: Iterable[RowRule]) -> Iterator[StoredPolicy]:
    """Yield the policies of one table. The tombstone of a mask closes a new table of the name, too."""
    for rule in rules:
        if rule.tombstone:
            yield StoredPolicy(rule.id)
        elif not rule.column:
            found = _members(rule)
            author = rule.author if rule.author.startswith(_PRINCIPALS) else ""
            yield StoredPolicy(rule.id, found[0], rule.text, rule.dialect, author) if found else StoredPolicy(rule.id)


def stored_masks(rules: Iterable[RowRule]) -> Iterator[StoredMask]:
    """Yield the masks of one table."""
    for rule in rules:
        if rule.column:
            column, found = fold_column(rule.column), _members(rule)
            is_usable = found is not None and not rule.tombstone and rule.kind in KINDS
            yield StoredMask(rule, column, rule.kind, *found) if found and is_usable else StoredMask(rule, column)


def _members(rule: RowRule) -> tuple[tuple[Grantee, ...], tuple[Grantee, ...]] | None:
    """Return grantees and exempt members; None for an unreadable one, and for a rule without grantees."""
    try:
        grantees, exempt = (tuple(map(parse_grantee, texts)) for texts in (rule.grantees, rule.exempt))
    except ValueError:
        return None
    return (grantees, exempt) if grantees else None
