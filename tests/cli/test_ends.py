"""Early ends of commands: an interrupt at any moment, a reader that goes, a full disk, a terminal that closes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.paths import ROOT
from support.service.serving import serve_process

pytestmark = [pytest.mark.process, pytest.mark.waits]

SERVE = ["serve", "--example", *(f"--set=server.{name}=127.0.0.1:0" for name in ("http", "grpc", "diagnostics"))]
MAIN = """
from pdp.cli.ending import end_on_interrupt
end_on_interrupt()
print("ready for an interrupt", flush=True)
from pdp.app import main
main()
"""
"""The command with a sign from which on Python's own start is over."""
CHECK = json.dumps({"principal": "user:oidc~a", "action": "read_data", "resource": "table:lake/s/t@main"})


@pytest.mark.parametrize("command", [SERVE, [*SERVE, "--set=server.workers=2"], ["check", "--rules", "r.yaml"]])
@pytest.mark.parametrize("seconds", [0, 0.1, 0.25, 0.5, 0.8])
def test_an_interrupt_ends_a_command_without_a_traceback(tmp_path: Path, command: list[str], seconds: float) -> None:
    (tmp_path / "r.yaml").write_text("rules: {a: 'true'}\n")
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        cwd=tmp_path, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert process.stdout
    process.stdout.readline()
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert "Traceback" not in errors
    assert process.returncode in (0, -signal.SIGINT), errors
    if process.returncode:
        assert errors.count("pdp: interrupted\n") <= 1


@pytest.mark.parametrize(
    "command",
    [
        ["check", "--rules", "r.yaml"],
        ["trino-config", "--example"],
        ["--help"],
        ["test", "case.json"],
        ["explain", "--vocabulary"],
    ],
)
def test_a_full_disk_is_one_line(tmp_path: Path, command: list[str]) -> None:
    ended = run_into("/dev/full", tmp_path, command)
    assert ended == (2, "pdp: cannot read or write: no space left on device\n")


@pytest.mark.parametrize("command", [["check", "--rules", "r.yaml"], ["trino-config", "--example"]])
def test_a_reader_that_is_gone_is_one_line(tmp_path: Path, command: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    assert run_into(writer, tmp_path, command) == (2, "pdp: the reader of the output is gone\n")


def run_into(output: str | int, folder: Path, command: list[str]) -> tuple[int, str]:
    """Run a command with an output that takes nothing; return the exit code and stderr."""
    (folder / "r.yaml").write_text("rules: {a: 'true'}\n")
    (folder / "case.json").write_text(json.dumps({"note": "n", "rules": "r.yaml", "checks": [CHECK], "want": [True]}))
    descriptor = os.open(output, os.O_WRONLY) if isinstance(output, str) else output
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "pdp", *command], input=f"{CHECK}\n" * 2000, stdout=descriptor,
            stderr=subprocess.PIPE, cwd=folder, text=True, timeout=60, check=False,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )  # fmt: skip
    finally:
        os.close(descriptor)
    return ended.returncode, ended.stderr


@pytest.mark.parametrize("workers", [1, 2])
def test_a_service_outlives_its_terminal(tmp_path: Path, workers: int) -> None:
    with serve_process(tmp_path, "--set", f"server.workers={workers}") as process:
        process.process.send_signal(signal.SIGHUP)
        time.sleep(0.5)
        assert process.process.poll() is None
        assert process.terminate() == 0
