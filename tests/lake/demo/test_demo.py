"""Demonstration from nothing to the page, in one command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.servers.spark import spark_options
from support.service.commands import run_pdp

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.timeout(900)]


@pytest.mark.spark_long
def test_one_command_leads_from_nothing_to_a_report(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    options = ["--out", str(out), "--share", "0.05", "--until", "2026-10-31", "--format", "json"]
    ended = run_pdp("pipeline", "demo", *options, *spark_options(), fresh=True, timeout=850)
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout.splitlines()[-1])
    assert said["out"] == str(out / "report.html")
    assert said["requests"] > 3000
    assert said["denials"] > 100
    page = (out / "report.html").read_text()
    for part in ("Demonstration", "rafael went on trying", "theo looked at new places", "The rule badge_numbers raises",
                 "Who gains and who loses", "nadia is denied"):  # fmt: skip
        assert part in page
    answers = {path.stem: json.loads(path.read_text())["rows"] for path in (out / "json").iterdir()}
    assert {row["what"] for row in answers["changes"]} == {"policies", "grant"}
    assert {row["principal"] for row in answers["dormant"]} >= {"user:oidc~olga", "user:oidc~wren"}
    assert "role:legacy_bi" in {row["principal"] for row in answers["unused_grants"]}
    assert {row["owner"] for row in answers["delegated"]} >= {"user:oidc~lena", "user:oidc~hugo"}
    assert {row["kind"] for row in answers["candidate"]} == {"gained"}


@pytest.mark.parametrize(
    ("options", "message"),
    [(["--out", "."], "`.` exists"), (["--out", "new", "--until", "tomorrow"], "`--until tomorrow` is no date")],
)
def test_wrong_options_are_one_line(tmp_path: Path, options: list[str], message: str) -> None:
    ended = run_pdp("pipeline", "demo", *options, cwd=tmp_path)
    assert ended.returncode == 2
    assert message in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
