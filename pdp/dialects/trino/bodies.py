"""Bodies of Trino's OPA plugin as types. Newer Trinos send more fields, which are ignored."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType


class _TrinoBody(msgspec.Struct, omit_defaults=True, rename="camel", gc=False):
    """Base of Trino's bodies: camelCase keys, unknown keys ignored.

    No default is an object with fields: `pdp.model.strict.has_all_strings` needs bodies that encode no key of their
    own.
    """


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
