"""`pdp rewrite`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from pdp.cli.explain_rows import print_statement
from pdp.cli.options import format_option
from pdp.cli.terminal import fail, one_line_errors


@click.command()
@click.option(
    "--policies", "files", multiple=True, required=True, type=click.Path(path_type=Path), metavar="FILE",
    help="File with tables, views and row policies. Can be repeated.",
)  # fmt: skip
@click.option("--batch", is_flag=True, help="Read one JSON request a line, and print one answer a line.")
@click.option(
    "--dialect", type=click.Choice(["bigquery", "trino", "spark", "duckdb"]), help="Dialect of the statement."
)
@click.option("--as", "member", metavar="MEMBER", help="IAM member of the caller, such as user:alice@example.com.")
@click.option("--groups", default="", metavar="NAMES", help="Groups of the caller, with commas between them.")
@click.option("--explain", is_flag=True, help="Also print each table, and why policies and masks count or not.")
@format_option("text", "json")
@one_line_errors
def rewrite(
    files: tuple[Path, ...], batch: bool, dialect: str | None, member: str | None, groups: str, explain: bool, form: str
) -> None:  # fmt: skip
    """Rewrite SQL to show the rows of a caller alone.

    Reads a statement from stdin and prints the statement to execute. With --batch: a JSON object a line with sql,
    dialect, principal, groups and authenticated. An answer has sql, or error with a code (RAP_...) and a message.

    Exits with 1 if the statement is refused; never in a batch.
    """
    from pdp.rewrite.errors import RewriteRefused  # noqa: PLC0415  needs the parser of SQL
    from pdp.rewrite.process.requests import RewriteRequest, answers, service_of_files  # noqa: PLC0415

    service = service_of_files(files)
    if batch:
        for answer in answers(service, sys.stdin.buffer):
            sys.stdout.buffer.write(answer + b"\n")
            sys.stdout.buffer.flush()
        return
    if not dialect or not member:
        fail("give --dialect and --as, or --batch")
    if form == "json" and not explain:
        fail("--format json is for --explain")
    named = tuple(name for name in groups.split(",") if name.strip())
    request = RewriteRequest(sys.stdin.read(), dialect, member, named)
    try:
        if explain:
            print_statement(service.explain(request), form)
        else:
            click.echo(service.rewrite(request))
    except RewriteRefused as error:
        click.echo(f"{error.rap}: {error}", err=True)
        raise SystemExit(1) from None
