"""Spool of a sink: lines on disk, until a receiver has them. It survives restarts, and is bounded.

Each instance writes files of its own. The files of instances that have ended are taken over by the next instance.
Records that a receiver refuses for good go to files of their own.
"""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Final

import structlog

from pdp.audit.files.locks import InstanceLock, lock_if_dead
from pdp.audit.push.spool_reader import (
    BatchLimits,
    SpoolPosition,
    SpoolReader,
    left_reader,
    spool_numbers,
    spool_path,
    spooled_instances,
)
from pdp.config.files import make_private_folder, open_private_file, restrict_files, warn_of_open_folder
from pdp.errors import ConfigError

FOLDER = "refused"


class RefusedRecords:
    """Folder of refused records below a spool, with at most `bound` bytes."""

    def __init__(self, spool: Path, bound: int) -> None:
        self.path = spool / FOLDER
        self._bound = bound

    def keep(self, instance: str, line: bytes) -> None:
        """Append a line to the file of an instance, and sync the file; raise OSError."""
        make_private_folder(self.path)
        if sum([file.stat().st_size for file in self.path.iterdir()]) + len(line) > self._bound:
            raise OSError(errno.ENOSPC, "too many records are refused")
        file = open_private_file(self.path / f"{instance}.jsonl", os.O_WRONLY | os.O_APPEND)
        try:
            size = os.fstat(file).st_size
            if os.write(file, line) < len(line):
                os.ftruncate(file, size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file)
        finally:
            os.close(file)


LONGEST_FILE: Final = 8 << 20
_FILES: Final = 8
"""Most bytes of a file, and the fewest files of a full spool: files are removed as a whole."""
log = structlog.get_logger()


class SpoolFull(OSError):
    """Spool that has as many bytes as it may have."""


class Spool:
    """Spool of one instance: a thread appends, another one reads through `readers`.

    `bound` is in bytes. A write beyond the bound raises SpoolFull, unless the spool is empty.
    """

    def __init__(self, folder: Path, instance: str, bound: int, limits: BatchLimits) -> None:
        self.path = folder
        self.refused = RefusedRecords(folder, bound)
        self._instance = instance
        self._bound = bound
        self._longest = min(LONGEST_FILE, bound // _FILES)
        self._appended = 0
        """Bytes of this instance."""
        self._limits = limits
        self._taken: list[str] = []
        """Ended instances whose files are this one's now."""
        self._locks: list[InstanceLock] = []
        self._counting = threading.Lock()
        """Held while the bytes of ended instances change: both threads count them."""
        try:
            make_private_folder(folder)
            restrict_files(*folder.iterdir())
            self._own = InstanceLock(folder, instance)
            self._end = SpoolPosition(1, 0)
            self._file = self._open()
            self.readers = [SpoolReader(folder, instance, self.end, limits)]
            self._left = 0
            self.take_over()
            warn_of_open_folder(folder)
        except OSError as error:
            raise ConfigError(f"cannot write the spool `{folder}` (audit.sinks): {error.strerror}") from None

    def end(self) -> SpoolPosition:
        """Return the end of what is written. Any thread may ask."""
        return self._end

    def size(self) -> int:
        """Return the bytes of all files that this instance has to deliver. Any thread may ask."""
        return self._left + self._appended - sum([reader.freed for reader in self.readers])

    def waiting(self) -> int:
        """Return the bytes that no receiver has. Any thread may ask."""
        return max(0, self.size() - sum([reader.passed for reader in self.readers]))

    def take_over(self) -> list[SpoolReader]:
        """Take over what ended instances have left; return the new readers, the oldest instance first.

        Called by the thread that delivers: a service that drains beside its successor leaves records later.
        """
        found: list[SpoolReader] = []
        for instance in spooled_instances(self.path):
            known = instance == self._instance or instance in self._taken
            lock = None if known else lock_if_dead(self.path, instance)
            if lock:
                self._locks.append(lock)
                found.append(left_reader(self.path, instance, self._limits))
                with self._counting:
                    self._taken.append(instance)
                    self._left += self._on_disk(instance)
        if found:
            self.readers = [*self.readers[:-1], *found, self.readers[-1]]
            log.info("audit records of ended instances are delivered", spool=str(self.path), instances=len(found))
        return found

    def append(self, text: bytes) -> None:
        """Append lines, all or none; raise SpoolFull or another OSError."""
        if not self._has_room(len(text)):
            raise SpoolFull(errno.ENOSPC, "the spool is full")
        if not self._is_in_place():
            make_private_folder(self.path)
            self._own.renew()
            self._begin_file()
        elif self._end.offset and self._end.offset + len(text) > self._longest:
            self._begin_file()
        number, offset = self._end
        try:
            written = 0
            while written < len(text):
                written += os.write(self._file, memoryview(text)[written:])
        except OSError:
            os.ftruncate(self._file, offset)
            raise
        self._appended += len(text)
        self._end = SpoolPosition(number, offset + len(text))

    def sync(self) -> None:
        """Wait until all lines are on disk."""
        os.fsync(self._file)

    def close(self) -> None:
        """Close the files. The thread that reads has ended."""
        os.close(self._file)
        for reader in self.readers:
            reader.close()
        for lock in (self._own, *self._locks):
            lock.release()

    def _has_room(self, more: int) -> bool:
        """Tell whether more bytes fit. Somebody may have removed files: count them before a refusal."""
        if self.size() + more <= self._bound:
            return True
        with self._counting:
            self._left += self._on_disk(*self._taken, self._instance) - self.size()
            size = self.size()
        return size + more <= self._bound or size <= 0

    def _on_disk(self, *instances: str) -> int:
        """Return the bytes of the files of instances."""
        files = [spool_path(self.path, one, number) for one in instances for number in spool_numbers(self.path, one)]
        return sum([file.stat().st_size for file in files if file.exists()])

    def _begin_file(self) -> None:
        os.fsync(self._file)
        file = self._open(self._end.number + 1)
        os.close(self._file)
        self._file, self._end = file, SpoolPosition(self._end.number + 1, 0)

    def _open(self, number: int = 1) -> int:
        make_private_folder(self.path)
        return open_private_file(spool_path(self.path, self._instance, number), os.O_WRONLY | os.O_APPEND)

    def _is_in_place(self) -> bool:
        """Tell whether the file still has a name. Somebody may have removed the folder."""
        return os.fstat(self._file).st_nlink > 0
