"""Metrics: one registry per service, labels from closed sets only."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_LATENCY = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


class Telemetry:
    """Metrics of the service. `text` returns the metrics in Prometheus' exposition format."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter("pdp_requests_total", "Requests answered", ["surface", "code"], registry=self.registry)
        self.decisions = Counter("pdp_decisions_total", "Decisions made", ["surface", "effect"], registry=self.registry)
        self.seconds = Histogram(
            "pdp_decide_seconds", "Time to decide a batch", ["surface"], buckets=_LATENCY, registry=self.registry
        )
        self.engine_failures = Counter(
            "pdp_engine_failures_total", "Groups for which an engine failed; all denied", ["engine"],
            registry=self.registry,
        )  # fmt: skip
        self.unknown_operations = Counter(
            "pdp_trino_unknown_operations_total", "Trino operations that no table knows; all denied",
            registry=self.registry,
        )  # fmt: skip
        self.trino_failures = Counter(
            "pdp_trino_failures_total", "Trino requests that no answer could be made for; all denied or errors",
            registry=self.registry,
        )  # fmt: skip
        self.key_fetches = Counter(
            "pdp_identity_key_fetches_total", "Fetches of the keys of identity providers", ["provider", "outcome"],
            registry=self.registry,
        )  # fmt: skip
        self.audit_written = Counter("pdp_audit_records_total", "Audit records written", registry=self.registry)
        self.audit_waiting = Gauge("pdp_audit_waiting", "Audit records not yet written", registry=self.registry)
        self._answered: dict[tuple[str, str], Counter] = {}
        self._decided: dict[str, tuple[Counter, Counter, Histogram]] = {}
        self.ready = Gauge("pdp_ready", "1 while the service is ready", registry=self.registry)

    def count_request(self, surface: str, code: str) -> None:
        """Count a request. Labels come from closed sets, so a counter per label pair is kept."""
        counter = self._answered.get((surface, code))
        if counter is None:
            counter = self._answered[surface, code] = self.requests.labels(surface, code)
        counter.inc()

    def count_decisions(self, surface: str, permits: int, denials: int, seconds: float) -> None:
        """Count the decisions of a batch, and observe the time in seconds."""
        metrics = self._decided.get(surface)
        if metrics is None:
            allow, deny = self.decisions.labels(surface, "allow"), self.decisions.labels(surface, "deny")
            metrics = self._decided[surface] = (allow, deny, self.seconds.labels(surface))
        metrics[0].inc(permits)
        metrics[1].inc(denials)
        metrics[2].observe(seconds)

    def text(self) -> bytes:
        """Return the metrics in Prometheus' exposition format."""
        return generate_latest(self.registry)
