"""PostgreSQL database of a store, and the listener for its notifications.

Passes the address to libpq unchanged: several hosts, `target_session_attrs`, a service file. No wait is unlimited: the
server cancels a long statement, and the client gives up on a silent server. The second limit is for connections that a
firewall or proxy cuts off in silence.

The listener only saves time: waiting threads poll every second anyway. A listener that lost its server can therefore
reconnect without hurry.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import Connection, TextClause, create_engine, inspect, text
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, SQLAlchemyError

from pdp.errors import ConfigError, Unavailable
from pdp.model.pauses import pauses
from pdp.store.database import NO_PARAMETERS, Parameters, Row, Signal, row_exists, unfit_value, unusable_now

CHANNEL: Final = "pdp_store"
_LISTEN_SECONDS: Final = 1.0
_QUIET_ROUNDS: Final = 10
"""Rounds without a notification after which the listener tests the connection."""
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
"""Parameters of libpq unless the address sets others."""
_SILENCE_SECONDS: Final = 6.0
_STATEMENT_SECONDS: Final = 5
_LOCK_SECONDS: Final = 4
_IDLE_SECONDS: Final = 60
"""Limit of an idle transaction, so that a writer on a lost machine does not keep the lock."""
_LONG_SECONDS: Final = 300
"""Limit of a statement that loads all facts or changes the schema."""
_SCHEMA_LOCK: Final = 0x706470
"""Number of the advisory lock for changes of the schema, unique to this program."""
_PASSING_STATES: Final = ("08", "25006", "25P03", "40", "53", "55", "57", "58")
"""Prefixes of SQLSTATE for errors that may pass: connection, standby, idle too long, conflict, resources, locks,
operator, system."""

_FETCH_ROWS: Final = 10_000
"""Rows in one part of a stream."""
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
    """Missing answer of the server within the time limit. The connection is closed."""


class _PostgresConnection(psycopg.Connection[Any]):
    """A connection that gives up on a silent server after `patience` seconds."""

    patience = _SILENCE_SECONDS

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        """Wait as psycopg does, but raise ServerSilent after `patience` seconds; keep a limit that psycopg sets."""
        try:
            return super().wait(gen, interval, self.patience if timeout is None else timeout)
        except psycopg.errors._WaitTimeout as error:  # noqa: SLF001  psycopg has no public name for it
            if timeout is not None:
                raise
            self.pgconn.finish()
            raise ServerSilent(f"no answer within {self.patience:g} seconds") from error


def _has_raw_password(url: str) -> bool:
    """Tell whether an address has an `@` where libpq takes the text before for a host, a port or a database."""
    before_query = url.partition("://")[2].partition("?")[0]
    place, _, path = before_query.partition("/")
    return "@" in path or place.count("@") > 1


class PostgresDatabase:
    """The database at a `postgresql://` address. Raise ConfigError if libpq cannot read the address."""

    dialect = "postgresql"
    driver_errors: tuple[type[Exception], ...] = (SQLAlchemyError,)

    def __init__(self, url: str) -> None:
        if _has_raw_password(url):
            raise ConfigError("`store.url`: a `/` or `@` of a user or password is written as `%2F` or `%40`")
        try:
            parameters = conninfo_to_dict(url)
        except (psycopg.ProgrammingError, ValueError):
            # the message of libpq, or of a text that is no UTF-8, may quote the password
            raise ConfigError("`store.url` is no address that PostgreSQL's libpq can read") from None
        self._parameters = _DEFAULTS | parameters
        self.name = "PostgreSQL at `{}/{}`".format(_hosts(parameters), parameters.get("dbname") or "")
        # statements are not prepared: a pooler in front may hand the next one to another server process
        self._engine = create_engine(
            "postgresql+psycopg://", creator=self._connect, pool_size=5, max_overflow=10, hide_parameters=True
        )
        self._history_query = ""
        self._listener_lock = threading.Lock()
        self._listener: Listener | None = None
        self._closed = False

    @contextmanager
    def read_transaction(self, *, long: bool = False) -> Iterator[Connection]:
        """Begin a transaction on one snapshot."""
        limit = _LONG_SECONDS if long else _STATEMENT_SECONDS
        with self._transaction("REPEATABLE READ", limit) as connection:
            yield connection

    @contextmanager
    def write_transaction(self) -> Iterator[Connection]:
        """Begin a transaction whose statements each see all earlier commits."""
        with self._transaction("READ COMMITTED", _STATEMENT_SECONDS) as connection:
            yield connection

    @contextmanager
    def schema_transaction(self) -> Iterator[Connection]:
        """Begin a transaction with this program's advisory lock; a second service waits for the first."""
        with self._transaction("READ COMMITTED", _LONG_SECONDS) as connection:
            connection.execute(text("SELECT set_config('lock_timeout', '0', true)"))
            connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _SCHEMA_LOCK})
            yield connection
            connection.commit()

    def query(self, connection: Connection, sql: str, parameters: Parameters = NO_PARAMETERS) -> Sequence[Row]:
        """Return all rows of a query."""
        return connection.execute(_statement(sql), parameters).all()

    @contextmanager
    def stream(self, connection: Connection, sql: str) -> Iterator[Iterable[Row]]:
        """Begin a query of many rows, which the server sends in parts."""
        options = {"yield_per": _FETCH_ROWS}
        with connection.execute(_statement(sql), execution_options=options) as rows:
            yield rows

    def execute(self, connection: Connection, sql: str, rows: Sequence[Parameters] = (NO_PARAMETERS,)) -> int:
        """Execute a statement for each of `rows`; return the number of rows touched."""
        return connection.execute(_statement(sql), rows if len(rows) > 1 else rows[0]).rowcount

    def commit(self, connection: Connection) -> None:
        """Commit the transaction."""
        connection.commit()

    def tables(self, connection: Connection) -> set[str]:
        """Return the names of the tables of the schema."""
        return set(inspect(connection).get_table_names())

    @contextmanager
    def migration_connection(self, connection: Connection) -> Iterator[Connection]:
        """Return the connection: it is SQLAlchemy's."""
        yield connection

    def lock(self, connection: Connection) -> None:
        """Lock the row of `meta`, which every write changes."""
        connection.execute(text("SELECT 1 FROM meta FOR UPDATE"))

    def history_id(self, connection: Connection) -> str:
        """Return cluster, database, table `meta`, file of the table, and timeline.

        A restore gives the table another oid, or another file if the rows were truncated first. A promotion begins
        another timeline. The timeline is the WAL's, because the control file learns of a promotion later. Any user may
        read the cluster's identifier unless an administrator revoked the right; then the other parts must suffice.
        """
        if not self._history_query:
            self._history_query = _HISTORY.format(system=_SYSTEM if connection.scalar(_MAY_IDENTIFY) else "0")
        row = connection.execute(text(self._history_query)).one_or_none()
        if row is None:
            raise ConfigError(f"{self.name} holds no store: there is no table `meta`")
        if not row[-1]:
            raise Unavailable(f"{self.name} is a standby, which takes no writes")
        return ":".join(map(str, row))

    def announce(self, connection: Connection) -> None:
        """Send a notification at commit."""
        connection.execute(text("SELECT pg_notify(:channel, '')"), {"channel": CHANNEL})

    def map_error(self, error: Exception) -> Exception:
        """Return the error for a SQLSTATE; an error without a SQLSTATE is a failed connection."""
        if isinstance(error, IntegrityError):
            return row_exists()
        if isinstance(error, DataError):
            return unfit_value(self.name, error.orig)
        if not isinstance(error, DBAPIError):  # no connection of the pool came free
            return unusable_now(self.name, error)
        state = getattr(error.orig, "sqlstate", None) or "08"
        message = str(error.orig).strip().replace("\n", ": ")
        if state.startswith(_PASSING_STATES):
            return unusable_now(self.name, message)
        return ConfigError(f"{self.name} holds no usable store: {message}")

    def wait(self, seconds: float, signal: Signal) -> None:
        """Wait for a notification of the server, but for at most a second: a notification can get lost."""
        with self._listener_lock:
            if self._listener is None and not self._closed:
                self._listener = Listener(self._connect, signal)
        signal.wait(min(seconds, 1.0))

    def close(self) -> None:
        """Close idle connections; a connection in use closes at the end of its transaction."""
        with self._listener_lock:
            self._closed = True
            if self._listener is not None:
                self._listener.close()
        self._engine.pool.dispose()

    @contextmanager
    def _transaction(self, isolation: str, seconds: float) -> Iterator[Connection]:
        try:
            with self._begin(isolation, seconds) as connection:
                yield connection
        finally:
            if self._closed:  # this transaction was in use at `close` and has just given its connection back
                self._engine.pool.dispose()

    def _begin(self, isolation: str, seconds: float) -> Connection:
        """Return a connection in a transaction; try a second one if the pool's was closed since its last use."""
        try:
            return self._begin_limited(isolation, seconds)
        except DBAPIError as error:
            # the pool has dropped all its connections by now; do not ask a silent server a second time
            if not error.connection_invalidated or isinstance(error.orig, ServerSilent):
                raise
            return self._begin_limited(isolation, seconds)

    def _begin_limited(self, isolation: str, seconds: float) -> Connection:
        limits = {"statement": f"{seconds}s", "lock": f"{min(seconds, _LOCK_SECONDS)}s", "idle": f"{_IDLE_SECONDS}s"}
        connection = self._engine.connect().execution_options(isolation_level=isolation)
        try:
            link = connection.connection.driver_connection
            assert isinstance(link, _PostgresConnection)
            link.patience = seconds + 1  # the server's limit should come first: then the connection survives
            connection.execute(_LIMITS, limits)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect(self) -> _PostgresConnection:
        return _PostgresConnection.connect(prepare_threshold=None, **self._parameters)


@lru_cache(maxsize=64)
def _statement(sql: str) -> TextClause:
    return text(sql)


def _hosts(parameters: dict[str, Any]) -> str:
    hosts = str(parameters.get("host") or parameters.get("hostaddr") or "").split(",")
    ports = str(parameters.get("port") or "").split(",")
    if len(ports) < len(hosts):
        ports += ports[-1:] * (len(hosts) - len(ports))
    return ",".join(f"{host}:{port}" if port else host for host, port in zip(hosts, ports, strict=False))


class Listener:
    """Thread that notifies the signal for each notification, and after each connect: earlier ones may be lost."""

    def __init__(self, connect: Callable[[], psycopg.Connection[Any]], signal: Signal) -> None:
        self._connect = connect
        self._signal = signal
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pdp-store-listener", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop without waiting; the thread ends within about a second."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                with self._connect() as link:
                    self._listen(link)
            except psycopg.Error:
                self._closed.wait(pauses().postgres_retry)

    def _listen(self, link: psycopg.Connection[Any]) -> None:
        link.autocommit = True
        link.execute(f"LISTEN {CHANNEL}")
        self._signal.notify()
        quiet = 0
        while not self._closed.is_set():
            if any(True for _ in link.notifies(timeout=_LISTEN_SECONDS, stop_after=1)):
                self._signal.notify()
                quiet = 0
            else:
                quiet += 1
            if quiet == _QUIET_ROUNDS:
                link.execute("SELECT 1")
                quiet = 0
