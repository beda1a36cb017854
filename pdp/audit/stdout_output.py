"""Output of a sink to stdout: JSON lines, and nothing else.

Several workers may share one stdout. A lock keeps their lines whole.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
from collections.abc import Iterator
from typing import Final

from pdp.audit.sink_metrics import SinkMetrics

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
