"""A store's database in PostgreSQL.

The address goes to libpq as it is: several hosts, `target_session_attrs`, a service file, whatever libpq knows. No
answer is awaited for ever: the server gives up on a statement, and the client on a server that is silent, which a
connection cut off in silence needs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import DBAPIError

from pdp.errors import ConfigError, PdpError, Unavailable
from pdp.store.database import Signal
from pdp.store.listener import CHANNEL, Listener

RV = TypeVar("RV")

_DEFAULTS: Final[dict[str, Any]] = {
    "application_name": "pdp",
    "connect_timeout": 4,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 6_000,
    "target_session_attrs": "read-write",  # a standby lags, and takes no writes
}
"""What libpq is told unless the address says otherwise."""
_SILENCE_SECONDS: Final = 6.0
_STATEMENT_SECONDS: Final = 5
_LOCK_SECONDS: Final = 4
_IDLE_SECONDS: Final = 60
"""How long a transaction may do nothing: a writer whose machine vanished must not keep the lock."""
_PATIENT_SECONDS: Final = 300
"""For the whole world and for migrations."""
_SCHEMA_LOCK: Final = 0x706470
"""Our number among the database's advisory locks, for one who makes or changes tables."""
_PASSING_STATES: Final = ("08", "25006", "25P03", "40", "53", "55", "57", "58")
"""Prefixes of SQLSTATE for what may pass: connection, standby, idle too long, conflict, resources, locks,
operator, system."""

_LIMITS: Final = text(
    "SELECT set_config('statement_timeout', :statement, true), set_config('lock_timeout', :lock, true),"
    " set_config('idle_in_transaction_session_timeout', :idle, true)"
)
_MAY_IDENTIFY: Final = text("SELECT has_function_privilege('pg_control_system()', 'execute')")
_SYSTEM: Final = "(SELECT system_identifier FROM pg_control_system())"
_HISTORY: Final = (
    "SELECT {system}, d.oid, c.oid, c.relfilenode,"
    " CASE WHEN pg_is_in_recovery() THEN '' ELSE substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) END"
    " FROM pg_database d, pg_class c WHERE d.datname = current_database() AND c.oid = to_regclass('meta')"
)


class ServerSilent(psycopg.OperationalError):
    """The server did not answer in time; the connection is closed."""


class _Link(psycopg.Connection[Any]):
    """A connection that gives up on a silent server; `patience` in seconds."""

    patience = _SILENCE_SECONDS

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        """As psycopg waits, but never for ever: Silent is raised."""
        try:
            return super().wait(gen, interval, self.patience if timeout is None else timeout)
        except psycopg.errors._WaitTimeout as error:  # noqa: SLF001  psycopg has no public name for it
            if timeout is not None:
                raise
            self.pgconn.finish()
            raise ServerSilent(f"no answer within {self.patience:g} seconds") from error


class PostgresDatabase:
    """The database that a `postgresql://` address leads to; ConfigError where libpq cannot read the address."""

    def __init__(self, url: str) -> None:
        try:
            given = conninfo_to_dict(url)
        except psycopg.ProgrammingError:
            # what libpq says of it may quote the password
            raise ConfigError("`store.url` is no address that PostgreSQL's libpq can read") from None
        self._parameters = _DEFAULTS | given
        self.name = "PostgreSQL at `{}/{}`".format(_hosts(given), given.get("dbname") or "")
        # statements are not prepared: a pooler in front may hand the next one to another server process
        self._engine = create_engine(
            "postgresql+psycopg://", creator=self._connect, pool_size=5, max_overflow=10, hide_parameters=True
        )
        self._history = ""
        self._first_wait = threading.Lock()
        self._listener: Listener | None = None
        self._closed = False

    @contextmanager
    def reading(self, *, patient: bool = False) -> Iterator[Connection]:
        """A transaction on one snapshot."""
        limit = _PATIENT_SECONDS if patient else _STATEMENT_SECONDS
        with self._transaction("REPEATABLE READ", limit) as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction whose statements see what was committed before each of them."""
        with self._transaction("READ COMMITTED", _STATEMENT_SECONDS) as connection:
            yield connection

    @contextmanager
    def creating(self) -> Iterator[Connection]:
        """A transaction with this program's advisory lock on the database; whoever is second waits for the first."""
        with self._transaction("READ COMMITTED", _PATIENT_SECONDS) as connection:
            connection.execute(text("SELECT set_config('lock_timeout', '0', true)"))
            connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _SCHEMA_LOCK})
            yield connection
            connection.commit()

    def lock(self, connection: Connection) -> None:
        """Lock the one row that every write changes."""
        connection.execute(text("SELECT 1 FROM meta FOR UPDATE"))

    def history(self, connection: Connection) -> str:
        """The cluster, its timeline (the WAL's: the control file learns of a promotion later), database and table.

        A table has another oid or file after a restore, be it into new tables or into emptied ones. Everybody may ask
        for the cluster's identifier unless an administrator took that right away; then the rest has to do.
        """
        if not self._history:
            self._history = _HISTORY.format(system=_SYSTEM if connection.scalar(_MAY_IDENTIFY) else "0")
        found = connection.execute(text(self._history)).one_or_none()
        if found is None:
            raise ConfigError(f"{self.name} holds no store: there is no table `meta`")
        if not found[-1]:
            raise Unavailable(f"{self.name} is a standby, which takes no writes")
        return ":".join(map(str, found))

    def announce(self, connection: Connection) -> None:
        """Notify at commit."""
        connection.execute(text("SELECT pg_notify(:channel, '')"), {"channel": CHANNEL})

    def failure(self, error: DBAPIError) -> PdpError:
        """By SQLSTATE; without one, the connection failed."""
        state = getattr(error.orig, "sqlstate", None) or "08"
        said = str(error.orig).strip().replace("\n", ": ")
        if state.startswith(_PASSING_STATES):
            return Unavailable(f"{self.name} cannot be used now: {said}")
        return ConfigError(f"{self.name} holds no usable store: {said}")

    def wait(self, seconds: float, signal: Signal) -> None:
        """Be told by the server, or by nobody for a second: who waits then asks anyway."""
        with self._first_wait:
            if self._listener is None and not self._closed:
                self._listener = Listener(self._connect, signal)
        signal.wait(min(seconds, 1.0))

    def close(self) -> None:
        """Close what is idle; what is in use closes once it is given back."""
        with self._first_wait:
            self._closed = True
            if self._listener is not None:
                self._listener.close()
        self._engine.pool.dispose()

    @contextmanager
    def _transaction(self, isolation: str, seconds: float) -> Iterator[Connection]:
        try:
            with self._begun(isolation, seconds) as connection:
                yield connection
        finally:
            if self._closed:  # whoever is last to give a connection back closes it, however late it is
                self._engine.pool.dispose()

    def _begun(self, isolation: str, seconds: float) -> Connection:
        """A connection in a transaction: another one where the pool's was closed since it was last used."""
        try:
            return self._limited(isolation, seconds)
        except DBAPIError as error:
            # then the pool has forgotten all that it had; a server that was silent is not asked again
            if not error.connection_invalidated or isinstance(error.orig, ServerSilent):
                raise
            return self._limited(isolation, seconds)

    def _limited(self, isolation: str, seconds: float) -> Connection:
        limits = {"statement": f"{seconds}s", "lock": f"{min(seconds, _LOCK_SECONDS)}s", "idle": f"{_IDLE_SECONDS}s"}
        connection = self._engine.connect().execution_options(isolation_level=isolation)
        try:
            link = connection.connection.driver_connection
            assert isinstance(link, _Link)
            link.patience = seconds + 1
            connection.execute(_LIMITS, limits)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect(self) -> _Link:
        return _Link.connect(prepare_threshold=None, **self._parameters)


def _hosts(given: dict[str, Any]) -> str:
    hosts = str(given.get("host") or given.get("hostaddr") or "").split(",")
    ports = str(given.get("port") or "").split(",")
    if len(ports) < len(hosts):
        ports += ports[-1:] * (len(hosts) - len(ports))
    return ",".join(f"{host}:{port}" if port else host for host, port in zip(hosts, ports, strict=False))
