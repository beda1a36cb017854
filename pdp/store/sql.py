"""Store in an SQL database, SQLite or PostgreSQL.

Owns transactions, the log and the detection of another history. `schema` owns the tables and the
stored form of facts, `sqlite` and `postgres` the differences between the two databases.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain
from typing import Final

from pdp.errors import ConfigError, Unavailable
from pdp.facts.objects import Change, GrantAdded, ObjectPut, RowPolicyPut
from pdp.facts.snapshot import Facts
from pdp.model.pauses import pauses
from pdp.store import schema
from pdp.store.database import Connection, Database, Signal
from pdp.store.sqlite import SqliteDatabase
from pdp.store.store import CommitGate, EpochChanged, LogEntry, Prepare

_SELECT_META: Final = "SELECT epoch, sequence FROM meta"
_SELECT_OBJECTS: Final = 'SELECT "key", project, managed, id FROM objects'
_SELECT_GRANTS: Final = "SELECT object, privilege, principal, id FROM grants ORDER BY object"
_SELECT_RULES: Final = "SELECT body FROM row_rules"
_SELECT_LOG: Final = (
    "SELECT sequence, time, actor, changes, token FROM changes WHERE sequence > :sequence ORDER BY sequence"
)
_SELECT_BY_NUMBER: Final = "SELECT token FROM changes WHERE sequence = :sequence"
_SELECT_TIME: Final = "SELECT time FROM changes WHERE sequence = :sequence"
_INSERT_CHANGES: Final = (
    "INSERT INTO changes (sequence, token, time, actor, changes) VALUES (:sequence, :token, :time, :actor, :changes)"
)
_UPDATE_SEQUENCE: Final = "UPDATE meta SET sequence = :sequence"
_UPDATE_EPOCH: Final = "UPDATE meta SET epoch = :epoch WHERE epoch = :stored"


def open_store(url: str) -> SqlStore:
    """Return the store at `sqlite:///<path>` or `postgresql://...`; create or migrate the tables.

    A relative path starts at the working directory. Raise ConfigError if there can be no store at that address,
    Unavailable if the database cannot be reached.
    """
    return SqlStore(_database(url))


def _database(url: str, *, read_only: bool = False) -> Database:
    scheme, _, path = url.partition(":///")
    if scheme == "sqlite" and path and path != ":memory:":
        return SqliteDatabase(path, read_only=read_only)
    if url.startswith(("postgresql://", "postgres://")):
        from pdp.store.postgres import PostgresDatabase  # noqa: PLC0415  a store in a file needs no driver

        return PostgresDatabase(url)
    raise ConfigError("`store.url` must be `sqlite:///<path>` or `postgresql://<host>/<database>`")


def read_store(url: str) -> Facts | None:
    """Return the newest snapshot of the store at an address, None without tables, and change nothing there.

    Raise ConfigError if the tables are not of this version, Unavailable if nobody answers.
    """
    with closing(SqlStore(_database(url, read_only=True), read_only=True)) as store:
        return None if store.is_new else store.load()


@dataclass(frozen=True, slots=True)
class _Head:
    """The newest revision of a store.

    `stored` is the epoch in the table `meta`, a random text. `epoch` is the digest of `stored` and the database's
    history id: a copy of the database has the same `stored` but another `epoch`.
    """

    stored: str
    epoch: str
    sequence: int


@dataclass(frozen=True, slots=True)
class _Write:
    """A write under the lock: its author, the log before it, its changes, and the request's consent."""

    actor: str
    log: Sequence[LogEntry]
    prepare: Prepare
    gate: CommitGate


class SqlStore:
    """A store in a database. Opening creates or migrates the tables, unless it is `read_only`."""

    def __init__(self, database: Database, *, read_only: bool = False) -> None:
        self._database = database
        self._signal = Signal()
        self._write_lock = threading.Lock()
        self._closed = False
        self.is_new = False
        """True if a store for reading has no tables yet."""
        self._newest: dict[str, tuple[int, str]] = {}
        """Epoch -> sequence and token of the newest revision that this process knows of the epoch."""
        try:
            with self._map_errors():
                if read_only:
                    self.is_new = schema.is_new(database)
                else:
                    schema.prepare(database)
        except BaseException:
            database.close()
            raise

    def load(self) -> Facts:
        """Return the newest snapshot; raise Unavailable, or ConfigError if a row is unreadable."""
        with self._map_errors(), self._database.read_transaction(long=True) as connection:
            head = self._head(connection)
            token = self._token(connection, head.sequence)
            with self._database.stream(connection, _SELECT_OBJECTS) as registered:
                objects = list(schema.read_objects(registered))  # the rows must be read before the next statement
            with self._database.stream(connection, _SELECT_RULES) as stored:
                rules = list(schema.read_rules(stored))
            with self._database.stream(connection, _SELECT_GRANTS) as grants:
                changes: chain[Change] = chain(
                    map(ObjectPut, objects), map(RowPolicyPut, rules), map(GrantAdded, schema.read_grants(grants))
                )
                facts = Facts.from_changes(head.epoch, head.sequence, changes, token)
        self._remember(head.epoch, head.sequence, token)
        return facts

    def since(self, facts: Facts) -> Sequence[LogEntry]:
        """Return the log after a snapshot; raise EpochChanged, Unavailable, ConfigError."""
        # before the read: a commit during the read must end the next `wait`
        self._signal.acknowledge()
        # read before the transaction begins: a concurrent write of this process may add a newer revision, which this
        # transaction does not see and would take for a lost one
        newest = self._newest.get(facts.epoch)
        with self._map_errors(), self._database.read_transaction() as connection:
            head = self._head(connection)
            log = self._read_log(connection, facts, head, newest)
            token = self._token(connection, head.sequence)
        if log is None:
            self._renew_epoch(head)
            raise self._epoch_changed(facts)
        self._remember(head.epoch, head.sequence, token)
        return log

    def token_of(self, facts: Facts, sequence: int) -> str:
        """Return the token of a revision up to a snapshot, "" for none; raise as `since` does.

        The same transaction compares the snapshot with the log, so token and snapshot are of one history.
        """
        newest = self._newest.get(facts.epoch)
        with self._map_errors(), self._database.read_transaction() as connection:
            head = self._head(connection)
            log = self._read_log(connection, facts, head, newest)
            token = self._token(connection, sequence)
        if log is None:
            self._renew_epoch(head)
            raise self._epoch_changed(facts)
        return token

    def time_of(self, sequence: int) -> float:
        """Return the time of a revision, in seconds since 1970; 0 if there is no such revision."""
        with self._map_errors(), self._database.read_transaction() as connection:
            times = self._database.query(connection, _SELECT_TIME, {"sequence": sequence})
        return float(times[0][0]) if times else 0.0

    def wait(self, seconds: float) -> None:
        """Return after a possible commit by any process, or after `seconds`."""
        if not self._closed:
            self._database.wait(seconds, self._signal)

    def write(self, actor: str, facts: Facts, prepare: Prepare, gate: CommitGate | None = None) -> Sequence[LogEntry]:
        """Write the changes from `prepare`; return the log after `facts`, the new entry last if there is one.

        Commit only if the `gate` agrees. Raise EpochChanged, Unavailable, ConfigError, ValueError for a change that
        changes nothing, and every exception of `prepare`. If the connection breaks during the commit, Unavailable
        leaves open whether the write happened.
        """
        if not self._write_lock.acquire(timeout=pauses().write_lock):
            raise Unavailable(f"{self._database.name} cannot be used now: other writes take too long")
        gate = gate or CommitGate()
        try:
            _refuse_given_up(gate)
            newest = self._newest.get(facts.epoch)
            with self._map_errors(), self._database.write_transaction() as connection:
                self._database.lock(connection)
                _refuse_given_up(gate)
                head = self._head(connection)
                log = self._read_log(connection, facts, head, newest)
                if log is not None:
                    log = self._commit(connection, head, _Write(actor, log, prepare, gate))
        finally:
            self._write_lock.release()
        if log is None:
            self._renew_epoch(head)
            raise self._epoch_changed(facts)
        self._signal.notify()
        return log

    def close(self) -> None:
        """Release the database; make a `wait` in another thread return soon."""
        self._closed = True
        self._signal.notify()
        self._database.close()

    def _commit(self, connection: Connection, head: _Head, write: _Write) -> Sequence[LogEntry]:
        """Commit the changes from `prepare`, if any; return the log with the new entry."""
        actor, log = write.actor, write.log
        changes = tuple(write.prepare(log))
        if not changes:
            return log
        token = secrets.token_hex(8)
        entry = LogEntry(head.sequence + 1, time.time(), actor, changes, token)
        database = self._database
        schema.write_changes(database, connection, entry.sequence, changes)
        row = {"sequence": entry.sequence, "token": token, "time": entry.time, "actor": actor}
        database.execute(connection, _INSERT_CHANGES, [row | {"changes": schema.encode_changes(changes)}])
        database.execute(connection, _UPDATE_SEQUENCE, [{"sequence": entry.sequence}])
        database.announce(connection)
        if not write.gate.begin_commit():
            raise _given_up()
        database.commit(connection)
        self._remember(head.epoch, entry.sequence, token)
        return *log, entry

    def _head(self, connection: Connection) -> _Head:
        history_id = self._database.history_id(connection)
        meta = self._database.query(connection, _SELECT_META)
        if not meta:
            raise ConfigError(f"{self._database.name} holds no usable store: its table `meta` is empty")
        ((epoch, sequence),) = meta
        digest = sha256(f"{epoch}:{history_id}".encode()).hexdigest()[:12]
        return _Head(epoch, digest, sequence)

    def _read_log(
        self, connection: Connection, facts: Facts, head: _Head, newest: tuple[int, str] | None
    ) -> Sequence[LogEntry] | None:
        """Return the log after a snapshot; None for another history under the same epoch.

        Raise EpochChanged for another epoch. A copy that is written over the original file keeps the epoch. Two signs
        give the copy away: the revision of the snapshot, or the newest known one, is missing or has another token; or
        the log has a gap or ends before the snapshot.
        """
        if facts.epoch != head.epoch:
            raise self._epoch_changed(facts)
        own = (facts.sequence, facts.token) if facts.token else None
        known = {each for each in (own, newest) if each is not None}
        if any(self._token(connection, sequence) != token for sequence, token in known):
            return None
        selected = self._database.query(connection, _SELECT_LOG, {"sequence": facts.sequence})
        log = [
            LogEntry(number, time, actor, schema.decode_changes(text), token)
            for number, time, actor, text, token in selected
        ]
        numbers = [facts.sequence, *(entry.sequence for entry in log)]
        return log if numbers == list(range(facts.sequence, head.sequence + 1)) else None

    def _token(self, connection: Connection, sequence: int) -> str:
        """Return the random token of a revision; "" if there is no such revision."""
        tokens = self._database.query(connection, _SELECT_BY_NUMBER, {"sequence": sequence})
        return str(tokens[0][0]) if tokens else ""

    def _renew_epoch(self, head: _Head) -> None:
        """Store a new epoch, so that every service loads again; do nothing if another service did so already."""
        with self._map_errors(), self._database.write_transaction() as connection:
            self._database.lock(connection)
            renewed = {"epoch": secrets.token_hex(6), "stored": head.stored}
            self._database.execute(connection, _UPDATE_EPOCH, [renewed])
            self._database.announce(connection)
            self._database.commit(connection)

    def _remember(self, epoch: str, sequence: int, token: str) -> None:
        known = self._newest.get(epoch)
        if known is None or known[0] < sequence:
            self._newest[epoch] = sequence, token

    def _epoch_changed(self, facts: Facts) -> EpochChanged:
        return EpochChanged(f"the history of {self._database.name} is not the one of epoch `{facts.epoch}`")

    @contextmanager
    def _map_errors(self) -> Iterator[None]:
        """Raise this program's errors in place of the driver's."""
        if self._closed:
            raise Unavailable(f"the store in {self._database.name} is closed")
        try:
            yield
        except self._database.driver_errors as error:
            raise self._database.map_error(error) from error
        except schema.UnreadableRow as error:
            raise ConfigError(f"{self._database.name} holds what this version cannot read: {error}") from error


def _refuse_given_up(gate: CommitGate) -> None:
    """Raise Unavailable early, so that a write without a request does not keep the lock."""
    if gate.is_given_up:
        raise _given_up()


def _given_up() -> Unavailable:
    return Unavailable("the request of the write ended before the commit: nothing was written")
