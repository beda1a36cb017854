"""Waiting for an audit: records until they are encoded, requests for room, and answers for their records.

Records are encoded in order into batches of lines. The gate of requests and answers knows numbers of records, and
neither records nor sinks. Use it in the event loop only, but for `wake`.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeAlias

import structlog

from pdp.audit.queue.sinks import LineBatch
from pdp.audit.records.record import AnyRecord, DecisionRecord, PlannedRecord
from pdp.audit.records.writing import RecordEncoder
from pdp.config.audit import Durability, OnFull
from pdp.errors import Unavailable
from pdp.model.arrays import PathArray
from pdp.model.events import Event
from pdp.model.question import Resource
from pdp.model.redaction import Redactor, without_text

_DECISION_BYTES: Final = 300
"""Estimate of the bytes of a record for each of its decisions, until it is encoded."""
_LINE_BYTES: Final = 64
"""Bytes that an encoded line needs beside its text."""
TURN_DECISIONS: Final = 2000
"""Decisions of encoded records after which other callbacks of the event loop get a turn."""
LONG_BATCH: Final = 64
LONG_RECORD: Final = 5000
"""Decisions of a batch that may be long, and rows of a record that is encoded beside the event loop."""
_SLOW_MICROSECONDS: Final = 10_000
_LONG_NAMES: Final = 1 << 19
"""Time of a decision whose names are counted, and characters of all names of a long record."""
_RECORDS: Final = (DecisionRecord, PlannedRecord)

log = structlog.get_logger()

BesideCall: TypeAlias = Callable[..., Awaitable[bytes]]
"""Call that runs a function in a thread and returns its result."""


class RecordBatcher:
    """Records that wait, oldest first, and the lines of those that are encoded."""

    def __init__(
        self, instance: str, masker: Redactor, run_beside: BesideCall | None, count_unencodable: Callable[[], None]
    ) -> None:
        """Begin without records. With `run_beside`, a thread encodes long records in place of the event loop."""
        self.pending: list[AnyRecord | Event] = []
        # INVARIANT: the number of a record is `_seq` plus its place in `pending`; records leave at the front alone.
        self._seq = 0
        """Number of the oldest pending record."""
        self.decisions = 0
        """Decisions of all records so far."""
        self.changed: Callable[[], None] = _ignore
        """Called after records have become lines, while `lock` is held."""
        self.lock = threading.Lock()
        """Held while records are encoded or handed over: `close` comes from another thread than the event loop's."""
        self._encoder = RecordEncoder(instance, masker=masker)
        self._count_unencodable = count_unencodable
        self._lines: list[bytes] = []
        """Lines of records that have left `pending`."""
        self._line_decisions = self._line_bytes = 0
        """Decisions and bytes of the lines."""
        self._bundles: dict[str, bytes] = {}
        """Bundles that came with the lines."""
        self._archived: set[str] = set()
        """Digests of all bundles so far."""
        self._encoded = self._encoded_bytes = 0
        """Decisions and bytes of all encoded records."""
        self._run_beside = run_beside
        self._beside_encoder = RecordEncoder(instance, masker=masker)
        self._beside: AnyRecord | Event | None = None
        """Oldest pending record, while a thread encodes it. All others wait."""
        self._task: asyncio.Task[None] | None = None

    def put(self, record: AnyRecord | Event, decisions: int = 0) -> None:
        """Let a record with so many decisions wait."""
        self.decisions += decisions
        self.pending.append(record)

    def taken(self) -> int:
        """Return the number of all records so far."""
        return self._seq + len(self.pending)

    def has_work(self) -> bool:
        """Tell whether `encode` can encode a record now."""
        return bool(self.pending) and not self._beside

    def waiting_bytes(self, written: int) -> int:
        """Return the bytes of all but `written` ones: exactly of lines, by an estimate of the records before them."""
        return self._encoded_bytes - written + (self.decisions - self._encoded) * _DECISION_BYTES

    def encode(self) -> None:
        """Encode the oldest pending records. The records themselves are dropped. Call with the lock."""
        if self._beside:
            return
        lines: list[bytes] = []
        decisions = 0
        for seq, record in enumerate(self.pending, self._seq):
            size = 0
            if isinstance(record, _RECORDS):
                size = size_of(record)
                if record.bundle_digest not in self._archived:
                    self._archived.add(record.bundle_digest)
                    self._bundles[record.bundle_digest] = record.bundle_text
            if size > LONG_BATCH and self._run_beside and _is_long(record):
                if not lines:
                    self._begin_beside(record)
                break
            lines.append(_line(self._encoder, record, seq, self._count_unencodable))
            decisions += size
            if decisions >= TURN_DECISIONS:
                break
        self._add(lines, decisions)

    def encode_all(self) -> None:
        """Encode every pending record in the thread that calls. Call with the lock, as the last encoding."""
        self._run_beside = self._beside = None
        while self.pending:
            self.encode()

    def take(self) -> LineBatch | None:
        """Return all lines and forget them; None without a line. Call with the lock."""
        if not self._lines:
            return None
        first = self._seq - len(self._lines)
        batch = LineBatch(self._lines, self._line_decisions, self._line_bytes, self._bundles, first)
        self._lines, self._line_decisions, self._line_bytes, self._bundles = [], 0, 0, {}
        return batch

    def _begin_beside(self, record: AnyRecord | Event) -> None:
        """Encode the oldest record in a thread."""
        self._beside = record
        self._task = asyncio.get_running_loop().create_task(self._encode_beside(record, self._seq))

    async def _encode_beside(self, record: AnyRecord | Event, seq: int) -> None:
        assert self._run_beside
        try:
            line = await self._run_beside(_line, self._beside_encoder, record, seq, self._count_unencodable)
            with self.lock:
                if self._beside is record:  # `encode_all` has not come first
                    self._add([line], size_of(record))
        finally:
            if self._beside is record:
                self._beside = None

    def _add(self, lines: list[bytes], decisions: int) -> None:
        """Take the lines of the oldest records, which hold so many decisions, and drop these records."""
        done = len(lines)
        size = sum(map(len, lines)) + done * _LINE_BYTES
        self._lines += lines
        del self.pending[:done]
        self._seq += done
        self._line_decisions += decisions
        self._line_bytes += size
        self._encoded += decisions
        self._encoded_bytes += size
        self.changed()


def size_of(record: AnyRecord | Event) -> int:
    """Return the number of decisions and masks of a record."""
    if isinstance(record, PlannedRecord):
        return 1
    return record.batch.size + len(record.masks or ()) if isinstance(record, DecisionRecord) else 0


def _line(encoder: RecordEncoder, record: AnyRecord | Event, seq: int, count_unencodable: Callable[[], None]) -> bytes:
    """Return the line of a record. A record that cannot be encoded keeps its outcome, and holds up no other."""
    if not isinstance(record, _RECORDS):
        return encoder.encode_event(record, seq) + b"\n"
    try:
        if isinstance(record, PlannedRecord):
            return encoder.planned_line(record, seq)
        return encoder.encode(record, seq) + b"\n"
    except Exception as error:
        count_unencodable()
        log.exception("audit record cannot be encoded", id=record.answer.id, exc_info=without_text(error))
        return encoder.encode_rest(record.whole(), seq, type(error).__name__) + b"\n"


def _is_long(record: AnyRecord | Event) -> bool:
    """Tell whether a record has many rows, free values in rows, masked one by one, or long names.

    Long names take time before: names of fast decisions are not counted.
    """
    if not isinstance(record, DecisionRecord):
        return False
    named = [check.resources for check in record.batch.checks]
    is_slow = record.latency_us > _SLOW_MICROSECONDS
    return (
        _rows(record) > LONG_RECORD
        or any(map(_has_values, named))
        or (is_slow and sum(map(_characters, named)) > _LONG_NAMES)
    )


def _characters(resources: Sequence[Resource]) -> int:
    if type(resources) is PathArray:
        return sum(map(len, resources.names)) + sum(len(part) for parent in resources.parents for part in parent)
    return sum([len(part) for resource in resources for part in resource.path])


def _has_values(resources: Sequence[Resource]) -> bool:
    if type(resources) is PathArray:
        return False
    return any(resource.properties or resource.arguments.given for resource in resources)


def _rows(record: DecisionRecord) -> int:
    """Return the number of rows of a record: of concrete and refused checks, of a listing, or of masks."""
    if record.listing is not None:
        return record.batch.size
    if record.masks is not None:
        return len(record.masks)
    refused = sum([len(check.at) for check in record.batch.refused]) if record.batch.refused else 0
    return refused + sum([len(leaf.resources) for check in record.checks for leaf in check.concrete])


def _ignore() -> None:
    """Do nothing."""


ROOM_SECONDS: Final = 0.01
"""Time between two looks for room while requests wait."""
SettledCall: TypeAlias = Callable[[Exception | None], None]
"""Call for an answer whose record is safe, or that may not leave because of an error."""
UNWRITTEN: Final = "the audit cannot be written, so nothing is decided"


class TrailState(Protocol):
    """State of a trail, as far as requests wait for it."""

    def taken(self) -> int:
        """Return the number of all records so far."""
        ...

    def durable(self) -> int:
        """Return the number of records that are safe on disk."""
        ...

    def is_failing(self) -> bool:
        """Tell whether records cannot be made safe at present."""
        ...

    def is_crowded(self) -> bool:
        """Tell whether so many records wait that requests have to."""
        ...

    def hurry(self) -> None:
        """Give all records to the sinks after the present turn of the event loop, and call `release` then."""
        ...


class AuditHold:
    """Gate of one trail. `holds`: answers have to wait for `durable`. `crowded`: requests have to wait for `room`."""

    def __init__(self, state: TrailState, durability: Durability, on_full: OnFull) -> None:
        self.holds = durability == "request"
        self.crowded = False
        self._blocks = on_full == "block"
        self._on_full = on_full
        self._state = state
        self._held: dict[SettledCall, int] = {}
        """Answers that wait, in order, each with the number of records that must be safe."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._room: asyncio.Event | None = None

    def look(self) -> None:
        """Look whether requests have to wait."""
        self.crowded = self._blocks and self._state.is_crowded()

    async def room(self) -> None:
        """Wait until requests need not wait any more."""
        while self.crowded:
            if self._room is None:
                self._room = asyncio.Event()
                asyncio.get_running_loop().call_later(ROOM_SECONDS, self._look_for_room)
            await self._room.wait()

    async def durable(self) -> None:
        """Wait until all records so far are safe on disk.

        While they cannot be made safe: raise Unavailable at once (`deny`), return at once (`drop`), or wait (`block`).
        """
        if self._is_safe():
            return
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settle(error: Exception | None) -> None:
            if waiting.done():
                return
            if error:
                waiting.set_exception(error)
            else:
                waiting.set_result(None)

        self._hold(settle)
        try:
            await waiting
        finally:
            self.forget(settle)

    def when_durable(self, settled: SettledCall) -> None:
        """Do the same as `durable` without waiting: call back later, with the error or None. Raise nothing."""
        self._hold(settled)

    def forget(self, settled: SettledCall) -> None:
        """Do not call back any more."""
        self._held.pop(settled, None)

    def _is_safe(self) -> bool:
        """Tell whether answers may leave now; raise Unavailable if no answer may leave."""
        return self._state.durable() >= self._state.taken() or self._gives_up()

    def _hold(self, settled: SettledCall) -> None:
        """Hold an answer until the trail has handed all records over, and then until they are safe."""
        self._loop = self._loop or asyncio.get_running_loop()
        self._held[settled] = self._state.taken()
        self._state.hurry()

    def wake(self) -> None:
        """Let go of answers whose records are safe. Call from any thread."""
        if self._held and self._loop:
            with contextlib.suppress(RuntimeError):  # the event loop has ended, and with it every request
                self._loop.call_soon_threadsafe(self.release)

    def _gives_up(self) -> bool:
        """Tell whether answers leave without a record on disk; raise Unavailable if no answer may leave."""
        if not self._state.is_failing():
            return False
        if self._on_full == "deny":
            raise Unavailable(UNWRITTEN)
        return self._on_full == "drop"

    def release(self) -> None:
        """Let go of answers whose records are safe, and of all if records cannot be made safe."""
        if not self._held:
            return
        safe, due = self._state.durable(), deque[tuple[SettledCall, bool]]()
        refused = False
        try:
            everybody = self._gives_up()
        except Unavailable:
            everybody = refused = True
        for settled, taken in self._held.items():
            if taken > safe and not everybody:
                break
            due.append((settled, refused and taken > safe))
        for settled, _ in due:
            del self._held[settled]
        self._settle(due)

    def _settle(self, due: deque[tuple[SettledCall, bool]]) -> None:
        """Call back in order. A call that raises does not hold up the others."""
        try:
            while due:
                settled, refused = due.popleft()
                settled(Unavailable(UNWRITTEN) if refused else None)
        finally:
            if due:
                asyncio.get_running_loop().call_soon(self._settle, due)

    def _look_for_room(self) -> None:
        self.look()
        if self.crowded:
            asyncio.get_running_loop().call_later(ROOM_SECONDS, self._look_for_room)
        elif self._room:
            self._room.set()
            self._room = None
