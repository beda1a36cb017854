"""Lists of tables as columns of names: the usual long body of the plugin, decoded without fields that it never has.

Owns the proof that such a body has no duplicate key. Must not know what the names mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from pdp.strict import has_strings, refuse_duplicates
from pdp.trino.bodies import OpaAction, OpaContext, OpaInput, OpaRequest

_LONG_BODY: Final = 1000
_LONG_LIST: Final = 8
"""Bytes of a body, and tables of a list, from which the columns pay."""
_FIELDS: Final = b'{"table":{"catalogName":"","schemaName":"","tableName":""}}'
_STRINGS: Final = _FIELDS.count(b'"') // 2
_BRACKETS: Final = b"[]"
_START: Final = 64
"""Bytes of the beginning of a list, to find the list in a body."""
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


class _RawAction(msgspec.Struct, rename="camel", gc=False):
    filter_resources: msgspec.Raw


class _RawInput(msgspec.Struct, gc=False):
    action: _RawAction


class _RawRequest(msgspec.Struct, gc=False):
    """A body whose list is left as it came."""

    input: _RawInput


_REQUEST: Final = msgspec.json.Decoder(_ListRequest)
_RAW_REQUEST: Final = msgspec.json.Decoder(_RawRequest)


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


def refuse_duplicates_in(body: bytes, listed: DecodedList) -> None:
    """Raise InvalidArgument if an object in a body with a list of tables has a duplicate key."""
    if listed.unique_keys:
        return
    # Unknown fields stand outside of the list most often. Then the list is proved, and all the rest is short. No text
    # holds the list, because of its quotes: an equal piece elsewhere is an equal list, and the rest has all other keys.
    raw = bytes(_RAW_REQUEST.decode(body).input.action.filter_resources)
    at = body.find(raw[:_START])  # to search for the whole list would take longer than to parse the body
    if body.startswith(raw, at) and _accounts_for(raw, _BRACKETS, listed.tables):
        body = body[:at] + _BRACKETS + body[at + len(raw) :]
    refuse_duplicates(body)


def _has_unique_keys(body: bytes, head: OpaInput, tables: TableList) -> bool:
    """Tell whether the values of a body account for the whole body. False if in doubt."""
    return _accounts_for(body, msgspec.json.encode(OpaRequest(head)), tables)


def _accounts_for(text: bytes, rest: bytes, tables: TableList) -> bool:
    """Tell whether tables, and `rest` with an empty list in their place, account for a whole text. False if in doubt.

    No spelling of these values is shorter than the plain one without white space, and a duplicate key adds to the
    length. A longer text is proved by the number of its strings.
    """
    count = len(tables.names)
    characters = sum([len("".join(column)) for column in tables])
    if len(text) == len(rest) + count * (len(_FIELDS) + 1) - 1 + characters:
        return True
    return has_strings(text, rest.count(b'"') // 2 + count * _STRINGS)


def share_one_text(texts: Sequence[str]) -> bool:
    """Tell whether all texts of a column are equal. False if in doubt."""
    first = texts[0]
    # Without a joint in the first text, equal joined texts have joints in equal places.
    return _JOINT not in first and _JOINT.join(texts) == (first + _JOINT) * (len(texts) - 1) + first
