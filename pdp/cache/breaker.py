"""Circuit breaker: stops calls to a service that fails, and tries it again after a pause."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import uniform
from typing import Final, Literal

BreakerState = Literal["closed", "half_open", "open"]
_FAILURES: Final = 3
"""Failures in a row that open the breaker."""
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 15.0
_JITTER: Final = 0.2


class CircuitBreaker:
    """Breaker that opens after three failures in a row. Each failed probe doubles the pause before the next one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures = 0
        self._pause = _FIRST_PAUSE
        self._next_probe = 0.0
        self._probing = False

    @property
    def state(self) -> BreakerState:
        """Return the state: `half_open` while a probe is under way."""
        if self._failures < _FAILURES:
            return "closed"
        return "half_open" if self._probing else "open"

    def allows(self) -> bool:
        """Tell whether a call may be made. An open breaker allows one probe after each pause.

        Every allowed call must end with `succeed`, `fail` or `abandon`.
        """
        if self._failures < _FAILURES:
            return True
        if self._probing or self._clock() < self._next_probe:
            return False
        self._probing = True
        return True

    def succeed(self) -> None:
        """Note a call that succeeded: the breaker closes."""
        self._failures = 0
        self._pause = _FIRST_PAUSE
        self._probing = False

    def fail(self) -> None:
        """Note a call that failed."""
        was_open = self._failures >= _FAILURES
        self._failures = min(self._failures + 1, _FAILURES)
        if self._failures < _FAILURES or (was_open and not self._probing):
            return  # a call from before the breaker opened says nothing new
        if was_open:
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        self._next_probe = self._clock() + self._pause * uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311  no secret
        self._probing = False

    def abandon(self) -> None:
        """Note a call without a result: another call may be the probe."""
        self._probing = False
