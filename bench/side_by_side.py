"""Our service beside OPA on the same questions, in turns. Prints CPU, latency, memory and their ratios.

python bench/side_by_side.py [--quick] [--seed N]... [--spelling NAME] [--forms NAME] [workload]...

All answers of both servers are checked before the load, and some again under load; a wrong one ends the run. Our
service runs with its default settings: identity, audit and metrics are on. OPA writes no decision logs.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Final

import figures
import tools
from contest import Plan, Results, compare, show
from figures import Figure, Pair, middle_pair
from grpc_load import compare_grpc
from workloads.forms import FORMS
from workloads.generate import workloads
from workloads.spelling import SPELLINGS
from workloads.workload import MANY, Workload


@dataclass(frozen=True, slots=True)
class Wanted:
    """Row of the table: a measure of one workload, under load or, without connections, of the start."""

    name: str
    workload: str
    connections: int
    measure: str
    goal: str = ""

    @property
    def unit(self) -> str:
        """Unit of the measure."""
        return {"cpu": "us", "p50": "us", "ready": "s"}.get(self.measure, "MB")

    def figure(self, pair: Pair) -> Figure:
        """Return the row with the measured values."""
        return Figure(self.name, *pair, self.unit, self.goal)


def _cpu(name: str, connections: int, goal: str = "") -> Wanted:
    return Wanted(f"{name}: CPU", name, connections, "cpu", goal)


TABLE: Final = (
    Wanted("single, 32 connections: CPU", "single", MANY, "cpu", "<= 0.5"),
    Wanted("single, one connection: p50", "single", 1, "p50", "<= 1.0"),
    _cpu("trino-single", MANY, "<= 0.4"),
    _cpu("batch-one", 1, "<= 0.05"),
    _cpu("batch-grouped", 1, "<= 0.06"),
    _cpu("batch-mixed", 1, "<= 0.06"),
    _cpu("batch-many", 1, "<= 0.12"),
    _cpu("batch-catalogs", 1, "<= 0.08"),
    _cpu("grants-single", MANY, "<= 0.4"),
    _cpu("grants-filter", 1, "<= 0.05"),
    _cpu("grants-native1000", 1, "<= 0.10"),
    _cpu("rules-10", MANY),
    _cpu("rules-1000", MANY),
    _cpu("rules-10000", MANY),
    Wanted("rules-10000: ready", "rules-10000", 0, "ready", "<= 3 s"),
    Wanted("rules-10000: memory under load", "rules-10000", MANY, "memory", "<= 150 MB"),
    Wanted("service after start: ready", "single", 0, "ready", "<= 0.7 s"),
    Wanted("service after start: memory", "single", 0, "memory", "<= 80 MB"),
    Wanted("gRPC, one check: CPU", "grpc-single", 0, "cpu", "<= 1.3"),
    Wanted("gRPC, 1000 checks: CPU", "grpc-native1000", 0, "cpu", "<= 2.5"),
)
OVER_GRPC: Final = {"single": "grpc-single", "grants-native1000": "grpc-native1000"}
"""Workload -> name of the same questions over gRPC, where the peer is a bare server."""


def rows(workload: Workload, results: Results) -> list[Figure]:
    """Return the rows of the table that a workload gives."""
    wanted = [wanted for wanted in TABLE if wanted.workload == workload.name]
    return [each.figure(results.pair(each.measure, each.connections)) for each in wanted]


def over_http(workload: Workload, plan: Plan, committed: Mapping[str, Figure]) -> list[Figure]:
    """Return the rows of a workload, measured twice as long if one of them got worse."""
    results = compare(workload, plan)
    if any(figures.worse(figure, committed.get(figure.name)) for figure in rows(workload, results)):
        results.add(compare(workload, plan))
    show(workload, results)
    return rows(workload, results)


def over_grpc(workload: Workload, plan: Plan, committed: Mapping[str, Figure]) -> list[Figure]:
    """Return the row of a workload over gRPC, measured twice as long if it got worse."""
    wanted = next(wanted for wanted in TABLE if wanted.workload == OVER_GRPC[workload.name])
    pairs = compare_grpc(workload, plan)
    if figures.worse(wanted.figure(middle_pair(pairs)), committed.get(wanted.name)):
        pairs += compare_grpc(workload, plan)
    figure = wanted.figure(middle_pair(pairs))
    print(f"  {wanted.workload:<18} {figure.ours:.0f} / {figure.peer:.0f} us CPU = {figure.ratio:.3g}", flush=True)
    return [figure]


def run_seed(seed: int, plan: Plan, names: Sequence[str], committed: Mapping[str, Figure]) -> list[Figure]:
    """Return the rows of a seed in the table's order."""
    found: list[Figure] = []

    def chosen(name: str) -> bool:
        return not names or any(fnmatch(name, pattern) for pattern in names)

    for workload in workloads(seed):
        if chosen(workload.name):
            found += over_http(workload, plan, committed)
        if workload.name in OVER_GRPC and chosen(OVER_GRPC[workload.name]):
            found += over_grpc(workload, plan, committed)
    order = [wanted.name for wanted in TABLE]
    return sorted(found, key=lambda figure: order.index(figure.name))


def arguments() -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", nargs="*", help="names or patterns, such as `batch-*`; all without one")
    parser.add_argument("--quick", action="store_true", help="one start and three turns of one second")
    parser.add_argument("--seed", type=int, action="append", help="several give a table each (default 1)")
    parser.add_argument("--spelling", choices=SPELLINGS, default="plain", help="of the bodies")
    parser.add_argument("--forms", choices=FORMS, default="plain", help="of our CEL rules")
    parser.add_argument("--starts", type=int, default=2, help="of both servers (default 2)")
    parser.add_argument("--turns", type=int, default=5, help="after each start (default 5)")
    parser.add_argument("--seconds", type=int, default=1, help="of load in a turn (default 1)")
    parser.add_argument("--set", action="append", default=[], help="a setting of our service, as for `pdp serve --set`")
    parser.add_argument("--write", action="store_true", help="write the rows to docs/performance.md")
    return parser.parse_args()


def main() -> int:
    """Print the tables; return 1 if a row got worse."""
    given = arguments()
    tools.wrk()
    starts, turns, seconds = (1, 3, 1) if given.quick else (given.starts, given.turns, given.seconds)
    plan = Plan(starts, turns, seconds, given.spelling, given.forms, given.set, tools.opa())
    committed = figures.read_table(figures.PAGE.read_text())
    found = []
    for seed in given.seed or [1]:
        print(
            f"seed {seed}, spelling {plan.spelling}, forms {plan.forms}; load average {os.getloadavg()[0]:.1f} before",
            flush=True,
        )
        found.append(run_seed(seed, plan, given.workload, committed))
        print(f"\n{figures.report(found[-1], committed)}\n", flush=True)
    middle = figures.middle(found)
    if given.write:
        seeds = ", ".join(map(str, given.seed or [1]))
        figures.commit(middle, "beside OPA and a bare gRPC server", f"OPA {tools.OPA_VERSION}, seed {seeds}")
    return int(any(figures.worse(figure, committed.get(figure.name)) for figure in middle))


if __name__ == "__main__":
    sys.exit(main())
