"""What a store needs of the database it is kept in, beyond SQL that all databases share.

Owns the seam between the one store in SQL and the two databases; knows neither facts nor tables.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from typing import Protocol

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from pdp.errors import PdpError


class Database(Protocol):
    """One database. `name` is what messages call it: never with a password."""

    name: str

    def reading(self, *, patient: bool = False) -> AbstractContextManager[Connection]:
        """A transaction that sees one state throughout; a `patient` one may read for long."""
        ...

    def writing(self) -> AbstractContextManager[Connection]:
        """A transaction that others who write wait for once it has called `lock`; committed by whoever wants it."""
        ...

    def creating(self) -> AbstractContextManager[Connection]:
        """A transaction alone in the database, for changes of the schema; commits unless something is raised."""
        ...

    def lock(self, connection: Connection) -> None:
        """Wait until no other write is under way, and keep others waiting until the end of the transaction."""
        ...

    def history(self, connection: Connection) -> str:
        """What tells the history of this copy of the database from that of a restored or promoted one.

        Unavailable where this copy takes no writes, or was replaced while it was read.
        """
        ...

    def announce(self, connection: Connection) -> None:
        """Tell all who wait, once this transaction is committed."""
        ...

    def failure(self, error: DBAPIError) -> PdpError:
        """What the driver's error means: Unavailable where it may pass, ConfigError where it will not."""
        ...

    def wait(self, seconds: float, signal: Signal) -> None:
        """Return when the signal was given, or something may have been committed elsewhere, or so long after."""
        ...

    def close(self) -> None:
        """Let go of all connections."""
        ...


class Signal:
    """Something may have been committed. Each thread waits for what was signalled since it last began to look."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0
        self._seen = threading.local()

    def give(self) -> None:
        """Wake everybody who waits, and whoever waits next without having looked."""
        with self._changed:
            self._count += 1
            self._changed.notify_all()

    def look(self) -> None:
        """The calling thread looks now: what was signalled before is no news to it."""
        self._seen.count = self._count

    def wait(self, seconds: float) -> bool:
        """Whether there was a signal since this thread last looked, or comes in time."""
        with self._changed:
            seen = getattr(self._seen, "count", 0)
            given = self._changed.wait_for(lambda: self._count != seen, seconds)
            self._seen.count = self._count
            return given
