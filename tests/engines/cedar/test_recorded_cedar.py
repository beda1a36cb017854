"""Recorded decisions of Cedar: made by cedarpy, agreed by the command line of Cedar and by cedar-go."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from support.paths import RECORDED

from pdp.app.facts import build_pdp
from pdp.offline.cases.cases import Case, find_cases
from pdp.offline.cases.runner import CaseRunner

CASES = list(find_cases([RECORDED / "cedar" / "golden.jsonl"]))


@pytest.fixture(scope="module")
def runner() -> Iterator[CaseRunner]:
    with asyncio.Runner() as loop:
        yield CaseRunner(build_pdp, loop)


def test_nothing_recorded_is_missing() -> None:
    assert len(CASES) == 144
    assert sum(len(case.data["checks"]) for case in CASES) == 919


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.note[:60])
def test_recorded_decision(case: Case, runner: CaseRunner) -> None:
    outcome = runner.run(case)
    assert outcome.passed, outcome.error
