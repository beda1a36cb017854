"""Audit trail: one JSON line per request.

A request puts its record into a list and goes on. The event loop encodes the records in small batches between requests,
and hands the lines to the sinks (`sinks`), each with a thread of its own. While a sink takes no writes, records wait in
memory, up to a number and to bytes. Beyond that `audit.on_full` says whether requests wait, are refused, or are
answered without a record.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec

from pdp.audit.queue.sampling import AllowSampler, ClockWatch, DroppedRecords
from pdp.audit.queue.sinks import AuditSink, SlowestProgress
from pdp.audit.queue.waiting import LONG_BATCH, UNWRITTEN, AuditHold, BesideCall, RecordBatcher, size_of
from pdp.audit.records.record import AnyRecord, DecisionRecord, PlannedRecord
from pdp.config.audit import Durability, OnFull
from pdp.errors import Unavailable
from pdp.model.events import BEGUN, OPEN_GATE, AnswerHold, Event, ManagementEvent, RefusalEvent, RewriteEvent
from pdp.model.redaction import DEFAULT_MASKER, Redactor
from pdp.telemetry import Telemetry

MAX_PENDING: Final = 50_000
MAX_PENDING_DECISIONS: Final = 2_000_000
"""Records, and decisions in all of them, that may wait for the disk."""
MAX_PENDING_BYTES: Final = 256 << 20
"""Bytes of records that may wait for the disk, unless the configuration says otherwise."""
CROWDED: Final = 0.875
"""Share of these bounds from which requests wait for room, so that those under way find some."""
_ANSWERED: Final = (ManagementEvent, RewriteEvent)
"""Events of requests with an answer."""
GATHER_SECONDS: Final = 0.025
"""Longest wait before a record goes to the sinks. A killed process loses the records of this time and of one write."""
TURN: Final = 32
"""Waiting records from which the event loop encodes."""
_ROOM_SECONDS: Final = 0.1
"""Time between two looks for room, while records are dropped or requests wait."""
BEHIND: Final = 4000
GIVE_WAY_SECONDS: Final = 0.001
"""Waiting records from which the event loop gives way to the writer, and for how long.

A busy event loop leaves the interpreter for moments only, which a waiting thread often misses.
"""


class TrailOptions(msgspec.Struct, frozen=True):
    """Options of a trail. With `run_beside`, a thread encodes long records in place of the event loop."""

    max_bytes: int = MAX_PENDING_BYTES
    masker: Redactor = DEFAULT_MASKER
    run_beside: BesideCall | None = None
    durability: Durability = "batch"
    on_full: OnFull = "block"
    sampler: AllowSampler | None = None


DEFAULT_OPTIONS: Final = TrailOptions()


class NoAudit:
    """Audit of dry runs on the command line, which enforce nothing: drops every record."""

    gate: AnswerHold = OPEN_GATE

    def admit(self) -> None:
        """Admit every request."""

    def append(self, record: AnyRecord) -> None:
        """Drop the record."""

    def note(self, event: Event) -> bool:
        """Drop the event."""
        return True


class RecordQueue:
    """Records of one instance, encoded once, for one or several sinks.

    A thread that encoded would compete with the event loop for the interpreter, and fall behind at full load. See
    docs/decisions/0010-audit-in-batches.md.
    """

    def __init__(
        self,
        instance: str,
        sinks: Sequence[AuditSink],
        telemetry: Telemetry,
        options: TrailOptions = DEFAULT_OPTIONS,
    ) -> None:
        """Begin a trail with at least one sink, each without a record yet."""
        self.instance = instance
        self._sinks = tuple(sinks)
        self._progress = sinks[0].progress if len(sinks) == 1 else SlowestProgress([sink.progress for sink in sinks])
        self._sampler = options.sampler
        self._batcher = RecordBatcher(instance, options.masker, options.run_beside, telemetry.audit_unencodable.inc)
        self._batcher.changed = self._look_for_bounds
        self._max_bytes = options.max_bytes
        self._promises = [sink.progress for sink in sinks if sink.progress.promises]
        """Progress of the sinks that make records safe."""
        self.gate = AuditHold(self, options.durability, options.on_full)
        self._drops = options.on_full == "drop"
        self._dropped = DroppedRecords()
        self._count_dropped = telemetry.audit_dropped.inc
        self._clock = ClockWatch()
        self._flush_due = self._turn_due = self._hurried = False
        self._full = False
        """Tells whether too much waited at the last look. Each long record and each `TURN` of records takes a look."""
        telemetry.audit_waiting.set_function(self._waiting)
        for promise in self._promises if self.gate.holds else ():
            promise.changed = self.gate.wake

    @property
    def failing(self) -> bool:
        """Tell whether records cannot be written at present, or so many wait that requests are refused."""
        return self._progress.failing or (not self._drops and self.is_full())

    def troubles(self) -> dict[str, str]:
        """Return why records do not reach the destination of a sink, by the name of the sink."""
        return {f"audit {sink.name}": trouble for sink in self._sinks if (trouble := sink.trouble())}

    def admit(self) -> None:
        """Raise Unavailable while too many records wait, or records of too many bytes, unless these are dropped."""
        if (self._full or self._waiting() >= MAX_PENDING) and not self._drops:
            self._full = self.is_full()
            if self._full:
                raise Unavailable(UNWRITTEN)

    def is_full(self, share: float = 1.0) -> bool:
        """Tell the same as `admit`, for a share of the bounds."""
        return (
            self._waiting() >= MAX_PENDING * share
            or self._batcher.decisions - self._progress.decisions >= MAX_PENDING_DECISIONS * share
            or self.waiting_bytes() >= self._max_bytes * share
        )

    def append(self, record: AnyRecord) -> None:
        """Put a record into the queue and return at once. Call from the event loop only."""
        if type(record) is PlannedRecord and not (self._drops or self._sampler):
            self._put(record, 1)
        else:
            self._append(record.whole())

    def _append(self, record: DecisionRecord) -> None:
        if self._sampler:
            sampled = self._sampler.sampled(record)
            if sampled is None:
                return
            record = sampled
        size = size_of(record)
        if self._drops and self.is_full():
            if self._sampler:
                self._sampler.give_back(record)
            self._drop(record, size)
            return
        self._put(record, size)
        if size > LONG_BATCH:  # many small records come over several flushes, which look, too
            self._full = self.is_full()
            self.gate.look()
            self._take_turn_soon()  # while the record is in the processor's cache

    def note(self, event: Event) -> bool:
        """Put an event into the queue and return at once. Call from the event loop only.

        Return False for a refusal while too many records wait: nothing else bounds the number of refusals. A change
        that begins was admitted before.
        """
        full = self._waiting() >= MAX_PENDING or self.waiting_bytes() >= self._max_bytes
        if full and _is_refusal(event):
            return False
        if full and self._drops and isinstance(event, _ANSWERED):
            self._drop(event, 0)
            return False
        self._put(self._sampler.announced(event) if self._sampler else event)
        return True

    def taken(self) -> int:
        """Return the number of all records so far."""
        return self._batcher.taken()

    def durable(self) -> int:
        """Return the number of records that are safe on disk."""
        return min([promise.durable for promise in self._promises], default=self._progress.records)

    def is_failing(self) -> bool:
        """Tell whether records cannot be made safe at present."""
        return any(promise.failing for promise in self._promises)

    def is_crowded(self) -> bool:
        """Tell whether so many records wait that requests have to."""
        return self.is_full(CROWDED)

    def hurry(self) -> None:
        """Give all records to the sinks after the present turn of the event loop."""
        if not self._hurried:
            self._hurried = True
            asyncio.get_running_loop().call_soon(self._hand_over_soon)

    def _hand_over_soon(self) -> None:
        self._hurried = False
        with self._batcher.lock:
            self._batcher.encode()
            self._hand_over()
        if self._batcher.has_work():
            self.hurry()
        self.gate.release()

    def _drop(self, record: DecisionRecord | Event, decisions: int) -> None:
        self._dropped.count(decisions, self.taken(), record.time)
        self._count_dropped()
        self._flush_later(_ROOM_SECONDS)

    def _put(self, record: AnyRecord | Event, decisions: int = 0) -> None:
        self._batcher.put(record, decisions)
        if not self._flush_due:
            self._flush_later(GATHER_SECONDS)
        if not len(self._batcher.pending) % TURN:
            self._full = self.is_full()
            self._take_turn_soon()

    def close(self, timeout: float) -> bool:
        """Write all waiting records; return False if `timeout` seconds were not enough. Call from any thread."""
        with self._batcher.lock:
            if event := self._dropped.announcement(at_once=True):
                self._batcher.put(event)
            self._batcher.encode_all()
            self._hand_over()
        return self._close_sinks(timeout) and not self._waiting()

    def _close_sinks(self, timeout: float) -> bool:
        """Close all sinks at the same time: one whose destination is stuck takes no time from the others."""
        if len(self._sinks) == 1:
            return self._sinks[0].close(timeout)
        with ThreadPoolExecutor(len(self._sinks), "audit-close") as threads:
            return all(list(threads.map(lambda sink: sink.close(timeout), self._sinks)))

    def reopen(self) -> None:
        """Let every sink begin a new file, or connect again."""
        for sink in self._sinks:
            sink.reopen()

    def _waiting(self) -> int:
        return self._batcher.taken() - self._progress.records

    def waiting_bytes(self) -> int:
        """Return the bytes of what waits: exactly of lines, by an estimate of the records before them."""
        return self._batcher.waiting_bytes(self._progress.bytes)

    def _take_turn_soon(self) -> None:
        if not self._turn_due:
            self._turn_due = True
            asyncio.get_running_loop().call_soon(self._take_turn)

    def _take_turn(self) -> None:
        """Encode pending records; leave the rest of many decisions to a later turn."""
        self._turn_due = False
        with self._batcher.lock:
            self._batcher.encode()
        if self._batcher.has_work():
            self._take_turn_soon()

    def _flush(self) -> None:
        """Encode pending records and hand all lines to the writer. Come again if records are left."""
        try:
            self._look_around()
            with self._batcher.lock:
                self._batcher.encode()
                self._hand_over()
            if self._waiting() >= BEHIND and not self._progress.failing:
                time.sleep(GIVE_WAY_SECONDS)
        finally:  # a defect must not end the flushes
            self._flush_due = False
            if self._batcher.pending:
                self._flush_later(GATHER_SECONDS)
            elif self._dropped.records or self.gate.crowded:
                self._flush_later(_ROOM_SECONDS)

    def _flush_later(self, seconds: float) -> None:
        if not self._flush_due:
            self._flush_due = True
            asyncio.get_running_loop().call_later(seconds, self._flush)

    def _look_around(self) -> None:
        """Note a jump of the clock, and announce dropped records. Look whether requests have to wait."""
        if event := self._clock.jump():
            self._batcher.put(event)
        if self._dropped.records and not self.is_full() and (event := self._dropped.announcement()):
            self._batcher.put(event)
        self.gate.look()

    def _look_for_bounds(self) -> None:
        self._full = self.is_full()

    def _hand_over(self) -> None:
        if batch := self._batcher.take():
            for sink in self._sinks:
                sink.put(batch)


def _is_refusal(event: Event) -> bool:
    if isinstance(event, _ANSWERED):
        return not event.allowed and event.code != BEGUN
    return isinstance(event, RefusalEvent)
