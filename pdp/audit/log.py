"""Audit trail on disk: one JSON line per request.

A request puts its record into a list and goes on. The event loop encodes the records in small batches between requests,
and hands the lines to a thread that writes them (`line_writer`). While the disk takes no writes, a bounded number of
records waits in memory; beyond the bound the service refuses requests instead of answering without a record.
"""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Final

import structlog
from uuid_utils import uuid7

from pdp.audit.encoding import RecordEncoder
from pdp.audit.folder import AuditFolder
from pdp.audit.line_writer import RETRY_SECONDS, LineBatch, LineWriter
from pdp.audit.record import DecisionRecord
from pdp.errors import Unavailable
from pdp.telemetry import Telemetry

MAX_PENDING: Final = 50_000
MAX_PENDING_DECISIONS: Final = 2_000_000
"""Records, and decisions in all of them, that may wait for the disk."""
GATHER_SECONDS: Final = 0.01
"""Longest wait before a record goes to the writer. A killed process loses the records of this time and of one write."""
TURN: Final = 32
TURN_DECISIONS: Final = 2000
"""Waiting records from which the event loop encodes, and decisions after which other callbacks get a turn."""
BEHIND: Final = 1000
GIVE_WAY_SECONDS: Final = 0.001
"""Waiting records from which the event loop gives way to the writer, and for how long.

A busy event loop leaves the interpreter for moments only, which a waiting thread often misses.
"""

log = structlog.get_logger()


class NoAudit:
    """Audit of dry runs on the command line, which enforce nothing: drops every record."""

    def admit(self) -> None:
        """Admit every request."""

    def append(self, record: DecisionRecord) -> None:
        """Drop the record."""


class FileAudit:
    """JSON lines and bundles in a folder.

    A thread that encoded would compete with the event loop for the interpreter, and fall behind at full load. See
    docs/decisions/0010-audit-in-batches.md.
    """

    def __init__(self, folder: Path, telemetry: Telemetry) -> None:
        self.instance = uuid7().hex
        self._writer = LineWriter(AuditFolder(folder, self.instance), telemetry.audit_written.inc)
        self._encoder = RecordEncoder(self.instance)
        self._pending: list[DecisionRecord] = []
        self._lines: list[bytes] = []
        """Lines of records that have left `_pending`."""
        self._decisions = 0
        """Decisions of the lines."""
        self._bundles: dict[str, bytes] = {}
        """Bundles that came with the lines."""
        self._archived: set[str] = set()
        """Digests of all bundles so far."""
        self._taken = self._seq = 0
        """Decisions of all records so far, and the number of the oldest pending record."""
        self._flush_due = self._unencodable = False
        self._encoding = threading.Lock()
        """Held while records are encoded or handed over: `close` comes from another thread than the event loop's."""
        telemetry.audit_waiting.set_function(self._waiting)

    @property
    def failing(self) -> bool:
        """Tell whether records cannot be written at present."""
        return self._unencodable or self._writer.failing

    def admit(self) -> None:
        """Raise Unavailable while too many records wait."""
        waiting = len(self._pending) + self._seq - self._writer.records
        if waiting >= MAX_PENDING or self._taken - self._writer.decisions >= MAX_PENDING_DECISIONS:
            raise Unavailable("the audit cannot be written, so nothing is decided")

    def append(self, record: DecisionRecord) -> None:
        """Put a record into the queue and return at once. Call from the event loop only."""
        self._taken += record.batch.size
        self._pending.append(record)
        if not self._flush_due:
            self._flush_due = True
            asyncio.get_running_loop().call_later(GATHER_SECONDS, self._flush)
        if len(self._pending) == TURN:
            asyncio.get_running_loop().call_soon(self._take_turn)

    def close(self, timeout: float) -> bool:
        """Write all waiting records; return False if `timeout` seconds were not enough. Call from any thread."""
        with self._encoding:
            while self._pending and self._encode():
                pass
            self._hand_over()
        return self._writer.close(timeout) and not self._waiting()

    def _waiting(self) -> int:
        return len(self._pending) + self._seq - self._writer.records

    def _take_turn(self) -> None:
        """Encode pending records; leave the rest of many decisions to a later turn."""
        with self._encoding:
            encoded = self._encode()
        if encoded and self._pending:
            asyncio.get_running_loop().call_soon(self._take_turn)

    def _flush(self) -> None:
        """Encode pending records and hand all lines to the writer. Come again if records are left."""
        with self._encoding:
            encoded = self._encode()
            self._hand_over()
        if self._waiting() >= BEHIND and not self._writer.failing:
            time.sleep(GIVE_WAY_SECONDS)
        self._flush_due = bool(self._pending)
        if self._flush_due:
            asyncio.get_running_loop().call_later(GATHER_SECONDS if encoded else RETRY_SECONDS, self._flush)

    def _encode(self) -> bool:
        """Encode the oldest pending records; return False if a record cannot be encoded and has to wait.

        A record leaves the queue when its line is there: a failure loses none.
        """
        done = decisions = 0
        try:
            for record in self._pending:
                self._lines.append(self._encoder.encode(record, self._seq + done) + b"\n")
                done += 1
                decisions += record.batch.size
                if record.bundle_digest not in self._archived:
                    self._archived.add(record.bundle_digest)
                    self._bundles[record.bundle_digest] = record.bundle_text
                if decisions >= TURN_DECISIONS:
                    break
        except Exception as error:  # noqa: BLE001  nothing is dropped: the record waits, and readiness says so
            self._report(error)
            return False
        finally:
            del self._pending[:done]
            self._seq += done
            self._decisions += decisions
        self._unencodable = False
        return True

    def _hand_over(self) -> None:
        if self._lines:
            self._writer.put(LineBatch(self._lines, self._decisions, self._bundles))
            self._lines, self._decisions, self._bundles = [], 0, {}

    def _report(self, error: Exception) -> None:
        was_failing, self._unencodable = self._unencodable, True
        if not was_failing:
            log.error("audit record cannot be encoded", cause=repr(error))
