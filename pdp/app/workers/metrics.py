"""Metrics of several workers as those of one service.

Counters and histograms are sums. They never fall: the last known numbers of a worker that has ended stay in the sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

_CREATED: Final = "_created"
"""End of the names that hold the time at which a counter began."""
GAUGES: Final[Mapping[str, Callable[[float, float], float]]] = {
    "pdp_audit_waiting": float.__add__,
    "pdp_catalog_relations": min,
    "pdp_identity_keys": min,
    "pdp_audit_sink_waiting_bytes": float.__add__,
    "pdp_cache_breaker": max,
    "pdp_ready": min,
    "pdp_workers": min,
    "pdp_worker_bundles": min,
}
"""Gauge -> how the values of two workers become one. Of any other gauge the largest value counts."""


class MetricFamily:
    """Samples of one name: `header` is its help and its type, `samples` are values by name and labels."""

    __slots__ = ("header", "kind", "name", "samples")

    def __init__(self, name: str) -> None:
        self.name = name
        self.kind = "untyped"
        self.header: list[str] = []
        self.samples: dict[str, float] = {}

    def outlives_worker(self) -> bool:
        """Tell whether the values of an ended worker still count."""
        return self.kind != "gauge" or self.name.endswith(_CREATED)

    def merge(self, other: MetricFamily) -> None:
        """Add the samples of another worker."""
        for labels, value in other.samples.items():
            mine = self.samples.get(labels)
            self.samples[labels] = value if mine is None else self._merged(mine, value)

    def _merged(self, mine: float, other: float) -> float:
        if self.name.endswith(_CREATED):
            return min(mine, other)
        return GAUGES.get(self.name, max)(mine, other) if self.kind == "gauge" else mine + other


class MergedMetrics:
    """Last known metrics of each worker, and the sums of the workers that have ended."""

    def __init__(self) -> None:
        self._current: dict[object, list[MetricFamily]] = {}
        self._ended: list[MetricFamily] = []

    def update(self, worker: object, text: bytes) -> None:
        """Replace the metrics of a worker."""
        self._current[worker] = list(parse_exposition(text.decode()))

    def retire(self, worker: object) -> None:
        """Keep the counters of a worker that has ended, and forget its gauges."""
        last = self._current.pop(worker, [])
        self._ended = list(_merge([self._ended, [family for family in last if family.outlives_worker()]]))

    def text(self) -> str:
        """Return the merged metrics in Prometheus' exposition format."""
        merged = _merge([self._ended, *self._current.values()])
        return "".join(f"{line}\n" for family in merged for line in (*family.header, *_lines(family)))


def parse_exposition(text: str) -> Iterator[MetricFamily]:
    """Yield the families of an exposition without timestamps and exemplars, as `Telemetry.text` returns it."""
    family: MetricFamily | None = None
    for line in text.splitlines():
        if line.startswith("# HELP "):
            if family:
                yield family
            family = MetricFamily(line.split(" ", 3)[2])
            family.header.append(line)
        elif family and line.startswith("# TYPE "):
            family.kind = line.rpartition(" ")[2]
            family.header.append(line)
        elif family:
            labels, _, value = line.rpartition(" ")
            family.samples[labels] = float(value)
    if family:
        yield family


def _merge(workers: Iterable[Iterable[MetricFamily]]) -> Iterable[MetricFamily]:
    merged: dict[str, MetricFamily] = {}
    for families in workers:
        for family in families:
            if family.name not in merged:
                merged[family.name] = copy = MetricFamily(family.name)
                copy.kind, copy.header = family.kind, family.header
            merged[family.name].merge(family)
    return merged.values()


def _lines(family: MetricFamily) -> Iterator[str]:
    for labels, value in family.samples.items():
        yield f"{labels} {value!r}"
