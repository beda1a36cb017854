"""Folder of one epoch of the history of facts, to which several processes write.

A lock on the folder orders the writers: a revision that several processes know of is written once, and in order. No
lock is held while a snapshot is written, which takes long. Each call may raise OSError. Use in one thread at a time.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from pdp.audit.facts.files import (
    CHANGES_EVENT,
    SCHEMA,
    TAIL_BYTES,
    ChangesHead,
    StoredRevision,
    changes_name,
    encode_head,
    encode_revision,
    encode_snapshot,
    list_files,
    read_seal,
    snapshot_name,
)
from pdp.audit.files.open_segment import sync_folder
from pdp.audit.records.writing import timestamp
from pdp.config.files import make_private_folder, open_private_file
from pdp.facts.snapshot import Facts
from pdp.model.revision import Revision

ROLL_BYTES: Final = 16 << 20
ROLL_SNAPSHOTS: Final = 4
"""Size of a file of changes, in bytes and in sizes of the newest snapshot, from which a new snapshot begins."""
LOCK_SECONDS: Final = 5.0
_LOCK_PAUSE: Final = 0.002
_BLOCK: Final = 1 << 16


class MissingRevisionsError(Exception):
    """Revisions between the end of the history and the next revision to write."""


class _Tail(NamedTuple):
    """End of the newest file of changes: its size, its last revision, and the digest and token of that."""

    path: Path
    size: int
    sequence: int
    digest: str
    token: str


class FactFolder:
    """History of the facts of one epoch in a folder."""

    def __init__(self, path: Path, epoch: str, instance: str) -> None:
        self.path = path
        self._epoch = epoch
        self._instance = instance
        self._known: _Tail | None = None
        self._make()

    def newest(self) -> Revision | None:
        """Return the newest revision of the history; None without any."""
        with self._locked():
            tail = self._tail()
        return Revision(self._epoch, tail.sequence, token=tail.token) if tail else None

    def append(self, revisions: Sequence[StoredRevision]) -> None:
        """Write the revisions that the history does not have yet, and wait for the disk.

        Raise MissingRevisionsError if the first of them does not follow the history.
        """
        with self._locked():
            tail = self._tail()
            if tail is None:
                raise MissingRevisionsError
            new = [revision for revision in revisions if revision.sequence > tail.sequence]
            if new and new[0].sequence > tail.sequence + 1:
                raise MissingRevisionsError
            if new:
                self._write(tail, new)

    def covers(self, sequence: int) -> bool:
        """Tell whether the facts of a revision follow from a snapshot and the changes after it."""
        with self._locked():
            tail = self._tail()
        if tail is None or tail.sequence < sequence:
            return False
        files = list_files(self.path)
        below = sorted((start for start in files.changes if start <= sequence), reverse=True)
        for start, before in zip(below, [*below[1:], None], strict=True):
            if start in files.snapshots:
                return True
            if before is None or _newest_in(files.changes[before]) != start:
                return False
        return False

    def is_large(self) -> bool:
        """Tell whether so many changes follow the newest snapshot that a new snapshot should follow them."""
        tail = self._known
        if tail is None or tail.size < ROLL_BYTES:
            return False
        snapshots = list_files(self.path).snapshots.values()
        return tail.size > ROLL_SNAPSHOTS * max((path.stat().st_size for path in snapshots), default=0)

    def add_snapshot(self, facts: Facts) -> Iterator[None]:
        """Begin a new file of changes at the revision of the facts, and write its snapshot in steps.

        Do nothing while another process writes a snapshot, or if the history is ahead of the facts.
        """
        with contextlib.suppress(BlockingIOError), self._lock("snapshot", 0):
            for draft in self.path.glob(".snapshot-*"):
                draft.unlink()  # left by a process that was killed: nobody else has the lock
            if not self._begin_changes(facts) or facts.sequence in list_files(self.path).snapshots:
                return
            draft = self.path / f".snapshot-{facts.sequence}"
            try:
                with os.fdopen(open_private_file(draft, os.O_WRONLY | os.O_TRUNC), "wb") as file:
                    for piece in encode_snapshot(facts, self._instance, time.time()):
                        file.write(piece)
                        yield
                    file.flush()
                    os.fsync(file.fileno())
                draft.rename(self.path / snapshot_name(facts.sequence))
            finally:
                draft.unlink(missing_ok=True)
            sync_folder(self.path)

    def _begin_changes(self, facts: Facts) -> bool:
        """Begin a file of changes after facts, unless it is there; return False if newer revisions are there."""
        sequence = facts.sequence
        with self._locked():
            tail = self._tail()
            if tail and tail.sequence > sequence:
                return False
            path = self.path / changes_name(sequence)
            if tail and tail.path == path:
                return True
            previous = tail.digest if tail and tail.sequence == sequence else ""
            named = self._epoch, self._instance, timestamp(time.time()), previous, facts.token
            head = ChangesHead(CHANGES_EVENT, SCHEMA, *named)
            line, _ = encode_head(head, sequence)
            with os.fdopen(open_private_file(path, os.O_WRONLY | os.O_TRUNC), "wb") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
            sync_folder(self.path)
            self._known = None
        return True

    def _write(self, tail: _Tail, revisions: Sequence[StoredRevision]) -> None:
        """Append revisions to the newest file, all or none."""
        lines, digest = [], tail.digest
        for revision in revisions:
            line, digest = encode_revision(revision, digest)
            lines.append(line)
        text = b"".join(lines)
        self._known = None
        with tail.path.open("ab", buffering=0) as file:
            try:
                written = 0
                while written < len(text):
                    written += file.write(memoryview(text)[written:])
                os.fsync(file.fileno())
            except OSError:
                with contextlib.suppress(OSError):
                    file.truncate(tail.size)
                raise
        last = revisions[-1]
        self._known = _Tail(tail.path, tail.size + len(text), last.sequence, digest, last.token)

    def _tail(self) -> _Tail | None:
        """Return the end of the newest file of changes, without what a killed process left unfinished there.

        None if there is no file, or if its last line has no seal.
        """
        files = list_files(self.path).changes
        for start in sorted(files, reverse=True):
            path = files[start]
            size = path.stat().st_size
            known = self._known
            if known and known.path == path and known.size == size:
                return known
            size = _mend(path, size)
            if not size:
                path.unlink()  # not even the head was written
                continue
            seal = read_seal(_last_bytes(path, size))
            self._known = _Tail(path, size, seal.sequence, seal.digest, seal.token) if seal else None
            return self._known
        return None

    def _make(self) -> None:
        make_private_folder(self.path.parent)
        make_private_folder(self.path)

    def _locked(self) -> contextlib.AbstractContextManager[None]:
        return self._lock("lock", LOCK_SECONDS)

    @contextmanager
    def _lock(self, name: str, seconds: float) -> Iterator[None]:
        """Hold a lock that all processes share; raise BlockingIOError if others hold the lock for so long."""
        self._make()
        lock = open_private_file(self.path / f".{name}", os.O_RDWR)
        try:
            deadline = time.monotonic() + seconds
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= deadline:
                        raise
                time.sleep(_LOCK_PAUSE)
            yield
        finally:
            os.close(lock)


def _mend(path: Path, size: int) -> int:
    """Cut off a last line that has no end; return the size of the file."""
    end = size
    with path.open("r+b") as file:
        while end:
            begin = max(0, end - _BLOCK)
            file.seek(begin)
            block = file.read(end - begin)
            found = block.rfind(b"\n")
            if found >= 0:
                end = begin + found + 1
                break
            end = begin
        if end < size:
            file.truncate(end)
    return end


def _newest_in(path: Path) -> int | None:
    """Return the last revision of a file of changes; None without a seal."""
    seal = read_seal(_last_bytes(path, path.stat().st_size))
    return seal.sequence if seal else None


def _last_bytes(path: Path, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, size - TAIL_BYTES))
        return file.read(TAIL_BYTES)
