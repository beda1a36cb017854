"""The newest lines of an audit folder, and the lines that services add: over the ends of segments and new starts.

A segment is followed by its open file, so that a new name does not matter. Only whole lines are read.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, Self, TypeAlias, TypeVar

import msgspec

from pdp.audit.files.segments import SegmentFile, segment_files
from pdp.audit.reader import TrailLine, open_trail_file, trail_lines
from pdp.errors import InvalidArgument

T = TypeVar("T")
_BLOCK: Final = 1 << 16
_PART: Final = 1 << 20
SegmentKey: TypeAlias = tuple[str, int]
"""Instance and number of a segment."""


class FollowedFile(msgspec.Struct):
    """File that may grow. `at` is the place of the next line, which may not be whole yet."""

    file: SegmentFile
    stream: BinaryIO
    at: int = 0

    def lines(self) -> Iterator[TrailLine]:
        """Yield the new whole lines."""
        descriptor = self.stream.fileno()
        self.at = place = min(self.at, os.fstat(descriptor).st_size)  # a start cuts off what a killed instance left
        rest = b""
        while part := os.pread(descriptor, _PART, place):
            place += len(part)
            *whole, rest = (rest + part).split(b"\n")
            for line in whole:
                self.at += len(line) + 1
                yield TrailLine(0, line + b"\n")

    def skip(self) -> None:
        """Go behind the last whole line of the file."""
        size = os.fstat(self.stream.fileno()).st_size
        last = next(lines_from_end(self.stream, size), b"")
        self.at = size if last.endswith(b"\n") else size - len(last)


class AuditFollower:
    """Follower of a folder. Use it as a context: it closes the files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[SegmentKey, FollowedFile] = {}
        self._done: set[SegmentKey] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for followed in self._files.values():
            followed.stream.close()

    def begin(self) -> dict[SegmentKey, int]:
        """Go behind everything that is there; return the place up to which each file that may grow was there."""
        for file in self._listed():
            key = (file.instance, file.number)
            if file.complete and file.number:
                self._done.add(key)
            elif followed := self._open(file):
                followed.skip()
        return {key: followed.at for key, followed in self._files.items()}

    def poll(self) -> Iterator[tuple[SegmentFile, TrailLine]]:
        """Yield the whole lines that are new, by instance and number."""
        listed = {(file.instance, file.number): file for file in self._listed()}
        for key in sorted({*listed, *self._files} - self._done):
            file = listed.get(key)
            followed = self._files.get(key) or (self._open(file) if file and not file.compressed else None)
            if followed:
                for line in followed.lines():
                    yield followed.file, line
                if file is None or (file.complete and file.number):
                    self._leave(key)
            elif file and file.compressed:
                self._done.add(key)
                with open_trail_file(file) as stream:
                    for line in trail_lines(stream):
                        yield file, line

    def _listed(self) -> list[SegmentFile]:
        try:
            return segment_files(self._folder)
        except OSError as error:
            raise InvalidArgument(f"cannot read `{self._folder}`: {error.strerror}") from None

    def _open(self, file: SegmentFile) -> FollowedFile | None:
        """Open a file to follow; return None if it has got another name since the listing: the next poll finds it."""
        with suppress(FileNotFoundError):
            try:
                followed = FollowedFile(file, file.path.open("rb"))
            except PermissionError as error:
                raise InvalidArgument(f"cannot read `{file.path}`: {error.strerror}") from None
            self._files[file.instance, file.number] = followed
            return followed
        return None

    def _leave(self, key: SegmentKey) -> None:
        self._files.pop(key).stream.close()
        self._done.add(key)


def newest_lines(file: SegmentFile, count: int, read: Callable[[bytes], T | None], end: int | None = None) -> list[T]:
    """Return what `read` makes of the last `count` lines for which it returns anything, in order.

    `end` is the byte up to which lines count; None for the whole file.
    """
    with open_trail_file(file) as stream:
        if file.compressed:
            lines = (read(line.data) for line in trail_lines(stream) if not line.problem)
            return list(deque((found for found in lines if found is not None), count))
        newest: list[T] = []
        size = os.fstat(stream.fileno()).st_size if end is None else end
        for line in lines_from_end(stream, size) if count else ():
            found = read(line) if line.endswith(b"\n") else None
            if found is not None:
                newest.append(found)
            if len(newest) >= count:
                break
        return newest[::-1]


def lines_from_end(stream: BinaryIO, end: int) -> Iterator[bytes]:
    """Yield the lines of a file up to the byte `end`, the last one first."""
    parts: list[bytes] = []
    """Parts of the line whose start is not read yet, the last one first."""
    while end > 0:
        start = max(0, end - _BLOCK)
        stream.seek(start)
        pieces = stream.read(end - start).split(b"\n")
        end = start
        parts.append(pieces.pop())
        while pieces:
            if line := b"".join(reversed(parts)):
                yield line
            parts = [pieces.pop() + b"\n"]
    if line := b"".join(reversed(parts)):
        yield line
