"""Recorded checks decided by a service, in the same way for every replay. Compares nothing and reads no file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from pdp.audit.records.record import DecisionRecord
from pdp.audit.records.recorded import RecordedCheck, RecordedOutcome, view_outcome
from pdp.decision.service import Pdp
from pdp.identity.callers import EMBEDDED_CALLER
from pdp.model.events import Event
from pdp.model.question import DEFAULT_DENY, Batch, RowView, TypedColumn
from pdp.offline.replay import EqualChecks, at_recorded_time, batch_of, outcome_at

_ANY_TYPE: Final = "varchar"
"""Type of the columns of a repeated row view. The reason of a mask does not depend on the type."""


class LastRecord:
    """Audit that keeps the newest record alone."""

    def __init__(self) -> None:
        self.record: DecisionRecord | None = None

    def admit(self) -> None:
        """Accept every request."""

    def append(self, record: DecisionRecord) -> None:
        """Keep a record in place of the one before."""
        self.record = record

    def note(self, event: Event) -> bool:
        """Drop an event."""
        return True


class RepeatedView(NamedTuple):
    """Row view that was made again: its outcome as recorded, and the filter and the masks behind."""

    outcome: RecordedOutcome
    view: RowView


async def decide_again(pdp: Pdp, audit: LastRecord, equals: Sequence[EqualChecks]) -> list[RecordedOutcome]:
    """Return the outcomes of checks and row views, in order. `audit` is the audit of the service."""
    timed = at_recorded_time if pdp.bundle.reads_time else lambda recorded: recorded
    checks = [equal.first for equal in equals if equal.first.masks is None]
    outcomes: list[RecordedOutcome] = []
    if checks:
        answer = await pdp.check(batch_of([timed(recorded).check for recorded in checks]))
        outcomes = [outcome_at(answer, at) for at in range(len(checks))]
    if len(checks) == len(equals):
        return outcomes
    left = iter(outcomes)
    return [
        next(left) if equal.first.masks is None else view_again(pdp, audit, timed(equal.first)).outcome
        for equal in equals
    ]


def view_again(pdp: Pdp, audit: LastRecord, recorded: RecordedCheck) -> RepeatedView:
    """Return a row view: whether rows are shown, and the reasons of the row filter and of each mask."""
    columns = [TypedColumn(name, _ANY_TYPE) for name in recorded.masks or ()]
    decided = pdp.filter(Batch("replay", EMBEDDED_CALLER, 1, (recorded.check,)), columns)
    record = audit.record
    assert record
    answer, masks = record.answer, record.masks or {}
    return RepeatedView(view_outcome(bool(answer.allowed[0]), answer.by[0] or DEFAULT_DENY, masks), decided.view)
