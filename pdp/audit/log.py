"""The audit trail on disk: one JSON line per request, written by a thread of its own.

A request hands its batch over and goes on; records wait in memory, bounded, while the disk does not take them, and
beyond the bound requests are refused rather than answered unrecorded.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from pathlib import Path
from typing import BinaryIO

import msgspec
import structlog
from uuid6 import uuid7

from pdp.audit.record import Decided, make_record
from pdp.errors import ConfigError, Unavailable
from pdp.telemetry import Telemetry

WAITING = 10_000
WAITING_DECISIONS = 2_000_000
"""Records, and decisions in them, that may wait for the disk."""
RETRY_SECONDS = 1.0

log = structlog.get_logger()


class NoAudit:
    """For dry runs on the command line, where nothing is enforced."""

    def admit(self) -> None:
        """Always open."""

    def append(self, decided: Decided) -> None:
        """Nothing is kept."""


class FileAudit:
    """JSON lines in `<folder>/decisions-<instance>.jsonl`, bundles in `<folder>/bundles/<digest>`."""

    def __init__(self, folder: Path, telemetry: Telemetry) -> None:
        self.instance = uuid7().hex
        self.failing = False
        self._folder = folder
        self._path = folder / f"decisions-{self.instance}.jsonl"
        self._telemetry = telemetry
        self._waiting: deque[Decided] = deque()
        self._wake = threading.Event()
        self._closing = False
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

    def append(self, decided: Decided) -> None:
        """Take a decided batch; returns at once."""
        self._taken += decided.batch.size
        self._waiting.append(decided)
        self._wake.set()

    def close(self, timeout: float) -> bool:
        """Write what waits; False if some records could not be written in `timeout` seconds."""
        self._closing = True
        self._wake.set()
        self._thread.join(timeout)
        return not self._waiting

    def _run(self) -> None:
        with self._file:
            while not (self._closing and not self._waiting):
                self._wake.wait()
                self._wake.clear()
                self._write_waiting(self._file)

    def _write_waiting(self, file: BinaryIO) -> None:
        while self._waiting:
            decided = self._waiting[0]
            line = msgspec.json.encode(make_record(decided, self.instance, self._seq)) + b"\n"
            try:
                self._keep_bundle(decided)
                _write_whole(file, line)
            except OSError as error:
                self._report(error)
                time.sleep(RETRY_SECONDS)
                continue
            self.failing = False
            self._seq += 1
            self._waiting.popleft()
            self._written += decided.batch.size
            self._telemetry.audit_written.inc()
            self._telemetry.audit_waiting.set(len(self._waiting))

    def _keep_bundle(self, decided: Decided) -> None:
        digest = decided.bundle_digest
        if digest in self._kept:
            return
        path = self._folder / "bundles" / digest
        if not path.exists():
            draft = path.with_suffix(".new")
            draft.write_bytes(decided.bundle_text)
            draft.rename(path)
        self._kept.add(digest)

    def _report(self, error: OSError) -> None:
        if not self.failing:
            log.error("audit cannot be written", folder=str(self._folder), cause=error.strerror)
        self.failing = True


def _write_whole(file: BinaryIO, line: bytes) -> None:
    """One line or nothing: a part that was written before a failure is cut off again."""
    start = file.seek(0, 2)
    written = 0
    try:
        while written < len(line):
            written += file.write(line[written:])
    except OSError:
        file.truncate(start)
        raise
