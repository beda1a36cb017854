"""Histories that a restore has lost while nobody ran: the same epoch and numbers then name other facts.

A copy that is written over an SQLite file, or rows that are written back in PostgreSQL, keep the epoch. Only the random
token of each revision tells the two histories apart: for services that start later, for caches that outlive them, and
for clients that hold a revision.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import sqlalchemy
from support.generators.generated_pdps import batch, make_pdp
from support.service.caches import with_cache
from support.service.stores import added, content, write

from pdp.audit.facts.history import FactsHistory
from pdp.audit.facts.writer import FactWriter
from pdp.decision.cache.local import InProcessCache
from pdp.decision.service import Pdp
from pdp.errors import MissingFacts, Unavailable
from pdp.facts.objects import Grant, GrantAdded
from pdp.facts.snapshot import Facts
from pdp.model.revision import Revision
from pdp.store.replica import Replica
from pdp.store.schema import TABLES
from pdp.store.sql import open_store
from pdp.store.store import EpochChanged, Store
from pdp.store.writer import Writer

Restore = Callable[[], None]
LOST, LATER = (1, 3), (0, 1, 3)
"""Revisions that are lost by a restore, and those written after it."""


def backup_of(url: str) -> Restore:
    """Copy the database; return a function that puts the copy back and keeps the id of the history."""
    return _file_backup(Path(url.removeprefix("sqlite:///"))) if url.startswith("sqlite") else _row_backup(url)


def _file_backup(file: Path) -> Restore:
    copy = file.with_suffix(".backup")
    shutil.copyfile(file, copy)
    return lambda: _copy(copy, file)


def _copy(copy: Path, file: Path) -> None:
    shutil.copyfile(copy, file)


def _row_backup(url: str) -> Restore:
    engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    meta = sqlalchemy.MetaData()
    with engine.begin() as connection:
        meta.reflect(connection, only=list(TABLES))
        rows = {table: connection.execute(table.select()).mappings().all() for table in meta.sorted_tables}

    def restore() -> None:
        with engine.begin() as connection:
            for table, found in rows.items():
                connection.execute(table.delete())
                if found:
                    connection.execute(table.insert(), [dict(row) for row in found])
        engine.dispose()

    engine.dispose()
    return restore


@contextmanager
def opened(url: str) -> Iterator[Store]:
    with closing(open_store(url)) as store:
        yield store


def write_each(url: str, *numbers: int) -> list[Facts]:
    """Write one revision for each number, by a process of its own; return the facts of each."""
    found = []
    for number in numbers:
        with opened(url) as store:
            write(store, added(number))
            found.append(store.load())
    return found


@contextmanager
def replica(store: Store) -> Iterator[Replica]:
    made = Replica(store, {}, 300, 0.2)
    try:
        yield made
    finally:
        made.close()


async def is_served(made: Replica, revision: Revision) -> bool:
    # a later revision may never come; for all others only a slow machine needs patience
    made._wait_seconds = 0.05 if revision.sequence > made.facts.sequence else 20
    try:
        await made.at_least(Revision.parse(f"{revision}.{'0' * 16}"))
    except Unavailable as error:
        cause = str(error)
    else:
        return True
    assert any(word in cause for word in ("history that the store has lost", "waited", "epoch"))
    return False


@pytest.mark.parametrize("lost", LOST)
@pytest.mark.parametrize("later", LATER)
async def test_a_service_that_starts_later_takes_no_lost_revision_for_its_own(url: str, lost: int, later: int) -> None:
    shared = write_each(url, 1, 2)
    restore = backup_of(url)
    gone = write_each(url, *range(10, 10 + lost))
    restore()
    new = write_each(url, *range(20, 20 + later))
    with opened(url) as store, replica(store) as made:
        assert made.facts.epoch == shared[0].epoch, "nothing of the database tells"
        for facts in (*shared, *new):
            assert await is_served(made, facts.revision())
            assert await is_served(made, facts.revision()), "from memory"
        for facts in gone:
            assert not await is_served(made, facts.revision())
            assert not await is_served(made, facts.revision())
            older = facts.revision()._replace(token="")
            assert await is_served(made, older) == (older.sequence <= made.facts.sequence)
        names = [str(facts.revision()) for facts in (*shared, *gone, *new)]
        assert len(set(names)) == len(names)


@pytest.mark.parametrize("later", LATER)
async def test_a_running_service_notices(url: str, later: int) -> None:
    shared = write_each(url, 1, 2)
    with opened(url) as store, replica(store) as made, opened(url) as late, replica(late) as behind:
        restore = backup_of(url)
        gone = write_each(url, 10, 11, 12)
        await made.catch_up()
        restore()
        new = write_each(url, *range(20, 20 + later))
        for facts in (*gone[1:], *new):  # the other service knows nothing that is lost, and the new facts are its own
            if facts.sequence > 2:
                assert await is_served(behind, facts.revision()) == (facts in new)
        await made.catch_up()
        assert made.facts.epoch != shared[0].epoch
        assert content(made.facts) == content((shared + new)[-1])
        for facts in (*shared, *gone, *new):
            assert not await is_served(made, facts.revision())


@pytest.mark.parametrize("later", [1, 2])
async def test_a_demand_never_mixes_facts_of_one_history_with_a_token_of_the_other(url: str, later: int) -> None:
    """The service has not looked since the restore. Tokens that it reads now must be of the history of its facts."""
    write_each(url, 1, 2)
    restore = backup_of(url)
    write_each(url, 10, 11, 12)
    with opened(url) as store, replica(store) as made:
        lost = content(made.facts)
        restore()
        for facts in write_each(url, *range(20, 20 + later)):
            assert not await is_served(made, facts.revision())
        assert content(made.facts) != lost, "the look has shown the other history"


def test_snapshots_and_writers_of_a_lost_history_are_refused(url: str) -> None:
    write_each(url, 1)
    restore = backup_of(url)
    (gone,) = write_each(url, 10)
    restore()
    write_each(url, 20, 21)
    with opened(url) as store:
        with pytest.raises(EpochChanged):
            store.since(gone)
        assert store.load().epoch != gone.epoch, "every service loads again"
    with opened(url) as store, pytest.raises(EpochChanged):
        store.token_of(gone, 1)
    with opened(url) as store, pytest.raises(EpochChanged):
        Writer(store, gone, "me").write(lambda facts: added(30))


def test_a_writer_goes_on_from_its_own_revisions(url: str) -> None:
    with opened(url) as store:
        writer = Writer(store, store.load(), "me")
        for number in range(3):
            writer.write(lambda facts, number=number: added(number))  # type: ignore[misc]
            assert writer.revision == str(store.load().revision())
        assert writer.facts.revision() == store.load().revision()


# --- caches -------------------------------------------------------------------------------------------------------

CHECK = {"principal": "user:oidc~alice", "action": "read_data", "resource": "table:lake/sales/t10"}


class Follower:
    """Service with a cache that outlives it, as Redis does, on the facts of one start."""

    def __init__(self, cache: InProcessCache, facts: Facts) -> None:
        self.pdp: Pdp = with_cache(make_pdp({"authorities": {"default": {"engines": ["grants"]}}}, {}), cache)
        self.pdp.source.facts = facts  # type: ignore[misc]

    async def ask(self) -> tuple[bool, bool]:
        """Return whether the check is permitted, and by a cached verdict."""
        answer = await self.pdp.check(batch([CHECK]))
        assert self.pdp.cache
        await self.pdp.cache.flush()
        return bool(answer.allowed[0]), bool(answer.cached and answer.cached[0])


def start(url: str, cache: InProcessCache) -> Follower:
    with opened(url) as store:
        return Follower(cache, store.load())


@pytest.mark.parametrize("lost", LOST)
@pytest.mark.parametrize("later", LATER)
async def test_no_cached_allow_of_a_lost_history_is_answered(url: str, lost: int, later: int) -> None:
    cache = InProcessCache(1000, 3600)
    write_each(url, 1, 2)
    assert await start(url, cache).ask() == (False, False)
    restore = backup_of(url)
    for number in range(lost):
        write_each(url, 10 + number)
        assert await start(url, cache).ask() == (True, False)
        assert await start(url, cache).ask() == (True, True)
    restore()
    assert await start(url, cache).ask() == (False, True), "the shared past is known"
    for number in range(later):
        write_each(url, 20 + number)
        assert await start(url, cache).ask() == (False, False)
        assert await start(url, cache).ask() == (False, True)


# --- the audit ----------------------------------------------------------------------------------------------------


@contextmanager
def recording(folder: Path, url: str) -> Iterator[Facts]:
    """Start a service that records its facts, and yield them."""
    with opened(url) as store, replica(store) as made:
        writer = FactWriter(folder, "i")
        made.record_to(writer)
        yield made.facts
        assert writer.close(10)


@pytest.mark.parametrize("later", LATER)
@pytest.mark.parametrize("most_missed", [0, 10_000])
def test_the_history_of_facts_tells_a_start_of_a_lost_one(
    url: str, tmp_path: Path, later: int, most_missed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder knew a lost revision: no record of its epoch is decided again by facts of the other history."""
    monkeypatch.setattr("pdp.store.replica.MOST_MISSED", most_missed)
    write_each(url, 1, 2)
    restore = backup_of(url)
    write_each(url, 10, 11)
    with recording(tmp_path / "audit", url) as gone:
        pass
    restore()
    write_each(url, *range(20, 20 + later))
    with recording(tmp_path / "audit", url) as new:
        assert new.epoch != gone.epoch
        assert len(list(new.grants())) == 2 + later
    history = FactsHistory(tmp_path / "audit")
    for facts in (gone, new):
        assert content(history.at(facts.revision())) == content(facts)
        assert history.at(facts.revision()).revision() == facts.revision()
        with pytest.raises(MissingFacts, match="another history"):
            history.at(facts.revision()._replace(token="0" * 16))


# --- the text -----------------------------------------------------------------------------------------------------

REVISIONS: Sequence[tuple[str, Revision]] = [
    ("e.7", Revision("e", 7)),
    ("e.7.0123456789abcdef", Revision("e", 7, "0123456789abcdef")),
    ("e.7.t0123456789abcdef", Revision("e", 7, "", "0123456789abcdef")),
    ("e.7.t0123456789abcdef.fedcba9876543210", Revision("e", 7, "fedcba9876543210", "0123456789abcdef")),
    ("e.7.test", Revision("e", 7, "test")),
]


@pytest.mark.parametrize(("text", "revision"), REVISIONS)
def test_a_revision_is_read_as_it_was_written(text: str, revision: Revision) -> None:
    assert (Revision.parse(text), str(revision)) == (revision, text)
    parts = text.split(".")
    assert (parts[0], int(parts[1])) == (revision.epoch, revision.sequence)
    if revision.digest:
        assert parts[-1] == revision.digest


def test_facts_have_the_token_of_their_entry_alone() -> None:
    facts = Facts("e", 1, token="a" * 16)
    grant = GrantAdded(Grant(("table", ("lake", "s", "t")), "select", "user:oidc~alice"))
    assert facts.apply(2, [grant], "b" * 16).revision() == Revision("e", 2, "", "b" * 16)
    assert facts.apply(2, [grant]).token == ""
