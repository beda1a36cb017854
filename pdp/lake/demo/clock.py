"""Clock of the service of a demonstration: a month passes in less than a minute.

Started as `python -m pdp.lake.demo.clock FILE ...`, this module replaces `time.time` of the process and then
runs `pdp ...`. The service itself has no way to set its clock: nothing else in the product imports this module. All
records of such a service have the times of the clock, so the audit proves nothing; `README.txt` in the folder says so.

FILE holds one number: the seconds by which the clock differs from the monotonic clock of the machine, which all
processes share. So the clock goes on between two settings, and never goes back.
"""

from __future__ import annotations

import mmap
import runpy
import struct
import sys
import time
from pathlib import Path
from typing import Final, Self

_NUMBER: Final = struct.Struct("=d")


class ClockHand:
    """Hand of the clock: moves the clock of a service forward."""

    def __init__(self, file: Path) -> None:
        """Make the file of the clock, at the time of 1970."""
        file.write_bytes(_NUMBER.pack(-time.monotonic()))
        with file.open("r+b") as opened:
            self._map = mmap.mmap(opened.fileno(), _NUMBER.size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._map.close()

    def move(self, seconds: float) -> float:
        """Move the clock to a time in seconds since 1970, unless it is later already; return the time of the clock."""
        now = time.monotonic()
        offset = max(seconds - now, float(_NUMBER.unpack_from(self._map)[0]))
        _NUMBER.pack_into(self._map, 0, offset)
        return offset + now


def run_with_clock(file: Path, arguments: list[str]) -> None:
    """Run `pdp` with these arguments in this process, by the clock of a file."""
    with file.open("rb") as opened:
        shared = mmap.mmap(opened.fileno(), _NUMBER.size, access=mmap.ACCESS_READ)

    def now() -> float:
        """Return the time of the clock."""
        offset: float = _NUMBER.unpack_from(shared)[0]
        return offset + time.monotonic()

    time.time = now
    sys.argv = ["pdp", *arguments]
    runpy.run_module("pdp", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    run_with_clock(Path(sys.argv[1]), sys.argv[2:])
