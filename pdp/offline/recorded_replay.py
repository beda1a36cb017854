"""Recorded checks decided again at their recorded revision, and compared with what was decided then.

The result has no difference if the records, the bundles, the history of facts and this version of the product agree.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple

from pdp.audit.records.recorded import ReadReport, RecordedCheck, RecordedOutcome
from pdp.decision.service import Pdp
from pdp.errors import InvalidArgument
from pdp.model.revision import Revision
from pdp.offline.deciding_again import LastRecord, decide_again
from pdp.offline.differences import ChangedCheck, Differences, difference_kind
from pdp.offline.recorded_basis import RecordedBasis, UndecidableCheck
from pdp.offline.replay import EqualChecks, windows


class RecordedPlace(NamedTuple):
    """Everything that recorded checks were decided from. Sorts by time within an epoch."""

    epoch: str
    sequence: int
    revision: str
    stale: bool


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
        for place, equals in by_place(window.values()):
            audit = LastRecord()
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


def by_place(window: Iterable[EqualChecks]) -> Iterator[tuple[RecordedPlace, Sequence[EqualChecks]]]:
    """Yield the checks of a window by revision, oldest first, so that the facts only advance."""
    places: dict[tuple[str, bool], list[EqualChecks]] = {}
    for equal in window:
        places.setdefault((equal.first.revision, equal.first.stale), []).append(equal)
    yield from sorted(((_place(equals[0].first), equals) for equals in places.values()), key=itemgetter(0))


def _place(recorded: RecordedCheck) -> RecordedPlace:
    try:
        revision = Revision.parse(recorded.revision)
    except InvalidArgument:
        return RecordedPlace("", 0, recorded.revision, recorded.stale)
    return RecordedPlace(revision.epoch, revision.sequence, recorded.revision, recorded.stale)


async def _changes(pdp: Pdp, audit: LastRecord, equals: Sequence[EqualChecks]) -> AsyncIterator[ChangedCheck]:
    """Yield the checks that the service decides otherwise than recorded."""
    for equal, after in zip(equals, await decide_again(pdp, audit, equals), strict=True):
        change = change_from_record(equal, after)
        if change:
            yield change


def change_from_record(equal: EqualChecks, after: RecordedOutcome) -> ChangedCheck | None:
    """Return the change from the recorded outcome; None if there is no record or no change."""
    before = equal.first.outcome
    kind = difference_kind(before, after) if before else None
    return ChangedCheck(kind, equal.first, before, after, equal.count) if before and kind else None
