"""Output of a sink to a receiver: lines go to the spool, and from there to the receiver."""

from __future__ import annotations

import time
from typing import Final

from pdp.audit.push.bodies import BodyForm, JsonLines, OtlpLogs
from pdp.audit.push.delivery import Delivery, DeliveryOptions
from pdp.audit.push.receiver import open_receiver
from pdp.audit.push.spool import Spool
from pdp.audit.push.spool_reader import BatchLimits
from pdp.audit.sink_metrics import SinkMetrics
from pdp.config.audit import HttpSinkSettings, OtlpSinkSettings
from pdp.config.settings import Settings

LAST_DELIVERY_SECONDS: Final = 2.0
"""Longest delivery at the stop. The next start delivers what the spool keeps."""


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
        if self._delivery.close(min(timeout, LAST_DELIVERY_SECONDS)):
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
