"""How soon a write on one service decides on another, beside what the write itself takes in the same run.

python bench/convergence.py [sqlite] [postgresql]

Two `pdp serve` on one database. `unasked` is from the acknowledgement of a write to the first answer of the other
service that knows it, asked again and again without a demand; `full` and `atLeast` are single checks that demand it.
Prints a table, asserts nothing timed. PostgreSQL is one of its own, started for the run; its syncs are those of the disk.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from converging import PATIENCE, Service, services
from postgres import postgres

WRITES = 300


def timed(run: Callable[[], object]) -> float:
    """Milliseconds."""
    began = time.perf_counter()
    run()
    return (time.perf_counter() - began) * 1e3


def row(what: str, found: list[float]) -> None:
    found.sort()
    p50, p99 = found[len(found) // 2], found[min(len(found) - 1, len(found) * 99 // 100)]
    print(f"  {what:<44} {p50:>8.1f} ms p50 {p99:>8.1f} ms p99 {found[-1]:>8.1f} ms max   {len(found)} writes")


def until_seen(reader: Service, number: int, wanted: bool) -> None:
    deadline = time.monotonic() + PATIENCE
    while reader.allows(number) is not wanted:
        if time.monotonic() > deadline:
            raise SystemExit("a write does not arrive")
        time.sleep(0.001)


def measure(writer: Service, reader: Service) -> None:
    written, unasked, full, at_least, plain = [], [], [], [], []
    for turn in range(WRITES):
        number, wanted = turn // 2, turn % 2 == 0
        change = {"add": (number,)} if wanted else {"remove": (number,)}
        written.append(timed(lambda: writer.write(**change)))
        unasked.append(timed(lambda: until_seen(reader, number, wanted)))
        time.sleep(0.05 * (turn % 4))  # not always in the same beat as the follower
    for number in range(WRITES, 2 * WRITES):
        revision = writer.write(add=(number,))
        some = full if number % 2 else at_least
        some.append(timed(lambda: reader.allows(number, "full" if number % 2 else {"atLeast": revision})))
        plain.append(timed(lambda: reader.allows(number)))
    row("a check without a demand", plain)
    row("a write, to its acknowledgement", written)
    row("from there until the other service, unasked", unasked)
    row("a check elsewhere that demands `full`", full)
    row("a check elsewhere that demands `atLeast`", at_least)


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
            with database(kind, folder) as url, services(folder, url) as running:
                print(kind)
                measure(running.start(), running.start())


if __name__ == "__main__":
    main()
