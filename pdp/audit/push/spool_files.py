"""Files of a spool: their names, and the cursor that tells what a receiver has.

Knows names and positions, and nothing of receivers.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final, NamedTuple

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
