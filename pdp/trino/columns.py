"""Columns of plain names: the lists of tables and schemas in a body, to columns of paths.

A plain name is a printable name without signs of a special meaning. Rows with any other name are left out, for `names`
to read one by one. Must not know operations, HTTP or JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from operator import attrgetter
from typing import Final, NamedTuple

from pdp.errors import InvalidArgument
from pdp.model.checks import Resource
from pdp.model.columns import PathColumn, positions_by
from pdp.model.trino_operations import SYSTEM_TABLES
from pdp.trino.bodies import SchemaName, TableName
from pdp.trino.names import SPECIAL_SIGNS, Names

_FEW_CATALOGS: Final = 16
"""Catalogs of a list up to which one pass over the rows per catalog is quicker than one loop."""
_catalog_of: Final = attrgetter("catalog_name")
_schema_of: Final = attrgetter("schema_name")
_table_of: Final = attrgetter("table_name")


class PlacedColumn(NamedTuple):
    """A column of paths, and the positions of its rows in the body's list."""

    resources: PathColumn
    at: Sequence[int]


def table_columns(names: Names, tables: Sequence[TableName]) -> list[PlacedColumn]:
    """Return the tables with plain names, one column per catalog."""
    table = _Tables(
        range(len(tables)), list(map(_catalog_of, tables)), list(map(_schema_of, tables)), list(map(_table_of, tables))
    )
    plain = _plain_rows(table.names, SPECIAL_SIGNS)
    if len(plain) < len(table.at):
        table = table.part(plain)
    columns = (_tables_of_catalog(names, catalog, part) for catalog, part in table.by_catalog())
    return [column for column in columns if column]


def schema_columns(names: Names, schemas: Sequence[SchemaName]) -> list[PlacedColumn]:
    """Return the schemas with plain names and without parents, one column per catalog."""
    catalogs = list(map(_catalog_of, schemas))
    schema_names = list(map(_schema_of, schemas))
    rows = [row for row in _plain_rows(schema_names, ".") if schema_names[row] not in SYSTEM_TABLES]
    columns = []
    for catalog, found in positions_by(rows, catalogs.__getitem__).items():
        part = [rows[at] for at in found]
        warehouse = _warehouse(names, catalog)
        if warehouse:
            like = Resource("namespace", warehouse.warehouse, ref=warehouse.ref)
            columns.append(PlacedColumn(PathColumn.in_one(like, (), [schema_names[row] for row in part]), part))
    return columns


class _Tables(NamedTuple):
    """Names of tables in columns, with their positions in the body's list."""

    at: Sequence[int]
    catalogs: list[str]
    schemas: list[str]
    names: list[str]

    def part(self, rows: Sequence[int]) -> _Tables:
        """Return some of the rows."""
        return _Tables(*([column[row] for row in rows] for column in self))  # type: ignore[arg-type]

    def by_catalog(self) -> Iterable[tuple[str, _Tables]]:
        """Return the tables of each catalog."""
        if not self.at:
            return ()
        catalogs = dict.fromkeys(self.catalogs)
        if len(catalogs) == 1:
            return ((self.catalogs[0], self),)
        if len(catalogs) <= _FEW_CATALOGS:
            return [(catalog, self._where(map(catalog.__eq__, self.catalogs))) for catalog in catalogs]
        rows = positions_by(range(len(self.at)), self.catalogs.__getitem__)
        return [(catalog, self.part(found)) for catalog, found in rows.items()]

    def _where(self, selected: Iterable[bool]) -> _Tables:
        """Return the rows for which `selected` is true."""
        mask = list(selected)
        return _Tables(*(list(compress(column, mask)) for column in self))  # type: ignore[arg-type]


def _tables_of_catalog(names: Names, catalog: str, tables: _Tables) -> PlacedColumn | None:
    """Return the tables of a catalog in schemas that are namespaces of a warehouse; None without such a table."""
    schemas = dict.fromkeys(tables.schemas)
    parents = {schema: parent for schema in schemas if (parent := _namespace(names, catalog, schema))}
    if not parents:
        return None
    if len(parents) < len(schemas):
        tables = tables.part([row for row, schema in enumerate(tables.schemas) if schema in parents])
    like = _like(next(iter(parents.values())))
    # Paths are distinct: a schema's name is its path, joined by dots.
    paths = [parent.path for parent in parents.values()]
    if len(paths) == 1:
        return PlacedColumn(PathColumn.in_one(like, paths[0], tables.names), tables.at)
    places = {schema: place for place, schema in enumerate(parents)}
    parent_at = list(map(places.__getitem__, tables.schemas))
    return PlacedColumn(PathColumn(like, paths, parent_at, tables.names), tables.at)


def _like(namespace: Resource) -> Resource:
    """Return the common part of all tables of a catalog."""
    return Resource("table_or_view", namespace.warehouse, ref=namespace.ref)


def _namespace(names: Names, catalog: str, schema: str) -> Resource | None:
    """Return the namespace of a schema; None for another schema or an invalid name."""
    try:
        resource = names.schema(catalog, schema)
    except InvalidArgument:
        return None
    return resource if resource.type == "namespace" else None


def _warehouse(names: Names, catalog: str) -> Resource | None:
    """Return the warehouse of a catalog; None for another catalog or an invalid name."""
    try:
        resource = names.catalog(catalog)
    except InvalidArgument:
        return None
    return resource if resource.type == "warehouse" else None


def _plain_rows(texts: Sequence[str], signs: str) -> Sequence[int]:
    """Return the rows of printable texts without any of the signs. An empty text is not plain."""
    if all(texts) and _is_plain("".join(texts), signs):
        return range(len(texts))
    return [row for row, text in enumerate(texts) if text and _is_plain(text, signs)]


def _is_plain(text: str, signs: str) -> bool:
    return text.isprintable() and not any(sign in text for sign in signs)


def rows_left(columns: Sequence[PlacedColumn], size: int) -> Iterator[int]:
    """Yield the rows of a list of `size` items in no column, in order."""
    if sum(len(column.at) for column in columns) == size:
        return iter(())
    placed = {row for column in columns for row in column.at}
    return (row for row in range(size) if row not in placed)
