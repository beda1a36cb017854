"""`pdp test`."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import click

from pdp.cli.composition import Composition
from pdp.cli.options import format_option
from pdp.cli.terminal import one_line_errors
from pdp.cli.test_report import FORMATS, ReportedTest, print_coverage, print_report, report_case, report_coverage
from pdp.config.load import load_settings
from pdp.config.settings import Settings
from pdp.facts.snapshot import Facts
from pdp.offline.case_coverage import CaseCoverage
from pdp.offline.case_runner import CaseRunner
from pdp.offline.cases import Case, find_cases
from pdp.offline.deployment import Deployment


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
@click.pass_obj
@one_line_errors
def test(
    composition: Composition, paths: tuple[Path, ...], config: Path | None, overrides: tuple[str, ...], form: str,
    pattern: str | None, strict: bool, coverage: bool, threshold: float | None,
) -> None:  # fmt: skip
    """Run policy tests.

    PATHS are YAML, JSON or JSONL files, or folders of such files. A test names rules, a world, checks and the expected
    decisions; see docs/policy-tests.md.

    Exits with 1 if a test fails.
    """
    if overrides and not config:
        raise click.UsageError("--set needs -c: without it, a test has its own configuration")
    cases = _chosen(paths, pattern)
    deployment = _deployment(composition, load_settings(config, overrides)) if config else None
    noted = CaseCoverage(str(config) if config else "") if coverage or threshold is not None else None
    tests = _run(composition, cases, deployment, noted, strict=strict)
    if noted:
        report = noted.report()
        reported = report_coverage(report, threshold)
        if form == "text":
            print_coverage(report)
        tests += [reported] if form != "text" or not reported.passed else []
    print_report(tests, form, f" under {config}" if config else "")
    raise SystemExit(0 if all(test.passed for test in tests) else 1)


def _deployment(composition: Composition, settings: Settings) -> Deployment:
    pdp = composition.build_pdp(settings, Facts.empty(), composition.read_rules(settings))
    return Deployment(settings, pdp, lambda: composition.read_facts(settings))


def _run(
    composition: Composition,
    cases: list[Case],
    deployment: Deployment | None,
    coverage: CaseCoverage | None,
    *,
    strict: bool,
) -> list[ReportedTest]:
    tests = []
    with asyncio.Runner() as runner:
        case_runner = CaseRunner(composition.build_pdp, runner, deployment, coverage)
        for case in cases:
            outcome = case_runner.run(case)
            tests.append(report_case(case, outcome.strict() if strict else outcome))
    return tests


def _chosen(paths: tuple[Path, ...], pattern: str | None) -> list[Case]:
    """Return the cases of the paths with a matching note; raise UsageError if there are none."""
    cases = list(find_cases(paths))
    if not cases:
        raise click.UsageError("no tests found")
    try:
        chosen = [case for case in cases if pattern is None or re.search(pattern, case.note)]
    except re.error as error:
        raise click.UsageError(f"`-k {pattern}` is no regular expression: {error}") from None
    if not chosen:
        raise click.UsageError(f"no test has a note that matches `{pattern}`")
    return chosen
