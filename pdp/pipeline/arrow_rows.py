"""Rows as batches of Arrow, with the columns of a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

import pyarrow as pa

from pdp.pipeline.decision_rows import Row
from pdp.pipeline.tables import LakeTable, SqlType

ROWS: Final = 10_000
"""Rows of a batch."""
_TYPES: Final[dict[SqlType, Any]] = {
    "string": pa.string(),
    "array<string>": pa.list_(pa.string()),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "date": pa.date32(),
    "binary": pa.binary(),
}


def arrow_schema(table: LakeTable) -> Any:
    """Return the columns of a table as a schema of Arrow."""
    return pa.schema([pa.field(column.name, _TYPES[column.type]) for column in table.columns])


def record_batches(rows: Iterable[Row], table: LakeTable) -> Iterator[Any]:
    """Yield batches of the rows of a table."""
    schema, left = arrow_schema(table), iter(rows)
    while some := list(islice(left, ROWS)):
        columns = [_array(column, field.type) for column, field in zip(zip(*some, strict=True), schema, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _array(values: Iterable[Any], type: Any) -> Any:
    """Return a column. Times are texts in UTC, days are numbers since 1970."""
    if pa.types.is_timestamp(type):
        return pa.array(values, pa.string()).cast(type)
    return pa.array(values, type)
