"""Replay of checks under two sets of policies. Reads no file and records nothing.

Memory is bounded for any number of checks: they are decided in windows, and equal checks of a window only once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, TypeAlias

import msgspec

from pdp.audit.records.recorded import RecordedCheck, RecordedOutcome
from pdp.decision.service import Pdp
from pdp.identity.callers import EMBEDDED_CALLER
from pdp.model.question import DEFAULT_DENY, Answer, Batch, Check, CheckGrouper
from pdp.offline.differences import ChangedCheck, Differences, difference_kind

WINDOW: Final = 20_000
"""Different checks that are decided together."""


def _no_progress(_: Differences) -> None:
    pass


async def replay(
    recorded: Iterable[RecordedCheck],
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


def at_recorded_time(recorded: RecordedCheck) -> RecordedCheck:
    """Return a check that is decided as if at the time of its record. A check without a record has no such time."""
    check = recorded.check
    if check.env.now or not recorded.time:
        return recorded
    env = msgspec.structs.replace(check.env, now=int(datetime.fromisoformat(recorded.time).timestamp()))
    return msgspec.structs.replace(recorded, check=msgspec.structs.replace(check, env=env))


class EqualChecks:
    """Equal checks: the first of their records by time, and their number."""

    __slots__ = ("count", "first")

    def __init__(self, recorded: RecordedCheck) -> None:
        self.first = recorded
        self.count = 0

    def add(self, recorded: RecordedCheck) -> None:
        """Count a check, and keep the earlier record."""
        self.count += 1
        if _position(recorded) < _position(self.first):
            self.first = recorded


_Window: TypeAlias = Mapping[Hashable, EqualChecks]
"""Key of everything that a decision depends on -> the checks with this key."""


def windows(recorded: Iterable[RecordedCheck], *, by_revision: bool = False) -> Iterator[_Window]:
    """Yield equal checks together, in windows. `by_revision`: checks of two revisions differ."""
    window: dict[Hashable, EqualChecks] = {}
    for each in recorded:
        check = each.check
        # the recorded outcome is part of the key: equal checks may have been decided differently over time
        key = (
            check.principal, check.action, check.delegated, check.acting_role, check.env, check.inspected,
            check.view_security, each.key, each.outcome, each.masks,
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


def _position(recorded: RecordedCheck) -> tuple[str, str, int]:
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
