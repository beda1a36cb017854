"""Sinks of audits with real destinations, and batches to put into them."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import termios
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from uuid_utils import uuid7

from pdp.app.wiring import open_sinks
from pdp.audit.push.spool_reader import spooled_instances
from pdp.audit.queue.sinks import AuditSink, LineBatch
from pdp.config.load import make_settings
from pdp.telemetry import Telemetry

FAST = {"timeout_seconds": 10, "batch_seconds": 0.01, "batch_records": 10}
"""Keys of a push that make tests quick."""


def new_instance() -> str:
    return uuid7().hex


def open_sink(folder: Path, sink: dict[str, Any], instance: str, **audit: Any) -> AuditSink:
    """Open the one sink of a configuration."""
    settings = make_settings({"audit": {"sinks": [sink], **audit}}, folder)
    (opened,) = open_sinks(settings, instance, Telemetry())
    return opened


def batches(instance: str, sizes: Sequence[int], first: int = 0, text: str = "") -> Iterator[LineBatch]:
    """Yield batches of as many records as `sizes` say."""
    seq = first
    for size in sizes:
        lines = [record_line(instance, number, text) for number in range(seq, seq + size)]
        yield LineBatch(lines, size, sum(map(len, lines)) + 64 * size, {}, seq)
        seq += size


def record_line(instance: str, seq: int, text: str = "") -> bytes:
    record = {
        "event": "decision", "schema": 1, "id": f"{instance}-{seq}", "instance": instance, "seq": seq,
        "time": "2026-01-02T03:04:05.678901Z", "surface": "check", "note": f'{text}é\u2028"\\',
    }  # fmt: skip
    return json.dumps(record, ensure_ascii=False).encode() + b"\n"


def until(found: Callable[[], object], seconds: float = 20.0) -> None:
    """Wait until something is true."""
    end = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.01)


def assert_complete(records: Sequence[dict[str, Any]], wanted: dict[str, int]) -> None:
    """Check that each instance has all records, at least once, and each for the first time in order."""
    seen: dict[str, int] = dict.fromkeys(wanted, -1)
    for record in records:
        if "seq" in record:
            instance, seq = record["instance"], record["seq"]
            assert seq <= seen[instance] + 1, f"{instance}: {seq} came before {seen[instance] + 1}"
            seen[instance] = max(seen[instance], seq)
    assert {instance: last + 1 for instance, last in seen.items()} == wanted


def is_delivered(folder: Path) -> bool:
    """Tell whether a spool of ended instances is empty."""
    return not spooled_instances(folder)


class PipeReader:
    """Reader of a pipe in place of stdout."""

    def __init__(self) -> None:
        self._read, self.write = os.pipe()
        self.text = b""
        self._lock = threading.Lock()
        self._goes_on = threading.Event()
        self._goes_on.set()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while select.select([self._read], [], [])[0]:
            self._goes_on.wait()
            with self._lock:
                part = os.read(self._read, 65536)
                self.text += part
            if not part:
                return

    def pause(self) -> None:
        """Read nothing."""
        self._goes_on.clear()

    def fill(self) -> None:
        """Fill the pipe with empty lines."""
        os.set_blocking(self.write, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(self.write, b"\n")
        os.set_blocking(self.write, True)

    def go_on(self) -> None:
        self._goes_on.set()

    def records(self) -> list[dict[str, Any]]:
        """Return all whole lines in the pipe so far, without empty and torn ones."""
        until(self._is_empty)
        whole = self.text[: self.text.rfind(b"\n") + 1]
        return [json.loads(line) for line in whole.splitlines() if line.startswith(b"{") and line.endswith(b"}")]

    def _is_empty(self) -> bool:
        with self._lock:
            return fcntl.ioctl(self._read, termios.FIONREAD, bytes(4)) == bytes(4)

    def close(self) -> None:
        os.close(self.write)
        self._thread.join(10)
        os.close(self._read)
