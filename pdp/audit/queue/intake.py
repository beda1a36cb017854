"""Intake of a sink: a queue of batches, and the thread that writes them to an output in order.

Knows what happens while the output takes nothing: batches wait, or those beyond a bound are dropped and announced.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Final, Protocol, TypeAlias

import msgspec
import structlog

from pdp.audit.files.folder import cause_of
from pdp.audit.queue.sinks import LineBatch, SinkMetrics, SinkProgress
from pdp.audit.records.schema import DROPPED, SCHEMA
from pdp.audit.records.writing import timestamp
from pdp.model.revision import new_id

RETRY_SECONDS: Final = 0.5
_WRITE_BYTES: Final = 4 << 20
_DROP_RECORDS: Final = 25_000
_DROP_DECISIONS: Final = 1_000_000
"""Waiting records, and decisions in them, beyond which batches are dropped: half of what lets the trail drop."""
log = structlog.get_logger()


class LineOutput(Protocol):
    """Output of lines. The thread of an intake alone calls `append`, `sync` and `reopen`."""

    def append(self, text: bytes) -> None:
        """Take whole lines, all or none; raise OSError."""
        ...

    def sync(self) -> None:
        """Wait until all lines survive a loss of power; raise OSError."""
        ...

    def reopen(self) -> None:
        """Begin anew, if the output can."""
        ...

    def close(self, timeout: float) -> bool:
        """End; return False if lines would be lost."""
        ...

    def waiting(self) -> int:
        """Return the bytes that have not reached their destination. Any thread may ask."""
        ...

    def trouble(self) -> str:
        """Return why nothing reaches the destination; empty if all is well. Any thread may ask."""
        ...


class IntakeOptions(msgspec.Struct, frozen=True):
    """Options of an intake. With `drop_beyond`, batches are dropped while as many bytes wait; else they wait.

    `syncs`: the output syncs after each write, and `promises` tells whether answers may wait for that.
    """

    instance: str
    drop_beyond: int | None = None
    syncs: bool = False
    promises: bool = False


class _Drops(msgspec.Struct, frozen=True):
    """Dropped records that nobody has announced: their number, and the first and last `seq`."""

    records: int = 0
    first: int = 0
    last: int = 0

    def add(self, other: _Drops) -> _Drops:
        """Return the sum with later drops."""
        if not self.records or not other.records:
            return self if self.records else other
        return _Drops(self.records + other.records, self.first, other.last)


_Order: TypeAlias = Callable[[], None]


class LineIntake:
    """Sink that hands batches to an output."""

    def __init__(self, output: LineOutput, options: IntakeOptions, metrics: SinkMetrics) -> None:
        self.progress = SinkProgress(promises=options.promises)
        self.name = metrics.name
        self.metrics = metrics
        self._output = output
        self._options = options
        self._queue: SimpleQueue[LineBatch | _Order] = SimpleQueue()
        self._waiting: list[LineBatch] = []
        self._orders: list[_Order] = []
        self._lock = threading.Lock()
        """Held while counts change: the caller of `put` may drop a batch while the thread waits for the output."""
        self._taken = self._records = self._decisions = 0
        """Bytes, records and decisions of all batches so far."""
        self._ends: deque[int] = deque()
        """Records up to the end of each batch in the queue, and of those that were dropped behind it."""
        self._drops = _Drops()
        self._trouble = ""
        self._ending = self._drained = False
        metrics.watch(self.waiting)
        self._thread = threading.Thread(target=self._run, name=f"audit-{metrics.name}", daemon=True)
        self._thread.start()

    def put(self, batch: LineBatch) -> None:
        """Take a batch and return at once."""
        is_late = self._options.drop_beyond is not None and self._is_behind(batch, self._options.drop_beyond)
        self._taken += batch.size
        self._records += len(batch.lines)
        self._decisions += batch.decisions
        if is_late:
            self._skip(batch)
            return
        with self._lock:
            self._ends.append(self._records)
        self._queue.put(batch)

    def reopen(self) -> None:
        """Let the output begin anew."""
        self._queue.put(self._output.reopen)

    def close(self, timeout: float) -> bool:
        """Write all batches and end; return False if `timeout` seconds were not enough, or lines are lost."""
        deadline = time.monotonic() + timeout
        self._queue.put(self._end)
        self._thread.join(timeout)
        return self._drained and self._output.close(max(0.0, deadline - time.monotonic()))

    def waiting(self) -> int:
        """Return the bytes that have not reached their destination."""
        return self._taken - self.progress.bytes + self._output.waiting()

    def trouble(self) -> str:
        """Return why nothing reaches the destination; empty if all is well."""
        return self._trouble or self._output.trouble()

    def _is_behind(self, batch: LineBatch, bound: int) -> bool:
        """Tell whether so much waits that a further batch is dropped. The bounds are below those of the trail."""
        waiting, progress = self._taken - self.progress.bytes, self.progress
        return waiting > 0 and (
            waiting + batch.size > bound
            or self._records - progress.records + len(batch.lines) > _DROP_RECORDS
            or self._decisions - progress.decisions + batch.decisions > _DROP_DECISIONS
        )

    def _end(self) -> None:
        self._ending = True

    def _run(self) -> None:
        try:
            while not self._ending:
                self._take()
                while not self._attempt():
                    time.sleep(RETRY_SECONDS)
            self._drained = True
        finally:
            # a thread that ends for any other reason than `close` writes nothing any more
            if not self._drained:
                self._note_failure("nothing is written any more")

    def _take(self) -> None:
        """Wait for a batch or an order. Take more batches, up to one write."""
        found = self._queue.get()
        size = 0
        while isinstance(found, LineBatch):
            self._waiting.append(found)
            size += found.size
            if size >= _WRITE_BYTES:
                return
            try:
                found = self._queue.get_nowait()
            except Empty:
                return
        self._orders.append(found)

    def _attempt(self) -> bool:
        """Write what waits, and carry out the order behind it; return False if that must be tried again."""
        try:
            self._write()
            while self._orders:
                self._orders[0]()
                self._orders.pop(0)
        except Exception as error:  # noqa: BLE001  the lines wait, or are counted as dropped, and the state says so
            self._note_failure(cause_of(error))
            return self._options.drop_beyond is not None and self._give_up()
        if self._trouble:
            self._trouble, self.progress.failing = "", False
            self.progress.changed()
        return True

    def _give_up(self) -> bool:
        """Drop what waits. Return True: nothing is left to be tried again but an order to end, which needs nothing."""
        dropped, self._waiting = self._waiting, []
        with self._lock:
            self._drop(dropped)
            self._finish(dropped)
        self.progress.changed()
        for order in self._orders:
            self._ending = self._ending or order == self._end
        self._orders = []
        return True

    def _write(self) -> None:
        """Write all waiting batches as one piece, with an announcement of what was dropped before."""
        with self._lock:
            drops, self._drops = self._drops, _Drops()
        batches = self._waiting
        try:
            lines = [self._announcement(drops)] if drops.records else []
            lines += [line for batch in batches for line in batch.lines]
            if lines:
                self._output.append(b"".join(lines))
            if lines and self._options.syncs:
                self._output.sync()
        except BaseException:
            with self._lock:
                self._drops = drops.add(self._drops)
            raise
        with self._lock:
            self._waiting = []
            self.progress.count(batches)
            self._finish(batches)
        self.progress.changed()

    def _skip(self, batch: LineBatch) -> None:
        """Drop a batch that is not in the queue. Answers do not wait for it, but for all batches before it."""
        with self._lock:
            self._drop([batch])
            if self._ends:
                self._ends[-1] = self._records
                return
            self.progress.durable = self._records
        self.progress.changed()

    def _drop(self, batches: Sequence[LineBatch]) -> None:
        """Count batches as written, though this sink loses them. Call with the lock."""
        records = sum([len(batch.lines) for batch in batches])
        if records:
            self._drops = self._drops.add(_Drops(records, batches[0].seq, batches[-1].seq + len(batches[-1].lines) - 1))
            self.progress.count(batches)
            self.metrics.dropped.inc(records)

    def _finish(self, batches: Sequence[LineBatch]) -> None:
        """Let no answer wait for the oldest batches of the queue any more. Call with the lock."""
        for _ in batches:
            self.progress.durable = self._ends.popleft()

    def _announcement(self, drops: _Drops) -> bytes:
        """Return the record of dropped records. It is no part of the trail: it has no `seq`."""
        details = {"sink": self.metrics.name, "records": drops.records, "firstSeq": drops.first, "lastSeq": drops.last}
        head = {"event": "service", "schema": SCHEMA, "id": new_id(), "instance": self._options.instance}
        return (
            msgspec.json.encode({**head, "time": timestamp(time.time()), "what": DROPPED, "details": details}) + b"\n"
        )

    def _note_failure(self, cause: str) -> None:
        """Note why nothing can be written. A sink that may drop does not make the service unready."""
        before, self._trouble = self._trouble, cause
        if not before:
            with contextlib.suppress(OSError):  # the log may be on the same full disk
                log.error("audit cannot be written", sink=self.name, cause=cause)
        failing = self._options.drop_beyond is None
        if failing != self.progress.failing:
            self.progress.failing = failing
            self.progress.changed()
