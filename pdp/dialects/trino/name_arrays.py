"""Columns of plain names: the lists of tables and schemas in a body, to columns of paths.

A plain name is a printable name without signs of a special meaning. Rows with any other name are left out, for `names`
to read one by one. Must not know operations, HTTP or JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import compress
from typing import Final, NamedTuple

from pdp.dialects.trino.bodies import SchemaName
from pdp.dialects.trino.names import SPECIAL_SIGNS, Names
from pdp.dialects.trino.table_lists import TableList, share_one_text
from pdp.errors import InvalidArgument
from pdp.model.arrays import PathArray, pick, positions_by
from pdp.model.question import Resource
from pdp.model.references import MAX_NAME, has_long
from pdp.model.trino_operations import SYSTEM_TABLES

_MOST_NUMBERS: Final = 16
"""Catalogs of a list up to which one pass over the rows per catalog is quicker than one loop."""
_EQUAL_TO: Final = [bytes([0] * number + [1]).ljust(256, b"\0") for number in range(_MOST_NUMBERS)]
"""Translations of numbers: 1 for the number itself, 0 for every other."""
_PLAIN_SIGNS: Final = bytes(code for code in range(0x20, 0x7F) if chr(code) not in f"{SPECIAL_SIGNS}.")
"""Characters that are plain in every name. One pass over a text that has no others is the quickest check."""


class PlacedColumn(NamedTuple):
    """A column of paths, and the positions of its rows in the body's list."""

    resources: PathArray
    at: Sequence[int]


def table_columns(names: Names, tables: TableList) -> list[PlacedColumn]:
    """Return the tables with plain names, one column per catalog."""
    catalogs, rows = tables.catalogs, _Tables(range(len(tables.names)), tables.schemas, tables.names)
    plain = _plain_rows(rows.names, SPECIAL_SIGNS)
    if len(plain) < len(catalogs):
        catalogs, rows = pick(catalogs, plain), rows.part(plain)
    if not catalogs:
        return []
    if share_one_text(catalogs):
        columns = [_tables_of_catalog(names, catalogs[0], rows)]
    else:
        by_catalog = _rows_by_catalog(catalogs)
        columns = [_tables_of_catalog(names, catalog, rows.part(some)) for catalog, some in by_catalog.items()]
    return [column for column in columns if column]


def schema_columns(names: Names, schemas: Sequence[SchemaName]) -> list[PlacedColumn]:
    """Return the schemas with plain names and without parents, one column per catalog."""
    catalogs = [schema.catalog_name for schema in schemas]
    schema_names = [schema.schema_name for schema in schemas]
    rows = [row for row in _plain_rows(schema_names, ".") if schema_names[row] not in SYSTEM_TABLES]
    columns = []
    for catalog, found in positions_by(rows, catalogs.__getitem__).items():
        part = [rows[at] for at in found]
        warehouse = _warehouse(names, catalog)
        if warehouse:
            like = Resource("namespace", warehouse.warehouse, ref=warehouse.ref)
            columns.append(PlacedColumn(PathArray.in_one(like, (), [schema_names[row] for row in part]), part))
    return columns


class _Tables(NamedTuple):
    """Tables of one catalog, with their positions in the body's list."""

    at: Sequence[int]
    schemas: Sequence[str]
    names: Sequence[str]

    def part(self, rows: Sequence[int]) -> _Tables:
        """Return some of the rows."""
        at = rows if type(self.at) is range else pick(self.at, rows)  # a range is all rows of the list
        return _Tables(at, pick(self.schemas, rows), pick(self.names, rows))


def _rows_by_catalog(catalogs: Sequence[str]) -> Mapping[str, Sequence[int]]:
    """Return the rows of each catalog."""
    numbers = {catalog: number for number, catalog in enumerate(set(catalogs))}
    if len(numbers) > _MOST_NUMBERS:
        return positions_by(catalogs, lambda catalog: catalog)
    column = bytes(map(numbers.__getitem__, catalogs))
    rows = list(range(len(catalogs)))
    return {catalog: list(compress(rows, column.translate(_EQUAL_TO[number]))) for catalog, number in numbers.items()}


def _tables_of_catalog(names: Names, catalog: str, tables: _Tables) -> PlacedColumn | None:
    """Return the tables of a catalog in schemas that are namespaces of a warehouse; None without such a table."""
    like = _content_of(names, catalog)
    if like is None:
        return None
    if share_one_text(tables.schemas):
        path = names.namespace(catalog, tables.schemas[0])
        return PlacedColumn(PathArray.in_one(like, path, tables.names), tables.at) if path else None
    paths = names.namespaces(catalog, dict.fromkeys(tables.schemas))
    if not all(paths.values()):
        tables = tables.part([row for row, schema in enumerate(tables.schemas) if paths[schema]])
        paths = {schema: path for schema, path in paths.items() if path}
    if not paths:
        return None
    # Paths are distinct: a schema's name is its path, joined by dots.
    places = dict(zip(paths, range(len(paths)), strict=True))
    parent_at = list(map(places.__getitem__, tables.schemas))
    return PlacedColumn(PathArray(like, list(paths.values()), parent_at, tables.names), tables.at)  # type: ignore[arg-type]


def _content_of(names: Names, catalog: str) -> Resource | None:
    """Return the common part of all tables of a catalog; None for a catalog without a warehouse."""
    warehouse = _warehouse(names, catalog)
    return Resource("table_or_view", warehouse.warehouse, ref=warehouse.ref) if warehouse else None


def _warehouse(names: Names, catalog: str) -> Resource | None:
    """Return the warehouse of a catalog; None for another catalog or an invalid name."""
    try:
        resource = names.catalog(catalog)
    except InvalidArgument:
        return None
    return resource if resource.type == "warehouse" else None


def _plain_rows(texts: Sequence[str], signs: str) -> Sequence[int]:
    """Return the rows of printable texts without any of the signs. An empty or long text is not plain."""
    joined = "".join(texts)
    if all(texts) and not has_long(texts, joined) and _is_plain(joined, signs):
        return range(len(texts))
    return [row for row, text in enumerate(texts) if 0 < len(text) <= MAX_NAME and _is_plain(text, signs)]


def _is_plain(text: str, signs: str) -> bool:
    if text.isascii() and not text.encode().translate(None, _PLAIN_SIGNS):
        return True
    return text.isprintable() and not any(sign in text for sign in signs)


def rows_left(columns: Sequence[PlacedColumn], size: int) -> Iterator[int]:
    """Yield the rows of a list of `size` items in no column, in order."""
    if sum(len(column.at) for column in columns) == size:
        return iter(())
    placed = {row for column in columns for row in column.at}
    return (row for row in range(size) if row not in placed)
