"""A service with several sinks: what each gets, while others fail, over stops, kills and restarts."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.clients.http_client import fetch
from support.oracles.audit_files import all_records
from support.servers.audit_receiver import AuditReceiver, receiving
from support.service.audit_sinks import until
from support.service.serving import Process, serve_process

pytestmark = [pytest.mark.process, pytest.mark.waits]

QUESTION = {"principal": "user:oidc~Alice", "action": "read_data"}
CHECK = {**QUESTION, "resource": "table:lake/Foo@prod"}
BODY = json.dumps({"checks": [CHECK]}).encode()


def with_sinks(folder: Path, *sinks: dict[str, Any], **audit: Any) -> list[str]:
    """Return the options of a service with sinks."""
    keys = {"sinks": [{"file": str(folder / "audit")}, *sinks], **audit}
    return [part for key, value in keys.items() for part in ("--set", f"audit.{key}={json.dumps(value)}")]


def http_sink(folder: Path, receiver: AuditReceiver) -> dict[str, Any]:
    spool = str(folder / "spool-http")
    return {"http": {"url": receiver.url, "spool": spool, "batch_seconds": 0.05, "timeout_seconds": 1}}


def otlp_sink(folder: Path, receiver: AuditReceiver) -> dict[str, Any]:
    return {"otlp": {"endpoint": f"http://127.0.0.1:{receiver.port}", "spool": str(folder / "spool-otlp")}}


def ask(process: Process, count: int) -> list[str]:
    """Ask, and return the ids of the decisions."""
    ids = []
    for _ in range(count):
        answer = fetch(process.url("/v1/check"), BODY)
        assert answer.status == 200
        ids.append(answer.json()["decisionId"])
    return ids


def readiness(process: Process) -> tuple[int, dict[str, Any]]:
    answer = fetch(process.url("/health/ready", "diagnostics"))
    return answer.status, answer.json()


def by_place(records: Iterable[dict[str, Any]]) -> dict[str, dict[int, dict[str, Any]]]:
    """Return the records by instance and number, without the lines that hold segments together."""
    found: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
    for record in records:
        if "id" in record and "seq" in record:
            assert found[record["instance"]].setdefault(record["seq"], record) == record
    return dict(found)


def assert_no_gap(records: Iterable[dict[str, Any]]) -> None:
    for numbered in by_place(records).values():
        assert sorted(numbered) == list(range(len(numbered)))


@pytest.mark.parametrize("workers", [1, 2])
def test_stdout_has_the_records_alone(tmp_path: Path, workers: int) -> None:
    tables = [f"table:lake/{'n' * 60}{number}@prod" for number in range(300)]
    long = json.dumps({"checks": [{**QUESTION, "resources": tables}], "answer": "indices"}).encode()
    with serve_process(tmp_path, *with_sinks(tmp_path, {"stdout": True}), "--workers", str(workers)) as process:
        ask(process, 50)
        for _ in range(20):
            assert fetch(process.url("/v1/check"), long).status == 200
        ask(process, 50)
        assert process.terminate() == 0
        assert "pdp serves" in process.stderr()
    lines = [json.loads(line) for line in (tmp_path / "stdout").read_bytes().splitlines()]
    assert by_place(lines) == by_place(all_records(tmp_path))
    assert len(by_place(lines)) == workers
    assert_no_gap(lines)
    for instance in by_place(lines):
        own = [line["seq"] for line in lines if line["instance"] == instance]
        assert own == sorted(own)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_receiver_that_is_down_holds_up_nothing(tmp_path: Path, workers: int) -> None:
    with receiving() as receiver:
        receiver.stop()
        with serve_process(
            tmp_path, *with_sinks(tmp_path, http_sink(tmp_path, receiver)), "--workers", str(workers)
        ) as process:
            ids = ask(process, 40)
            until(lambda: "details" in readiness(process)[1])
            status, body = readiness(process)
            assert (status, body["status"]) == (200, "ready")
            ((part, condition),) = list(body["details"].items())[:1]
            assert part.endswith("audit http")
            assert "Connection refused" in condition
            metrics = fetch(process.url("/metrics", "diagnostics")).text
            assert 'pdp_audit_sink_delivered_total{sink="http"} 0.0' in metrics
            (waiting,) = re.findall(r'pdp_audit_sink_waiting_bytes{sink="http"} (\S+)', metrics)
            assert float(waiting) > 1000
            until(lambda: set(ids) <= {record["id"] for record in process.records()})
            receiver.start()
            until(lambda: set(ids) <= set(taken(receiver)), 40)
            until(lambda: "details" not in readiness(process)[1])
            assert process.terminate() == 0
        assert by_place(receiver.records()) == by_place(all_records(tmp_path))


def test_a_stop_and_a_start_go_on(tmp_path: Path) -> None:
    with receiving() as receiver:
        receiver.stop()
        options = with_sinks(tmp_path, http_sink(tmp_path, receiver), otlp_sink(tmp_path, receiver))
        for _ in range(2):
            with serve_process(tmp_path, *options) as process:
                ask(process, 10)
                assert process.terminate() == 0
        receiver.start()
        with serve_process(tmp_path, *options) as process:
            ask(process, 10)
            until(lambda: len(receiver.records()) >= 2 * len(process.records()), 40)
            assert process.terminate() == 0
        wanted = by_place(all_records(tmp_path))
        assert by_place(receiver.records()) == wanted
        for form in ("application/x-ndjson", "application/json"):
            of_form = [batch for batch in receiver.batches if batch.headers["content-type"] == form]
            assert of_form


def taken(receiver: AuditReceiver) -> Iterable[str]:
    return (record["id"] for record in receiver.records())


def spooled(folder: Path) -> Iterable[str]:
    """Yield the ids of records in the spool. Files may vanish meanwhile."""
    for file in (folder / "spool-http").glob("*.jsonl"):
        with contextlib.suppress(FileNotFoundError):
            yield from re.findall(r'"id":"([^"]+)"', file.read_text())


def reached_the_spool(folder: Path, receiver: AuditReceiver, ids: Iterable[str]) -> bool:
    return set(ids) <= {*spooled(folder), *taken(receiver)}


def test_killed_services_lose_nothing_that_reached_the_spool(tmp_path: Path) -> None:
    with receiving(lambda number: "503" if number % 3 else "ok") as receiver:
        ids: list[str] = []
        for _ in range(4):
            with serve_process(
                tmp_path, *with_sinks(tmp_path, http_sink(tmp_path, receiver), durability="batch")
            ) as process:
                asked = ask(process, 60)
                until(partial(reached_the_spool, tmp_path, receiver, asked))
                ids += asked
                process.process.send_signal(signal.SIGKILL)
                process.process.wait(10)
        receiver.conduct = lambda number: "ok"
        with serve_process(tmp_path, *with_sinks(tmp_path, http_sink(tmp_path, receiver))) as process:
            until(lambda: set(ids) <= set(taken(receiver)), 40)
            assert process.terminate() == 0
        assert_no_gap(receiver.records())


@pytest.mark.parametrize("workers", [1, 2])
def test_no_answer_leaves_before_its_record_is_in_the_spool(tmp_path: Path, workers: int) -> None:
    """Without files, the spool is what `durability: request` rests on: each answer before a kill has its record."""
    with receiving(lambda number: "ok" if number % 2 else "503") as receiver:
        ids: list[str] = []
        options = [
            "--set", f"audit.sinks={json.dumps([http_sink(tmp_path, receiver)])}",
            "--set", "audit.durability=request", "--workers", str(workers),
        ]  # fmt: skip
        for _ in range(3):
            with serve_process(tmp_path, *options) as process:
                ids += ask(process, 15)
                process.process.send_signal(signal.SIGKILL)
                process.process.wait(10)
        assert set(ids) <= {*spooled(tmp_path), *taken(receiver)}
        assert not (tmp_path / "audit").exists()
        with serve_process(tmp_path, *options) as process:
            until(lambda: set(ids) <= set(taken(receiver)), 40)
            assert process.terminate() == 0
        assert_no_gap(receiver.records())


def test_a_reader_of_stdout_that_ends_harms_no_file(tmp_path: Path) -> None:
    read, write = os.pipe()
    with serve_process(tmp_path, *with_sinks(tmp_path, {"stdout": True}), stdout=write) as process:
        os.close(write)
        os.close(read)
        ids = ask(process, 20)
        until(lambda: readiness(process)[0] == 503)
        body = readiness(process)[1]
        assert body["reasons"] == ["the audit cannot be written"]
        assert "Broken pipe" in body["details"]["audit stdout"]
        ids += ask(process, 20)
        until(lambda: set(ids) <= {record["id"] for record in process.records()})
