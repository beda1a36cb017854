"""Writing of encoded records to a folder, in a thread of its own: a slow disk never holds up the event loop.

Knows lines, not records.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Final

import structlog

from pdp.audit.files.folder import AuditFolder, cause_of
from pdp.audit.files.open_segment import SyncFailed
from pdp.audit.queue.sinks import LineBatch, SinkProgress
from pdp.config.audit import Durability

RETRY_SECONDS: Final = 1.0
SYNC_SECONDS: Final = 0.05
"""Longest time between a write and its sync with the durability `batch`."""
_WRITE_BYTES: Final = 8 << 20
"""Bytes after which one write takes no further batch: a write joins its lines, and a full disk lets it wait."""

log = structlog.get_logger()


class _Order:
    """Order between batches: complete the present segment, and perhaps end."""

    def __init__(self, *, end: bool) -> None:
        self.end = end


class LineSink:
    """Sink that writes batches to a folder, in order.

    Batches that cannot be written wait, and the thread tries again. So do batches whose sync fails: the file is cut
    back to the last sync, and they are written again.
    """

    def __init__(self, folder: AuditFolder, durability: Durability, count_written: Callable[[int], None]) -> None:
        self.progress = SinkProgress(promises=True)
        self.name = "file"
        self._cause = ""
        self._folder = folder
        self._syncs = durability != "none"
        self._sync_seconds = SYNC_SECONDS if durability == "batch" else 0.0
        self._count_written = count_written
        self._queue: SimpleQueue[LineBatch | _Order] = SimpleQueue()
        self._waiting: list[LineBatch] = []
        self._unsynced: list[LineBatch] = []
        """Batches since the last sync. Their lines are written again if the sync fails."""
        self._sync_at = 0.0
        self._counted = 0
        """Records in the metric."""
        self._rotate = self._ending = self._drained = self._sync_failed = False
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    def trouble(self) -> str:
        """Return why records cannot be written; empty if they can."""
        return self._cause if self.progress.failing else ""

    def put(self, batch: LineBatch) -> None:
        """Put a batch into the queue and return at once."""
        self._queue.put(batch)

    def reopen(self) -> None:
        """Complete the present segment once the batches before are written."""
        self._queue.put(_Order(end=False))

    def close(self, timeout: float) -> bool:
        """Write all batches and end; return False if `timeout` seconds were not enough."""
        self._queue.put(_Order(end=True))
        self._thread.join(timeout)
        return self._drained

    def _run(self) -> None:
        try:
            while not self._ending:
                self._take()
                while not self._attempt():
                    time.sleep(RETRY_SECONDS)
            self._drained = True
            self._folder.close()
        finally:
            # a thread that ends for any other reason than `close` writes nothing any more
            if not self._drained:
                self._set_failing(failing=True)

    def _take(self) -> None:
        """Wait for a batch or for the time of a sync or a rotation. Take more batches, up to one write."""
        size = 0
        try:
            order = self._queue.get(timeout=self._patience())
            while True:
                if isinstance(order, _Order):
                    self._rotate, self._ending = True, order.end
                    return
                self._waiting.append(order)
                size += order.size
                if size >= _WRITE_BYTES:
                    return
                order = self._queue.get_nowait()
        except Empty:
            return

    def _patience(self) -> float | None:
        """Return the seconds until a sync or a rotation is due; None if neither will be."""
        seconds = self._folder.seconds_left()
        if self._unsynced:
            left = max(0.0, self._sync_at - time.monotonic())
            seconds = left if seconds is None else min(seconds, left)
        return seconds

    def _attempt(self) -> bool:
        """Write, sync and rotate, as far as it is due; return False if something must be tried again."""
        try:
            if self._sync_failed:
                self._write_again()
            self._write()
            if self._rotate or self._folder.seconds_left() == 0:
                self._complete()
            if self._unsynced and time.monotonic() >= self._sync_at:
                self._sync()
        except Exception as error:  # noqa: BLE001  nothing is dropped: the lines wait, and readiness says so
            self._sync_failed = self._sync_failed or isinstance(error, SyncFailed)
            self._report(error)
            return False
        self._set_failing(failing=False)
        return True

    def _write(self) -> None:
        """Write all batches as one piece."""
        batches = self._waiting
        if not batches:
            return
        for batch in batches:
            for digest, text in batch.bundles.items():
                self._folder.archive(digest, text)
        lines = batches[0].lines if len(batches) == 1 else [line for batch in batches for line in batch.lines]
        synced = self._folder.append(lines, sync=self._syncs and not self._sync_seconds)
        self._waiting = []
        if not synced:
            self._keep(batches)
        self.progress.count(batches)
        if synced:
            self._note_synced()
        new = self.progress.records - self._counted
        if new > 0:
            self._counted += new
            self._count_written(new)

    def _keep(self, batches: Sequence[LineBatch]) -> None:
        if self._syncs:
            if not self._unsynced:
                self._sync_at = time.monotonic() + self._sync_seconds
            self._unsynced += batches

    def _complete(self) -> None:
        """Complete the segment, which syncs it, too."""
        self._folder.rotate()
        self._rotate = False
        self._note_synced()

    def _sync(self) -> None:
        self._folder.sync()
        self._note_synced()

    def _note_synced(self) -> None:
        self._unsynced = []
        self.progress.durable = self.progress.records
        self.progress.changed()

    def _write_again(self) -> None:
        """Cut the file back to the last sync, and let all batches since then wait again."""
        if self._unsynced:
            self._folder.rewind()
            self.progress.count(self._unsynced, -1)
            self._waiting, self._unsynced = [*self._unsynced, *self._waiting], []
        self._sync_failed = False

    def _set_failing(self, *, failing: bool) -> None:
        if failing != self.progress.failing:
            self.progress.failing = failing
            self.progress.changed()

    def _report(self, error: Exception) -> None:
        was_failing, self._cause = self.progress.failing, cause_of(error)
        self._set_failing(failing=True)
        if not was_failing:
            with contextlib.suppress(OSError):  # the log may be on the same full disk
                log.error("audit cannot be written", folder=str(self._folder.path), cause=self._cause)
