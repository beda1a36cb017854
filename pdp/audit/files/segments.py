"""Files of an audit folder: their names, their order, and their bytes, compressed or not.

`<folder>/decisions-<instance>-<number>.jsonl[.zst|.gz]` is a complete segment. `decisions-<instance>-<number>.open` is
being written, or was left by a killed process; earlier versions wrote `.decisions-<instance>-<number>.jsonl` instead.
Files without a number come from versions without segments.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, cast

import msgspec
import zstandard

SUFFIXES: Final = {"none": "", "gzip": ".gz", "zstd": ".zst"}
"""End of a file's name, by compression."""
_NAME: Final = re.compile(r"decisions-(.+?)(?:-(\d{6,}))?\.jsonl(\.zst|\.gz)?")
_OPEN: Final = re.compile(r"decisions-(.+?)-(\d{6,})\.open|\.decisions-(.+?)(?:-(\d{6,}))?\.jsonl")
"""Name of a segment that is not complete, as it is now, and as earlier versions wrote it."""


class SegmentFile(msgspec.Struct, frozen=True):
    """File of records. `number` is 0 in files of versions without segments. `complete`: nobody writes it any more."""

    path: Path
    instance: str
    number: int
    complete: bool

    @property
    def compressed(self) -> bool:
        """Tell whether the file is compressed."""
        return self.path.suffix in {".zst", ".gz"}

    def open(self) -> BinaryIO:
        """Open the file for reading; its bytes come uncompressed."""
        if self.path.suffix == ".zst":
            return cast(BinaryIO, zstandard.open(self.path, "rb"))
        if self.path.suffix == ".gz":
            return cast(BinaryIO, gzip.open(self.path, "rb"))
        return self.path.open("rb")


def open_name(instance: str, number: int) -> str:
    """Return the name of a segment that is being written.

    Whoever takes complete files by their names, as `decisions-*.jsonl*`, does not take this one.
    """
    return f"decisions-{instance}-{number:06d}.open"


def complete_name(instance: str, number: int) -> str:
    """Return the name of a complete segment that is not compressed."""
    return f"decisions-{instance}-{number:06d}.jsonl"


def segment_of(path: Path) -> SegmentFile | None:
    """Return the file of records at a path; None if the name is that of another file."""
    if name := _NAME.fullmatch(path.name):
        return SegmentFile(path, name[1], int(name[2] or 0), complete=True)
    if name := _OPEN.fullmatch(path.name):
        return SegmentFile(path, name[1] or name[3], int(name[2] or name[4] or 0), complete=False)
    return None


def complete_path(path: Path) -> Path:
    """Return the path of a complete segment, not compressed, for that of one that is being written."""
    file = segment_of(path)
    assert file
    return path.with_name(complete_name(file.instance, file.number))


def segment_files(folder: Path) -> list[SegmentFile]:
    """Return all files of records in a folder, by instance and number. Each segment comes once.

    For a moment a segment has two files: the old one goes after the compressed one is complete.
    """
    found: dict[tuple[str, int], SegmentFile] = {}
    for file in sorted(_files(folder), key=lambda file: (file.complete, file.compressed)):
        found[file.instance, file.number] = file
    return [found[place] for place in sorted(found)]


def open_segments(folder: Path) -> dict[str, list[SegmentFile]]:
    """Return the segments that are not complete, by instance, in order."""
    found: dict[str, list[SegmentFile]] = {}
    for file in sorted(_files(folder), key=lambda file: file.number):
        if not file.complete and file.number:
            found.setdefault(file.instance, []).append(file)
    return found


def _files(folder: Path) -> Iterator[SegmentFile]:
    return filter(None, map(segment_of, folder.iterdir()))
