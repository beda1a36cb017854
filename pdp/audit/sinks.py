"""Sinks of an audit: destinations of encoded records, several at once.

Every sink gets all batches in order, without a gap, and works in a thread of its own. The trail (`log`) reads the
progress of each sink: it bounds what waits by the slowest one, and lets answers wait for the sinks that promise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec


class LineBatch(msgspec.Struct, frozen=True, gc=False):
    """Lines of records with their line ends, the number of their decisions, and their bytes in memory.

    `seq` is that of the first line; the others follow without a gap. `bundles` (digest -> text) are those that the
    lines are the first of.
    """

    lines: Sequence[bytes]
    decisions: int
    size: int
    bundles: Mapping[str, bytes]
    seq: int = 0


class SinkProgress:
    """Progress of one sink. The thread of the sink alone changes it; every thread may read it.

    `records`, `decisions` and `bytes` count what has left the memory of this process. `durable` counts the records that
    also survive a loss of power. A sink that cannot promise that leaves `promises` False, and no answer waits for it.
    """

    __slots__ = ("bytes", "changed", "decisions", "durable", "failing", "promises", "records")

    def __init__(self, *, promises: bool = False) -> None:
        self.records = self.decisions = self.bytes = self.durable = 0
        self.failing = False
        """Tells whether the sink cannot take records at present. It keeps them, and tries again."""
        self.promises = promises
        self.changed: Callable[[], None] = _ignore
        """Called by the thread of the sink after `durable` has grown, and when `failing` has changed."""

    def count(self, batches: Sequence[LineBatch], sign: int = 1) -> None:
        """Count batches that were written, or with the sign -1, that must be written again."""
        self.records += sign * sum([len(batch.lines) for batch in batches])
        self.decisions += sign * sum([batch.decisions for batch in batches])
        self.bytes += sign * sum([batch.size for batch in batches])


class AuditSink(Protocol):
    """Destination of encoded records. No call waits for the destination but `close`, and none raises.

    A sink that cannot write says so by `progress.failing` and in the log, keeps its batches, and tries again. It drops
    nothing: the trail decides by `audit.on_full` when too much waits.
    """

    @property
    def progress(self) -> SinkProgress:
        """Return the progress, always the same object."""
        ...

    @property
    def name(self) -> str:
        """Return the name of the sink, different from those of others."""
        ...

    def trouble(self) -> str:
        """Return why records do not reach their destination; empty if all is well. Any thread may ask."""
        ...

    def put(self, batch: LineBatch) -> None:
        """Take the next batch. Called by the event loop, and at the end by the thread that closes the trail."""
        ...

    def reopen(self) -> None:
        """Begin a new file, or connect again: somebody has moved the old one, or wants it complete."""
        ...

    def close(self, timeout: float) -> bool:
        """Write all batches and end; return False if `timeout` seconds were not enough. Called from any thread."""
        ...


class SlowestProgress:
    """Progress of several sinks at once, as far as all of them are."""

    def __init__(self, parts: Sequence[SinkProgress]) -> None:
        self._parts = parts

    @property
    def records(self) -> int:
        """Return the number of records that every sink has written."""
        return min([part.records for part in self._parts])

    @property
    def decisions(self) -> int:
        """Return the number of their decisions."""
        return min([part.decisions for part in self._parts])

    @property
    def bytes(self) -> int:
        """Return the number of their bytes."""
        return min([part.bytes for part in self._parts])

    @property
    def failing(self) -> bool:
        """Tell whether a sink cannot take records at present."""
        return any(part.failing for part in self._parts)


def _ignore() -> None:
    """Do nothing."""
