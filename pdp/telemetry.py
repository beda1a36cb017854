"""Metrics: one registry per service, labels from closed sets only.

Each request counts, so counting is plain addition. `_Tallies` turns the numbers into Prometheus' families when somebody
reads the metrics.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

_LATENCY: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Upper bounds, in seconds, of the buckets of latency. One more bucket has no bound."""
_BUCKETS: Final = (*map(str, _LATENCY), "+Inf")
_OPERATIONS: Final = 100
"""Most names of unknown operations that have a label of their own."""


class RequestTally:
    """Number of requests of one surface with one code."""

    __slots__ = ("count", "created")

    def __init__(self) -> None:
        self.count = 0
        self.created = time.time()


class _DecisionTally:
    """Numbers of decisions of one surface, and the time of its batches: the total, and batches by bucket."""

    __slots__ = ("buckets", "created", "denials", "permits", "seconds")

    def __init__(self) -> None:
        self.permits = self.denials = 0
        self.seconds = 0.0
        self.buckets = [0] * len(_BUCKETS)
        self.created = time.time()


class _Tallies(Collector):
    """Numbers of requests and decisions, with their families for a registry."""

    def __init__(self) -> None:
        self.requests: dict[tuple[str, str], RequestTally] = {}
        """(surface, code) -> tally."""
        self.decisions: dict[str, _DecisionTally] = {}
        """Surface -> tally."""

    def collect(self) -> Iterator[Metric]:
        """Yield the families with the numbers of this moment."""
        requests = CounterMetricFamily("pdp_requests_total", "Requests answered", labels=["surface", "code"])
        for labels, answered in list(self.requests.items()):
            requests.add_metric(labels, answered.count, answered.created)
        decisions = CounterMetricFamily("pdp_decisions_total", "Decisions made", labels=["surface", "effect"])
        seconds = HistogramMetricFamily("pdp_decide_seconds", "Time to decide a batch", labels=["surface"])
        for surface, decided in list(self.decisions.items()):
            decisions.add_metric([surface, "allow"], decided.permits, decided.created)
            decisions.add_metric([surface, "deny"], decided.denials, decided.created)
            counts = accumulate(decided.buckets)  # a bucket of Prometheus includes all smaller ones
            seconds.add_metric([surface], list(zip(_BUCKETS, counts, strict=True)), decided.seconds)
            seconds.add_sample("pdp_decide_seconds_created", {"surface": surface}, decided.created)
        yield requests
        yield decisions
        yield seconds


class Telemetry:
    """Metrics of the service. `text` returns the metrics in Prometheus' exposition format."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._tallies = _Tallies()
        self.registry.register(self._tallies)
        self.engine_failures = Counter(
            "pdp_engine_failures_total", "Groups for which an engine failed; all denied", ["engine"],
            registry=self.registry,
        )  # fmt: skip
        self.unknown_operations = Counter(
            "pdp_trino_unknown_operations_total", "Trino operations that no table knows; all denied",
            registry=self.registry,
        )  # fmt: skip
        self._polaris_operations, self._polaris_names = self._of_polaris(), set[str]()
        self.trino_failures = Counter(
            "pdp_trino_failures_total", "Trino requests that no answer could be made for; all denied or errors",
            registry=self.registry,
        )  # fmt: skip
        self.key_fetches = Counter(
            "pdp_identity_key_fetches_total", "Fetches of the keys of identity providers", ["provider", "outcome"],
            registry=self.registry,
        )  # fmt: skip
        self.provider_keys = Gauge(
            "pdp_identity_keys", "Keys of an identity provider that count", ["provider"], registry=self.registry
        )
        self.catalog_passes, self.catalog_relations = self._of_catalogs()
        self.audit_written = Counter("pdp_audit_records_total", "Audit records written", registry=self.registry)
        self.audit_waiting = Gauge("pdp_audit_waiting", "Audit records not yet written", registry=self.registry)
        self.audit_dropped = Counter(
            "pdp_audit_dropped_total", "Requests answered without a record, by `audit.on_full: drop`",
            registry=self.registry,
        )  # fmt: skip
        self.audit_unencodable = Counter(
            "pdp_audit_unencodable_total", "Audit records that hold no more than the outcome", registry=self.registry
        )
        self.audit_left_out = Counter(
            "pdp_audit_left_out_total", "Records of permits that `audit.sample_allows` left out", registry=self.registry
        )
        self.sink_delivered = self._of_sinks("delivered_total", "Audit records that a sink has delivered")
        self.sink_dropped = self._of_sinks("dropped_total", "Audit records that a sink has dropped")
        self.sink_refused = self._of_sinks("refused_total", "Audit records that a receiver refused for good")
        self.sink_failures = self._of_sinks("failures_total", "Failed attempts of a sink to deliver")
        self.sink_waiting = Gauge(
            "pdp_audit_sink_waiting_bytes", "Bytes of audit records that a sink has not delivered", ["sink"],
            registry=self.registry,
        )  # fmt: skip
        self.ready = Gauge("pdp_ready", "1 while the service is ready", registry=self.registry)
        self._reported = Counter(
            "pdp_report_checks_total", "Concrete checks compared with an authority in report mode",
            ["authority", "outcome"], registry=self.registry,
        )  # fmt: skip

    def _of_catalogs(self) -> tuple[Counter, Gauge]:
        passes = Counter(
            "pdp_catalog_passes_total", "Passes over the tables and views of a catalog", ["warehouse", "outcome"],
            registry=self.registry,
        )  # fmt: skip
        relations = Gauge(
            "pdp_catalog_relations", "Tables and views that the rewriter knows", ["warehouse"], registry=self.registry
        )
        return passes, relations

    def _of_polaris(self) -> Counter:
        return Counter(
            "pdp_polaris_unknown_operations_total", "Polaris operations that no table knows, by name; all denied",
            ["operation"], registry=self.registry,
        )  # fmt: skip

    def _of_sinks(self, name: str, text: str) -> Counter:
        return Counter(f"pdp_audit_sink_{name}", text, ["sink"], registry=self.registry)

    def count_request(self, surface: str, code: str) -> RequestTally:
        """Count a request; return its tally, which counts further requests of this kind. Call from one thread only."""
        tally = self._tallies.requests.get((surface, code))
        if tally is None:
            tally = self._tallies.requests[surface, code] = RequestTally()
        tally.count += 1
        return tally

    def count_decisions(self, surface: str, permits: int, denials: int, seconds: float) -> None:
        """Count the decisions of a batch, and observe the time in seconds. Call from one thread only."""
        tally = self._tallies.decisions.get(surface)
        if tally is None:
            tally = self._tallies.decisions[surface] = _DecisionTally()
        tally.permits += permits
        tally.denials += denials
        tally.seconds += seconds
        tally.buckets[bisect_left(_LATENCY, seconds) if seconds > _LATENCY[0] else 0] += 1

    def count_polaris_operation(self, name: str) -> bool:
        """Count an unknown operation of Polaris, beyond a bound as `other`. Tell whether the name has a new label."""
        is_new = name not in self._polaris_names and len(self._polaris_names) < _OPERATIONS
        if is_new:
            self._polaris_names.add(name)
        self._polaris_operations.labels(name if name in self._polaris_names else "other").inc()
        return is_new

    def count_reported(self, authority: str, compared: int, differing: int) -> None:
        """Count concrete checks that an authority in report mode decided, too."""
        self._reported.labels(authority, "differs").inc(differing)
        self._reported.labels(authority, "same").inc(compared - differing)

    def count_unreported(self, authority: str, outcome: str, checks: int) -> None:
        """Count concrete checks without a comparison: the comparison `failed`, or was `left_out`."""
        self._reported.labels(authority, outcome).inc(checks)

    def text(self) -> bytes:
        """Return the metrics in Prometheus' exposition format."""
        return generate_latest(self.registry)
