"""Audit trail on disk: one JSON line per request.

A request puts its record into a list and goes on. The event loop encodes the records in small batches between requests,
and hands the lines to a thread that writes them (`line_writer`). While the disk takes no writes, a bounded number of
records and bytes waits in memory; beyond the bound the service refuses requests instead of answering without a record.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeAlias

import structlog
from uuid_utils import uuid7

from pdp.audit.encoding import RecordEncoder
from pdp.audit.folder import AuditFolder
from pdp.audit.line_writer import LineBatch, LineWriter
from pdp.audit.record import DecisionRecord
from pdp.errors import Unavailable
from pdp.model.events import Event, ManagementEvent, RefusalEvent
from pdp.model.masking import DEFAULT_MASKER, Masker
from pdp.telemetry import Telemetry

MAX_PENDING: Final = 50_000
MAX_PENDING_DECISIONS: Final = 2_000_000
"""Records, and decisions in all of them, that may wait for the disk."""
MAX_PENDING_BYTES: Final = 256 << 20
"""Bytes of records that may wait for the disk, unless the configuration says otherwise."""
_DECISION_BYTES: Final = 300
"""Estimate of the bytes of a record for each of its decisions, until it is encoded."""
_LINE_BYTES: Final = 64
"""Bytes that an encoded line needs beside its text."""
GATHER_SECONDS: Final = 0.01
"""Longest wait before a record goes to the writer. A killed process loses the records of this time and of one write."""
TURN: Final = 32
TURN_DECISIONS: Final = 2000
"""Waiting records from which the event loop encodes, and decisions after which other callbacks get a turn."""
LONG_BATCH: Final = 64
LONG_RECORD: Final = 5000
"""Decisions of a batch whose rows are counted, and rows of a record that is encoded beside the event loop."""
BEHIND: Final = 1000
GIVE_WAY_SECONDS: Final = 0.001
"""Waiting records from which the event loop gives way to the writer, and for how long.

A busy event loop leaves the interpreter for moments only, which a waiting thread often misses.
"""

log = structlog.get_logger()

BesideCall: TypeAlias = Callable[..., Awaitable[bytes]]
"""Call that runs a function in a thread and returns its result."""


class NoAudit:
    """Audit of dry runs on the command line, which enforce nothing: drops every record."""

    def admit(self) -> None:
        """Admit every request."""

    def append(self, record: DecisionRecord) -> None:
        """Drop the record."""

    def note(self, event: Event) -> bool:
        """Drop the event."""
        return True


class FileAudit:
    """JSON lines and bundles in a folder.

    A thread that encoded would compete with the event loop for the interpreter, and fall behind at full load. See
    docs/decisions/0010-audit-in-batches.md.
    """

    def __init__(
        self,
        folder: Path,
        telemetry: Telemetry,
        max_bytes: int = MAX_PENDING_BYTES,
        run_beside: BesideCall | None = None,
        *,
        masker: Masker = DEFAULT_MASKER,
    ) -> None:
        """Open a folder. `run_beside` runs work in a thread: the event loop does not encode long records itself."""
        self.instance = uuid7().hex
        self._writer = LineWriter(AuditFolder(folder, self.instance), telemetry.audit_written.inc)
        self._encoder = RecordEncoder(self.instance, masker=masker)
        self._max_bytes = max_bytes
        self._pending: list[DecisionRecord | Event] = []
        self._lines: list[bytes] = []
        """Lines of records that have left `_pending`."""
        self._decisions = self._size = 0
        """Decisions and bytes of the lines."""
        self._bundles: dict[str, bytes] = {}
        """Bundles that came with the lines."""
        self._archived: set[str] = set()
        """Digests of all bundles so far."""
        self._taken = self._seq = self._encoded = self._encoded_bytes = 0
        """Decisions of all records, number of the oldest pending one, decisions and bytes of all encoded ones."""
        self._run_beside = run_beside
        self._beside_encoder = RecordEncoder(self.instance, masker=masker)
        self._beside: DecisionRecord | Event | None = None
        """Oldest pending record, while a thread encodes it. All others wait."""
        self._task: asyncio.Task[None] | None = None
        self._flush_due = False
        self._count_unencodable = telemetry.audit_unencodable.inc
        self._encoding = threading.Lock()
        """Held while records are encoded or handed over: `close` comes from another thread than the event loop's."""
        telemetry.audit_waiting.set_function(self._waiting)

    @property
    def failing(self) -> bool:
        """Tell whether records cannot be written at present."""
        return self._writer.failing

    def admit(self) -> None:
        """Raise Unavailable while too many records wait, or records of too many bytes."""
        writer = self._writer
        if (
            len(self._pending) + self._seq - writer.records >= MAX_PENDING
            or self._taken - writer.decisions >= MAX_PENDING_DECISIONS
            or self._encoded_bytes - writer.bytes + (self._taken - self._encoded) * _DECISION_BYTES >= self._max_bytes
        ):
            raise Unavailable("the audit cannot be written, so nothing is decided")

    def append(self, record: DecisionRecord) -> None:
        """Put a record into the queue and return at once. Call from the event loop only."""
        self._taken += _size(record) if record.masks else record.batch.size
        self._put(record)

    def note(self, event: Event) -> bool:
        """Put an event into the queue and return at once. Call from the event loop only.

        Return False for a refusal while too many records wait: nothing else bounds the number of refusals.
        """
        full = self._waiting() >= MAX_PENDING or self.waiting_bytes() >= self._max_bytes
        is_refusal = isinstance(event, RefusalEvent) or (isinstance(event, ManagementEvent) and not event.allowed)
        if full and is_refusal:
            return False
        self._put(event)
        return True

    def _put(self, record: DecisionRecord | Event) -> None:
        self._pending.append(record)
        if not self._flush_due:
            self._flush_due = True
            asyncio.get_running_loop().call_later(GATHER_SECONDS, self._flush)
        if len(self._pending) == TURN:
            asyncio.get_running_loop().call_soon(self._take_turn)

    def close(self, timeout: float) -> bool:
        """Write all waiting records; return False if `timeout` seconds were not enough. Call from any thread."""
        with self._encoding:
            self._run_beside = self._beside = None
            while self._pending:
                self._encode()
            self._hand_over()
        return self._writer.close(timeout) and not self._waiting()

    def _waiting(self) -> int:
        return len(self._pending) + self._seq - self._writer.records

    def waiting_bytes(self) -> int:
        """Return the bytes of what waits: exactly of lines, by an estimate of the records before them."""
        return self._encoded_bytes - self._writer.bytes + (self._taken - self._encoded) * _DECISION_BYTES

    def _take_turn(self) -> None:
        """Encode pending records; leave the rest of many decisions to a later turn."""
        with self._encoding:
            self._encode()
        if self._pending and not self._beside:
            asyncio.get_running_loop().call_soon(self._take_turn)

    def _flush(self) -> None:
        """Encode pending records and hand all lines to the writer. Come again if records are left."""
        try:
            with self._encoding:
                self._encode()
                self._hand_over()
            if self._waiting() >= BEHIND and not self._writer.failing:
                time.sleep(GIVE_WAY_SECONDS)
        finally:  # a defect must not end the flushes
            self._flush_due = bool(self._pending)
            if self._flush_due:
                asyncio.get_running_loop().call_later(GATHER_SECONDS, self._flush)

    def _encode(self) -> None:
        """Encode the oldest pending records. The records themselves are dropped."""
        if self._beside:
            return
        lines: list[bytes] = []
        decisions = 0
        for record in self._pending:
            size = 0
            if isinstance(record, DecisionRecord):
                size = _size(record) if record.masks else record.batch.size
            if size > LONG_BATCH and self._run_beside and _rows(record) > LONG_RECORD:
                if not lines:
                    self._begin_beside(record)
                break
            lines.append(_line(self._encoder, record, self._seq + len(lines), self._count_unencodable))
            decisions += size
            if decisions >= TURN_DECISIONS:
                break
        self._add(lines)

    def _begin_beside(self, record: DecisionRecord | Event) -> None:
        """Encode the oldest record in a thread."""
        self._beside = record
        self._task = asyncio.get_running_loop().create_task(self._encode_beside(record, self._seq))

    async def _encode_beside(self, record: DecisionRecord | Event, seq: int) -> None:
        assert self._run_beside
        try:
            line = await self._run_beside(_line, self._beside_encoder, record, seq, self._count_unencodable)
            with self._encoding:
                if self._beside is record:  # `close` has not come first
                    self._add([line])
        finally:
            if self._beside is record:
                self._beside = None

    def _add(self, lines: list[bytes]) -> None:
        """Take the lines of the oldest records, and drop these records."""
        done, decisions, size = len(lines), 0, 0
        for record, line in zip(self._pending, lines, strict=False):
            size += len(line) + _LINE_BYTES
            if not isinstance(record, DecisionRecord):
                continue
            decisions += _size(record) if record.masks else record.batch.size
            if record.bundle_digest not in self._archived:
                self._archived.add(record.bundle_digest)
                self._bundles[record.bundle_digest] = record.bundle_text
        self._lines += lines
        del self._pending[:done]
        self._seq += done
        self._decisions += decisions
        self._size += size
        self._encoded += decisions
        self._encoded_bytes += size

    def _hand_over(self) -> None:
        if self._lines:
            self._writer.put(LineBatch(self._lines, self._decisions, self._size, self._bundles))
            self._lines, self._decisions, self._size, self._bundles = [], 0, 0, {}


def _line(
    encoder: RecordEncoder, record: DecisionRecord | Event, seq: int, count_unencodable: Callable[[], None]
) -> bytes:
    """Return the line of a record. A record that cannot be encoded keeps its outcome, and holds up no other."""
    if not isinstance(record, DecisionRecord):
        return encoder.encode_event(record, seq) + b"\n"
    try:
        return encoder.encode(record, seq) + b"\n"
    except Exception as error:
        count_unencodable()
        log.exception("audit record cannot be encoded", id=record.answer.id)
        return encoder.encode_rest(record, seq, repr(error)) + b"\n"


def _size(record: DecisionRecord) -> int:
    """Return the number of decisions and masks of a record."""
    return record.batch.size + len(record.masks or ())


def _rows(record: DecisionRecord | Event) -> int:
    """Return the number of rows of a record: of all concrete checks, of a listing, or of masks."""
    if not isinstance(record, DecisionRecord):
        return 0
    if record.listing is not None:
        return record.batch.size
    if record.masks is not None:
        return len(record.masks)
    return sum([len(leaf.resources) for check in record.checks for leaf in check.concrete])
