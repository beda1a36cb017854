"""Delay from a write on one service to decisions on another, relative to the duration of the write.

python bench/convergence.py [sqlite] [postgresql]

Two `pdp serve` share one database. `unasked` is the time from the acknowledgement of a write to the first answer of the
other service that includes the write, with repeated checks of no required consistency. `full` and `atLeast` are single
checks that require the write. Prints a table and asserts no time. The benchmark starts its own PostgreSQL.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.oracles.converging import PATIENCE, Service, services
from support.servers.postgres import postgres

WRITES = 300


def timed(run: Callable[[], object]) -> float:
    """Return the milliseconds of a call."""
    began = time.perf_counter()
    run()
    return (time.perf_counter() - began) * 1e3


def row(label: str, times: list[float], write: list[float]) -> None:
    """Print one line. `write` is the baseline: the times of writes until their acknowledgement."""
    p50, p99 = quantile(times, 0.5), quantile(times, 0.99)
    ratio = p50 / quantile(write, 0.5)
    print(f"  {label:<44} {p50:>8.1f} ms p50 {p99:>8.1f} ms p99 {max(times):>8.1f} ms max   {ratio:.2f} of a write")


def quantile(times: list[float], part: float) -> float:
    return sorted(times)[int(len(times) * part)]


def wait_for(reader: Service, number: int, wanted: bool) -> None:
    deadline = time.monotonic() + PATIENCE
    while reader.allows(number) is not wanted:
        if time.monotonic() > deadline:
            raise SystemExit("a write does not arrive")
        time.sleep(0.001)


def measure(writer: Service, reader: Service) -> None:
    written: list[float] = []
    unasked: list[float] = []
    full: list[float] = []
    at_least: list[float] = []
    plain: list[float] = []
    for turn in range(WRITES):
        number, wanted = turn // 2, turn % 2 == 0
        change = {"add": (number,)} if wanted else {"remove": (number,)}
        written.append(timed(lambda: writer.write(**change)))
        unasked.append(timed(lambda: wait_for(reader, number, wanted)))
        time.sleep(0.05 * (turn % 4))  # vary the phase relative to the follower's polls
    for number in range(WRITES, 2 * WRITES):
        revision = writer.write(add=(number,))
        some = full if number % 2 else at_least
        some.append(timed(lambda: reader.allows(number, "full" if number % 2 else {"atLeast": revision})))
        plain.append(timed(lambda: reader.allows(number)))
    row("a check without a demand", plain, written)
    row("a write, to its acknowledgement", written, written)
    row("from there until the other service, unasked", unasked, written)
    row("a check elsewhere that demands `full`", full, written)
    row("a check elsewhere that demands `atLeast`", at_least, written)


@contextmanager
def database(kind: str, folder: Path) -> Iterator[str]:
    if kind == "sqlite":
        yield f"sqlite:///{folder}/pdp.db"
    else:
        with postgres(folder) as url:
            yield url


def main() -> None:
    for kind in sys.argv[1:] or ["sqlite", "postgresql"]:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            with database(kind, folder) as url, services(folder, url, fresh=True) as running:
                print(kind)
                measure(running.start(), running.start())


if __name__ == "__main__":
    main()
