"""Load at full rate for long: memory, failed requests, latency, and the audit. Exit with 1 if something is wrong.

python bench/soak.py [SECONDS] [--workers N] [--connections N] [--kill-every SECONDS] [--workload NAME]

Without `--kill-every` no request may fail, and the audit must have exactly the answers. With it, a worker is killed
again and again: only requests on connections of that worker may fail, and only records of its last moments be missing.
The audit of ten minutes can take 15 GB in the temporary folder, until the end of the run.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import tools
from contest import requests_of
from load import Requests, answers_rightly, check_answers
from servers import Server, free_port, running, temporary_folder
from soak_probes import AuditCounter, connections_of, resident_megabytes, workers_of
from workloads.generate import workloads

SCRIPT: Final = Path(__file__).parent / "soak.lua"
ANSWERED: Final = "pdp_requests_total"
WARM_SECONDS: Final = 60.0
"""Time after which the memory of a worker must be flat. Only workers that live twice as long are judged."""
GROWTH: Final = 0.02
GROWTH_MEGABYTES: Final = 2.0
"""Growth of memory that counts as flat: this share, and this much on top."""
WAITING_MEGABYTES: Final = 0.001
"""Memory of an audit record that waits for the disk. The most that waited at once may stay in the process."""
LOST_SECONDS: Final = 0.5
"""Longest time before a kill whose records may be missing."""


class Found(NamedTuple):
    """Figures of the load generator. Latencies are in microseconds."""

    requests: float
    connect: float
    read: float
    write: float
    status: float
    timeout: float
    rate: float
    p50: float
    p99: float
    p999: float
    slowest: float


@dataclass
class Watch:
    """Figures taken during the load: memory by worker with the time of each sample, the audit, and the kills."""

    memory: dict[int, list[tuple[float, float]]] = field(default_factory=dict)
    waiting: float = 0.0
    """Most audit records that waited for the disk."""
    kills: int = 0
    lost_connections: int = 0


def soak(server: Server, requests: Requests, given: argparse.Namespace, audit: AuditCounter) -> list[str]:
    """Load the server and print the report; return the failures."""
    server.wait(lambda: "diagnostics" in server.log() and answers_rightly(server, requests))
    check_answers(server, requests)
    metrics = metrics_address(server)
    before = read_metric(metrics, ANSWERED)
    watch = Watch()
    with load(server, requests, given) as generator:
        began = time.monotonic()
        next_kill = given.kill_every or float("inf")
        while generator.poll() is None:
            elapsed = time.monotonic() - began
            for pid in workers_of(server.pid):
                watch.memory.setdefault(pid, []).append((elapsed, resident_megabytes(pid)))
            if elapsed >= next_kill and elapsed + 5 < given.seconds:
                next_kill += given.kill_every
                kill_one(server, watch)
            watch.waiting = max(watch.waiting, read_metric(metrics, "pdp_audit_waiting"))
            audit.count()
            time.sleep(0.5)
        printed = generator.communicate()[0]
    match = re.search(r"^FOUND (.*)$", printed, re.MULTILINE)
    if match is None:
        return [f"the load generator failed: {printed}"]
    found = Found(*map(float, match[1].split()))
    answered = read_metric(metrics, ANSWERED) if not watch.kills else float("nan")
    server.stop()
    records = audit.count()
    flushed = '"audit": "flushed"' in server.log().splitlines()[-1]
    show(found, watch, records, given)
    return [
        *wrong_requests(found, watch),
        *grown(watch),
        *wrong_records(found, watch, (records, answered, before), given),
        *([] if flushed else ["the service did not flush its audit"]),
    ]


@contextmanager
def load(server: Server, requests: Requests, given: argparse.Namespace) -> Iterator[subprocess.Popen[str]]:
    """Run the load generator, which ends by itself."""
    options = ("-t1", f"-c{given.connections}", f"-d{given.seconds}s", "--timeout", "30s", "-s", str(SCRIPT))
    env = os.environ | {"BODIES": str(requests.file), "LOAD": str(SCRIPT.with_name("load.lua"))}
    command = [tools.wrk(), *options, server.url(requests.path)]
    generator = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield generator
    finally:
        generator.kill()
        generator.wait()


def kill_one(server: Server, watch: Watch) -> None:
    """Kill the oldest worker."""
    oldest = min(workers_of(server.pid), key=lambda pid: Path(f"/proc/{pid}").stat().st_ctime)
    watch.lost_connections += connections_of(oldest, server.port)
    os.kill(oldest, signal.SIGKILL)
    watch.kills += 1


def metrics_address(server: Server) -> str:
    """Return the URL of the metrics, which the service prints at its start."""
    address = re.search(r"diagnostics\s+(http://[\d.:]+)", server.log())
    assert address
    return f"{address[1]}/metrics"


def read_metric(url: str, name: str) -> float:
    """Return the sum of a metric over its labels."""
    with urllib.request.urlopen(url, timeout=10) as response:
        found = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", response.read().decode(), re.MULTILINE)
    return sum(map(float, found))


def show(found: Found, watch: Watch, records: int, given: argparse.Namespace) -> None:
    """Print the report."""
    wrong = found.connect + found.read + found.write + found.status + found.timeout
    print(f"{given.seconds} s, {given.workers} workers, {given.connections} connections, workload {given.workload}")
    print(f"  requests  {found.requests:,.0f} answered ({found.rate:,.0f}/s), {wrong:.0f} failed")
    print(
        f"  latency   p50 {_ms(found.p50)}, p99 {_ms(found.p99)}, p99.9 {_ms(found.p999)}, slowest {_ms(found.slowest)}"
    )
    if watch.kills:
        print(f"  kills     {watch.kills}, which had {watch.lost_connections} connections in all")
    for pid, samples in watch.memory.items():
        minutes = [
            f"{_at(samples, 60.0 * minute):.0f}" for minute in range(1 + int(samples[-1][0] - samples[0][0]) // 60)
        ]
        print(f"  memory    process {pid}: {', '.join(minutes)} MB minute by minute")
    print(f"  audit     {records:,} records, {watch.waiting:,.0f} waited at most", flush=True)


def wrong_requests(found: Found, watch: Watch) -> list[str]:
    """Return the failures of requests beyond those on connections of killed workers."""
    wrong = []
    if found.connect or found.status or found.timeout:
        wrong.append(
            f"{found.connect:.0f} connects, {found.status:.0f} answers and {found.timeout:.0f} timeouts failed"
        )
    if found.read + found.write > watch.lost_connections:
        wrong.append(f"{found.read + found.write:.0f} connections broke, {watch.lost_connections} of killed workers")
    return wrong


def grown(watch: Watch) -> list[str]:
    """Return the workers whose memory grew after the first minute."""
    wrong = []
    for pid, samples in watch.memory.items():
        later = [(at, size) for at, size in samples if at >= samples[0][0] + WARM_SECONDS and size]
        if not later or later[-1][0] - later[0][0] < WARM_SECONDS:
            continue
        tenth = len(later) // 10
        begin, end = (_middle(part) for part in (later[:tenth], later[-tenth:]))
        print(f"  memory    process {pid}: {begin:.1f} MB after {WARM_SECONDS:.0f} s, {end:.1f} MB at the end")
        if end > begin * (1 + GROWTH) + GROWTH_MEGABYTES + watch.waiting * WAITING_MEGABYTES:
            wrong.append(f"the memory of process {pid} grew from {begin:.1f} to {end:.1f} MB")
    return wrong


def wrong_records(found: Found, watch: Watch, counts: tuple[int, float, float], given: argparse.Namespace) -> list[str]:
    """Return the differences between answers and records. `counts`: records, answers, and answers before the load."""
    records, answered, before = counts
    missing = found.requests - (records - before)
    if watch.kills:
        allowed = watch.kills * LOST_SECONDS * found.rate
        print(f"  audit     {max(0.0, missing):.0f} records of answered requests missing after {watch.kills} kills")
        return [f"{missing:.0f} records are missing"] if missing > allowed else []
    wrong = []
    if records != answered:
        wrong.append(f"the service counts {answered:.0f} answers, the audit has {records} records")
    if not -given.connections <= missing <= 0:  # the last request of each connection may stay unread
        wrong.append(f"the load generator has {found.requests:.0f} answers, the audit {records - before:.0f} records")
    return wrong


def _middle(samples: list[tuple[float, float]]) -> float:
    sizes = sorted(size for _, size in samples)
    return sizes[len(sizes) // 2]


def _at(samples: list[tuple[float, float]], seconds: float) -> float:
    return next((size for at, size in samples if at >= samples[0][0] + seconds), samples[-1][1])


def _ms(microseconds: float) -> str:
    return f"{microseconds / 1000:.1f} ms"


def main() -> int:
    """Print the report; return 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seconds", type=int, nargs="?", default=600)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--kill-every", type=float, default=0.0, metavar="SECONDS", help="kill a worker so often")
    parser.add_argument("--workload", default="single")
    given = parser.parse_args()
    workload = next(each for each in workloads(1) if each.name == given.workload)
    with tempfile.TemporaryDirectory(prefix="pdp-soak-") as base, temporary_folder(workload.ours.files) as folder:
        port = free_port()
        ports = {"http": port, "grpc": 0, "diagnostics": 0}
        sets = [
            *(f"server.{name}=127.0.0.1:{number}" for name, number in ports.items()),
            f"server.workers={given.workers}",
        ]
        options = [part for setting in sets for part in ("--set", setting)]
        command = [sys.executable, "-m", "pdp", "serve", "-c", str(folder / "pdp.yaml"), *options]
        with running(command, port, folder) as server:
            wrong = soak(
                server,
                requests_of(workload, workload.ours, "plain", Path(base) / "bodies"),
                given,
                AuditCounter(folder / "audit"),
            )
    for each in wrong:
        print(f"WRONG: {each}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
