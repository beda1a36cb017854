"""The history of facts that a follower of a store leaves: every revision, before it decides, and after any restore."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from functools import partial
from pathlib import Path

from support.service.stores import added, content, grant, write

from pdp.audit.facts.history import FactsHistory
from pdp.audit.facts.writer import FactWriter
from pdp.facts.objects import Change
from pdp.facts.snapshot import Facts
from pdp.model.revision import Revision
from pdp.store.replica import FixedFacts, Replica
from pdp.store.sql import open_store


def adding(number: int, _: Facts) -> Sequence[Change]:
    """Decide to add one grant, whatever the facts."""
    return added(number)


class Follower:
    """A replica with a recorder of its facts."""

    def __init__(self, folder: Path, database: str) -> None:
        self.folder = folder
        self.replica = Replica(open_store(f"sqlite:///{folder}/{database}"), {"w": "p"}, 300, 5)
        self.writer = FactWriter(folder / "audit", "i")
        self.replica.record_to(self.writer)

    @property
    def facts(self) -> Facts:
        return self.replica.facts

    def close(self) -> None:
        self.replica.close()
        assert self.writer.close(10)


@contextmanager
def following(folder: Path, database: str = "pdp.db") -> Iterator[Follower]:
    with closing(Follower(folder, database)) as follower:
        yield follower


@asynccontextmanager
async def running(follower: Follower) -> AsyncIterator[Follower]:
    task = asyncio.create_task(follower.replica.follow())
    try:
        yield follower
    finally:
        task.cancel()


def write_outside(folder: Path, *numbers: int, database: str = "pdp.db") -> None:
    """Write revisions by another process."""
    with closing(open_store(f"sqlite:///{folder}/{database}")) as store:
        for number in numbers:
            write(store, added(number))


def restore(folder: Path, backup: bytes) -> None:
    """Put a backup in the place of the database, as a copy over the file does."""
    for file in folder.glob("pdp.db-*"):
        file.unlink()
    (folder / "pdp.db").write_bytes(backup)


def recorded(folder: Path, facts: Facts) -> bool:
    """Tell whether the folder has the same facts for the revision of these facts."""
    return content(FactsHistory(folder / "audit").at(Revision(facts.epoch, facts.sequence))) == content(facts)


async def test_facts_are_recorded_before_they_decide(tmp_path: Path) -> None:
    with following(tmp_path) as follower:
        async with running(follower):
            for number in range(5):
                written = await follower.replica.write("me", partial(adding, number))
                assert recorded(tmp_path, written)
            write_outside(tmp_path, 10, 11)
            await follower.replica.catch_up()
            assert follower.facts.sequence == 7
            assert recorded(tmp_path, follower.facts)
        actors = [one.actor for one in FactsHistory(tmp_path / "audit").revisions(follower.facts.epoch)]
        assert actors == ["me"] * 7


def test_a_start_takes_what_it_missed_from_the_log(tmp_path: Path) -> None:
    with following(tmp_path) as first:
        epoch = first.facts.epoch
    write_outside(tmp_path, 1, 2, 3)
    with following(tmp_path) as second:
        assert (second.facts.epoch, second.facts.sequence) == (epoch, 3)
    revisions = [one.sequence for one in FactsHistory(tmp_path / "audit").revisions(epoch)]
    assert revisions == [1, 2, 3]


def test_a_restored_database_gets_another_epoch_if_only_the_history_knows_what_is_lost(tmp_path: Path) -> None:
    """A copy over the old file keeps its epoch, and a service that starts later cannot see that."""
    write_outside(tmp_path, 1)
    backup = (tmp_path / "pdp.db").read_bytes()
    with following(tmp_path) as before:
        pass
    write_outside(tmp_path, 2, 3)
    with following(tmp_path) as lost:
        assert lost.facts.epoch == before.facts.epoch
    restore(tmp_path, backup)
    with following(tmp_path) as restored:
        assert restored.facts.sequence == 1
        assert restored.facts.epoch != lost.facts.epoch
        assert restored.facts.projects == {"w": "p"}
    write_outside(tmp_path, 7)
    with following(tmp_path) as later:
        assert later.facts.epoch == restored.facts.epoch
    for facts in (before.facts, lost.facts, restored.facts, later.facts):
        assert recorded(tmp_path, facts)
    assert lost.facts.sequence == 3
    assert later.facts.sequence == 2


async def test_a_new_epoch_in_a_running_service_is_recorded(tmp_path: Path) -> None:
    write_outside(tmp_path, 1)
    backup = (tmp_path / "pdp.db").read_bytes()
    with following(tmp_path) as follower:
        write_outside(tmp_path, 2)
        async with running(follower):
            await follower.replica.catch_up()
            before = follower.facts
            restore(tmp_path, backup)
            await follower.replica.catch_up()
            assert follower.facts.epoch != before.epoch
            assert recorded(tmp_path, before)
            assert recorded(tmp_path, follower.facts)


def test_the_facts_of_a_world_file_are_recorded(tmp_path: Path) -> None:
    facts = Facts.build("world", 0, [], [grant(1), grant(2)])
    writer = FactWriter(tmp_path / "audit", "i")
    FixedFacts(facts).record_to(writer)
    assert writer.close(10)
    assert recorded(tmp_path, facts)
