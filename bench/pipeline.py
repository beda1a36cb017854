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
from typing import Any

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


PLAIN = """
import sys, time
from pdp.pipeline.catalog import folder_catalog
from pdp.pipeline.session import start_session
audit, lake, form, master = sys.argv[1:]
spark = start_session(folder_catalog(lake), {"spark.master": master})
spark.range(1).count()
begun = time.monotonic()
frame = spark.read.json(audit + "/decisions-*.jsonl")
if form == "parquet":
    frame.write.parquet(lake + "/plain")
else:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.pdp")
    frame.writeTo("lake.pdp.plain").using("iceberg").create()
print(time.monotonic() - begun)
"""
INGEST = """
import sys, time
from pdp.pipeline.catalog import folder_catalog
from pdp.pipeline.ingest import AuditIngest, IngestOptions
from pdp.pipeline.lake import Lake
from pdp.pipeline.session import start_session
from pdp.pipeline.tables import TABLES
audit, lake, form, master = sys.argv[1:]
catalog = folder_catalog(lake)
opened = Lake(start_session(catalog, {"spark.master": master}), catalog)
opened.spark.range(1).count()
opened.create(TABLES.values())
show = lambda text: print(f"{time.monotonic() - begun:7.2f} {text}", file=sys.stderr)
begun = time.monotonic()
AuditIngest(opened, IngestOptions((audit,), once=True), show, show).run()
print(time.monotonic() - begun)
"""


def seconds(script: str, audit: Path, form: str, master: str) -> float:
    """Run a script on a lake of its own and return the seconds that it prints, without the start of Spark."""
    lake = Path(tempfile.mkdtemp(prefix="pdp-bench-lake-"))
    try:
        command = [sys.executable, "-c", script, str(audit), str(lake), form, master]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=3600)
    finally:
        shutil.rmtree(lake)
    return float(done.stdout.splitlines()[-1])


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
    found: dict[str, list[float]] = {"ingest": [], "plain iceberg": [], "plain parquet": []}
    for _ in range(chosen.rounds):
        found["plain iceberg"].append(seconds(PLAIN, small, "iceberg", chosen.master))
        found["ingest"].append(seconds(INGEST, small, "", chosen.master))
        found["plain parquet"].append(seconds(PLAIN, small, "parquet", chosen.master))
    best = {name: min(times) for name, times in found.items()}
    for name, took in best.items():
        print(f"{name:14} {chosen.records / took:10,.0f} records/s   {took:7.1f} s")
    for name in ("plain iceberg", "plain parquet"):
        print(f"ingest beside {name}: {best[name] / best['ingest']:.2f} (goal 0.60)", flush=True)
    if chosen.times > 1:
        many = chosen.records * chosen.times
        large = base / f"audit-{many}"
        if not large.exists():
            write_folder(large, many)
        took = seconds(INGEST, large, "", chosen.master)
        print(f"ingest         {many / took:10,.0f} records/s   {took:7.1f} s for {many:,} records")
        print(f"cost of {chosen.times} times the records: {took / best['ingest']:.1f} times (linear: {chosen.times})")


if __name__ == "__main__":
    main()
