"""Reading of an audit folder: its records, and checks that can be decided again, each with its recorded decision.

`trail` knows the files, `entries` reads one record. Streams, so that the longest line bounds memory. Drops nothing
silently: the `ReadReport` counts everything that gives no check, by kind, and names the first of each kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from pdp.audit.chain import CONTROL_STARTS
from pdp.audit.entries import RecordReader
from pdp.audit.recorded import ReadReport, RecordedCheck, RecordFilter
from pdp.audit.schema import (
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
    RecordPlace,
)
from pdp.audit.trail import MAX_LINE_BYTES, TORN, TrailLine, open_trail_file, trail_files, trail_lines

_DIGEST: Final = re.compile(r"[0-9a-f]{16,64}")
_ALL: Final = RecordFilter()


class AuditLine(NamedTuple):
    """A line of an audit that is a record, with its place as `file:line`.

    `record` is None for an event, whose fields `data` has as JSON.
    """

    place: str
    head: RecordPlace
    data: bytes
    record: Record | None = None


def read_audit(folder: Path, report: ReadReport, filter: RecordFilter = _ALL) -> Iterator[RecordedCheck]:
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


def _place(line: bytes) -> RecordPlace:
    """Return the name and place of an event, empty if their types are wrong."""
    try:
        return PLACE.decode(line)
    except msgspec.ValidationError:
        return RecordPlace()


def _header(line: bytes) -> Header | None:
    """Return the kind of a line that is no readable record, empty for any other JSON; None if the line is no JSON."""
    try:
        return HEADER.decode(line)
    except msgspec.ValidationError:
        return Header()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
