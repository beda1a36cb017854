"""Explanations of row access as text and as JSON, for `pdp explain --rows` and `pdp rewrite --explain`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click
import msgspec

from pdp.cli.terminal import visible

if TYPE_CHECKING:
    from pdp.engines.row_access.explain import ExplainedEntry, RowExplanation
    from pdp.rewrite.process.requests import ExplainedStatement


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
