"""Sampling of permits: leaves out records of permitted requests by rules, and counts what is left out.

A request is sampled only if every decision of it permits without an error, and a rule matches each of its checks. The
id of the decision alone tells whether a record stays, so everybody who knows the id and the rate can tell, too.

Owns two further remarks about missing records as well: the count of records dropped because too many waited, and jumps
of the clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol
from zlib import crc32

import msgspec

from pdp.audit.records.record import LISTING, DecisionRecord
from pdp.audit.records.writing import timestamp
from pdp.model.bounded_cache import BoundedCache
from pdp.model.events import Event, ServiceEvent
from pdp.model.question import Check

_KEPT: Final = 4096
_LONGEST_KEPT: Final = 1000
"""Questions whose rate is kept, and the most characters of such a question."""
_VALUES: Final = 1 << 32
"""Number of values of a CRC-32."""


class TextPattern(Protocol):
    """Compiled pattern."""

    def fullmatch(self, text: str) -> object | None:
        """Return a match of the whole text; None if there is none."""
        ...


class SampleRule(msgspec.Struct, frozen=True):
    """A rate for the checks whose surface, action and principal match."""

    rate: float
    surfaces: TextPattern
    actions: TextPattern
    principals: TextPattern

    def matches(self, surface: str, action: str, principal: str) -> bool:
        """Tell whether the rule covers a check."""
        return bool(
            self.surfaces.fullmatch(surface) and self.actions.fullmatch(action) and self.principals.fullmatch(principal)
        )


class AllowSampler:
    """Sampler of one instance: call from the event loop only.

    The next record after some that were left out has their number as `leftOut`, and so has the last record of the
    service's life.
    """

    def __init__(self, rules: Sequence[SampleRule], count_left_out: Callable[[], None]) -> None:
        self._rules = rules
        self._count = count_left_out
        self._left_out = 0
        """Records that were left out since the last record."""
        self._rates: BoundedCache[tuple[str, str, str], float] = BoundedCache(_KEPT, _LONGEST_KEPT)

    def sampled(self, record: DecisionRecord) -> DecisionRecord | None:
        """Return a record as it is to be written; None to leave it out."""
        rate = self._rate(record) if _may_be_sampled(record) else 1.0
        if not is_kept(record.answer.id, rate):
            self._left_out += 1
            self._count()
            return None
        if rate == 1 and not self._left_out:
            return record
        left_out, self._left_out = self._left_out, 0
        return msgspec.structs.replace(record, sampled=rate, left_out=left_out)

    def give_back(self, record: DecisionRecord) -> None:
        """Let the next record tell what a record would have told that is dropped."""
        self._left_out += record.left_out

    def announced(self, event: Event) -> Event:
        """Return an event as it is to be written: one of the service tells what was left out before."""
        if not self._left_out or not isinstance(event, ServiceEvent):
            return event
        left_out, self._left_out = self._left_out, 0
        return msgspec.structs.replace(event, details={**event.details, "leftOut": left_out})

    def _rate(self, record: DecisionRecord) -> float:
        """Return the highest rate of any check: a request is kept as a whole."""
        surface = record.batch.surface
        return max([self._rate_of(surface, check) for check in record.batch.checks], default=1.0)

    def _rate_of(self, surface: str, check: Check) -> float:
        key = (surface, check.question.action, check.question.principal.id)
        rate = self._rates.get(key)
        if rate is None:
            rate = max([rule.rate for rule in self._rules if rule.matches(*key)], default=1.0)
            self._rates.keep(key, rate, sum(map(len, key)))
        return rate


def make_rule(rate: float, surfaces: Sequence[str], actions: Sequence[str], principals: Sequence[str]) -> SampleRule:
    """Return a rule of patterns with `*` for any characters. Matching takes linear time."""
    return SampleRule(rate, _compiled(surfaces), _compiled(actions), _compiled(principals))


def is_kept(id: str, rate: float) -> bool:
    """Tell whether a record stays: the CRC-32 of the decision's id, as a share of all values, is below the rate."""
    return crc32(id.encode()) < rate * _VALUES


def _may_be_sampled(record: DecisionRecord) -> bool:
    """Tell whether a record holds permits alone, and no error, no row view and no listing."""
    batch, answer = record.batch, record.answer
    if batch.rejected or answer.errors or 0 in answer.allowed or not batch.size:
        return False
    if record.masks is not None or record.listing is not None or batch.surface == LISTING:
        return False
    return not any(leaf.verdicts.errors for decided in record.checks for leaf in decided.concrete) and not record.failed


def _compiled(patterns: Sequence[str]) -> TextPattern:
    import re2  # noqa: PLC0415  only rules of samples and some rules of CEL need it

    texts = (".*".join(map(re2.escape, pattern.split("*"))) for pattern in patterns)
    pattern: TextPattern = re2.compile(f"(?s:{'|'.join(texts)})")
    return pattern


ANNOUNCE_SECONDS: Final = 1.0
"""Shortest time between two announcements."""


class DroppedRecords:
    """Dropped records since the last announcement. `seq` is that of the next record: dropped ones have no number."""

    def __init__(self) -> None:
        self.records = 0
        self._decisions = self._before = 0
        self._first = self._last = 0.0
        self._announced = -ANNOUNCE_SECONDS

    def count(self, decisions: int, seq: int, now: float) -> None:
        """Count a dropped record. `now` is its time in seconds since 1970."""
        if not self.records:
            self._first, self._before = now, seq
        self.records += 1
        self._decisions += decisions
        self._last = now

    def announcement(self, *, at_once: bool = False) -> ServiceEvent | None:
        """Return the record that announces them, and forget them; None too soon after the last one, or without any."""
        now = time.monotonic()
        if not self.records or (now < self._announced + ANNOUNCE_SECONDS and not at_once):
            return None
        details: dict[str, Any] = {
            "records": self.records,
            "decisions": self._decisions,
            "from": timestamp(self._first),
            "to": timestamp(self._last),
            "beforeSeq": self._before,
        }
        self.records = self._decisions = 0
        self._announced = now
        return ServiceEvent(what="records_dropped", details=details)


SMALLEST_JUMP: Final = 0.01
"""Seconds. Smaller differences come from reading two clocks one after the other."""


class ClockWatch:
    """Comparison of the clock with one that never jumps. Slow corrections move both clocks."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._offset = clock() - time.monotonic()

    def jump(self) -> ServiceEvent | None:
        """Return the record of a backward jump since the last call; None without one."""
        offset = self._clock() - time.monotonic()
        back, self._offset = self._offset - offset, offset
        if back < SMALLEST_JUMP:
            return None
        return ServiceEvent(what="clock_jump", details={"seconds": round(-back, 3)})
