"""Throughput of two workers beside one, in turns on the same requests. Prints both rates, their CPU and the ratio.

python bench/workers.py [--workers N] [--turns N] [--seconds N] [--connections N] [--workload NAME]

The load generator takes CPU of the same machine. A ratio counts only for requests that cost the server far more than
the load generator, and only while nothing else runs: `busy` is the share of all CPUs that the server took.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from statistics import median

import tools
from load import LoadResult
from variants import Load, load_in_turns
from workloads.generate import workloads
from workloads.workload import Workload


def compare(workload: Workload, given: argparse.Namespace) -> list[tuple[LoadResult, ...]]:
    """Return pairs of loads: on one worker, and on several."""
    variants = [(f"server.workers={workers}", *given.set) for workers in (1, given.workers)]
    return load_in_turns(workload, variants, Load(given.turns, given.seconds, given.connections))


def report(name: str, pairs: Sequence[tuple[LoadResult, ...]]) -> str:
    """Return the line of a workload, from the pair with the median ratio."""
    ratios = [several.rate / one.rate for one, several in pairs]
    one, several = sorted(pairs, key=lambda pair: pair[1].rate / pair[0].rate)[len(pairs) // 2]
    busy = [each.rate * each.cpu / 1e6 / (os.cpu_count() or 1) for each in (one, several)]
    return (
        f"{name:<16} {one.rate:>8.0f}/s {several.rate:>8.0f}/s  busy {busy[0]:.0%} and {busy[1]:.0%}"
        f"  CPU {one.cpu:.0f} and {several.cpu:.0f} us  memory {one.memory:.0f} and {several.memory:.0f} MB  ratio {median(ratios):.2f} (best {max(ratios):.2f})"
    )


def main() -> None:
    """Print one line per workload."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--workload", action="append", help="default batch-mixed and single")
    parser.add_argument("--set", action="append", default=[], help="a setting of the service")
    given = parser.parse_args()
    tools.wrk()
    for workload in workloads(1):
        if workload.name in (given.workload or ("batch-mixed", "single")):
            print(report(workload.name, compare(workload, given)), flush=True)


if __name__ == "__main__":
    main()
