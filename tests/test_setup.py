"""The script behind `make setup`: what it wants on a machine, and what it says without root or Debian's tools."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from support.faults.rightless_writer import NOBODY
from support.paths import ROOT
from support.service.launch import as_account

pytestmark = pytest.mark.process


def setup_with(*programs: str) -> subprocess.CompletedProcess[str]:
    """Run the script without root where only these programs are found; most need only be there."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        for name in programs:
            called = name in {"grep", "id"} and shutil.which(name)
            (Path(folder) / name).symlink_to(called or "/bin/true")
        return subprocess.run(
            as_account(
                ["/bin/sh", "-c", (ROOT / ".ci" / "setup").read_text()], None if os.geteuid() else (NOBODY, NOBODY)
            ),
            env={"PATH": folder, "JAVA25_HOME": folder},
            cwd="/",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


def test_setup_says_what_root_must_run() -> None:
    there = ("id", "make", "python3", "curl", "openssl", "mvn", "java", "apt-get")
    done = setup_with(*there)
    assert done.returncode == 1
    line = "apt-get update && apt-get install --yes --no-install-recommends redis-server chromium"
    assert done.stderr.splitlines() == [f"setup: root must run: {line}"]


def test_setup_is_done_where_nothing_is_missing() -> None:
    """Without `apt-get` it could not install anything."""
    there = ("make", "python3", "curl", "openssl", "redis-server", "google-chrome", "mvn", "java", "grep")
    done = setup_with(*there)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == "setup: nothing is missing"


def test_setup_without_debians_tools_names_the_packages() -> None:
    done = setup_with("make", "python3", "curl")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "setup: no apt-get here; install what stands for Debian's openssl redis-server chromium maven default-jre-headless"
    ]
