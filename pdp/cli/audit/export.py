"""`pdp audit export`: recorded checks as CSV, JSON lines or Parquet."""

from __future__ import annotations

import csv
import io
import itertools
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Protocol

import click
import msgspec

from pdp.audit.reader import read_records
from pdp.audit.records.recorded import ReadReport
from pdp.audit.records.tables import COLUMNS, ExportRow, check_rows, json_value
from pdp.audit.selection import RecordSelection
from pdp.cli.audit.options import AuditPlace, folder_options, read_selection, selection_options, skipped_texts
from pdp.cli.audit.text import safe_json
from pdp.cli.progress import Progress
from pdp.cli.terminal import note_at_end, one_line_errors, plural, visible
from pdp.cli.wiring import Wiring
from pdp.config.files import whole_file
from pdp.errors import InvalidArgument

if TYPE_CHECKING:
    import pyarrow as pa


_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""First signs of a cell that a spreadsheet may take for a formula, the full-width forms of the first four included."""


class CheckTable(Protocol):
    """Writer of rows to a file."""

    @abstractmethod
    def write(self, rows: Sequence[ExportRow]) -> None:
        """Write rows."""

    @abstractmethod
    def close(self) -> None:
        """Write the end of the file."""


class CsvTable:
    """CSV: lists and objects are JSON, control characters are escaped, and no cell is a formula."""

    def __init__(self, file: BinaryIO) -> None:
        self._text = io.TextIOWrapper(file, "utf-8", newline="", write_through=True)
        self._writer = csv.writer(self._text)
        self._writer.writerow(COLUMNS)

    def write(self, rows: Sequence[ExportRow]) -> None:
        """Write rows."""
        self._writer.writerows([[_cell(row[name], COLUMNS[name]) for name in COLUMNS] for row in rows])

    def close(self) -> None:
        """Leave the file open for its owner."""
        self._text.flush()
        self._text.detach()


class JsonTable:
    """JSON Lines: one object a row, without the values that do not apply."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, rows: Sequence[ExportRow]) -> None:
        """Write rows."""
        for row in rows:
            present = {name: row[name] for name in COLUMNS if row[name] is not None}
            self._file.write(f"{safe_json(msgspec.json.encode(present))}\n".encode())

    def close(self) -> None:
        """Do nothing: the file has no end of its own."""


class ParquetTable:
    """Parquet, by pyarrow. Raises InvalidArgument if pyarrow is not installed."""

    def __init__(self, file: BinaryIO) -> None:
        try:
            import pyarrow as pa  # noqa: PLC0415  an extra
            import pyarrow.parquet as pq  # noqa: PLC0415
        except ImportError:
            raise InvalidArgument("parquet needs pyarrow: install `lakehouse-pdp[parquet]`, or export jsonl") from None
        types: dict[str, pa.DataType] = {
            "text": pa.string(),
            "texts": pa.list_(pa.string()),
            "flag": pa.bool_(),
            "number": pa.int64(),
            "ratio": pa.float64(),
            "time": pa.timestamp("us", "UTC"),
            "json": pa.string(),
        }
        self._pa = pa
        self._schema = pa.schema([(name, types[type]) for name, type in COLUMNS.items()])
        self._writer = pq.ParquetWriter(file, self._schema, compression="zstd")

    def write(self, rows: Sequence[ExportRow]) -> None:
        """Write rows as one row group."""
        columns = [[_parquet_value(row[name], COLUMNS[name]) for row in rows] for name in COLUMNS]
        arrays = [self._pa.array(column, field.type) for column, field in zip(columns, self._schema, strict=True)]
        self._writer.write_batch(self._pa.record_batch(arrays, schema=self._schema))

    def close(self) -> None:
        """Write the footer."""
        self._writer.close()


def _parquet_value(value: Any, type: str) -> Any:
    return json_value(value) if type == "json" and value is not None else value


def _cell(value: Any, type: str) -> str:
    """Return the text of a cell. A text that a spreadsheet may take for a formula begins with `'`."""
    if value is None:
        return ""
    if type == "flag":
        return "true" if value else "false"
    if type in {"number", "ratio"}:
        return str(value)
    if type == "time":
        return str(value.isoformat())
    text = (json_value(value) if value else "") if type in {"texts", "json"} else str(value)
    return visible(f"'{text}" if text.startswith(_FORMULA) else text)


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
def export(composition: Wiring, /, config: Path | None, overrides: tuple[str, ...], **values: Any) -> None:
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


def _rows(folder: Path, selection: RecordSelection, report: ReadReport) -> Iterator[ExportRow]:
    for line in read_records(folder, report):
        if line.record is None:
            report.events += 1
        elif selection.takes(line):
            yield from check_rows(line.record, selection)
