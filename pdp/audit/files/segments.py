"""Files of an audit folder: their names, their order, and their bytes, compressed or not.

`<folder>/decisions-<instance>-<number>.jsonl[.zst|.gz]` is a complete segment; with a dot before the name it is being
written, or was left by a killed process. Files without a number come from versions without segments.
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
_NAME: Final = re.compile(r"(\.?)decisions-(.+?)(?:-(\d{6,}))?\.jsonl(\.zst|\.gz)?")


class SegmentFile(msgspec.Struct, frozen=True):
    """File of records. `number` is 0 in files of versions without segments. `complete`: nobody writes it any more."""

    path: Path
    instance: str
    number: int
    complete: bool

    @property
    def compressed(self) -> bool:
        """Tell whether the file is compressed."""
        return self.path.suffix != ".jsonl"

    def open(self) -> BinaryIO:
        """Open the file for reading; its bytes come uncompressed."""
        if self.path.suffix == ".zst":
            return cast(BinaryIO, zstandard.open(self.path, "rb"))
        if self.path.suffix == ".gz":
            return cast(BinaryIO, gzip.open(self.path, "rb"))
        return self.path.open("rb")


def open_name(instance: str, number: int) -> str:
    """Return the name of a segment that is being written."""
    return f".{complete_name(instance, number)}"


def complete_name(instance: str, number: int) -> str:
    """Return the name of a complete segment that is not compressed."""
    return f"decisions-{instance}-{number:06d}.jsonl"


def segment_of(path: Path) -> SegmentFile | None:
    """Return the file of records at a path; None if the name is that of another file."""
    name = _NAME.fullmatch(path.name)
    if name is None or (name[1] and name[4]):  # a file that is being compressed
        return None
    return SegmentFile(path, name[2], int(name[3] or 0), not name[1])


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
