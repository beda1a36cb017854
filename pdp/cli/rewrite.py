"""`pdp rewrite`, and explanations of row access as text and as JSON, also for `pdp explain --rows`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from pdp.cli.options import format_option, refuse_beside
from pdp.cli.terminal import fail, one_line_errors, visible

if TYPE_CHECKING:
    from pdp.engines.row_access.explain import ExplainedEntry, RowExplanation
    from pdp.rewrite.process.local import ExplainedStatement


def print_rows(explanation: RowExplanation, form: str) -> None:
    """Print the restriction of one table."""
    if form == "json":
        _print_json(explanation)
        return
    for line in _rows(explanation):
        click.echo(line)


def print_statement(explained: ExplainedStatement, form: str) -> None:
    """Print the rewritten statement and the restriction of each table."""
    if form == "json":
        _print_json(explained)
        return
    click.echo(explained.sql)
    for table in explained.tables:
        click.echo()
        click.echo(visible(f"{table.table}, {table.role} as {table.reader}"))
        for line in _rows(table.rows):
            click.echo(f"  {line}")


def _print_json(value: object) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(value) + b"\n")


def _rows(explanation: RowExplanation) -> Iterator[str]:
    shown = explanation.filter
    if isinstance(shown, bool):
        shown = "every row" if shown else "no row"
    yield visible(f"rows: {shown} by {explanation.by}")
    yield from _entries("policy", explanation.policies)
    yield from _entries("mask", explanation.masks)


def _entries(noun: str, entries: Iterable[ExplainedEntry]) -> Iterator[str]:
    for entry in entries:
        of = f" of {entry.column}" if entry.column else ""
        mark = "+" if entry.counts else "-"
        yield visible(f"{mark} {noun} {entry.id}{of} ({entry.text}): {entry.why}")


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
@click.option(
    "--roles",
    metavar="NAMES",
    help="All roles of the caller, with commas between them. Without them, roles count where they hide alone.",
)
@click.option(
    "--claim",
    "claims",
    multiple=True,
    metavar="NAME=TEXT",
    help="Claim of the caller. Others are unknown. Can be repeated.",
)
@click.option("--explain", is_flag=True, help="Also print each table, and why policies and masks count or not.")
@format_option("text", "json")
@one_line_errors
def rewrite(
    files: tuple[Path, ...], batch: bool, dialect: str | None, member: str | None, groups: str, roles: str | None,
    claims: tuple[str, ...], explain: bool, form: str,
) -> None:  # fmt: skip
    """Rewrite SQL to show the rows of a caller alone.

    Reads a statement from stdin and prints the statement to execute. With --batch: a JSON object a line with sql,
    dialect, principal, groups, roles, claims and authenticated. An answer has sql, or error with a code (RAP_...) and
    a message.

    Exits with 1 if the statement is refused; never in a batch.
    """
    from pdp.rewrite.errors import RewriteRefused  # noqa: PLC0415  needs the parser of SQL
    from pdp.rewrite.process.local import RewriteRequest, answers, service_of_files  # noqa: PLC0415

    if batch:
        refuse_beside("--batch", ("--policies",))
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
    texts = dict(claim.split("=", 1) for claim in claims if "=" in claim)
    if len(texts) < len(claims):
        fail("write each --claim once, as NAME=TEXT")
    known = None if roles is None else _names(roles)
    request = RewriteRequest(sys.stdin.read(), dialect, member, _names(groups), roles=known, claims=texts)
    try:
        if explain:
            print_statement(service.explain(request), form)
        else:
            click.echo(service.rewrite(request))
    except RewriteRefused as error:
        click.echo(f"{error.rap}: {error}", err=True)
        raise SystemExit(1) from None


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
