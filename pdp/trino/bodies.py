"""Bodies of Trino's OPA plugin as types. Newer Trinos send more fields, which are ignored.

`read_tables` is a faster reader for the usual body of SHOW TABLES, a thousand tables of one schema. The reader writes
the body again from the decoded names and compares the bytes, so a body with any other content is left to the general
decoder.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace


class _TrinoBody(msgspec.Struct, omit_defaults=True, rename="camel", gc=False):
    pass


class TableName(_TrinoBody):
    """A table or view by name."""

    catalog_name: str
    schema_name: str
    table_name: str
    columns: list[str] | UnsetType | None = UNSET
    properties: dict[str, Any] | UnsetType | None = UNSET


class SchemaName(_TrinoBody):
    """A schema."""

    catalog_name: str
    schema_name: str
    properties: dict[str, Any] | UnsetType | None = UNSET


class CatalogName(_TrinoBody):
    """A catalog."""

    name: str


class ColumnName(_TrinoBody):
    """A column and the type of the column, for masks."""

    catalog_name: str
    schema_name: str
    table_name: str
    column_name: str
    column_type: str


class UserName(_TrinoBody):
    """A user as the resource of an operation."""

    user: str
    groups: list[str] | UnsetType | None = UNSET


class FunctionName(_TrinoBody):
    """A function or procedure. A table procedure has no catalog and no schema."""

    catalog_name: str | UnsetType = UNSET
    schema_name: str | UnsetType = UNSET
    function_name: str = ""


class SystemProperty(_TrinoBody):
    """A session property of Trino itself."""

    name: str


class CatalogProperty(_TrinoBody):
    """A session property of a catalog."""

    catalog_name: str
    property_name: str


class ResourceName(_TrinoBody):
    """A resource: exactly one field is set, or `table` and `function` for a table procedure."""

    function: FunctionName | UnsetType | None = UNSET
    table: TableName | UnsetType | None = UNSET
    schema: SchemaName | UnsetType | None = UNSET
    catalog: CatalogName | UnsetType | None = UNSET
    column: ColumnName | UnsetType | None = UNSET
    user: UserName | UnsetType | None = UNSET
    system_session_property: SystemProperty | UnsetType | None = UNSET
    catalog_session_property: CatalogProperty | UnsetType | None = UNSET


class NewOwner(_TrinoBody):
    """The new owner in a change of ownership."""

    type: str
    name: str


class OpaAction(_TrinoBody):
    """An operation and the resources of the operation."""

    operation: str
    resource: ResourceName | UnsetType | None = UNSET
    filter_resources: list[ResourceName] | UnsetType | None = UNSET
    target_resource: ResourceName | UnsetType | None = UNSET
    grantee: NewOwner | UnsetType | None = UNSET


class TrinoIdentity(_TrinoBody):
    """The user and groups of the Trino session."""

    user: str
    groups: tuple[str, ...] | UnsetType | None = UNSET


class SoftwareStack(_TrinoBody):
    """The version of Trino."""

    trino_version: str | UnsetType | None = UNSET


class OpaContext(_TrinoBody):
    """The context of a request: session, version, query."""

    identity: TrinoIdentity
    software_stack: SoftwareStack | UnsetType | None = UNSET
    query_id: str | UnsetType | None = UNSET


class OpaInput(_TrinoBody):
    """OPA's input document."""

    context: OpaContext
    action: OpaAction


class OpaRequest(_TrinoBody):
    """The body of every request."""

    input: OpaInput


REQUEST: Final = msgspec.json.Decoder(OpaRequest)


class _Table(_TrinoBody):
    catalog_name: str
    schema_name: str
    table_name: str


class _Item(_TrinoBody):
    table: _Table


class _Filter(_TrinoBody):
    operation: str
    filter_resources: list[_Item]


class _FilterInput(_TrinoBody):
    context: OpaContext
    action: _Filter


class _FilterRequest(_TrinoBody):
    input: _FilterInput


_FILTER: Final = msgspec.json.Decoder(_FilterRequest)
_TABLE_NAME: Final = attrgetter("table.table_name")
_SCHEMA_NAME: Final = attrgetter("table.schema_name")
_CATALOG_NAME: Final = attrgetter("table.catalog_name")
_ITEM_END: Final = '"}}'
_BETWEEN_ITEMS: Final = _ITEM_END + ","
_TABLES_PER_SCHEMA: Final = 8
"""Average number of tables per schema from which grouping by schema is faster than one resource per table."""


class SchemaTables(NamedTuple):
    """Tables of one schema, and their positions in the request."""

    schema: str
    names: list[str]
    positions: Sequence[int]


class CatalogTables(NamedTuple):
    """The content of a FilterTables body: tables of one catalog, grouped by schema. `size` counts all tables."""

    context: OpaContext
    catalog: str
    schemas: list[SchemaTables]
    size: int


def read_tables(body: bytes) -> CatalogTables | None:
    """Return the tables of a body that Trino writes for tables of one catalog in few schemas; None for other bodies.

    The names of such a body are printable ASCII without escapes. The body has no duplicate and no unknown field.
    """
    if b'"FilterTables"' not in body or not body.isascii() or b"\\" in body or b"\x7f" in body:
        return None
    try:
        request = _FILTER.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    action = request.input.action
    items = action.filter_resources
    if action.operation != "FilterTables" or not items:
        return None
    names = list(map(_TABLE_NAME, items))
    first = items[0].table
    schemas = list(map(_SCHEMA_NAME, items))
    if schemas.count(first.schema_name) == len(schemas):
        groups = [SchemaTables(first.schema_name, names, range(len(names)))]
        # proves one catalog, too: the text has the first table's catalog in every item
        rewritten = _rewrite(request, names)
    elif set(map(_CATALOG_NAME, items)) == {first.catalog_name}:
        groups = _by_schema(schemas, names)
        rewritten = msgspec.json.encode(request)
    else:
        return None
    if rewritten != body:
        return None
    if len(groups) > 1 and len(names) < _TABLES_PER_SCHEMA * len(groups):
        return None
    return CatalogTables(request.input.context, first.catalog_name, groups, len(names))


def _by_schema(schemas: list[str], names: list[str]) -> list[SchemaTables]:
    groups: dict[str, tuple[list[str], list[int]]] = {schema: ([], []) for schema in schemas}
    for position, (schema, name) in enumerate(zip(schemas, names, strict=True)):
        group = groups[schema]
        group[0].append(name)
        group[1].append(position)
    return [SchemaTables(schema, *group) for schema, group in groups.items()]


def _rewrite(request: _FilterRequest, names: list[str]) -> bytes:
    """Return the body that Trino writes for tables with these names in the first table's schema.

    Joins texts: encoding one item and repeating its start is much faster than encoding all items.
    """
    action = request.input.action
    first = action.filter_resources[0]
    first_only = replace(request.input, action=replace(action, filter_resources=[first]))
    item = msgspec.json.encode(first).decode()
    start = item.removesuffix(names[0] + _ITEM_END)
    head, _, tail = msgspec.json.encode(replace(request, input=first_only)).decode().partition(item)
    return f"{head}{start}{(_BETWEEN_ITEMS + start).join(names)}{_ITEM_END}{tail}".encode()
