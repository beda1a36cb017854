"""Durability and full audits: what waits, what is refused, and what is dropped and announced."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.faults.audit_syncs import before_each_sync
from support.faults.file_limits import largest_file
from support.generators.generated_pdps import decide_and_record, make_pdp
from support.oracles.audit_files import file_audit, records_in
from support.oracles.segment_checks import check_segments

from pdp.audit.files.segments import segment_files
from pdp.audit.queue import file_sink, queue
from pdp.audit.queue.queue import RecordQueue, TrailOptions
from pdp.audit.queue.sampling import ClockWatch
from pdp.config.audit import Durability, OnFull
from pdp.errors import Unavailable
from pdp.model.events import ManagementEvent, RefusalEvent
from pdp.telemetry import Telemetry

CHECK = {"principal": "user:oidc~Alice", "action": "read_data", "resource": "table:lake/Foo@prod"}
MOST = 400
FULL = 4000
"""Bytes at which the disk is full."""


@pytest.fixture
def record() -> Any:
    return decide_and_record(make_pdp({}, {}), [CHECK])[1]


@pytest.fixture(autouse=True)
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_sink, "RETRY_SECONDS", 0.02)
    monkeypatch.setattr(queue, "MAX_PENDING", MOST)


def trail(
    folder: Path, durability: Durability, on_full: OnFull = "block", telemetry: Telemetry | None = None
) -> RecordQueue:
    return file_audit(folder, telemetry, TrailOptions(durability=durability, on_full=on_full), durability=durability)


async def until(happens: Callable[[], Any], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.001)


def written(folder: Path) -> list[dict[str, Any]]:
    return records_in(segment_files(folder), running=True)


async def fill(audit: RecordQueue, record: Any) -> None:
    """Append records until no more are taken without waiting, dropping or refusing."""
    while not audit.is_full():
        audit.append(record)
        if audit.taken() % 50 == 0:
            await asyncio.sleep(0.002)
    await until(lambda: audit.failing)


# --- durability ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", ["none", "batch"])
async def test_only_request_holds_answers(tmp_path: Path, durability: Durability) -> None:
    audit = trail(tmp_path, durability)
    assert not audit.gate.holds
    assert audit.close(10)


async def test_an_answer_waits_for_every_record_before_it(tmp_path: Path, record: Any) -> None:
    audit = trail(tmp_path, "request")
    assert audit.gate.holds
    await audit.gate.durable()  # there is nothing to wait for
    for count in (1, 1, 3, 70, 1):
        for _ in range(count):
            audit.append(record)
        taken = audit.taken()
        await asyncio.wait_for(audit.gate.durable(), 10)
        assert len(written(tmp_path)) >= taken
    assert audit.close(10)
    check_segments(tmp_path)


async def test_answers_of_one_moment_share_a_sync(tmp_path: Path, record: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs: list[int] = []
    before_each_sync(monkeypatch, lambda: syncs.append(1))
    audit = trail(tmp_path, "request")

    async def answer() -> None:
        audit.append(record)
        await audit.gate.durable()

    for _ in range(20):
        await asyncio.gather(*(answer() for _ in range(30)))
    assert audit.close(10)
    assert len(syncs) <= 60
    assert len(written(tmp_path)) == 600


async def test_an_answer_that_nobody_awaits_any_more_is_forgotten(tmp_path: Path, record: Any) -> None:
    audit = trail(tmp_path, "request")
    with largest_file(FULL):
        await fill(audit, record)
        waits = [asyncio.ensure_future(audit.gate.durable()) for _ in range(5)]
        await asyncio.sleep(0.05)
        assert not any(wait.done() for wait in waits)
        for wait in waits[:3]:
            wait.cancel()
        await asyncio.sleep(0)
        assert len(audit.gate._held) == 2
    await asyncio.wait_for(asyncio.gather(*waits[3:]), 10)
    assert audit.close(10)


async def test_a_sink_that_gets_done_before_an_answer_is_held_lets_it_go(
    tmp_path: Path, record: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_sync = threading.Event()
    before_each_sync(monkeypatch, lambda: may_sync.wait(10))
    audit = trail(tmp_path, "request")
    plain_durable = audit.durable

    def durable() -> int:
        """Return the number of a moment ago: meanwhile the sink has written all, and woken everybody."""
        before = plain_durable()
        may_sync.set()
        while plain_durable() < audit.taken():
            time.sleep(0.001)
        time.sleep(0.05)
        monkeypatch.setattr(audit, "durable", plain_durable)
        return before

    audit.append(record)
    await until(lambda: not audit._flush_due)
    monkeypatch.setattr(audit, "durable", durable)
    await asyncio.wait_for(audit.gate.durable(), 5)
    assert audit.close(10)


# --- a full disk --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", ["none", "batch", "request"])
async def test_block_lets_requests_wait_until_there_is_room(
    tmp_path: Path, record: Any, durability: Durability
) -> None:
    audit = trail(tmp_path, durability)
    await audit.gate.room()
    with largest_file(FULL):
        await fill(audit, record)
        await until(lambda: audit.gate.crowded)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(audit.gate.room(), 0.1)
        waits = [asyncio.ensure_future(audit.gate.room()) for _ in range(3)]
        await asyncio.sleep(0.1)
        assert not any(wait.done() for wait in waits)
        with pytest.raises(Unavailable):
            audit.admit()
    await asyncio.wait_for(asyncio.gather(*waits), 10)
    audit.admit()
    assert not audit.gate.crowded
    taken = audit.taken()
    assert audit.close(10)
    assert len(check_segments(tmp_path)[audit.instance]) == taken


@pytest.mark.parametrize("durability", ["none", "batch", "request"])
async def test_deny_refuses_at_once(tmp_path: Path, record: Any, durability: Durability) -> None:
    audit = trail(tmp_path, durability, "deny")
    with largest_file(FULL):
        await fill(audit, record)
        await asyncio.sleep(0.05)
        assert not audit.gate.crowded
        await audit.gate.room()
        with pytest.raises(Unavailable):
            audit.admit()
        if durability == "request":
            with pytest.raises(Unavailable):
                await audit.gate.durable()
    await until(lambda: not audit.failing)
    audit.admit()
    taken = audit.taken()
    assert audit.close(10)
    assert len(check_segments(tmp_path)[audit.instance]) == taken


async def test_deny_refuses_answers_that_wait_already(tmp_path: Path, record: Any) -> None:
    audit = trail(tmp_path, "request", "deny")
    with largest_file(FULL):
        audit.append(record)
        for _ in range(MOST // 2):
            audit.append(record)
        with pytest.raises(Unavailable):
            await asyncio.wait_for(audit.gate.durable(), 10)
    assert audit.close(10)


@pytest.mark.parametrize("durability", ["none", "batch", "request"])
async def test_drop_answers_and_says_how_many(
    tmp_path: Path, record: Any, durability: Durability, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "_ROOM_SECONDS", 0.02)
    telemetry = Telemetry()
    audit = trail(tmp_path, durability, "drop", telemetry)
    with largest_file(FULL):
        await fill(audit, record)
        taken = audit.taken()
        for _ in range(250):
            audit.admit()
            audit.append(record)
            await asyncio.wait_for(audit.gate.durable(), 5)
        assert audit.taken() == taken
        management = ManagementEvent(operation="write_grants", caller="c", allowed=True)
        assert not audit.note(management)
        assert not audit.note(RefusalEvent(surface="http", status="400", code="c"))  # its recorder counts it
    await until(lambda: any(one["event"] == "service" for one in written(tmp_path)))
    audit.append(record)
    assert audit.close(10)
    found = check_segments(tmp_path)[audit.instance]
    (announced,) = [one for one in found if one["event"] == "service"]
    assert announced["what"] == "records_dropped"
    assert announced["details"]["records"] == 251
    assert announced["details"]["decisions"] == 250
    assert announced["details"]["beforeSeq"] == announced["seq"] == taken
    assert announced["details"]["from"] <= announced["details"]["to"] <= announced["time"]
    assert len(found) == taken + 2
    assert telemetry.registry.get_sample_value("pdp_audit_dropped_total") == 251


async def test_a_stop_announces_what_was_dropped(tmp_path: Path, record: Any) -> None:
    audit = trail(tmp_path, "batch", "drop")
    with largest_file(FULL):
        await fill(audit, record)
        audit.append(record)
    assert audit.close(10)
    assert written(tmp_path)[-1]["details"]["records"] == 1


async def test_announcements_are_rare(tmp_path: Path, record: Any) -> None:
    audit = trail(tmp_path, "none", "drop")
    for _ in range(40):
        with largest_file(FULL):
            await fill(audit, record)
            audit.append(record)
        await until(lambda: not audit.is_full())
    assert audit.close(10)
    announced = [one for one in check_segments(tmp_path)[audit.instance] if one["event"] == "service"]
    assert sum(one["details"]["records"] for one in announced) == 40
    assert len(announced) < 30


# --- the clock ----------------------------------------------------------------------------------------------------


async def test_a_backward_jump_of_the_clock_has_a_record(tmp_path: Path, record: Any) -> None:
    shift = 0.0
    audit = trail(tmp_path, "batch")
    audit._clock = ClockWatch(lambda: time.time() + shift)
    for shift in (0.0, 100.0, 99.0, 99.0, 500.0, -20.0):  # noqa: B007  the clock reads it
        audit.append(record)
        await until(lambda: not audit._flush_due)
    assert audit.close(10)
    jumps = [one for one in check_segments(tmp_path)[audit.instance] if one["event"] == "service"]
    assert [one["what"] for one in jumps] == ["clock_jump"] * 2
    assert [round(one["details"]["seconds"]) for one in jumps] == [-1, -520]


def test_lines_of_the_service_are_plain_json(tmp_path: Path, record: Any) -> None:
    async def run() -> None:
        audit = trail(tmp_path, "batch")
        audit.append(record)
        audit.close(10)

    asyncio.run(run())
    (file,) = segment_files(tmp_path)
    events = [json.loads(line)["event"] for line in file.path.read_text().splitlines()]
    assert events == ["segment", "decision", "chain", "segment_end"]
