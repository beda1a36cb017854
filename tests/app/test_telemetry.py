"""Metrics: the text of the tallies equals the text of Prometheus' own metrics."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from pdp.telemetry import Telemetry

LATENCY = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
SURFACES = ("http", "grpc", "trino", 'odd"\n')

requests = st.lists(st.tuples(st.sampled_from(SURFACES), st.sampled_from(("200", "400", "OK"))))
batches = st.lists(
    st.tuples(
        st.sampled_from(SURFACES),
        st.integers(0, 2000),
        st.integers(0, 2000),
        st.sampled_from((0.0, *LATENCY, 11.0)) | st.floats(0, 20),
    )
)


class PlainMetrics:
    """The same metrics by the metric classes of the client library."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter("pdp_requests_total", "Requests answered", ["surface", "code"], registry=self.registry)
        self.decisions = Counter("pdp_decisions_total", "Decisions made", ["surface", "effect"], registry=self.registry)
        self.seconds = Histogram(
            "pdp_decide_seconds", "Time to decide a batch", ["surface"], buckets=LATENCY, registry=self.registry
        )

    def count_decisions(self, surface: str, permits: int, denials: int, seconds: float) -> None:
        self.decisions.labels(surface, "allow").inc(permits)
        self.decisions.labels(surface, "deny").inc(denials)
        self.seconds.labels(surface).observe(seconds)


def without_creation_times(text: bytes) -> str:
    return re.sub(r"(?m)^(pdp_\w+_created.*) \S+$", r"\1 T", text.decode())


@given(requests, batches)
def test_tallies_read_as_the_metrics_of_the_library(
    asked: list[tuple[str, str]], decided: list[tuple[str, int, int, float]]
) -> None:
    telemetry, plain = Telemetry(), PlainMetrics()
    for surface, code in asked:
        telemetry.count_request(surface, code)
        plain.requests.labels(surface, code).inc()
    for batch in decided:
        telemetry.count_decisions(*batch)
        plain.count_decisions(*batch)
    want = without_creation_times(generate_latest(plain.registry))
    got = without_creation_times(telemetry.text())
    assert got.startswith(want)
    assert got.index("pdp_engine_failures_total") > len(want)
