"""Metrics of one sink."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pdp.telemetry import Telemetry


class Count(Protocol):
    """Counter of a metric."""

    def inc(self, amount: float = 1) -> None:
        """Add to the counter."""
        ...


class SinkMetrics:
    """Metrics of one sink, by its name: `delivered`, `dropped` and `refused` records, and `failures` of attempts."""

    def __init__(self, telemetry: Telemetry, name: str) -> None:
        self.name = name
        self.delivered: Count = telemetry.sink_delivered.labels(name)
        self.dropped: Count = telemetry.sink_dropped.labels(name)
        self.refused: Count = telemetry.sink_refused.labels(name)
        self.failures: Count = telemetry.sink_failures.labels(name)
        self._waiting = telemetry.sink_waiting.labels(name)

    def watch(self, waiting: Callable[[], float]) -> None:
        """Show the bytes that wait, as a function tells them."""
        self._waiting.set_function(waiting)
