"""Values of a read audit folder: recorded checks, the filter of a reading, and the counts of skipped entries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

import msgspec

from pdp.model.question import Check

MAX_NAMED: Final = 20
"""Kinds of skips that are counted by name; all further kinds are counted together."""


class RecordedOutcome(msgspec.Struct, frozen=True, gc=False):
    """The decision in a record. `errors` is None if the record does not hold any."""

    allowed: bool
    by: str
    errors: tuple[str, ...] | None = ()


class RecordedCheck(msgspec.Struct, frozen=True, gc=False):
    """A check of one resource that can be decided again.

    `key` is the resource with all its inputs as text: equal keys are equal resources. `outcome` is None for a check
    that was never decided. `decision` (the record's id), `at` and `time` name the source, if that is a record.
    `revision` is the one that decided; `stale`: its facts were too old to permit anything. `masks` are the columns of
    a row view, None for a decision. `rate` is the share of such requests that got a record.
    """

    check: Check
    key: str
    outcome: RecordedOutcome | None = None
    decision: str = ""
    at: int = 0
    time: str = ""
    revision: str = ""
    stale: bool = False
    masks: tuple[str, ...] | None = None
    rate: float = 1.0


def view_outcome(allowed: bool, by: str, masks: Mapping[str, str | None]) -> RecordedOutcome:
    """Return the outcome of a row view: whether rows are shown, and the reasons of the filter and of each mask."""
    reasons = ", ".join(f"{column}: {reason or 'no mask'}" for column, reason in masks.items())
    return RecordedOutcome(allowed, f"{by} ({reasons})" if reasons else by)


class RecordFilter(msgspec.Struct, frozen=True):
    """A choice of records and checks; times as records write them, `since` inclusive, `until` exclusive.

    `listings` includes the checks behind listings, which are hypothetical and many. `at_revision`: the checks are
    decided again at their revision. Then row views are included, and listings over several revisions are not.
    """

    since: str = ""
    until: str = ""
    principal: str = ""
    listings: bool = False
    at_revision: bool = False


class ReadReport:
    """Counts of a reading: checks, and everything that gave no check, by kind with the first place of each kind."""

    def __init__(self) -> None:
        self.files = 0
        self.records = 0
        """Decision records, inside the filter or not."""
        self.checks = 0
        self.filtered = 0
        """Checks outside the filter."""
        self.listings = 0
        """Records of listings outside the filter."""
        self.row_filters = 0
        """Records of row views outside the filter."""
        self.sampled = self.left_out = 0
        """Records of sampled permits, and records that were left out before a record."""
        self.events = 0
        """Records of refusals, of management and of the service: they hold no decision."""
        self.rejected = 0
        """Positions without a check already when recorded, such as a malformed check."""
        self.torn: list[str] = []
        """Last lines that a crash left unfinished, as `file:line`."""
        self.skipped: Counter[str] = Counter()
        """Cause -> number of unusable lines and checks."""
        self.first: dict[str, str] = {}
        """Cause -> place of the first skip."""
        self.bundles: set[str] = set()
        """Digests of the bundles behind the decisions."""

    def skip(self, why: str, place: str, count: int = 1) -> None:
        """Count an unusable line or check."""
        if why not in self.skipped and len(self.skipped) >= MAX_NAMED:
            why = "other"
        self.skipped[why] += count
        self.first.setdefault(why, place)
