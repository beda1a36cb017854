"""Views of an Iceberg REST catalog: properties of views without properties in the request, and names that it lists.

Any answer outside of the specification counts as no answer, so a load through an unreadable view fails.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from pdp.config.warehouses import NAMESPACE_SEPARATOR, CatalogSettings
from pdp.errors import Unavailable
from pdp.model.bounded_cache import BoundedCache
from pdp.model.question import Resource
from pdp.rewrite.iceberg.client import RestCatalogClient

_CACHED_VIEWS: Final = 10_000


class _LoadViewResult(msgspec.Struct, rename="kebab"):
    metadata_location: str
    metadata: msgspec.Raw


class _ViewMetadata(msgspec.Struct):
    properties: dict[str, str] = {}


class _CachedView(msgspec.Struct, frozen=True):
    """A view's properties from the metadata file at `location`. `expiry` is in seconds of the monotonic clock."""

    location: str
    properties: Mapping[str, Any]
    expiry: float


class IcebergCatalog:
    """The catalog of one warehouse. The constructor needs no event loop; use and close the catalog on one loop."""

    def __init__(
        self, warehouse: str, rule: CatalogSettings, token_file: Path | None, separator: str = NAMESPACE_SEPARATOR
    ) -> None:
        self._client = RestCatalogClient(warehouse, rule, token_file, separator)
        self._rule = rule
        self._views: BoundedCache[tuple[str, ...], _CachedView] = BoundedCache(_CACHED_VIEWS)

    async def properties(self, view: Resource) -> Mapping[str, Any] | None:
        """Return a view's properties; None for a missing view. Raise Unavailable if the catalog gives no answer."""
        cached = self._views.get(view.path)
        if cached and time.monotonic() < cached.expiry:
            return cached.properties
        if len(view.path) < 2:
            return None
        loaded = await self._load(view.path)
        if loaded is None:
            self._views.pop(view.path, None)
            return None
        if cached and cached.location == loaded.metadata_location:
            # metadata files never change, so the cached properties are still right
            properties = cached.properties
        else:
            properties = self._client.decode(bytes(loaded.metadata), _ViewMetadata).properties
        expiry = time.monotonic() + self._rule.ttl_seconds
        self._views.keep(view.path, _CachedView(loaded.metadata_location, properties, expiry))
        self._views.move_to_end(view.path)
        return properties

    async def lists(self, name: Resource) -> bool:
        """Tell whether the catalog has a table or view of a name; raise Unavailable if the catalog gives no answer."""
        if len(name.path) < 2:
            raise Unavailable(f"{self._client.name} has no tables outside of namespaces")
        for kind in ("tables", "views"):
            if await self._fetch(kind, name.path) is not None:
                return True
        return False

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _load(self, path: tuple[str, ...]) -> _LoadViewResult | None:
        body = await self._fetch("views", path)
        return None if body is None else self._client.decode(body, _LoadViewResult)

    async def _fetch(self, kind: str, path: tuple[str, ...]) -> bytes | None:
        """Return the catalog's answer about one of its `views` or `tables`; None for a missing object."""
        *namespace, name = path
        answer = await self._client.find(("namespaces", self._client.joined(namespace), kind, name))
        return None if answer is None else answer.body
