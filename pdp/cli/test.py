"""`pdp test`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

import click
import msgspec

from pdp.cli.composition import Composition
from pdp.cli.options import format_option
from pdp.cli.terminal import one_line_errors, visible
from pdp.offline.case_outcomes import CaseOutcome
from pdp.offline.case_runner import run_case
from pdp.offline.cases import find_cases


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@format_option("text", "json", "junit")
@click.pass_obj
@one_line_errors
def test(composition: Composition, paths: tuple[Path, ...], form: str) -> None:
    """Run policy tests.

    PATHS are YAML, JSON or JSONL files, or folders of such files. A test names rules, a world, checks and the expected
    decisions; see docs/policy-tests.md.

    Exits with 1 if a test fails.
    """
    with asyncio.Runner() as runner:
        outcomes = [run_case(case, composition.build_pdp, runner) for case in find_cases(paths)]
    if not outcomes:
        raise click.UsageError("no tests found")
    _FORMATS[form](outcomes)
    raise SystemExit(0 if all(outcome.passed for outcome in outcomes) else 1)


def _print_text(outcomes: Sequence[CaseOutcome]) -> None:
    failed = [outcome for outcome in outcomes if not outcome.passed]
    for outcome in failed:
        click.echo(f"FAILED {outcome.note}: {outcome.error}")
    click.echo(f"{len(outcomes) - len(failed)} passed, {len(failed)} failed")


def _print_json(outcomes: Sequence[CaseOutcome]) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(outcomes) + b"\n")


def _print_junit(outcomes: Sequence[CaseOutcome]) -> None:
    failures = sum(not outcome.passed for outcome in outcomes)
    suite = ET.Element("testsuite", name="pdp", tests=str(len(outcomes)), failures=str(failures))
    for outcome in outcomes:
        element = ET.SubElement(suite, "testcase", name=visible(outcome.note), classname="pdp")
        if not outcome.passed:
            ET.SubElement(element, "failure", message=visible(outcome.error or "")).text = visible(str(outcome.got))
    click.echo(ET.tostring(suite, encoding="unicode"))


_FORMATS: Final[dict[str, Callable[[Sequence[CaseOutcome]], None]]] = {
    "text": _print_text,
    "json": _print_json,
    "junit": _print_junit,
}
