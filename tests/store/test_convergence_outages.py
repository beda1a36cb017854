"""Services whose database goes: at their start, later, in silence, for good; and comes back, or comes back as another."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from support.oracles.converging import (
    BY_RULE,
    Service,
    Services,
    assert_log_is_the_state,
    configure,
    grant,
    reading,
    services,
    until,
)
from support.servers.postgres import Cluster, cluster, free_port, fresh_database
from support.servers.proxy import proxied
from support.service.commands import run_pdp
from support.service.serving import FREE_PORTS

pytestmark = [pytest.mark.process, pytest.mark.waits]

SECRET = "canary-in-the-password"
AS_ROLE = {**reading(1), "actingRole": "role:etl"}


@pytest.fixture
def primary(postgres_server: str, tmp_path: Path) -> Iterator[Cluster]:
    """A server of this test's own; `postgres_server` decides whether there is any."""
    with cluster(tmp_path) as running:
        yield running


def stop(service: Service) -> float:
    """How long a stop takes; it leaves no traceback and not the password."""
    began = time.monotonic()
    assert service.process.terminate() == 0
    said = service.process.stderr()
    assert "Traceback" not in said
    assert SECRET not in said
    return time.monotonic() - began


# --- at the start -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://pdp:SECRET@127.0.0.1:PORT/pdp",
        "postgresql://pdp:SECRET@127.0.0.1:PORT,127.0.0.1:PORT/pdp?target_session_attrs=read-write",
        "postgresql://pdp:SECRET@/pdp?host=%zz",
        "sqlite:////no/such/folder/pdp.db",
    ],
)
def test_a_start_without_a_database_ends_in_one_line(tmp_path: Path, url: str) -> None:
    folder = tmp_path / "service"
    configure(folder, url.replace("SECRET", SECRET).replace("PORT", str(free_port())))
    assert_fails_in_one_line(folder)


def test_a_start_with_a_wrong_password_ends_in_one_line(postgres_server: str, tmp_path: Path) -> None:
    folder = tmp_path / "service"
    configure(folder, f"postgresql://postgres:{SECRET}@{postgres_server.partition('@')[2]}")
    assert_fails_in_one_line(folder)


def assert_fails_in_one_line(folder: Path) -> None:
    free = [part for name, value in FREE_PORTS.items() for part in ("--set", f"server.{name}={value}")]
    ended = run_pdp("serve", *free, cwd=folder)
    assert (ended.returncode, ended.stdout) == (2, ""), ended.stderr
    assert ended.stderr.startswith("pdp: ")
    assert ended.stderr.count("\n") == 1, ended.stderr
    assert SECRET not in ended.stderr


# --- later --------------------------------------------------------------------------------------------------------


def prepare(service: Service) -> str:
    """A grant and a role; the revision."""
    member = {"principal": "user:oidc~u1", "privilege": "assignee", "object": "role:etl"}
    rights = {"principal": "role:etl", "privilege": "select", "object": "table:lake/sales/t1"}
    status, answer = service.post("/v1/grants", {"add": [grant(1), member, rights]})
    assert status == 200, answer
    revision: str = answer["revision"]
    return revision


def decisions(service: Service) -> list[tuple[bool, str]]:
    """By a grant, by a grant to a role, by a rule, and one that nothing permits."""
    status, answer = service.check(reading(1), AS_ROLE, BY_RULE, reading(2))
    assert status == 200, answer
    return [(decision["allowed"], decision["by"][0]) for decision in answer["decisions"]]


FRESH = [
    (True, "grants:select on table:lake/sales/t1 via user:oidc~u1"),
    (True, "grants:select on table:lake/sales/t1 via role:etl"),
    (True, "cel:readers"),
    (False, "default_deny"),
]
STALE = [(False, "store_stale"), (False, "store_stale"), (True, "cel:readers"), (False, "default_deny")]


def assert_nothing_is_written_or_seen(service: Service) -> None:
    for path, body in (
        ("/v1/grants", {"add": [grant(n) for n in range(10, 20)]}),
        ("/v1/objects", {"put": ["project:p9", {"object": "warehouse:w9", "parent": "project:p9"}]}),
        ("/v1/check", {"checks": [reading(1)], "consistency": "full"}),
    ):
        status, answer = service.post(path, body)
        assert (status, answer["error"]["code"]) == (503, "unavailable"), answer


def assert_recovers(service: Service, revision: str, url: str) -> None:
    until(lambda: service.ready()[0] == 200)
    assert decisions(service) == FRESH
    assert service.check(reading(1), consistency={"atLeast": revision})[0] == 200
    assert service.revision() == (revision.partition(".")[0], 1)
    service.write(add=(3,))
    assert service.allowed(range(30)) == {1, 3}
    assert assert_log_is_the_state(url) == 2


@pytest.mark.long
def test_a_database_that_is_gone_and_comes_back(primary: Cluster, tmp_path: Path) -> None:
    with services(tmp_path, primary.url) as running:
        service, patient = running.start(max_staleness_seconds=3), running.start()
        revision = prepare(service)
        until(lambda: decisions(patient) == FRESH)
        primary.kill()
        assert_nothing_is_written_or_seen(service)
        until(lambda: decisions(service) == STALE)
        assert decisions(patient) == FRESH
        until(lambda: service.ready()[0] == 503 and patient.ready()[0] == 503)
        (reason,) = patient.ready()[1]["reasons"]
        assert reason.startswith("the store has not answered for 1")
        assert reason.endswith(" seconds")
        assert decisions(patient) == FRESH
        assert_nothing_is_written_or_seen(patient)
        primary.start()
        assert_recovers(service, revision, primary.url)
        until(lambda: patient.ready()[0] == 200)
        assert patient.allowed(range(30)) == {1, 3}
        for each in (service, patient):
            assert stop(each) < 10
            assert "store answers again" in each.process.stderr()


@pytest.mark.long
def test_a_database_that_dies_under_writers_loses_nothing_acknowledged_and_keeps_no_half(
    primary: Cluster, tmp_path: Path
) -> None:
    with services(tmp_path, primary.url) as running:
        both = running.start(), running.start()
        stop_writing = threading.Event()

        def write(writer: int) -> dict[int, int]:
            """First grant of each ten -> status."""
            found = {}
            with both[writer % 2].again() as service:
                for first in range(writer * 2000, (writer + 1) * 2000, 10):
                    if stop_writing.is_set():
                        break
                    wishes = {"add": [grant(n) for n in range(first, first + 10)]}
                    found[first] = service.post("/v1/grants", wishes)[0]
            return found

        with ThreadPoolExecutor(4) as pool:
            writers = [pool.submit(write, writer) for writer in range(4)]
            for _ in range(2):
                time.sleep(1)
                primary.kill()
                primary.start()
            until(lambda: both[0].ready()[0] == both[1].ready()[0] == 200)
            time.sleep(1)
            stop_writing.set()
            answered = {first: status for future in writers for first, status in future.result(60).items()}
        assert set(answered.values()) <= {200, 503}
        for first, status in answered.items():
            tens = [service.allowed(range(first, first + 10)) for service in both]
            assert tens[0] == tens[1]
            assert len(tens[0]) in ((10,) if status == 200 else (0, 10))
        assert list(answered.values()).count(200) > 0
        assert_log_is_the_state(running.url)


@pytest.mark.long
def test_a_connection_that_falls_silent_counts_as_gone(primary: Cluster, tmp_path: Path) -> None:
    with proxied(primary.port) as proxy, services(tmp_path, primary.url) as running:
        url = primary.url.replace(f":{primary.port}/", f":{proxy.port}/")
        service, other = running.start(url, max_staleness_seconds=3), running.start(url)
        revision = prepare(service)
        until(lambda: decisions(other) == FRESH)
        proxy.freeze()
        with ThreadPoolExecutor(1) as pool, service.again() as asking:
            nothing = pool.submit(assert_nothing_is_written_or_seen, asking)
            until(lambda: decisions(service) == STALE)
            nothing.result(60)
        assert stop(other) < 10  # while its threads wait for an answer that does not come
        proxy.thaw()
        assert_recovers(service, revision, primary.url)


# --- another history ----------------------------------------------------------------------------------------------


def ask(running: Cluster, statement: str) -> object:
    with psycopg.connect(running.url, autocommit=True) as connection:
        row = connection.execute(statement).fetchone()
        return row[0] if row else None


def let_lag(primary: Cluster, replica: Cluster) -> None:
    """The replica has all that is there by now, and gets no more."""
    arrived = ask(primary, "SELECT pg_current_wal_flush_lsn()::text")
    until(lambda: ask(replica, f"SELECT pg_last_wal_replay_lsn() >= '{arrived}'") is True)
    # what a replica has received it replays before it is promoted: to lag, it must not receive
    with psycopg.connect(replica.url, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET primary_conninfo = ''")
        connection.execute("SELECT pg_reload_conf()")
    until(lambda: ask(replica, "SELECT count(*) FROM pg_stat_wal_receiver") == 0)


@pytest.mark.long
def test_a_lagging_replica_is_promoted_under_running_services(primary: Cluster, tmp_path: Path) -> None:
    replica = primary.replica()
    try:
        hosts = f"127.0.0.1:{primary.port},127.0.0.1:{replica.port}"
        url = f"postgresql://postgres:{primary.password}@{hosts}/postgres?target_session_attrs=read-write"
        with services(tmp_path, url) as running:
            fail_over(running, primary, replica)
    finally:
        replica.kill()


def fail_over(running: Services, primary: Cluster, replica: Cluster) -> None:
    one, other = running.start(), running.start()
    one.write(add=(1, 2))
    let_lag(primary, replica)
    one.write(add=(3,))
    lost = one.write(remove=(2,))
    assert other.allowed(range(5)) == {1, 3}
    primary.kill()
    assert other.allows(3)  # nobody knows yet that this was lost
    assert one.check(reading(1), consistency="full")[0] == 503
    ask(replica, "SELECT pg_promote(true, 30)")
    epoch = lost.partition(".")[0]
    for service in (one, other):
        until(lambda asked=service: asked.revision()[0] != epoch)  # type: ignore[misc]
        assert service.check(reading(1), consistency={"atLeast": lost})[0] == 503
        assert service.allowed(range(5), "minimize_latency") == {1, 2}
    assert one.revision() == other.revision()
    for number in range(10, 14):  # the new history grows past the old one
        revision = one.write(add=(number,))
    assert other.allows(13, {"atLeast": revision})
    assert other.allowed(range(20), "minimize_latency") == {1, 2, 10, 11, 12, 13}
    assert other.check(reading(1), consistency={"atLeast": lost})[0] == 503
    assert assert_log_is_the_state(running.url) == 5


@pytest.mark.parametrize("how", ["mv", "cp"])
def test_a_file_that_is_replaced_by_a_backup_is_another_history(tmp_path: Path, how: str) -> None:
    file, backup = tmp_path / "pdp.db", tmp_path / "backup.db"
    with services(tmp_path, f"sqlite:///{file}") as running:
        one, other = running.start(), running.start()
        one.write(add=(1, 2))
        until(lambda: other.allows(2))
        until(lambda: not Path(f"{file}-wal").exists())
        shutil.copy(file, backup)
        one.write(add=(3,))
        lost = one.write(remove=(2,))
        until(lambda: other.allows(3))
        if how == "mv":
            backup.replace(file)
        else:
            shutil.copy(backup, file)
        epoch = lost.partition(".")[0]
        for service in (one, other):
            until(lambda asked=service: asked.revision()[0] != epoch)  # type: ignore[misc]
            assert service.check(reading(1), consistency={"atLeast": lost})[0] == 503
            assert service.allowed(range(5), "minimize_latency") == {1, 2}
        assert one.revision() == other.revision()
        revision = other.write(add=(4,))
        assert one.allowed(range(5), {"atLeast": revision}) == {1, 2, 4}
        assert assert_log_is_the_state(running.url) == 2
        assert max(stop(one), stop(other)) < 10


# --- stop ---------------------------------------------------------------------------------------------------------


def test_a_stop_while_others_write_and_wait(postgres_server: str, tmp_path: Path) -> None:
    """Who waits for a revision when the service stops gets an answer, or at least an end."""
    with services(tmp_path, fresh_database(postgres_server)) as running:
        service, other = running.start(wait_seconds=60), running.start()
        epoch, sequence = service.revision()
        future = {"atLeast": f"{epoch}.{sequence + 10_000}"}
        with ThreadPoolExecutor(2) as pool, service.again() as waiting, other.again() as writer:
            asked = pool.submit(waiting.check, reading(1), consistency=future)
            written = pool.submit(lambda: [writer.write(add=(n,)) for n in range(30)])
            time.sleep(0.3)
            assert stop(service) < 12
            written.result(60)
            error = asked.exception(60)
            assert error is not None or asked.result()[0] == 503
        assert stop(other) < 10
        assert json.loads(other.process.stderr().splitlines()[-1])["event"] == "stopped"
