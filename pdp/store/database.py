"""Database protocol: the operations that differ between SQLite and PostgreSQL.

Owns the border between the one SQL store and the two databases; knows neither facts nor tables. SQLite is used through
the standard library's driver, PostgreSQL through SQLAlchemy's pool and psycopg. Only PostgreSQL and migrations load
SQLAlchemy: the import costs a service 16 MB and a fifth of its start.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from pdp.errors import Unavailable

if TYPE_CHECKING:
    import sqlalchemy

Connection: TypeAlias = Any
"""Connection inside a transaction. Only the database that began the transaction knows the type."""
Row: TypeAlias = Sequence[Any]
Parameters: TypeAlias = Mapping[str, Any]
"""Values of the parameters of a statement by name. A statement mentions the parameter `name` as `:name`."""
NO_PARAMETERS: Final[Parameters] = {}


class Database(Protocol):
    """One database. `name` is for messages and holds no password.

    `dialect` is the name of the SQL dialect. `driver_errors` are the exceptions of the driver, for `map_error`.
    """

    name: str
    dialect: str
    driver_errors: tuple[type[Exception], ...]

    def read_transaction(self, *, long: bool = False) -> AbstractContextManager[Connection]:
        """Begin a transaction on one state of the data; `long` allows minutes for a whole load."""
        ...

    def write_transaction(self) -> AbstractContextManager[Connection]:
        """Begin a transaction for `lock` and writes. The caller commits; otherwise the end rolls back."""
        ...

    def schema_transaction(self) -> AbstractContextManager[Connection]:
        """Begin a transaction for changes of the schema, alone in the database; commit unless the body raises."""
        ...

    def query(self, connection: Connection, sql: str, parameters: Parameters = NO_PARAMETERS) -> Sequence[Row]:
        """Return all rows of a query."""
        ...

    def stream(self, connection: Connection, sql: str) -> AbstractContextManager[Iterable[Row]]:
        """Begin a query of many rows, which come in parts."""
        ...

    def execute(self, connection: Connection, sql: str, rows: Sequence[Parameters] = (NO_PARAMETERS,)) -> int:
        """Execute a statement for each of `rows`; return the number of rows touched."""
        ...

    def commit(self, connection: Connection) -> None:
        """Commit the transaction."""
        ...

    def tables(self, connection: Connection) -> set[str]:
        """Return the names of the tables."""
        ...

    def migration_connection(self, connection: Connection) -> AbstractContextManager[sqlalchemy.Connection]:
        """Return SQLAlchemy's form of the connection, in the same transaction."""
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

    def map_error(self, error: Exception) -> Exception:
        """Return Unavailable for an error of the driver that may pass, ConfigError for any other.

        Return ValueError for a row that is there already and for a value that the database cannot hold.
        """
        ...

    def wait(self, seconds: float, signal: Signal) -> None:
        """Return after the signal, after a possible commit by another process, or after `seconds`."""
        ...

    def close(self) -> None:
        """Release all connections."""
        ...


def row_exists() -> ValueError:
    """Return the error for a row that is to be added and is there."""
    return ValueError("a grant that is to be added is there")


def unfit_value(name: str, cause: object) -> ValueError:
    """Return the error for a value that the database `name` cannot hold."""
    return ValueError(f"{name} cannot hold what is to be written: {cause}")


def unusable_now(name: str, cause: object) -> Unavailable:
    """Return the error for a cause that may pass."""
    return Unavailable(f"{name} cannot be used now: {cause}")


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
