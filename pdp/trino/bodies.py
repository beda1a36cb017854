"""The bodies of Trino's OPA plugin, typed; newer Trinos send more, which is ignored.

The usual body of SHOW TABLES, a thousand tables of one schema, has a reader of its own: it proves, by writing the body
again, that it is byte for byte what Trino writes for such tables, and so that it holds nothing that was not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace


class _Body(msgspec.Struct, omit_defaults=True, rename="camel", gc=False):
    pass


class TableName(_Body):
    """A table or view."""

    catalog_name: str
    schema_name: str
    table_name: str
    columns: list[str] | UnsetType | None = UNSET
    properties: dict[str, Any] | UnsetType | None = UNSET


class SchemaName(_Body):
    """A schema."""

    catalog_name: str
    schema_name: str
    properties: dict[str, Any] | UnsetType | None = UNSET


class CatalogName(_Body):
    """A catalog."""

    name: str


class ColumnName(_Body):
    """A column, for masks."""

    catalog_name: str
    schema_name: str
    table_name: str
    column_name: str
    column_type: str


class UserName(_Body):
    """A user, as the object of an operation."""

    user: str
    groups: list[str] | UnsetType | None = UNSET


class FunctionName(_Body):
    """A function or procedure; a table procedure has a name alone."""

    catalog_name: str | UnsetType = UNSET
    schema_name: str | UnsetType = UNSET
    function_name: str = ""


class SystemProperty(_Body):
    """A session property of Trino itself."""

    name: str


class CatalogProperty(_Body):
    """A session property of a catalog."""

    catalog_name: str
    property_name: str


class ResourceName(_Body):
    """A resource: one of these, or a table and a procedure side by side."""

    function: FunctionName | UnsetType | None = UNSET
    table: TableName | UnsetType | None = UNSET
    schema: SchemaName | UnsetType | None = UNSET
    catalog: CatalogName | UnsetType | None = UNSET
    column: ColumnName | UnsetType | None = UNSET
    user: UserName | UnsetType | None = UNSET
    system_session_property: SystemProperty | UnsetType | None = UNSET
    catalog_session_property: CatalogProperty | UnsetType | None = UNSET


class NewOwner(_Body):
    """To whom an object is handed over."""

    type: str
    name: str


class OpaAction(_Body):
    """What is asked."""

    operation: str
    resource: ResourceName | UnsetType | None = UNSET
    filter_resources: list[ResourceName] | UnsetType | None = UNSET
    target_resource: ResourceName | UnsetType | None = UNSET
    grantee: NewOwner | UnsetType | None = UNSET


class TrinoIdentity(_Body):
    """Who asked Trino."""

    user: str
    groups: tuple[str, ...] | UnsetType | None = UNSET


class SoftwareStack(_Body):
    """Which Trino asks."""

    trino_version: str | UnsetType | None = UNSET


class OpaContext(_Body):
    """The circumstances."""

    identity: TrinoIdentity
    software_stack: SoftwareStack | UnsetType | None = UNSET
    query_id: str | UnsetType | None = UNSET


class OpaInput(_Body):
    """OPA's input document."""

    context: OpaContext
    action: OpaAction


class OpaRequest(_Body):
    """The body of every request."""

    input: OpaInput


REQUEST: Final = msgspec.json.Decoder(OpaRequest)


class _Table(_Body):
    catalog_name: str
    schema_name: str
    table_name: str


class _Item(_Body):
    table: _Table


class _Filter(_Body):
    operation: str
    filter_resources: list[_Item]


class _FilterInput(_Body):
    context: OpaContext
    action: _Filter


class _FilterRequest(_Body):
    input: _FilterInput


_FILTER: Final = msgspec.json.Decoder(_FilterRequest)
_TABLE_NAME: Final = attrgetter("table.table_name")
_SCHEMA_NAME: Final = attrgetter("table.schema_name")
_CATALOG_NAME: Final = attrgetter("table.catalog_name")
_END: Final = '"}}'
_BETWEEN: Final = _END + ","
_FEWEST_IN_COLUMN: Final = 8
"""Tables that a schema has on average where taking them together is worth it."""


class SchemaTables(NamedTuple):
    """Tables of one schema, and their positions among all that are asked about."""

    schema: str
    names: list[str]
    at: Sequence[int]


class CatalogTables(NamedTuple):
    """FilterTables about tables of one catalog, schema by schema."""

    context: OpaContext
    catalog: str
    columns: list[SchemaTables]
    size: int


def read_tables(body: bytes) -> CatalogTables | None:
    """The tables of a body that is exactly what Trino writes for tables of few schemas; None for every other body.

    Such a body is printable ASCII without escapes, and holds nothing twice.
    """
    if b'"FilterTables"' not in body or not body.isascii() or b"\\" in body or b"\x7f" in body:
        return None
    try:
        request = _FILTER.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    asked = request.input.action
    items = asked.filter_resources
    if asked.operation != "FilterTables" or not items:
        return None
    names = list(map(_TABLE_NAME, items))
    first = items[0].table
    schemas = list(map(_SCHEMA_NAME, items))
    if schemas.count(first.schema_name) == len(schemas):
        columns, written = [SchemaTables(first.schema_name, names, range(len(names)))], _written(request, names)
    elif set(map(_CATALOG_NAME, items)) == {first.catalog_name}:
        columns, written = _columns(schemas, names), msgspec.json.encode(request)
    else:
        return None
    if written != body:
        return None
    few = len(columns) == 1 or len(names) >= _FEWEST_IN_COLUMN * len(columns)
    return CatalogTables(request.input.context, first.catalog_name, columns, len(names)) if few else None


def _columns(schemas: list[str], names: list[str]) -> list[SchemaTables]:
    found: dict[str, tuple[list[str], list[int]]] = {schema: ([], []) for schema in schemas}
    for at, (schema, name) in enumerate(zip(schemas, names, strict=True)):
        inside = found[schema]
        inside[0].append(name)
        inside[1].append(at)
    return [SchemaTables(schema, some, at) for schema, (some, at) in found.items()]


def _written(request: _FilterRequest, names: list[str]) -> bytes:
    """The body that Trino would have written for these names in the schema of the first table."""
    asked = request.input.action
    first = asked.filter_resources[0]
    alone = replace(request.input, action=replace(asked, filter_resources=[first]))
    item = msgspec.json.encode(first).decode()
    start = item.removesuffix(names[0] + _END)
    head, _, tail = msgspec.json.encode(replace(request, input=alone)).decode().partition(item)
    return f"{head}{start}{(_BETWEEN + start).join(names)}{_END}{tail}".encode()
