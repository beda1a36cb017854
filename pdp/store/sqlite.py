"""A store's database in an SQLite file.

Nothing stays open between two transactions. When the last connection closes, SQLite moves the write-ahead log into the
file and removes it: at rest the file is whole, so that it can be copied, and replaced by a copy, under a running
service; and no connection trusts pages that it read from a file since replaced. The file itself is never opened by
anything but SQLite: closing it would drop SQLite's locks (https://sqlite.org/howtocorrupt.html).
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from sqlalchemy import Connection, NullPool, create_engine
from sqlalchemy.exc import DBAPIError, OperationalError

from pdp.errors import ConfigError, PdpError, Unavailable
from pdp.store.database import Signal

_BUSY_SECONDS: Final = 8.0
"""How long a transaction waits for another to end."""
_TURN_SECONDS: Final = 0.005
"""How soon a writer tries again. SQLite itself waits longer each time, so that whoever came last is served first."""
_POLL_SECONDS: Final = 0.02
_SETTLED_SECONDS: Final = 0.1
"""File times are coarse: within so long of a change, another one may leave the same time behind."""
_CHECKED_BYTES: Final = 32 << 20
"""Up to this size a file is checked as a whole when it is opened: a tenth of a second."""
_PASSING: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR})
_UNUSABLE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})

Identity: TypeAlias = tuple[int, int]
"""A file, whatever its name: device and inode."""


class _Opened(sqlite3.Connection):
    """A connection that knows which file had the name when it was made."""

    identity: Identity | None = None


class SqliteDatabase:
    """The file at `path`, made where there is none. ConfigError where it cannot be a database."""

    def __init__(self, path: str) -> None:
        self.name = f"`{path}`"
        self._path = path
        self._mode = "rwc"
        self._engine = create_engine("sqlite://", creator=self._open, poolclass=NullPool, hide_parameters=True)
        self._check()
        # from now on a file that is gone is being replaced: an empty one must not take its place
        self._mode = "rw"
        self._shape = self._look()

    @contextmanager
    def reading(self, *, patient: bool = False) -> Iterator[Connection]:
        """A transaction on one state of the file; writers do not wait for it."""
        with self._transaction("BEGIN") as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction with the file's one write lock."""
        with self._transaction("BEGIN IMMEDIATE") as connection:
            yield connection
            file, is_committed = connection.info["file"], not connection.in_transaction()
        if is_committed and file != _identity(self._path):
            raise Unavailable(f"{self.name} was replaced while it was written to: what was written is in the old file")

    @contextmanager
    def creating(self) -> Iterator[Connection]:
        """A transaction with the file's one write lock."""
        with self._transaction("BEGIN IMMEDIATE") as connection:
            yield connection
            connection.commit()

    def lock(self, connection: Connection) -> None:
        """Nothing is left to do: the transaction began with the lock."""

    def history(self, connection: Connection) -> str:
        """Device and inode: a file put in this one's place has another inode."""
        found = connection.info.get("file")
        if found is None or found != _identity(self._path):
            raise Unavailable(f"{self.name} was replaced while it was opened")
        return "{}:{}".format(*found)

    def announce(self, connection: Connection) -> None:
        """Nothing to do: others watch the file."""

    def failure(self, error: DBAPIError) -> PdpError:
        """By SQLite's result code."""
        return self._failure(error.orig)

    def wait(self, seconds: float, signal: Signal) -> None:
        """Look at the file's times and size, which is cheap, until they change."""
        deadline = time.monotonic() + seconds
        while True:
            left = deadline - time.monotonic()
            if signal.wait(max(0.0, min(left, _POLL_SECONDS))) or left <= 0:
                return
            shape = self._look()
            if shape != self._shape:
                self._shape = shape
                signal.give()

    def close(self) -> None:
        """Nothing is open."""

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[Connection]:
        with self._engine.connect() as connection:
            driver = connection.connection.driver_connection
            assert isinstance(driver, _Opened)
            connection.info["file"] = driver.identity
            self._begin(connection, begin)
            yield connection

    def _begin(self, connection: Connection, begin: str) -> None:
        if begin == "BEGIN":
            connection.exec_driver_sql(begin)
            return
        connection.exec_driver_sql("PRAGMA busy_timeout=0")
        deadline = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                connection.exec_driver_sql(begin)
            except OperationalError as error:
                if _code(error.orig) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(_TURN_SECONDS)
            else:
                return

    def _open(self) -> _Opened:
        identity = _identity(self._path)
        address = f"file:{quote(self._path)}?mode={self._mode}"
        opened = sqlite3.connect(
            address, _BUSY_SECONDS, isolation_level=None, check_same_thread=False, factory=_Opened, uri=True
        )
        opened.identity = identity
        opened.execute("PRAGMA synchronous=FULL")
        return opened

    def _check(self) -> None:
        """See that the file is a sound database, and have it keep a write-ahead log."""
        path = Path(self._path)
        if path.is_dir():
            raise ConfigError(f"{self.name} is a directory, not an SQLite file")
        try:
            opened = self._open()
            try:
                if opened.execute("PRAGMA journal_mode=WAL").fetchone() != ("wal",):
                    raise ConfigError(
                        f"{self.name} is on a file system without shared memory: SQLite needs a local one"
                    )
                if path.stat().st_size <= _CHECKED_BYTES:
                    found = opened.execute("PRAGMA quick_check(1)").fetchone()[0]
                    if found != "ok":
                        raise ConfigError(f"{self.name} is a damaged SQLite file: {found.lower()}")
            finally:
                opened.close()
        except sqlite3.Error as error:
            failure = self._failure(error)
            # while it is opened for the first time, nobody is replacing it
            raise (ConfigError(str(failure)) if _code(error) == sqlite3.SQLITE_CANTOPEN else failure) from error

    def _failure(self, error: Any) -> PdpError:
        code = _code(error)
        if code in _PASSING or getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_READONLY_DBMOVED:
            return Unavailable(f"{self.name} cannot be used now: {error}")
        if code == sqlite3.SQLITE_CANTOPEN:
            return Unavailable(f"{self.name} cannot be opened: {error}")
        if code in _UNUSABLE:
            return ConfigError(f"{self.name} is no sound SQLite file: {error}")
        return ConfigError(f"{self.name} holds no usable store: {error}")

    def _look(self) -> tuple[Any, ...]:
        """What changes with every commit; never equal to itself while a change is recent."""
        found = [_stat(self._path), _stat(f"{self._path}-wal")]
        # a log without content is only somebody who reads
        there = [stat for stat in found if stat is not None and stat.st_size]
        is_settled = time.time() - max((stat.st_mtime for stat in there), default=0.0) > _SETTLED_SECONDS
        shape = ((stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in there)
        return (*shape, None if is_settled else time.monotonic())


def _code(error: Any) -> int:
    """SQLite's primary result code; the rest of the number only refines it."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def _identity(path: str) -> Identity | None:
    found = _stat(path)
    return (found.st_dev, found.st_ino) if found is not None else None


def _stat(path: str) -> os.stat_result | None:
    try:
        return Path(path).stat()
    except OSError:
        return None
