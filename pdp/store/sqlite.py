"""SQLite database of a store: one file.

No connection stays open between two transactions. When the last connection closes, SQLite moves the write-ahead log
into the file and removes the log. Between transactions the file is therefore complete: an administrator can copy the
file, or replace the file by a copy, under a running service. And no connection relies on pages of a replaced file.

Only SQLite opens the file: to close any other handle would drop SQLite's locks (https://sqlite.org/howtocorrupt.html).
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import quote

from pdp.config.files import create_private_file, restrict_files
from pdp.errors import ConfigError, PdpError, Unavailable
from pdp.model.pauses import pauses
from pdp.store.database import NO_PARAMETERS, Parameters, Row, Signal, row_exists, unfit_value, unusable_now

if TYPE_CHECKING:
    import sqlalchemy

_BUSY_POLL_SECONDS: Final = 0.005
"""Time between two attempts of a writer. SQLite itself waits longer each time, which favours the newest writer."""
_POLL_SECONDS: Final = 0.02
_SETTLED_SECONDS: Final = 0.1
"""Resolution of file times, generously: two changes within this time may leave the same time behind."""
_CHECKED_BYTES: Final = 32 << 20
"""Largest file that is checked completely at opening, in about a tenth of a second."""
_PASSING: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR})
_UNUSABLE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})

FileId: TypeAlias = tuple[int, int]
"""Device and inode of a file, independent of the name."""


class SqliteConnection(sqlite3.Connection):
    """A connection with the id of the file that had the name just before the connection was opened."""

    file_id: FileId | None = None


class SqliteDatabase:
    """The file at `path`, created if missing. Raise ConfigError if the path cannot hold a database.

    With `read_only`, the file must exist, and nothing is created or changed.
    """

    dialect = "sqlite"
    driver_errors: tuple[type[Exception], ...] = (sqlite3.Error,)

    def __init__(self, path: str, *, read_only: bool = False) -> None:
        self.name = f"`{path}`"
        self._path = path
        if read_only and Path(path).is_dir():
            raise ConfigError(f"{self.name} is a directory, not an SQLite file")
        if read_only:
            # without a log nobody writes now, and SQLite then makes no files of its own
            self._mode = "ro" if Path(f"{path}-wal").exists() else "ro&immutable=1"
        else:
            self._mode = "rwc"
            self._check()
            # a file that is missing from now on is being replaced: SQLite must not create an empty one
            self._mode = "rw"
        self._last_stats = self._stats()

    @contextmanager
    def read_transaction(self, *, long: bool = False) -> Iterator[SqliteConnection]:
        """Begin a transaction on one state of the file; writers need not wait for the end."""
        with self._transaction("BEGIN") as connection:
            yield connection

    @contextmanager
    def write_transaction(self) -> Iterator[SqliteConnection]:
        """Begin a transaction with the write lock of the file."""
        with self._transaction("BEGIN IMMEDIATE") as connection:
            yield connection
            file, is_committed = connection.file_id, not connection.in_transaction
        if is_committed and file != _file_id(self._path):
            raise Unavailable(f"{self.name} was replaced while it was written to: what was written is in the old file")

    @contextmanager
    def schema_transaction(self) -> Iterator[SqliteConnection]:
        """Begin a transaction with the write lock of the file."""
        with self._transaction("BEGIN IMMEDIATE") as connection:
            yield connection
            connection.commit()

    def query(self, connection: SqliteConnection, sql: str, parameters: Parameters = NO_PARAMETERS) -> Sequence[Row]:
        """Return all rows of a query."""
        return connection.execute(sql, parameters).fetchall()

    @contextmanager
    def stream(self, connection: SqliteConnection, sql: str) -> Iterator[Iterable[Row]]:
        """Begin a query; the driver fetches a row when the row is asked for."""
        with closing(connection.execute(sql)) as cursor:
            yield cursor

    def execute(self, connection: SqliteConnection, sql: str, rows: Sequence[Parameters] = (NO_PARAMETERS,)) -> int:
        """Execute a statement for each of `rows`; return the number of rows touched."""
        if len(rows) == 1:  # the driver executes only INSERT, UPDATE and DELETE many times
            return connection.execute(sql, rows[0]).rowcount
        return connection.executemany(sql, rows).rowcount

    def commit(self, connection: SqliteConnection) -> None:
        """Commit the transaction."""
        connection.commit()

    def tables(self, connection: SqliteConnection) -> set[str]:
        """Return the names of the tables, without SQLite's own."""
        names = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite~_%' ESCAPE '~'"
        return {name for (name,) in connection.execute(names)}

    @contextmanager
    def migration_connection(self, connection: SqliteConnection) -> Iterator[sqlalchemy.Connection]:
        """Return SQLAlchemy's form of the connection. SQLAlchemy neither begins, ends nor closes anything."""
        from sqlalchemy import StaticPool, create_engine  # noqa: PLC0415  only migrations need it

        engine = create_engine("sqlite://", creator=lambda: connection, poolclass=StaticPool, pool_reset_on_return=None)
        with engine.connect() as wrapped:
            yield wrapped

    def lock(self, connection: SqliteConnection) -> None:
        """Do nothing: the transaction began with the lock."""

    def history_id(self, connection: SqliteConnection) -> str:
        """Return device and inode: a file moved into the place of this one has another inode."""
        file_id = connection.file_id
        if file_id is None or file_id != _file_id(self._path):
            raise Unavailable(f"{self.name} was replaced while it was opened")
        return "{}:{}".format(*file_id)

    def announce(self, connection: SqliteConnection) -> None:
        """Do nothing: other services watch the file."""

    def map_error(self, error: Exception) -> Exception:
        """Return the error for a result code of SQLite."""
        if isinstance(error, sqlite3.IntegrityError):
            return row_exists()
        if isinstance(error, sqlite3.DataError):
            return unfit_value(self.name, error)
        return self._map_driver_error(error)

    def wait(self, seconds: float, signal: Signal) -> None:
        """Poll the times and sizes of the file and its log, which is cheap, until one changes."""
        deadline = time.monotonic() + seconds
        while True:
            left = deadline - time.monotonic()
            if signal.wait(max(0.0, min(left, _POLL_SECONDS))) or left <= 0:
                return
            stats = self._stats()
            if stats != self._last_stats:
                self._last_stats = stats
                signal.notify()

    def close(self) -> None:
        """Do nothing: no connection stays open."""

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[SqliteConnection]:
        """Begin a transaction on a new connection. Closing the connection ends the transaction if nobody committed."""
        with closing(self._open()) as connection:
            self._begin(connection, begin)
            yield connection

    def _begin(self, connection: SqliteConnection, begin: str) -> None:
        if begin == "BEGIN":
            connection.execute(begin)
            return
        connection.execute("PRAGMA busy_timeout=0")
        _execute_when_free(connection, begin)

    def _open(self) -> SqliteConnection:
        file_id = _file_id(self._path)
        address = f"file:{quote(self._path)}?mode={self._mode}"
        link = sqlite3.connect(
            address,
            pauses().sqlite_busy,
            isolation_level=None,
            check_same_thread=False,
            factory=SqliteConnection,
            uri=True,
        )
        link.file_id = file_id
        link.execute("PRAGMA synchronous=FULL")
        return link

    def _check(self) -> None:
        """Raise ConfigError for a damaged file; switch the file to a write-ahead log."""
        path = Path(self._path)
        if path.is_dir():
            raise ConfigError(f"{self.name} is a directory, not an SQLite file")
        self._restrict(path)
        try:
            link = self._open()
            try:
                # Two services that switch a new file at once each hold what the other needs: SQLite fails one at once.
                if _execute_when_free(link, "PRAGMA journal_mode=WAL") != ("wal",):
                    raise ConfigError(
                        f"{self.name} is on a file system without shared memory: SQLite needs a local one"
                    )
                if path.stat().st_size <= _CHECKED_BYTES:
                    damage = link.execute("PRAGMA quick_check(1)").fetchone()[0]
                    if damage != "ok":
                        raise ConfigError(f"{self.name} is a damaged SQLite file: {damage.lower()}")
            finally:
                link.close()
        except sqlite3.Error as error:
            mapped = self._map_driver_error(error)
            # a file that cannot be opened at the start is not just being replaced: the error will not pass
            raise (ConfigError(str(mapped)) if _code(error) == sqlite3.SQLITE_CANTOPEN else mapped) from error

    def _restrict(self, path: Path) -> None:
        """Close the file and its logs to all but their owner. SQLite gives new logs the mode of the file."""
        try:
            create_private_file(path)
        except OSError:
            return  # SQLite names the cause
        restrict_files(*(path.with_name(path.name + end) for end in ("", "-wal", "-shm", "-journal")))

    def _map_driver_error(self, error: Any) -> PdpError:
        code = _code(error)
        if code in _PASSING or getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_READONLY_DBMOVED:
            return unusable_now(self.name, error)
        if code == sqlite3.SQLITE_CANTOPEN:
            return Unavailable(f"{self.name} cannot be opened: {error}")
        if code in _UNUSABLE:
            return ConfigError(f"{self.name} is no sound SQLite file: {error}")
        return ConfigError(f"{self.name} holds no usable store: {error}")

    def _stats(self) -> tuple[Any, ...]:
        """Return a value that every commit changes; after a recent change, one that equals no other."""
        stats = [_stat(self._path), _stat(f"{self._path}-wal")]
        # an empty log is only a sign of a reader
        written = [stat for stat in stats if stat is not None and stat.st_size]
        is_settled = time.time() - max((stat.st_mtime for stat in written), default=0.0) > _SETTLED_SECONDS
        fields = ((stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in written)
        return (*fields, None if is_settled else time.monotonic())


def _execute_when_free(connection: SqliteConnection, statement: str) -> Any:
    """Execute a statement, again for as long as the file is busy and a writer may wait; return its first row."""
    deadline = time.monotonic() + pauses().sqlite_busy
    while True:
        try:
            return connection.execute(statement).fetchone()
        except sqlite3.OperationalError as error:
            if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(_BUSY_POLL_SECONDS)


def _code(error: Any) -> int:
    """Return the primary result code of SQLite, without the bits of the extended code."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def _file_id(path: str) -> FileId | None:
    stat = _stat(path)
    return (stat.st_dev, stat.st_ino) if stat is not None else None


def _stat(path: str) -> os.stat_result | None:
    try:
        return Path(path).stat()
    except OSError:
        return None
