"""Python's collection of cycles, which visits thousands of rows that have none."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collection() -> Iterator[None]:
    """Stop the collection of cycles within the block."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
