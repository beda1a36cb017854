"""Progress of a long command, for people at a terminal."""

from __future__ import annotations

import sys
import threading
from typing import Self

from rich.console import Console


class Progress:
    """Status line on stderr. Appears after `delay` seconds, and only on a terminal."""

    def __init__(self, activity: str, delay: float = 1.0) -> None:
        console = Console(stderr=True)
        self._status = console.status(activity) if sys.stderr.isatty() else None
        self._timer = threading.Timer(delay, self._start)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._timer.join()
        if self._status:
            self._status.stop()

    def say(self, activity: str) -> None:
        """Replace the text of the status line."""
        if self._status:
            self._status.update(activity)

    def _start(self) -> None:
        if self._status:
            self._status.start()
