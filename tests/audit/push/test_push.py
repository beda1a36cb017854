"""Push of records: what the receiver gets, whom the service trusts, and what happens at the bound of the spool."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from support.generators.generated_pdps import decide_and_record, make_pdp
from support.servers.audit_receiver import receiving
from support.servers.idp import Authority
from support.service.audit_sinks import FAST, PipeReader, assert_complete, batches, new_instance, until

from pdp.app.wiring import open_sinks
from pdp.audit.push import delivery
from pdp.audit.push.bodies import OtlpLogs
from pdp.audit.push.spool import RefusedRecords, Spool, SpoolFull
from pdp.audit.push.spool_reader import BatchLimits
from pdp.audit.queue import intake
from pdp.audit.queue.intake import IntakeOptions, LineIntake
from pdp.audit.queue.queue import RecordQueue, TrailOptions
from pdp.audit.queue.sinks import SinkMetrics, StdoutOutput
from pdp.config.load import make_settings
from pdp.telemetry import Telemetry

CANARY = "canary-19c4"
MIB = 1 << 20


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(delivery, "LONGEST_PAUSE", 0.05)
    monkeypatch.setattr(intake, "RETRY_SECONDS", 0.02)


def opened(folder: Path, sink: dict[str, Any], telemetry: Telemetry | None = None, **audit: Any) -> LineIntake:
    settings = make_settings({"audit": {"sinks": [sink], **audit}}, folder)
    (found,) = open_sinks(settings, new_instance(), telemetry or Telemetry())
    assert isinstance(found, LineIntake)
    return found


def put(sink: LineIntake, *sizes: int, first: int = 0, text: str = "") -> None:
    for batch in batches(sink._options.instance, sizes, first, text):
        sink.put(batch)


def has_trouble(sink: LineIntake, word: str) -> bool:
    return word in sink.trouble()


@pytest.mark.parametrize("form", ["http", "otlp"])
@pytest.mark.parametrize("status", ["400", "413", "422"])
def test_a_record_that_is_refused_for_good_holds_up_no_other(tmp_path: Path, form: str, status: str) -> None:
    telemetry = Telemetry()
    bad = {0, 7, 8, 33, 64, 99}

    def refuses(body: bytes) -> str:
        return status if any(b'"note": "bad' in line.replace(b"\\", b"") for line in body.splitlines()) else ""

    with receiving() as receiver:
        receiver.refuses = refuses
        url = {"url": receiver.url} if form == "http" else {"endpoint": receiver.url.partition("/audit")[0]}
        sink = opened(tmp_path, {form: {**url, **FAST}}, telemetry)
        for at in range(100):
            put(sink, 1, first=at, text="bad" if at in bad else "")
        until(lambda: sink.waiting() == 0)
        assert receiver.requests < 100
        taken = [record["seq"] for record in receiver.records()]
        ids = [batch.id for batch in (*receiver.batches, *receiver.refused)]
        assert sink.close(20)
    assert taken == [at for at in range(100) if at not in bad]
    assert len(ids) == len(set(ids))
    (file,) = (tmp_path / "audit-spool").rglob("refused/*.jsonl")
    assert [json.loads(line)["seq"] for line in file.read_bytes().splitlines()] == sorted(bad)
    assert file.stat().st_mode & 0o077 == file.parent.stat().st_mode & 0o077 == 0
    text = telemetry.text().decode()
    assert f'pdp_audit_sink_refused_total{{sink="{form}"}} 6.0' in text
    assert f'pdp_audit_sink_delivered_total{{sink="{form}"}} 94.0' in text


def test_refused_records_are_bounded(tmp_path: Path) -> None:
    refused = RefusedRecords(tmp_path, 1000)
    refused.keep("aa", b"x" * 499 + b"\n")
    refused.keep("bb", b"y" * 499 + b"\n")
    with pytest.raises(OSError, match="too many"):
        refused.keep("bb", b"z\n")
    assert [(refused.path / f"{one}.jsonl").stat().st_size for one in ("aa", "bb")] == [500, 500]


# --- what the receiver gets ------------------------------------------------------------------------------------------


def test_a_batch_has_an_id_headers_and_the_lines(tmp_path: Path) -> None:
    (tmp_path / "headers").write_text(f"Authorization: Bearer {CANARY}\nX-Scope: a b\n")
    with receiving() as receiver:
        sink = opened(tmp_path, {"http": {"url": receiver.url, **FAST, "headers_file": "headers"}})
        put(sink, 25)
        assert sink.close(20)
        assert [batch.body.count(b"\n") for batch in receiver.batches] == [10, 10, 5]
        assert len({batch.id for batch in receiver.batches}) == 3
        for batch in receiver.batches:
            assert batch.headers["authorization"] == f"Bearer {CANARY}"
            assert batch.headers["x-scope"] == "a b"
            assert batch.headers["content-type"] == "application/x-ndjson"
            assert batch.headers["content-encoding"] == "gzip"
            assert batch.headers["user-agent"].startswith("pdp/")


@pytest.mark.parametrize(("gzip", "encoding"), [(True, "gzip"), (False, None)])
def test_compression_is_a_choice(tmp_path: Path, gzip: bool, encoding: str | None) -> None:
    with receiving() as receiver:
        sink = opened(tmp_path, {"http": {"url": receiver.url, **FAST, "gzip": gzip}})
        put(sink, 3)
        assert sink.close(20)
        assert [batch.headers.get("content-encoding") for batch in receiver.batches] == [encoding]


def test_opentelemetry_gets_log_records(tmp_path: Path) -> None:
    with receiving() as receiver:
        sink = opened(tmp_path, {"otlp": {"endpoint": f"http://127.0.0.1:{receiver.port}/", "service": "mine", **FAST}})
        put(sink, 2)
        assert sink.close(20)
        (batch,) = receiver.batches
    assert batch.headers["content-type"] == "application/json"
    (resource,) = json.loads(batch.body)["resourceLogs"]
    assert {"key": "service.name", "value": {"stringValue": "mine"}} in resource["resource"]["attributes"]
    (scope,) = resource["scopeLogs"]
    assert scope["scope"]["name"] == "pdp.audit"
    first, second = scope["logRecords"]
    assert first["timeUnixNano"] == "1767323045678901000"
    assert (first["eventName"], first["severityNumber"]) == ("pdp.decision", 9)
    assert {"key": "pdp.seq", "value": {"intValue": "1"}} in second["attributes"]
    assert json.loads(first["body"]["stringValue"])["seq"] == 0


def test_a_log_record_belongs_to_its_trace() -> None:
    line = (
        b'{"event":"decision","time":"2026-01-01T00:00:00.000000Z","traceId":"'
        + b"a" * 32
        + b'","spanId":"'
        + b"b" * 16
    )
    odd = [b'{"event":7}', b"no JSON \xff", b'{"time":"yesterday"}', b"[]"]
    body = json.loads(OtlpLogs("pdp").body(b"\n".join([line + b'"}', *odd]) + b"\n"))
    first, *others = body["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
    assert (first["traceId"], first["spanId"]) == ("a" * 32, "b" * 16)
    assert [record["timeUnixNano"] for record in others] == ["0"] * 4
    assert all("traceId" not in record for record in others)


def test_records_that_a_receiver_refuses_for_good_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    telemetry = Telemetry()
    with receiving() as receiver:
        receiver.answer = b'{"partialSuccess":{"rejectedLogRecords":"2","errorMessage":"x"}}'
        sink = opened(tmp_path, {"otlp": {"endpoint": receiver.url.partition("/audit")[0], **FAST}}, telemetry)
        put(sink, 5)
        assert sink.close(20)
    metrics = telemetry.text().decode()
    assert 'pdp_audit_sink_refused_total{sink="otlp"} 2.0' in metrics
    assert 'pdp_audit_sink_delivered_total{sink="otlp"} 3.0' in metrics


# --- whom the service trusts -----------------------------------------------------------------------------------------


def tls_of(authority: Authority) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("receiver"))
    return context


def test_a_receiver_needs_a_certificate_of_the_authority(tmp_path: Path) -> None:
    ours, others = Authority(tmp_path, "ours"), Authority(tmp_path, "others")
    with receiving(tls=tls_of(ours)) as receiver:
        for ca in (others.path.name, None):
            key = {} if ca is None else {"ca": ca}
            sink = opened(tmp_path, {"http": {"url": receiver.url, "spool": f"spool-{ca}", **key, **FAST}})
            put(sink, 5)
            until(partial(has_trouble, sink, "certificate"))
            assert sink.close(1), "the spool keeps the records"
        assert receiver.requests == 0
        sink = opened(tmp_path, {"http": {"url": receiver.url, "spool": "spool-None", "ca": ours.path.name, **FAST}})
        until(lambda: len(receiver.records()) == 5)
        assert sink.close(20)


@pytest.mark.parametrize("status", ["301", "302", "307", "308"])
def test_a_redirect_gets_no_secret(tmp_path: Path, status: str) -> None:
    (tmp_path / "headers").write_text(f"Authorization: Bearer {CANARY}")
    with receiving() as other, receiving(lambda number: status) as receiver:
        receiver.answer_headers = {"Location": other.url}
        sink = opened(tmp_path, {"http": {"url": receiver.url, **FAST, "headers_file": "headers"}})
        put(sink, 1)
        until(lambda: f"status {status}" in sink.trouble())
        assert sink.close(1)
        assert other.requests == 0


def replace_text(file: Path, text: str) -> None:
    """Replace a file at once: a reader never sees half of it."""
    beside = file.with_name(f"{file.name}.new")
    beside.write_text(text)
    beside.replace(file)


def test_a_new_token_is_read_after_a_refusal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "headers"
    file.write_text("Authorization: Bearer old")

    with receiving() as receiver:
        receiver.conduct = lambda number: "ok" if file.read_text().endswith("new") and number > 5 else "401"
        sink = opened(tmp_path, {"http": {"url": receiver.url, **FAST, "headers_file": "headers"}})
        put(sink, 3)
        until(lambda: receiver.requests > 2)
        replace_text(file, "nonsense")
        until(lambda: receiver.requests > 4)
        replace_text(file, "Authorization: Bearer new")
        until(lambda: receiver.batches)
        assert sink.close(20)
        assert receiver.batches[-1].headers["authorization"] in ("Bearer new", "Bearer old")
        assert_complete(receiver.records(), {sink._options.instance: 3})


def test_reopening_reads_the_headers_and_tries_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "FIRST_PAUSE", 60)
    monkeypatch.setattr(delivery, "LONGEST_PAUSE", 60)
    (tmp_path / "headers").write_text("X-A: 1")
    with receiving(lambda number: "ok" if number else "503") as receiver:
        sink = opened(tmp_path, {"http": {"url": receiver.url, **FAST, "headers_file": "headers"}})
        put(sink, 3)
        until(lambda: sink.trouble().startswith("status 503, for 0 seconds"))
        (tmp_path / "headers").write_text("X-A: 2")
        sink.reopen()
        until(lambda: receiver.batches)
        assert receiver.batches[0].headers["x-a"] == "2"
        assert not sink.trouble()
        assert sink.close(20)


def test_a_pause_that_the_receiver_asks_for_is_kept(tmp_path: Path) -> None:
    with receiving(lambda number: "ok" if number else "429") as receiver:
        receiver.answer_headers = {"Retry-After": "30"}
        sink = opened(tmp_path, {"http": {"url": receiver.url, **FAST}})
        put(sink, 3)
        until(sink.trouble)
        with pytest.raises(AssertionError, match="not in time"):
            until(lambda: receiver.requests > 1, 0.5)
        assert sink.close(0.5)


def test_no_secret_is_logged(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "headers").write_text(f"Authorization: Bearer {CANARY}")
    for conduct in ("close", "garbage", "500"):
        with receiving(lambda number, conduct=conduct: conduct) as receiver:  # type: ignore[misc]
            url = f"{receiver.url}&token={CANARY}"
            sink = opened(tmp_path, {"http": {"url": url, **FAST, "headers_file": "headers", "spool": conduct}})
            put(sink, 1, text=CANARY)
            until(sink.trouble)
            assert CANARY not in sink.trouble()
            assert sink.close(1)
    said = capfd.readouterr()
    assert "audit cannot be delivered" in said.out + said.err
    assert CANARY not in said.out + said.err


# --- the bound of the spool ------------------------------------------------------------------------------------------


def test_a_full_spool_takes_no_more_until_the_receiver_comes_back(tmp_path: Path) -> None:
    with receiving() as receiver:
        receiver.stop()
        sink = opened(tmp_path, {"http": {"url": receiver.url, "spool_mib": 16, **FAST, "batch_records": 1000}})
        put(sink, *[20] * 40, text="x" * 30_000)
        until(lambda: sink.progress.failing)
        assert 400 <= sink.progress.records < 800
        assert "spool is full" in sink.trouble()
        assert sum(file.stat().st_size for file in (tmp_path / "audit-spool/http").iterdir()) <= 16 * MIB + 1000
        receiver.start()
        until(lambda: sink.progress.records == 800, 60)
        assert not sink.progress.failing
        assert sink.close(30)
        assert_complete(receiver.records(), {sink._options.instance: 800})


def test_on_full_drop_loses_what_is_beyond_the_bound_and_says_so(tmp_path: Path) -> None:
    telemetry = Telemetry()
    with receiving() as receiver:
        receiver.stop()
        push = {"url": receiver.url, "spool_mib": 16, **FAST, "batch_records": 1000}
        sink = opened(tmp_path, {"http": push}, telemetry, on_full="drop")
        put(sink, *[20] * 40, text="x" * 30_000)
        until(lambda: sink.progress.records == 800)
        assert not sink.progress.failing, "requests go on, and the service is ready"
        assert sink.trouble()
        receiver.start()
        until(lambda: sink.waiting() == 0, 60)
        put(sink, 3, first=800)
        assert sink.close(30)
        records = receiver.records()
    kept = [record["seq"] for record in records if "seq" in record]
    told = [record["details"] for record in records if record.get("what") == "records_dropped"]
    lost = sum(details["records"] for details in told)
    assert len(kept) == len(set(kept)) == 803 - lost
    assert 0 < lost < 400
    assert kept == sorted(kept)
    assert f'pdp_audit_sink_dropped_total{{sink="http"}} {lost}.0' in telemetry.text().decode()
    missing = set(range(803)) - set(kept)
    assert min(missing) == told[0]["firstSeq"]
    assert max(missing) == told[-1]["lastSeq"]
    assert {details["sink"] for details in told} == {"http"}


async def test_on_full_drop_lets_answers_leave_whose_records_are_given_up(tmp_path: Path) -> None:
    record = await asyncio.to_thread(
        lambda: decide_and_record(make_pdp({}, {}), [{"principal": "p", "action": "a", "resource": "r" * 30_000}])[1]
    )
    options = TrailOptions(durability="request", on_full="drop")
    with receiving() as receiver:
        receiver.stop()
        push = {"url": receiver.url, "spool_mib": 16, **FAST}
        sink = opened(tmp_path, {"http": push}, on_full="drop", durability="request")
        audit = RecordQueue(sink._options.instance, [sink], Telemetry(), options)
        for _ in range(40):
            for _ in range(20):
                audit.append(record)
            await asyncio.wait_for(audit.gate.durable(), 5)
        assert sink.trouble()
        assert await asyncio.to_thread(audit.close, 20)


def test_an_answer_waits_for_all_batches_before_a_dropped_one() -> None:
    may_write = threading.Event()

    class SlowOutput(StdoutOutput):
        def append(self, text: bytes) -> None:
            may_write.wait(20)
            super().append(text)

    reader = PipeReader()
    metrics = SinkMetrics(Telemetry(), "x")
    sink = LineIntake(SlowOutput(reader.write, metrics), IntakeOptions("i", 3000, promises=True), metrics)
    changes: list[int] = []
    sink.progress.changed = lambda: changes.append(sink.progress.durable)
    put(sink, *[5] * 10)
    lost = sink.progress.records
    assert 0 < lost < 50, "batches at the end are dropped at once"
    assert sink.progress.durable == 0
    may_write.set()
    until(lambda: sink.progress.durable == 50)
    assert changes[-1] == 50
    assert sink.close(20)
    assert len([record for record in reader.records() if "seq" in record]) == 50 - lost
    reader.close()


def test_both_threads_count_the_bytes_of_a_spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = Spool(tmp_path, "aa", 10_000, BatchLimits(10, 100))
    spool = Spool(tmp_path, "bb", 10_000, BatchLimits(10, 100))
    ended.append(b"x" * 4000 + b"\n")
    ended.close()
    spool.append(b"y" * 8000 + b"\n")
    counting, goes_on = threading.Event(), threading.Event()
    plain = Spool._on_disk

    def on_disk(of: Spool, *instances: str) -> int:
        if threading.current_thread() is appending:
            counting.set()
            goes_on.wait(10)
        return plain(of, *instances)

    def append() -> None:
        with pytest.raises(SpoolFull):
            spool.append(b"z" * 8000 + b"\n")

    monkeypatch.setattr(Spool, "_on_disk", on_disk)
    appending, taking = threading.Thread(target=append), threading.Thread(target=spool.take_over)
    appending.start()
    counting.wait(10)
    taking.start()
    time.sleep(0.1)
    goes_on.set()
    appending.join()
    taking.join()
    assert spool.size() == sum(file.stat().st_size for file in tmp_path.glob("*.jsonl")) == 12_002
    spool.close()


def test_a_spool_takes_a_write_beyond_its_bound_while_it_is_empty(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "aa", 1000, BatchLimits(10, 100))
    spool.append(b"x" * 5000 + b"\n")
    with pytest.raises(SpoolFull):
        spool.append(b"y\n")
    (reader,) = spool.readers
    batch = reader.next()
    assert batch
    assert batch.lines == b"x" * 5000 + b"\n"
    reader.finish(batch)
    spool.close()
    assert list(tmp_path.iterdir()) == []


def test_a_part_of_a_line_that_a_kill_left_is_not_sent(tmp_path: Path) -> None:
    with receiving() as receiver:
        instance = new_instance()
        folder = tmp_path / "audit-spool/http"
        folder.mkdir(parents=True)
        lines = b"".join(line for batch in batches(instance, [30]) for line in batch.lines)
        (folder / f"{instance}-00000001.jsonl").write_bytes(
            lines + b'{"event":"decision","seq":30,"x":"' + b"y" * 200_000
        )
        sink = opened(tmp_path, {"http": {"url": receiver.url, **FAST}})
        until(lambda: len(receiver.records()) == 30)
        assert sink.close(20)
        assert_complete(receiver.records(), {instance: 30})
        assert list(folder.iterdir()) == []


def test_a_spool_that_somebody_removes_takes_records_again(tmp_path: Path) -> None:
    with receiving() as receiver:
        receiver.stop()
        sink = opened(tmp_path, {"http": {"url": receiver.url, **FAST}})
        put(sink, 10)
        until(lambda: sink.progress.records == 10)
        for file in (tmp_path / "audit-spool/http").iterdir():
            file.unlink()
        (tmp_path / "audit-spool/http").rmdir()
        put(sink, 10, first=10)
        until(lambda: sink.progress.records == 20)
        receiver.start()
        until(lambda: any(record["seq"] == 19 for record in receiver.records()))
        assert sink.close(20)


@pytest.mark.parametrize("cursor", [b"", b"\x00" * 41, b"nonsense\n", b"00000009 000000000000000 000000000000000\n"])
def test_a_lost_cursor_repeats_what_is_in_the_spool(tmp_path: Path, cursor: bytes) -> None:
    with receiving() as receiver:
        receiver.stop()
        sink = opened(tmp_path, {"http": {"url": receiver.url, **FAST}})
        put(sink, 10)
        assert sink.close(1)
        (file,) = (tmp_path / "audit-spool/http").glob("*.cursor")
        file.write_bytes(cursor)
        receiver.start()
        last = opened(tmp_path, {"http": {"url": receiver.url, **FAST}})
        if not cursor.startswith(b"00000009"):
            until(lambda: len(receiver.records()) == 10)
        assert last.close(20)


def test_what_a_draining_service_leaves_is_taken_over_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a rolling restart the successor starts before the service ends."""
    monkeypatch.setattr(delivery, "TAKE_OVER_SECONDS", 0.05)
    with receiving() as receiver:
        receiver.stop()
        before, after = (opened(tmp_path, {"http": {"url": receiver.url, **FAST}}) for _ in range(2))
        put(before, 25)
        put(after, 5)
        assert before.close(1)
        receiver.start()
        until(lambda: len({(record["instance"], record["seq"]) for record in receiver.records()}) == 30)
        until(lambda: after.waiting() == 0)
        assert after.close(20)
        assert_complete(receiver.records(), {before._options.instance: 25, after._options.instance: 5})
        assert list((tmp_path / "audit-spool/http").iterdir()) == []


@pytest.mark.parametrize(("count", "decisions", "text"), [(60_000, 1, ""), (400, 10_000, ""), (6_000, 1, "x" * 500)])
def test_a_sink_that_may_drop_is_never_far_behind(tmp_path: Path, count: int, decisions: int, text: str) -> None:
    """The trail would drop records of all sinks if one of them were."""
    read, write = os.pipe()
    metrics = SinkMetrics(Telemetry(), "stdout")
    sink = LineIntake(StdoutOutput(write, metrics), IntakeOptions("aa", drop_beyond=MIB), metrics)
    for batch in batches("aa", [20] * (count // 20), text=text):
        sink.put(replace(batch, decisions=decisions * 20))
        progress = sink.progress
        assert batch.seq + 20 - progress.records <= 25_020
        assert (batch.seq + 20) * decisions - progress.decisions <= 1_000_000 + 20 * decisions
        assert sink._taken - progress.bytes <= 1.1 * MIB
    os.close(read)
    sink.close(20)
    assert sink.progress.records == count
    os.close(write)


def test_two_instances_share_a_spool_and_take_over_only_the_dead(tmp_path: Path) -> None:
    with receiving() as receiver:
        receiver.stop()
        sinks = [opened(tmp_path, {"http": {"url": receiver.url, **FAST}}) for _ in range(3)]
        for sink in sinks:
            put(sink, 15)
        assert sinks[0].close(1)
        sinks.append(opened(tmp_path, {"http": {"url": receiver.url, **FAST}}))
        put(sinks[-1], 15)
        receiver.start()
        wanted = {sink._options.instance: 15 for sink in sinks}
        until(lambda: len({(record["instance"], record["seq"]) for record in receiver.records()}) == 60)
        assert all(sink.close(20) for sink in sinks[1:])
        assert_complete(receiver.records(), wanted)
        assert len(receiver.records()) == 60
