"""Sinks of an audit: destinations of encoded records, several at once, with their metrics; stdout is one.

Every sink gets all batches in order, without a gap, and works in a thread of its own. The record queue reads the
progress of each sink: it bounds what waits by the slowest one, and lets answers wait for the sinks that promise.

Several workers may share one stdout. A lock keeps their lines whole.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from pdp.telemetry import Telemetry


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


STALL_SECONDS: Final = 5.0
"""Time without a reader after which an attempt to write fails."""
_PIECE: Final = select.PIPE_BUF
"""Bytes that a writable pipe takes without a wait."""


class StdoutOutput:
    """Writer of lines to a descriptor."""

    def __init__(self, descriptor: int, metrics: SinkMetrics) -> None:
        self._file = os.dup(descriptor)
        self._metrics = metrics
        self._torn = False
        """Tells whether the last write ended inside a line."""
        self._stalled = False
        self._poll = select.poll()
        self._poll.register(self._file, select.POLLOUT)

    def append(self, text: bytes) -> None:
        """Write lines; raise OSError without a reader.

        After a part the same lines come again, from a new line on: a reader skips the torn one.
        """
        with _exclusive(self._file):
            self._write(b"\n" + text if self._torn else text)
        self._metrics.delivered.inc(text.count(b"\n"))

    def sync(self) -> None:
        """Do nothing: nobody can tell what a reader has kept."""

    def reopen(self) -> None:
        """Do nothing: stdout cannot be opened again."""

    def close(self, timeout: float) -> bool:
        """Close the copy of the descriptor."""
        os.close(self._file)
        return True

    def waiting(self) -> int:
        """Return 0: what is written has left the service."""
        return 0

    def trouble(self) -> str:
        """Return whether a reader has stopped to read."""
        return "nobody reads stdout" if self._stalled else ""

    def _write(self, text: bytes) -> None:
        view = memoryview(text)
        at = 0
        try:
            while at < len(text):
                self._await_reader()
                at += os.write(self._file, view[at : at + _PIECE])
        finally:
            if at:
                self._torn = text[at - 1] != 0x0A

    def _await_reader(self) -> None:
        ready = self._poll.poll(0) or self._poll.poll(STALL_SECONDS * 1000)
        self._stalled = not ready
        if not ready:
            raise TimeoutError(errno.ETIMEDOUT, "nobody reads stdout")


@contextlib.contextmanager
def _exclusive(file: int) -> Iterator[None]:
    """Hold a lock against other processes with the same file, where the file takes locks."""
    locked = False
    with contextlib.suppress(OSError):
        fcntl.lockf(file, fcntl.LOCK_EX)
        locked = True
    try:
        yield
    finally:
        if locked:
            fcntl.lockf(file, fcntl.LOCK_UN)
