"""`pdp test`."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import click

from pdp.cli.composition import Composition
from pdp.cli.options import format_option
from pdp.cli.terminal import one_line_errors
from pdp.cli.test_report import FORMATS, ReportedTest, print_report, report_case
from pdp.offline.case_runner import run_case
from pdp.offline.cases import Case, find_cases


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@format_option(*FORMATS)
@click.option("-k", "--run", "pattern", metavar="REGEX", help="Run only the tests with a note that matches.")
@click.option("--strict", is_flag=True, help="Fail a test whose rules raise, unless it wants this by `errors`.")
@click.pass_obj
@one_line_errors
def test(composition: Composition, paths: tuple[Path, ...], form: str, pattern: str | None, strict: bool) -> None:
    """Run policy tests.

    PATHS are YAML, JSON or JSONL files, or folders of such files. A test names rules, a world, checks and the expected
    decisions; see docs/policy-tests.md.

    Exits with 1 if a test fails.
    """
    tests = _run(composition, _chosen(paths, pattern), strict=strict)
    print_report(tests, form)
    raise SystemExit(0 if all(test.passed for test in tests) else 1)


def _run(composition: Composition, cases: list[Case], *, strict: bool) -> list[ReportedTest]:
    tests = []
    with asyncio.Runner() as runner:
        for case in cases:
            outcome = run_case(case, composition.build_pdp, runner)
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
