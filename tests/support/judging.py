"""Time of the tests in which the engines' own parsers judge generated statements."""

from __future__ import annotations

import os


def judge_seconds(usual: float) -> float:
    """Return the time for one judge: that of the environment in nightly runs, else the usual one."""
    return float(os.environ.get("TEST_JUDGE_SECONDS", usual))
