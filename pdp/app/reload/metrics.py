"""Metrics of reloads: the served policies, their age, and the number of reloads by outcome."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final, Literal

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pdp.app.sources.client import SourceState

Outcome = Literal["published", "unchanged", "failed"]
_OUTCOMES: Final[tuple[Outcome, ...]] = ("published", "unchanged", "failed")


class ReloadMetrics(Collector):
    """Numbers of a service. Only the present digest is a label, so old digests have no series."""

    def __init__(self) -> None:
        self._digest = ""
        self._since = time.time()
        self._not_after: float | None = None
        self._failing = False
        self._source: SourceState | None = None
        self._reloads = dict.fromkeys(_OUTCOMES, 0)

    def publish(self, digest: str, not_after: float | None) -> None:
        """Note the bundle in use from now on, by digest, and the end of the certificate in seconds since 1970."""
        if digest != self._digest:
            self._digest, self._since = digest, time.time()
        self._not_after = not_after

    def note_source(self, source: SourceState) -> None:
        """Note the condition of a source."""
        self._source = source

    def count(self, outcome: Outcome) -> None:
        """Count a reload."""
        self._reloads[outcome] += 1
        self._failing = outcome == "failed"

    def collect(self) -> Iterator[Metric]:
        """Yield the families with the numbers of this moment."""
        bundle = GaugeMetricFamily("pdp_policies_info", "1 for the digest of the served policies", labels=["bundle"])
        bundle.add_metric([self._digest], 1)
        yield bundle
        age = GaugeMetricFamily("pdp_policies_age_seconds", "Time since these policies serve")
        age.add_metric([], max(0.0, time.time() - self._since))
        yield age
        if self._not_after is not None:
            end = GaugeMetricFamily("pdp_tls_not_after_seconds", "End of the certificate, in seconds since 1970")
            end.add_metric([], self._not_after)
            yield end
        if self._source:
            yield from _source_families(self._source)
        failing = GaugeMetricFamily("pdp_policies_reload_failing", "1 after a failed reload, until a good one")
        failing.add_metric([], self._failing)
        yield failing
        reloads = CounterMetricFamily("pdp_policies_reloads", "Reloads of policies", labels=["outcome"])
        for outcome, number in self._reloads.items():
            reloads.add_metric([outcome], number)
        yield reloads


def _source_families(source: SourceState) -> Iterator[Metric]:
    age = GaugeMetricFamily("pdp_policies_source_age_seconds", "Time since the source of policies has answered")
    age.add_metric([], max(0.0, time.time() - source.contact))
    yield age
    silent = GaugeMetricFamily("pdp_policies_source_silent", "1 while the source of policies does not answer")
    silent.add_metric([], bool(source.trouble))
    yield silent
