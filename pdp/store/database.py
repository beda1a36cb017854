"""Database protocol: the operations that differ between SQLite and PostgreSQL.

Owns the border between the one SQL store and the two databases; knows neither facts nor tables.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from typing import Protocol

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from pdp.errors import PdpError


class Database(Protocol):
    """One database. `name` is for messages and holds no password."""

    name: str

    def read_transaction(self, *, long: bool = False) -> AbstractContextManager[Connection]:
        """Begin a transaction on one state of the data; `long` allows minutes for a whole load."""
        ...

    def write_transaction(self) -> AbstractContextManager[Connection]:
        """Begin a transaction for `lock` and writes. The caller commits; otherwise the end rolls back."""
        ...

    def schema_transaction(self) -> AbstractContextManager[Connection]:
        """Begin a transaction for changes of the schema, alone in the database; commit unless the body raises."""
        ...

    def lock(self, connection: Connection) -> None:
        """Wait for the end of every other write, and make later writes wait for the end of this transaction."""
        ...

    def history_id(self, connection: Connection) -> str:
        """Return an id of this copy of the database: a restored or promoted copy has another one.

        Raise Unavailable if this copy takes no writes, or was replaced during the transaction.
        """
        ...

    def announce(self, connection: Connection) -> None:
        """Wake all waiting services when this transaction is committed."""
        ...

    def map_error(self, error: DBAPIError) -> PdpError:
        """Return Unavailable for an error of the driver that may pass, ConfigError for any other."""
        ...

    def wait(self, seconds: float, signal: Signal) -> None:
        """Return after the signal, after a possible commit by another process, or after `seconds`."""
        ...

    def close(self) -> None:
        """Release all connections."""
        ...


class Signal:
    """Count of possible commits. Each thread waits for a count above the one that the thread has acknowledged.

    A reader acknowledges before it reads. A commit during or after the read then ends the reader's next wait at once,
    so that no commit is missed between a read and a wait.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0
        self._acknowledged = threading.local()

    def notify(self) -> None:
        """Wake every waiting thread, and every thread that waits later without an acknowledgement."""
        with self._changed:
            self._count += 1
            self._changed.notify_all()

    def acknowledge(self) -> None:
        """Make the calling thread wait for later notifications only. Call before reading the database."""
        self._acknowledged.count = self._count

    def wait(self, seconds: float) -> bool:
        """Wait for a notification that the calling thread has not acknowledged; return False if none came in time."""
        with self._changed:
            acknowledged = getattr(self._acknowledged, "count", 0)
            notified = self._changed.wait_for(lambda: self._count != acknowledged, seconds)
            self._acknowledged.count = self._count
            return notified
