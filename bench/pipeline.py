"""Cost of the ingest: beside a plain `spark.read.json(files).write` of the same files, and for ten times the rows.

Each side runs in a session of its own, in turns, on the same folder of segments. Prints records per second, their ratio,
and the cost of the larger folder as a multiple of the smaller one.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from uuid_utils import uuid7

SEGMENT = 100_000
BEGIN = datetime(2026, 1, 5, 8, tzinfo=UTC)
USERS, TABLES = 500, 2000


def write_folder(folder: Path, records: int) -> None:
    """Write segments with plain records, as a service writes them: a day has 500,000."""
    folder.mkdir(parents=True)
    draw = random.Random(7)
    for number in range(1, (records + SEGMENT - 1) // SEGMENT + 1):
        first = (number - 1) * SEGMENT
        with (folder / f"decisions-01a204abc8b57390b82043b893430bdb-{number:06d}.jsonl").open("w") as file:
            file.write('{"event":"segment","schema":1,"instance":"01a2","number":1,"seq":0,"time":"","previous":""}\n')
            for seq in range(first, min(first + SEGMENT, records)):
                file.write(record(seq, draw))


def record(seq: int, draw: random.Random) -> str:
    user = min(int(draw.paretovariate(0.8)), USERS)
    table = min(int(draw.paretovariate(0.8)), TABLES)
    allowed = draw.random() < 0.9
    at = (BEGIN + timedelta(seconds=seq * 86_400 / 500_000)).isoformat(timespec="microseconds")[:-6]
    return (
        f'{{"event":"decision","schema":1,"id":"{uuid7()}","instance":"01a204abc8b57390b82043b893430bdb","seq":{seq},'
        f'"time":"{at}Z","latencyUs":{draw.randrange(40, 900)},"surface":"http","caller":"trino","inputs":{{"principal":'
        f'{{"id":"user:oidc~user{user}","roles":["analyst"],"groups":["staff"],"attributes":{{}}}},"actingRole":null,'
        f'"context":{{"actions":[],"queryId":"20260105_{seq // 20:09d}","queryUser":"user:oidc~user{user}"}}}},'
        f'"revision":"5224f65acbbc.1.dd30e7d860ca0227","checks":[{{"action":"read_data","as":"user:oidc~user{user}",'
        f'"delegated":false,"cached":false,"at":0,"resource":"table:lake/sales{table % 20}/orders{table}@prod",'
        f'"allowed":{"true" if allowed else "false"},"by":["{"cel:readers" if allowed else "default_deny"}"],"errors":[]}}]}}\n'
    )


CPU = """
import sys, time
import psutil
from pdp.lake.session import folder_catalog
from pdp.lake.ingest.ingest import AuditIngest, IngestOptions
from pdp.lake.lake import Lake
from pdp.lake.session import start_session
from pdp.lake.tables import TABLES

def used():
    own = psutil.Process()
    times = [each.cpu_times() for each in (own, *own.children(recursive=True))]
    return sum(each.user + each.system for each in times)

audit, place, master = sys.argv[1:]
catalog = folder_catalog(place)
lake = Lake(start_session(catalog, {"spark.master": master}), catalog)
lake.spark.range(1).count()
lake.create(TABLES.values())
show = lambda text: print(f"{time.monotonic() - begun:7.2f} {text}", file=sys.stderr)
begun, before = time.monotonic(), used()
"""
"""Beginning of the scripts: Spark runs, and the tables are there."""
END = "print(time.monotonic() - begun, used() - before)\n"
FRAME = 'frame = lake.spark.read.json(audit + "/decisions-*.jsonl")\n'
SCRIPTS = {
    "plain iceberg": CPU + FRAME + 'frame.writeTo("lake.pdp.plain").using("iceberg").create()\n' + END,
    "ingest": CPU + "AuditIngest(lake, IngestOptions((audit,), once=True), show, show).run()\n" + END,
    "plain parquet": CPU + FRAME + 'frame.write.parquet(place + "/plain")\n' + END,
}


class Cost(NamedTuple):
    """Seconds of one run, and those of processors: the second hardly depends on what else the machine does."""

    seconds: float
    cpu: float


def run(script: str, audit: Path, master: str) -> Cost:
    """Run a script on a lake of its own. The start of Spark does not count."""
    place = Path(tempfile.mkdtemp(prefix="pdp-bench-lake-"))
    try:
        command = [sys.executable, "-c", script, str(audit), str(place), master]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=3600)
    finally:
        shutil.rmtree(place)
    seconds, cpu = done.stdout.splitlines()[-1].split()
    return Cost(float(seconds), float(cpu))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--times", type=int, default=10, help="size of the larger folder; 1 leaves it out")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--keep", type=Path, help="folder for the generated audit, kept for the next run")
    chosen = parser.parse_args()
    base = chosen.keep or Path(tempfile.mkdtemp(prefix="pdp-bench-"))
    try:
        measure(chosen, base)
    finally:
        if chosen.keep is None:
            shutil.rmtree(base)


def measure(chosen: Any, base: Path) -> None:
    small = base / f"audit-{chosen.records}"
    if not small.exists():
        write_folder(small, chosen.records)
    costs: dict[str, list[Cost]] = {name: [] for name in SCRIPTS}
    for _ in range(chosen.rounds):
        for name, script in SCRIPTS.items():
            costs[name].append(run(script, small, chosen.master))
    best = {
        name: Cost(min(one.seconds for one in found), min(one.cpu for one in found)) for name, found in costs.items()
    }
    for name, cost in best.items():
        print(line(name, chosen.records, cost))
    ours = best["ingest"]
    for name in ("plain iceberg", "plain parquet"):
        peer = best[name]
        print(
            f"rate of the ingest beside {name}: {peer.seconds / ours.seconds:.2f}, by processor time "
            f"{peer.cpu / ours.cpu:.2f} (goal 0.60)",
            flush=True,
        )
    if chosen.times > 1:
        many = chosen.records * chosen.times
        large = base / f"audit-{many}"
        if not large.exists():
            write_folder(large, many)
        cost = run(SCRIPTS["ingest"], large, chosen.master)
        print(line("ingest", many, cost))
        print(
            f"cost of {chosen.times} times the records: {cost.seconds / ours.seconds:.1f} times, by processor time "
            f"{cost.cpu / ours.cpu:.1f} times"
        )


def line(name: str, records: int, cost: Cost) -> str:
    """Return one row of the figures."""
    rate, each = records / cost.seconds, cost.cpu / records * 1e6
    return f"{name:14} {records:>11,} records {cost.seconds:8.1f} s {rate:10,.0f} records/s {each:7.1f} us of CPU each"


if __name__ == "__main__":
    main()
