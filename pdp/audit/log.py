"""The audit trail on disk: one JSON line per request, written by a thread of its own.

A request hands its batch over and goes on; records wait in memory, bounded, while the disk does not take them, and
beyond the bound requests are refused rather than answered unrecorded.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from pathlib import Path
from typing import BinaryIO

import structlog
from uuid6 import uuid7

from pdp.audit.record import DecisionRecord, write_record
from pdp.errors import ConfigError, Unavailable
from pdp.telemetry import Telemetry

WAITING = 10_000
WAITING_DECISIONS = 2_000_000
"""Records, and decisions in them, that may wait for the disk."""
LARGE = 5000
"""Decisions in one record from which the event loop does not encode it."""
AT_ONCE = 100
GATHER_SECONDS = 0.01
"""Records in one write, and how long a write waits for more of them: each wake-up of a thread costs the others."""
RETRY_SECONDS = 1.0

log = structlog.get_logger()


class NoAudit:
    """For dry runs on the command line, where nothing is enforced."""

    def admit(self) -> None:
        """Always open."""

    def append(self, decided: DecisionRecord) -> None:
        """Nothing is kept."""


class _PendingRecord:
    """A record on its way to the disk: a batch, its place in the sequence and, once encoded, its line."""

    __slots__ = ("decided", "line", "seq")

    def __init__(self, decided: DecisionRecord, seq: int) -> None:
        self.decided = decided
        self.seq = seq
        self.line: bytes | None = None


class FileAudit:
    """JSON lines in `<folder>/decisions-<instance>.jsonl`, bundles in `<folder>/bundles/<digest>`.

    Small records are encoded on the event loop once the answer is out: two threads that want the interpreter at the
    same time cost each other more than the encoding takes. Large ones are encoded by the thread that writes.
    """

    def __init__(self, folder: Path, telemetry: Telemetry) -> None:
        self.instance = uuid7().hex
        self.failing = False
        self._folder = folder
        self._path = folder / f"decisions-{self.instance}.jsonl"
        self._telemetry = telemetry
        self._waiting: deque[_PendingRecord] = deque()
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._seq = 0
        self._taken = self._written = 0
        self._kept: set[str] = set()
        try:
            (folder / "bundles").mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("ab", buffering=0)
        except OSError as error:
            raise ConfigError(f"cannot write the audit to `{folder}`: {error.strerror}") from None
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    def admit(self) -> None:
        """Raise Unavailable while too many records wait."""
        if len(self._waiting) >= WAITING or self._taken - self._written >= WAITING_DECISIONS:
            raise Unavailable("the audit cannot be written, so nothing is decided")

    def append(self, decided: DecisionRecord) -> None:
        """Take a decided batch; returns at once. Called on an event loop."""
        self._taken += decided.batch.size
        waiting = _PendingRecord(decided, self._seq)
        self._seq += 1
        self._waiting.append(waiting)
        if decided.batch.size <= LARGE:
            asyncio.get_running_loop().call_soon(self._encode_soon, waiting)
        else:
            self._wake.set()

    def close(self, timeout: float) -> bool:
        """Write what waits; False if some records could not be written in `timeout` seconds."""
        self._closing.set()
        self._wake.set()
        self._thread.join(timeout)
        return not self._waiting

    def _encode_soon(self, waiting: _PendingRecord) -> None:
        try:
            waiting.line = self._encoded(waiting)
        finally:
            self._wake.set()

    def _encoded(self, waiting: _PendingRecord) -> bytes:
        """The line; whoever needs it first makes it, and it is the same whoever does."""
        return waiting.line or write_record(waiting.decided, self.instance, waiting.seq) + b"\n"

    def _run(self) -> None:
        try:
            with self._file:
                while not (self._closing.is_set() and not self._waiting):
                    self._wake.wait()
                    self._wake.clear()
                    self._closing.wait(GATHER_SECONDS)
                    while self._waiting:
                        if not self._write_first():
                            time.sleep(RETRY_SECONDS)
        finally:
            self.failing = self.failing or not self._closing.is_set()  # whatever ended it, nothing is written any more

    def _write_first(self) -> bool:
        """Write the records that have waited longest, in one piece; False where they have to wait on."""
        some = [self._waiting[at] for at in range(min(len(self._waiting), AT_ONCE))]
        try:
            for waiting in some:
                self._keep_bundle(waiting.decided)
            _write_whole(self._file, b"".join([self._encoded(waiting) for waiting in some]))
        except Exception as error:  # noqa: BLE001  nothing is dropped: the records wait, and readiness says so
            self._report(error)
            return False
        self.failing = False
        for waiting in some:
            self._waiting.popleft()
            self._written += waiting.decided.batch.size
        self._telemetry.audit_written.inc(len(some))
        self._telemetry.audit_waiting.set(len(self._waiting))
        return True

    def _keep_bundle(self, decided: DecisionRecord) -> None:
        digest = decided.bundle_digest
        if digest in self._kept:
            return
        path = self._folder / "bundles" / digest
        if not path.exists():
            draft = path.with_suffix(".new")
            draft.write_bytes(decided.bundle_text)
            draft.rename(path)
        self._kept.add(digest)

    def _report(self, error: Exception) -> None:
        was_failing, self.failing = self.failing, True
        if not was_failing:
            cause = getattr(error, "strerror", None) or repr(error)
            log.error("audit cannot be written", folder=str(self._folder), cause=cause)


def _write_whole(file: BinaryIO, text: bytes) -> None:
    """All of it or nothing: a part that was written before a failure is cut off again."""
    start = file.seek(0, 2)
    written = 0
    try:
        while written < len(text):
            written += file.write(text[written:])
    except OSError:
        file.truncate(start)
        raise
