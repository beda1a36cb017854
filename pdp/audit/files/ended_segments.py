"""Ended segments: closed after a kill at the next start, compressed, and published under their final names.

A thread of its own compresses: that takes seconds, and the records of these seconds must not wait. Whoever publishes a
segment holds the lock of its instance.

Only the newest segment of a killed instance can be torn. Everything up to the last chain line stays. Whole records
behind that stay, too: a chain line that is marked `recovered` counts them, because nobody proved them in time. The rest
is a torn line, and goes to a file `.torn`.

Anybody who can write the folder can leave a segment there. So a start computes the chain again, and the end line that
the start signs names the first record without a proof. A segment with an unknown key stays open: nobody can judge the
chain.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import BinaryIO, Final

import msgspec
import structlog
import zstandard

from pdp.audit.files.chain import (
    CHAIN,
    SEGMENT,
    SEGMENT_END,
    ChainHash,
    SegmentClosing,
    chain_line,
    end_line,
    line_digest,
)
from pdp.audit.files.locks import lock_if_dead, locked_instances
from pdp.audit.files.open_segment import sync_folder, write_all
from pdp.audit.files.segments import SUFFIXES, SegmentFile, complete_path, open_segments
from pdp.audit.records.writing import timestamp
from pdp.config.audit import Compression
from pdp.config.files import open_private_file

_DRAFT: Final = ".draft-"
_PART: Final = 1 << 20
log = structlog.get_logger()


class SegmentCompressor:
    """Publisher of segments. A segment is complete under its final name, and never has two final names."""

    def __init__(self, compress: Compression) -> None:
        self._compress = compress
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def publish(self, path: Path) -> None:
        """Give an ended segment its final name. A segment to compress gets the name afterwards."""
        if self._compress == "none":
            rename_segment(path)
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="audit-compress", daemon=True)
            self._thread.start()
        self._queue.put(partial(self._publish, path))

    def afterwards(self, action: Callable[[], None]) -> None:
        """Do something once all segments so far are published."""
        if self._thread is None:
            action()
        else:
            self._queue.put(action)

    def close(self) -> None:
        """Wait until all segments are published. The next start publishes what a killed process leaves."""
        if self._thread:
            self._queue.put(None)
            self._thread.join()

    def _run(self) -> None:
        while action := self._queue.get():
            with contextlib.suppress(OSError):
                action()

    def _publish(self, path: Path) -> None:
        """Compress one segment. After a failure, the other segments follow."""
        try:
            publish_compressed(path, self._compress)
        except Exception as error:  # noqa: BLE001  nothing is lost: the next start publishes the segment
            cause = error.strerror if isinstance(error, OSError) else repr(error)
            log.warning("the audit file keeps its open name", file=str(path), cause=cause)


def rename_segment(path: Path) -> None:
    """Give a segment its final name."""
    path.rename(complete_path(path))
    sync_folder(path.parent)


def publish_compressed(path: Path, compress: Compression) -> None:
    """Compress a segment and give it its final name; without room for that, leave it uncompressed.

    Raise OSError if it cannot be renamed: the next start tries again.
    """
    complete = complete_path(path)
    final = complete.with_name(complete.name + SUFFIXES[compress])
    draft = path.with_name(f"{_draft_name(path)}{uuid.uuid4().hex}")  # of nobody else, whoever may compress the segment
    try:
        with path.open("rb") as source, os.fdopen(open_private_file(draft, os.O_WRONLY | os.O_TRUNC), "wb") as target:
            _copy(source, target, compress)
            target.flush()
            os.fsync(target.fileno())
    except (OSError, zstandard.ZstdError, MemoryError) as error:
        log.warning("audit stays uncompressed", file=str(path), cause=str(error))
        draft.unlink(missing_ok=True)
        rename_segment(path)
        return
    draft.rename(final)
    sync_folder(path.parent)
    path.unlink(missing_ok=True)


def remove_drafts(path: Path) -> None:
    """Remove what killed processes have left when they compressed a segment."""
    for draft in list(path.parent.iterdir()):
        if draft.name.startswith(_draft_name(path)):
            draft.unlink(missing_ok=True)


def _draft_name(path: Path) -> str:
    """Return the start of the names of drafts, which are hidden: nobody reads them."""
    return f".{path.name.removeprefix('.')}{_DRAFT}"


def _copy(source: BinaryIO, target: BinaryIO, compress: Compression) -> None:
    if compress == "zstd":
        zstandard.ZstdCompressor(write_checksum=True).copy_stream(source, target, read_size=_PART, write_size=_PART)
        return
    with gzip.GzipFile(filename="", fileobj=target, mode="wb", compresslevel=6, mtime=0) as packed:
        shutil.copyfileobj(source, packed, _PART)


TORN: Final = ".torn"


class _Line(msgspec.Struct, frozen=True):
    """Fields of a line that its place in the segment depends on."""

    event: str = ""
    seq: int = -1
    digest: str = ""
    previous: str = ""
    key: str = ""
    recovered: bool = False


_LINE: Final = msgspec.json.Decoder(_Line)


class LeftSegment:
    """Segment of a killed process: how far it is readable, and what its end needs.

    A line that nobody can read is torn behind the last chain line. Before that it is damage, and stays to be found.
    """

    def __init__(self, hashes: Mapping[str, ChainHash]) -> None:
        """Begin without a line. `hashes` are those of the known keys by their names."""
        self.hash = hashes.get("")
        """Hash of the segment; None if the header names an unknown key."""
        self.ended = False
        self.first = self.next = 0
        """`seq` of the first record, and of the next one."""
        self._judged = 0
        """First record behind the chain lines that are right."""
        self._wrong = False
        """Tells whether a chain line was not right."""
        self.digest = b""
        """Digest of the last chain line."""
        self.size = 0
        """Bytes up to the last line that stays."""
        self.unproven: list[bytes] = []
        """Records since the last chain line."""
        self.header = b""
        """Header, if no chain line follows."""
        self._broken = False
        """Tells whether a line since the last chain line cannot be read."""
        self._text: list[bytes] = []
        """Lines since the last chain line."""
        self._hashes = hashes

    def take(self, line: bytes, end: int) -> None:
        """Take the next line, which ends at the byte `end`."""
        try:
            fields = _LINE.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            fields = _Line()
        if not line.endswith(b"\n"):
            return
        self._text.append(line)
        if fields.event in {CHAIN, SEGMENT_END}:
            self._judge(fields)
            self.digest, self._text = _bytes(fields.digest), []
            self.next = max(self.next, fields.seq + 1)
            self.unproven, self.header, self._broken = [], b"", False
            self.ended = fields.event == SEGMENT_END
        elif fields.event == SEGMENT and end == len(line):
            self.first = self.next = self._judged = fields.seq
            self.hash, self.header, self.digest = self._hashes.get(fields.key), line, _bytes(fields.previous)
        elif fields.event and fields.seq == self.next and not self._broken:
            self.next += 1
            self.unproven.append(line)
        else:
            self._broken = True
        if not self._broken:
            self.size = end

    def first_unproven(self) -> int | None:
        """Return the first record that no chain line proves; None if all are proven."""
        return self._judged if self._wrong or self.unproven else None

    def _judge(self, fields: _Line) -> None:
        """Compute the digest of a line again. A line that another start wrote proves nothing."""
        hash = self.hash
        right = hash and line_digest(hash, self.digest, b"".join(self._text)) == _bytes(fields.digest)
        if not right or fields.recovered:
            self._wrong = True
        elif not self._wrong:
            self._judged = fields.seq + 1


def close_left_segments(folder: Path, hashes: Sequence[ChainHash], publisher: SegmentCompressor) -> None:
    """Close the segments of all instances that do not run any more. Raise OSError if the disk does not allow it.

    `hashes` are those of all known keys, the present one first: a segment goes on with its own key.
    """
    left = open_segments(folder)
    for instance in {*left, *locked_instances(folder)}:
        lock = lock_if_dead(folder, instance)
        if lock is None:
            continue
        # another start may have closed them before this one got the lock
        segments = open_segments(folder).get(instance, ())
        try:
            for file in segments:
                _close(file, hashes, publisher)
        finally:
            if segments:
                publisher.afterwards(lock.release)
            else:  # perhaps the instance begins just now, and waits for the lock
                lock.release()


def _close(file: SegmentFile, hashes: Sequence[ChainHash], publisher: SegmentCompressor) -> None:
    remove_drafts(file.path)
    for suffix in SUFFIXES.values():
        final = file.path.with_name(complete_path(file.path).name + suffix)
        if final.exists():  # it was compressed, and only its old form was left
            file.path.unlink()
            return
    left = read_left(file.path, {"": ChainHash(), **{hash.key_id: hash for hash in hashes}})
    if not left.ended:
        if left.hash is None:
            log.warning("the key of the audit of a killed process is unknown: the file stays open", file=str(file.path))
            return
        _cut(file.path, left.size)
        if left.next == left.first:
            file.path.unlink()
            return
        _end(file.path, left, left.hash)
        log.warning("closed the audit of a killed process", file=str(file.path), records=left.next - left.first)
    publisher.publish(file.path)


def read_left(path: Path, hashes: Mapping[str, ChainHash]) -> LeftSegment:
    """Return the state of a left segment. `hashes` are those of the known keys by their names."""
    left, end = LeftSegment(hashes), 0
    with path.open("rb") as stream:
        for line in stream:
            end += len(line)
            left.take(line, end)
    return left


def _cut(path: Path, size: int) -> None:
    """Move everything from `size` on to a file beside, if there is anything."""
    with path.open("r+b") as stream:
        stream.seek(size)
        rest = stream.read()
        if not rest:
            return
        torn = open_private_file(complete_path(path).with_suffix(TORN), os.O_WRONLY | os.O_APPEND)
        try:
            write_all(torn, (rest,))
            os.fsync(torn)
        finally:
            os.close(torn)
        sync_folder(path.parent)
        stream.truncate(size)


def _end(path: Path, left: LeftSegment, hash: ChainHash) -> None:
    """Write the end of a segment."""
    digest, text, last = left.digest, b"", left.next - 1
    if left.unproven:
        (covered, end), digest = chain_line(hash, digest, left.header, left.unproven, last, recovered=True)
        text = covered[len(left.header) + sum(map(len, left.unproven)) :] + end
    closing = SegmentClosing(left.first_unproven())
    line, _ = end_line(hash, digest, left.next - left.first, last, timestamp(time.time()), closing)
    descriptor = open_private_file(path, os.O_WRONLY | os.O_APPEND)
    try:
        write_all(descriptor, (text, line))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _bytes(digest: str) -> bytes:
    try:
        return bytes.fromhex(digest)
    except ValueError:
        return b""
