"""Recorded checks decided again at their recorded revision, and compared with what was decided then.

The result has no difference if the records, the bundles, the history of facts and this version of the product agree.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from pdp.audit.record import DecisionRecord
from pdp.audit.recorded import ReadReport, RecordedCheck, RecordedOutcome, view_outcome
from pdp.decision.service import Pdp
from pdp.errors import InvalidArgument
from pdp.identity.callers import EMBEDDED_CALLER
from pdp.model.checks import DEFAULT_DENY, Batch, TypedColumn
from pdp.model.events import Event
from pdp.model.revision import Revision
from pdp.offline.differences import ChangedCheck, Differences, difference_kind
from pdp.offline.recorded_basis import RecordedBasis, UndecidableCheck
from pdp.offline.replay import EqualChecks, at_recorded_time, batch_of, outcome_at, windows

_ANY_TYPE: Final = "varchar"
"""Type of the columns of a repeated row view. The reason of a mask does not depend on the type."""


class _Place(NamedTuple):
    """Everything that recorded checks were decided from. Sorts by time within an epoch."""

    epoch: str
    sequence: int
    revision: str
    stale: bool


class _LastRecord:
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


async def repeat_recorded(
    recorded: Iterable[RecordedCheck],
    basis: RecordedBasis,
    reading: ReadReport,
    progress: Callable[[Differences], None],
) -> Differences:
    """Return the differences from the recorded decisions to those that the audit folder leads to.

    Count in `reading` what cannot be decided again, by reason. `progress` is called after each window.
    """
    differences = Differences()
    for window in windows(recorded, by_revision=True):
        for place, equals in _by_place(window.values()):
            audit = _LastRecord()
            try:
                pdp = basis.pdp(place.revision, audit, stale=place.stale)
            except UndecidableCheck as error:
                count = sum(equal.count for equal in equals)
                reading.skip(error.cause, f"decision {equals[0].first.decision}, {error.place}", count)
                continue
            async for change in _changes(pdp, audit, equals):
                differences.add(change)
            differences.checks += sum(equal.count for equal in equals)
        progress(differences)
    return differences


def _by_place(window: Iterable[EqualChecks]) -> Iterator[tuple[_Place, Sequence[EqualChecks]]]:
    """Yield the checks of a window by revision, oldest first, so that the facts only advance."""
    places: dict[_Place, list[EqualChecks]] = {}
    for equal in window:
        places.setdefault(_place(equal.first), []).append(equal)
    for place in sorted(places):
        yield place, places[place]


def _place(recorded: RecordedCheck) -> _Place:
    try:
        revision = Revision.parse(recorded.revision)
    except InvalidArgument:
        return _Place("", 0, recorded.revision, recorded.stale)
    return _Place(revision.epoch, revision.sequence, recorded.revision, recorded.stale)


async def _changes(pdp: Pdp, audit: _LastRecord, equals: Sequence[EqualChecks]) -> AsyncIterator[ChangedCheck]:
    """Yield the checks that the service decides otherwise than recorded."""
    timed = at_recorded_time if pdp.bundle.reads_time else lambda recorded: recorded
    decided = [equal for equal in equals if equal.first.masks is None]
    found: list[tuple[EqualChecks, RecordedOutcome]] = []
    if decided:
        answer = await pdp.check(batch_of([timed(equal.first).check for equal in decided]))
        found += ((equal, outcome_at(answer, at)) for at, equal in enumerate(decided))
    found += ((equal, _view(pdp, audit, timed(equal.first))) for equal in equals if equal.first.masks is not None)
    for equal, after in found:
        before = equal.first.outcome
        kind = difference_kind(before, after) if before else None
        if before and kind:
            yield ChangedCheck(kind, equal.first, before, after, equal.count)


def _view(pdp: Pdp, audit: _LastRecord, recorded: RecordedCheck) -> RecordedOutcome:
    """Return whether rows are shown, and the reasons of the row filter and of each mask."""
    columns = [TypedColumn(name, _ANY_TYPE) for name in recorded.masks or {}]
    pdp.filter(Batch("replay", EMBEDDED_CALLER, 1, (recorded.check,)), columns)
    record = audit.record
    assert record
    answer, masks = record.answer, record.masks or {}
    return view_outcome(bool(answer.allowed[0]), answer.by[0] or DEFAULT_DENY, masks)
