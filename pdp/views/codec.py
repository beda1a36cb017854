"""JSON bodies and answers of loads and changes of views, for HTTP, the command line and case files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from pdp.decision.bodies import ErrorBody, JsonBody, PrincipalBody, ResourceBody
from pdp.errors import InvalidArgument
from pdp.model.answer import Decision, SchemaColumn
from pdp.model.question import Load
from pdp.model.strict import decode


class TokenBody(JsonBody):
    """The token of the catalog's own caller, as the catalog read the token."""

    idp: str
    subject: str = ""
    audiences: tuple[str, ...] = ()


class ViewBody(JsonBody):
    """A resolved view of the catalog with all properties. The properties name the owner."""

    resource: str | ResourceBody
    properties: dict[str, Any]


class FieldBody(msgspec.Struct):
    """Field of an Iceberg schema, as table metadata have it. Further members are ignored."""

    id: int
    name: str
    type: Any
    required: bool


class SchemaBody(msgspec.Struct, rename="kebab"):
    """Iceberg schema, as table metadata have it. Further members are ignored."""

    schema_id: int
    fields: list[FieldBody]


class FirstSchemaBody(msgspec.Struct, rename="kebab", omit_defaults=True):
    """Iceberg schema of a table in version 1 of the format, where the id may be missing."""

    fields: list[FieldBody]
    schema_id: int | UnsetType = UNSET


class MetadataBody(msgspec.Struct, rename="kebab", omit_defaults=True):
    """Metadata of an Iceberg table. Further members are ignored.

    Version 1 of the format has `schema`, and may have the two members of later versions, too.
    """

    schemas: list[SchemaBody] | UnsetType = UNSET
    current_schema_id: int | UnsetType = UNSET
    schema: FirstSchemaBody | UnsetType = UNSET
    format_version: int = 1


class LoadBody(JsonBody):
    """Body of POST /v1/load."""

    target: str | ResourceBody
    action: str
    principal: str | PrincipalBody | UnsetType = UNSET
    acting_role: str | UnsetType = UNSET
    referenced_by: str | list[list[str]] = ""
    views: list[ViewBody] = msgspec.field(default_factory=list)
    caller: TokenBody | None = None
    metadata: MetadataBody | None = None


class ChangeBody(JsonBody):
    """Body of POST /v1/commit-view."""

    view: str | ResourceBody
    operation: str
    principal: str | PrincipalBody | UnsetType = UNSET
    acting_role: str | UnsetType = UNSET
    set: dict[str, Any] = msgspec.field(default_factory=dict)
    remove: list[str] = msgspec.field(default_factory=list)
    caller: TokenBody | None = None


class LoadStep(msgspec.Struct, frozen=True, rename={"as_principal": "as"}):
    """One decided concrete check of a plan. `as_principal` is the id of the principal of the check."""

    resource: str
    as_principal: str
    delegated: bool
    action: str
    allowed: bool
    by: tuple[str, ...]


class LoadResult(msgspec.Struct, frozen=True):
    """The decision on a load or on a change of a view, with the steps of the plan.

    `storage_access` is none, read or read_write. A change has no storage access and an empty `load`.
    `read_restrictions` is the JSON for the reader of the files; empty without restrictions.
    """

    decision: Decision
    steps: tuple[LoadStep, ...]
    revision: str
    id: str
    storage_access: str = "none"
    load: Load = Load()
    read_restrictions: str = ""

    @property
    def referenced_by_used(self) -> bool:
        """Tell whether the chain of the load was used: present and not ignored."""
        return bool(self.load.views)


_LOAD = msgspec.json.Decoder(LoadBody)
_CHANGE = msgspec.json.Decoder(ChangeBody)
_METADATA = msgspec.json.Decoder(MetadataBody)
_MOST_FIELDS: Final = 100_000
_MOST_VALUES: Final = 500_000
_LONGEST_NAME: Final = 1_000
_LAST_ID: Final = 2**31 - 1
_LONGEST_TYPE: Final = 100


def decode_load(body: bytes) -> LoadBody:
    """Return the body of POST /v1/load; raise InvalidArgument."""
    return decode(body, _LOAD, typed=True)


def decode_metadata(text: str) -> MetadataBody:
    """Return the metadata of a table in the JSON of Iceberg; raise InvalidArgument.

    A text inside of another message is bounded here: each value follows one of the counted signs.
    """
    if sum(map(text.count, ",{[")) > _MOST_VALUES:
        raise InvalidArgument(f"`metadata` has more than {_MOST_VALUES} values")
    return decode(text.encode(), _METADATA, typed=True)


def columns_of(metadata: MetadataBody) -> tuple[SchemaColumn, ...]:
    """Return the columns of the current schema, and other names and fields of older ones; raise InvalidArgument."""
    schemas, current_id = _schemas(metadata)
    if sum(len(schema.fields) for schema in schemas) > _MOST_FIELDS:
        raise InvalidArgument(f"`metadata` has more than {_MOST_FIELDS} fields")
    current = [schema for schema in schemas if schema.schema_id == current_id]
    if len(current) != 1:
        raise InvalidArgument("`metadata` has no current schema, or two")
    if metadata.schema is not UNSET and not _is_same(metadata.schema, current[0]):
        raise InvalidArgument("`metadata` has a `schema` other than the current one: old readers would use it")
    columns = list(map(_column, current[0].fields))
    known = {column.id: column for column in columns}
    if not columns or len(known) < len(columns):
        raise InvalidArgument("`metadata` has a current schema without fields, or with two of one id")
    older = (_column(field) for schema in reversed(schemas) for field in schema.fields)
    names = {(column.id, column.name) for column in columns}
    for column in older:
        if (column.id, column.name) not in names:
            names.add((column.id, column.name))
            same = known.setdefault(column.id, column)
            columns.append(replace(same, name=column.name, current=False))
    return tuple(columns)


def _schemas(metadata: MetadataBody) -> tuple[Sequence[SchemaBody], int | UnsetType]:
    """Return all schemas of a table, and the id of the current one; raise InvalidArgument without any."""
    first, current_id = metadata.schema, metadata.current_schema_id
    if metadata.schemas is not UNSET:
        return metadata.schemas, current_id
    if first is UNSET or metadata.format_version != 1:
        raise InvalidArgument("`metadata` has no `schemas`: version 1 of the format alone has `schema` instead")
    id = 0 if first.schema_id is UNSET else first.schema_id
    return [SchemaBody(id, first.fields)], id if current_id is UNSET else current_id


def _is_same(first: FirstSchemaBody, current: SchemaBody) -> bool:
    return first.schema_id in (UNSET, current.schema_id) and first.fields == current.fields


def _column(field: FieldBody) -> SchemaColumn:
    if not 0 < field.id <= _LAST_ID or not 0 < len(field.name) <= _LONGEST_NAME:
        raise InvalidArgument("`metadata` has a field with an id out of range, without a name, or with a long one")
    is_known = isinstance(field.type, str) and len(field.type) <= _LONGEST_TYPE
    return SchemaColumn(field.id, field.name, field.type if is_known else "", field.required)


def decode_change(body: bytes) -> ChangeBody:
    """Return the body of POST /v1/commit-view; raise InvalidArgument."""
    return decode(body, _CHANGE, typed=True)


def encode_load(result: LoadResult) -> bytes:
    """Return the answer of POST /v1/load."""
    access: dict[str, Any] = {"storageAccess": result.storage_access, "referencedByUsed": result.referenced_by_used}
    if result.read_restrictions:
        access["readRestrictions"] = msgspec.Raw(result.read_restrictions.encode())
    return msgspec.json.encode(_answer(result, access))


def encode_change(result: LoadResult) -> bytes:
    """Return the answer of POST /v1/commit-view."""
    return msgspec.json.encode(_answer(result, {}))


def _answer(result: LoadResult, access: dict[str, Any]) -> dict[str, Any]:
    decision = result.decision
    answer = {
        "allowed": decision.allowed,
        "by": decision.by,
        "errors": decision.errors,
        **access,
        "steps": result.steps,
        "revision": result.revision,
        "decisionId": result.id,
    }
    if decision.error:
        answer["error"] = ErrorBody(decision.error.code, decision.error.message)
    return answer if decision.trace is None else answer | {"trace": decision.trace}
