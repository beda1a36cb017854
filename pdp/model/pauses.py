"""Waits that no configuration changes: how long the service gives clients, workers and databases.

Production never replaces them. Tests replace them all at once with `set_pauses`, and a supervisor hands its own to its
workers.
"""

from __future__ import annotations

import msgspec


class Pauses(msgspec.Struct, frozen=True):
    """Lengths of waits in seconds."""

    handover: float = 1.0
    """Time for clients to send one more request on their connections, whose answer sends them to the successor."""
    worker_beat: float = 0.5
    """Longest wait for an answer of a worker about its health, and the pause before the next question."""
    worker_silent: float = 2.0
    """Time without a sign of life after which another worker accepts connections in the place of a worker."""
    worker_hung: float = 10.0
    """Time without a sign of life after which a worker is killed."""
    worker_steady: float = 10.0
    """Life of a worker after which its end is an accident: the next start need not wait."""
    first_start: float = 0.5
    longest_start: float = 30.0
    """Pauses before a worker starts again after an end that is no accident. Each is twice as long as the one before."""
    store_silent: float = 10.0
    """Longest silence of the store while the service is ready. The service asks the store every second."""
    write_lock: float = 8.0
    """Longest wait of a write for earlier writes of this process."""
    sqlite_busy: float = 8.0
    """Longest wait of a transaction of SQLite for another one."""
    postgres_retry: float = 1.0
    """Pause before the listener connects to PostgreSQL again."""
    last_delivery: float = 2.0
    """Longest delivery of a push of the audit at the stop. The next start delivers what the spool keeps."""


_current = Pauses()


def pauses() -> Pauses:
    """Return the waits of this process."""
    return _current


def set_pauses(new: Pauses) -> None:
    """Replace the waits of this process: in tests, and in a worker by those of its supervisor."""
    global _current  # noqa: PLW0603  one value for the process
    _current = new
