"""Waits of the service in tests: as short as in `SHORT`, or as a test sets them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from pdp.model.pauses import Pauses, pauses, set_pauses

SHORT = Pauses(handover=0.05)
"""Waits that only cost time where a test is not about them."""


@contextmanager
def documented_pauses(**lengths: float) -> Iterator[None]:
    """Use the waits of production, but for these lengths: in this process, and in commands that start meanwhile."""
    before = pauses()
    set_pauses(msgspec.structs.replace(Pauses(), **lengths))
    try:
        yield
    finally:
        set_pauses(before)
