"""Folder of an audit: the segments of one instance, and the bundles by digest.

Knows bytes and the disk, and nothing of records. Use in one thread at a time.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import structlog

from pdp.audit.files.chain import ChainHash
from pdp.audit.files.ended_segments import SegmentCompressor, close_left_segments
from pdp.audit.files.locks import InstanceLock
from pdp.audit.files.open_segment import OpenSegment, sync_folder
from pdp.audit.files.segments import open_name
from pdp.config.audit import DEFAULT_SEGMENT_MIB, DEFAULT_SEGMENT_SECONDS, Compression
from pdp.config.files import make_private_folder, open_private_file, restrict_files, warn_of_open_folder
from pdp.errors import ConfigError

log = structlog.get_logger()


class SegmentForm(msgspec.Struct, frozen=True):
    """Form of segments: the bytes and seconds after which one ends, their compression, and the hash of the chain.

    `former` are the hashes of former keys, for segments that a killed process has left.
    """

    size: int = DEFAULT_SEGMENT_MIB << 20
    seconds: float = DEFAULT_SEGMENT_SECONDS
    compress: Compression = "none"
    hash: ChainHash = ChainHash()
    former: tuple[ChainHash, ...] = ()


DEFAULT_FORM = SegmentForm()
LOOK_SECONDS: Final = 0.05
"""Longest time for which lines go to a file without a look at its place."""


class AuditFolder:
    """Segments of one instance, and bundles in `<folder>/bundles/<digest>`.

    Opening the folder closes the segments that killed processes have left. Every error is an OSError, and the same call
    can be made again.
    """

    def __init__(self, folder: Path, instance: str, form: SegmentForm = DEFAULT_FORM) -> None:
        self.path = folder
        self._instance = instance
        self._form = form
        self._bundles = folder / "bundles"
        self._archived: dict[str, bytes] = {}
        """Bundles that are in the folder, by digest."""
        self._segment: OpenSegment | None = None
        self._number = self._seq = 0
        self._look_at = 0.0
        """Time of the next look for the file."""
        self._digest = b""
        """Number of the newest segment, `seq` of the next record, and the digest of all complete segments."""
        try:
            make_private_folder(folder)
            make_private_folder(self._bundles)
            restrict_files(*folder.glob("*decisions-*"), *self._bundles.iterdir())
            self._lock = InstanceLock(folder, instance)
            self._publisher = SegmentCompressor(form.compress)
            close_left_segments(folder, (form.hash, *form.former), self._publisher)
            self._open()
            warn_of_open_folder(folder)
        except OSError as error:
            raise ConfigError(f"cannot write the audit to `{folder}` (audit.sinks): {error.strerror}") from None

    def archive(self, digest: str, text: bytes) -> None:
        """Put a bundle into the folder, unless it is there."""
        if digest in self._archived:
            return
        path = self._bundles / digest
        if not path.exists():
            draft = path.with_suffix(f".{self._instance}")  # another process may write the same bundle
            with os.fdopen(open_private_file(draft, os.O_WRONLY | os.O_TRUNC), "wb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            draft.rename(path)
            sync_folder(self._bundles)
        self._archived[digest] = text

    def append(self, lines: Sequence[bytes], *, sync: bool = False) -> bool:
        """Append all of the lines of records or nothing. `sync` asks to have the lines on disk: return True if so."""
        if self._segment and self._segment.ended:  # it could not be renamed
            self.rotate()
        segment = self._segment or self._open()
        if sync or time.monotonic() >= self._look_at:
            segment = self._in_place(segment)
        synced = segment.append(lines, sync=sync)
        self._seq = segment.next_seq
        return synced

    def sync(self) -> None:
        """Wait until all lines are on disk; raise SyncFailed."""
        if self._segment:
            self._in_place(self._segment).sync()

    def rewind(self) -> None:
        """Drop all lines since the last sync, which failed: they have to come again."""
        if self._segment:
            self._segment.rewind()
            self._seq = self._segment.next_seq

    def seconds_left(self) -> float | None:
        """Return the seconds until the segment has its full age or size; None for a segment without a record."""
        segment = self._segment
        if segment is None or not segment.records:
            return None
        if segment.size >= self._form.size:
            return 0.0
        return max(0.0, segment.begun + self._form.seconds - time.monotonic())

    def rotate(self) -> None:
        """Complete the segment, if it has a record. The next line begins another one."""
        segment = self._segment
        if segment is None or not segment.records:
            return
        segment = self._in_place(segment)
        if not segment.records:
            return
        segment.end()
        self._publisher.publish(segment.path)
        self._leave(segment)

    def close(self) -> None:
        """End the use of the folder. A segment that is not complete stays for the next start."""
        segment, self._segment = self._segment, None
        if segment:
            segment.close()
            if not segment.records:
                segment.path.unlink(missing_ok=True)
        self._publisher.close()
        self._lock.release()

    def _open(self) -> OpenSegment:
        path = self.path / open_name(self._instance, self._number + 1)
        self._segment = OpenSegment(path, self._instance, self._number + 1, self._seq, self._digest, self._form.hash)
        self._number += 1
        return self._segment

    def _leave(self, segment: OpenSegment) -> None:
        self._digest = segment.digest
        self._segment = None
        segment.close()

    def _in_place(self, segment: OpenSegment) -> OpenSegment:
        """Return the segment, if its file is where it belongs; else bring it back, or begin the next one."""
        self._look_at = time.monotonic() + LOOK_SECONDS
        if segment.is_in_place():
            return segment
        self._renew()
        if segment.is_deleted():
            segment.restore()
            _warn("the audit was deleted: wrote the open file again", segment)
            return segment
        if not segment.records:
            segment.close()
            return self._open()
        segment.end()
        _warn("the audit was moved: began the next file", segment)
        self._leave(segment)
        return self._open()

    def _renew(self) -> None:
        """Make the folder, its lock and its bundles again."""
        make_private_folder(self.path)
        make_private_folder(self._bundles)
        self._lock.renew()
        bundles, self._archived = self._archived, {}
        try:
            for digest, text in bundles.items():
                self.archive(digest, text)
        finally:
            self._archived = bundles


def _warn(message: str, segment: OpenSegment) -> None:
    with contextlib.suppress(OSError):  # the log may be on the same full disk
        log.warning(message, file=str(segment.path))


def cause_of(error: Exception) -> str:
    """Return the cause of a failed write in words."""
    if isinstance(error, OSError) and error.errno:
        return f"{error.strerror} ({errno.errorcode.get(error.errno, error.errno)})"
    return repr(error)
