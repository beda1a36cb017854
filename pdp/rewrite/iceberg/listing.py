"""Names of all tables and views of an Iceberg REST catalog, within bounds on depth, pages and number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from pdp.errors import Unavailable
from pdp.rewrite.iceberg.client import NAMESPACE_SEPARATOR, RestCatalogClient
from pdp.rewrite.iceberg.metadata import RelationKind

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
        place = ("namespaces", NAMESPACE_SEPARATOR.join(namespace))
        found = await self._items("tables", namespace, place)
        if await self._client.serves(_VIEWS):
            found += await self._items("views", namespace, place)
        return found

    async def _children(self, parent: tuple[str, ...]) -> list[tuple[str, ...]]:
        query = {"parent": NAMESPACE_SEPARATOR.join(parent)} if parent else {}
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
