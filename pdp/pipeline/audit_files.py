"""Files of audit folders: their names and lines, whether the bytes come from a disk or from Spark."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, cast

import msgspec
import zstandard

from pdp.audit.files.segments import SUFFIXES, segment_of
from pdp.audit.reader import TORN, TrailLine, trail_lines
from pdp.errors import InvalidArgument

_LOCAL: Final = "file:"
_BUFFER_BYTES: Final = 1 << 20
_COMPRESSED: Final = tuple(suffix for suffix in SUFFIXES.values() if suffix)


class AuditFile(msgspec.Struct, frozen=True):
    """File of an audit. `name` has no end of a compressed file: a segment keeps it when it is compressed later.

    The part of a plain file from the byte `start` to the byte `end` counts. `end` is 0 for a compressed file. `gone`:
    somebody removed the file before its batch ended.
    """

    path: str
    folder: str
    name: str
    end: int
    start: int = 0
    gone: bool = False

    @property
    def place(self) -> tuple[str, str]:
        """Return the folder and the name, which stay the same for the life of the file."""
        return self.folder, self.name

    @property
    def local(self) -> Path | None:
        """Return the path on this machine; None for a file elsewhere."""
        return Path(self.path.removeprefix(_LOCAL)) if self.path.startswith(_LOCAL) else None


def audit_file(path: str, size: int) -> AuditFile | None:
    """Return the file at a path as Spark writes it; None if the name is not that of complete records."""
    path = plain_path(path)
    folder, _, name = path.rpartition("/")
    segment = segment_of(Path(name))
    if segment is None or not segment.complete:
        return None
    for suffix in _COMPRESSED:
        name = name.removesuffix(suffix)
    return AuditFile(path, folder, name, 0 if path.endswith(_COMPRESSED) else size)


def file_lines(file: AuditFile, content: bytes | None = None) -> Iterator[TrailLine]:
    """Yield the lines of a file that count. `content` are its bytes, if the file is not on this machine.

    A file that was compressed since the listing is read in its new form. In a file that has grown since, the line
    across the end is cut there: every pass reads the same lines.
    """
    if file.gone:
        yield TrailLine(1, b"", "the file was removed before its batch ended")
        return
    position = 0
    for line in _all_lines(file, content):
        if file.end and position >= file.end:
            return
        begin, position = position, position + len(line.data)
        if file.end and position > file.end:
            line = TrailLine(line.number, line.data[: file.end - begin], line.problem or TORN)  # noqa: PLW2901
        if position > file.start or line.problem:
            yield line


def _all_lines(file: AuditFile, content: bytes | None) -> Iterator[TrailLine]:
    if content is not None:
        yield from _lines(io.BytesIO(content), file.path)
        return
    local = file.local
    assert local is not None
    for path in (local, *(local.with_name(file.name + suffix) for suffix in SUFFIXES.values())):
        try:
            stream = path.open("rb")
        except FileNotFoundError:
            continue
        with stream:
            yield from _lines(stream, path.name)
        return
    raise InvalidArgument(f"cannot read `{local}`: no such file or directory")


def _lines(stream: BinaryIO, name: str) -> Iterator[TrailLine]:
    if name.endswith(".zst"):
        unpacked = zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True)
        stream = cast(BinaryIO, io.BufferedReader(unpacked, _BUFFER_BYTES))
    elif name.endswith(".gz"):
        stream = cast(BinaryIO, gzip.GzipFile(fileobj=stream))
    return trail_lines(stream)


def plain_path(path: str) -> str:
    """Return a path as Spark writes it, with one slash after `file:`."""
    return f"{_LOCAL}/{path.removeprefix(_LOCAL).lstrip('/')}" if path.startswith(_LOCAL) else path
