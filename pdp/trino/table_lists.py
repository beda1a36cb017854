"""Lists of tables as columns of names: the usual long body of the plugin, decoded without fields that it never has.

Owns the proof that such a body has no duplicate key. Must not know what the names mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from pdp.strict import has_strings
from pdp.trino.bodies import OpaAction, OpaContext, OpaInput, OpaRequest

_LONG_BODY: Final = 1000
_LONG_LIST: Final = 8
"""Bytes of a body, and tables of a list, from which the columns pay."""
_FIELDS: Final = b'{"table":{"catalogName":"","schemaName":"","tableName":""}}'
_STRINGS: Final = _FIELDS.count(b'"') // 2
_JOINT: Final = "\0"


class NamedTable(Protocol):
    """A table with its three names."""

    catalog_name: str
    schema_name: str
    table_name: str


class TableList(NamedTuple):
    """Names of tables in columns of equal length."""

    catalogs: Sequence[str]
    schemas: Sequence[str]
    names: Sequence[str]

    @classmethod
    def of(cls, tables: Sequence[NamedTable]) -> TableList:
        """Return the names of tables."""
        return cls(
            [table.catalog_name for table in tables],
            [table.schema_name for table in tables],
            [table.table_name for table in tables],
        )


class _BareTable(msgspec.Struct, rename="camel", gc=False, forbid_unknown_fields=True):
    catalog_name: str
    schema_name: str
    table_name: str


class _ListedTable(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    table: _BareTable


class _ListAction(msgspec.Struct, rename="camel", gc=False):
    """An action on a list of tables and on nothing else."""

    operation: str
    filter_resources: list[_ListedTable]
    resource: UnsetType | None = UNSET
    target_resource: UnsetType | None = UNSET
    grantee: UnsetType | None = UNSET


class _ListInput(msgspec.Struct, gc=False):
    context: OpaContext
    action: _ListAction


class _ListRequest(msgspec.Struct, gc=False):
    input: _ListInput


class DecodedList(NamedTuple):
    """A decoded body: all but the list, and the list. `unique_keys`: no key of the body is duplicated, for sure."""

    input: OpaInput
    tables: TableList
    unique_keys: bool


_REQUEST: Final = msgspec.json.Decoder(_ListRequest)


def decode_table_list(body: bytes) -> DecodedList | None:
    """Return the tables of a long body that asks about a list of bare tables; None for any other body, valid or not."""
    if len(body) < _LONG_BODY:
        return None
    try:
        found = _REQUEST.decode(body).input
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None
    action = found.action
    if len(action.filter_resources) < _LONG_LIST:
        return None
    tables = TableList.of([item.table for item in action.filter_resources])
    head = OpaAction(action.operation, action.resource, [], action.target_resource, action.grantee)
    input = OpaInput(found.context, head)
    return DecodedList(input, tables, _has_unique_keys(body, input, tables))


def _has_unique_keys(body: bytes, head: OpaInput, tables: TableList) -> bool:
    """Tell whether the values of a body account for the whole body. False if in doubt.

    No spelling of these values is shorter than the plain one without white space, and a duplicate key adds to the
    length. A longer body is proved by the number of its strings.
    """
    rest = msgspec.json.encode(OpaRequest(head))
    count = len(tables.names)
    characters = sum([len("".join(column)) for column in tables])
    if len(body) == len(rest) + count * (len(_FIELDS) + 1) - 1 + characters:
        return True
    return has_strings(body, rest.count(b'"') // 2 + count * _STRINGS)


def share_one_text(texts: Sequence[str]) -> bool:
    """Tell whether all texts of a column are equal. False if in doubt."""
    first = texts[0]
    # Without a joint in the first text, equal joined texts have joints in equal places.
    return _JOINT not in first and _JOINT.join(texts) == (first + _JOINT) * (len(texts) - 1) + first
