"""Pauses of a disk, measured beside a service that writes to the same disk."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PIECE = bytes(4096)
_BETWEEN = 0.01


class DiskPauses:
    """Longest write to a file so far, in seconds, with its sync to the disk."""

    def __init__(self) -> None:
        self.longest = 0.0

    def measure(self, file: Path, done: threading.Event) -> None:
        """Write pieces until `done`."""
        with file.open("ab", buffering=0) as target:
            while not done.wait(_BETWEEN):
                began = time.monotonic()
                target.write(_PIECE)
                os.fdatasync(target.fileno())
                self.longest = max(self.longest, time.monotonic() - began)


@contextmanager
def disk_pauses(folder: Path) -> Iterator[DiskPauses]:
    """Measure the pauses of the disk of a folder until the end of the context."""
    pauses, done = DiskPauses(), threading.Event()
    thread = threading.Thread(target=pauses.measure, args=(folder / "pauses", done))
    thread.start()
    try:
        yield pauses
    finally:
        done.set()
        thread.join()
