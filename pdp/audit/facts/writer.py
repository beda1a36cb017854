"""Writing of the history of facts, in a thread of its own: a slow disk holds up no decision.

Owns what waits and when a snapshot begins; `folder` owns the files.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import structlog

from pdp.audit.facts.files import FOLDER, StoredRevision, epoch_folder
from pdp.audit.facts.folder import FactFolder, MissingRevisionsError
from pdp.config.files import make_private_folder
from pdp.errors import ConfigError
from pdp.facts.snapshot import Facts
from pdp.model.revision import Revision

WAIT_SECONDS: Final = 0.25
"""Longest time for which new facts wait until the folder has them. A revoked grant must not wait longer for a disk."""
START_SECONDS: Final = 2.0
"""Longest time for which a start waits for the first snapshot."""
RETRY_SECONDS: Final = 1.0
LOOK_SECONDS: Final = 0.1
"""Time between two looks for the snapshot of another process."""
PAUSE_SECONDS: Final = 0.0005
"""Pause between two pieces of a snapshot, in which other threads run."""
MOST_WAITING: Final = 200_000
"""Changes that may wait for the disk. Beyond that they are dropped, and a snapshot follows."""
log = structlog.get_logger()


class _Revisions:
    """Revisions of one epoch that wait for the folder."""

    __slots__ = ("epoch", "revisions", "written")

    def __init__(self, epoch: str, revisions: Sequence[StoredRevision]) -> None:
        self.epoch = epoch
        self.revisions = revisions
        self.written = threading.Event()

    def count(self) -> int:
        return sum(len(revision.changes) for revision in self.revisions)


class FactWriter:
    """Writer of the facts that a service follows, into an audit folder. Any thread may call."""

    def __init__(self, audit: Path, instance: str) -> None:
        """Make the folder; raise ConfigError if that is not possible."""
        self.failing = False
        self._audit = audit
        self._instance = instance
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._waiting: deque[_Revisions] = deque()
        self._facts: Facts | None = None
        """The newest facts."""
        self._given = -1
        """The newest revision of the epoch that was handed over."""
        self._covered = threading.Event()
        """Set while the folder is known to have all that the newest facts follow from, but for what waits."""
        self._folder: FactFolder | None = None
        self._folder_epoch = ""
        self._draft: Iterator[None] | None = None
        """Rest of a snapshot that is being written."""
        self._deadline: float | None = None
        """End of the thread, at the latest."""
        self._gave_up = False
        """True if a last snapshot could not be made, because another process makes one."""
        try:
            make_private_folder(audit)
            make_private_folder(audit / FOLDER)
        except OSError as error:
            raise ConfigError(f"cannot write the audit to `{audit}` (audit.sinks): {error.strerror}") from None
        self._thread = threading.Thread(target=self._run, name="fact-history", daemon=True)
        self._thread.start()

    def newest(self, epoch: str) -> Revision | None:
        """Return the newest revision of an epoch in the folder; None without any, or if nobody can tell now."""
        path = epoch_folder(self._audit, epoch)
        if path is None or not path.exists():
            return None
        with contextlib.suppress(OSError):
            return FactFolder(path, epoch, self._instance).newest()
        return None

    def begin(self, facts: Facts, before: Sequence[StoredRevision] = ()) -> None:
        """Take the first facts of an epoch. `before` are the revisions since `newest`, if all of them are known.

        Wait until the folder has the facts, for a bounded time.
        """
        with self._lock:
            seconds = START_SECONDS if self._facts is None else WAIT_SECONDS
            self._facts, self._given = facts, facts.sequence
            self._covered.clear()
            if before:
                self._waiting.append(_Revisions(facts.epoch, before))
                self._given = max(facts.sequence, before[-1].sequence)
        self._wake.set()
        if not self.failing:
            self._covered.wait(seconds)

    def follow(self, facts: Facts, revisions: Sequence[StoredRevision]) -> None:
        """Take newer facts of the same epoch, and the revisions that lead to them. Repeated revisions do not matter.

        Wait until the folder has the revisions, for a bounded time.
        """
        with self._lock:
            current = self._facts
            if current is None or current.epoch != facts.epoch:
                return
            if facts.sequence > current.sequence:
                self._facts = facts
            new = [revision for revision in revisions if revision.sequence > self._given]
            if new:
                self._given = new[-1].sequence
                self._waiting.append(_Revisions(facts.epoch, new))
                self._drop_excess()
            last = self._waiting[-1] if self._waiting else None
        self._wake.set()
        if last and not self.failing:
            last.written.wait(WAIT_SECONDS)

    def close(self, timeout: float) -> bool:
        """Write everything and end; return False if something is missing in the folder."""
        self._deadline = time.monotonic() + timeout
        self._wake.set()
        self._thread.join(timeout)
        return not self._thread.is_alive() and not self._waiting and self._is_complete()

    def _drop_excess(self) -> None:
        """Drop the oldest of too many waiting changes. The gap leads to a snapshot once the folder takes writes."""
        count = sum(each.count() for each in self._waiting)
        while count > MOST_WAITING and len(self._waiting) > 1:
            dropped = self._waiting.popleft()
            dropped.written.set()
            count -= dropped.count()

    def _run(self) -> None:
        while not self._is_over():
            try:
                self._write_waiting()
                self._continue_snapshot()
            except Exception as error:  # noqa: BLE001  nothing is dropped: the facts wait, and readiness says so
                self._report(error)
                self._draft = None
                self._wake.clear()
                self._wake.wait(self._pause(RETRY_SECONDS))
                continue
            if self.failing:
                log.info("history of facts is written again")
            self.failing = False
            self._rest()

    def _is_over(self) -> bool:
        deadline = self._deadline
        if deadline is None:
            return False
        is_done = not self._waiting and self._draft is None and (self._is_complete() or self._gave_up)
        return is_done or time.monotonic() > deadline

    def _is_complete(self) -> bool:
        return self._facts is None or self._covered.is_set()

    def _pause(self, seconds: float) -> float:
        return seconds if self._deadline is None else 0.05

    def _rest(self) -> None:
        """Wait for work. Give way to other threads between two pieces of a snapshot."""
        if self._draft is not None:
            time.sleep(PAUSE_SECONDS if self._deadline is None else 0)
        elif not self._waiting:
            # another process may be writing the snapshot that is missing here: look again
            self._wake.wait(None if self._covered.is_set() and self._deadline is None else self._pause(LOOK_SECONDS))
            self._wake.clear()

    def _write_waiting(self) -> None:
        """Write what waits, oldest first. What cannot be written waits on."""
        while self._waiting:
            oldest = self._waiting[0]
            try:
                self._folder_of(oldest.epoch).append(oldest.revisions)
            except MissingRevisionsError:
                self._covered.clear()
            with self._lock:
                if self._waiting and self._waiting[0] is oldest:
                    self._waiting.popleft()
            oldest.written.set()

    def _continue_snapshot(self) -> None:
        """Begin a snapshot if the folder needs one, or write the next piece."""
        if self._draft is None:
            self._draft = self._needed_snapshot()
        if self._draft is None:
            return
        try:
            next(self._draft)
        except StopIteration:
            self._draft = None
            is_missing = self._needed_snapshot() is not None  # another process may be writing a snapshot
            self._gave_up = is_missing and self._deadline is not None

    def _needed_snapshot(self) -> Iterator[None] | None:
        """Return the steps of a snapshot if the folder needs one. Notice if the folder covers the facts."""
        with self._lock:
            # while revisions wait, the folder is behind the facts and yet lacks nothing
            facts = None if self._waiting else self._facts
        if facts is None:
            return None
        folder = self._folder_of(facts.epoch)
        if not self._covered.is_set():
            if not folder.covers(facts.sequence):
                return folder.add_snapshot(facts)
            with self._lock:
                if self._facts and self._facts.epoch == facts.epoch:
                    self._covered.set()
        return folder.add_snapshot(facts) if folder.is_large() else None

    def _folder_of(self, epoch: str) -> FactFolder:
        if self._folder is None or self._folder_epoch != epoch:
            path = epoch_folder(self._audit, epoch)
            if path is None:
                raise OSError(f"`{epoch}` names no folder")
            self._folder, self._folder_epoch = FactFolder(path, epoch, self._instance), epoch
        return self._folder

    def _report(self, error: Exception) -> None:
        was_failing, self.failing = self.failing, True
        if not was_failing:
            with contextlib.suppress(OSError):  # the log may be on the same full disk
                log.error("history of facts cannot be written", folder=str(self._audit), cause=_cause(error))


def _cause(error: Exception) -> str:
    """Return the cause of a failure in words. A defect comes with its type."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return repr(error)
