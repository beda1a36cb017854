"""Freed memory that goes back to the system."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pdp.app import process

pytestmark = pytest.mark.process
PROGRAM = """
import ctypes
from pdp.app.process import GROWTH_BYTES, FreedMemory, resident_bytes

library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
library.free.argtypes = (ctypes.c_void_p,)
piece = 2000  # so small that the C library keeps it when it is freed
memory = FreedMemory()
before = resident_bytes()
pieces = [library.malloc(piece) for _ in range(4 * GROWTH_BYTES // piece)]
for each in pieces:
    ctypes.memset(each, 1, piece)
held = pieces.pop()  # the piece on top holds all others back
memory.give_back()
grown = resident_bytes()
for each in pieces:
    library.free(each)
freed = resident_bytes()
memory.give_back()
print(*((size - before) / GROWTH_BYTES for size in (grown, freed, resident_bytes())))
"""


def test_freed_memory_is_given_back_after_growth() -> None:
    printed = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout
    grown, freed, kept = map(float, printed.split())
    assert (grown > 3, freed > 3, kept < 1) == (True, True, True), printed


def test_a_try_that_gave_back_much_is_followed_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = iter([100, 120, 110, 110, 108, 108, 108, 108, 112, 117, 105])
    tries: list[int] = []
    monkeypatch.setattr(process, "resident_bytes", lambda: next(sizes) << 20)
    freed = process.FreedMemory()
    freed._trim = tries.append
    counts = []
    for _ in range(6):
        freed.give_back()
        counts.append(len(tries))
    assert counts == [1, 2, 3, 3, 3, 4]


ARENAS = """
import ctypes, sys, threading
from pdp.app.process import limit_arenas

library = ctypes.CDLL(None)
if sys.argv[1] == "limited":
    limit_arenas()
together = threading.Barrier(8)

def allocate():
    together.wait()
    library.malloc(5000)
    together.wait()

threads = [threading.Thread(target=allocate) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
library.malloc_stats()
"""


@pytest.mark.parametrize(("limits", "few"), [("limited", True), ("default", False)])
def test_threads_share_few_arenas(limits: str, few: bool) -> None:
    printed = subprocess.run([sys.executable, "-c", ARENAS, limits], capture_output=True, text=True, check=True).stderr
    assert (printed.count("Arena ") <= process.MOST_ARENAS) == few, printed
