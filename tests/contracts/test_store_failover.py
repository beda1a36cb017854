"""A store whose PostgreSQL server ends: stopped, crashed, or replaced by a replica that lagged behind."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psycopg
import pytest
from support.servers.postgres import Cluster, cluster
from support.service.stores import added, content, write

from pdp.errors import Unavailable
from pdp.facts.objects import Change
from pdp.store.sql import open_store
from pdp.store.store import EpochChanged, LogEntry

pytestmark = pytest.mark.waits


@pytest.fixture
def primary(postgres_server: str, tmp_path: Path) -> Iterator[Cluster]:
    """A server of this test's own; `postgres_server` decides whether there is any."""
    with cluster(tmp_path) as running:
        yield running


@pytest.fixture
def replica(primary: Cluster) -> Iterator[Cluster]:
    copy = primary.replica()
    yield copy
    copy.kill()


def ask(server: Cluster, statement: str) -> object:
    with psycopg.connect(server.url, autocommit=True) as connection:
        return connection.execute(statement).fetchone()


@pytest.mark.long
@pytest.mark.process
@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_a_server_that_comes_back_goes_on(primary: Cluster, ending: str) -> None:
    store = open_store(primary.url)
    write(store, added(1))
    facts = store.load()
    getattr(primary, ending)()
    for call in (lambda: store.since(facts), store.load, lambda: store.write("me", facts, lambda log: added(2))):
        with pytest.raises(Unavailable):
            call()
    began = time.monotonic()
    store.wait(0.3)
    assert time.monotonic() - began < 2
    primary.start()
    assert store.since(facts) == []
    assert store.load().epoch == facts.epoch
    (revision,) = write(store, added(2))
    assert list(store.since(facts)) == [revision]
    store.close()


@pytest.mark.process
def test_a_server_that_ends_during_a_write_has_written_nothing(primary: Cluster) -> None:
    store = open_store(primary.url)
    write(store, added(1))
    facts = store.load()

    def prepare(log: Sequence[LogEntry]) -> Sequence[Change]:
        primary.kill()
        return added(2, 3)

    with pytest.raises(Unavailable):
        store.write("me", facts, prepare)
    primary.start()
    assert store.since(facts) == []
    assert content(store.load()) == content(facts)
    store.close()


@pytest.mark.long
def test_a_lagging_replica_that_is_promoted_is_another_history(primary: Cluster, replica: Cluster) -> None:
    hosts = f"127.0.0.1:{primary.port},127.0.0.1:{replica.port}"
    url = f"postgresql://postgres:{primary.password}@{hosts}/postgres?target_session_attrs=read-write"
    store = open_store(url)
    write(store, added(1))
    arrived = ask(primary, "SELECT pg_current_wal_flush_lsn()::text")
    for _ in range(200):
        if ask(replica, f"SELECT pg_last_wal_replay_lsn() >= '{arrived[0]}'") == (True,):  # type: ignore[index]
            break
        time.sleep(0.05)
    # what a replica has received it replays before it is promoted: to lag, it must not receive
    with psycopg.connect(replica.url, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET primary_conninfo = ''")
        connection.execute("SELECT pg_reload_conf()")
        while connection.execute("SELECT 1 FROM pg_stat_wal_receiver").fetchone():
            time.sleep(0.05)
    write(store, added(2))
    write(store, added(3))
    facts = store.load()
    primary.kill()
    with pytest.raises(Unavailable):
        store.since(facts)
    ask(replica, "SELECT pg_promote(true, 30)")
    with pytest.raises(EpochChanged):
        store.since(facts)
    other = open_store(url)
    promoted = other.load()
    assert (promoted.sequence, len(content(promoted))) == (1, 1)
    assert promoted.epoch != facts.epoch
    for number in range(10, 15):
        write(other, added(number))
    with pytest.raises(EpochChanged):
        store.since(facts)
    with pytest.raises(EpochChanged):
        store.write("me", facts, lambda log: added(99))
    anew = store.load()
    assert (anew.epoch, anew.sequence) == (promoted.epoch, 6)
    # the checkpoint after a promotion tells the control file of the new timeline: that is no new history
    with psycopg.connect(replica.url, autocommit=True) as connection:
        connection.execute("CHECKPOINT")
    assert store.since(anew) == []
    store.close()
    other.close()


@pytest.mark.long
def test_a_standby_is_no_store(primary: Cluster, replica: Cluster) -> None:
    open_store(primary.url).close()
    while ask(replica, "SELECT to_regclass('meta')::text") != ("meta",):
        time.sleep(0.05)
    with pytest.raises(Unavailable):
        open_store(replica.url)
    standby = open_store(f"{replica.url}?target_session_attrs=any")
    with pytest.raises(Unavailable, match="standby"):
        standby.load()
    standby.close()
