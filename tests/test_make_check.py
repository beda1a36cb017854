"""`make check`: parts run in order, with their seconds, and the first failure ends it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.paths import ROOT

pytestmark = pytest.mark.process

PARTS = ("lint", "type", "test", "test-spark", "test-trino")
Check = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def check(tmp_path: Path) -> Check:
    """Run `make check` with parts that say two lines each, and fail if they are named."""

    def run(*failing: str) -> subprocess.CompletedProcess[str]:
        lines = [f"include {ROOT / 'Makefile'}"]
        for part in PARTS:
            says = f"echo {part} begins $$TEST_EXAMPLES; echo {part} ends"
            lines += [f"{part}:", f"\t@{says}{'; exit 3' if part in failing else ''}"]
        (tmp_path / "Makefile").write_text("\n".join(lines) + "\n")
        for name in ("pyproject.toml", "constraints.txt", ".installed-service", ".installed", ".installed-spark"):
            (tmp_path / name).touch()
        command = ["make", "check", f"VENV={tmp_path}"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)

    return run


def test_each_part_runs_in_order_with_its_seconds(check: Check) -> None:
    done = check()
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith(PARTS)]
    said = [(f"{part} begins all", f"{part} ends", f"{part} took 0 s") for part in PARTS]
    assert [line.replace("took 1 s", "took 0 s") for line in lines] == [line for part in said for line in part]


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_fails_ends_the_check(check: Check, part: str) -> None:
    done = check(part)
    assert done.returncode != 0
    assert f"{part} took" in done.stdout
    for later in PARTS[PARTS.index(part) + 1 :]:
        assert f"{later} begins" not in done.stdout
