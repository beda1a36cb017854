"""`pdp audit tail`: the newest records, and those that come."""

from __future__ import annotations

import errno
import heapq
import os
import select
import sys
import time
from collections.abc import Iterable, Mapping
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from pdp.audit.files.segments import SegmentFile, segment_files
from pdp.audit.following import AuditFollower, SegmentKey, newest_lines
from pdp.audit.reader import AuditLine, TrailLine, read_lines, read_records, trail_files
from pdp.audit.records.recorded import ReadReport
from pdp.audit.records.writing import timestamp
from pdp.audit.selection import RecordSelection
from pdp.cli.audit.options import AuditPlace, folder_options, read_selection, selection_options, skipped_texts
from pdp.cli.audit.text import RecordText, safe_json
from pdp.cli.progress import Progress
from pdp.cli.terminal import note_at_end, one_line_errors, print_lines
from pdp.cli.wiring import Wiring

POLL_SECONDS: Final = 0.2
_CLOCK_SECONDS: Final = 2.0
"""Difference between the time of a file and the times of its records that is possible."""


@click.command()
@folder_options
@click.option(
    "-n", "--lines", "count", type=click.IntRange(0), help="Number of records. Default: 10, with --since all."
)
@click.option("-f", "--follow", is_flag=True, help="Go on with the records that come, until Ctrl-C.")
@selection_options
@click.option("--json", "as_json", is_flag=True, help="Print records as they are in the audit, one JSON object a line.")
@click.pass_obj
@one_line_errors
def tail(composition: Wiring, /, config: Path | None, overrides: tuple[str, ...], **values: Any) -> None:
    """Print the newest records of the audit.

    One line for a record; a record of several checks has the denied ones below. The order is that of the time, and
    with --since that of the audit: by instance, then as they were written.

    Control characters are shown as escapes, in JSON, too.
    """
    place = AuditPlace(composition, config, overrides, values.pop("audit"))
    follow, count, as_json = values.pop("follow"), values.pop("count"), values.pop("as_json")
    selection = read_selection(values)
    printer = _Printer(selection, as_json=as_json)
    with AuditFollower(place.folder) as follower:
        begun = follower.begin() if follow else {}
        if count is None and (selection.since or selection.until):
            printer.print_all(place.folder)
        elif not follow or begun or segment_files(place.folder):
            printer.print(_Newest(selection, 10 if count is None else count, printer.report).lines(place.folder, begun))
        if follow:
            _follow(follower, printer)
    for text in skipped_texts(printer.report):
        note_at_end(text)


class _Printer:
    """Output of the chosen records. `report` counts what cannot be read."""

    def __init__(self, selection: RecordSelection, *, as_json: bool) -> None:
        self.report = ReadReport()
        self._selection = selection
        self._as_json = as_json
        self._text = RecordText(selection, colour=sys.stdout.isatty() and "NO_COLOR" not in os.environ)
        self._seen: dict[str, int] = {}
        """Instance -> `seq` of the newest record that came. Records up to it come no second time."""

    def print(self, lines: Iterable[AuditLine]) -> None:
        """Print the chosen ones of some records."""
        for line in lines:
            head = line.head
            if self._seen.get(head.instance, -1) >= head.seq >= 0:
                continue
            self._seen[head.instance] = head.seq
            if self._selection.takes(line):
                print_lines([safe_json(line.data)] if self._as_json else self._text.lines(line))

    def print_all(self, folder: Path) -> None:
        """Print the chosen records of a whole folder in the order of the audit."""
        self.print(read_records(folder, self.report))


class _Newest:
    """The newest chosen records of a folder, read from the ends of its files."""

    def __init__(self, selection: RecordSelection, count: int, report: ReadReport) -> None:
        self._selection = selection
        self._count = count
        self._report = report
        self._times: list[str] = []
        """Times of the newest records so far, as a heap."""

    def lines(self, folder: Path, ends: Mapping[SegmentKey, int]) -> list[AuditLine]:
        """Return the records in order of time. `ends` are the places up to which files count."""
        found: dict[SegmentKey, list[AuditLine]] = {}
        files = sorted(((_changed(file.path), file) for file in trail_files(folder)), key=itemgetter(0), reverse=True)
        with Progress("reading the audit"):
            for changed, file in files if self._count else ():
                if len(self._times) >= self._count and timestamp(changed + _CLOCK_SECONDS) < self._times[0]:
                    break  # a file is as new as its last record
                key = (file.instance, file.number)
                found[key] = newest_lines(file, self._count, partial(self._read, file), ends.get(key))
                for line in found[key]:
                    heapq.heappush(self._times, line.head.time)
                    if len(self._times) > self._count:
                        heapq.heappop(self._times)
        return in_time([line for key in sorted(found) for line in found[key]])[-self._count :]

    def _read(self, file: SegmentFile, line: bytes) -> AuditLine | None:
        """Return the record of a line if it is chosen."""
        for found in read_lines([TrailLine(0, line)], file.path.name, self._report):
            if self._selection.takes(found):
                return found
        return None


def in_time(lines: Iterable[AuditLine]) -> list[AuditLine]:
    """Return records in order of time. Those of one instance stay in order, even if its clock went back."""
    newest: dict[str, str] = {}
    placed: list[tuple[str, AuditLine]] = []
    for line in lines:
        time = newest[line.head.instance] = max(newest.get(line.head.instance, ""), line.head.time)
        placed.append((time, line))
    return [line for _, line in sorted(placed, key=itemgetter(0))]


def _follow(follower: AuditFollower, printer: _Printer) -> NoReturn:
    """Print the records that come until a signal ends the process, or the reader of the output goes."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    while True:
        new = list(follower.poll())
        printer.print(
            in_time(found for file, line in new for found in read_lines([line], file.path.name, printer.report))
        )
        if any(event & (select.POLLERR | select.POLLNVAL) for _, event in poll.poll(POLL_SECONDS * 1000)):
            raise BrokenPipeError(errno.EPIPE, "the reader of the output is gone")


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # it has a new name now
        return time.time()
