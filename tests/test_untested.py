"""Tests that a machine leaves out: their list at the end of a run, and how they fail it in CI."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.paths import TESTS

pytestmark = pytest.mark.process
WRITTEN = """\
import pytest
from support.untested import not_tested

@pytest.mark.parametrize("number", range(3))
def test_needs_a_program(number):
    not_tested("on Redis", "no `redis-server`\\n on the PATH")

def test_needs_another_machine():
    not_tested("on a full disk", "only root can mount a file system", "")

def test_does_not_apply():
    pytest.skip("joins stay in their dialect")

def test_runs():
    pass
"""
REDIS = "    3 tests on Redis: no `redis-server` on the PATH; mend it with: make setup"
DISK = "    1 test on a full disk: only root can mount a file system; no command helps on this machine"
FAILS = "this fails the run in CI"


def run_of(folder: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_written.py").write_text(WRITTEN)
    command = [sys.executable, "-m", "pytest", "-p", "support.untested", "-p", "no:cacheprovider", *options]
    environ = {key: value for key, value in os.environ.items() if key != "CI" and not key.startswith("PYTEST")}
    environ |= {"PYTHONPATH": os.pathsep.join((str(TESTS), *filter(None, sys.path))), **environment}
    environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # starts much sooner
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=120, check=False)


def test_a_run_ends_with_what_stayed_untested(tmp_path: Path) -> None:
    done = run_of(tmp_path, "-p", "xdist", "-n1")
    lines = done.stdout.splitlines()
    first = next(at for at, line in enumerate(lines) if " not tested " in line)
    assert lines[first + 1 : first + 3] == [REDIS, DISK]
    assert lines[first + 3 :] == [lines[-1]], "nothing else is listed"
    assert done.returncode == 0


def test_what_a_command_would_bring_fails_the_run_in_ci(tmp_path: Path) -> None:
    done = run_of(tmp_path, CI="true")
    assert FAILS in done.stdout.splitlines()
    assert done.returncode == 1


def test_what_no_command_brings_does_not_fail_the_run_in_ci(tmp_path: Path) -> None:
    done = run_of(tmp_path, "-k", "not program", CI="true")
    assert DISK in done.stdout.splitlines()
    assert FAILS not in done.stdout
    assert done.returncode == 0


def test_no_other_way_leaves_out_a_test_for_what_a_machine_lacks() -> None:
    """Tests themselves may skip a combination of parameters that makes no sense."""
    found = {
        (file.name, word)
        for file in TESTS.rglob("*.py")
        for word in ("importorskip(", "mark.skip", *(["pytest.skip("] if "support" in file.parts else []))
        if word in file.read_text(encoding="utf-8") and file.name != Path(__file__).name
    }
    assert found == {("untested.py", "pytest.skip(")}
