"""Reports of `pdp test`: text, JSON for scripts, and JUnit for CI."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Final
from xml.etree import ElementTree as ET

import click
import msgspec

from pdp.cli.terminal import plural, visible
from pdp.errors import Place
from pdp.offline.cases.cases import Case, line_of_check, place_of_case
from pdp.offline.cases.outcomes import CaseOutcome, Problem, problem_text
from pdp.offline.coverage.coverage import CoverageReport


class ReportedTest(msgspec.Struct, frozen=True):
    """One line of a report. `error` tells why a test failed, `place` where the test stands."""

    note: str
    passed: bool
    got: Any
    error: str | None
    place: Place | None = None
    warnings: tuple[str, ...] = ()


def report_case(case: Case, outcome: CaseOutcome) -> ReportedTest:
    """Return the report of a case. Only cases with something to say are looked up in their files."""
    if outcome.passed and not outcome.warnings:
        return ReportedTest(outcome.note, True, outcome.got, outcome.error)
    place = place_of_case(case)
    error = outcome.error if outcome.passed else _joined(case, outcome.problems, place)
    warnings = tuple(_joined(case, [problem], place) for problem in outcome.warnings)
    return ReportedTest(outcome.note, outcome.passed, outcome.got, error, place, warnings)


def report_coverage(report: CoverageReport, threshold: float | None) -> ReportedTest:
    """Return the coverage as one more test, which fails below the threshold in percent."""
    passed = threshold is None or report.percent >= threshold
    error = None if passed else f"{report.percent:g}% of the points are covered, wanted {threshold:g}%"
    return ReportedTest("coverage", passed, report.as_object(), error)


def print_coverage(report: CoverageReport) -> None:
    """Print the uncovered points, an item a line, and the share of the covered ones."""
    for item in report.uncovered:
        click.echo(visible(f"UNCOVERED {item}"))
    click.echo(f"coverage {report.percent:g}%: {report.covered} of {plural(report.points, 'point')}")


def print_report(tests: Sequence[ReportedTest], form: str, under: str = "") -> None:
    """Print the report in one of FORMATS. `under` says at the end of a text which configuration decided."""
    _PRINTERS[form](tests)
    if form == "text":
        failures = sum(not test.passed for test in tests)
        click.echo(visible(f"{len(tests) - failures} passed, {failures} failed{under}"))


def _joined(case: Case, problems: Sequence[Problem], place: Place | None) -> str:
    """Return the problems of a case as one line that begins with file and line."""
    lines = (None if problem.check is None else line_of_check(case, problem.check) for problem in problems)
    text = "; ".join(problem_text(problem, line) for problem, line in zip(problems, lines, strict=True))
    return f"{place.file}:{place.line}: {text}" if place else text


def _print_text(tests: Sequence[ReportedTest]) -> None:
    failed = [test for test in tests if not test.passed]
    for test in tests:
        for warning in test.warnings:
            click.echo(visible(f"WARNING {test.note}: {warning}"))
    for test in failed:
        click.echo(visible(f"FAILED {test.note}: {test.error}"))


def _print_json(tests: Sequence[ReportedTest]) -> None:
    sys.stdout.buffer.write(msgspec.json.encode([_object(test) for test in tests]) + b"\n")


def _object(test: ReportedTest) -> dict[str, Any]:
    """Return the four keys of every test, and `warnings` where there are any."""
    warnings = {"warnings": test.warnings} if test.warnings else {}
    return {"note": test.note, "passed": test.passed, "got": test.got, "error": test.error} | warnings


def _print_junit(tests: Sequence[ReportedTest]) -> None:
    failures = sum(not test.passed for test in tests)
    suite = ET.Element("testsuite", name="pdp", tests=str(len(tests)), failures=str(failures))
    for test in tests:
        place = {"file": visible(test.place.file), "line": str(test.place.line)} if test.place else {}
        element = ET.SubElement(suite, "testcase", {"name": visible(test.note), "classname": "pdp", **place})
        if not test.passed:
            ET.SubElement(element, "failure", message=visible(test.error or "")).text = visible(str(test.got))
        if test.warnings:
            ET.SubElement(element, "system-err").text = visible("; ".join(test.warnings))
    click.echo(ET.tostring(suite, encoding="unicode"))


_PRINTERS: Final[dict[str, Callable[[Sequence[ReportedTest]], None]]] = {
    "text": _print_text,
    "json": _print_json,
    "junit": _print_junit,
}
FORMATS: Final = tuple(_PRINTERS)
"""Names of the formats, the default first."""
