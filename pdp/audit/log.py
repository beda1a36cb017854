"""Audit trail on disk: one JSON line per request, encoded and written by a thread of its own.

A request puts its record into a list and goes on. While the disk takes no writes, a bounded number of records waits in
memory; beyond the bound the service refuses requests instead of answering without a record. `encoding` makes the lines.
"""

from __future__ import annotations

import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Final

import structlog
from uuid_utils import uuid7

from pdp.audit.encoding import RecordEncoder
from pdp.audit.folder import AuditFolder
from pdp.audit.record import DecisionRecord
from pdp.errors import Unavailable
from pdp.telemetry import Telemetry

MAX_PENDING: Final = 10_000
MAX_PENDING_DECISIONS: Final = 2_000_000
"""Records, and decisions in all of them, that may wait for the disk."""
GATHER_SECONDS: Final = 0.01
"""Time between two writes. A killed process loses the records of this time and of one write."""
BATCH: Final = 256
BATCH_BYTES: Final = 1 << 20
"""Records in one write, and the size from which a write takes no further record."""
RETRY_SECONDS: Final = 1.0

log = structlog.get_logger()


class NoAudit:
    """Audit of dry runs on the command line, which enforce nothing: drops every record."""

    def admit(self) -> None:
        """Admit every request."""

    def append(self, record: DecisionRecord) -> None:
        """Drop the record."""


class FileAudit:
    """JSON lines and bundles in a folder.

    The thread takes all waiting records every GATHER_SECONDS, so that it seldom competes with the event loop for the
    interpreter. It sleeps while no request arrives. See docs/decisions/0010-audit-in-batches.md.
    """

    def __init__(self, folder: Path, telemetry: Telemetry) -> None:
        self.instance = uuid7().hex
        self.failing = False
        self._folder = AuditFolder(folder, self.instance)
        self._encoder = RecordEncoder(self.instance)
        # The event loop alone appends and the thread alone removes, each in one step of the interpreter: no lock is
        # needed. The same holds for the two counters of decisions, as each has one writer.
        self._pending: list[DecisionRecord] = []
        self._taken = self._written = 0
        self._seq = 0
        """Number of the oldest pending record."""
        self._asleep = False
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._count_written = telemetry.audit_written.inc
        telemetry.audit_waiting.set_function(lambda: len(self._pending))
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    def admit(self) -> None:
        """Raise Unavailable while too many records wait."""
        if len(self._pending) >= MAX_PENDING or self._taken - self._written >= MAX_PENDING_DECISIONS:
            raise Unavailable("the audit cannot be written, so nothing is decided")

    def append(self, record: DecisionRecord) -> None:
        """Put a record into the queue and return at once. Call from the event loop only."""
        self._taken += record.batch.size
        self._pending.append(record)
        if self._asleep:
            self._asleep = False
            self._wake.set()

    def close(self, timeout: float) -> bool:
        """Write all waiting records; return False if `timeout` seconds were not enough."""
        self._closing.set()
        self._wake.set()
        self._thread.join(timeout)
        return not self._pending

    def _run(self) -> None:
        try:
            with closing(self._folder):
                while self._pending or not self._closing.is_set():
                    self._sleep()
                    self._closing.wait(GATHER_SECONDS)
                    self._write_pending()
        finally:
            # a thread that ends for any other reason than `close` writes nothing any more
            self.failing = self.failing or not self._closing.is_set()

    def _sleep(self) -> None:
        """Wait until a record is pending or `close` is called.

        `append` puts a record first and looks at `_asleep` then. Here the order is the other way round, so one of the
        two always sees the other.
        """
        self._wake.clear()
        self._asleep = True
        if not self._pending and not self._closing.is_set():
            self._wake.wait()
        self._asleep = False

    def _write_pending(self) -> None:
        """Write all records that wait, but for a last part that is no full batch and came in the meantime."""
        while True:
            while self._pending and not self._write_oldest():
                time.sleep(RETRY_SECONDS)
            if len(self._pending) < BATCH:
                return

    def _write_oldest(self) -> bool:
        """Write the oldest records as one piece; return False if they have to go on waiting.

        Records leave the queue only after the write: a failure loses none.
        """
        records = self._pending[:BATCH]
        try:
            lines = self._encode(records)
            self._folder.append(b"".join(lines))
        except Exception as error:  # noqa: BLE001  nothing is dropped: the records wait, and readiness says so
            self._report(error)
            return False
        self.failing = False
        count = len(lines)
        del self._pending[:count]
        self._seq += count
        self._written += sum([record.batch.size for record in records[:count]])
        self._count_written(count)
        return True

    def _encode(self, records: list[DecisionRecord]) -> list[bytes]:
        """Return the lines of the first records, up to BATCH_BYTES, and archive their bundles."""
        lines: list[bytes] = []
        size = 0
        for seq, record in enumerate(records, self._seq):
            self._folder.archive(record.bundle_digest, record.bundle_text)
            line = self._encoder.encode(record, seq) + b"\n"
            lines.append(line)
            size += len(line)
            if size >= BATCH_BYTES:
                break
        return lines

    def _report(self, error: Exception) -> None:
        was_failing, self.failing = self.failing, True
        if not was_failing:
            cause = getattr(error, "strerror", None) or repr(error)
            log.error("audit cannot be written", folder=str(self._folder.path), cause=cause)
