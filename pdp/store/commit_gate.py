"""Agreement between a request and its write on one of two ends: the write commits, or the request gives it up.

A request that ran out of time is answered as not written. Its write runs in another thread and must not commit after
that answer.
"""

from __future__ import annotations

import threading


class CommitGate:
    """Switch that only the first of `begin_commit` and `give_up` turns. Any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._committing = self._given_up = False

    def begin_commit(self) -> bool:
        """Return True if the write may commit; from then on the request waits for the commit."""
        with self._lock:
            self._committing = not self._given_up
            return self._committing

    def give_up(self) -> bool:
        """Return True if the write will not commit; False if a commit has begun."""
        with self._lock:
            self._given_up = not self._committing
            return self._given_up

    @property
    def is_given_up(self) -> bool:
        """Tell whether the request has given the write up."""
        return self._given_up
