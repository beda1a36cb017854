"""Imports of a command or a worker, in less time and memory. Imports nothing of the product."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quick_imports() -> Iterator[None]:
    """Run imports without collections of garbage, and import structlog without rich.

    Imports leave little garbage, but each collection visits all that was imported before. structlog imports rich where
    it is installed, to print tracebacks in colours: 4 MB for nothing, because the product logs JSON.
    """
    gc.disable()
    _import_structlog()
    try:
        yield
    finally:
        gc.freeze()  # modules stay: exclude them from every later collection
        gc.enable()


def _import_structlog() -> None:
    is_loaded = "rich" in sys.modules
    if not is_loaded:
        sys.modules["rich"] = None  # type: ignore[assignment]  # documented: an import of the name then fails
    try:
        import structlog  # noqa: F401, PLC0415  the import is the purpose
    finally:
        if not is_loaded:
            del sys.modules["rich"]
