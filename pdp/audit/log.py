"""Audit trail on disk: one JSON line per request, written by a thread of its own.

A request hands its record over and goes on. While the disk takes no writes, a bounded number of records waits in
memory; beyond the bound the service refuses requests instead of answering without a record. `encoding` makes the lines.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from pathlib import Path
from typing import BinaryIO, Final

import structlog
from uuid_utils import uuid7

from pdp.audit.encoding import RecordEncoder
from pdp.audit.record import DecisionRecord
from pdp.errors import ConfigError, Unavailable
from pdp.telemetry import Telemetry

MAX_PENDING: Final = 10_000
MAX_PENDING_DECISIONS: Final = 2_000_000
"""Records, and decisions in all of them, that may wait for the disk."""
LARGE: Final = 5000
"""Largest record, in decisions, that the event loop encodes."""
BATCH: Final = 100
GATHER_SECONDS: Final = 0.01
"""Records in one write, and the wait for more of them: each wake-up of the thread delays all other threads."""
RETRY_SECONDS: Final = 1.0

log = structlog.get_logger()


class NoAudit:
    """Audit of dry runs on the command line, which enforce nothing: drops every record."""

    def admit(self) -> None:
        """Admit every request."""

    def append(self, record: DecisionRecord) -> None:
        """Drop the record."""


class _PendingRecord:
    """A record in the queue: its place in the sequence and, once encoded, its line."""

    __slots__ = ("line", "record", "seq")

    def __init__(self, record: DecisionRecord, seq: int) -> None:
        self.record = record
        self.seq = seq
        self.line: bytes | None = None


class FileAudit:
    """JSON lines in `<folder>/decisions-<instance>.jsonl`, bundles in `<folder>/bundles/<digest>`.

    The event loop encodes small records after the answer is sent: two threads that compete for the interpreter cost
    more time than the encoding takes. The writing thread encodes large records.
    """

    def __init__(self, folder: Path, telemetry: Telemetry) -> None:
        self.instance = uuid7().hex
        self.failing = False
        self._folder = folder
        self._path = folder / f"decisions-{self.instance}.jsonl"
        self._telemetry = telemetry
        # The event loop alone appends and the thread alone removes, which a deque allows without a lock. The same
        # holds for the two counters of decisions: each has one writer.
        self._pending: deque[_PendingRecord] = deque()
        self._taken = self._written = 0
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._encoder = RecordEncoder(self.instance)
        self._seq = 0
        self._archived: set[str] = set()
        """Digests of the bundles in the folder."""
        try:
            (folder / "bundles").mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("ab", buffering=0)
        except OSError as error:
            raise ConfigError(f"cannot write the audit to `{folder}`: {error.strerror}") from None
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    def admit(self) -> None:
        """Raise Unavailable while too many records wait."""
        if len(self._pending) >= MAX_PENDING or self._taken - self._written >= MAX_PENDING_DECISIONS:
            raise Unavailable("the audit cannot be written, so nothing is decided")

    def append(self, record: DecisionRecord) -> None:
        """Put a record into the queue and return at once. Call from the event loop only."""
        self._taken += record.batch.size
        pending = _PendingRecord(record, self._seq)
        self._seq += 1
        self._pending.append(pending)
        if record.batch.size <= LARGE:
            asyncio.get_running_loop().call_soon(self._encode_soon, pending)
        else:
            self._wake.set()

    def close(self, timeout: float) -> bool:
        """Write all waiting records; return False if `timeout` seconds were not enough."""
        self._closing.set()
        self._wake.set()
        self._thread.join(timeout)
        return not self._pending

    def _encode_soon(self, pending: _PendingRecord) -> None:
        try:
            pending.line = self._encode(pending)
        finally:
            self._wake.set()

    def _encode(self, pending: _PendingRecord) -> bytes:
        """Return the line, encoded by the first thread in need of it.

        Both threads may encode the same record at once. That is only a waste: the lines are equal.
        """
        return pending.line or self._encoder.encode(pending.record, pending.seq) + b"\n"

    def _run(self) -> None:
        try:
            with self._file:
                while not (self._closing.is_set() and not self._pending):
                    self._wake.wait()
                    self._wake.clear()
                    self._closing.wait(GATHER_SECONDS)
                    while self._pending:
                        if not self._write_oldest():
                            time.sleep(RETRY_SECONDS)
        finally:
            # a thread that ends for any other reason than `close` writes nothing any more
            self.failing = self.failing or not self._closing.is_set()

    def _write_oldest(self) -> bool:
        """Write the oldest records as one piece; return False if they have to go on waiting.

        Records leave the queue only after the write: a failure loses none.
        """
        oldest = [self._pending[place] for place in range(min(len(self._pending), BATCH))]
        try:
            for pending in oldest:
                self._archive_bundle(pending.record)
            _write_whole(self._file, b"".join([self._encode(pending) for pending in oldest]))
        except Exception as error:  # noqa: BLE001  nothing is dropped: the records wait, and readiness says so
            self._report(error)
            return False
        self.failing = False
        for pending in oldest:
            self._pending.popleft()
            self._written += pending.record.batch.size
        self._telemetry.audit_written.inc(len(oldest))
        self._telemetry.audit_waiting.set(len(self._pending))
        return True

    def _archive_bundle(self, record: DecisionRecord) -> None:
        digest = record.bundle_digest
        if digest in self._archived:
            return
        path = self._folder / "bundles" / digest
        if not path.exists():
            draft = path.with_suffix(f".{self.instance}")  # another process may write the same bundle
            draft.write_bytes(record.bundle_text)
            draft.rename(path)
        self._archived.add(digest)

    def _report(self, error: Exception) -> None:
        was_failing, self.failing = self.failing, True
        if not was_failing:
            cause = getattr(error, "strerror", None) or repr(error)
            log.error("audit cannot be written", folder=str(self._folder), cause=cause)


def _write_whole(file: BinaryIO, text: bytes) -> None:
    """Append all of the text or nothing: cut a part off again if the rest cannot be written."""
    start = file.seek(0, 2)
    written = 0
    try:
        while written < len(text):
            written += file.write(text[written:])
    except OSError:
        file.truncate(start)
        raise
