"""`pdp pipeline report`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from pdp.cli.lake.options import lake_options, one_line_spark_errors, open_chosen_lake, stage_notices
from pdp.cli.options import format_option, refuse_beside
from pdp.cli.progress import Progress
from pdp.cli.terminal import plural, visible
from pdp.cli.wiring import Wiring
from pdp.config.files import whole_file
from pdp.errors import InvalidArgument

if TYPE_CHECKING:
    from pdp.lake.report.report import Report


@click.command()
@lake_options
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, metavar="FILE", help="Page to write: one HTML file."
)
@click.option("--csv", type=click.Path(path_type=Path), metavar="DIR", help="Folder for each answer as CSV.")
@click.option("--json", type=click.Path(path_type=Path), metavar="DIR", help="Folder for each answer as JSON.")
@click.option(
    "--days", type=click.IntRange(1, 3650), default=30, show_default=True,
    help="Days without use after which a right is a finding.",
)  # fmt: skip
@click.option("--explain", is_flag=True, help="Print Spark's plan of each question, and answer none.")
@format_option("text", "json")
@click.pass_obj
@one_line_spark_errors
def report(
    composition: Wiring, /, lake: str, config: Path | None, overrides: tuple[str, ...],
    properties: tuple[str, ...], out: Path, csv: Path | None, json: Path | None, days: int, explain: bool, form: str,
) -> None:  # fmt: skip
    """Write a report on the decisions of a lake: a page for people, and tables for programs.

    The page needs no network and runs no script. The answers are also tables of the lake, `report_<question>`.
    """
    if explain:
        refuse_beside("--explain", useless=("--format", "--csv", "--json"))
    with Progress("starting Spark") as progress:
        opened = open_chosen_lake(composition, lake, config, overrides, properties)
        from pdp.lake.report.report import explain_questions, make_report  # noqa: PLC0415  help needs none

        if explain:
            click.echo(explain_questions(opened, days))
            return
        with stage_notices(progress, opened).stage("answering questions", "check") as stage:
            made = make_report(opened, days, lambda step: stage.now(f"answering: {step}"))
            stage.count(made.total("checks"))
        written = write_report(made, out, csv, json)
    print_report(made, written, form)


def write_report(made: Report, out: Path, csv: Path | None = None, json: Path | None = None) -> list[Path]:
    """Write the page of a report, and the files of its answers; return all files."""
    from pdp.lake.report.html import render  # noqa: PLC0415  help needs none
    from pdp.lake.report.report import file_texts  # noqa: PLC0415

    written = [_write(out, render(made).encode())]
    for folder, suffix in ((csv, "csv"), (json, "json")):
        if folder:
            _make_folder(folder)
            written += [_write(folder / name, text) for name, text in file_texts(made, suffix)]
    return written


def print_report(made: Report, written: Iterable[Path], form: str) -> None:
    """Print the files of a report and its totals; as JSON, the totals are the last line."""
    totals = {"requests": made.total("requests"), "permits": made.total("allowed"), "denials": made.total("denied")}
    files = list(written)
    if form == "json":
        click.echo(msgspec.json.encode({**totals, "out": str(files[0]), "files": len(files)}))
    else:
        numbers = ", ".join(plural(count, noun.removesuffix("s")) for noun, count in totals.items())
        click.echo(f"{numbers}\n{visible(str(files[0].absolute()))}")
        if len(files) > 1:
            click.echo(f"and {plural(len(files) - 1, 'file')} with its answers")
    sys.stdout.flush()


def _write(path: Path, text: bytes) -> Path:
    with whole_file(path) as file:
        file.write(text)
    return path


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidArgument(f"cannot make the folder `{folder}`: {(error.strerror or str(error)).lower()}") from None
