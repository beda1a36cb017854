"""Notices about stages of jobs: the state for a status line, and one line for each ended stage."""

from __future__ import annotations

import re

import pytest

from pdp.lake.session import StageNotices, rate_text


def test_an_ended_stage_is_a_line_with_rows_and_rate() -> None:
    said, noted = list[str](), list[str]()
    stages = StageNotices(said.append, noted.append)
    with stages.stage("grouping checks", "check") as stage:
        stage.now("grouping checks: question 1")
        stage.count(2_000)
    with stages.stage("writing"):
        pass
    assert said == ["grouping checks", "grouping checks: question 1", "writing"]
    (line,) = noted
    assert re.fullmatch(r"grouping checks: 2,000 checks in [\d.]+ s \([\d,]+ checks/s\)", line)
    assert rate_text("x", 1, "check", 0.5) == "x: 1 check in 0.5 s (2 checks/s)"


def test_a_stage_that_fails_is_not_noted() -> None:
    noted = list[str]()

    def fail() -> None:
        with StageNotices(noted.append, noted.append).stage("x", "row") as stage:
            stage.count(1)
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert noted == ["x"]
