"""Services that share a database decide alike: soon by themselves, at once where a check demands it, whoever dies."""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any

import pytest
from support.oracles.converging import Service, Services, assert_log_is_the_state, reading, services, until
from support.servers.postgres import fresh_database

pytestmark = [pytest.mark.process, pytest.mark.waits]

CHAOS_SECONDS = float(os.environ.get("TEST_CHAOS_SECONDS", "8"))
LOST = (OSError, HTTPException)
"""What a request to a service that was killed ends with."""


Pair = tuple[Service, Service]


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    folder = tmp_path_factory.mktemp("running")
    is_file = request.param == "sqlite"
    url = f"sqlite:///{folder}/pdp.db" if is_file else fresh_database(request.getfixturevalue("postgres_server"))
    with services(folder, url) as started:
        yield started


@pytest.fixture(scope="module")
def pair(running: Services) -> Pair:
    return running.start(wait_seconds=1), running.start()


def test_what_one_service_writes_the_other_decides(running: Services, pair: Pair) -> None:
    one, other = pair
    before = one.revision()[1]
    for number in range(100, 125):
        one.write(add=(number,))
        until(lambda n=number: other.allows(n), 5)  # type: ignore[misc]
        other.write(remove=(number,))
        until(lambda n=number: not one.allows(n), 5)  # type: ignore[misc]
    assert one.revision() == other.revision()
    assert assert_log_is_the_state(running.url) == before + 50


def test_full_sees_what_was_acknowledged_elsewhere(pair: Pair) -> None:
    writer, reader = pair
    for number in range(100, 130):
        writer.write(add=(number,))
        assert reader.allows(number, "full")
        writer.write(remove=(number,))
        assert not reader.allows(number, "full")


def test_full_is_served_while_others_write_and_demand(pair: Pair) -> None:
    """Each reader sees its own writes elsewhere, however many others read and write at the time."""

    def turns(number: int) -> None:
        here, there = pair if number % 2 else pair[::-1]
        with here.again() as writer, there.again() as reader:
            for _ in range(5):
                writer.write(add=(number,))
                assert reader.allows(number, "full")
                writer.write(remove=(number,))
                assert not reader.allows(number, "full")

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(turns, range(100, 112)))


# --- at_least -----------------------------------------------------------------------------------------------------


def test_a_revision_of_the_future_is_waited_for_and_then_refused(pair: Pair) -> None:
    service, other = pair
    epoch, sequence, _, digest = service.write(add=(101,)).split(".")
    began = time.monotonic()
    status, answer = service.check(reading(101), consistency={"atLeast": f"{epoch}.{int(sequence) + 1}.{digest}"})
    assert (status, answer["error"]["code"]) == (503, "unavailable")
    assert time.monotonic() - began > 0.9
    for _ in range(20):  # the write may come too late for a wait of one second
        future = {"atLeast": f"{epoch}.{service.revision()[1] + 1}"}
        with ThreadPoolExecutor(1) as pool, service.again() as waiting:
            answered = pool.submit(waiting.check, reading(102), consistency=future)
            time.sleep(0.2)
            other.write(**{"remove" if other.allows(102, "full") else "add": (102,)})
            status, answer = answered.result(10)
        if status == 200:
            break
    assert answer["decisions"][0]["allowed"] == other.allows(102)


@pytest.mark.parametrize(
    ("revision", "status"),
    [
        ("0123456789ab.1.x", 503),
        ("0123456789ab.99999999", 503),
        *((malformed, 400) for malformed in ("", "x", ".1", "e.", "e.-1", "e.1e3", "e.x.y", f"e.{10**20}", "e.١")),  # noqa: RUF001
    ],
)
def test_other_epochs_and_malformed_revisions_are_refused_at_once(only: Service, revision: str, status: int) -> None:
    began = time.monotonic()
    assert only.check(reading(1), consistency={"atLeast": revision})[0] == status
    assert time.monotonic() - began < 15  # where it waited, it would wait for a minute


@pytest.fixture(scope="module")
def only(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("only")
    with services(folder, f"sqlite:///{folder}/pdp.db") as started:
        yield started.start(wait_seconds=60)


@pytest.mark.parametrize("consistency", [{}, {"atLeast": 1}, "fully", 1, [], {"at": "e.1"}])
def test_what_is_no_consistency_is_refused(only: Service, consistency: Any) -> None:
    assert only.check(reading(1), consistency=consistency)[0] == 400


# --- chaos --------------------------------------------------------------------------------------------------------


@dataclass
class Chaos:
    """Writers and readers of grants; every writer has numbers of its own, and all share those below SHARED."""

    services: list[Service]
    stop: threading.Event = field(default_factory=threading.Event)
    written: int = 0
    asked: int = 0
    lost: int = 0

    SHARED = 3
    OWN = 4

    def some(self, choice: random.Random) -> AbstractContextManager[Service]:
        return choice.choice(self.services).again()

    def write_own(self, writer: int) -> dict[int, bool | None]:
        """Grant and revoke, and after each acknowledged write demand its revision anywhere; what holds at the end.

        None is a grant whose last write was not acknowledged: it may hold or not.
        """
        choice = random.Random(writer)
        first = self.SHARED + writer * self.OWN
        state: dict[int, bool | None] = dict.fromkeys(range(first, first + self.OWN), False)
        while not self.stop.is_set():
            number = choice.choice(list(state))
            wanted = not state[number]
            try:
                with self.some(choice) as service:
                    revision = service.write(add=(number,)) if wanted else service.write(remove=(number,))
            except LOST:
                state[number] = None
                self.lost += 1
                continue
            state[number] = wanted
            self.written += 1
            for _ in range(2):
                self.demand(choice, number, revision, wanted)
        return state

    def demand(self, choice: random.Random, number: int, revision: str, wanted: bool) -> None:
        try:
            with self.some(choice) as service:
                status, answer = service.check(reading(number), consistency={"atLeast": revision})
        except LOST:
            self.lost += 1
            return
        assert status == 200, answer
        assert answer["decisions"][0]["allowed"] is wanted, f"after {revision} {answer}"
        assert int(answer["revision"].split(".")[1]) >= int(revision.split(".")[1])
        self.asked += 1

    def write_shared(self, writer: int) -> None:
        """Grant and revoke what others grant and revoke, too; most of it is no change."""
        choice = random.Random(-writer)
        while not self.stop.is_set():
            try:
                with self.some(choice) as service:
                    service.write(**{choice.choice(["add", "remove"]): (choice.randrange(self.SHARED),)})
            except LOST:
                self.lost += 1

    def follow(self, reader: int) -> None:
        """What one service answers never goes back, however it is asked."""
        choice = random.Random(reader)
        while not self.stop.is_set():
            last = 0
            try:
                with self.some(choice) as service:
                    for _ in range(20):
                        answer = service.check(reading(0), consistency=choice.choice(["full", "minimize_latency"]))[1]
                        sequence = int(answer["revision"].split(".")[1])
                        assert sequence >= last
                        last = sequence
            except LOST:
                self.lost += 1


@pytest.mark.long
def test_nobody_sees_what_was_revoked_whoever_writes_and_dies(running: Services) -> None:
    chaos = Chaos([running.start(wait_seconds=10), running.start(wait_seconds=10)])
    with ThreadPoolExecutor(8) as pool:
        own = [pool.submit(chaos.write_own, writer) for writer in range(3)]
        others = [pool.submit(chaos.write_shared, 1), pool.submit(chaos.write_shared, 2), pool.submit(chaos.follow, 1)]
        try:
            for turn in range(max(1, int(CHAOS_SECONDS / 20))):
                time.sleep(CHAOS_SECONDS / 2 if turn == 0 else 10)
                killed = chaos.services[turn % 2]
                killed.process.process.kill()
                chaos.services[turn % 2] = running.start(wait_seconds=10)
            time.sleep(CHAOS_SECONDS / 2)
        finally:
            chaos.stop.set()
        state = {number: held for future in own for number, held in future.result(60).items()}
        for future in others:
            future.result(60)
    numbers = range(max(state) + 1)
    one, other = (service.allowed(numbers) for service in chaos.services)
    assert one == other
    assert {n for n, held in state.items() if held} <= one
    assert not {n for n, held in state.items() if held is False} & one
    assert chaos.services[0].revision() == chaos.services[1].revision()
    assert assert_log_is_the_state(running.url) >= chaos.written > 0
    sys.stderr.write(f"\n{chaos.written} writes, {chaos.asked} demands, {chaos.lost} requests lost\n")
    assert chaos.asked > 0
