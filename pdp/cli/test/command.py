"""`pdp test`: policy tests, by the tests' own policies or by the deployed ones."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from pdp.cli.options import format_option
from pdp.cli.terminal import one_line_errors, watch
from pdp.cli.test.report import FORMATS, ReportedTest, print_coverage, print_report, report_case, report_coverage
from pdp.cli.wiring import Wiring
from pdp.config.load import load_settings, make_settings
from pdp.config.settings import Settings
from pdp.errors import PdpError
from pdp.facts.snapshot import Facts
from pdp.offline.cases.cases import Case, files_of, find_cases
from pdp.offline.cases.deployment import Deployment, case_files
from pdp.offline.cases.runner import CaseRunner, forget_files
from pdp.offline.coverage.cases import CaseCoverage


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
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override one setting of -c. Can be repeated."
)
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
