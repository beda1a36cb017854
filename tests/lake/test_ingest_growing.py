"""A running ingest over plain files that grow, end, and are compressed: each line goes into the lake once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest
import zstandard
from support.paths import ROOT
from support.servers.lakes import control_lines, decision_line, ids_of, rows, write_segment
from support.servers.spark import folder_lake, spark_options

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.timeout(900)]
MOST_SECONDS = 400


def wait_for(log: Path, checks: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until the log names so many checks in all batches together."""
    begun = time.monotonic()
    while sum(map(int, re.findall(r"files: (\d+) checks", log.read_text()))) < checks:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() - begun < MOST_SECONDS, log.read_text()
        time.sleep(0.2)


def compress(file: Path) -> None:
    """Compress a file as a service does: the new form appears whole, then the old form goes."""
    packed = file.with_name(f".{file.name}.zst")
    packed.write_bytes(zstandard.compress(file.read_bytes()))
    packed.rename(file.with_name(f"{file.name}.zst"))
    file.unlink()


@pytest.mark.spark_long
def test_a_running_ingest_sees_files_grow(tmp_path: Path) -> None:
    lines = [decision_line(seq) for seq in range(9)]
    grown = tmp_path / "a" / "decisions-a1-000001.jsonl"
    grown.parent.mkdir()
    first, end = control_lines()
    grown.write_bytes(first + b"".join(lines[:2]))
    ended = write_segment(tmp_path / "a", 1, lines[2:4], instance="b2")
    log = tmp_path / "log"
    command = [
        sys.executable, "-m", "pdp", "pipeline", "ingest", "--audit", str(tmp_path / "a"), "--lake",
        str(tmp_path / "lake"), "--interval", "0.5", *spark_options(),
    ]  # fmt: skip
    environ = {name: os.environ[name] for name in ("PATH", "JAVA_HOME", "HOME") if name in os.environ}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, cwd=tmp_path, env={"PYTHONPATH": str(ROOT), **environ}
        )
    try:
        wait_for(log, 4, process)
        compress(ended)
        with grown.open("ab") as more:
            more.write(lines[4] + lines[5])
        wait_for(log, 6, process)
        with grown.open("ab") as more:
            more.write(lines[6] + lines[7] + end)
        compress(grown)
        wait_for(log, 8, process)
        write_segment(tmp_path / "a", 2, lines[8:])
        wait_for(log, 9, process)
    finally:
        own = psutil.Process(process.pid)
        for one in (*own.children(recursive=True), own):
            with suppress(psutil.NoSuchProcess):  # a worker ends with the Java that has gone before
                one.kill()
        process.wait(30)
    lake = folder_lake(tmp_path / "lake")
    assert rows(lake, "decisions", "id") == sorted((id,) for id in ids_of(lines))
    assert rows(lake, "quarantine", "reason") == []
    notes = rows(lake, "sources", "source", "state")
    assert notes.count((ended.name, "done")) == 1
