"""The audit of a running service, ingested while it is written; Spark and the service are killed in the middle."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest
from support.generators.answered_load import answered_load
from support.paths import ROOT
from support.servers.lakes import TABLES, rows
from support.servers.spark import folder_lake, spark_options
from support.service.commands import run_pdp
from support.service.serving import serve_process

from pdp.lake.lake import Lake

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.timeout(900)]
SETS = ("--set", "audit.segment_seconds=1", "--set", "audit.compress=zstd", "--set", "audit.segment_mib=1")
MOST_SECONDS = 400
PAUSE = 0.2
"""Seconds between two requests of a client: Spark, not the service, is under test."""


def command(folder: Path, *more: str) -> list[str]:
    audits = ("--audit", str(folder / "audit"), "--audit", str(folder / "other"))
    return [
        sys.executable, "-m", "pdp", "pipeline", "ingest", *audits, "--lake", str(folder / "lake"),
        "--format", "json", *spark_options(), *more,
    ]  # fmt: skip


class Ingest:
    """A running `pdp pipeline ingest` with its Spark."""

    def __init__(self, folder: Path, log: Path) -> None:
        self.log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command(folder, "--interval", "0.5"), stdout=output, stderr=output, cwd=folder,
                env={"PYTHONPATH": str(ROOT), **path()},
            )  # fmt: skip

    def wait_for(self, text: str) -> None:
        begun = time.monotonic()
        while text not in self.log.read_text() and self.process.poll() is None:
            assert time.monotonic() - begun < MOST_SECONDS
            time.sleep(0.2)
        assert self.process.poll() is None, self.log.read_text()

    def kill(self) -> None:
        """End the command, Spark and its workers at once."""
        own = psutil.Process(self.process.pid)
        for one in (*own.children(recursive=True), own):
            with suppress(psutil.NoSuchProcess):  # a worker ends with the Java that has gone before
                one.kill()
        self.process.wait(30)


def path() -> dict[str, str]:
    return {name: os.environ[name] for name in ("PATH", "JAVA_HOME", "HOME") if name in os.environ}


def once(folder: Path) -> tuple[dict[str, int], str]:
    done = subprocess.run(
        command(folder, "--once"), capture_output=True, text=True, timeout=MOST_SECONDS, check=False, cwd=folder,
        env={"PYTHONPATH": str(ROOT), **path()},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def exported(folder: Path) -> Counter[tuple[str, str]]:
    """Id and position of each row that `pdp audit export` prints."""
    done = run_pdp("audit", "export", "--audit", str(folder), timeout=300)
    assert done.returncode == 0, done.stderr
    return Counter((row["id"], row["at"]) for row in csv.DictReader(io.StringIO(done.stdout)))


def metadata(folder: Path) -> dict[str, list[str]]:
    """Table -> names of its versions."""
    found = {name: (folder / "lake" / "pdp" / name / "metadata").glob("*.metadata.json") for name in TABLES}
    return {name: sorted(file.name for file in files) for name, files in found.items()}


def test_what_the_service_recorded_is_in_the_lake_once(tmp_path: Path) -> None:
    lake = folder_lake(tmp_path / "lake")
    (tmp_path / "audit").mkdir()
    (tmp_path / "other").mkdir()
    first = Ingest(tmp_path, tmp_path / "first.log")
    with serve_process(tmp_path, *SETS) as service, answered_load(service, PAUSE) as load:
        first.wait_for("checks")
        time.sleep(1)
        first.kill()
        service.process.kill()
    assert load.answers
    second = Ingest(tmp_path, tmp_path / "second.log")
    with serve_process(tmp_path, *SETS) as service, answered_load(service, PAUSE):
        second.wait_for("checks")
        second.kill()
        assert service.terminate() == 0
    good = plant(tmp_path)
    counts, _ = once(tmp_path)
    check(lake, tmp_path, good)
    assert (counts["duplicates"], counts["quarantined"]) == (1, 2)
    versions = metadata(tmp_path)
    assert once(tmp_path)[0] == {"ingested": 0, "duplicates": 0, "quarantined": 0}
    assert metadata(tmp_path) == versions


def plant(folder: Path) -> Any:
    """Write a file with a copy of a record, a malformed line and a new record; return what the export has before."""
    good = exported(folder / "audit")
    records = [json.loads(line) for line in audit_lines(folder / "audit")]
    copy = next(record for record in records if is_plain(record))
    new = {**copy, "id": "planted", "instance": "planted", "seq": 0}
    lines = [json.dumps(copy), '{"event":"decision","schema":1,', json.dumps(new)]
    (folder / "other" / "decisions-planted.jsonl").write_text("\n".join(lines) + "\n")
    good["planted", "0"] = 1
    return good


def is_plain(record: dict[str, Any]) -> bool:
    """Tell whether a record has one check of one resource."""
    return record["event"] == "decision" and len(record["checks"]) == 1 and "resource" in record["checks"][0]


def audit_lines(folder: Path) -> list[str]:
    done = run_pdp("audit", "tail", "--audit", str(folder), "--json", "-n", "50", timeout=300)
    return done.stdout.splitlines()


def check(lake: Lake, folder: Path, good: Counter[tuple[str, str]]) -> None:
    found = Counter((id, str(at)) for id, at in rows(lake, "decisions", "id", "at"))
    assert found == good
    assert len(rows(lake, "requests", "id")) == len({id for id, _ in good})
    bad = rows(lake, "quarantine", "source", "line_number", "reason")
    planted = [row[1:] for row in bad if row[0] == "decisions-planted.jsonl"]
    assert planted == [(1, "duplicate"), (2, "malformed")]
    assert len(bad) == len(planted)
    assert rows(lake, "bundles", "digest")
    assert rows(lake, "facts", "epoch")
