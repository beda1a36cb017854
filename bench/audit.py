"""Throughput with the audit beside the same service without one, in turns. Prints rates, CPU and ratios.

python bench/audit.py [--turns N] [--seconds N] [--workload NAME]

The load generator takes CPU of the same machine. A ratio counts only while nothing else runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final

import tools
from load import LoadResult
from variants import Load, load_in_turns
from workloads.generate import workloads

VARIANTS: Final[Mapping[str, Sequence[str]]] = {
    "off": ("audit.sinks=[]",),
    "none": ("audit.durability=none",),
    "batch": ("audit.durability=batch",),
    "request": ("audit.durability=request",),
}
"""Name of a row -> its settings. The first row is the baseline."""
CONNECTIONS: Final[Mapping[str, int]] = {"single": 32, "batch-mixed": 4}
"""Workload -> connections."""


def report(workload: str, turns: Sequence[tuple[LoadResult, ...]]) -> str:
    """Return one line per variant: medians of the turns, and of the ratios of each turn to the baseline."""
    lines = []
    for at, name in enumerate(VARIANTS):
        ratios = [turn[at].rate / turn[0].rate for turn in turns]
        rate, cpu = (median(getattr(turn[at], figure) for turn in turns) for figure in ("rate", "cpu"))
        lines.append(
            f"{workload:<12} audit {name:<8} {rate:>8.0f}/s  CPU {cpu:>5.0f} us  "
            f"throughput {median(ratios):.2f} of off (best {max(ratios):.2f})"
        )
    return "\n".join(lines)


def main() -> None:
    """Print the rows of each workload."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--workload", action="append", choices=CONNECTIONS, help="default: both")
    given = parser.parse_args()
    tools.wrk()
    for workload in workloads(1):
        if workload.name in (given.workload or CONNECTIONS):
            load = Load(given.turns, given.seconds, CONNECTIONS[workload.name])
            print(report(workload.name, load_in_turns(workload, list(VARIANTS.values()), load)), flush=True)


if __name__ == "__main__":
    main()
