"""Delivery of a spool to a receiver, in a thread of its own, and the sink that fills the spool.

A batch goes to the receiver until it takes the batch: each record arrives at least once, and the records of an instance
in order. The pauses between attempts grow, and differ, so that a fleet does not come back at the same moment.
"""

from __future__ import annotations

import contextlib
import gzip
import random
import threading
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
import structlog

from pdp.audit.push.bodies import BodyForm, JsonLines, OtlpLogs
from pdp.audit.push.http import BatchRefused, DeliveryFailed, HttpSender, open_receiver
from pdp.audit.push.spool import Spool
from pdp.audit.push.spool_reader import BatchLimits, SpoolBatch, SpoolReader
from pdp.audit.queue.sinks import SinkMetrics
from pdp.config.audit import HttpSinkSettings, OtlpSinkSettings
from pdp.config.settings import Settings
from pdp.model.pauses import pauses

BATCH_ID: Final = "X-Batch-ID"
"""Header with the id of a batch. A batch that is sent again has the same id and the same lines."""
FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0
"""Seconds between two attempts: the first pause, and the longest."""
TAKE_OVER_SECONDS: Final = 30.0
"""Time between two looks for instances that have ended meanwhile."""
_COMPRESSION: Final = 1
_DISK_PAUSE: Final = 1.0
_ABORT_SECONDS: Final = 1.0
log = structlog.get_logger()


class DeliveryOptions(msgspec.Struct, frozen=True):
    """Options of a delivery: seconds that an incomplete batch waits for more lines, and the compression."""

    gather: float
    gzip: bool


class Trouble(NamedTuple):
    """Failing delivery: its cause, and the time since which it fails, in seconds of the monotonic clock."""

    cause: str
    since: float


class Delivery:
    """Delivery of all readers of a spool, one after the other: the oldest instance first."""

    def __init__(
        self, spool: Spool, receiver: HttpSender, form: BodyForm, options: DeliveryOptions, metrics: SinkMetrics
    ) -> None:
        self._spool = spool
        self._receiver = receiver
        self._form = form
        self._options = options
        self._metrics = metrics
        self.trouble: Trouble | None = None
        """Set while the receiver takes nothing."""
        self._renew = self._given_up = False
        self._news = threading.Event()
        """Set when there may be more lines, and at the end."""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"audit-{metrics.name}", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Tell that there are more lines."""
        self._news.set()

    def renew(self) -> None:
        """Read the headers of the receiver again before the next attempt, which comes at once."""
        self._renew = True
        self._news.set()

    def close(self, timeout: float) -> bool:
        """Deliver what is left, for `timeout` seconds and until the first failure. The spool keeps the rest.

        Return False if the thread is still connecting: it ends with the process.
        """
        self._ending.set()
        self._news.set()
        self._thread.join(timeout)
        self._receiver.abort()
        self._thread.join(_ABORT_SECONDS)
        if self._thread.is_alive():
            return False
        self._receiver.close()
        return True

    def _run(self) -> None:
        while not self._attempt():
            if self._ending.wait(_DISK_PAUSE):
                self._attempt()
                return

    def _attempt(self) -> bool:
        """Deliver until the service stops; return False if the spool cannot be used."""
        try:
            self._deliver_readers()
        except Exception as error:  # noqa: BLE001  nothing is dropped: the lines wait, and the state says so
            self._note_trouble(_cause(error))
            return False
        return True

    def _deliver_readers(self) -> None:
        """Deliver the lines of ended instances, then those of this one, until the service stops."""
        *left, own = self._spool.readers
        self._deliver_left(left)
        look_at = time.monotonic() + TAKE_OVER_SECONDS
        while not self._ending.is_set():
            if not own.has_more():  # a pause may have taken the news
                self._news.wait(TAKE_OVER_SECONDS)
            self._news.clear()
            self._ending.wait(self._options.gather)
            self._deliver_own(own)
            if time.monotonic() >= look_at:
                self._deliver_left(self._spool.take_over())
                look_at = time.monotonic() + TAKE_OVER_SECONDS
        if not self._given_up:
            self._deliver_own(own)

    def _deliver_left(self, readers: Sequence[SpoolReader]) -> None:
        """Deliver the lines of ended instances, the oldest instance first."""
        for reader in readers:
            while not reader.closed and (batch := reader.next()):
                if not self._deliver(reader, batch):
                    return
            reader.close()

    def _deliver_own(self, reader: SpoolReader) -> None:
        """Deliver whole batches as long as there are any, and what is left once."""
        while batch := reader.next():
            if not self._deliver(reader, batch):
                return
            if not reader.fills(batch) and not self._ending.is_set():
                return

    def _deliver(self, reader: SpoolReader, batch: SpoolBatch) -> bool:
        """Deliver a batch, or split a refused one; return False if the service stops before."""
        try:
            if not self._send(batch):
                return False
        except BatchRefused as error:
            self._note_trouble(str(error))
            if batch.records > 1:
                reader.halve(batch)
                return True
            self._set_aside(reader.instance, batch, str(error))
        reader.finish(batch)
        return True

    def _set_aside(self, instance: str, batch: SpoolBatch, cause: str) -> None:
        """Keep a record refused for good beside the spool; raise OSError."""
        self._spool.refused.keep(instance, batch.lines)
        self._metrics.refused.inc()
        self.trouble = None
        with contextlib.suppress(OSError):
            folder = str(self._spool.refused.path)
            log.error("receiver refused an audit record", sink=self._metrics.name, cause=cause, folder=folder)

    def _send(self, batch: SpoolBatch) -> bool:
        """Send a batch until the receiver takes it; return False if the service stops before.

        Raise BatchRefused if the receiver refuses the batch for good.
        """
        body = self._form.body(batch.lines)
        headers = {"Content-Type": self._form.content_type, BATCH_ID: batch.id}
        if self._options.gzip:
            body, headers["Content-Encoding"] = gzip.compress(body, _COMPRESSION, mtime=0), "gzip"
        pause = FIRST_PAUSE
        while True:
            if self._renew:
                self._renew = False
                self._receiver.renew()
            try:
                answer = self._receiver.send(body, headers)
            except BatchRefused:
                raise
            except DeliveryFailed as error:
                self._note_trouble(str(error))
                if self._ending.is_set():
                    self._given_up = True
                    return False
                self._pause(max(error.wait, pause * random.uniform(0.5, 1)))  # noqa: S311  no secret
                pause = min(LONGEST_PAUSE, pause * 2)
            else:
                self._note_success(batch, self._form.refused(answer))
                return True

    def _pause(self, seconds: float) -> None:
        """Wait, but not beyond an order to renew or to end."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self._renew and not self._ending.is_set():
            self._news.clear()
            self._news.wait(left)

    def _note_trouble(self, cause: str) -> None:
        self._metrics.failures.inc()
        before = self.trouble
        self.trouble = Trouble(cause, before.since if before else time.monotonic())
        if before is None:
            with contextlib.suppress(OSError):  # the log may be on a full disk
                log.warning("audit cannot be delivered", sink=self._metrics.name, cause=cause)

    def _note_success(self, batch: SpoolBatch, refused: int) -> None:
        before, self.trouble = self.trouble, None
        self._metrics.delivered.inc(batch.records - refused)
        self._metrics.refused.inc(refused)
        with contextlib.suppress(OSError):
            if before:
                log.info("audit is delivered again", sink=self._metrics.name)
            if refused:
                log.error("receiver refused audit records for good", sink=self._metrics.name, records=refused)


def _cause(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"the spool cannot be read: {error.strerror}"
    return repr(error)


class SpoolOutput:
    """Writer of lines to a spool that is delivered meanwhile."""

    def __init__(self, spool: Spool, delivery: Delivery) -> None:
        self._spool = spool
        self._delivery = delivery

    def append(self, text: bytes) -> None:
        """Put lines into the spool."""
        self._spool.append(text)
        self._delivery.wake()

    def sync(self) -> None:
        """Wait until the spool is on disk."""
        self._spool.sync()

    def reopen(self) -> None:
        """Read the headers of the receiver again, and try at once."""
        self._delivery.renew()

    def close(self, timeout: float) -> bool:
        """Deliver for a moment what is left. The spool has everything, so nothing is lost."""
        if self._delivery.close(min(timeout, pauses().last_delivery)):
            self._spool.close()
        return True

    def waiting(self) -> int:
        """Return the bytes that the receiver does not have."""
        return self._spool.waiting()

    def trouble(self) -> str:
        """Return why the receiver takes nothing, since when, and how much waits."""
        trouble = self._delivery.trouble
        if trouble is None:
            return ""
        seconds, mib = time.monotonic() - trouble.since, self.waiting() / (1 << 20)
        return f"{trouble.cause}, for {seconds:.0f} seconds; {mib:.1f} MiB wait in the spool"


def open_spool_output(
    settings: Settings, push: HttpSinkSettings | OtlpSinkSettings, instance: str, metrics: SinkMetrics
) -> SpoolOutput:
    """Return the output of a push of an instance, which begins to deliver; raise ConfigError for unusable files."""
    receiver = open_receiver(settings, push)
    form: BodyForm = OtlpLogs(push.service) if isinstance(push, OtlpSinkSettings) else JsonLines()
    limits = BatchLimits(push.batch_records, push.batch_kib << 10)
    spool = Spool(settings.path(push.spool), instance, push.spool_mib << 20, limits)
    delivery = Delivery(spool, receiver, form, DeliveryOptions(push.batch_seconds, push.gzip), metrics)
    return SpoolOutput(spool, delivery)
