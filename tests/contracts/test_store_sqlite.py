"""A store in a file: what may happen to files."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.paths import ROOT
from support.service.pauses import documented_pauses
from support.service.stores import Open, added, content, followed, write

from pdp.errors import ConfigError, Unavailable
from pdp.facts.objects import Change, Object, ObjectPut
from pdp.store.sql import SqlStore, open_store
from pdp.store.sqlite import SqliteConnection, SqliteDatabase
from pdp.store.store import EpochChanged, LogEntry, Store


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "pdp.db"


@pytest.fixture
def url(file: Path) -> str:
    return f"sqlite:///{file}"


# --- backups and restores -----------------------------------------------------------------------------------------


def copied(backup: Path, file: Path) -> None:
    shutil.copyfile(backup, file)


def moved(backup: Path, file: Path) -> None:
    backup.rename(file)


restored = pytest.mark.parametrize("restore", [copied, moved])


@restored
@pytest.mark.parametrize("more", [0, 1, 2, 3, 9])
def test_a_restored_backup_is_another_history(
    store: Store, another: Open, file: Path, tmp_path: Path, restore: Callable[[Path, Path], None], more: int
) -> None:
    """Also when it has grown as far as the old one had, or further, before the running service looks."""
    write(store, added(1))
    backup = tmp_path / "backup.db"
    shutil.copyfile(file, backup)
    write(store, added(2))
    write(store, added(3))
    facts = store.load()
    restore(backup, file)
    other = another()
    for number in range(more):
        write(other, added(100 + number))
    with pytest.raises(EpochChanged):
        store.since(facts)
    anew = store.load()
    assert anew.epoch != facts.epoch
    assert content(anew) == content(other.load())
    assert len(content(anew)) == 1 + more
    with pytest.raises(EpochChanged):
        store.since(facts)
    assert store.since(anew) == []
    (revision,) = write(store, added(50))
    assert list(store.since(anew)) == [revision]


@restored
def test_a_write_on_facts_from_before_a_restore_is_refused(
    store: Store, file: Path, tmp_path: Path, restore: Callable[[Path, Path], None]
) -> None:
    backup = tmp_path / "backup.db"
    shutil.copyfile(file, backup)
    write(store, added(1))
    facts = store.load()
    restore(backup, file)
    with pytest.raises(EpochChanged):
        store.write("me", facts, lambda log: pytest.fail("asked to decide on facts that are no more"))
    assert content(store.load()) == set()
    assert store.load().epoch != facts.epoch


def test_facts_from_before_a_restore_are_refused_by_a_second_service_too(
    store: Store, another: Open, file: Path, tmp_path: Path
) -> None:
    """The one that was not told renews the epoch only if nobody has: both end with the same one."""
    other = another()
    backup = tmp_path / "backup.db"
    write(store, added(1))
    shutil.copyfile(file, backup)
    write(store, added(2))
    mine, theirs = store.load(), other.load()
    shutil.copyfile(backup, file)
    for one, facts in ((store, mine), (other, theirs)):
        with pytest.raises(EpochChanged):
            one.since(facts)
    assert store.load().epoch == other.load().epoch != mine.epoch


def test_at_rest_the_file_is_whole(store: Store, file: Path, tmp_path: Path) -> None:
    write(store, added(1))
    store.since(store.load())
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def test_sqlites_own_backup_of_a_running_store_is_a_store(store: Store, file: Path, tmp_path: Path) -> None:
    write(store, added(1))
    with sqlite3.connect(file) as source, sqlite3.connect(tmp_path / "copy.db") as target:
        source.backup(target)
    source.close()
    target.close()
    copy = open_store(f"sqlite:///{tmp_path / 'copy.db'}")
    assert content(copy.load()) == content(store.load())
    copy.close()


def test_a_file_that_is_gone_is_unavailable_until_it_is_back(store: Store, file: Path, tmp_path: Path) -> None:
    write(store, added(1))
    facts = store.load()
    file.rename(tmp_path / "away.db")
    for call in (store.load, lambda: store.since(facts), lambda: write(store, added(2))):
        with pytest.raises(Unavailable, match=r"pdp\.db"):
            call()
    assert not file.exists()
    (tmp_path / "away.db").rename(file)
    assert store.since(facts) == []


@pytest.mark.parametrize("moment", ["before a row is written", "before the commit"])
def test_what_is_written_to_a_file_that_was_replaced_is_not_reported_as_written(
    file: Path, tmp_path: Path, moment: str
) -> None:
    class Replaced(SqliteDatabase):
        def announce(self, connection: SqliteConnection) -> None:
            if moment == "before the commit":
                moved(tmp_path / "backup.db", file)

    def prepare(log: Sequence[LogEntry]) -> Sequence[Change]:
        if moment == "before a row is written":
            moved(tmp_path / "backup.db", file)
        return added(1)

    store = SqlStore(Replaced(str(file)))
    facts = store.load()
    shutil.copyfile(file, tmp_path / "backup.db")
    with pytest.raises(Unavailable, match=r"pdp\.db"):
        store.write("me", facts, prepare)
    store.close()


# --- what is no store ---------------------------------------------------------------------------------------------


def test_a_text_file_is_refused_and_left_alone(file: Path, url: str) -> None:
    text = "rules: {}\n" * 200
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"pdp\.db.*not a database"):
        open_store(url)
    assert file.read_text() == text


def test_a_directory_is_refused(file: Path, url: str) -> None:
    file.mkdir()
    with pytest.raises(ConfigError, match=r"pdp\.db.*directory"):
        open_store(url)


@pytest.mark.parametrize("folder", ["missing", "/proc", "/dev/null"])
def test_a_folder_that_takes_no_file_is_refused(tmp_path: Path, folder: str) -> None:
    path = tmp_path / folder / "pdp.db"
    with pytest.raises(ConfigError, match=str(path)):
        open_store(f"sqlite:///{path}")


@contextmanager
def without_rights(folder: Path) -> Iterator[None]:
    """As somebody who may only read in the folder: root may write anywhere."""
    was = os.geteuid()
    for path in (folder, *folder.parents[:3]):
        path.chmod(path.stat().st_mode | 0o011)
    folder.chmod(0o555)
    os.seteuid(65534 if was == 0 else was)
    try:
        yield
    finally:
        os.seteuid(was)
        folder.chmod(0o755)


def test_a_read_only_folder_is_refused(file: Path, url: str) -> None:
    with without_rights(file.parent), pytest.raises(ConfigError, match=r"pdp\.db"):
        open_store(url)


def test_a_file_that_may_only_be_read_is_refused(file: Path, url: str) -> None:
    open_store(url).close()
    file.chmod(0o444)
    with without_rights(file.parent), pytest.raises(ConfigError, match=r"pdp\.db"):
        open_store(url)


def test_a_file_of_another_program_is_refused_and_left_alone(file: Path, url: str) -> None:
    with sqlite3.connect(file) as theirs:
        theirs.execute("CREATE TABLE invoices (id)")
    theirs.close()
    with pytest.raises(ConfigError, match=r"pdp\.db.*another program.*`invoices`"):
        open_store(url)
    with sqlite3.connect(file) as theirs:
        assert theirs.execute("SELECT name FROM sqlite_master").fetchall() == [("invoices",)]
    theirs.close()


def test_an_empty_file_becomes_a_store(file: Path, url: str) -> None:
    file.touch()
    store = open_store(url)
    assert store.load().sequence == 0
    store.close()


def big_file(url: str) -> None:
    store = open_store(url)
    write(store, [*added(*range(500)), *(ObjectPut(Object(("project", (f"p{n}",)))) for n in range(500))])
    store.close()


def header(data: bytearray) -> None:
    data[:16] = b"no SQLite format"


def page_size(data: bytearray) -> None:
    data[16:18] = b"\x00\x07"


def pages(data: bytearray) -> None:
    for start in range(4096, len(data), 4096):
        data[start : start + 8] = b"\xff" * 8


def truncated(data: bytearray) -> None:
    del data[len(data) // 2 :]


@pytest.mark.parametrize("damage", [header, page_size, pages, truncated])
def test_a_damaged_file_is_refused_at_the_start(file: Path, url: str, damage: Callable[[bytearray], None]) -> None:
    big_file(url)
    data = bytearray(file.read_bytes())
    damage(data)
    file.write_bytes(data)
    with pytest.raises(ConfigError, match=r"pdp\.db"):
        open_store(url)


@pytest.mark.parametrize("damage", [header, page_size, pages, truncated])
def test_a_file_that_is_damaged_under_a_running_store_is_an_error(
    store: Store, file: Path, url: str, damage: Callable[[bytearray], None]
) -> None:
    write(store, [*added(*range(500)), *(ObjectPut(Object(("project", (f"p{n}",)))) for n in range(500))])
    data = bytearray(file.read_bytes())
    damage(data)
    file.write_bytes(data)
    with pytest.raises(ConfigError, match=r"pdp\.db"):
        store.load()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE grants SET privilege = 'fly'",
        "UPDATE changes SET changes = '[{}]'",
        "DELETE FROM meta",
        "DROP TABLE grants",
    ],
)
def test_rows_that_make_no_sense_are_an_error(store: Store, file: Path, statement: str) -> None:
    facts = store.load()
    write(store, added(1))
    with sqlite3.connect(file) as vandal:
        vandal.execute(statement)
    vandal.close()
    with pytest.raises(ConfigError, match=r"pdp\.db"):
        followed(store.load(), store.since(facts))


# --- locks --------------------------------------------------------------------------------------------------------


def test_a_file_that_stays_locked_is_unavailable(store: Store, file: Path) -> None:
    facts = store.load()
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with documented_pauses(sqlite_busy=0.5), pytest.raises(Unavailable, match=r"pdp\.db.*locked"):
        write(store, added(1))
    assert store.since(facts) == []
    other.close()
    assert write(store, added(1))[0].sequence == 1


def test_a_writer_of_this_process_that_does_not_end_makes_others_unavailable(store: Store) -> None:
    inside, leave = threading.Event(), threading.Event()

    def prepare(log: Sequence[LogEntry]) -> Sequence[Change]:
        inside.set()
        leave.wait(30)
        return ()

    with ThreadPoolExecutor(1) as pool:
        stuck = pool.submit(store.write, "stuck", store.load(), prepare)
        inside.wait(10)
        with documented_pauses(write_lock=0.5), pytest.raises(Unavailable):
            write(store, added(1))
        leave.set()
        stuck.result(10)


@pytest.mark.process
def test_opening_a_store_that_is_up_to_date_loads_neither_alembic_nor_the_other_driver(url: str) -> None:
    open_store(url).close()
    script = (
        "import sys; from pdp.store.sql import open_store; open_store(sys.argv[1]).load();"
        "sys.exit(any(name in sys.modules for name in ('alembic', 'psycopg', 'mako', 'sqlalchemy')))"
    )
    root = ROOT
    done = subprocess.run([sys.executable, "-c", script, url], env=os.environ | {"PYTHONPATH": str(root)}, check=False)
    assert done.returncode == 0


@pytest.mark.long
@pytest.mark.process
def test_services_that_create_one_file_at_once_all_get_it(tmp_path: Path) -> None:
    """Of a hundred such starts, one failed when SQLite alone waited: two that switch a file to a log do not wait."""
    script = textwrap.dedent("""
        import multiprocessing, sys
        from pdp.store.sqlite import SqliteDatabase

        def start(path, together):
            together.wait()
            SqliteDatabase(path)

        forks = multiprocessing.get_context("fork")
        for number in range(300):
            together = forks.Barrier(4)
            path = f"{sys.argv[1]}/{number}.db"
            services = [forks.Process(target=start, args=(path, together)) for _ in range(4)]
            [service.start() for service in services]
            [service.join() for service in services]
            assert not any(service.exitcode for service in services), number
    """)
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False
    )
    assert done.returncode == 0
