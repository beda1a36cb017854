"""Cost of the service for a real Trino that lists 1,000 tables of 10 columns. Prints a table and asserts no time.

Three Trinos run side by side and get each query in turn: the first asks the service, the second a server that allows
everything, the third has no policies. Prints medians, and their ratios to the two baselines, beside the committed
ratios of docs/performance.md.

python bench/real_trino.py [--runs N] [--write]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

sys.path.extend(str(Path(__file__).parent.parent / folder) for folder in ("tests", "tests/real_trino"))

import figures
import trino.dbapi
from figures import Figure, middle_pair
from support.servers.real_trino import access_control, serving_policies
from support.servers.trino_distribution import VERSION
from support.servers.trino_server import Setup, trino_server
from support.service.serving import Process

Times = dict[str, dict[str, list[float]]]
"""Query -> Trino -> milliseconds of each run."""
TABLES, COLUMNS, WARM = 1000, 10, 5
QUERIES: Final[Mapping[str, tuple[str, int]]] = {
    "SHOW TABLES": ("SHOW TABLES FROM memory.shared", TABLES),
    "information_schema.columns": (
        "SELECT count(*) FROM memory.information_schema.columns WHERE table_schema = 'shared'",
        TABLES * COLUMNS,
    ),
    "SELECT of one table": ("SELECT c0 FROM memory.shared.t0", 0),
    "SELECT 1": ("SELECT 1", 1),
}
"""Query -> SQL and expected result: the number of rows, or the number in the single row."""
COMMITTED: Final = "information_schema.columns"
"""Query with rows in docs/performance.md."""
GOAL: Final = "<= 1.15"


@contextmanager
def allowing() -> Iterator[str]:
    """Run a server that allows everything and yield its address."""
    command = [sys.executable, str(Path(__file__).parent / "allowing.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def connect(port: int, user: str) -> trino.dbapi.Connection:
    return trino.dbapi.Connection(host="127.0.0.1", port=port, user=user, request_timeout=60)


def ask(connection: trino.dbapi.Connection, sql: str) -> list[Any]:
    cursor = connection.cursor()
    cursor.execute(sql)
    return list(cursor.fetchall())


def fill(port: int) -> None:
    """Create the tables to list."""
    columns = ", ".join(f"c{at} varchar" for at in range(COLUMNS))
    with connect(port, "ada") as connection:
        ask(connection, "CREATE SCHEMA memory.shared")
        for at in range(TABLES):
            ask(connection, f"CREATE TABLE memory.shared.t{at} ({columns})")


def timed(connection: trino.dbapi.Connection, sql: str, wanted: int) -> float:
    """Return the milliseconds of one query; exit if the result is not the expected number."""
    start = time.perf_counter()
    rows = ask(connection, sql)
    took = (time.perf_counter() - start) * 1e3
    found = rows[0][0] if len(rows) == 1 and isinstance(rows[0][0], int) else len(rows)
    if found != wanted:
        raise SystemExit(f"{sql} gave {found}, not {wanted}")
    return took


def measure(ports: Mapping[str, int], runs: int, who: Callable[[int], str]) -> Times:
    """Return the times of each query on each Trino. `who` names the user of a run, who may read the schema."""
    found: Times = {}
    for query, (sql, wanted) in QUERIES.items():
        times = found.setdefault(query, {name: [] for name in ports})
        for run in range(WARM + runs):
            for name, port in ports.items():
                with connect(port, who(run)) as connection:
                    took = timed(connection, sql, wanted)
                if run >= WARM:
                    times[name].append(took)
    return found


def report(label: str, times: Times) -> None:
    """Print the medians of each query and their ratios."""
    print(f"  {label:<28}{'pdp':>9}{'allowing':>10}{'no plugin':>11}   pdp to allowing, to no plugin")
    for query, of in times.items():
        ours, peer, bare = (statistics.median(of[name]) for name in ("pdp", "allowing", "none"))
        print(f"  {query:<28}{ours:>9.1f}{peer:>10.1f}{bare:>11.1f}   {ours / peer:>8.2f} x {ours / bare:>12.2f} x")


def report_requests(service: Process, skipped: int) -> None:
    """Print the latencies of new requests in the audit. Repeated requests are answered from a cache, with latency 0."""
    made: dict[str, list[int]] = {}
    for record in service.records()[skipped:]:
        rows = record.get("requests") or record["checks"]
        action = rows["action"] if isinstance(rows, dict) else rows[0]["action"]
        made.setdefault(str(action), []).append(record["latencyUs"])
    made["all"] = [latency for latencies in made.values() for latency in latencies]
    print("requests in the audit, microseconds of those not answered from the cache")
    for action, latencies in made.items():
        new = sorted(latency for latency in latencies if latency) or [0]
        p50, p99 = (new[int(len(new) * share)] for share in (0.5, 0.99))
        again = len(latencies) - len(new)
        print(f"  {action:<28}{len(latencies):>7} requests {again:>7} again {p50:>8} p50 {p99:>8} p99")


def row(users: str, times: Times) -> Figure:
    """Return the row of docs/performance.md for one kind of users: the run with the median ratio."""
    of = times[COMMITTED]
    pair = middle_pair(list(zip(of["pdp"], of["allowing"], strict=True)))
    return Figure(f"Trino, {COMMITTED} of {TABLES} tables, {users}: time", *pair, "ms", GOAL)


def main() -> int:
    """Print the tables; return 1 if a row got worse."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--write", action="store_true", help="write the rows to docs/performance.md")
    given = parser.parse_args()
    runs: int = given.runs
    kinds: dict[str, Callable[[int], str]] = {"same user": lambda _: "ann", "other users": lambda run: f"user{run}"}
    found = []
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="pdp-bench-")))
        service = held.enter_context(serving_policies(folder / "pdp"))
        ports = start_all(held, folder, service, WARM + runs)
        time.sleep(1)
        skipped = len(service.records())
        print(f"medians of {runs} runs, milliseconds")
        for users, who in kinds.items():
            times = measure(ports, runs, who)
            report(users, times)
            found.append(row(users, times))
        report_requests(service, skipped)
    committed = figures.read_table(figures.PAGE.read_text())
    print(f"\n{figures.report(found, committed)}")
    if given.write:
        figures.commit(found, "beside a server that allows everything", f"Trino {VERSION}")
    return int(any(figures.worse(figure, committed.get(figure.name)) for figure in found))


def start_all(held: ExitStack, folder: Path, service: Process, count: int) -> dict[str, int]:
    """Start the three Trinos with tables to list and users `user0` and on; return their ports."""
    ours = access_control(service)
    peer = held.enter_context(allowing())
    theirs = {key: value.replace(service.url(""), peer) for key, value in ours.items()}
    controls = {"pdp": ours, "allowing": theirs, "none": {"access-control.name": "allow-all"}}
    users = [f"user{run}" for run in range(count)]
    ports = {}
    for name, control in controls.items():
        place = folder / f"trino-{name}"
        place.mkdir()
        setup = Setup(control, {"analysts": ",".join(("ann", *users))}, java=())
        ports[name] = held.enter_context(trino_server(place, setup)).port
    with ThreadPoolExecutor() as pool:
        list(pool.map(fill, ports.values()))
    return ports


if __name__ == "__main__":
    sys.exit(main())
