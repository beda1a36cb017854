"""Publishing of ended segments under their final names, compressed if the configuration says so.

A thread of its own compresses: that takes seconds, and the records of these seconds must not wait. Whoever publishes a
segment holds the lock of its instance.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
import threading
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import BinaryIO, Final

import structlog
import zstandard

from pdp.audit.files.open_segment import sync_folder
from pdp.audit.files.segments import SUFFIXES, complete_path
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
