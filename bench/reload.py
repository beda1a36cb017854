"""Answers during reloads of policies beside answers of a quiet run, in turns on the same service.

    python bench/reload.py [--rules N] [--kind NAME] [--turns N] [--seconds N] [--rate N] [--connections N]

Two workers answer at a fixed rate. A turn has a quiet part, and a part in which one reload follows another. A change
edits a tenth of the policies, and each fourth change edits all. The time of a request counts from the moment when the
request is due, so a request behind a slow one is slow as well.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median
from threading import Thread
from typing import Final, NamedTuple, Self

from loopback import Connection
from reload_policies import KINDS, SCHEMAS, PolicyFiles, changing
from servers import Server, our_service, temporary_folder

GOALS: Final = {1000: "p99 at most twice as long", 10_000: "no wait beyond 100 ms"}
_PATIENCE: Final = 120.0


class Part(NamedTuple):
    """One part of a turn: the times of answers in milliseconds, and the number of reloads."""

    times: Sequence[float]
    reloads: int

    def at(self, share: float) -> float:
        """Return the time that a share of the answers does not exceed."""
        ordered = sorted(self.times)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


@dataclass
class Client:
    """Thread with one connection, which sends a request at each beat."""

    server: Server
    seconds: float
    """Time between two requests."""
    times: list[float] = field(default_factory=list)
    revision: bytes = b""
    """Digest in the newest answer."""
    ends: bool = False

    def run(self, offset: float, requests: Sequence[bytes]) -> None:
        """Ask until the end."""
        with Connection(self.server.url("")) as connection:
            due, count = time.perf_counter() + offset, 0
            while not self.ends:
                time.sleep(max(0.0, due - time.perf_counter()))
                answer = connection.send(requests[count % len(requests)])
                self.times.append((time.perf_counter() - due) * 1000)
                self.revision = answer.rpartition(b'"revision":"')[2].partition(b'"')[0].rpartition(b".")[2]
                count += 1
                due += self.seconds


class Load:
    """Clients with one connection each."""

    def __init__(self, server: Server, rate: float, connections: int, policies: int) -> None:
        self.clients = [Client(server, connections / rate) for _ in range(connections)]
        requests = [_request(server, number) for number in range(0, policies, max(1, policies // 200))]
        self._threads = [
            Thread(target=client.run, args=(at / rate, requests[at::connections]))
            for at, client in enumerate(self.clients)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for client in self.clients:
            client.ends = True
        for thread in self._threads:
            thread.join()

    def part(self, work: Callable[[], int]) -> Part:
        """Return the answers during some work, which returns a number of reloads."""
        before = [len(client.times) for client in self.clients]
        reloads = work()
        times = [time for client, start in zip(self.clients, before, strict=True) for time in client.times[start:]]
        return Part(times, reloads)

    def wait_for_change(self, before: bytes) -> bytes:
        """Wait until all connections answer by the same policies, other than before; return the digest."""
        limit = time.monotonic() + _PATIENCE
        while time.monotonic() < limit:
            if not all(thread.is_alive() for thread in self._threads):
                break
            revisions = {client.revision for client in self.clients}
            if len(revisions) == 1 and revisions != {before}:
                return revisions.pop()
            time.sleep(0.01)
        raise SystemExit("no reload, or a client has failed")


def _request(server: Server, number: int) -> bytes:
    check = {
        "principal": f"user:oidc~u{number}",
        "action": "read_data",
        "resource": f"table:lake/s{number % SCHEMAS}/t{number}",
    }
    return Connection.request(server.url("/v1/check"), json.dumps({"checks": [check]}).encode())


def measure(kind: str, count: int, given: argparse.Namespace) -> list[tuple[Part, Part]]:
    """Return the quiet part and the part with reloads of each turn."""
    with ExitStack() as stack:
        files = PolicyFiles(kind, count, stack.enter_context(temporary_folder({})))
        settings = files.settings() | {"store": {"url": "sqlite:///pdp.db"}}
        service = our_service({"pdp.yaml": json.dumps(settings)}, ["server.workers=2"])
        server = stack.enter_context(service)
        server.wait(lambda: _answers(server))
        load = stack.enter_context(Load(server, given.rate, given.connections, count))
        change = stack.enter_context(changing(files))
        revision = load.wait_for_change(b"")

        def quiet() -> int:
            time.sleep(given.seconds)
            return 0

        def reload() -> int:
            nonlocal revision
            end, reloads = time.monotonic() + given.seconds, 0
            while time.monotonic() < end:
                change()
                revision = load.wait_for_change(revision)
                reloads += 1
            return reloads

        reload()  # starts the loader process, and warms both up
        return [(load.part(quiet), load.part(reload)) for _ in range(given.turns)]


def _answers(server: Server) -> bool:
    with Connection(server.url(""), 5) as connection:
        return bool(connection.send(_request(server, 0)))


def report(kind: str, count: int, turns: Sequence[tuple[Part, Part]]) -> str:
    """Return the line of one kind and number of policies: medians of the turns, and the longest wait of all."""
    ratio = median(during.at(0.99) / quiet.at(0.99) for quiet, during in turns)
    middle = [median(part.at(0.99) for part in parts) for parts in zip(*turns, strict=True)]
    longest = [max(max(part.times) for part in parts) for parts in zip(*turns, strict=True)]
    reloads = sum(during.reloads for _, during in turns)
    return (
        f"{kind:<11}{count:>7}{reloads:>9}  p99 {middle[0]:>7.2f} ms quiet {middle[1]:>7.2f} ms, ratio {ratio:>5.2f}"
        f"  longest {longest[0]:>7.1f} ms quiet {longest[1]:>7.1f} ms  {GOALS.get(count, '')}"
    )


def main() -> None:
    """Print one line for each kind and number of policies."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rules", type=int, action="append", help="default 1000 and 10000")
    parser.add_argument("--kind", choices=KINDS, action="append", help="default cel")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rate", type=float, default=400, help="requests in a second")
    parser.add_argument("--connections", type=int, default=8)
    given = parser.parse_args()
    print(f"{'kind':<11}{'number':>7}{'reloads':>9}  quiet run, then reloads")
    for kind in given.kind or ["cel"]:
        for count in given.rules or [1000, 10_000]:
            print(report(kind, count, measure(kind, count, given)), flush=True)


if __name__ == "__main__":
    main()
