"""One service under several settings, loaded in turns with the same requests."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from contest import Contestant, requests_of
from load import LoadResult, check_answers, check_under_load, measure
from servers import our_service
from workloads.workload import Workload


class Load(NamedTuple):
    """Turns of load, the seconds of each, and the connections."""

    turns: int
    seconds: int
    connections: int


def load_in_turns(workload: Workload, variants: Sequence[Sequence[str]], load: Load) -> list[tuple[LoadResult, ...]]:
    """Return the results of each turn, one for each variant. A variant is a list of settings."""
    with tempfile.TemporaryDirectory(prefix="pdp-bench-") as folder, ExitStack() as held:
        requests = requests_of(workload, workload.ours, "plain", Path(folder) / "bodies")
        servers = []
        for settings in variants:
            each = Contestant(held.enter_context(our_service(workload.ours.files, settings)), requests)
            each.started()
            check_answers(each.server, requests)
            check_under_load(each.server, requests, load.connections)
            servers.append(each.server)
        return [
            tuple(measure(server, requests, load.connections, load.seconds) for server in servers)
            for _ in range(load.turns)
        ]
