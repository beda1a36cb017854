"""Client of an Iceberg REST catalog: properties of views without properties in the request, and names that it lists.

Uses three calls of the REST specification: the configuration, for the prefix, and the loads of a view and of a table.
Any answer outside of the specification counts as no answer, so a load through an unreadable view fails.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec
import structlog
from yarl import URL

from pdp.config.warehouses import CatalogSettings
from pdp.errors import ConfigError, Unavailable
from pdp.memo import Memo
from pdp.model.checks import Resource

MAX_ANSWER_BYTES: Final = 8 << 20
"""A view's metadata with all versions is far smaller."""
_CACHED_VIEWS: Final = 10_000
_MISSING: Final = frozenset({"NoSuchViewException", "NoSuchTableException", "NoSuchNamespaceException"})
T = TypeVar("T")
log = structlog.get_logger()


class _Settings(msgspec.Struct):
    prefix: str = ""


class _CatalogConfig(msgspec.Struct):
    overrides: _Settings = msgspec.field(default_factory=_Settings)
    defaults: _Settings = msgspec.field(default_factory=_Settings)


class _LoadViewResult(msgspec.Struct, rename="kebab"):
    metadata_location: str
    metadata: msgspec.Raw


class _ViewMetadata(msgspec.Struct):
    properties: dict[str, str] = {}


class _ErrorModel(msgspec.Struct):
    type: str


class _CatalogErrorResponse(msgspec.Struct):
    error: _ErrorModel


class _CachedView(msgspec.Struct, frozen=True):
    """A view's properties from the metadata file at `location`. `expiry` is in seconds of the monotonic clock."""

    location: str
    properties: Mapping[str, Any]
    expiry: float


class IcebergCatalog:
    """The catalog of one warehouse. The constructor needs no event loop; use and close the catalog on one loop."""

    def __init__(self, warehouse: str, rule: CatalogSettings, token_file: Path | None) -> None:
        self._name = f"the catalog of warehouse `{warehouse}`"
        self._rule = rule
        self._token_file = token_file
        self._warehouse = warehouse
        self._token = self._read_token()
        self._prefix: str | None = None
        self._views: Memo[tuple[str, ...], _CachedView] = Memo(_CACHED_VIEWS)
        self._session: aiohttp.ClientSession | None = None

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
            properties = self._decode(bytes(loaded.metadata), _ViewMetadata).properties
        expiry = time.monotonic() + self._rule.ttl_seconds
        self._views.keep(view.path, _CachedView(loaded.metadata_location, properties, expiry))
        self._views.move_to_end(view.path)
        return properties

    async def lists(self, name: Resource) -> bool:
        """Tell whether the catalog has a table or view of a name; raise Unavailable if the catalog gives no answer."""
        if len(name.path) < 2:
            raise Unavailable(f"{self._name} has no tables outside of namespaces")
        for kind in ("tables", "views"):
            if await self._fetch(kind, name.path) is not None:
                return True
        return False

    async def close(self) -> None:
        """Close the connections."""
        if self._session:
            await self._session.close()

    async def _load(self, path: tuple[str, ...]) -> _LoadViewResult | None:
        body = await self._fetch("views", path)
        return None if body is None else self._decode(body, _LoadViewResult)

    async def _fetch(self, kind: str, path: tuple[str, ...]) -> bytes | None:
        """Return the catalog's answer about one of its `views` or `tables`; None for a missing object."""
        if self._prefix is None:
            self._prefix = await self._load_prefix()
        *namespace, name = path
        url_path = f"namespaces/{quote(chr(0x1F).join(namespace), safe='')}/{kind}/{quote(name, safe='')}"
        status, body = await self._get(f"v1/{self._prefix}{url_path}")
        if status == 200:
            return body
        if status == 404 and self._decode(body, _CatalogErrorResponse).error.type in _MISSING:
            return None
        raise Unavailable(f"{self._name} answered {status} for {kind[:-1]} `{'.'.join(path)}`")

    async def _load_prefix(self) -> str:
        warehouse = f"?warehouse={quote(self._rule.warehouse, safe='')}" if self._rule.warehouse else ""
        status, body = await self._get(f"v1/config{warehouse}")
        if status != 200:
            raise Unavailable(f"{self._name} answered {status} for its configuration")
        config = self._decode(body, _CatalogConfig)
        prefix = config.overrides.prefix or config.defaults.prefix
        return f"{quote(prefix, safe='')}/" if prefix else ""

    async def _get(self, path: str) -> tuple[int, bytes]:
        """Return status and body. After a 401, read the token file again and retry: the token may have been renewed."""
        status, body = await self._request(path)
        if status == 401 and self._token_file:
            try:
                self._token = await asyncio.to_thread(self._read_token)
            except ConfigError as error:
                raise Unavailable(str(error)) from None
            status, body = await self._request(path)
        return status, body

    async def _request(self, path: str) -> tuple[int, bytes]:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=self._rule.timeout_seconds)
            self._session = aiohttp.ClientSession(timeout=timeout, headers={"Accept": "application/json"})
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        url = URL(f"{self._rule.uri.rstrip('/')}/{path}", encoded=True)
        try:
            async with self._session.get(url, headers=headers, allow_redirects=False) as response:
                body = bytearray()
                async for chunk in response.content.iter_chunked(1 << 16):
                    body += chunk
                    if len(body) > MAX_ANSWER_BYTES:
                        raise Unavailable(f"{self._name} answers with more than {MAX_ANSWER_BYTES} bytes")
                return response.status, bytes(body)
        except TimeoutError:
            raise Unavailable(f"{self._name} did not answer within {self._rule.timeout_seconds:g} seconds") from None
        except aiohttp.ClientError as error:
            log.warning("catalog cannot be asked", catalog=self._name, cause=repr(error))
            raise Unavailable(f"{self._name} cannot be asked: {type(error).__name__}") from None

    def _decode(self, body: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise Unavailable(f"{self._name} sent an answer outside of the Iceberg REST specification") from None

    def _read_token(self) -> str:
        if self._token_file is None:
            return ""
        try:
            token = self._token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            cause = getattr(error, "strerror", None) or "it is not UTF-8"
            raise self._token_error(f"cannot be read: {cause}") from None
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise self._token_error("holds no token: visible signs of ASCII, without spaces and line ends between them")
        return token

    def _token_error(self, cause: str) -> ConfigError:
        return ConfigError(f"`warehouses.{self._warehouse}.catalog.token_file`: `{self._token_file}` {cause}")
