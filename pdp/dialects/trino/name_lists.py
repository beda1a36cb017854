"""Lists of names in a body: the usual long body of the plugin as columns of names, and these as columns of paths.

A long list of tables is decoded without fields that it never has; this module owns the proof that such a body has no
duplicate key. A plain name is a printable name without signs of a special meaning. Rows with any other name are left
out, for `names` to read one by one. Must not know operations.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import compress
from json import JSONDecoder
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from pdp.dialects.trino.bodies import OpaAction, OpaContext, OpaInput, OpaRequest, SchemaName
from pdp.dialects.trino.names import SPECIAL_SIGNS, Names
from pdp.errors import InvalidArgument
from pdp.model.arrays import PathArray, pick, positions_by
from pdp.model.question import Resource
from pdp.model.references import MAX_NAME, has_long
from pdp.model.strict import count_strings, has_strings, refuse_duplicates
from pdp.model.trino_operations import SYSTEM_TABLES

T = TypeVar("T")
_LONG_BODY: Final = 1000
_LONG_LIST: Final = 8
"""Bytes of a body, and tables of a list, from which the columns pay."""
_FIELDS: Final = b'{"table":{"catalogName":"","schemaName":"","tableName":""}}'
_STRINGS: Final = _FIELDS.count(b'"') // 2
_NAMES: Final = {"catalogName": "catalog_name", "schemaName": "schema_name", "tableName": "table_name"}
"""Field of a table in JSON -> field of its type."""
_KNOWN_FIELDS: Final = frozenset({"columns", "properties"})
"""Further fields of tables, which the plain decoder reads."""
_MOST_WIDER: Final = 8
_MOST_FIELDS: Final = 8
_LONGEST_ITEM: Final = 2000
"""Kinds of tables with unknown fields, unknown fields of a kind, and characters of the first table of a kind."""
_WIDER_FIELD: Final = "field_{}"
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


class _ListAction(msgspec.Struct, Generic[T], rename="camel", gc=False):
    """An action on a list of tables and on nothing else."""

    operation: str
    filter_resources: list[T]
    resource: UnsetType | None = UNSET
    target_resource: UnsetType | None = UNSET
    grantee: UnsetType | None = UNSET


class _ListInput(msgspec.Struct, Generic[T], gc=False):
    context: OpaContext
    action: _ListAction[T]


class _ListRequest(msgspec.Struct, Generic[T], gc=False):
    input: _ListInput[T]


class DecodedList(NamedTuple):
    """A decoded body: all but the list, and the list, whose items take at least `length` bytes of JSON.

    `unique_keys`: no key of the body is duplicated, for sure.
    """

    input: OpaInput
    tables: TableList
    items: Sequence[Any]
    length: int
    unique_keys: bool


class _RawAction(msgspec.Struct, rename="camel", gc=False):
    filter_resources: msgspec.Raw


class _RawInput(msgspec.Struct, gc=False):
    action: _RawAction


class _RawRequest(msgspec.Struct, gc=False):
    """A body whose list is left as it came."""

    input: _RawInput


_BARE_REQUEST: Final = msgspec.json.Decoder(_ListRequest[_ListedTable])
_RAW_REQUEST: Final = msgspec.json.Decoder(_RawRequest)


def decode_table_list(body: bytes) -> DecodedList | None:
    """Return the tables of a long body that asks about a list of bare tables; None for any other body, valid or not.

    Tables with fields of a newer Trino are bare, too, if all tables of the list have the same.
    """
    if len(body) < _LONG_BODY:
        return None
    fields: Collection[str] = ()
    found = _parse(body, _BARE_REQUEST)
    if found is None:
        found, fields = _wider_tables.parse(body)
    if found is None or len(found.action.filter_resources) < _LONG_LIST:
        return None
    action = found.action
    items = action.filter_resources
    tables = TableList.of([item.table for item in items])
    length = _least_length(items, tables, fields)
    head = OpaAction(action.operation, action.resource, [], action.target_resource, action.grantee)
    input = OpaInput(found.context, head)
    return DecodedList(input, tables, items, length, not fields and _has_unique_keys(body, input, items, length))


def _parse(body: bytes, decoder: msgspec.json.Decoder[Any]) -> _ListInput[Any] | None:
    try:
        found: _ListInput[Any] = decoder.decode(body).input
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None
    return found


class _WiderTables:
    """Decoders of lists of tables with more fields than three, by the names of the fields in the first table.

    Every field is required. So at most one decoder gets beyond the first table of a body.
    """

    def __init__(self) -> None:
        self.decoders: dict[frozenset[str], msgspec.json.Decoder[Any]] = {}

    def parse(self, body: bytes) -> tuple[_ListInput[Any] | None, Collection[str]]:
        """Return the input of a body, and the names of the unknown fields of the tables."""
        for fields, decoder in tuple(self.decoders.items()):  # another thread may add one
            if found := _parse(body, decoder):
                return found, fields
        fields = _fields_of_first(body) if len(self.decoders) < _MOST_WIDER else frozenset()
        if not fields or fields in self.decoders:
            return None, ()
        decoder = _wider_decoder(fields)
        found = _parse(body, decoder)
        if found:
            self.decoders[fields] = decoder
        return found, fields


_wider_tables: Final = _WiderTables()


def _fields_of_first(body: bytes) -> frozenset[str]:
    """Return the names of the unknown fields of the first table in a list; none if there are other fields or none."""
    try:
        raw = bytes(_RAW_REQUEST.decode(body).input.action.filter_resources)[:_LONGEST_ITEM].decode(errors="replace")
        item, _ = JSONDecoder().raw_decode(raw, raw.index("{"))
        fields = frozenset(item["table"]).difference(_NAMES)
    except (msgspec.DecodeError, RecursionError, ValueError, TypeError, KeyError):
        return frozenset()
    is_usual = len(fields) <= _MOST_FIELDS and all(field.isidentifier() and field.isascii() for field in fields)
    return fields if is_usual and not fields & _KNOWN_FIELDS else frozenset()


def _wider_decoder(fields: Collection[str]) -> msgspec.json.Decoder[Any]:
    """Return the decoder of a request about tables with these fields beside the three names."""
    more = {_WIDER_FIELD.format(number): field for number, field in enumerate(fields)}
    table: Any = msgspec.defstruct(
        "_WiderTable",
        [*((name, str) for name in _NAMES.values()), *((name, Any) for name in more)],
        rename={name: field for field, name in _NAMES.items()} | more,
        gc=False,
        forbid_unknown_fields=True,
    )
    item: Any = msgspec.defstruct("_WiderItem", [("table", table)], gc=False, forbid_unknown_fields=True)
    return msgspec.json.Decoder(_ListRequest[item])


def refuse_duplicates_in(body: bytes, listed: DecodedList) -> None:
    """Raise InvalidArgument if an object in a body with a list of tables has a duplicate key."""
    if listed.unique_keys:
        return
    # Unknown fields stand outside of the list most often. Then the list is proved, and all the rest is short. No text
    # holds the list, because of its quotes: an equal piece elsewhere is an equal list, and the rest has all other keys.
    raw = bytes(_RAW_REQUEST.decode(body).input.action.filter_resources)
    at = body.find(raw[:_START])  # to search for the whole list would take longer than to parse the body
    if body.startswith(raw, at) and _accounts_for(raw, listed):
        body = body[:at] + _BRACKETS + body[at + len(raw) :]
    refuse_duplicates(body)


def _accounts_for(raw: bytes, listed: DecodedList) -> bool:
    """Tell whether the values of a list account for its JSON. False if in doubt."""
    return len(raw) == listed.length + len(_BRACKETS) or has_strings(raw, count_strings(listed.items))


def _has_unique_keys(body: bytes, head: OpaInput, items: Sequence[Any], length: int) -> bool:
    """Tell whether bare tables and the rest of a request account for a whole body. False if in doubt.

    No spelling of these values is shorter than the plain one without white space, and a duplicate key adds to the
    length. A longer body is proved by the number of its strings.
    """
    rest = msgspec.json.encode(OpaRequest(head))
    return len(body) == len(rest) + length or has_strings(body, rest.count(b'"') // 2 + len(items) * _STRINGS)


def _least_length(items: Sequence[Any], tables: TableList, fields: Collection[str]) -> int:
    """Return the length of the plainest JSON of the items of a list, or less. The `fields` are beside the names."""
    count = len(items)
    length = count * (len(_FIELDS) + 1) - 1 + sum([len("".join(column)) for column in tables])
    for number, field in enumerate(fields):
        name = _WIDER_FIELD.format(number)
        column = [getattr(item.table, name) for item in items]
        length += count * (len(field) + len('"":,'))
        if column.count(None) == count:
            length += count * len("null")
        elif {type(value) for value in column} == {str}:
            length += len("".join(column)) + count * len('""')
    return length


def share_one_text(texts: Sequence[str]) -> bool:
    """Tell whether all texts of a column are equal. False if in doubt."""
    first = texts[0]
    if first != texts[-1]:  # most lists of several texts, without a look at the others
        return False
    # Without a joint in the first text, equal joined texts have joints in equal places.
    return _JOINT not in first and _JOINT.join(texts) == (first + _JOINT) * (len(texts) - 1) + first


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
    rows = [row for row in _plain_rows(schema_names, ".") if schema_names[row].lower() not in SYSTEM_TABLES]
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
