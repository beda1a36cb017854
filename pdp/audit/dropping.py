"""Count of records that were dropped because too many waited, and the record that announces them."""

from __future__ import annotations

import time
from typing import Any, Final

from pdp.audit.encoding import timestamp
from pdp.model.events import ServiceEvent

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
