"""Reading of an audit folder: records to checks that can be decided again, each with its recorded decision.

Owns files and lines; `entries` reads one record. Streams, so that the longest line bounds memory. Drops nothing
silently: the `ReadReport` counts everything that gives no check, by kind, and names the first of each kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from pdp.audit.chain import CONTROL_STARTS
from pdp.audit.entries import RecordReader
from pdp.audit.recorded import ReadReport, RecordedCheck, RecordFilter
from pdp.audit.schema import (
    BUNDLE,
    DECISION_EVENT,
    FILTER_EVENT,
    HEADER,
    OTHER_EVENTS,
    RECORD,
    SCHEMA,
    ArchivedBundle,
    Header,
    Record,
)
from pdp.audit.segments import segment_files
from pdp.errors import InvalidArgument

MAX_LINE_BYTES: Final = 512 << 20
"""Limit of a line: the record of the largest request is far smaller."""
_DIGEST: Final = re.compile(r"[0-9a-f]{16,64}")
_ALL: Final = RecordFilter()


def read_audit(folder: Path, report: ReadReport, filter: RecordFilter = _ALL) -> Iterator[RecordedCheck]:
    """Yield the checks of all records in a folder, file by file; count in `report`.

    Raise InvalidArgument if the folder has no audit file or a file is unreadable.
    """
    files = segment_files(folder) if folder.is_dir() else []
    if not files:
        raise InvalidArgument(f"no audit in `{folder}`: it has no file `decisions-*.jsonl`")
    for file in files:
        try:
            with file.open() as stream:
                report.files += 1
                yield from _read(stream, file.path.name, report, filter)
        except OSError as error:
            raise InvalidArgument(f"cannot read `{file.path}`: {error.strerror}") from None


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


def _read(stream: BinaryIO, name: str, report: ReadReport, filter: RecordFilter) -> Iterator[RecordedCheck]:
    number = 0
    while line := stream.readline(MAX_LINE_BYTES):
        number += 1
        if line.startswith(CONTROL_STARTS):
            continue
        place = f"{name}:{number}"
        whole = line.endswith(b"\n")
        if not whole and len(line) == MAX_LINE_BYTES:
            _skip_line(stream)
            report.skip("line too long", place)
        elif line.strip():
            record = _decode(line, place, report, filter, whole=whole)
            if record:
                yield from RecordReader(record, place, report, filter).checks()


def _skip_line(stream: BinaryIO) -> None:
    while (rest := stream.readline(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
        pass


def _decode(line: bytes, place: str, report: ReadReport, filter: RecordFilter, *, whole: bool) -> Record | None:
    """Return the decision record of a line; count any other line and return None. `whole`: the line has an end."""
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
    else:
        problem = ""
    if header.event == FILTER_EVENT and header.schema == SCHEMA and not filter.at_revision:
        report.row_filters += 1
    elif header.event in OTHER_EVENTS and header.schema == SCHEMA:
        report.events += 1
    elif header.event not in (DECISION_EVENT, FILTER_EVENT):
        report.skip(f"event `{header.event[:50]}`", place)
    elif header.schema != SCHEMA:
        report.skip(f"schema {header.schema}, this version reads {SCHEMA}", place)
    elif problem:
        report.skip(f"no record of schema {SCHEMA}", f"{place}: {problem}")
    else:
        report.records += 1
        return record
    return None


def _header(line: bytes) -> Header | None:
    """Return the kind of a line that is no readable record, empty for any other JSON; None if the line is no JSON."""
    try:
        return HEADER.decode(line)
    except msgspec.ValidationError:
        return Header()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
