"""Instances of an audit folder, running and dead, told apart by locks.

The file `<folder>/.lock-<instance>` is locked while the instance runs.

The record of a start names the instances that it finds, so that none can be taken away unseen. Only complete segments
count: they are on disk for good.
"""

from __future__ import annotations

import fcntl
import os
import time
import zlib
from pathlib import Path
from typing import Final

import msgspec
import structlog
import zstandard

from pdp.audit.files.chain import SEGMENT_END, EndLine
from pdp.audit.files.segments import SegmentFile, segment_files
from pdp.config.files import open_private_file

OWN_SECONDS: Final = 2.0
"""Longest time in which an instance tries to lock its own file."""
_PREFIX: Final = ".lock-"
log = structlog.get_logger()


class InstanceLock:
    """Lock of one instance. Raises OSError if the folder takes no file, BlockingIOError if the instance runs.

    `own`: the instance goes on without a lock where the file system has none. Others then take it for a running one.
    """

    def __init__(self, folder: Path, instance: str, *, own: bool = True) -> None:
        self._path = folder / f"{_PREFIX}{instance}"
        self._own = own
        self._file = _locked(self._path, own=own)

    def renew(self) -> None:
        """Lock the file again, if the folder has lost it."""
        if not _names(self._path, self._file):
            file = _locked(self._path, own=self._own)
            os.close(self._file)
            self._file = file

    def release(self) -> None:
        """Remove the file and its lock."""
        try:
            if _names(self._path, self._file):
                self._path.unlink(missing_ok=True)
        finally:
            os.close(self._file)


def lock_if_dead(folder: Path, instance: str) -> InstanceLock | None:
    """Return the lock of an instance that does not run; None if it runs, or if nobody can tell."""
    try:
        return InstanceLock(folder, instance, own=False)
    except BlockingIOError:
        return None
    except OSError as error:
        log.warning("cannot tell whether an instance of the audit runs", instance=instance, cause=error.strerror)
        return None


def locked_instances(folder: Path) -> list[str]:
    """Return the instances that have a file for a lock, locked or not."""
    return [path.name.removeprefix(_PREFIX) for path in folder.glob(f"{_PREFIX}*")]


def _locked(path: Path, *, own: bool) -> int:
    """Return the descriptor of a locked file. The file of a lock that ends meanwhile is gone: take a new one.

    A start that looks for dead instances locks the file of a new one for a moment. So the instance tries again.
    """
    end = time.monotonic() + OWN_SECONDS
    while True:
        try:
            file = open_private_file(path, os.O_RDWR)  # NFS has an exclusive flock for files open for writing alone
        except FileNotFoundError:
            if time.monotonic() > end:
                raise
            continue
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            blocked = isinstance(error, BlockingIOError)
            if own and not blocked:
                log.warning("the audit cannot be locked", file=str(path), cause=error.strerror)
                return file
            os.close(file)
            if not own or time.monotonic() > end:
                raise
            time.sleep(0.01)
            continue
        if _names(path, file):
            return file
        os.close(file)


def _names(path: Path, file: int) -> bool:
    try:
        found = path.stat()
    except OSError:
        return False
    own = os.fstat(file)
    return (found.st_ino, found.st_dev) == (own.st_ino, own.st_dev)


MOST_NAMED: Final = 100
"""Newest instances that a start names. Older ones are named by earlier starts."""
READ_SECONDS: Final = 0.5
"""Longest time for which a start reads the ends of compressed segments. Others have no end in its record."""
_PART: Final = 1 << 20
_TAIL: Final = 1 << 12
_END: Final = msgspec.json.Decoder(EndLine)


class KnownInstance(msgspec.Struct, frozen=True):
    """An instance in an audit folder, and its newest complete segment: the number, the last `seq`, and the digest.

    The digest is empty if the end of the segment was not read.
    """

    instance: str
    number: int
    seq: int = -1
    digest: str = ""


def known_instances(folder: Path) -> list[KnownInstance]:
    """Return the newest instances with complete segments; none if nobody can tell."""
    try:
        files = segment_files(folder)
    except OSError:
        return []
    newest = {file.instance: file for file in files if file.complete and file.number}
    deadline = time.monotonic() + READ_SECONDS
    chosen = [newest[instance] for instance in sorted(newest)[-MOST_NAMED:]]
    return [_known(file, deadline) for file in reversed(chosen)][::-1]


def _known(file: SegmentFile, deadline: float) -> KnownInstance:
    try:
        end = _END.decode(_last_line(file, deadline))
    except (OSError, EOFError, ValueError, zlib.error, zstandard.ZstdError):
        return KnownInstance(file.instance, file.number)
    return KnownInstance(file.instance, file.number, end.seq, end.digest)


def _last_line(file: SegmentFile, deadline: float) -> bytes:
    """Return the last line of a file if that is an end line; raise ValueError if not, or if there is no time."""
    tail = b""
    with file.open() as stream:
        if not file.compressed:
            stream.seek(max(0, file.path.stat().st_size - _TAIL))
        while part := stream.read(_PART):
            tail = (tail + part)[-_TAIL:]
            if file.compressed and time.monotonic() > deadline:
                raise ValueError("no time")
    line = tail.rstrip(b"\n").rpartition(b"\n")[2]
    if not line.startswith(f'{{"event":"{SEGMENT_END}"'.encode()):
        raise ValueError("no end line")
    return line
