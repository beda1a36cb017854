"""Neighbours of an attack: liveness and single checks of another connection, timed while a request is worked on."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable
from functools import cache
from typing import NamedTuple, TypeVar

import msgspec
import psutil  # type: ignore[import-untyped]
from support.service.serving import Process

T = TypeVar("T")
CHECK = json.dumps(
    {"checks": [{"principal": "user:oidc~Alice", "action": "read_data", "resource": "table:lake/Foo@prod"}]}
).encode()
LIVENESS_SECONDS = 0.25
"""Longest time to an answer of liveness, whatever the service works on."""
_ATTEMPTS = 4
_LEAST = 0.06
"""Seconds below which a neighbour's answer is as good as quiet: a busy machine takes as long by itself."""


class Times(NamedTuple):
    """Seconds to each answer of liveness, and of a single check of a neighbour."""

    liveness: list[float]
    check: list[float]

    def p99(self) -> float:
        return sorted(self.check)[int(len(self.check) * 0.99)]


def assert_served(process: Process, work: Callable[[], T]) -> T:
    """Neighbours notice little of some work: a ratio of the same run, and the promise of liveness.

    Return the result of the work. A busy machine disturbs single runs: the best of a few counts.
    """
    _, quiet = timed(process, lambda: time.sleep(0.5))
    bound = max(3 * max(quiet.p99(), _LEAST), decoding_seconds())
    # a machine under load is late by itself
    longest = max(LIVENESS_SECONDS, 3 * max(quiet.liveness), decoding_seconds())
    failures = []
    for _ in range(_ATTEMPTS):
        result, times = timed(process, work)
        slowest, p99 = max(times.liveness), times.p99()
        if slowest < longest and p99 < bound:
            return result
        failures.append(f"liveness {slowest:.3f} of {longest:.3f} s, a neighbour {p99:.3f} of {bound:.3f} s")
    raise AssertionError("; ".join(failures))


@cache
def decoding_seconds() -> float:
    """Return how long this machine decodes a body near the limit: one call, in which no other thread runs."""
    column = {"catalog": "k", "schema": "s", "table": "t", "name": "c", "type": "x" * 320}
    body = json.dumps([{"column": column}] * 90_000).encode()
    decode, times = msgspec.json.Decoder().decode, []
    for _ in range(2):
        started = time.perf_counter()
        decode(body)
        times.append(time.perf_counter() - started)
    return min(times)


def timed(process: Process, work: Callable[[], T]) -> tuple[T, Times]:
    """Return the result of some work, and the times of the neighbours during the work."""
    times, end = Times([], []), threading.Event()
    probes = [
        threading.Thread(target=_probe, args=(process.addresses["diagnostics"], None, times.liveness, end)),
        threading.Thread(target=_probe, args=(process.addresses["http"], CHECK, times.check, end)),
    ]
    for probe in probes:
        probe.start()
    try:
        time.sleep(0.1)
        result = work()
        time.sleep(0.05)
    finally:
        end.set()
        for probe in probes:
            probe.join(60)
    return result, times


def _probe(address: str, body: bytes | None, times: list[float], end: threading.Event) -> None:
    connection = http.client.HTTPConnection(address, timeout=60)
    path = "/health/live" if body is None else "/v1/check"
    while not end.is_set():
        started = time.perf_counter()
        connection.request("POST" if body else "GET", path, body, {"Content-Type": "application/json"})
        connection.getresponse().read()
        times.append(time.perf_counter() - started)
        time.sleep(0.003)
    connection.close()


def peak_memory(process: Process, work: Callable[[], T]) -> tuple[T, int]:
    """Return the result of some work, and the bytes that the service needed more at the peak than before."""
    own = psutil.Process(process.process.pid)
    before, highest, end = own.memory_info().rss, [0], threading.Event()

    def watch() -> None:
        while not end.wait(0.01):
            highest[0] = max(highest[0], own.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        result = work()
    finally:
        end.set()
        watcher.join()
    return result, max(0, highest[0] - before)
