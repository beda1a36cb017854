"""Row views compared: rows and columns that a principal sees newly, or no longer.

Filters are sets of predicates: any one predicate of a policy suffices. So a further predicate may show rows, and a
missing predicate may hide rows. A changed predicate may do both. Nothing here evaluates SQL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from pdp.decision.service import Pdp
from pdp.engines.row_access.engine import NO_ROWS, REASON_PREFIX
from pdp.engines.row_access.trino import bind_caller, join_filters, null_sql
from pdp.model.answer import Predicate
from pdp.model.question import Check
from pdp.offline.replay.differences import DifferenceKind
from pdp.offline.replay.replay import RepeatedAccess

EVERY_ROW: Final = "every row"
NO_ROW: Final = "no row"
_NULL: Final = null_sql("varchar")


class AccessChange(NamedTuple):
    """Change of a row view. `seen` and `hidden` are columns. `rows_seen`: further rows may be visible."""

    kind: DifferenceKind
    rows_before: str
    rows_after: str
    rows_seen: bool
    rows_hidden: bool
    seen: tuple[str, ...]
    hidden: tuple[str, ...]


class PolicyAccess(NamedTuple):
    """Row view with the predicates of its filter: None for every row, none for no row."""

    repeated: RepeatedAccess
    predicates: frozenset[str] | None


def policy_view(pdp: Pdp, check: Check, repeated: RepeatedAccess) -> PolicyAccess:
    """Return a row view with the predicates of its policies."""
    rows = repeated.view.rows
    if rows is None:
        return PolicyAccess(repeated, None)
    if rows == NO_ROWS:
        return PolicyAccess(repeated, frozenset())
    return PolicyAccess(repeated, _parts(pdp, check, rows, repeated.outcome.by))


def _parts(pdp: Pdp, check: Check, rows: Predicate, by: str) -> frozenset[str]:
    """Return the predicates of a filter; the filter as one predicate if the policies do not explain it."""
    ids = set(by.partition(" (")[0].removeprefix(REASON_PREFIX).split(","))
    policies = pdp.bundle.row_access.policies_of(check.resources[0], pdp.source.facts).policies
    user = pdp.bundle.row_access.members.session_user(check.question.principal)
    texts = [policy.predicate for policy in policies if policy.id in ids and policy.predicate is not None]
    parts = [bind_caller(text, user) for text in texts]
    if not parts or join_filters(parts) != rows.expression:
        parts = [rows.expression]
    return frozenset(f"{part} (as {rows.identity})" if rows.identity else part for part in parts)


def compare_views(columns: Sequence[str], before: PolicyAccess, after: PolicyAccess) -> AccessChange | None:
    """Return the change between two row views of the same columns; None if nothing changes, reasons included."""
    old, new = before.predicates, after.predicates
    rows_seen = old is not None and (new is None or bool(new - old))
    rows_hidden = new is not None and (old is None or bool(old - new))
    was, now = before.repeated.view.more_rows, after.repeated.view.more_rows
    if was != now:  # visible rows pass both filters: another one of the query's user may show more, and hide more
        rows_seen, rows_hidden = rows_seen or was is not None, rows_hidden or now is not None
    masks = list(zip(columns, before.repeated.view.masks, after.repeated.view.masks, strict=True))
    seen = tuple(name for name, was, now in masks if _may_show(was, now))
    hidden = tuple(name for name, was, now in masks if _may_show(now, was))
    kind: DifferenceKind = "reason"
    if rows_seen or seen:
        kind = "gained"
    elif rows_hidden or hidden:
        kind = "lost"
    elif before.repeated.outcome == after.repeated.outcome:
        return None
    return AccessChange(kind, _text(old, was), _text(new, now), rows_seen, rows_hidden, seen, hidden)


def _may_show(was: Predicate | None, now: Predicate | None) -> bool:
    """Tell whether the new mask of a column may show more values than the old mask."""
    return was is not None and was != now and (now is None or now.expression != _NULL)


def _text(predicates: frozenset[str] | None, more: Predicate | None) -> str:
    text = EVERY_ROW if predicates is None else join_filters(sorted(predicates)) if predicates else NO_ROW
    return text if more is None else f"{text}, and {more.expression} (as {more.identity or 'the user'})"
