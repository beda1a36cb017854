"""One workload on both servers: they run side by side, and each gets the load in turn."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from figures import Pair, middle_pair
from load import SEPARATOR, LoadResult, Requests, answers_rightly, check_answers, check_under_load, measure
from servers import Server, opa_server, our_service
from workloads.forms import FORMS
from workloads.spelling import SPELLINGS
from workloads.workload import RULES_FILE, Side, Workload


@dataclass(frozen=True, slots=True)
class Plan:
    """Extent of a run.

    Both servers start `starts` times. After each start they get `turns` loads of some seconds.
    """

    starts: int
    turns: int
    seconds: int
    spelling: str
    forms: str
    settings: Sequence[str]
    opa: str


class StartResult(NamedTuple):
    """Figures of a start: seconds until the first right answer, their processor time, and megabytes then."""

    ready: float
    ready_cpu: float
    memory: float


@dataclass(slots=True)
class Results:
    """Results of a workload: pairs of starts, and by the number of connections, pairs of loads."""

    starts: list[tuple[StartResult, StartResult]] = field(default_factory=list)
    loads: dict[int, list[tuple[LoadResult, LoadResult]]] = field(default_factory=dict)

    def add(self, more: Results) -> None:
        """Add the results of another run."""
        self.starts += more.starts
        for connections, pairs in more.loads.items():
            self.loads.setdefault(connections, []).extend(pairs)

    def pair(self, measure: str, connections: int) -> Pair:
        """Return a measure of both. Without connections, it is a measure of the start.

        Loads that follow one another suffer alike from other work on the machine: the pair with the median ratio counts.
        Of the times until ready, the best of each server counts.
        """
        if connections:
            return middle_pair([(getattr(a, measure), getattr(b, measure)) for a, b in self.loads[connections]])
        ours, theirs = ([getattr(start, measure) for start in starts] for starts in zip(*self.starts, strict=True))
        best = median if measure == "memory" else min
        return best(ours), best(theirs)


@dataclass(frozen=True, slots=True)
class Contestant:
    """Running server with its requests."""

    server: Server
    requests: Requests

    def started(self) -> StartResult:
        """Wait for the first right answer; return the figures of the start."""
        self.server.wait(lambda: answers_rightly(self.server, self.requests))
        return StartResult(self.server.ready, self.server.cpu(), self.server.memory())


def compare(workload: Workload, plan: Plan) -> Results:
    """Run both servers in turns; return the results. Exit at a wrong answer."""
    results = Results()
    with tempfile.TemporaryDirectory(prefix="pdp-bench-") as folder:
        ours = requests_of(workload, workload.ours, plan.spelling, Path(folder) / "ours")
        theirs = requests_of(workload, workload.opa, plan.spelling, Path(folder) / "opa")
        for _ in range(plan.starts):
            _start(workload, plan, results, (ours, theirs))
    return results


def our_files(workload: Workload, plan: Plan) -> dict[str, str]:
    """Return the files of our service, with the rules in the forms of the plan."""
    rewrite = FORMS[plan.forms]
    return {name: rewrite(text, 1) if name == RULES_FILE else text for name, text in workload.ours.files.items()}


def _start(workload: Workload, plan: Plan, results: Results, requests: tuple[Requests, Requests]) -> None:
    with ExitStack() as held:
        ours = Contestant(held.enter_context(our_service(our_files(workload, plan), plan.settings)), requests[0])
        our_start = ours.started()
        peer = Contestant(held.enter_context(opa_server(plan.opa, workload.opa.files)), requests[1])
        results.starts.append((our_start, peer.started()))
        for each in (ours, peer):
            check_answers(each.server, each.requests)
        for connections in workload.connections:
            for each in (ours, peer):
                check_under_load(each.server, each.requests, connections)
            pairs = results.loads.setdefault(connections, [])
            pairs += _turns(ours, peer, connections, plan)


def _turns(ours: Contestant, peer: Contestant, connections: int, plan: Plan) -> Iterator[tuple[LoadResult, LoadResult]]:
    """Yield pairs of loads. The server that comes first changes from turn to turn."""
    for turn in range(plan.turns):
        order = (ours, peer) if turn % 2 == 0 else (peer, ours)
        first, second = (measure(each.server, each.requests, connections, plan.seconds) for each in order)
        yield (first, second) if turn % 2 == 0 else (second, first)


def requests_of(workload: Workload, side: Side, spelling: str, file: Path) -> Requests:
    """Write the bodies of one side for the load generator."""
    bodies = [SPELLINGS[spelling](body, at) for at, body in enumerate(side.bodies)]
    file.write_text(SEPARATOR.join(bodies))
    return Requests(side.path, bodies, workload.right, file)


_MEASURES: Final = {"cpu": "us CPU", "rate": "/s", "p50": "us p50", "p99": "us p99", "memory": "MB"}


def show(workload: Workload, results: Results) -> None:
    """Print the measures of a workload, both servers and the ratio."""
    for connections in workload.connections:
        pairs = {unit: results.pair(name, connections) for name, unit in _MEASURES.items()}
        cells = (f"{ours:.0f} / {peer:.0f} {unit} = {ours / peer:.3g}" for unit, (ours, peer) in pairs.items())
        print(f"  {workload.name:<18}{connections:>3} conn  {',  '.join(cells)}")
    starts = {unit: results.pair(name, 0) for name, unit in (("ready", "s"), ("ready_cpu", "s CPU"), ("memory", "MB"))}
    cells = (f"{ours:.2f} / {peer:.2f} {unit}" for unit, (ours, peer) in starts.items())
    print(f"  {workload.name:<18}    start {',  '.join(cells)}", flush=True)
