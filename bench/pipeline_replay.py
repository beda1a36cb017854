"""Cost of a replay: beside a mapInArrow that evaluates a hand-written lambda over the same checks, and for more rows.

A generated company asks the real service CEL rules, grants, views and Trino's operations, and writes the audit. Replay
and lambda run in turns in one session. The larger lake repeats the same weeks: its rows grow, and its questions do not.
Prints checks per second, the ratio, and the cost of the larger lake as a multiple of the smaller one.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.generators.recorded_company import Company
from support.servers.lakes import ingest

from pdp.app.archived_bundle import rebuild_pdp
from pdp.lake.lake import Lake
from pdp.lake.replay.archive import read_archive
from pdp.lake.replay.questions import RecordedQuestions, ReplayChoice, question_rows
from pdp.lake.replay.replaying import LakeReplay
from pdp.lake.session import folder_catalog, start_session

CHOICE = ReplayChoice(listings=True)


def hand_written(batches: Iterator[Any]) -> Iterator[Any]:
    """Evaluate a rule as a person would write it, check by check."""
    rule: Callable[[str, str, str], bool] = lambda principal, action, resource: (  # noqa: E731  the peer is a lambda
        principal.startswith("user:oidc~u1") and action in {"read_data", "trino:FilterTables"} and "/s1/" in resource
    )
    for batch in batches:
        columns = (batch.column(at).to_pylist() for at in range(3))
        allowed = [rule(*row) for row in zip(*columns, strict=True)]
        yield pa.RecordBatch.from_arrays([pa.array(allowed)], ["allowed"])


def seconds(work: Callable[[], Any]) -> float:
    begun = time.monotonic()
    work()
    return time.monotonic() - begun


def replayed(lake: Lake, checks: int) -> None:
    """Decide everything again, and fail if a decision differs."""
    with LakeReplay(lake, read_archive(lake), rebuild_pdp, CHOICE) as replay:
        found = dict(replay.decided.groupBy("kind").sum("checks").collect())
    assert found == {"same": checks}, found


def evaluated(lake: Lake) -> None:
    rows = question_rows(lake, CHOICE).select("principal", "action", "resource")
    rows.mapInArrow(hand_written, "allowed boolean").groupBy("allowed").count().collect()


def measure(lake: Lake, checks: int, rounds: int) -> float:
    """Print the rates and the ratio, and return the best seconds of the replay."""
    times: dict[str, list[float]] = {"replay": [], "lambda": []}
    for _ in range(rounds):
        times["replay"].append(seconds(lambda: replayed(lake, checks)))
        times["lambda"].append(seconds(lambda: evaluated(lake)))
    best = {name: min(found) for name, found in times.items()}
    with RecordedQuestions(lake, CHOICE) as questions:
        count = questions.number
    for name, took in best.items():
        print(f"{name:7} {checks / took:10,.0f} checks/s   {took:7.1f} s for {checks:,} checks of {count:,} questions")
    print(f"replay beside a lambda: {best['lambda'] / best['replay']:.2f} (goal 0.50)", flush=True)
    return best["replay"]


def repeat_weeks(lake: Lake, times: int) -> None:
    """Add the same rows again, each time four weeks later."""
    for table in ("decisions", "requests"):
        frame = lake.table(table)
        columns = [
            {
                "id": "concat(id, '-', copy) AS id", "time": "timestampadd(DAY, 28 * copy, time) AS time",
                "day": "date_add(day, 28 * copy) AS day",
            }.get(name, f"`{name}`")
            for name in frame.columns
        ]  # fmt: skip
        frame.crossJoin(lake.spark.range(1, times).selectExpr("CAST(id AS int) AS copy")).selectExpr(*columns).writeTo(
            lake.name(table)
        ).append()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checks", type=int, default=1_000_000)
    parser.add_argument("--times", type=int, default=10, help="size of the larger lake; 1 leaves it out")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--master", default="local[2]")
    chosen = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="pdp-bench-replay-"))
    try:
        company = Company(base / "audit")
        company.play(chosen.checks)
        print(f"recorded {company.checks:,} checks in {company.audit.records:,} records", file=sys.stderr)
        catalog = folder_catalog(str(base / "lake"))
        lake = Lake(start_session(catalog, {"spark.master": chosen.master}), catalog)
        ingest(lake, base / "audit")
        small = measure(lake, company.checks, chosen.rounds)
        if chosen.times > 1:
            repeat_weeks(lake, chosen.times)
            large = measure(lake, company.checks * chosen.times, 1)
            print(f"cost of {chosen.times} times the checks: {large / small:.1f} times (linear: {chosen.times})")
    finally:
        shutil.rmtree(base)


if __name__ == "__main__":
    main()
