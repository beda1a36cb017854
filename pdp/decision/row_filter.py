"""Row filters: the visible rows of a table, and the masks of its columns. Row access is no verdict of an authority."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from pdp.audit.records.record import DecidedCheck, LeafDecision
from pdp.decision.acting_roles import context_of
from pdp.decision.plan import Planners
from pdp.decision.ports import DecisionSnapshot
from pdp.decision.turns import Resumable, TurnClock
from pdp.engines.engine import ABSTAIN, PERMIT, Verdicts
from pdp.engines.row_access.engine import KnownMasks, Restriction, hide_everything
from pdp.engines.row_access.explain import RowExplanation, explain_restriction
from pdp.errors import InvalidArgument
from pdp.model.answer import DEFAULT_DENY, Predicate, Reason, TableAccess, TypedColumn
from pdp.model.question import Batch

FEW_COLUMNS: Final = 256
_COLUMN_PART: Final = 16
"""Columns whose masks may be made in one go, and those between two looks at the clock."""


class DecidedAccess(NamedTuple):
    """Visible part of a table, and the id of the decision."""

    view: TableAccess
    id: str


def restrict(planners: Planners, batch: Batch, basis: DecisionSnapshot) -> tuple[Restriction, tuple[DecidedCheck, ...]]:
    """Return the restriction of the table of a batch of one check, with the check for the record."""
    if batch.rejected:
        return hide_everything(batch.rejected[0].by), ()
    check = batch.checks[0]
    if check.question.inspected:
        return hide_everything("denied"), ()
    table = check.resources[0]
    context = context_of(check, basis.bundle, basis.facts, stale=basis.stale)
    restriction = planners.restriction(context, table)
    verdicts = Verdicts(bytes([PERMIT if restriction.shows_rows else ABSTAIN]), [restriction.by])
    group = context.group(table.type, check.question.action, table)
    leaf = LeafDecision(group, check.resources, check.at, verdicts)
    return restriction, (DecidedCheck(check, True, (leaf,), verdicts),)


def explain_rows(batch: Batch, basis: DecisionSnapshot) -> RowExplanation:
    """Return the explained restriction of the table of a batch of one check; raise InvalidArgument if rejected."""
    if batch.rejected:
        raise InvalidArgument(batch.rejected[0].message)
    check = batch.checks[0]
    context = context_of(check, basis.bundle, basis.facts, stale=basis.stale)
    return explain_restriction(basis.bundle.row_access, context.principal, check.resources[0], basis.facts)


def row_view(
    restriction: Restriction, columns: Sequence[TypedColumn]
) -> Resumable[tuple[TableAccess, dict[str, Reason | None]]]:
    """Return the view of a table and the reasons of its masks, as `Restriction.row_view` does."""
    known: KnownMasks = {}
    reasons: dict[str, Reason | None] = {}
    masks: list[Predicate | None] = []
    pace = TurnClock()
    for start in range(0, len(columns), _COLUMN_PART):
        masks += restriction.mask_columns(columns[start : start + _COLUMN_PART], known, reasons)
        if pace.is_over():
            yield
            pace.begin()
    return TableAccess(restriction.rows, tuple(masks), restriction.more_rows), reasons


def hidden_view(columns: Sequence[TypedColumn]) -> TableAccess:
    """Return the view of a table without rows and values, for requests that fail."""
    return hide_everything(DEFAULT_DENY).row_view(columns)[0]
