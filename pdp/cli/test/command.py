"""`pdp test`: policy tests, by the tests' own policies or by the deployed ones; reports as text, JSON and JUnit."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

import click
import msgspec

from pdp.cli.options import format_option, set_option
from pdp.cli.terminal import one_line_errors, plural, visible, watch
from pdp.cli.wiring import Wiring
from pdp.config.load import load_settings, make_settings
from pdp.config.settings import Settings
from pdp.errors import PdpError, Place
from pdp.facts.snapshot import Facts
from pdp.offline.cases.cases import Case, files_of, find_cases, line_of_check, place_of_case
from pdp.offline.cases.deployment import Deployment, case_files
from pdp.offline.cases.outcomes import CaseOutcome, Problem, problem_text
from pdp.offline.cases.runner import CaseRunner, forget_files
from pdp.offline.coverage.cases import CaseCoverage
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


@dataclass(frozen=True)
class PolicyTestRun:
    """Options of a run. `config` None means that each test has its own configuration."""

    composition: Wiring
    paths: tuple[Path, ...]
    config: Path | None
    overrides: tuple[str, ...]
    form: str
    pattern: str | None
    strict: bool
    coverage: bool
    threshold: float | None

    def run(self) -> bool:
        """Run the tests and print the report; tell whether all passed and the coverage suffices.

        Raise UsageError if no test is chosen, and PdpError for files or settings that cannot be used.
        """
        forget_files()
        cases = self._chosen()
        coverage = None
        if self.coverage or self.threshold is not None:
            coverage = CaseCoverage(str(self.config) if self.config else "")
        tests = self._decide(cases, coverage)
        if coverage:
            report = coverage.report()
            reported = report_coverage(report, self.threshold)
            if self.form == "text":
                print_coverage(report)
            tests += [reported] if self.form != "text" or not reported.passed else []
        print_report(tests, self.form, f" under {self.config}" if self.config else "")
        return all(test.passed for test in tests)

    def files(self) -> set[Path]:
        """Return the files that a run reads; those of invalid tests and settings as far as known."""
        files = {file for path in self.paths for file in files_of(path)}
        if self.config:
            files.add(self.config)
        with contextlib.suppress(PdpError):  # the run says so
            for case in find_cases(self.paths):
                files.update(_files_of_case(case))
            if self.config:
                files.update(_configured(self._settings(self.config)))
        return files

    def _decide(self, cases: list[Case], coverage: CaseCoverage | None) -> list[ReportedTest]:
        deployment = self._deployment(self._settings(self.config)) if self.config else None
        tests = []
        with asyncio.Runner() as runner:
            case_runner = CaseRunner(self.composition.build_pdp, runner, deployment, coverage)
            for case in cases:
                outcome = case_runner.run(case)
                tests.append(report_case(case, outcome.strict() if self.strict else outcome))
        return tests

    def _settings(self, config: Path) -> Settings:
        return load_settings(config, self.overrides)

    def _deployment(self, settings: Settings) -> Deployment:
        composition = self.composition
        pdp = composition.build_pdp(settings, Facts.empty(), composition.read_rules(settings))
        read_facts = composition.inspect_facts or composition.read_facts
        return Deployment(settings, pdp, lambda: read_facts(settings))

    def _chosen(self) -> list[Case]:
        """Return the cases of the paths with a matching note; raise UsageError if there are none."""
        cases = list(find_cases(self.paths))
        if not cases:
            raise click.UsageError("no tests found")
        try:
            chosen = [case for case in cases if self.pattern is None or re.search(self.pattern, case.note)]
        except re.error as error:
            raise click.UsageError(f"`-k {self.pattern}` is no regular expression: {error}") from None
        if not chosen:
            raise click.UsageError(f"no test has a note that matches `{self.pattern}`")
        return chosen


def _files_of_case(case: Case) -> Iterator[Path]:
    for key in ("rules", "forbid", "policies", "world"):
        value: Any = case.data.get(key) or []
        if not isinstance(value, Mapping):
            yield from case_files(case, value)
    if "config" in case.data:
        yield from _configured(make_settings(case.data["config"], case.folder))


def _configured(settings: Settings) -> Iterator[Path]:
    policies = settings.policies
    for patterns in (policies.rules, policies.forbid, policies.row_access):
        yield from settings.paths(patterns)
    for file in (settings.store.world_file(), settings.store.seed):
        if file is not None:
            yield settings.path(file)


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-c",
    "--config",
    type=click.Path(path_type=Path),
    help="Run the tests under this configuration, with its policies and stored facts, instead of the tests' own.",
)
@set_option("Override one setting of -c. Can be repeated.")
@format_option(*FORMATS)
@click.option("-k", "--run", "pattern", metavar="REGEX", help="Run only the tests with a note that matches.")
@click.option("--strict", is_flag=True, help="Fail a test whose rules raise, unless it wants this by `errors`.")
@click.option("--coverage", is_flag=True, help="Print the policies, or parts of them, that no test reaches.")
@click.option(
    "--coverage-threshold",
    "threshold",
    type=click.FloatRange(0, 100),
    metavar="PERCENT",
    help="Exit with 1 if the coverage is lower. Implies --coverage.",
)
@click.option("--watch", "watches", is_flag=True, help="Run again after each change of a file, until interrupted.")
@click.pass_obj
@one_line_errors
def test(
    composition: Wiring, paths: tuple[Path, ...], config: Path | None, overrides: tuple[str, ...], form: str,
    pattern: str | None, strict: bool, coverage: bool, threshold: float | None, watches: bool,
) -> None:  # fmt: skip
    """Run policy tests.

    PATHS are YAML, JSON or JSONL files, or folders of such files. A test names rules, a world, checks and the expected
    decisions; see docs/policy-tests.md.

    Exits with 1 if a test fails.
    """
    if overrides and not config:
        raise click.UsageError("--set needs -c: without it, a test has its own configuration")
    run = PolicyTestRun(composition, paths, config, overrides, form, pattern, strict, coverage, threshold)
    if watches:
        watch(run.run, run.files)
    raise SystemExit(0 if run.run() else 1)
