"""Reading of a spool: the lines of one instance in batches, in order, until a receiver has them.

Owns the names of the files of a spool, and the cursor in them. Used by the thread that delivers. Files are removed as
soon as a receiver has all of their lines.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import msgspec
import structlog

from pdp.config.files import open_private_file

_NAME: Final = re.compile(r"([^.-]{1,64})-(\d{8})\.jsonl")
_CURSOR: Final = re.compile(rb"(\d{8}) (\d{15}) (\d{15})\n")
_CURSOR_SUFFIX: Final = ".cursor"


class SpoolPosition(NamedTuple):
    """Place between two lines: the number of a file, and bytes from its begin."""

    number: int
    offset: int


def spool_path(folder: Path, instance: str, number: int) -> Path:
    """Return the path of a file of an instance."""
    return folder / f"{instance}-{number:08d}.jsonl"


def spool_numbers(folder: Path, instance: str) -> list[int]:
    """Return the numbers of the files of an instance, in order."""
    names = map(_NAME.fullmatch, sorted(path.name for path in folder.glob(f"{instance}-*.jsonl")))
    return [int(name[2]) for name in names if name and name[1] == instance]


def spooled_instances(folder: Path) -> list[str]:
    """Return the instances that have files, the oldest first."""
    names = map(_NAME.fullmatch, sorted(path.name for path in folder.glob("*.jsonl")))
    return list(dict.fromkeys(name[1] for name in names if name))


def whole_lines(path: Path) -> int:
    """Return the bytes of the whole lines of a file: a killed process may leave a part of a line at the end."""
    size = path.stat().st_size
    with path.open("rb") as file:
        at, part = size, 1 << 16
        while at > 0:
            start = max(0, at - part)
            file.seek(start)
            found = file.read(at - start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            at = start
    return 0


class SpoolCursor:
    """Position of the next line to deliver, on disk. `flight_end` is the end of a batch that was perhaps sent, or 0.

    A batch that is sent again after a restart therefore has the same lines and the same id. The file keeps its length,
    so a full disk does not hurt.
    """

    def __init__(self, folder: Path, instance: str) -> None:
        self._path = folder / f"{instance}{_CURSOR_SUFFIX}"
        self._file = open_private_file(self._path, os.O_RDWR)
        found = _CURSOR.fullmatch(os.pread(self._file, 64, 0))
        self.position = SpoolPosition(int(found[1]), int(found[2])) if found else SpoolPosition(1, 0)
        self.flight_end = int(found[3]) if found else 0

    def move(self, position: SpoolPosition, flight_end: int = 0) -> None:
        """Move to a position, and name the end of the batch that is about to be sent."""
        self.position, self.flight_end = position, flight_end
        os.pwrite(self._file, b"%08d %015d %015d\n" % (position.number, position.offset, flight_end), 0)

    def close(self, *, remove: bool) -> None:
        """Close the file, and remove it if nothing is left to deliver."""
        os.close(self._file)
        if remove:
            self._path.unlink(missing_ok=True)


log = structlog.get_logger()


class SpoolBatch(msgspec.Struct, frozen=True):
    """Lines that go to a receiver at once. A batch that is sent again has the same id and the same lines."""

    id: str
    lines: bytes
    records: int
    start: SpoolPosition
    end: int


class BatchLimits(msgspec.Struct, frozen=True):
    """Most records and bytes of a batch. A longer line is a batch of its own."""

    records: int
    size: int


class SpoolReader:
    """Reader of the lines of one instance. `end` tells how far they may be read."""

    def __init__(self, folder: Path, instance: str, end: Callable[[], SpoolPosition], limits: BatchLimits) -> None:
        self._folder = folder
        self.instance = instance
        self._end = end
        self._limits = limits
        self._most = limits.records
        """Most records of the next batch: fewer after a refusal."""
        self._cursor = SpoolCursor(folder, instance)
        self.freed = 0
        """Bytes of removed files."""
        self.closed = False
        numbers = spool_numbers(folder, instance)
        if numbers and self._cursor.position.number < numbers[0]:
            self._cursor.move(SpoolPosition(numbers[0], 0))

    @property
    def passed(self) -> int:
        """Return the delivered bytes of files that are still there."""
        return 0 if self.closed else self._cursor.position.offset

    def next(self) -> SpoolBatch | None:
        """Return the next batch; None if there is none. Raise OSError if the disk fails."""
        while (at := self._cursor.position) < (end := self._end()):
            try:
                batch = self._read(at, end.offset if at.number == end.number else None)
            except FileNotFoundError:
                log.warning("records have left the spool without delivery", file=str(self._path(at.number)))
                batch = None
            if batch:
                self._cursor.move(at, batch.end)
                return batch
            if at.number == end.number:
                return None
            self._leave(at.number)
        return None

    def finish(self, batch: SpoolBatch) -> None:
        """Note that a receiver has a batch. After a refusal the next one may be twice as long."""
        self._most = min(self._limits.records, 2 * self._most)
        self._cursor.move(SpoolPosition(batch.start.number, batch.end))
        if batch.start.number < self._end().number and batch.end >= self._size(batch.start.number):
            self._leave(batch.start.number)

    def halve(self, batch: SpoolBatch) -> None:
        """Let the next batch be the first half of a refused one."""
        self._most = batch.records // 2
        self._cursor.move(batch.start)

    def has_more(self) -> bool:
        """Tell whether there are lines that no receiver has."""
        return self._cursor.position < self._end()

    def fills(self, batch: SpoolBatch) -> bool:
        """Tell whether a batch is about as long as the limits allow, so that more may wait."""
        return (
            batch.records >= self._most or self._most < self._limits.records or 2 * len(batch.lines) > self._limits.size
        )

    def close(self) -> bool:
        """End the reading; return True if nothing was left, so that all files of the instance are gone."""
        done = not self.has_more()
        if not self.closed:
            self.closed = True
            for number in spool_numbers(self._folder, self.instance) if done else ():
                self.freed += self._size(number)
                self._path(number).unlink(missing_ok=True)
            self._cursor.close(remove=done)
        return done

    def _read(self, at: SpoolPosition, limit: int | None) -> SpoolBatch | None:
        with self._path(at.number).open("rb") as file:
            limit = file.seek(0, 2) if limit is None else limit
            file.seek(at.offset)
            flight = self._cursor.flight_end
            lines = file.read(flight - at.offset) if at.offset < flight <= limit else self._cut(file, limit - at.offset)
        if not lines:
            return None
        id = f"{self.instance}-{at.number}-{at.offset}-{at.offset + len(lines)}"
        return SpoolBatch(id, lines, lines.count(b"\n"), at, at.offset + len(lines))

    def _cut(self, file: BinaryIO, left: int) -> bytes:
        """Return the next whole lines of a file, within the limits but at least one."""
        text = file.read(min(self._limits.size, left))
        end = text.rfind(b"\n") + 1
        if not end:
            rest = file.readline(left - len(text))
            return text + rest if rest.endswith(b"\n") else b""
        if text.count(b"\n", 0, end) > self._most:
            end = 0
            for _ in range(self._most):
                end = text.index(b"\n", end) + 1
        return text[:end]

    def _leave(self, number: int) -> None:
        """Remove a file, and go on with the next one."""
        self.freed += self._size(number)
        self._cursor.move(SpoolPosition(number + 1, 0))
        self._path(number).unlink(missing_ok=True)

    def _size(self, number: int) -> int:
        try:
            return self._path(number).stat().st_size
        except FileNotFoundError:
            return 0

    def _path(self, number: int) -> Path:
        return spool_path(self._folder, self.instance, number)


def left_reader(folder: Path, instance: str, limits: BatchLimits) -> SpoolReader:
    """Return a reader of the lines that an ended instance has left."""
    numbers = spool_numbers(folder, instance) or [1]
    last = spool_path(folder, instance, numbers[-1])
    end = SpoolPosition(numbers[-1], whole_lines(last) if last.exists() else 0)
    return SpoolReader(folder, instance, lambda: end, limits)
