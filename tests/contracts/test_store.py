"""The contract of stores, sentence by sentence, on every database."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from support.service.stores import Open, added, adding, content, followed, grant, write

from pdp.errors import Unavailable
from pdp.facts.objects import Change, GrantAdded, GrantRemoved, Object, ObjectDeleted, ObjectPut
from pdp.facts.snapshot import Facts
from pdp.store.store import EpochChanged, LogEntry, Store


class Refused(Exception):
    pass


def test_a_new_store_holds_nothing(store: Store) -> None:
    facts = store.load()
    assert (facts.sequence, list(facts.objects()), list(facts.grants())) == (0, [], [])
    assert store.since(facts) == []


def test_an_epoch_is_twelve_hexadecimal_digits_and_stays(store: Store, another: Open) -> None:
    epoch = store.load().epoch
    write(store, added(1))
    assert len(epoch) == 12
    assert int(epoch, 16) >= 0
    assert {store.load().epoch, another().load().epoch} == {epoch}


def test_what_is_written_is_there_for_everybody(store: Store, another: Open) -> None:
    lake = Object(("warehouse", ("lake",)), project="p1", managed=True, id="7")
    odd = Object(("namespace", ("lake", "a/b%c", "é 'x'")))
    changes = [ObjectPut(lake), ObjectPut(odd), *added(1, 2), GrantAdded(grant(3, id="i")), GrantAdded(grant(3))]
    write(store, changes)
    assert content(another().load()) == content(Facts.empty().apply(1, changes))


def test_a_revision_says_who_wrote_what_and_when(store: Store) -> None:
    before = time.time()
    (revision,) = store.write("user:oidc~alice", store.load(), lambda log: added(1))
    assert (revision.sequence, revision.actor, revision.changes) == (1, "user:oidc~alice", tuple(added(1)))
    assert before <= revision.time <= time.time()


def test_since_is_complete_in_order_and_without_gaps(store: Store, another: Open) -> None:
    facts, other = store.load(), another()
    written = [*write(store, added(1)), *write(other, added(2)), *write(store, [GrantRemoved(grant(1))])]
    assert list(other.since(facts)) == list(store.since(facts)) == written
    assert [revision.sequence for revision in written] == [1, 2, 3]


def test_a_write_is_decided_on_what_others_wrote_meanwhile(store: Store, another: Open) -> None:
    facts = store.load()
    (theirs,) = write(another(), added(1))
    asked: list[Sequence[LogEntry]] = []

    def prepare(log: Sequence[LogEntry]) -> Sequence[Change]:
        asked.append(log)
        return added(2)

    log = store.write("me", facts, prepare)
    assert list(asked[0]) == [theirs]
    assert [revision.sequence for revision in log] == [1, 2]
    assert log[0] == theirs


def test_a_prepare_that_raises_leaves_nothing_and_uses_no_number(store: Store) -> None:
    facts = store.load()

    def prepare(log: Sequence[LogEntry]) -> Sequence[Change]:
        raise Refused

    with pytest.raises(Refused):
        store.write("me", facts, prepare)
    assert store.since(facts) == []
    assert write(store, added(1))[0].sequence == 1


@pytest.mark.parametrize("error", [KeyError("x"), ValueError("x"), OSError("x"), KeyboardInterrupt()])
def test_what_a_prepare_raises_is_what_its_caller_gets(store: Store, error: BaseException) -> None:
    def prepare(log: Sequence[LogEntry]) -> Sequence[Change]:
        raise error

    with pytest.raises(type(error)) as raised:
        store.write("me", store.load(), prepare)
    assert raised.value is error
    assert write(store, added(1))[0].sequence == 1


def test_a_write_without_a_change_uses_no_number_and_returns_the_log(store: Store, another: Open) -> None:
    facts = store.load()
    theirs = write(another(), added(1))
    assert list(store.write("me", facts, lambda log: ())) == list(theirs)
    assert store.load().sequence == 1


@pytest.mark.parametrize(
    "changes", [[*added(2), *added(1)], [*added(2), GrantRemoved(grant(3))]], ids=["add", "remove"]
)
def test_a_change_that_is_none_is_an_error_and_leaves_nothing(store: Store, changes: list[Change]) -> None:
    write(store, added(1))
    with pytest.raises(ValueError, match="a grant that is to be"):
        write(store, changes)
    facts = store.load()
    assert (facts.sequence, list(facts.grants())) == (1, [grant(1)])


@pytest.mark.parametrize("text", ["a\x00b", "\ud800"], ids=["nul", "surrogate"])
def test_text_that_a_database_cannot_hold_is_an_error_or_comes_back(store: Store, text: str) -> None:
    odd = GrantAdded(grant(1, id=text))
    try:
        write(store, [odd])
    except ValueError:
        assert content(store.load()) == set()
    else:
        assert content(store.load()) == {odd.grant}


def test_one_revision_may_change_a_row_more_than_once(store: Store) -> None:
    write(store, added(1))
    lake = ("warehouse", ("lake",))
    changes: list[Change] = [
        *(GrantRemoved(grant(1)), GrantAdded(grant(1))),
        *(GrantAdded(grant(2)), GrantRemoved(grant(2)), GrantAdded(grant(2))),
        *(GrantAdded(grant(3)), GrantRemoved(grant(3))),
        *(ObjectPut(Object(lake, "p")), ObjectDeleted(lake), ObjectPut(Object(lake, "q"))),
    ]
    write(store, changes)
    facts = store.load()
    assert set(facts.grants()) == {grant(1), grant(2)}
    assert list(facts.objects()) == [Object(lake, "q")]


def test_facts_of_another_epoch_are_never_comparable(store: Store) -> None:
    foreign = Facts("0123456789ab", 0)
    with pytest.raises(EpochChanged):
        store.since(foreign)
    with pytest.raises(EpochChanged):
        store.write("me", foreign, lambda log: added(1))
    assert store.load().sequence == 0


def test_facts_from_beyond_the_log_change_the_epoch(store: Store) -> None:
    facts = store.load()
    with pytest.raises(EpochChanged):
        store.since(facts.apply(7, ()))
    assert store.load().epoch != facts.epoch


# --- commit order -------------------------------------------------------------------------------------------------


def test_revisions_are_numbered_in_the_order_of_commits(store: Store, another: Open) -> None:
    """The older transaction commits last: it has not got a number before the younger one waits for it."""
    facts, younger, reader = store.load(), another(), another()
    older_is_in, may_go = threading.Event(), threading.Event()

    def slow(log: Sequence[LogEntry]) -> Sequence[Change]:
        older_is_in.set()
        may_go.wait(10)
        return added(1)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(store.write, "older", facts, slow)
        older_is_in.wait(10)
        second = pool.submit(younger.write, "younger", facts, lambda log: added(2))
        time.sleep(0.3)
        assert not second.done()
        assert reader.since(facts) == []
        may_go.set()
        assert [revision.actor for revision in first.result(10)] == ["older"]
        assert [(revision.sequence, revision.actor) for revision in second.result(10)] == [(1, "older"), (2, "younger")]


def test_a_concurrent_reader_never_sees_a_gap(store: Store, another: Open) -> None:
    stop = threading.Event()

    def reading() -> int:
        reader = another()
        facts = reader.load()
        while not stop.is_set():
            log = reader.since(facts)
            assert [revision.sequence for revision in log] == list(
                range(facts.sequence + 1, facts.sequence + 1 + len(log))
            )
            facts = followed(facts, log)
            assert content(reader.load()) >= content(facts)
        return followed(facts, reader.since(facts)).sequence

    def writing(writer: Store, numbers: range) -> None:
        facts = writer.load()
        for n in numbers:
            facts = followed(facts, writer.write("me", facts, partial(adding, n)))

    with ThreadPoolExecutor(3) as pool:
        read = pool.submit(reading)
        written = [pool.submit(writing, another(), range(start, start + 25)) for start in (0, 100)]
        for future in written:
            future.result(60)
        stop.set()
        assert read.result(60) == 50


# --- waiting ------------------------------------------------------------------------------------------------------


def test_wait_ends_when_another_service_writes(store: Store, another: Open) -> None:
    facts, other = store.load(), another()
    until_quiet(store)
    with ThreadPoolExecutor(1) as pool:
        waited = pool.submit(waiting, store, facts, 10.0)
        time.sleep(0.3)
        write(other, added(1))
        assert waited.result(20) < 5


def test_wait_returns_at_once_when_this_process_wrote(store: Store) -> None:
    until_quiet(store)
    write(store, added(1))
    began = time.monotonic()
    store.wait(10)
    assert time.monotonic() - began < 2


def test_nothing_that_is_written_between_looking_and_waiting_is_missed(store: Store, another: Open) -> None:
    facts, other = store.load(), another()
    until_quiet(store)
    assert store.since(facts) == []
    write(other, added(1))
    assert waiting(store, facts, 10.0) < 5


def test_wait_ends_in_time(store: Store) -> None:
    until_quiet(store)
    began = time.monotonic()
    store.wait(0.3)
    assert 0.2 < time.monotonic() - began < 3


def test_close_ends_a_wait_in_another_thread(another: Open) -> None:
    store = another()
    with ThreadPoolExecutor(1) as pool:
        waited = pool.submit(store.wait, 60)
        time.sleep(0.2)
        store.close()
        waited.result(3)
    with pytest.raises(Unavailable, match="closed"):
        store.load()


def test_followers_that_look_do_not_wake_each_other(store: Store, another: Open) -> None:
    facts, other = store.load(), another()
    until_quiet(store)
    until_quiet(other)

    def looks(follower: Store) -> int:
        count, deadline = 0, time.monotonic() + 1.0
        while time.monotonic() < deadline:
            follower.wait(1.0)
            follower.since(facts)
            count += 1
        return count

    with ThreadPoolExecutor(2) as pool:
        assert max(pool.map(looks, (store, other))) <= 3


def until_quiet(store: Store) -> None:
    """Wait until nothing of the past wakes a wait any more."""
    for _ in range(100):
        began = time.monotonic()
        store.wait(0.15)
        if time.monotonic() - began > 0.14:
            return
    raise AssertionError("a wait ends early again and again")


def waiting(store: Store, facts: Facts, seconds: float) -> float:
    """How long it took to see something new, as a follower looks."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        store.wait(seconds)
        if store.since(facts):
            break
    return time.monotonic() - began


def test_any_thread_may_call(store: Store) -> None:
    facts = store.load()

    def once(n: int) -> Any:
        write(store, added(n))
        return store.since(facts)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(once, range(40)))
    assert store.load().sequence == 40
