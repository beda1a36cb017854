"""Contract of audit sinks: every record in order and once, progress that is true, failures that show.

A sink joins the contract by a subclass of SinkSetup in `SETUPS`.
"""

from __future__ import annotations

import json
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import pytest
from support.oracles.audit_files import records_in
from support.servers.audit_receiver import AuditReceiver
from support.service.audit_sinks import FAST, PipeReader, open_sink

from pdp.audit.files.folder import AuditFolder
from pdp.audit.files.segments import segment_files
from pdp.audit.queue import file_sink, intake
from pdp.audit.queue import sinks as stdout_output
from pdp.audit.queue.file_sink import LineSink
from pdp.audit.queue.intake import IntakeOptions, LineIntake
from pdp.audit.queue.sinks import AuditSink, LineBatch, SinkMetrics, SlowestProgress, StdoutOutput
from pdp.config.audit import Durability
from pdp.telemetry import Telemetry


class SinkSetup(Protocol):
    """Way to open a sink, to read what it wrote, and to break its destination for a while."""

    def open(self) -> AuditSink:
        """Open a sink."""
        ...

    def arrived(self) -> list[int]:
        """Return the `seq` of all records at the destination, in order."""
        ...

    def kept(self) -> set[int]:
        """Return the `seq` of all records that have left the memory of the process."""
        ...

    def broken(self) -> Any:
        """Return a context in which the destination takes nothing."""
        ...

    def close(self) -> None:
        """End the destination."""
        ...


class FolderSetup:
    """Files in a folder."""

    def __init__(self, folder: Path, durability: Durability) -> None:
        self._folder = folder
        self._durability = durability

    def open(self) -> AuditSink:
        return LineSink(AuditFolder(self._folder, "i"), self._durability, lambda count: None)

    def arrived(self) -> list[int]:
        return [record["seq"] for record in records_in(segment_files(self._folder), running=True)]

    def kept(self) -> set[int]:
        return set(self.arrived())

    @contextmanager
    def broken(self) -> Iterator[None]:
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    def close(self) -> None:
        """Do nothing: the files stay."""


class PipeSetup:
    """A pipe in place of stdout. It is broken while nobody reads."""

    def __init__(self) -> None:
        self._pipe = PipeReader()

    def open(self) -> AuditSink:
        metrics = SinkMetrics(Telemetry(), "stdout")
        return LineIntake(StdoutOutput(self._pipe.write, metrics), IntakeOptions("i"), metrics)

    def arrived(self) -> list[int]:
        return [record["seq"] for record in self._pipe.records()]

    def kept(self) -> set[int]:
        return set(self.arrived())

    @contextmanager
    def broken(self) -> Iterator[None]:
        self._pipe.pause()
        self._pipe.fill()
        try:
            yield
        finally:
            self._pipe.go_on()

    def close(self) -> None:
        self._pipe.close()


class PushSetup(FolderSetup):
    """A spool with a receiver. The receiver may be down: the spool takes records. It is broken if the disk is full."""

    def __init__(self, folder: Path, kind: str, durability: Durability) -> None:
        super().__init__(folder, durability)
        self._receiver = AuditReceiver()
        url = self._receiver.url
        self._sink = {
            "http": {"http": {"url": url, **FAST}},
            "otlp": {"otlp": {"endpoint": url.partition("/audit")[0], **FAST}},
        }[kind]

    def open(self) -> AuditSink:
        return open_sink(self._folder, self._sink, "i", durability=self._durability)

    def arrived(self) -> list[int]:
        """Return what has arrived. A batch may come twice: the disk can be full when its arrival is to be noted."""
        return list(dict.fromkeys(record["seq"] for record in self._receiver.records()))

    def kept(self) -> set[int]:
        """Return what is in the spool, and what has left it for the receiver."""
        text = b""
        for file in self._folder.rglob("*.jsonl"):
            with suppress(FileNotFoundError):  # the receiver has it
                text += file.read_bytes()
        return {json.loads(line)["seq"] for line in text.splitlines() if line.endswith(b"}")} | set(self.arrived())

    def close(self) -> None:
        self._receiver.stop()


SETUPS: dict[str, Callable[[Path], SinkSetup]] = {
    "files-none": lambda folder: FolderSetup(folder, "none"),
    "files-batch": lambda folder: FolderSetup(folder, "batch"),
    "files-request": lambda folder: FolderSetup(folder, "request"),
    "stdout": lambda _: PipeSetup(),
    "http-none": lambda folder: PushSetup(folder, "http", "none"),
    "http-request": lambda folder: PushSetup(folder, "http", "request"),
    "otlp-batch": lambda folder: PushSetup(folder, "otlp", "batch"),
}


@pytest.fixture(params=SETUPS)
def setup(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SinkSetup]:
    monkeypatch.setattr(file_sink, "RETRY_SECONDS", 0.02)
    monkeypatch.setattr(intake, "RETRY_SECONDS", 0.02)
    monkeypatch.setattr(stdout_output, "STALL_SECONDS", 0.05)
    opened = SETUPS[request.param](tmp_path)
    yield opened
    opened.close()


def batch(first: int, count: int, size: int = 10) -> LineBatch:
    lines = [
        json.dumps({"event": "decision", "seq": at, "t": "x" * size}).encode() + b"\n"
        for at in range(first, first + count)
    ]
    return LineBatch(lines, 2 * count, sum(map(len, lines)), {}, first)


def until(happens: Callable[[], Any], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_all_batches_arrive_in_order_and_are_counted(setup: SinkSetup) -> None:
    sink = setup.open()
    seq = size = 0
    for count in (1, 5, 1, 200, 3):
        sent = batch(seq, count)
        sink.put(sent)
        seq, size = seq + count, size + sent.size
    assert sink.close(20)
    assert setup.arrived() == list(range(seq))
    progress = sink.progress
    assert (progress.records, progress.decisions, progress.bytes) == (seq, 2 * seq, size)
    assert not progress.failing


def test_progress_comes_without_any_further_batch(setup: SinkSetup) -> None:
    sink = setup.open()
    for seq in range(3):
        sink.put(batch(seq, 1))
        until(lambda seq=seq: sink.progress.records == seq + 1)  # type: ignore[misc]
        until(lambda seq=seq: setup.arrived() == list(range(seq + 1)))  # type: ignore[misc]
    assert sink.close(20)


def test_durable_never_runs_ahead_and_is_announced(setup: SinkSetup) -> None:
    sink = setup.open()
    progress, seen = sink.progress, []
    progress.changed = lambda: seen.append((progress.durable, progress.records))
    for seq in range(0, 300, 3):
        sink.put(batch(seq, 3))
        assert progress.durable <= seq + 3
        safe = progress.durable
        assert set(range(safe)) <= setup.kept()
        time.sleep(0.001)
    assert sink.close(20)
    assert all(durable <= records for durable, records in seen)
    if progress.promises:
        assert progress.durable == 300
        assert seen[-1] == (300, 300)


def test_a_destination_that_takes_nothing_loses_nothing(setup: SinkSetup) -> None:
    sink = setup.open()
    sink.put(batch(0, 10))
    until(lambda: sink.progress.records == 10)
    with setup.broken():
        for seq in range(10, 100, 10):
            sink.put(batch(seq, 10, 2000))
        until(lambda: sink.progress.failing)
        assert sink.progress.records == 10
        assert not sink.close(0.1)
    until(lambda: not sink.progress.failing)
    assert sink.close(20)
    assert setup.arrived() == list(range(100))


def test_put_never_waits(setup: SinkSetup) -> None:
    sink = setup.open()
    with setup.broken():
        begun = time.monotonic()
        for seq in range(1000):
            sink.put(batch(seq, 1))
        assert time.monotonic() - begun < 10  # a wait of a hundredth of a second in each would show
    assert sink.close(20)
    assert setup.arrived() == list(range(1000))


def test_reopening_loses_and_repeats_nothing(setup: SinkSetup) -> None:
    sink = setup.open()
    for seq in range(200):
        sink.put(batch(seq, 1))
        if seq % 7 == 0:
            sink.reopen()
    sink.reopen()
    sink.reopen()
    assert sink.close(20)
    assert setup.arrived() == list(range(200))


def test_a_sink_ends_without_a_record(setup: SinkSetup) -> None:
    assert setup.open().close(20)
    assert setup.arrived() == []


def test_a_sink_is_closed_from_another_thread(setup: SinkSetup) -> None:
    sink, closed = setup.open(), []
    sink.put(batch(0, 3))
    thread = threading.Thread(target=lambda: closed.append(sink.close(20)))
    thread.start()
    thread.join()
    assert closed == [True]
    assert setup.arrived() == [0, 1, 2]


def test_several_sinks_are_as_far_as_the_slowest(tmp_path: Path) -> None:
    sinks = [FolderSetup(tmp_path / name, "none").open() for name in ("a", "b")]
    slowest = SlowestProgress([sink.progress for sink in sinks])
    sinks[0].put(batch(0, 5))
    until(lambda: sinks[0].progress.records == 5)
    assert (slowest.records, slowest.decisions, slowest.bytes, slowest.failing) == (0, 0, 0, False)
    sinks[1].put(batch(0, 3))
    until(lambda: sinks[1].progress.records == 3)
    assert (slowest.records, slowest.decisions) == (3, 6)
    sinks[1].progress.failing = True
    assert slowest.failing
    assert all(sink.close(20) for sink in sinks)
