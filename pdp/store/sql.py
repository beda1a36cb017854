"""The store in a database that speaks SQL: SQLite or PostgreSQL.

Owns transactions, the log, and telling one history from another. `rows` says how facts are stored, `schema` where,
`sqlite` and `postgres` what the two databases do differently.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from sqlalchemy import Connection, insert, select, update
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, SQLAlchemyError

from pdp.errors import ConfigError, Unavailable
from pdp.facts.snapshot import Facts
from pdp.store import rows, schema
from pdp.store.database import Database, Signal
from pdp.store.schema import CHANGES, GRANTS, META, OBJECTS
from pdp.store.sqlite import SqliteDatabase
from pdp.store.store import EpochChanged, Prepare, Revision, Store

_TURN_SECONDS: Final = 8.0
"""How long a write waits for another of this process."""
_FETCHED: Final = 10_000
_SELECT_OBJECTS: Final = select(OBJECTS.c.key, OBJECTS.c.project, OBJECTS.c.managed, OBJECTS.c.id)
_SELECT_GRANTS: Final = select(GRANTS.c.object, GRANTS.c.privilege, GRANTS.c.principal, GRANTS.c.id).order_by(
    GRANTS.c.object
)
_SELECT_LOG: Final = select(CHANGES).order_by(CHANGES.c.sequence)


def open_store(url: str) -> Store:
    """The store at `sqlite:///<path>` or `postgresql://...`, its tables made or brought up to date.

    A relative path counts from the working directory. ConfigError where there can be no store at that address,
    Unavailable where the database cannot be reached.
    """
    scheme, _, path = url.partition(":///")
    if scheme == "sqlite" and path and path != ":memory:":
        return SqlStore(SqliteDatabase(path))
    if url.startswith(("postgresql://", "postgres://")):
        from pdp.store.postgres import PostgresDatabase  # noqa: PLC0415  who keeps a file does not load the driver

        return SqlStore(PostgresDatabase(url))
    raise ConfigError("`store.url` must be `sqlite:///<path>` or `postgresql://<host>/<database>`")


@dataclass(frozen=True, slots=True)
class _Head:
    """Where a history stands: `stored` is the part of its epoch that the database keeps and that can be renewed."""

    stored: str
    epoch: str
    sequence: int


class SqlStore:
    """A store in a database; opening it brings the tables up to date."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._signal = Signal()
        self._turn = threading.Lock()
        self._closed = False
        self._seen: dict[str, tuple[int, str]] = {}
        """Epoch -> the newest revision that this store has seen of it, and its token."""
        try:
            with self._errors():
                schema.prepare(database)
        except BaseException:
            database.close()
            raise

    def load(self) -> Facts:
        """The newest snapshot, at one revision; Unavailable, or ConfigError where the rows make no sense."""
        with self._errors(), self._database.reading(patient=True) as connection:
            head = self._head(connection)
            token = self._token(connection, head.sequence)
            stream = connection.execution_options(yield_per=_FETCHED)
            # objects first: their rows are read before the next statement is made
            objects = list(rows.objects_of(stream.execute(_SELECT_OBJECTS)))
            with stream.execute(_SELECT_GRANTS) as found:
                facts = Facts.build(head.epoch, head.sequence, objects, rows.grants_of(found))
        self._remember(head.epoch, head.sequence, token)
        return facts

    def since(self, facts: Facts) -> Sequence[Revision]:
        """What was committed after a snapshot; EpochChanged, Unavailable, ConfigError."""
        self._signal.look()
        seen = self._seen.get(facts.epoch)  # before the snapshot is taken: it must not lie behind what was seen
        with self._errors(), self._database.reading() as connection:
            head = self._head(connection)
            log, is_same = self._follow(connection, facts, head, seen)
            token = self._token(connection, head.sequence)
        if not is_same:
            self._renew(head)
            raise self._changed(facts)
        self._remember(head.epoch, head.sequence, token)
        return log

    def wait(self, seconds: float) -> None:
        """Return when something may have been committed by anybody, at the latest after so long."""
        if not self._closed:
            self._database.wait(seconds, self._signal)

    def write(self, actor: str, facts: Facts, prepare: Prepare) -> Sequence[Revision]:
        """Write what `prepare` returns; all revisions after `facts`, the new one last if there is one.

        EpochChanged, Unavailable, ConfigError, ValueError where a change is none, and whatever `prepare` raises. When
        the connection is lost during the commit, Unavailable leaves open whether the revision was written.
        """
        if not self._turn.acquire(timeout=_TURN_SECONDS):
            raise Unavailable(f"{self._database.name} cannot be used now: other writes take too long")
        try:
            seen = self._seen.get(facts.epoch)
            with self._errors(), self._database.writing() as connection:
                self._database.lock(connection)
                head = self._head(connection)
                log, is_same = self._follow(connection, facts, head, seen)
                if is_same:
                    log = self._written(connection, head, (actor, log, prepare))
        finally:
            self._turn.release()
        if not is_same:
            self._renew(head)
            raise self._changed(facts)
        self._signal.give()
        return log

    def close(self) -> None:
        """Let go of the database; a `wait` in another thread returns soon."""
        self._closed = True
        self._signal.give()
        self._database.close()

    def _written(
        self, connection: Connection, head: _Head, write: tuple[str, Sequence[Revision], Prepare]
    ) -> Sequence[Revision]:
        """The log with the new revision, if there is one, which is then committed."""
        actor, log, prepare = write
        changes = tuple(prepare(log))
        if not changes:
            return log
        revision, token = Revision(head.sequence + 1, time.time(), actor, changes), secrets.token_hex(8)
        rows.write(connection, revision.sequence, changes)
        row = {"sequence": revision.sequence, "token": token, "time": revision.time, "actor": actor}
        connection.execute(insert(CHANGES), row | {"changes": rows.encoded(changes)})
        connection.execute(update(META).values(sequence=revision.sequence))
        self._database.announce(connection)
        connection.commit()
        self._remember(head.epoch, revision.sequence, token)
        return *log, revision

    def _head(self, connection: Connection) -> _Head:
        history = self._database.history(connection)
        found = connection.execute(select(META.c.epoch, META.c.sequence)).one_or_none()
        if found is None:
            raise ConfigError(f"{self._database.name} holds no usable store: its table `meta` is empty")
        digest = sha256(f"{found.epoch}:{history}".encode()).hexdigest()[:12]
        return _Head(found.epoch, digest, found.sequence)

    def _follow(
        self, connection: Connection, facts: Facts, head: _Head, seen: tuple[int, str] | None
    ) -> tuple[Sequence[Revision], bool]:
        """The log after a snapshot, and whether this is the history that the snapshot came from.

        The epoch alone does not tell where a copy was restored into the place of what it was copied from. But then
        what was seen last is not there, or what stands under its number has another token.
        """
        if facts.epoch != head.epoch:
            raise self._changed(facts)
        if seen is not None and self._token(connection, seen[0]) != seen[1]:
            return (), False
        found = connection.execute(_SELECT_LOG.where(CHANGES.c.sequence > facts.sequence))
        log = [Revision(row.sequence, row.time, row.actor, rows.decoded(row.changes)) for row in found]
        numbers = [facts.sequence, *(revision.sequence for revision in log)]
        return log, numbers == list(range(facts.sequence, head.sequence + 1))

    def _token(self, connection: Connection, sequence: int) -> str:
        """The token of a revision; "" where there is none."""
        return connection.scalar(select(CHANGES.c.token).where(CHANGES.c.sequence == sequence)) or ""

    def _renew(self, head: _Head) -> None:
        """Give another epoch to a history that had the epoch of another one, unless somebody else already has."""
        with self._errors(), self._database.writing() as connection:
            self._database.lock(connection)
            renewed = update(META).where(META.c.epoch == head.stored).values(epoch=secrets.token_hex(6))
            connection.execute(renewed)
            self._database.announce(connection)
            connection.commit()

    def _remember(self, epoch: str, sequence: int, token: str) -> None:
        known = self._seen.get(epoch)
        if known is None or known[0] < sequence:
            self._seen[epoch] = sequence, token

    def _changed(self, facts: Facts) -> EpochChanged:
        return EpochChanged(f"the history of {self._database.name} is not the one of epoch `{facts.epoch}`")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """What the database's driver raises, in this program's terms."""
        if self._closed:
            raise Unavailable(f"the store in {self._database.name} is closed")
        try:
            yield
        except IntegrityError as error:
            raise ValueError("a grant that is to be added is there") from error
        except DataError as error:
            raise ValueError(f"{self._database.name} cannot hold what is to be written: {error.orig}") from error
        except DBAPIError as error:
            raise self._database.failure(error) from error
        except SQLAlchemyError as error:  # no connection of the pool came free
            raise Unavailable(f"{self._database.name} cannot be used now: {error}") from error
        except rows.Unreadable as error:
            raise ConfigError(f"{self._database.name} holds what this version cannot read: {error}") from error
