"""Questions about the masks of one table's columns, and the encoding of row filters and masks. Pure.

Must not know decisions or routes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from pdp.errors import InvalidArgument
from pdp.model.question import Predicate, TypedColumn
from pdp.trino.bodies import ResourceName, TableName


class ColumnQuestion(NamedTuple):
    """Columns of one table. Without columns, there is no table."""

    table: ResourceName
    columns: Sequence[TypedColumn]


def read_columns(named: Sequence[ResourceName]) -> ColumnQuestion:
    """Return the question about named columns; raise InvalidArgument for anything but typed columns of one table."""
    columns = [name.column for name in named if name.column and name.column.column_type]
    tables = {(column.catalog_name, column.schema_name, column.table_name) for column in columns}
    if len(columns) < len(named) or len(tables) > 1:
        raise InvalidArgument("GetColumnMask takes columns of one table, each with its type")
    if not columns:
        return ColumnQuestion(ResourceName(), ())
    typed = [TypedColumn(column.column_name, column.column_type) for column in columns]
    return ColumnQuestion(ResourceName(table=TableName(*tables.pop())), typed)


def encode_masks(masks: Sequence[Predicate | None]) -> bytes:
    """Return the answer about many columns: each mask with the index of its column."""
    found = [{"index": at, "viewExpression": expression(mask)} for at, mask in enumerate(masks) if mask]
    return msgspec.json.encode({"result": found})


def expression(predicate: Predicate) -> dict[str, str]:
    """Return a filter or mask as Trino takes it."""
    identity = {"identity": predicate.identity} if predicate.identity else {}
    return {"expression": predicate.expression, **identity}
