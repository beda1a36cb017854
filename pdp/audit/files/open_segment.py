"""Segment that is being written: its lines, its chain, and its state on disk.

Knows bytes and one file. Use in one thread at a time.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from pdp.audit.files.chain import ChainHash, SegmentHead, chain_line, end_line
from pdp.audit.records.writing import timestamp
from pdp.config.files import open_private_file

_COPY_BYTES: Final = 1 << 20


class SyncFailed(OSError):
    """Sync that failed. Nobody knows which bytes since the last sync are on disk; a second sync would not tell."""


class _Mark(NamedTuple):
    """State of a segment at a position: its bytes, its records, and the digest there."""

    size: int
    records: int
    digest: bytes


class OpenSegment:
    """One segment of an instance. `seq` is that of its first record; `previous` is the digest of the segment before.

    Each write adds all of its lines or nothing. The file is empty until the first write.
    """

    def __init__(self, path: Path, instance: str, number: int, seq: int, previous: bytes, hash: ChainHash) -> None:
        self.path = path
        self.begun = time.monotonic()
        self.ended = False
        self._head = (instance, number, seq, previous)
        self._seq = seq
        self._hash = hash
        self._written = self._synced = _Mark(0, 0, previous)
        self._file = open_private_file(path, os.O_RDWR | os.O_APPEND)
        os.ftruncate(self._file, 0)
        self._place = _place(self._file)
        self._torn = False
        """Tells whether the file may have a part of a failed write at its end."""
        self._named = False
        """Tells whether the name of the file is on disk."""
        self._syncs_writes = True
        """Tells whether the system can write and sync in one call."""

    @property
    def size(self) -> int:
        """Return the bytes so far."""
        return self._written.size

    @property
    def records(self) -> int:
        """Return the number of records so far."""
        return self._written.records

    @property
    def digest(self) -> bytes:
        """Return the digest of everything so far."""
        return self._written.digest

    @property
    def next_seq(self) -> int:
        """Return the `seq` of the next record."""
        return self._seq + self._written.records

    def append(self, lines: Sequence[bytes], *, sync: bool = False) -> bool:
        """Append the lines of records, and the chain line over them. Return True if everything is on disk.

        `sync` asks for this, which takes one call of the system once an earlier `sync` covers the rest.
        """
        size, records, digest = self._written
        head = b""
        if not size:
            instance, number, seq, previous = self._head
            head = SegmentHead(instance, number, seq, timestamp(time.time()), previous, self._hash.key_id).line()
        parts, digest = chain_line(self._hash, digest, head, lines, self.next_seq + len(lines) - 1)
        synced = sync and self._named and self._synced == self._written and self._write_synced(parts)
        if not synced:
            self._write(parts)
        self._written = _Mark(size + sum(map(len, parts)), records + len(lines), digest)
        if synced:
            self._synced = self._written
        return synced

    def sync(self) -> None:
        """Wait until everything is on disk; raise SyncFailed."""
        if self._synced == self._written and self._named:
            return
        try:
            if not self._named:
                os.fsync(self._file)
                sync_folder(self.path.parent)
                self._named = True
            else:
                os.fdatasync(self._file)
        except OSError as error:
            raise SyncFailed(error.errno, error.strerror) from error
        self._synced = self._written

    def rewind(self) -> int:
        """Drop everything since the last sync; return the number of records that are left."""
        self._cut(self._synced.size)
        self._written = self._synced
        self.ended = False
        return self.records

    def end(self) -> None:
        """Write the end line, and sync. Without a record there is nothing to end."""
        if not self.ended:
            size, records, digest = self._written
            line, digest = end_line(self._hash, digest, records, self.next_seq - 1, timestamp(time.time()))
            self._write((line,))
            self._written = _Mark(size + len(line), records, digest)
            self.ended = True
        self.sync()

    def is_in_place(self) -> bool:
        """Tell whether the path still names the file. Nobody can tell without the right to look."""
        try:
            found = self.path.stat()
        except PermissionError:
            return True
        except (FileNotFoundError, NotADirectoryError):
            return False
        return (found.st_ino, found.st_dev) == self._place

    def is_deleted(self) -> bool:
        """Tell whether the file has no name any more."""
        return os.fstat(self._file).st_nlink == 0

    def restore(self) -> None:
        """Write a deleted file again, from the bytes that this process still holds, and sync it."""
        file = open_private_file(self.path, os.O_RDWR | os.O_APPEND)
        try:
            os.ftruncate(file, 0)
            at = 0
            while at < self.size:
                part = os.pread(self._file, min(_COPY_BYTES, self.size - at), at)
                at += write_all(file, (part,))
            os.fsync(file)
            sync_folder(self.path.parent)
        except OSError:
            os.close(file)
            raise
        os.close(self._file)
        self._file, self._synced, self._named = file, self._written, True
        self._place = _place(file)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _write_synced(self, parts: Sequence[bytes]) -> bool:
        """Do the same as `_write` and a sync at once; return False if the system cannot do that."""
        if self._syncs_writes:
            try:
                self._write(parts, os.RWF_DSYNC)
            except OSError as error:
                if error.errno not in {errno.EOPNOTSUPP, errno.ENOSYS}:
                    raise
                self._syncs_writes = False
        return self._syncs_writes

    def _write(self, parts: Sequence[bytes], flags: int = 0) -> None:
        """Append all parts of a text or nothing: cut off what was written if the rest cannot be."""
        if self._torn:
            self._cut(self.size)
        try:
            write_all(self._file, parts, flags)
        except OSError:
            self._torn = True
            self._cut(self.size)
            raise

    def _cut(self, size: int) -> None:
        """Drop all bytes behind a size. No other process writes the file."""
        if os.fstat(self._file).st_size > size:
            os.ftruncate(self._file, size)
        self._torn = False


def write_all(file: int, parts: Sequence[bytes], flags: int = 0) -> int:
    """Append all bytes of the parts of a text; return their number. `flags` are those of pwritev.

    Raise OSError, perhaps after a part.
    """
    rest: list[bytes | memoryview] = list(parts)
    written = 0
    while rest:
        # the position does not count for a file that is open for appending
        done = os.pwritev(file, rest, 0, flags) if flags else os.writev(file, rest)
        written += done
        while rest and done >= len(rest[0]):
            done -= len(rest.pop(0))
        if done:
            rest[0] = memoryview(rest[0])[done:]
    return written


def _place(file: int) -> tuple[int, int]:
    """Return the inode and the device of an open file."""
    state = os.fstat(file)
    return state.st_ino, state.st_dev


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
