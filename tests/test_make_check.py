"""`make check`: parts that run beside each other say all they have to say, with their seconds, and one failure fails."""

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

    def run(*failing: str, beside: int = 2) -> subprocess.CompletedProcess[str]:
        lines = [f"include {ROOT / 'Makefile'}"]
        for part in PARTS:
            says = f"echo {part} begins $$TEST_EXAMPLES; sleep 0.05; echo {part} ends"
            lines += [f"{part}:", f"\t@{says}{'; exit 3' if part in failing else ''}"]
        (tmp_path / "Makefile").write_text("\n".join(lines) + "\n")
        for name in ("pyproject.toml", "constraints.txt", ".installed-service", ".installed", ".installed-spark"):
            (tmp_path / name).touch()
        command = ["make", "check", f"VENV={tmp_path}", f"BESIDE={beside}"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)

    return run


@pytest.mark.parametrize("beside", [1, 2])
def test_each_part_says_all_at_once_with_its_seconds(check: Check, beside: int) -> None:
    done = check(beside=beside)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for part in PARTS:
        at = lines.index(f"{part} begins all")
        assert lines[at + 1] == f"{part} ends"
        assert lines[at + 2].startswith(f"{part} took ")
    assert lines.index("test begins all") > max(lines.index(f"{part} ends") for part in ("lint", "type"))
    assert lines.index("test ends") < min(lines.index(f"{part} begins all") for part in ("test-spark", "test-trino"))


@pytest.mark.parametrize("beside", [1, 2])
@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_fails_fails_the_check(check: Check, part: str, beside: int) -> None:
    done = check(part, beside=beside)
    assert done.returncode != 0
    assert f"{part} took" in done.stdout
    later = {"lint": "test begins", "type": "test begins", "test": "test-spark begins"}.get(part)
    assert later is None or later not in done.stdout
