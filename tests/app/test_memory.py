"""Freed memory that goes back to the system."""

from __future__ import annotations

import ctypes

from pdp.app.memory import GROWTH_BYTES, FreedMemory, resident_bytes

PIECE = 2000
"""Bytes of a piece: so few that the C library keeps freed ones."""


def test_freed_memory_is_given_back_after_growth() -> None:
    library = ctypes.CDLL(None)
    library.malloc.restype = ctypes.c_void_p
    library.free.argtypes = (ctypes.c_void_p,)
    memory = FreedMemory()
    before = resident_bytes()
    pieces = [library.malloc(PIECE) for _ in range(4 * GROWTH_BYTES // PIECE)]
    for piece in pieces:
        ctypes.memset(piece, 1, PIECE)
    memory.give_back()
    assert resident_bytes() > before + 3 * GROWTH_BYTES
    held = pieces.pop()
    for piece in pieces:
        library.free(piece)
    del pieces
    assert resident_bytes() > before + 3 * GROWTH_BYTES  # held back by the piece on top
    memory.give_back()
    assert resident_bytes() < before + GROWTH_BYTES
    library.free(held)
