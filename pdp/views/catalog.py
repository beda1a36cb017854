"""Views' properties from an Iceberg REST catalog, for chains whose views a request does not bring.

Speaks two calls of the REST specification: the configuration, for the prefix, and the load of a view. Whatever does
not answer as specified has not answered: nobody passes by a view that cannot be read.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec
import structlog
from yarl import URL

from pdp.config.settings import CatalogRule
from pdp.errors import ConfigError, Unavailable
from pdp.model.checks import Resource

MAX_ANSWER_BYTES: Final = 8 << 20
"""A view's metadata with all of its versions is far smaller."""
MAX_KEPT: Final = 10_000
_MISSING: Final = frozenset({"NoSuchViewException", "NoSuchNamespaceException"})
T = TypeVar("T")
log = structlog.get_logger()


class _Overrides(msgspec.Struct):
    prefix: str = ""


class _Config(msgspec.Struct):
    overrides: _Overrides = msgspec.field(default_factory=_Overrides)
    defaults: _Overrides = msgspec.field(default_factory=_Overrides)


class _View(msgspec.Struct, rename="kebab"):
    metadata_location: str
    metadata: msgspec.Raw


class _Metadata(msgspec.Struct):
    properties: dict[str, str] = {}


class _Problem(msgspec.Struct):
    type: str


class _Refused(msgspec.Struct):
    error: _Problem


class _CachedView(msgspec.Struct, frozen=True):
    """A view's properties, those of one metadata file; asked again after `until`, in seconds of the monotonic clock."""

    location: str
    properties: Mapping[str, Any]
    until: float


class IcebergCatalog:
    """The catalog of one warehouse. Made outside of an event loop, used on one, closed there."""

    def __init__(self, warehouse: str, rule: CatalogRule, token_file: Path | None) -> None:
        self._name = f"the catalog of warehouse `{warehouse}`"
        self._rule = rule
        self._token_file = token_file
        self._token = self._read_token()
        self._prefix: str | None = None
        self._kept: OrderedDict[tuple[str, ...], _CachedView] = OrderedDict()
        self._session: aiohttp.ClientSession | None = None

    async def properties(self, view: Resource) -> Mapping[str, Any] | None:
        """A view's properties, None where it is not there; raises Unavailable where the catalog does not say."""
        known = self._kept.get(view.path)
        if known and time.monotonic() < known.until:
            return known.properties
        if len(view.path) < 2:
            return None
        found = await self._load(view.path)
        if found is None:
            self._kept.pop(view.path, None)
            return None
        if known and known.location == found.metadata_location:
            properties = known.properties
        else:
            properties = self._decoded(bytes(found.metadata), _Metadata).properties
        return self._keep(view.path, found.metadata_location, properties)

    async def close(self) -> None:
        """Close the connections."""
        if self._session:
            await self._session.close()

    def _keep(self, path: tuple[str, ...], location: str, properties: Mapping[str, Any]) -> Mapping[str, Any]:
        self._kept[path] = _CachedView(location, properties, time.monotonic() + self._rule.ttl_seconds)
        self._kept.move_to_end(path)
        if len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
        return properties

    async def _load(self, path: tuple[str, ...]) -> _View | None:
        if self._prefix is None:
            self._prefix = await self._ask_prefix()
        *namespace, name = path
        place = f"namespaces/{quote(chr(0x1F).join(namespace), safe='')}/views/{quote(name, safe='')}"
        status, body = await self._get(f"v1/{self._prefix}{place}")
        if status == 200:
            return self._decoded(body, _View)
        if status == 404 and self._decoded(body, _Refused).error.type in _MISSING:
            return None
        raise Unavailable(f"{self._name} answered {status} for view `{'.'.join(path)}`")

    async def _ask_prefix(self) -> str:
        warehouse = f"?warehouse={quote(self._rule.warehouse, safe='')}" if self._rule.warehouse else ""
        status, body = await self._get(f"v1/config{warehouse}")
        if status != 200:
            raise Unavailable(f"{self._name} answered {status} for its configuration")
        config = self._decoded(body, _Config)
        prefix = config.overrides.prefix or config.defaults.prefix
        return f"{quote(prefix, safe='')}/" if prefix else ""

    async def _get(self, place: str) -> tuple[int, bytes]:
        """Status and body; a token that is refused is read again, since it may have been renewed."""
        status, body = await self._request(place)
        if status == 401 and self._token_file:
            try:
                self._token = await asyncio.to_thread(self._read_token)
            except ConfigError as error:
                raise Unavailable(str(error)) from None
            status, body = await self._request(place)
        return status, body

    async def _request(self, place: str) -> tuple[int, bytes]:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=self._rule.timeout_seconds)
            self._session = aiohttp.ClientSession(timeout=timeout, headers={"Accept": "application/json"})
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        url = URL(f"{self._rule.uri.rstrip('/')}/{place}", encoded=True)
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

    def _decoded(self, body: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise Unavailable(f"{self._name} answered what no Iceberg catalog answers") from None

    def _read_token(self) -> str:
        if self._token_file is None:
            return ""
        try:
            return self._token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read the token in `{self._token_file}` of {self._name}: {error}") from None
