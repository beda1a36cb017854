"""Sampling of permits: leaves out records of permitted requests by rules, and counts what it leaves out.

A request is sampled only if every decision of it permits without an error, and a rule matches each of its checks. The
id of the decision alone tells whether a record stays, so everybody who knows the id and the rate can tell, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol
from zlib import crc32

import msgspec

from pdp.audit.record import LISTING, DecisionRecord
from pdp.model.events import Event, ServiceEvent
from pdp.model.memo import Memo
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
        self._rates: Memo[tuple[str, str, str], float] = Memo(_KEPT, _LONGEST_KEPT)

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
        key = (surface, check.action, check.principal.id)
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
