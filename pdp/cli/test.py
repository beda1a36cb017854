"""`pdp test`."""

from __future__ import annotations

from pathlib import Path

import click

from pdp.cli.composition import Composition
from pdp.cli.options import format_option
from pdp.cli.terminal import one_line_errors
from pdp.cli.test_report import FORMATS
from pdp.cli.test_run import PolicyTestRun
from pdp.cli.watching import watch


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
    composition: Composition, paths: tuple[Path, ...], config: Path | None, overrides: tuple[str, ...], form: str,
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
