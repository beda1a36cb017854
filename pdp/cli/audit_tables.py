"""Files of exported checks: CSV for spreadsheets, JSON Lines, and Parquet."""

from __future__ import annotations

import csv
import io
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Protocol

import msgspec

from pdp.audit.records.tables import COLUMNS, CheckRow, json_value
from pdp.cli.audit_text import safe_json
from pdp.cli.terminal import visible
from pdp.errors import InvalidArgument

if TYPE_CHECKING:
    import pyarrow as pa

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""First signs of a cell that a spreadsheet may take for a formula, the full-width forms of the first four included."""


class CheckTable(Protocol):
    """Writer of rows to a file."""

    @abstractmethod
    def write(self, rows: Sequence[CheckRow]) -> None:
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

    def write(self, rows: Sequence[CheckRow]) -> None:
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

    def write(self, rows: Sequence[CheckRow]) -> None:
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
            raise InvalidArgument("parquet needs pyarrow: install `pdp[parquet]`, or export jsonl") from None
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

    def write(self, rows: Sequence[CheckRow]) -> None:
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
