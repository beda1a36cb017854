"""Metrics of several workers as those of one service."""

from __future__ import annotations

import ast
import json
import math
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from support.paths import ROOT
from support.service.serving import settings_of

from pdp.app.service import Service
from pdp.app.workers.metrics import GAUGES, MergedMetrics, parse_exposition
from pdp.telemetry import Telemetry

Sample = tuple[str, tuple[tuple[str, str], ...]]


def samples(text: str) -> dict[Sample, float]:
    """Every sample of an exposition, read by Prometheus' own parser."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def merged(*workers: Telemetry) -> MergedMetrics:
    metrics = MergedMetrics()
    for number, telemetry in enumerate(workers):
        metrics.update(number, telemetry.text())
    return metrics


Request = tuple[str, str, int, int, float]
requests = st.lists(
    st.tuples(
        st.sampled_from(["check", "trino", "grpc"]),
        st.sampled_from(["200", "429"]),
        st.integers(0, 5),
        st.integers(0, 5),
        st.floats(0, 20),
    ),
    max_size=12,
)


def count(telemetry: Telemetry, counted: list[Request]) -> Telemetry:
    for surface, code, permits, denials, seconds in counted:
        telemetry.count_request(surface, code)
        telemetry.count_decisions(surface, permits, denials, seconds)
        telemetry.engine_failures.labels(surface).inc()
    return telemetry


@given(st.lists(requests, min_size=1, max_size=4), st.integers(0, 3))
def test_the_metrics_of_workers_equal_those_of_one_service(workers: list[list[Request]], ended: int) -> None:
    """A worker that has ended still counts."""
    one = count(Telemetry(), [request for counted in workers for request in counted])
    metrics = merged(*(count(Telemetry(), counted) for counted in workers))
    metrics.retire(ended)
    found, wanted = samples(metrics.text()), samples(one.text().decode())
    for sample in wanted.keys() - {("pdp_ready", ()), ("pdp_audit_waiting", ())}:
        if not sample[0].endswith("_created"):
            assert math.isclose(found[sample], wanted[sample], abs_tol=1e-9), sample
    assert wanted.keys() - {("pdp_ready", ()), ("pdp_audit_waiting", ())} <= found.keys()


def test_gauges_are_added_or_the_least_counts() -> None:
    one, two = Telemetry(), Telemetry()
    for telemetry, ready, waiting in ((one, 1, 5), (two, 0, 7)):
        telemetry.ready.set(ready)
        telemetry.audit_waiting.set(waiting)
    metrics = merged(one, two)
    assert samples(metrics.text())["pdp_ready", ()] == 0
    assert samples(metrics.text())["pdp_audit_waiting", ()] == 12
    metrics.retire(1)
    assert samples(metrics.text())["pdp_ready", ()] == 1
    assert samples(metrics.text())["pdp_audit_waiting", ()] == 5


def gauges_made(file: Path) -> set[str]:
    """Names of the gauges that a file makes for the registry of a worker."""
    calls = (node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call))
    named = (call for call in calls if getattr(call.func, "id", getattr(call.func, "attr", "")) == "Gauge")
    return {ast.literal_eval(call.args[0]) for call in named}


def test_every_gauge_of_a_worker_has_a_rule_for_several_workers() -> None:
    made = set[str]().union(*map(gauges_made, (ROOT / "pdp").rglob("*.py")))
    assert {"pdp_ready", "pdp_cache_breaker"} <= made <= GAUGES.keys()


async def test_the_metrics_of_services_with_every_part_are_merged(tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text(json.dumps({"tables": {"lake.s.t": {"columns": {"a": "VARCHAR"}}}}))
    catalog = {"uri": "http://127.0.0.1:9/", "relations": {}}
    config = {
        "cache": {"redis": "redis://127.0.0.1:9", "redis_for": "all", "mac_key": "k" * 40},
        "warehouses": {"lake": {"default_ref": "main", "catalog": catalog}},
        "policies": {"row_access": [{"path": "rows.json", "allow_empty": True}]},
    }
    service = Service(settings_of(config, tmp_path))
    text = service.metrics()
    await service.stop()
    families = list(parse_exposition(text.decode()))
    assert {"pdp_cache_breaker", "pdp_cache_lookup_seconds"} <= {family.name for family in families}
    assert {family.name for family in families if not family.outlives_worker()} <= GAUGES.keys()
    metrics = MergedMetrics()
    for worker in range(3):
        metrics.update(worker, text)
    assert samples(metrics.text()).keys() == samples(text.decode()).keys()


def test_of_an_unknown_gauge_the_largest_value_counts() -> None:
    metrics = MergedMetrics()
    for worker, value in enumerate((1, 3, 2)):
        lines = ("# HELP pdp_new Of a later version", "# TYPE pdp_new gauge", f'pdp_new{{a="b"}} {value}')
        metrics.update(worker, "\n".join(lines).encode())
    assert samples(metrics.text()) == {("pdp_new", (("a", "b"),)): 3}


def test_counters_never_fall_when_a_worker_ends_and_another_starts() -> None:
    before = count(Telemetry(), [("check", "200", 3, 0, 0.1)])
    metrics = merged(before)
    metrics.retire(0)
    requests = ("pdp_requests_total", (("code", "200"), ("surface", "check")))
    assert samples(metrics.text())[requests] == 1
    metrics.update(1, count(Telemetry(), [("check", "200", 3, 0, 0.1)]).text())
    assert samples(metrics.text())[requests] == 2
    metrics.retire("of a worker that never answered")
    assert samples(metrics.text())[requests] == 2
