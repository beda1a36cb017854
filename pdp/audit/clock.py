"""Watch of the clock: a backward jump gets a record, because times of records go back with it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from pdp.model.events import ServiceEvent

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
