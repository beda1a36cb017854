"""Services that are killed under load: what the audit holds after the next start."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.faults.disk_pauses import disk_pauses
from support.generators.answered_load import AnsweredLoad, answered_load
from support.oracles.converging import until
from support.oracles.segment_checks import check_segments
from support.service.serving import serve_process

pytestmark = [pytest.mark.process, pytest.mark.waits]
KEY = "a key of the chain"
FEW, MANY = range(3), range(3, 20)
RUNS = [*FEW, *(pytest.param(run, marks=pytest.mark.long) for run in MANY)]
FEWEST = 20
LONGEST_PAUSE = 0.5
"""Seconds for which a machine under load may not run a process. The interval itself is 10 ms and one write, which takes
as long as the disk pauses."""


def killed(folder: Path, durability: str, run: int) -> tuple[AnsweredLoad, float]:
    """Kill a service at a random moment, and start it again.

    Return the answers before, and a time: only records of later answers may be missing without `request`.
    """
    chance = random.Random(run)
    sets = options(
        durability=durability,
        hmac_key=KEY if run % 2 else None,
        compress=chance.choice(["none", "gzip", "zstd"]),
        segment_seconds=chance.choice([1, 3600]),
        segment_mib=1,
    )
    workers = ("--workers", str(1 + run % 2))
    with (
        disk_pauses(folder) as pauses,
        serve_process(folder, *sets, *workers) as process,
        answered_load(process) as load,
    ):
        until(lambda: len(load.answers) > FEWEST)
        time.sleep(chance.uniform(0, 2))
        at = time.monotonic()
        end(process, run)
    with serve_process(folder, *sets) as process:
        assert process.terminate() == 0
    return load, at - LONGEST_PAUSE - pauses.longest


def end(process: Any, run: int) -> None:
    """Kill a service with all its workers: the supervisor first, which would start new ones between."""
    import psutil  # type: ignore[import-untyped]  # noqa: PLC0415

    own = psutil.Process(process.process.pid)
    for one in (own, *own.children()) if run % 2 else (own,):
        one.kill()
    process.process.wait(10)


def options(**keys: Any) -> list[str]:
    return [part for key, value in keys.items() if value is not None for part in ("--set", f"audit.{key}={value}")]


def recorded(folder: Path, run: int) -> list[str]:
    """Return the ids of all records. Every segment is complete, and its chain holds."""
    found = check_segments(folder / "audit", KEY.encode() if run % 2 else b"")
    assert not list((folder / "audit").glob("*.open"))
    assert not list((folder / "audit").glob(".lock-*"))
    return [record["id"] for records in found.values() for record in records]


@pytest.mark.parametrize("run", RUNS)
def test_with_request_every_answer_has_its_record_once(tmp_path: Path, run: int) -> None:
    load, _ = killed(tmp_path, "request", run)
    counted = Counter(recorded(tmp_path, run))
    assert len(load.answers) > FEWEST
    assert {id for id in load.ids() if counted[id] != 1} == set()
    assert max(counted.values()) == 1


@pytest.mark.parametrize("durability", ["none", "batch"])
@pytest.mark.parametrize("run", RUNS)
def test_otherwise_the_newest_answers_alone_may_lack_one(tmp_path: Path, durability: str, run: int) -> None:
    load, safe = killed(tmp_path, durability, run)
    counted = Counter(recorded(tmp_path, run))
    assert len(load.answers) > FEWEST
    missing = [answered for answered, id in load.answers if not counted[id]]
    assert [answered for answered in missing if answered < safe] == []
    assert max(counted.values()) == 1
