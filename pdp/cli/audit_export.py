"""`pdp audit export`."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, BinaryIO, Final

import click

from pdp.audit.reader import read_records
from pdp.audit.records.recorded import ReadReport
from pdp.audit.records.tables import CheckRow, check_rows
from pdp.audit.selection import RecordSelection
from pdp.cli.audit_options import AuditPlace, folder_options, read_selection, selection_options, skipped_texts
from pdp.cli.audit_tables import CheckTable, CsvTable, JsonTable, ParquetTable
from pdp.cli.composition import Composition
from pdp.cli.progress import Progress
from pdp.cli.terminal import note_at_end, one_line_errors, plural
from pdp.cli.whole_file import whole_file
from pdp.errors import InvalidArgument

_ROWS: Final = 20_000
"""Rows that are written together, which bounds the memory."""
_TABLES: Final[Mapping[str, Callable[[BinaryIO], CheckTable]]] = {
    "csv": CsvTable,
    "jsonl": JsonTable,
    "parquet": ParquetTable,
}
"""Format -> the writer of its files."""


@click.command()
@folder_options
@click.option("--format", "form", type=click.Choice(list(_TABLES)), default="csv", show_default=True, help="Format.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File to write. Default: stdout.")
@selection_options
@click.pass_obj
@one_line_errors
def export(composition: Composition, /, config: Path | None, overrides: tuple[str, ...], **values: Any) -> None:
    """Write the checks of the audit as a table: one row for each concrete check.

    The order is that of the audit: by instance, then as the records were written. Records of refusals, of management
    and of the service have no checks; `pdp audit tail --json --since` prints them.

    In CSV, a cell that a spreadsheet could take for a formula begins with an apostrophe.
    """
    place = AuditPlace(composition, config, overrides, values.pop("audit"))
    form, output = values.pop("form"), values.pop("output")
    if output is None and form == "parquet" and sys.stdout.isatty():
        raise InvalidArgument("parquet is no text for a terminal: give a file with -o")
    selection, report = read_selection(values), ReadReport()
    target = nullcontext(sys.stdout.buffer) if output is None else whole_file(output)
    written = 0
    with Progress("reading the audit") as progress, target as file:
        table = _TABLES[form](file)
        rows = _rows(place.folder, selection, report)
        while some := list(itertools.islice(rows, _ROWS)):
            table.write(some)
            written += len(some)
            progress.say(f"exported {plural(written, 'check')}")
        table.close()
        file.flush()
    others = f", left out {plural(report.events, 'record')} without" if report.events else ""
    note_at_end(f"exported {plural(written, 'check')}{others}")
    for text in skipped_texts(report):
        note_at_end(text)


def _rows(folder: Path, selection: RecordSelection, report: ReadReport) -> Iterator[CheckRow]:
    for line in read_records(folder, report):
        if line.record is None:
            report.events += 1
        elif selection.takes(line):
            yield from check_rows(line.record, selection)
