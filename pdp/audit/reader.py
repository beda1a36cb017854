"""Reading of an audit folder: lines, records, bundles, and checks that can be decided again with their decisions.

Reads every form of file, complete or still written. Streams, so that the longest line bounds memory. Drops nothing
silently: the `ReadReport` counts everything that gives no check, by kind, and names the first of each kind. What one
record says is read by `records/recorded.py`.

Reads while services write: a segment may be renamed or compressed between the listing and the reading.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, cast

import msgspec
import zstandard

from pdp.audit.files.chain import CONTROL_STARTS
from pdp.audit.files.segments import SUFFIXES, SegmentFile, complete_name, segment_files
from pdp.audit.records.recorded import ReadReport, RecordFilter, RecordReader, ReplayCheck
from pdp.audit.records.schema import (
    BUNDLE,
    FILTER_EVENT,
    HEADER,
    OTHER_EVENTS,
    PLACE,
    RECORD,
    RECORD_EVENTS,
    SCHEMA,
    ArchivedBundle,
    Header,
    Record,
    RecordHeader,
)
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


_DIGEST: Final = re.compile(r"[0-9a-f]{16,64}")
_ALL: Final = RecordFilter()


class AuditLine(NamedTuple):
    """A line of an audit that is a record, with its place as `file:line`.

    `record` is None for an event, whose fields `data` has as JSON.
    """

    place: str
    head: RecordHeader
    data: bytes
    record: Record | None = None


def read_audit(folder: Path, report: ReadReport, filter: RecordFilter = _ALL) -> Iterator[ReplayCheck]:
    """Yield the checks of all records in a folder, file by file; count in `report`.

    Raise InvalidArgument if the folder has no audit file or a file is unreadable.
    """
    for line in read_records(folder, report):
        record = line.record
        if record is None:
            report.events += 1
        elif record.event == FILTER_EVENT and not filter.at_revision:
            report.row_filters += 1
        else:
            report.records += 1
            yield from RecordReader(record, line.place, report, filter).checks()


def read_records(folder: Path, report: ReadReport) -> Iterator[AuditLine]:
    """Yield all records in a folder in order: by instance, then by `seq`. Count what is no record in `report`.

    Raise InvalidArgument if the folder has no audit file or a file is unreadable.
    """
    for file in trail_files(folder):
        with open_trail_file(file) as stream:
            report.files += 1
            yield from read_lines(trail_lines(stream, MAX_LINE_BYTES), file.path.name, report)


def read_lines(lines: Iterable[TrailLine], name: str, report: ReadReport) -> Iterator[AuditLine]:
    """Yield the records among the lines of the file `name`; count everything else in `report`."""
    for line in lines:
        place = f"{name}:{line.number}"
        if line.problem and line.problem != TORN:
            report.skip(line.problem, place)
        elif line.data.strip() and not line.data.startswith(CONTROL_STARTS):
            found = _decode(line.data, place, report, whole=not line.problem)
            if found:
                yield found


def read_bundle(folder: Path, digest: str) -> ArchivedBundle | None:
    """Return the archived bundle of a digest; None if the folder has none or the file is unreadable."""
    text = read_bundle_text(folder, digest)
    try:
        return None if text is None else BUNDLE.decode(text)
    except msgspec.DecodeError:
        return None


def read_bundle_text(folder: Path, digest: str) -> bytes | None:
    """Return the text of the archived bundle of a digest; None if the folder has none or the file is unreadable."""
    try:
        return (folder / "bundles" / digest).read_bytes() if _DIGEST.fullmatch(digest) else None
    except OSError:
        return None


def _decode(line: bytes, place: str, report: ReadReport, *, whole: bool) -> AuditLine | None:
    """Return the record of a line; count any other line and return None. `whole`: the line has an end."""
    record: Record | None = None
    problem = ""
    try:
        record = RECORD.decode(line)
        header: Header = record
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        readable = _header(line)
        if readable is None:
            if whole:
                report.skip("not JSON", place)
            else:
                report.torn.append(place)
            return None
        header, problem = readable, str(error)
    if not _is_record(header, place, report):
        return None
    if header.event in OTHER_EVENTS:
        return AuditLine(place, _place(line), line)
    if problem or record is None:
        report.skip(f"no record of schema {SCHEMA}", f"{place}: {problem}")
        return None
    return AuditLine(place, record, line, record)


def _is_record(header: Header, place: str, report: ReadReport) -> bool:
    """Tell whether a line is a record that this version reads; count the line otherwise."""
    if header.event not in RECORD_EVENTS:
        report.skip(f"event `{header.event[:50]}`", place)
    elif header.schema != SCHEMA:
        report.skip(f"schema {header.schema}, this version reads {SCHEMA}", place)
    else:
        return True
    return False


def _place(line: bytes) -> RecordHeader:
    """Return the name and place of an event, empty if their types are wrong."""
    try:
        return PLACE.decode(line)
    except msgspec.ValidationError:
        return RecordHeader()


def _header(line: bytes) -> Header | None:
    """Return the kind of a line that is no readable record, empty for any other JSON; None if the line is no JSON."""
    try:
        return HEADER.decode(line)
    except msgspec.ValidationError:
        return Header()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
