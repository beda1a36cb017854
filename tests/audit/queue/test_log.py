"""The audit on disk: batches, a disk that is full for a while, and a process that is killed."""

from __future__ import annotations

import asyncio
import http.client
import json
import resource
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest
from msgspec.structs import replace
from support.clients.http_client import fetch
from support.faults.audit_syncs import before_each_sync
from support.faults.file_limits import largest_file
from support.generators.generated_pdps import decide_and_record, make_pdp
from support.oracles.audit_files import audit_records, file_audit, records_in
from support.service.audit_sinks import PipeReader
from support.service.serving import serve_process

from pdp.audit.files.folder import AuditFolder
from pdp.audit.files.segments import segment_files
from pdp.audit.queue import file_sink, queue
from pdp.audit.queue.file_sink import LineSink
from pdp.audit.queue.intake import IntakeOptions, LineIntake
from pdp.audit.queue.queue import MAX_PENDING, TURN, RecordQueue, TrailOptions
from pdp.audit.queue.sinks import AuditSink, SinkMetrics, StdoutOutput
from pdp.audit.queue.waiting import TURN_DECISIONS
from pdp.engines.engine import Verdicts
from pdp.errors import Unavailable
from pdp.model.events import BEGUN, ManagementEvent
from pdp.telemetry import Telemetry

CHECK = {"principal": "user:oidc~Alice", "action": "read_data", "resource": "table:lake/Foo@prod"}
BODY = json.dumps({"checks": [CHECK]}).encode()


@pytest.fixture
def record() -> Any:
    return decide_and_record(make_pdp({}, {}), [CHECK])[1]


@pytest.fixture
def large() -> Any:
    return decide_and_record(make_pdp({}, {}), [CHECK] * TURN_DECISIONS)[1]


def has_lines(folder: Path, count: int) -> bool:
    return len(lines(folder)) == count


def lines(folder: Path) -> list[Any]:
    return records_in(segment_files(folder), running=True)


async def until(happens: Callable[[], Any], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.001)


def test_lines_that_do_not_fit_leave_no_part_behind(tmp_path: Path) -> None:
    folder = AuditFolder(tmp_path, "i")
    file = tmp_path / "decisions-i-000001.open"
    folder.append([b"first\n"])
    before = file.read_bytes()
    for more in (0, 1, 24):
        with largest_file(len(before) + more), pytest.raises(OSError, match="too large"):
            folder.append([b"second, longer than the limit lets it be\n"])
        assert file.read_bytes() == before
    folder.append([b"third\n"])
    assert file.read_bytes().startswith(before + b"third\n")
    folder.rotate()
    folder.close()
    text = (tmp_path / "decisions-i-000001.jsonl").read_bytes()
    assert text.count(b"first\n") == text.count(b"third\n") == 1
    assert b"second" not in text


async def test_a_record_is_on_disk_soon_without_any_other(tmp_path: Path, record: Any) -> None:
    audit = file_audit(tmp_path)
    for count in (1, 2, 3):
        audit.append(record)
        assert len(lines(tmp_path)) == count - 1
        await until(partial(has_lines, tmp_path, count))
        await asyncio.sleep(0.03)  # everything is idle now
    assert audit.close(10)
    assert [line["seq"] for line in lines(tmp_path)] == [0, 1, 2]


async def test_a_close_writes_what_no_turn_has_encoded(tmp_path: Path, record: Any) -> None:
    for count in (1, TURN - 1, TURN, 3 * TURN + 1):
        audit = file_audit(tmp_path / str(count))
        for _ in range(count):
            audit.append(record)
        assert audit.close(10)
        assert [line["seq"] for line in lines(tmp_path / str(count))] == list(range(count))
        await asyncio.sleep(0.03)  # the flush that was due finds nothing


async def test_many_decisions_are_encoded_over_several_turns(tmp_path: Path, large: Any) -> None:
    audit = file_audit(tmp_path)
    turns = 0
    for _ in range(TURN):
        audit.append(large)
    while audit._batcher.pending:
        turns += 1
        await asyncio.sleep(0)
    assert turns >= TURN // 2  # the flush takes turns, too
    assert audit.close(10)
    assert [line["seq"] for line in lines(tmp_path)] == list(range(TURN))


async def test_the_audit_keeps_up_with_an_event_loop_that_never_waits(tmp_path: Path, record: Any) -> None:
    audit = file_audit(tmp_path)
    waited = 0
    for _ in range(60_000):
        audit.admit()
        audit.append(record)
        waited = max(waited, audit._waiting())
        await asyncio.sleep(0)
    assert waited < MAX_PENDING // 2
    assert audit.close(20)
    assert [line["seq"] for line in lines(tmp_path)] == list(range(60_000))


async def test_records_wait_for_a_full_disk_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: Any
) -> None:
    monkeypatch.setattr(file_sink, "RETRY_SECONDS", 0.02)
    monkeypatch.setattr(queue, "MAX_PENDING", 500)
    telemetry = Telemetry()
    audit = file_audit(tmp_path, telemetry)
    audit.append(record)
    await until(lambda: lines(tmp_path))
    assert not audit.failing
    with largest_file(4000):
        for count in range(499):
            audit.append(record)
            if count % 50 == 0:
                await asyncio.sleep(0.003)
        await until(lambda: audit.failing)
        audit.admit()
        audit.append(record)
        with pytest.raises(Unavailable):
            audit.admit()
        await asyncio.sleep(0.1)
        assert len(lines(tmp_path)) < 10
        assert telemetry.registry.get_sample_value("pdp_audit_waiting") == 501 - len(lines(tmp_path))
    await until(lambda: not audit.failing)
    assert audit.close(10)
    audit.admit()
    assert [line["seq"] for line in lines(tmp_path)] == list(range(501))
    assert telemetry.registry.get_sample_value("pdp_audit_waiting") == 0
    assert telemetry.registry.get_sample_value("pdp_audit_records_total") == 501


async def test_a_record_that_cannot_be_encoded_keeps_its_outcome_and_holds_up_no_other(
    tmp_path: Path, record: Any
) -> None:
    telemetry = Telemetry()
    audit = file_audit(tmp_path, telemetry)
    (decided,) = record.checks
    leaf = replace(decided.concrete[0], verdicts=Verdicts(bytes(1), [7]))  # type: ignore[list-item]
    broken = replace(record, checks=(replace(decided, concrete=(leaf,)),))
    for one in (record, broken, *[record] * TURN):
        audit.append(one)
    await until(partial(has_lines, tmp_path, TURN + 2))
    assert not audit.failing
    assert audit.close(10)
    written = lines(tmp_path)
    assert [line["seq"] for line in written] == list(range(TURN + 2))
    rest = written.pop(1)
    assert (rest["id"], rest["allowed"], rest["checks"]) == (record.answer.id, "0", [])
    assert "TypeError" in rest["unencodable"]
    assert all(line["checks"][0]["by"] == ["default_deny"] for line in written)
    assert telemetry.registry.get_sample_value("pdp_audit_unencodable_total") == 1


async def test_a_stuck_destination_takes_no_time_from_others_at_the_close(
    tmp_path: Path, record: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_each_sync(monkeypatch, lambda: time.sleep(0.2))
    pipe, telemetry = PipeReader(), Telemetry()
    pipe.pause()
    pipe.fill()
    metrics = SinkMetrics(telemetry, "stdout")
    sinks: list[AuditSink] = [
        LineIntake(StdoutOutput(pipe.write, metrics), IntakeOptions("i"), metrics),
        LineSink(AuditFolder(tmp_path, "i"), "batch", telemetry.audit_written.inc),
    ]
    audit = RecordQueue("i", sinks, telemetry)
    audit.append(record)
    assert not audit.close(1)
    assert [file.path.name for file in segment_files(tmp_path)] == ["decisions-i-000001.jsonl"]
    assert len(lines(tmp_path)) == 1
    pipe.go_on()
    assert sinks[0].close(20)
    pipe.close()


async def test_what_waits_is_bounded_by_bytes_before_and_after_encoding(tmp_path: Path, large: Any) -> None:
    with largest_file(4000):
        audit = file_audit(tmp_path, options=TrailOptions(3 << 20))
        for _ in range(6):
            audit.append(large)
        estimate = audit.waiting_bytes()
        with pytest.raises(Unavailable):
            audit.admit()
        await until(lambda: audit.waiting_bytes() < estimate / 2)
        audit.admit()  # encoded, these records are smaller than they seemed
        while audit.waiting_bytes() < 3 << 20:
            audit.append(large)
            await asyncio.sleep(0.001)
        with pytest.raises(Unavailable):
            audit.admit()
    await until(lambda: not audit.failing)
    assert audit.close(10)
    audit.admit()
    assert audit.waiting_bytes() == 0


async def test_a_change_that_begins_is_recorded_at_the_bound_and_a_refusal_is_not(tmp_path: Path, large: Any) -> None:
    """The change was admitted. Without its record it would be written and left out of the audit."""
    with largest_file(4000):
        audit = file_audit(tmp_path, options=TrailOptions(3 << 20))
        while audit.waiting_bytes() < 3 << 20:
            audit.append(large)
        event = ManagementEvent(operation="write_grants", caller="c", allowed=False, code=BEGUN)
        assert audit.note(event)
        assert not audit.note(replace(event, code="forbidden"))
    await until(lambda: not audit.failing)
    assert audit.close(10)
    assert [line["code"] for line in lines(tmp_path) if line.get("event") == "management"] == [BEGUN]


@pytest.mark.waits
@pytest.mark.process
def test_a_full_disk_refuses_requests_before_the_memory_is_full(tmp_path: Path) -> None:
    checks = [CHECK | {"resource": f"table:lake/{'a' * 300}{at}@prod"} for at in range(5000)]
    body = json.dumps({"checks": checks}).encode()
    bound = f"audit.max_waiting_bytes={8 << 20}"
    with serve_process(tmp_path, "--set", bound, limits={"FSIZE": 1 << 20}) as process:
        own, answered = psutil.Process(process.process.pid), []
        before = own.memory_info().rss
        for _ in range(30):
            answer = fetch(process.url("/v1/check"), body)
            if answer.status == 503:
                break
            answered.append(answer.json()["decisionId"])
        assert answer.status == 503
        assert 1 < len(answered) < 16
        assert fetch(process.url("/v1/check"), BODY).status == 503
        assert fetch(process.url("/health/ready", "diagnostics")).status == 503
        assert own.memory_info().rss - before < 100 << 20
        resource.prlimit(process.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        deadline = time.monotonic() + 20
        while fetch(process.url("/v1/check"), BODY).status != 200:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert process.terminate() == 0
    records = process.records()
    assert [record["id"] for record in records if record["event"] == "decision"][: len(answered)] == answered


@pytest.mark.process
def test_a_killed_process_loses_no_more_than_the_newest_records(tmp_path: Path) -> None:
    answered: list[tuple[float, str]] = []
    with (
        serve_process(tmp_path) as process,
        closing(http.client.HTTPConnection(process.addresses["http"], timeout=30)) as client,
    ):
        ended = time.monotonic() + 1
        while time.monotonic() < ended:
            client.request("POST", "/v1/check", BODY, {"Content-Type": "application/json"})
            reply = json.loads(client.getresponse().read())
            answered.append((time.monotonic(), reply["decisionId"]))
        killed = time.monotonic()
        process.process.kill()
        process.process.wait(10)
    written = [record["id"] for record in audit_records(tmp_path, running=True)]
    assert written == [id for _, id in answered][: len(written)]
    # the window is 10 to 20 ms; a machine under load may not run the process for much longer
    assert [at for at, id in answered[len(written) :] if at < killed - 0.5] == []
