"""Stores shared by several processes: nothing is lost, nothing half-written, whoever dies when."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from contracts.stores import Open, adding, content, followed, grant, write

from pdp.facts import Facts
from pdp.objects import Object, ObjectPut
from pdp.store.sql import open_store
from pdp.store.store import Store

ROOT = Path(__file__).parents[2]


def process(*arguments: Any) -> subprocess.Popen[bytes]:
    """The writer of this folder."""
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    command = [sys.executable, "-m", "contracts.writer", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)


def replayed(store: Store) -> Facts:
    """What the log alone makes of a new store."""
    start = Facts(store.load().epoch, 0)
    return followed(start, store.since(start))


def test_a_thousand_writes_of_threads_and_processes_are_all_there(store: Store, another: Open, url: str) -> None:
    def writing(first: int) -> None:
        writer = another() if first % 2_000 else store
        facts = writer.load()
        for number in range(first, first + 125):
            facts = followed(facts, writer.write("thread", facts, partial(adding, number)))

    processes = [process(url, first, 250) for first in (10_000, 20_000)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(writing, (1_000, 2_000, 3_000, 4_000)))
    for running in processes:
        running.communicate(timeout=120)
        assert running.returncode == 0
    facts = replayed(store)
    assert facts.sequence == 1_000
    wanted = {grant(n + i) for n in (1_000, 2_000, 3_000, 4_000) for i in range(125)}
    wanted |= {grant(n + i) for n in (10_000, 20_000) for i in range(250)}
    assert content(facts) == content(store.load()) == wanted
    assert store.load().index == facts.index


@pytest.mark.parametrize("delay", [0.0, 0.02, 0.05, 0.1, 0.2])
def test_a_writer_that_is_killed_leaves_nothing_half_written(store: Store, url: str, delay: float) -> None:
    running = process("hang", url, 2_000)
    assert running.stdout is not None
    assert running.stdout.readline() == b"writing\n"
    time.sleep(delay)
    running.kill()
    running.communicate()
    facts = store.load()
    assert len(list(facts.grants())) == 2_000 * facts.sequence
    assert content(replayed(store)) == content(facts)
    assert write(store, [ObjectPut(Object(("warehouse", ("lake",))))])[0].sequence == facts.sequence + 1


def test_services_that_open_a_new_database_at_once_agree(url: str) -> None:
    processes = [process(url, first, 5) for first in (0, 10, 20)]
    with ThreadPoolExecutor(3) as pool:
        stores = list(pool.map(open_store, [url] * 3))
    for running in processes:
        running.communicate(timeout=60)
        assert running.returncode == 0
    facts = [store.load() for store in stores]
    for store in stores:
        store.close()
    assert {f.epoch for f in facts} == {facts[0].epoch}
    assert len(content(facts[0])) == 15
