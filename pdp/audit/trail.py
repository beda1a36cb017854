"""Lines of the files of an audit, whatever form a file has.

Knows line ends, and nothing of records. Reads while services write: a segment may be renamed or compressed between the
listing and the reading.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, cast

import msgspec
import zstandard

from pdp.audit.segments import SUFFIXES, SegmentFile, complete_name, segment_files
from pdp.errors import InvalidArgument

MAX_LINE_BYTES: Final = 512 << 20
"""Limit of a line: the record of the largest request is far smaller."""
TORN: Final = "torn"
TOO_LONG: Final = "line too long"
_BUFFER_BYTES: Final = 1 << 20
_DAMAGES: Final = (EOFError, zlib.error, zstandard.ZstdError, gzip.BadGzipFile)


class TrailLine(NamedTuple):
    """A line with its number in the file. `problem` is empty for a whole line.

    TORN is a line without an end, TOO_LONG one beyond the limit. Any other problem is the cause for which a compressed
    file has no further lines.
    """

    number: int
    data: bytes
    problem: str = ""


def trail_files(folder: Path) -> list[SegmentFile]:
    """Return the files of an audit in order: by instance, then by number.

    Raise InvalidArgument if the folder cannot be read, or has no such file.
    """
    try:
        files = [file for file in segment_files(folder) if file.path.is_file()]
    except OSError as error:
        raise InvalidArgument(f"cannot read `{folder}`: {error.strerror}") from None
    if not files:
        raise InvalidArgument(f"no audit in `{folder}`: it has no file `decisions-*.jsonl`")
    return files


def open_trail_file(file: SegmentFile) -> BinaryIO:
    """Open a file for reading, under its later name if a service has published the segment since the listing.

    Raise InvalidArgument if the file cannot be read under any name.
    """
    name = complete_name(file.instance, file.number) if file.number else file.path.name
    later = [msgspec.structs.replace(file, path=file.path.with_name(name + suffix)) for suffix in SUFFIXES.values()]
    for form in (file, *later):
        try:
            stream = form.open()
            # the reader of zstandard knows no lines
            return io.BufferedReader(cast(io.RawIOBase, stream), _BUFFER_BYTES) if form.compressed else stream
        except FileNotFoundError:
            continue
        except OSError as error:
            raise InvalidArgument(f"cannot read `{form.path}`: {error.strerror}") from None
    raise InvalidArgument(f"cannot read `{file.path}`: no such file or directory")


def trail_lines(stream: BinaryIO, limit: int = MAX_LINE_BYTES) -> Iterator[TrailLine]:
    """Yield the lines of an open file, with their line ends. The limit of a line bounds the memory.

    Raise InvalidArgument if the disk fails.
    """
    number = 0
    try:
        while line := stream.readline(limit):
            number += 1
            if line.endswith(b"\n"):
                yield TrailLine(number, line)
            elif len(line) == limit:
                _skip_line(stream, limit)
                yield TrailLine(number, b"", TOO_LONG)
            else:
                yield TrailLine(number, line, TORN)
    except _DAMAGES as error:
        yield TrailLine(number + 1, b"", f"damaged compression: {error}")
    except OSError as error:
        raise InvalidArgument(f"cannot read the audit: {error.strerror or error}") from None


def _skip_line(stream: BinaryIO, limit: int) -> None:
    while (rest := stream.readline(limit)) and not rest.endswith(b"\n"):
        pass
