"""Contract of audit sinks, on files, a pipe as stdout, and a real receiver of each form of push."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.servers.audit_receiver import CONDUCTS, AuditReceiver, lines_of, receiving
from support.service.audit_sinks import (
    FAST,
    PipeReader,
    assert_complete,
    batches,
    new_instance,
    open_sink,
    record_line,
    until,
)

from pdp.audit.push import delivery
from pdp.audit.queue.sinks import AuditSink

KINDS = ("file", "stdout", "http", "otlp")
PUSHES = ("http", "otlp")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(delivery, "LONGEST_PAUSE", 0.05)


class Destination:
    """A destination of one kind, and the sinks that lead there."""

    def __init__(self, kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch, stack: ExitStack) -> None:
        self.kind = kind
        self.folder = folder
        self.receiver: AuditReceiver | None = None
        self.pipe: PipeReader | None = None
        self.timeout = 10.0
        if kind == "stdout":
            self.pipe = PipeReader()
            stack.callback(self.pipe.close)
            monkeypatch.setattr(sys, "__stdout__", open(self.pipe.write, "w", closefd=False))  # noqa: SIM115
        if kind in PUSHES:
            self.receiver = stack.enter_context(receiving())

    def sink(self) -> dict[str, Any]:
        if self.receiver is None:
            return {"stdout": True} if self.pipe else {"file": "audit"}
        if self.kind == "http":
            return {"http": {"url": self.receiver.url, **FAST, "timeout_seconds": self.timeout}}
        endpoint = f"http://127.0.0.1:{self.receiver.port}"
        return {"otlp": {"endpoint": endpoint, **FAST, "timeout_seconds": self.timeout}}

    def open(self, instance: str, **audit: Any) -> AuditSink:
        return open_sink(self.folder, self.sink(), instance, **audit)

    def records(self) -> list[dict[str, Any]]:
        """Return what has arrived."""
        if self.receiver:
            return self.receiver.records()
        if self.pipe:
            return self.pipe.records()
        files = sorted((self.folder / "audit").glob("decisions-*.jsonl"))
        lines = [json.loads(line) for file in files for line in file.read_bytes().splitlines()]
        return [line for line in lines if line["event"] == "decision"]


@pytest.fixture(params=KINDS)
def destination(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Destination]:
    with ExitStack() as stack:
        yield Destination(request.param, tmp_path, monkeypatch, stack)


@pytest.fixture(params=PUSHES)
def push(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Destination]:
    with ExitStack() as stack:
        yield Destination(request.param, tmp_path, monkeypatch, stack)


@pytest.mark.parametrize("durability", ["none", "batch"])
def test_every_record_arrives_once_and_in_order(destination: Destination, durability: str) -> None:
    instance = new_instance()
    sink = destination.open(instance, durability=durability)
    sizes = [1, 7, 0, 100, 3]
    for batch in batches(instance, sizes):
        sink.put(batch)
    assert sink.close(20)
    found = destination.records()
    assert [record["seq"] for record in found] == list(range(sum(sizes)))
    assert [json.dumps(record, ensure_ascii=False).encode() + b"\n" for record in found] == [
        record_line(instance, seq) for seq in range(sum(sizes))
    ]
    assert (sink.progress.records, sink.progress.decisions, sink.progress.failing) == (111, 111, False)
    assert sink.progress.durable == sink.progress.records or durability == "none" or destination.kind == "stdout"


def test_each_start_goes_on(destination: Destination) -> None:
    wanted = {}
    for count in (5, 0, 33):
        instance = new_instance()
        sink = destination.open(instance)
        for batch in batches(instance, [1] * count):
            sink.put(batch)
        sink.reopen()
        assert sink.close(20)
        wanted[instance] = count
    assert_complete(destination.records(), wanted)


def test_a_long_record_arrives(destination: Destination) -> None:
    instance = new_instance()
    sink = destination.open(instance)
    for batch in batches(instance, [2, 1, 2], text="x" * 3_000_000):
        sink.put(batch)
    assert sink.close(30)
    assert_complete(destination.records(), {instance: 5})


def test_a_receiver_that_is_down_loses_nothing(push: Destination) -> None:
    receiver = push.receiver
    assert receiver
    wanted = {}
    receiver.stop()
    for _ in range(3):
        instance = new_instance()
        sink = push.open(instance)
        for batch in batches(instance, [3] * 10):
            sink.put(batch)
        until(partial(has_written, sink, 30))
        assert not sink.progress.failing, "the spool takes the records"
        assert sink.close(1)
        wanted[instance] = 30
    assert receiver.records() == []
    receiver.start()
    last = push.open(new_instance())
    until(lambda: len(receiver.records()) >= 90)
    assert last.close(20)
    assert_complete(receiver.records(), wanted)
    spool = push.folder / "audit-spool" / push.kind
    assert list(spool.iterdir()) == []


@pytest.mark.parametrize("conduct", [*CONDUCTS, "301", "400", "401", "403", "404", "413", "429", "500", "503"])
def test_a_receiver_that_fails_gets_the_same_batch_again(push: Destination, conduct: str) -> None:
    receiver = push.receiver
    assert receiver
    receiver.conduct = lambda number: conduct if number < 3 else "ok"
    push.timeout = 0.5 if conduct == "hang" else 10
    receiver.answer_headers = {"Retry-After": "0", "Location": receiver.url}
    instance = new_instance()
    sink = push.open(instance)
    for batch in batches(instance, [4] * 5):
        sink.put(batch)
    until(lambda: len({record["seq"] for record in receiver.records()}) == 20)
    assert sink.close(20)
    assert_complete(receiver.records(), {instance: 20})
    assert_same_batches(receiver)


def has_written(sink: AuditSink, count: int) -> bool:
    return sink.progress.records == count


def assert_same_batches(receiver: AuditReceiver) -> None:
    """Check that all batches of one id have the same lines."""
    texts: dict[str, bytes] = {}
    for batch in [*receiver.batches, *receiver.refused]:
        lines = b"\n".join(lines_of(batch))
        assert texts.setdefault(batch.id, lines) == lines, batch.id


@pytest.mark.parametrize("seed", range(6))
def test_a_receiver_of_moods_and_a_service_that_restarts(push: Destination, seed: int) -> None:
    """The receiver fails, hangs, closes and refuses at random, stops and starts; the service does, too."""
    chance = random.Random(seed)
    receiver = push.receiver
    assert receiver
    push.timeout = 0.5
    moods = ["ok"] * 8 + ["503", "429", "500", "close", "close before the answer", "close in the answer", "garbage"]
    receiver.conduct = lambda number: "hang" if chance.random() < 0.03 else chance.choice(moods)
    wanted: dict[str, int] = {}
    for _ in range(6):
        instance = new_instance()
        sink = push.open(instance, durability=chance.choice(["none", "batch"]))
        wanted[instance] = 0
        for _ in range(chance.randrange(30)):
            (batch,) = batches(instance, [chance.randrange(1, 40)], wanted[instance], "x" * chance.randrange(500))
            wanted[instance] += len(batch.lines)
            sink.put(batch)
            if chance.random() < 0.05:
                receiver.stop()
            elif chance.random() < 0.2:
                receiver.stop()
                receiver.start()
            if chance.random() < 0.1:
                sink.reopen()
        assert sink.close(chance.choice([0.5, 5]))
    receiver.conduct = lambda number: "ok"
    receiver.stop()
    receiver.start()
    last = push.open(new_instance())
    until(lambda: last.waiting() == 0, 60)  # type: ignore[attr-defined]
    assert last.close(20)
    assert_complete(receiver.records(), wanted)
    assert_same_batches(receiver)
