"""Load on a server by wrk, and the check of the server's answers."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

from loopback import Connection
from servers import Server
from workloads.workload import QUERY, RightAnswer, read_answer

_SCRIPT: Final = Path(__file__).parent / "load.lua"
_QUERIES: Final = count(1)
SEPARATOR: Final = "\x1e"
"""Separator of bodies in a file. JSON never has this character as it is."""


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests to one server, in order: the bodies, their file for wrk, and the right answers."""

    path: str
    bodies: Sequence[str]
    right: Sequence[RightAnswer]
    file: Path

    def body(self, at: int) -> bytes:
        """Return one body with a new query number."""
        return self.bodies[at].replace(QUERY, f"{900_000_000 + next(_QUERIES)}").encode()


@dataclass(frozen=True, slots=True)
class LoadResult:
    """Figures of one load. CPU (per request) and latencies are in microseconds, memory in megabytes."""

    requests: int
    rate: float
    p50: float
    p99: float
    cpu: float
    memory: float


def answers_rightly(server: Server, requests: Requests) -> bool:
    """Ask the first body; tell whether the answer is right. An error of the connection means no."""
    try:
        with Connection(server.url(""), 5) as connection:
            return _ask(connection, server, requests, 0) == requests.right[0]
    except SystemExit:
        return False


def check_answers(server: Server, requests: Requests, places: Sequence[int] = ()) -> None:
    """Ask each body, or those at some places. Exit at a wrong answer."""
    with Connection(server.url("")) as connection:
        for at in places or range(len(requests.bodies)):
            got, right = _ask(connection, server, requests, at), requests.right[at]
            if got != right:
                raise SystemExit(
                    f"{requests.path}: wrong answer to body {at}: {str(got)[:300]}, not {str(right)[:300]}"
                )


def check_under_load(server: Server, requests: Requests, connections: int) -> None:
    """Warm a server up with a load of one second, and check every sixteenth answer meanwhile."""
    warm = _start(server, requests, connections, 1)
    try:
        check_answers(server, requests, range(0, len(requests.bodies), max(1, len(requests.bodies) // 16)))
    finally:
        _finish(warm, 1)


def measure(server: Server, requests: Requests, connections: int, seconds: int) -> LoadResult:
    """Load a server and return the figures. Exit if a request failed."""
    before = server.cpu()
    printed = _finish(_start(server, requests, connections, seconds), seconds)
    spent = server.cpu() - before
    found = next((line.split()[1:] for line in printed.splitlines() if line.startswith("FOUND")), None)
    if found is None or float(found[1]) or not float(found[0]):
        raise SystemExit(f"{requests.path}: requests failed:\n{printed}\n{server.log()}")
    done, _, rate, p50, p99 = map(float, found)
    return LoadResult(int(done), rate, p50, p99, spent / done * 1e6, server.memory())


def _start(server: Server, requests: Requests, connections: int, seconds: int) -> subprocess.Popen[str]:
    options = ("-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "60s", "-s", str(_SCRIPT))
    env = os.environ | {"BODIES": str(requests.file)}
    command = ["wrk", *options, server.url(requests.path)]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _finish(load: subprocess.Popen[str], seconds: int) -> str:
    """Return the output of a load, which ends by itself after these seconds."""
    try:
        printed, _ = load.communicate(timeout=seconds + 90)
    finally:
        load.kill()
    return printed


def _ask(connection: Connection, server: Server, requests: Requests, at: int) -> object:
    request = connection.request(server.url(requests.path), requests.body(at))
    return read_answer(json.loads(connection.send(request)), requests.right[at])
