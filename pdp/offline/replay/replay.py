"""Replay of checks: under two sets of policies, or at the recorded revision beside what was decided then.

Reads no file and records nothing. Memory is bounded for any number of checks: they are decided in windows, and equal
checks of a window only once.

A replay at the recorded revision finds no difference if the records, the bundles, the history of facts and this version
of the product agree.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

import msgspec

from pdp.audit.records.record import AnyRecord, DecisionRecord
from pdp.audit.records.recorded import ReadReport, RecordedOutcome, ReplayCheck, view_outcome
from pdp.decision.service import Pdp
from pdp.errors import InvalidArgument
from pdp.identity.callers import EMBEDDED_CALLER
from pdp.model.answer import DEFAULT_DENY, Answer, TableAccess, TypedColumn
from pdp.model.events import OPEN_GATE, AnswerHold, Event
from pdp.model.question import Batch, Check, CheckGrouper
from pdp.model.revision import Revision
from pdp.offline.replay.basis import HistoricalPdps, UndecidableCheck
from pdp.offline.replay.differences import ChangedCheck, Differences, difference_kind

WINDOW: Final = 20_000
"""Different checks that are decided together."""


def _no_progress(_: Differences) -> None:
    pass


async def replay(
    recorded: Iterable[ReplayCheck],
    baseline: Pdp | None,
    candidate: Pdp,
    progress: Callable[[Differences], None] = _no_progress,
) -> Differences:
    """Return the differences from `baseline` to `candidate`; without a baseline, from the recorded outcomes.

    `progress` is called with the differences so far, after each window.
    """
    differences = Differences()
    if any(pdp.bundle.reads_time for pdp in (baseline, candidate) if pdp):
        recorded = map(at_recorded_time, recorded)
    for window in windows(recorded):
        async for change in _changes(window, baseline, candidate):
            differences.add(change)
        differences.checks += sum(equal.count for equal in window.values())
        progress(differences)
    return differences


def at_recorded_time(recorded: ReplayCheck) -> ReplayCheck:
    """Return a check that is decided as if at the time of its record. A check without a record has no such time."""
    check = recorded.check
    if check.question.context.now or not recorded.time:
        return recorded
    now = int(datetime.fromisoformat(recorded.time).timestamp())
    context = msgspec.structs.replace(check.question.context, now=now)
    return msgspec.structs.replace(recorded, check=check.asking(context=context))


class EqualChecks:
    """Equal checks: the first of their records by time, and their number."""

    __slots__ = ("count", "first")

    def __init__(self, recorded: ReplayCheck) -> None:
        self.first = recorded
        self.count = 0

    def add(self, recorded: ReplayCheck) -> None:
        """Count a check, and keep the earlier record."""
        self.count += 1
        if _position(recorded) < _position(self.first):
            self.first = recorded


_Window: TypeAlias = Mapping[Hashable, EqualChecks]
"""Key of everything that a decision depends on -> the checks with this key."""


def windows(recorded: Iterable[ReplayCheck], *, by_revision: bool = False) -> Iterator[_Window]:
    """Yield equal checks together, in windows. `by_revision`: checks of two revisions differ."""
    window: dict[Hashable, EqualChecks] = {}
    for each in recorded:
        check = each.check
        # the recorded outcome is part of the key: equal checks may have been decided differently over time
        key = (
            check.question, each.key, each.outcome, each.masks,
            (each.revision, each.stale) if by_revision else None,
        )  # fmt: skip
        equal = window.get(key)
        if equal is None:
            if len(window) >= WINDOW:
                yield window
                window = {}
            equal = window[key] = EqualChecks(each)
        equal.add(each)
    if window:
        yield window


def _position(recorded: ReplayCheck) -> tuple[str, str, int]:
    return recorded.time, recorded.decision, recorded.at


async def _changes(window: _Window, baseline: Pdp | None, candidate: Pdp) -> AsyncIterator[ChangedCheck]:
    batch = batch_of([equal.first.check for equal in window.values()])
    old = await baseline.check(batch) if baseline else None
    new = await candidate.check(batch)
    if old and (old.allowed, old.by, old.errors) == (new.allowed, new.by, new.errors):
        return  # the usual case: no need to look at each check
    for at, equal in enumerate(window.values()):
        before = outcome_at(old, at) if old else equal.first.outcome
        after = outcome_at(new, at)
        kind = difference_kind(before, after) if before else None
        if before and kind:
            yield ChangedCheck(kind, equal.first, before, after, equal.count)


def batch_of(checks: Sequence[Check]) -> Batch:
    """Return a batch of checks that have a single resource each."""
    grouper = CheckGrouper()
    for at, check in enumerate(checks):
        grouper.put(check, at)
    return Batch("replay", EMBEDDED_CALLER, len(checks), grouper.checks())


def outcome_at(answer: Answer, at: int) -> RecordedOutcome:
    """Return the decision at one position of an answer."""
    allowed = bool(answer.allowed[at])
    return RecordedOutcome(allowed, answer.by[at] or DEFAULT_DENY, () if allowed else answer.errors.get(at, ()))


_ANY_TYPE: Final = "varchar"
"""Type of the columns of a repeated row view. The reason of a mask does not depend on the type."""


class CapturingAudit:
    """Audit that keeps the newest record alone."""

    gate: AnswerHold = OPEN_GATE

    def __init__(self) -> None:
        self.record: DecisionRecord | None = None

    def admit(self) -> None:
        """Accept every request."""

    def append(self, record: AnyRecord) -> None:
        """Keep a record in place of the one before."""
        self.record = record.whole()

    def note(self, event: Event) -> bool:
        """Drop an event."""
        return True


class RepeatedAccess(NamedTuple):
    """Row view that was made again: its outcome as recorded, and the filter and the masks behind."""

    outcome: RecordedOutcome
    view: TableAccess


async def decide_again(pdp: Pdp, audit: CapturingAudit, equals: Sequence[EqualChecks]) -> list[RecordedOutcome]:
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


def view_again(pdp: Pdp, audit: CapturingAudit, recorded: ReplayCheck) -> RepeatedAccess:
    """Return a row view: whether rows are shown, and the reasons of the row filter and of each mask."""
    columns = [TypedColumn(name, _ANY_TYPE) for name in recorded.masks or ()]
    decided = pdp.restrict(Batch("replay", EMBEDDED_CALLER, 1, (recorded.check,)), columns)
    record = audit.record
    assert record
    answer, masks = record.answer, record.masks or {}
    return RepeatedAccess(view_outcome(bool(answer.allowed[0]), answer.by[0] or DEFAULT_DENY, masks), decided.view)


class RecordedPlace(NamedTuple):
    """Everything that recorded checks were decided from. Sorts by time within an epoch."""

    epoch: str
    sequence: int
    revision: str
    stale: bool


async def repeat_recorded(
    recorded: Iterable[ReplayCheck],
    basis: HistoricalPdps,
    reading: ReadReport,
    progress: Callable[[Differences], None],
) -> Differences:
    """Return the differences from the recorded decisions to those that the audit folder leads to.

    Count in `reading` what cannot be decided again, by reason. `progress` is called after each window.
    """
    differences = Differences()
    for window in windows(recorded, by_revision=True):
        for place, equals in by_place(window.values()):
            audit = CapturingAudit()
            try:
                pdp = basis.pdp(place.revision, audit, stale=place.stale)
            except UndecidableCheck as error:
                count = sum(equal.count for equal in equals)
                reading.skip(error.cause, f"decision {equals[0].first.decision}, {error.place}", count)
                continue
            async for change in _changes_from_records(pdp, audit, equals):
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


def _place(recorded: ReplayCheck) -> RecordedPlace:
    try:
        revision = Revision.parse(recorded.revision)
    except InvalidArgument:
        return RecordedPlace("", 0, recorded.revision, recorded.stale)
    return RecordedPlace(revision.epoch, revision.sequence, recorded.revision, recorded.stale)


async def _changes_from_records(
    pdp: Pdp, audit: CapturingAudit, equals: Sequence[EqualChecks]
) -> AsyncIterator[ChangedCheck]:
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
