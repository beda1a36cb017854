"""A store in PostgreSQL: what may happen between a service and its server, and to the server."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from psycopg import sql
from support.servers.postgres import find_programs, free_port, fresh_database
from support.servers.proxy import proxied
from support.service.stores import Open, added, content, grant, write

from pdp.errors import ConfigError, Unavailable
from pdp.facts.objects import Change
from pdp.store import postgres as module
from pdp.store.sql import open_store
from pdp.store.store import EpochChanged, LogEntry, Store

CANARY = "canary-9f3b7"


@pytest.fixture
def url(database: str) -> str:
    return database


def execute(url: str, *statements: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = [connection.execute(sql.SQL(statement)) for statement in statements][-1]
        return cursor.fetchall() if cursor.description else []


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2].partition("/")[0])


# --- the way to the server ----------------------------------------------------------------------------------------


@pytest.mark.waits
def test_a_half_open_connection_fails_in_time_and_recovers(url: str) -> None:
    with proxied(port_of(url)) as proxy:
        store = open_store(url.replace(f":{port_of(url)}/", f":{proxy.port}/"))
        write(store, added(1))
        facts = store.load()
        proxy.freeze()
        for _ in range(2):  # the pool's connection, then a new one
            began = time.monotonic()
            with pytest.raises(Unavailable):
                store.since(facts)
            assert time.monotonic() - began < 10
        began = time.monotonic()
        store.wait(0.5)
        assert time.monotonic() - began < 2
        proxy.thaw()
        assert store.since(facts) == []
        assert len(write(store, added(2))) == 1
        store.close()


def test_a_start_without_a_server_is_unavailable() -> None:
    port = free_port()
    with pytest.raises(Unavailable, match=rf"127\.0\.0\.1:{port}/pdp"):
        open_store(f"postgresql://pdp:{CANARY}@127.0.0.1:{port}/pdp")


def messages(error: BaseException | None) -> str:
    """Everything that a log would show of an error."""
    found = ""
    while error is not None:
        found += f"{error!s} {error!r}\n"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return found


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://pdp:{CANARY}@127.0.0.1:1/pdp",
        f"postgresql://pdp:{CANARY}@[::1/pdp",
        f"postgresql://pdp:{CANARY}%zz@127.0.0.1/pdp",
        f"postgresql://pdp@127.0.0.1/pdp?password={CANARY}&nonsense=1",
        f"postgresql://pdp@127.0.0.1:1/pdp?password={CANARY}",
        f"mysql://pdp:{CANARY}@h/d",
        f"postgresql+psycopg://pdp:{CANARY}@h/d",
        "wrong password",
    ],
)
def test_no_message_holds_the_password(postgres_server: str, url: str) -> None:
    if url == "wrong password":
        url = f"postgresql://postgres:{CANARY}@127.0.0.1:{port_of(postgres_server)}/postgres"
    with pytest.raises((ConfigError, Unavailable)) as raised:
        open_store(url)
    assert CANARY not in messages(raised.value)


def test_a_missing_database_is_an_error_that_names_it(postgres_server: str) -> None:
    with pytest.raises(Unavailable, match="no_such_database"):
        open_store(
            postgres_server.replace("/postgres", "/no_such_database").replace("//no_such_database", "//postgres")
        )


def test_a_notification_wakes_at_once(store: Store, another: Open) -> None:
    """Sooner than who hears nothing looks; once of five times will do, as machines are shared."""
    other, soonest = another(), 9.0
    store.wait(5)  # the listener says that it listens
    with ThreadPoolExecutor(1) as pool:
        for number in range(5):
            while timed(store.wait, 0.3) < 0.29:
                pass  # something of the past
            waited = pool.submit(timed, store.wait, 30.0)
            time.sleep(0.1)
            write(other, added(number))
            soonest = min(soonest, waited.result(5))
    assert soonest < 0.6


def timed(call: Callable[[float], None], seconds: float) -> float:
    began = time.monotonic()
    call(seconds)
    return time.monotonic() - began


def test_a_lost_listener_comes_back(store: Store, url: str) -> None:
    store.wait(0.1)
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
    for _ in range(2):
        assert eventually(lambda: execute(url, cut))


def eventually(check: Callable[[], object]) -> bool:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if check():
            return True
        time.sleep(0.05)
    return False


def test_close_ends_the_listening_thread(store: Store) -> None:
    def listening() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name == "pdp-store-listener"]

    before = len(listening())
    store.wait(0.1)
    assert len(listening()) == before + 1
    store.close()
    assert eventually(lambda: len(listening()) <= before)


def test_a_connection_that_is_given_back_during_close_is_closed(url: str) -> None:
    database = module.PostgresDatabase(url)
    sa.event.listen(database._engine, "checkin", lambda *_: database.close())
    with database.read_transaction() as connection:
        connection.execute(sa.text("SELECT 1"))
        link = connection.connection.driver_connection
    assert isinstance(link, psycopg.Connection)
    assert link.closed


# --- locks --------------------------------------------------------------------------------------------------------


def test_a_lock_that_somebody_keeps_makes_writes_unavailable(store: Store, url: str) -> None:
    facts = store.load()
    with psycopg.connect(url) as other:
        other.execute("SELECT 1 FROM meta FOR UPDATE")
        began = time.monotonic()
        with pytest.raises(Unavailable):
            write(store, added(1))
        assert time.monotonic() - began < 8
        assert store.since(facts) == []
    assert write(store, added(1))[0].sequence == 1


def test_a_writer_that_does_nothing_loses_the_lock(another: Open, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_IDLE_SECONDS", 1)
    store, other = another(), another()

    def prepare(log: Sequence[LogEntry]) -> Sequence[Change]:
        time.sleep(2.5)
        return added(1)

    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(store.write, "slow", store.load(), prepare)
        time.sleep(0.5)
        assert write(other, added(2))[0].sequence == 1
        with pytest.raises(Unavailable):
            slow.result(10)
    assert content(other.load()) == content(store.load()) == {grant(2)}


# --- rights -------------------------------------------------------------------------------------------------------


def with_role(server: str, *, owner: bool) -> tuple[str, str]:
    """A new database and the address of an ordinary user of it."""
    url = fresh_database(server)
    name = url.rpartition("/")[2]
    role = f"{name}_user"
    execute(server, f"CREATE ROLE {role} LOGIN PASSWORD 'pw'")
    if owner:
        execute(server, f"ALTER DATABASE {name} OWNER TO {role}")
    return url, f"postgresql://{role}:pw@127.0.0.1:{port_of(server)}/{name}"


def test_the_owner_of_the_database_needs_no_other_right(postgres_server: str) -> None:
    admin, ordinary = with_role(postgres_server, owner=True)
    store = open_store(ordinary)
    write(store, added(1))
    both = open_store(admin)
    assert both.load().epoch == store.load().epoch
    both.close()
    store.close()


def test_a_user_may_be_given_rows_alone(postgres_server: str) -> None:
    admin, ordinary = with_role(postgres_server, owner=False)
    with pytest.raises(ConfigError, match="permission denied"):
        open_store(ordinary)
    open_store(admin).close()
    role = ordinary.partition("//")[2].partition(":")[0]
    execute(admin, f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}")
    store = open_store(ordinary)
    assert write(store, added(1))[0].sequence == 1
    execute(admin, f"REVOKE INSERT ON changes FROM {role}")
    with pytest.raises(ConfigError, match="permission denied"):
        write(store, added(2))
    assert store.load().sequence == 1
    store.close()


def test_a_server_that_hides_its_identity_is_told_by_the_rest(postgres_server: str) -> None:
    admin, ordinary = with_role(postgres_server, owner=True)
    execute(admin, "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
    store = open_store(ordinary)
    write(store, added(1))
    assert store.since(store.load()) == []
    store.close()


# --- restores -----------------------------------------------------------------------------------------------------


def dump(url: str, folder: Path, *options: str) -> Path:
    file = folder / "dump.sql"
    subprocess.run([find_programs() / "pg_dump", *options, "-f", file, url], check=True, timeout=60)
    return file


def psql(url: str, *arguments: str) -> None:
    command = [str(find_programs() / "psql"), "-q", "-v", "ON_ERROR_STOP=1", *arguments, url]
    subprocess.run(command, check=True, timeout=60, stdout=subprocess.DEVNULL)


@pytest.mark.process
@pytest.mark.parametrize("emptied", ["anew", "truncated", "deleted"])
@pytest.mark.parametrize("more", [0, 2, 5])
def test_a_restored_dump_is_another_history(
    store: Store, another: Open, url: str, tmp_path: Path, emptied: str, more: int
) -> None:
    write(store, added(1))
    file = dump(url, tmp_path, *(("--clean",) if emptied == "anew" else ("--data-only",)))
    write(store, added(2))
    write(store, added(3))
    facts = store.load()
    tables = ("meta", "objects", "grants", "changes", "pdp_version")
    if emptied == "truncated":
        execute(url, f"TRUNCATE {', '.join(tables)}")
    elif emptied == "deleted":
        execute(url, *(f"DELETE FROM {table}" for table in tables))
    psql(url, "-f", str(file))
    other = another()
    for number in range(more):
        write(other, added(100 + number))
    with pytest.raises(EpochChanged):
        store.since(facts)
    anew = store.load()
    assert anew.epoch != facts.epoch
    assert len(content(anew)) == 1 + more
    assert store.since(anew) == []
    assert other.load().epoch == anew.epoch
