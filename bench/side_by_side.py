"""Our service beside OPA on the same questions, in turns. Prints CPU, latency, memory and their ratios.

python bench/side_by_side.py [--quick] [--seed N]... [--spelling plain|spaced|reordered|newer] [workload]...

All answers of both servers are checked before the load, and some again under load; a wrong one ends the run. Our
service runs with its default settings: identity, audit and metrics are on. OPA writes no decision logs.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Final

import figures
import tools
from figures import Figure
from load import SEPARATOR, LoadResult, Requests, answers_rightly, check_answers, measure
from servers import Server, opa_server, our_service
from workloads.generate import workloads
from workloads.spelling import SPELLINGS
from workloads.workload import MANY, Side, Workload


@dataclass(frozen=True, slots=True)
class Wanted:
    """Row of the table: a measure of one workload. The measure is a field of LoadResult or of Results."""

    name: str
    workload: str
    connections: int
    measure: str
    goal: str = ""

    @property
    def unit(self) -> str:
        """Unit of the measure."""
        return {"cpu": "us", "p50": "us", "ready": "s"}.get(self.measure, "MB")


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
    Wanted("service after start: memory", "single", 0, "started", "<= 80 MB"),
)


@dataclass(slots=True)
class Results:
    """Results of one server in several rounds: loads by connections, seconds until ready, megabytes after the start."""

    loads: dict[int, list[LoadResult]] = field(default_factory=dict)
    ready: list[float] = field(default_factory=list)
    started: list[float] = field(default_factory=list)

    def value(self, wanted: Wanted) -> float:
        """Return the best of the times, which other work on the machine only lengthens, or the median of memory."""
        if wanted.measure == "ready":
            return min(self.ready)
        if wanted.measure == "started":
            return median(self.started)
        values: list[float] = [getattr(load, wanted.measure) for load in self.loads[wanted.connections]]
        return median(values) if wanted.measure == "memory" else min(values)


@dataclass(frozen=True, slots=True)
class Plan:
    """Rounds and seconds of a run, the spelling of the bodies, the settings of our service, and the path of OPA."""

    rounds: int
    seconds: int
    spelling: str
    settings: Sequence[str]
    opa: str


@dataclass(frozen=True, slots=True)
class Contestant:
    """One of the two servers with its requests."""

    name: str
    side: Side
    requests: Requests

    def start(self, plan: Plan) -> AbstractContextManager[Server]:
        """Start the server."""
        if self.name == "ours":
            return our_service(self.side.files, plan.settings)
        return opa_server(plan.opa, self.side.files)


def compare(workload: Workload, plan: Plan) -> dict[str, Results]:
    """Run both servers in turns, anew in each round; return the results by the server's name."""
    found = {"ours": Results(), "OPA": Results()}
    with tempfile.TemporaryDirectory(prefix="pdp-bench-") as folder:
        contestants = [
            Contestant(name, side, _requests(workload, side, plan.spelling, Path(folder) / name))
            for name, side in (("ours", workload.ours), ("OPA", workload.opa))
        ]
        for turn in range(plan.rounds):
            for contestant in contestants:
                _round(contestant, workload, plan, found[contestant.name], check=turn == 0)
    return found


def _round(contestant: Contestant, workload: Workload, plan: Plan, results: Results, *, check: bool) -> None:
    with contestant.start(plan) as server:
        server.wait(lambda: answers_rightly(server, contestant.requests))
        results.ready.append(server.ready)
        results.started.append(server.memory())
        if check:
            check_answers(server, contestant.requests)
        for connections in workload.connections:
            load = measure(server, contestant.requests, connections, plan.seconds)
            results.loads.setdefault(connections, []).append(load)


def _requests(workload: Workload, side: Side, spelling: str, file: Path) -> Requests:
    bodies = [SPELLINGS[spelling](body, at) for at, body in enumerate(side.bodies)]
    file.write_text(SEPARATOR.join(bodies))
    return Requests(side.path, bodies, workload.right, file)


def show(workload: Workload, found: dict[str, Results]) -> None:
    """Print all that was measured of a workload."""
    for connections in workload.connections:
        for name, results in found.items():
            loads = results.loads[connections]
            best = min(loads, key=lambda load: load.cpu)
            rate = max(load.rate for load in loads)
            print(
                f"  {workload.name:<18}{connections:>3} conn {name:<5}{best.cpu:>10.1f} us CPU {rate:>9.0f} /s "
                f"{best.p50:>9.0f} us p50 {best.p99:>9.0f} us p99 {best.memory:>6.0f} MB "
                f"(start {median(results.started):.0f} MB, {min(results.ready):.2f} s)"
            )
        ours, peer = (min(load.cpu for load in results.loads[connections]) for results in found.values())
        print(f"  {workload.name:<18}{connections:>3} conn ratio of CPU {ours / peer:.3f}", flush=True)


def rows(workload: Workload, found: dict[str, Results]) -> Iterator[Figure]:
    """Yield the rows of the table that a workload gives."""
    for wanted in TABLE:
        if wanted.workload == workload.name:
            ours, peer = (results.value(wanted) for results in found.values())
            yield Figure(wanted.name, ours, peer, wanted.unit, wanted.goal)


def run_seed(seed: int, plan: Plan, names: Sequence[str]) -> list[Figure]:
    """Return the rows of a seed in the table's order."""
    found: dict[str, Figure] = {}
    for workload in workloads(seed):
        if not names or workload.name.startswith(tuple(names)):
            results = compare(workload, plan)
            show(workload, results)
            found |= {figure.name: figure for figure in rows(workload, results)}
    return [found[wanted.name] for wanted in TABLE if wanted.name in found]


def machine(plan: Plan) -> str:
    """Return the date, the machine and the versions."""
    today = datetime.now(UTC).date()
    return (
        f"{today}, {os.cpu_count()} cores, Python {platform.python_version()}, OPA {tools.OPA_VERSION}, "
        f"spelling {plan.spelling}, {plan.rounds} rounds of {plan.seconds} s"
    )


def arguments() -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", nargs="*", help="names, or how names begin; all without one")
    parser.add_argument("--quick", action="store_true", help="one round of one second")
    parser.add_argument("--seed", type=int, action="append", help="several give a table each (default 1)")
    parser.add_argument("--spelling", choices=SPELLINGS, default="plain")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], help="a setting of our service, as for `pdp serve --set`")
    parser.add_argument("--write", action="store_true", help="write the rows to docs/performance.md")
    return parser.parse_args()


def main() -> int:
    """Print the tables; return 1 if a row got worse."""
    given = arguments()
    tools.wrk()
    rounds, seconds = (1, 1) if given.quick else (given.rounds, given.seconds)
    plan = Plan(rounds, seconds, given.spelling, given.set, tools.opa())
    text = figures.PAGE.read_text() if figures.PAGE.exists() else ""
    committed = figures.read_table(text)
    found = []
    for seed in given.seed or [1]:
        print(f"seed {seed}: {machine(plan)}; load average {os.getloadavg()[0]:.1f}", flush=True)
        found.append(run_seed(seed, plan, given.workload))
        print(f"\n{figures.report(found[-1], committed)}\n", flush=True)
    middle = figures.middle(found)
    if given.write:
        table = committed | {figure.name: figure for figure in middle}
        measured = f"{machine(plan)}, seeds {', '.join(map(str, given.seed or [1]))}."
        figures.PAGE.write_text(figures.replace_table(text, table, measured))
    return int(any(figures.worse(figure, committed.get(figure.name)) for figure in middle))


if __name__ == "__main__":
    sys.exit(main())
