"""Segment that is being written: its lines, its chain, and its state on disk.

Knows bytes and one file. Use in one thread at a time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from pdp.audit.chain import ChainHash, SegmentHead, chain_line, end_line
from pdp.audit.encoding import timestamp
from pdp.config.private_files import open_private_file

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
        self._named = False
        """Tells whether the name of the file is on disk."""

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

    def append(self, lines: Sequence[bytes]) -> None:
        """Append the lines of records, and the chain line over them."""
        size, records, digest = self._written
        head = b""
        if not size:
            instance, number, seq, previous = self._head
            head = SegmentHead(instance, number, seq, timestamp(time.time()), previous, self._hash.key_id).line()
        text, digest = chain_line(self._hash, digest, head, lines, self.next_seq + len(lines) - 1)
        self._write(text)
        self._written = _Mark(size + len(text), records + len(lines), digest)

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
            self._write(line)
            self._written = _Mark(size + len(line), records, digest)
            self.ended = True
        self.sync()

    def is_in_place(self) -> bool:
        """Tell whether the path still names the file. Nobody can tell without the right to look."""
        own = os.fstat(self._file)
        try:
            found = self.path.stat()
        except PermissionError:
            return True
        except (FileNotFoundError, NotADirectoryError):
            return False
        return (found.st_ino, found.st_dev) == (own.st_ino, own.st_dev)

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
                at += write_all(file, part)
            os.fsync(file)
            sync_folder(self.path.parent)
        except OSError:
            os.close(file)
            raise
        os.close(self._file)
        self._file, self._synced, self._named = file, self._written, True

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _write(self, text: bytes) -> None:
        """Append all of a text or nothing: cut a part off again if the rest cannot be written."""
        self._cut(self.size)  # an earlier cut may have failed
        try:
            write_all(self._file, text)
        except OSError:
            self._cut(self.size)
            raise

    def _cut(self, size: int) -> None:
        if os.fstat(self._file).st_size > size:
            os.ftruncate(self._file, size)


def write_all(file: int, text: bytes) -> int:
    """Write all bytes of a text; return their number. Raise OSError after a part."""
    written = 0
    while written < len(text):
        written += os.write(file, memoryview(text)[written:])
    return written


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
