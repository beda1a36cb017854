"""Tables, views and listings from the metadata of Iceberg's REST specification. Does no I/O.

Metadata that cannot be used gives a relation with a `problem`, so that statements on its name are refused. Listings are
bounded in depth, pages and number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from pdp.errors import Unavailable
from pdp.rewrite.iceberg.client import RestCatalogClient
from pdp.rewrite.process.messages import KnownRelation

RelationKind: TypeAlias = Literal["tables", "views"]
"""Part of the path that leads to a relation."""
MOST_COLUMNS: Final = 10_000
_LONGEST_TEXT: Final = 100_000
_LONGEST_NAME: Final = 1_000
_TYPES: Final[Mapping[str, str]] = {
    "boolean": "BOOLEAN",
    "int": "INTEGER",
    "long": "BIGINT",
    "float": "REAL",
    "double": "DOUBLE",
    "date": "DATE",
    "string": "VARCHAR",
}
"""Types with one name in all dialects. A mask of any other type is NULL."""
_DECIMAL: Final = re.compile(r"decimal\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)")


class _Field(msgspec.Struct):
    name: str
    type: Any = ""


class _Schema(msgspec.Struct, rename="kebab"):
    fields: list[_Field]
    schema_id: int = 0


class _TableMetadata(msgspec.Struct, rename="kebab"):
    schemas: list[_Schema] = []
    current_schema_id: int = 0
    schema: _Schema | None = None
    """Of tables in version 1 of the format."""


class _LoadTableResult(msgspec.Struct):
    metadata: _TableMetadata


class _Representation(msgspec.Struct):
    type: str = ""
    sql: str = ""
    dialect: str = ""


class _ViewVersion(msgspec.Struct, rename="kebab"):
    version_id: int
    default_namespace: list[str]
    representations: list[_Representation]
    schema_id: int = 0
    default_catalog: str | None = None


class _ViewMetadata(msgspec.Struct, rename="kebab"):
    current_version_id: int
    versions: list[_ViewVersion]
    schemas: list[_Schema] = []


class _LoadViewResult(msgspec.Struct):
    metadata: _ViewMetadata


_TABLE: Final = msgspec.json.Decoder(_LoadTableResult)
_VIEW: Final = msgspec.json.Decoder(_LoadViewResult)


def relation_of(kind: RelationKind, name: Sequence[str], body: bytes) -> KnownRelation:
    """Return the relation of a catalog's answer, with the warehouse as the first part of the name."""
    try:
        return _table(tuple(name), body) if kind == "tables" else _view(tuple(name), body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return unusable_relation(name, "its metadata is outside of the Iceberg specification")


def unusable_relation(name: Sequence[str], problem: str) -> KnownRelation:
    """Return a relation whose name stands for a refusal."""
    return KnownRelation(tuple(name), problem=problem)


def _table(name: tuple[str, ...], body: bytes) -> KnownRelation:
    metadata = _TABLE.decode(body).metadata
    schemas = {schema.schema_id: schema for schema in metadata.schemas}
    schema = schemas.get(metadata.current_schema_id, None if schemas else metadata.schema)
    problem = _schema_problem(schema)
    if schema is None or problem:
        return unusable_relation(name, problem)
    return KnownRelation(name, tuple((field.name, _type(field.type)) for field in schema.fields))


def _view(name: tuple[str, ...], body: bytes) -> KnownRelation:
    metadata = _VIEW.decode(body).metadata
    version = next((one for one in metadata.versions if one.version_id == metadata.current_version_id), None)
    if version is None:
        return unusable_relation(name, "its current version is missing")
    schema = {one.schema_id: one for one in metadata.schemas}.get(version.schema_id)
    texts = [(one.dialect.lower(), one.sql) for one in version.representations if one.type == "sql"]
    problem = _schema_problem(schema) or _text_problem(texts)
    if schema is None or problem:
        return unusable_relation(name, problem)
    # Engines write namespaces of several levels as one schema, so short names of the text have two parts before them.
    default = (version.default_catalog or "", ".".join(version.default_namespace))
    columns = tuple((field.name, "") for field in schema.fields)
    return KnownRelation(name, columns, is_view=True, texts=tuple(sorted(texts)), default=default)


def _schema_problem(schema: _Schema | None) -> str:
    if schema is None:
        return "its current schema is missing"
    if not 0 < len(schema.fields) <= MOST_COLUMNS:
        return f"it has no columns, or more than {MOST_COLUMNS}"
    if any(not 0 < len(field.name) <= _LONGEST_NAME for field in schema.fields):
        return f"a column has no name, or one of more than {_LONGEST_NAME} characters"
    return ""


def _text_problem(texts: Sequence[tuple[str, str]]) -> str:
    if not texts:
        return "it has no text in SQL"
    if len(dict(texts)) != len(texts) or not all(dialect and sql.strip() for dialect, sql in texts):
        return "it has two texts of one dialect, an empty text, or one without a dialect"
    if any(len(sql) > _LONGEST_TEXT for _, sql in texts):
        return f"its text has more than {_LONGEST_TEXT} characters"
    return ""


def _type(written: Any) -> str:
    """Return the type of a column in SQL; empty for types that dialects name differently, and for nested ones."""
    if not isinstance(written, str):
        return ""
    found = _DECIMAL.fullmatch(written)
    return f"DECIMAL({found[1]}, {found[2]})" if found else _TYPES.get(written, "")


Item = tuple[RelationKind, tuple[str, ...]]
"""Table or view of a catalog: its kind, and the path without the warehouse."""
_DEPTH: Final = 10
"""Levels of namespaces. Deeper ones are not read."""
_PAGE_SIZE: Final = "1000"
_MOST_PAGES: Final = 1_000
"""Pages of one list."""
_VIEWS: Final = "GET /v1/{prefix}/namespaces/{namespace}/views"
_NO_VIEWS: Final = frozenset({"UnsupportedOperationException"})


class _Identifier(msgspec.Struct):
    namespace: list[str]
    name: str


class _Page(msgspec.Struct, rename="kebab"):
    next_page_token: str | None = None
    namespaces: list[list[str]] = []
    identifiers: list[_Identifier] = []


class RelationListing:
    """One pass over the names of a catalog. More than `most` namespaces, tables and views are an error."""

    def __init__(self, client: RestCatalogClient, most: int) -> None:
        self._client, self._most = client, most
        self._count = 0

    async def namespaces(self) -> list[tuple[str, ...]]:
        """Return all namespaces, parents first; raise Unavailable."""
        found: list[tuple[str, ...]] = []
        level: list[tuple[str, ...]] = [()]
        for _ in range(_DEPTH):
            level = [child for parent in level for child in await self._children(parent)]
            found += level
            if not level:
                return found
        raise Unavailable(f"{self._client.name} has namespaces of more than {_DEPTH - 1} levels")

    async def relations(self, namespace: tuple[str, ...]) -> list[Item]:
        """Return the tables and views right inside a namespace; raise Unavailable."""
        place = ("namespaces", self._client.joined(namespace))
        found = await self._items("tables", namespace, place)
        if await self._client.serves(_VIEWS):
            found += await self._items("views", namespace, place)
        return found

    async def _children(self, parent: tuple[str, ...]) -> list[tuple[str, ...]]:
        query = {"parent": self._client.joined(parent)} if parent else {}
        pages = await self._pages(("namespaces",), query)
        found = [tuple(parts) for page in pages for parts in page.namespaces]
        if any(parts[:-1] != parent or not parts[-1] for parts in found if parts) or () in found:
            raise Unavailable(f"{self._client.name} lists a namespace outside of the one that was asked for")
        return list(dict.fromkeys(found))

    async def _items(self, kind: RelationKind, namespace: tuple[str, ...], place: Sequence[str]) -> list[Item]:
        pages = await self._pages((*place, kind), {})
        found = [one for page in pages for one in page.identifiers]
        if any(tuple(one.namespace) != namespace or not one.name for one in found):
            raise Unavailable(f"{self._client.name} lists a name outside of the namespace that was asked for")
        return [(kind, path) for path in _unique((*namespace, one.name) for one in found)]

    async def _pages(self, path: Sequence[str], query: Mapping[str, str]) -> list[_Page]:
        """Return the pages of a list; none for a namespace that was dropped meanwhile."""
        pages: list[_Page] = []
        tokens = {""}
        token = ""
        while len(pages) < _MOST_PAGES:
            paged = {**query, "pageSize": _PAGE_SIZE, "pageToken": token}
            answer = await self._client.find(path, paged, may_lack=_NO_VIEWS if path[-1] == "views" else frozenset())
            if answer is None:
                return []
            page = self._client.decode(answer.body, _Page)
            self._bound(len(page.namespaces) + len(page.identifiers))
            pages.append(page)
            token = page.next_page_token or ""
            if not token:
                return pages
            if token in tokens:
                break
            tokens.add(token)
        raise Unavailable(f"{self._client.name} sends pages without an end")

    def _bound(self, count: int) -> None:
        self._count += count
        if self._count > self._most:
            raise Unavailable(f"{self._client.name} has more than {self._most} namespaces, tables and views")


def _unique(paths: Iterable[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    return iter(dict.fromkeys(paths))
