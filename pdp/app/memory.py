"""Freed memory of this process, given back to the system. Knows nothing of the service.

The C library keeps freed memory for the next use. gRPC's threads parse heads and bodies with memory of their own, so a
burst of large ones would otherwise stay with the process for good.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Final

GROWTH_BYTES: Final = 8 << 20
"""Growth after which freed memory is given back."""
WORTH_BYTES: Final = 1 << 20
"""Memory given back by one look after which the next look tries again."""
MOST_ARENAS: Final = 2
"""Arenas of the C library. Each keeps pieces that are free between pieces in use: by default, eight for each core."""
_M_ARENA_MAX: Final = -8  # of malloc.h
PAUSE_SECONDS: Final = 5.0
"""Pause between two looks. A look that gives memory back holds up the event loop for some milliseconds."""


class FreedMemory:
    """Memory that the C library keeps after it was freed."""

    def __init__(self) -> None:
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # None where the C library is not glibc
        self._kept = resident_bytes()
        self._again = False

    def give_back(self) -> None:
        """Give freed memory back to the system after the process has grown, until a try is not worth its time.

        Memory in use at one look is free at the next. So a try after growth, or a try that was worth its time, is
        followed by another one.
        """
        if self._trim is None:
            return
        resident = resident_bytes()
        grown = resident > self._kept + GROWTH_BYTES
        if grown or self._again:
            self._trim(0)
            self._kept = resident_bytes()
            self._again = grown or resident - self._kept > WORTH_BYTES


def limit_arenas() -> None:
    """Let all threads of this process share few arenas. Call before threads start; nothing happens without glibc."""
    if set_option := getattr(ctypes.CDLL(None), "mallopt", None):
        set_option(_M_ARENA_MAX, MOST_ARENAS)


def resident_bytes() -> int:
    """Return the resident memory of this process; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
