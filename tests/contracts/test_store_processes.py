"""Stores shared by several processes: nothing is lost, nothing half-written, whoever dies when."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from support.paths import ROOT
from support.service.stores import Open, adding, content, followed, grant, write

from pdp.facts.objects import Object, ObjectPut
from pdp.facts.snapshot import Facts
from pdp.store.sql import open_store
from pdp.store.store import Store

pytestmark = [pytest.mark.process, pytest.mark.waits]


class Processes:
    """Writers of this folder, each a process of its own."""

    def __init__(self) -> None:
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: Any) -> subprocess.Popen[bytes]:
        environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
        command = [sys.executable, "-m", "support.writer", *map(str, arguments)]
        self.running.append(subprocess.Popen(command, stdout=subprocess.PIPE, env=environment))
        return self.running[-1]

    def finish(self) -> None:
        for process in self.running:
            process.wait(timeout=150)
            assert process.returncode == 0


@pytest.fixture
def processes() -> Iterator[Processes]:
    started = Processes()
    yield started
    for process in started.running:
        process.kill()
        with process:  # waits, and closes the pipe
            pass


def replayed(store: Store) -> Facts:
    """What the log alone makes of a new store."""
    start = Facts(store.load().epoch, 0)
    return followed(start, store.since(start))


def test_a_thousand_writes_of_threads_and_processes_are_all_there(
    store: Store, another: Open, url: str, processes: Processes
) -> None:
    def writing(first: int) -> None:
        writer = another() if first % 2_000 else store
        facts = writer.load()
        for number in range(first, first + 125):
            facts = followed(facts, writer.write("thread", facts, partial(adding, number)))

    for first in (10_000, 20_000):
        processes.start(url, first, 250)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(writing, (1_000, 2_000, 3_000, 4_000)))
    processes.finish()
    facts = replayed(store)
    assert facts.sequence == 1_000
    wanted = {grant(n + i) for n in (1_000, 2_000, 3_000, 4_000) for i in range(125)}
    wanted |= {grant(n + i) for n in (10_000, 20_000) for i in range(250)}
    assert content(facts) == content(store.load()) == wanted
    assert store.load().index == facts.index


def settled(store: Store) -> Facts:
    """Return the facts after the end of a commit that a killed client has asked for: the database may go on with it."""
    facts = store.load()
    for _ in range(20):
        time.sleep(0.1)
        before, facts = facts, store.load()
        if before.sequence == facts.sequence:
            break
    return facts


@pytest.mark.parametrize("delay", [0.0, 0.02, 0.05, 0.1, 0.2])
def test_a_writer_that_is_killed_leaves_nothing_half_written(
    store: Store, url: str, processes: Processes, delay: float
) -> None:
    running = processes.start("hang", url, 2_000)
    assert running.stdout is not None
    assert running.stdout.readline() == b"writing\n"
    time.sleep(delay)
    running.kill()
    running.wait()
    facts = settled(store)
    assert len(list(facts.grants())) == 2_000 * facts.sequence
    assert content(replayed(store)) == content(facts)
    assert write(store, [ObjectPut(Object(("warehouse", ("lake",))))])[0].sequence == facts.sequence + 1


def test_services_that_open_a_new_database_at_once_agree(url: str, processes: Processes) -> None:
    for first in (0, 10, 20):
        processes.start(url, first, 5)
    with ThreadPoolExecutor(3) as pool:
        stores = list(pool.map(open_store, [url] * 3))
    processes.finish()
    facts = [store.load() for store in stores]
    for store in stores:
        store.close()
    assert {f.epoch for f in facts} == {facts[0].epoch}
    assert len(content(facts[0])) == 15
