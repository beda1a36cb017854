"""Writing of encoded records, in a thread of its own: a slow disk never holds up the event loop.

Knows lines, not records.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from queue import SimpleQueue
from typing import Final

import msgspec
import structlog

from pdp.audit.folder import AuditFolder

RETRY_SECONDS: Final = 1.0
_WRITE_BYTES: Final = 8 << 20
"""Bytes after which one write takes no further batch: a write joins its lines, and a full disk lets it wait."""

log = structlog.get_logger()


class LineBatch(msgspec.Struct, frozen=True, gc=False):
    """Lines of records, the number of their decisions, and their bytes in memory.

    `bundles` (digest -> text) are those that the lines are the first of.
    """

    lines: Sequence[bytes]
    decisions: int
    size: int
    bundles: Mapping[str, bytes]


class LineWriter:
    """Writer of batches to a folder, in order.

    Batches that cannot be written wait, and the thread tries again. The thread alone changes `records`,
    `decisions` and `bytes`, which count what is on disk.
    """

    def __init__(self, folder: AuditFolder, count_written: Callable[[int], None]) -> None:
        self.records = self.decisions = self.bytes = 0
        self.failing = False
        self._folder = folder
        self._count_written = count_written
        self._queue: SimpleQueue[LineBatch | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    def put(self, batch: LineBatch) -> None:
        """Put a batch into the queue and return at once."""
        self._queue.put(batch)

    def close(self, timeout: float) -> bool:
        """Write all batches and end; return False if `timeout` seconds were not enough."""
        self._queue.put(None)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        closed = False
        try:
            with closing(self._folder):
                while not closed:
                    batches, closed = self._take()
                    while not self._write(batches):
                        time.sleep(RETRY_SECONDS)
        finally:
            # a thread that ends for any other reason than `close` writes nothing any more
            self.failing = self.failing or not closed

    def _take(self) -> tuple[list[LineBatch], bool]:
        """Wait for a batch, and take more up to one write; tell also whether the queue is closed."""
        batches: list[LineBatch] = []
        size = 0
        batch = self._queue.get()
        while batch:
            batches.append(batch)
            size += batch.size
            if size >= _WRITE_BYTES or self._queue.empty():
                return batches, False
            batch = self._queue.get()
        return batches, True

    def _write(self, batches: Sequence[LineBatch]) -> bool:
        """Write batches as one piece; return False if they have to wait."""
        lines = [line for batch in batches for line in batch.lines]
        try:
            for batch in batches:
                for digest, text in batch.bundles.items():
                    self._folder.archive(digest, text)
            self._folder.append(b"".join(lines))
        except Exception as error:  # noqa: BLE001  nothing is dropped: the lines wait, and readiness says so
            self._report(error)
            return False
        self.failing = False
        self.records += len(lines)
        self.decisions += sum([batch.decisions for batch in batches])
        self.bytes += sum([batch.size for batch in batches])
        self._count_written(len(lines))
        return True

    def _report(self, error: Exception) -> None:
        was_failing, self.failing = self.failing, True
        if not was_failing:
            cause = getattr(error, "strerror", None) or repr(error)
            log.error("audit cannot be written", folder=str(self._folder.path), cause=cause)
