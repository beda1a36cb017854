"""The following of a store: what is published when, whom a slow store holds up, and what it survives."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import shutil
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from structlog.testing import capture_logs
from support.service.stores import added, grant, write

from pdp.errors import Unavailable
from pdp.facts.objects import Change, Grant, GrantAdded, GrantRemoved, ObjectKey
from pdp.facts.snapshot import Facts, release_in_steps
from pdp.model.revision import Revision
from pdp.store.replica import Replica
from pdp.store.sql import open_store
from pdp.store.store import CommitGate, LogEntry, Prepare, Store
from pdp.store.threads import Threads

Nothing: Callable[[], None] = lambda: None  # noqa: E731
LONG = 20.0


class Observed:
    """A store that counts reads, and lets a test do something before or after a call returns."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.reads = 0
        self.longest_wait = 0.0
        self.before_read = self.after_read = self.after_write = Nothing

    def load(self) -> Facts:
        return self._store.load()

    def since(self, facts: Facts) -> Sequence[LogEntry]:
        self.reads += 1
        self.before_read()
        found = self._store.since(facts)
        self.after_read()
        return found

    def token_of(self, facts: Facts, sequence: int) -> str:
        return self._store.token_of(facts, sequence)

    def wait(self, seconds: float) -> None:
        self.longest_wait = max(self.longest_wait, seconds)
        self._store.wait(seconds)

    def write(self, actor: str, facts: Facts, prepare: Prepare, gate: CommitGate | None = None) -> Sequence[LogEntry]:
        found = self._store.write(actor, facts, prepare, gate)
        self.after_write()
        return found

    def close(self) -> None:
        self._store.close()


class Held:
    """Holds whoever calls it until it is released."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self._released = threading.Event()

    def __call__(self, *_: Any) -> Sequence[Change]:
        self.entered.release()
        assert self._released.wait(LONG)
        return ()

    def release(self) -> None:
        self._released.set()

    async def reached(self) -> None:
        assert await asyncio.to_thread(self.entered.acquire, timeout=LONG)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "pdp.db"


@pytest.fixture
def store(file: Path) -> Iterator[Observed]:
    observed = Observed(open_store(f"sqlite:///{file}"))
    yield observed
    observed.close()


@pytest.fixture
def other(store: Observed, file: Path) -> Iterator[Store]:
    """Another service's store on the same database."""
    with closing(open_store(f"sqlite:///{file}")) as opened:
        yield opened


@asynccontextmanager
async def following(replica: Replica) -> AsyncIterator[None]:
    task = asyncio.create_task(replica.follow())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@asynccontextmanager
async def closed(store: Store, *, staleness: float = 300, wait: float = 2) -> AsyncIterator[Replica]:
    replica = Replica(store, {}, staleness, wait)
    try:
        yield replica
    finally:
        await asyncio.to_thread(replica.close)


async def until(happens: Callable[[], bool]) -> None:
    async with asyncio.timeout(LONG):
        while not happens():  # noqa: ASYNC110  a store knows no events
            await asyncio.sleep(0.005)


def replace(file: Path, backup: Path) -> None:
    copy = file.with_suffix(".copy")
    shutil.copy(backup, copy)
    copy.replace(file)


# --- who waits for whom -------------------------------------------------------------------------------------------


async def test_slow_writes_hold_up_no_reader(store: Observed, other: Store) -> None:
    held = Held()
    async with closed(store) as replica:
        writes = [asyncio.create_task(replica.write("me", held)) for _ in range(12)]
        await held.reached()
        async with asyncio.timeout(LONG):
            await replica.catch_up()
        assert not any(task.done() for task in writes[:1])
        for task in writes[1:]:
            task.cancel()
        held.release()
        assert (await writes[0]).sequence == 0


async def test_many_who_want_the_newest_share_a_look_that_begins_after_them(store: Observed, other: Store) -> None:
    held = Held()
    async with closed(store) as replica:
        store.after_read = held  # type: ignore[assignment]
        first = asyncio.create_task(replica.catch_up())
        await held.reached()
        write(other, added(1))
        rest = [asyncio.create_task(replica.catch_up()) for _ in range(300)]
        await asyncio.sleep(0)
        store.after_read = Nothing
        held.release()
        await first
        assert replica.facts.sequence == 0
        await asyncio.gather(*rest)
        assert replica.facts.sequence == 1
        assert store.reads == 2


async def test_who_gives_up_takes_the_look_from_nobody(store: Observed, other: Store) -> None:
    held = Held()
    async with closed(store) as replica:
        store.before_read = held  # type: ignore[assignment]
        leader = asyncio.create_task(replica.catch_up())
        second = asyncio.create_task(replica.catch_up())
        await held.reached()
        leader.cancel()
        write(other, added(1))
        held.release()
        await second
        assert replica.facts.sequence == 1
        assert leader.cancelled()


async def test_all_who_share_a_look_that_fails_are_told(store: Observed) -> None:
    def refuse() -> None:
        raise Unavailable("gone")

    async with closed(store) as replica:
        store.before_read = refuse
        found = await asyncio.gather(*(replica.catch_up() for _ in range(10)), return_exceptions=True)
        assert {str(error) for error in found} == {"the store cannot be used now"}
        assert store.reads == 1
        store.before_read = Nothing
        await replica.catch_up()


async def test_a_demanded_revision_is_looked_for_without_a_follower(store: Observed, other: Store) -> None:
    async with closed(store, wait=LONG) as replica:
        write(other, added(1))
        await replica.at_least(Revision(replica.facts.epoch, 1))
        assert replica.facts.sequence == 1


async def test_the_event_loop_turns_while_the_store_hangs(store: Observed) -> None:
    held = Held()
    async with closed(store) as replica, following(replica):
        store.before_read = held  # type: ignore[assignment]
        await held.reached()
        waiting = [asyncio.create_task(replica.catch_up()), asyncio.create_task(replica.write("me", held))]
        began = time.monotonic()
        for _ in range(100):
            await asyncio.sleep(0.001)
        assert time.monotonic() - began < 5
        with pytest.raises(Unavailable, match="waited"):
            await replica.at_least(Revision(replica.facts.epoch, 7))
        held.release()
        await asyncio.gather(*waiting)


# --- what is published --------------------------------------------------------------------------------------------


async def test_a_look_that_is_slower_than_a_write_takes_nothing_back(store: Observed) -> None:
    held = Held()
    async with closed(store) as replica:
        store.after_read = held  # type: ignore[assignment]
        slow = asyncio.create_task(replica.catch_up())
        await held.reached()
        await replica.write("me", lambda facts: added(1))
        held.release()
        await slow
        assert (replica.facts.sequence, set(replica.facts.grants())) == (1, {grant(1)})


async def test_a_write_to_a_history_that_was_replaced_meanwhile_does_not_bring_it_back(
    store: Observed, file: Path, tmp_path: Path
) -> None:
    write(store, added(1))
    shutil.copy(file, tmp_path / "backup")
    held = Held()
    async with closed(store) as replica:
        lost = replica.facts.epoch
        store.after_write = held  # type: ignore[assignment]
        late = asyncio.create_task(replica.write("me", lambda facts: added(2)))
        await held.reached()
        replace(file, tmp_path / "backup")
        await replica.catch_up()
        held.release()
        with pytest.raises(Unavailable, match="history"):
            await late
        assert replica.facts.epoch != lost
        assert set(replica.facts.grants()) == {grant(1)}
        with pytest.raises(Unavailable, match=lost):
            await replica.at_least(Revision(lost, 1))


async def test_a_write_on_a_snapshot_of_another_history_is_decided_on_the_new_one(
    store: Observed, file: Path, tmp_path: Path
) -> None:
    write(store, added(1))
    shutil.copy(file, tmp_path / "backup")
    write(store, added(2))
    asked: list[set[object]] = []

    def decide(facts: Facts) -> Sequence[Change]:
        asked.append(set(facts.grants()))
        return [GrantRemoved(grant(1)), GrantAdded(grant(3))]

    async with closed(store) as replica:
        replace(file, tmp_path / "backup")
        written = await replica.write("me", decide)
        assert asked == [{grant(1)}]
        assert set(written.grants()) == set(replica.facts.grants()) == {grant(3)}


async def test_a_wait_for_a_revision_ends_when_the_history_changes(store: Observed, file: Path, tmp_path: Path) -> None:
    write(store, added(1))
    shutil.copy(file, tmp_path / "backup")
    async with closed(store, wait=60) as replica, following(replica):
        waiting = asyncio.create_task(replica.at_least(Revision(replica.facts.epoch, 9)))
        await asyncio.sleep(0.05)
        replace(file, tmp_path / "backup")
        with pytest.raises(Unavailable, match="a revision of epoch"):
            await asyncio.wait_for(waiting, LONG)


async def test_services_that_start_at_once_seed_once(store: Observed, other: Store) -> None:
    async with closed(store) as one, closed(other) as two:
        for replica in (one, two):
            replica.seed("seed", added(1, 2))
        assert one.facts.sequence == two.facts.sequence == 1
        assert set(one.facts.grants()) == set(two.facts.grants()) == {grant(1), grant(2)}


async def test_facts_are_as_old_as_the_question_not_as_the_answer(store: Observed) -> None:
    held = Held()
    async with closed(store) as replica:
        store.after_read = held  # type: ignore[assignment]
        look = asyncio.create_task(replica.catch_up())
        await held.reached()
        await asyncio.sleep(0.2)
        held.release()
        await look
        assert replica.age() > 0.19


# --- what is survived ---------------------------------------------------------------------------------------------


async def test_a_follower_survives_a_defect_and_the_facts_age_meanwhile(store: Observed, other: Store) -> None:
    def fail() -> None:
        raise OSError(24, "too many open files")

    with capture_logs() as logged:
        async with closed(store, staleness=0.2) as replica, following(replica):
            store.before_read = fail
            await until(replica.is_stale)
            write(other, added(1))
            store.before_read = Nothing
            await until(lambda: replica.facts.sequence == 1 and not replica.is_stale())
    assert any("too many open files" in entry.get("cause", "") for entry in logged)


@pytest.mark.parametrize(("staleness", "longest"), [(300.0, 1.0), (0.4, 0.1)])
async def test_a_store_that_is_only_quiet_is_asked_before_the_facts_are_stale(
    store: Observed, staleness: float, longest: float
) -> None:
    async with closed(store, staleness=staleness) as replica, following(replica):
        await until(lambda: store.reads >= 2)
    assert store.longest_wait == pytest.approx(longest)


async def test_a_database_that_became_unusable_is_unavailable_and_may_come_back(
    store: Observed, file: Path, tmp_path: Path
) -> None:
    write(store, added(1))
    shutil.copy(file, tmp_path / "backup")
    (tmp_path / "rubbish").write_bytes(b"rubbish" * 10_000)
    async with closed(store) as replica, following(replica):
        replace(file, tmp_path / "rubbish")
        for call in (replica.catch_up(), replica.write("me", lambda facts: added(2))):
            with pytest.raises(Unavailable):
                await call
        assert set(replica.facts.grants()) == {grant(1)}
        replace(file, tmp_path / "backup")
        await until(lambda: replica.age() < 0.5 and set(replica.facts.grants()) == {grant(1)})
        assert (await replica.write("me", lambda facts: added(2))).sequence == 2


async def test_closing_waits_for_no_store_that_hangs(file: Path) -> None:
    store, held = Observed(open_store(f"sqlite:///{file}")), Held()
    replica = Replica(store, {}, 300, 2)
    store.before_read = held  # type: ignore[assignment]
    stuck = asyncio.create_task(replica.catch_up())
    await held.reached()
    began = time.monotonic()
    await asyncio.to_thread(replica.close)
    assert time.monotonic() - began < 10
    for call in (replica.catch_up(), replica.write("me", lambda facts: ())):
        waiting = asyncio.create_task(call)
        await asyncio.sleep(0.05)
        assert not waiting.done() or isinstance(waiting.exception(), Unavailable)
        waiting.cancel()
    held.release()
    with pytest.raises(Unavailable, match="cannot be used now"):
        await stuck


async def test_a_write_that_is_given_up_is_not_committed(store: Observed, other: Store) -> None:
    """A request ran out of time while its write was in the transaction, or waited for a thread."""
    async with closed(store) as replica:
        held = Held()

        def decide(_: Facts) -> Sequence[Change]:
            held()
            return added(1)

        writes = [asyncio.create_task(replica.write("me", decide)) for _ in range(6)]
        await held.reached()
        for task in writes:
            task.cancel()
        await asyncio.wait(writes)
        assert all(task.cancelled() for task in writes)
        held.release()
        assert (await replica.write("me", lambda _: added(2))).sequence == 1
    assert list(other.load().grants()) == [grant(2)]


async def test_a_write_that_is_being_committed_is_finished(store: Observed) -> None:
    """The time limit comes too late: the answer says that the write happened."""
    async with closed(store) as replica:
        held = Held()
        store.after_write = held  # type: ignore[assignment]
        writing = asyncio.create_task(replica.write("me", lambda _: added(1)))
        await held.reached()
        for _ in range(3):
            writing.cancel()
            await asyncio.sleep(0.01)
        held.release()
        assert (await writing).sequence == 1
        assert replica.facts.sequence == 1


class Layout:
    """Part of an index that a test can watch."""


async def test_facts_of_a_lost_history_are_released_when_nobody_decides_on_them(store: Observed, file: Path) -> None:
    """The release in steps neither empties facts that a request still has nor keeps them."""
    backup = file.with_name("backup.db")
    write(store, added(1, 2))
    shutil.copy(file, backup)
    async with closed(store) as replica:
        released, loop, layout = asyncio.Event(), asyncio.get_running_loop(), Layout()
        weakref.finalize(layout, loop.call_soon_threadsafe, released.set)
        index = structs.replace(replica.facts.index, layout=layout)
        of_request = replica.facts = dataclasses.replace(replica.facts, index=index)
        del layout, index
        replace(file, backup)
        await replica.catch_up()
        assert replica.facts.epoch != of_request.epoch
        await asyncio.sleep(0.1)
        assert sorted(of_request.grants()) == sorted(replica.facts.grants()) == [grant(1), grant(2)]
        assert not released.is_set()
        del of_request
        async with asyncio.timeout(LONG):
            await released.wait()
        assert sorted(replica.facts.grants()) == [grant(1), grant(2)]


@pytest.mark.parametrize(("count", "is_frozen"), [(1_000, False), (1_001, True), (20_001, True)])
async def test_a_large_change_leaves_the_collections_of_garbage(
    store: Observed, other: Store, count: int, *, is_frozen: bool
) -> None:
    """Facts have no cycles, and a search for cycles among a million grants stops all threads for seconds."""
    async with closed(store) as replica:
        write(other, added(*range(count)))
        gc.unfreeze()
        await replica.catch_up()
        assert (gc.get_freeze_count() > 0) == is_frozen
        assert gc.isenabled()
        assert len(list(replica.facts.grants())) == count


@pytest.mark.parametrize("sizes", [(1,), (3, 1), (1_000,), (1_001,), (2_500, 1, 1_200)])
def test_a_release_in_steps_touches_no_facts_that_share_a_part(sizes: tuple[int, ...]) -> None:
    """Containers of all sizes, and newer facts with most of the parts of the older ones."""
    keys: list[ObjectKey] = [
        ("table", ("lake", f"s{at}", f"t{number}")) for at, size in enumerate(sizes) for number in range(size)
    ]
    grants = [Grant(key, "select", f"user:u{at % 3}") for at, key in enumerate(keys)]
    facts = Facts.build("one", 1, (), grants)
    newer = facts.apply(2, [GrantRemoved(grants[0])])
    held = [facts]
    del facts
    release_in_steps(held)
    assert not held
    assert sorted(newer.grants()) == sorted(grants[1:])
    assert [newer.node(key).is_known for key in keys] == [False, *[True] * (len(keys) - 1)]


def test_a_gate_opens_to_one_side_only() -> None:
    for first, second in (("begin_commit", "give_up"), ("give_up", "begin_commit")):
        gate = CommitGate()
        assert getattr(gate, first)()
        assert not getattr(gate, second)()
        assert gate.is_given_up == (first == "give_up")


async def test_threads_pass_on_whatever_is_raised_and_skip_what_nobody_waits_for() -> None:
    threads, held, ran = Threads("some", 1), Held(), []

    busy = asyncio.create_task(threads.run(held))
    await held.reached()
    skipped = asyncio.create_task(threads.run(lambda: ran.append(1)))
    await asyncio.sleep(0.01)
    skipped.cancel()
    await asyncio.sleep(0.01)
    held.release()
    assert await busy == ()
    with pytest.raises(ValueError, match="odd"):
        await threads.run(lambda: int("odd"))
    assert ran == []
    await asyncio.to_thread(threads.close)
    with pytest.raises(Unavailable):
        await threads.run(held)
