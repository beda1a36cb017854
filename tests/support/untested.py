"""Tests that this machine cannot run: skipped with a cause, and listed at the end of the run."""

from __future__ import annotations

import os
from collections import Counter
from typing import Final, NoReturn

import pytest

PREFIX: Final = "NOT TESTED"
SETUP: Final = "make setup"
"""Command that installs what the tests need and PyPI does not have."""
_MENDED_BY: Final = "; mend it with: "


def not_tested(subject: str, lacks: str, mend: str = SETUP) -> NoReturn:
    """Skip the test. An empty `mend` says that no command helps on such a machine, so CI does not fail for it."""
    remedy = f"{_MENDED_BY}{mend}" if mend else "; no command helps on this machine"
    pytest.skip(f"{PREFIX} {subject}: {' '.join(lacks.split())}{remedy}")


def causes(reporter: pytest.TerminalReporter) -> Counter[str]:
    """Return how many tests each cause left out. A cause says what is missing, and the command that mends it."""
    reasons = (report.longrepr[2].removeprefix("Skipped: ") for report in reporter.stats.get("skipped", ()))
    return Counter(reason.removeprefix(PREFIX).strip() for reason in reasons if reason.startswith(PREFIX))


def is_mendable(found: Counter[str]) -> bool:
    """Tell whether a command would have brought what some tests lack."""
    return any(_MENDED_BY in cause for cause in found)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run in CI if a command would have brought what some tests lack."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter and os.environ.get("CI") and not session.exitstatus and is_mendable(causes(reporter)):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List what stayed untested, one line a cause."""
    found = causes(terminalreporter)
    if not found:
        return
    terminalreporter.section(PREFIX.lower(), yellow=True)
    for cause, count in found.most_common():
        terminalreporter.line(f"{count:5} {'test' if count == 1 else 'tests'} {cause}")
    if os.environ.get("CI") and is_mendable(found):
        terminalreporter.line("this fails the run in CI", red=True)
