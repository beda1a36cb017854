"""Client of one Iceberg REST catalog: one address, no redirects, bounded answers, many questions at a time.

Secrets of the client stand in no message and no log. Nobody but the catalog answers: no other host. Must
not know the meaning of an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec
import structlog
from yarl import URL

from pdp.config.warehouses import NAMESPACE_SEPARATOR, CatalogSettings
from pdp.errors import ConfigError, Unavailable

if TYPE_CHECKING:
    import aiohttp

A = TypeVar("A")
Q = TypeVar("Q")
MAX_ANSWER_BYTES: Final = 8 << 20
"""The metadata of a table or view with all versions is far smaller."""
_MISSING: Final = frozenset({"NoSuchViewException", "NoSuchTableException", "NoSuchNamespaceException"})
_NO_ANSWER: Final = frozenset({401, 407, 408, 429, 502, 503, 504})
"""Statuses that say nothing of the object: the catalog or a proxy before the catalog does not work."""
_MOST_CONNECTIONS: Final = 16
_CHUNK: Final = 1 << 16
_OBJECT_PARTS: Final = 4
"""Parts of the path of a table or view: `namespaces`, the namespace, the kind and the name."""
T = TypeVar("T")
log = structlog.get_logger()


class ObjectUnreadable(Unavailable):
    """Unusable answer about one object of a catalog that answers otherwise."""


class CatalogAnswer(NamedTuple):
    """Answer of a catalog. `etag` is empty if the catalog gives none."""

    status: int
    body: bytes
    etag: str = ""

    @property
    def is_unchanged(self) -> bool:
        """Tell whether the object is still that of the sent etag."""
        return self.status == HTTPStatus.NOT_MODIFIED


class _PrefixSettings(msgspec.Struct):
    prefix: str = ""


class _CatalogConfig(msgspec.Struct):
    overrides: _PrefixSettings = msgspec.field(default_factory=_PrefixSettings)
    defaults: _PrefixSettings = msgspec.field(default_factory=_PrefixSettings)
    endpoints: list[str] | None = None


class _ErrorModel(msgspec.Struct):
    type: str


class _CatalogErrorResponse(msgspec.Struct):
    error: _ErrorModel


class RestCatalogClient:
    """Client for one warehouse. The constructor needs no event loop; use and close the client on one loop."""

    def __init__(
        self, warehouse: str, rule: CatalogSettings, token_file: Path | None, separator: str = NAMESPACE_SEPARATOR
    ) -> None:
        """Read the token and the CA; raise ConfigError for an unusable file."""
        import_module("aiohttp")  # with the first client: most services have none, and no question waits for it
        self._separator = separator
        self.name = f"the catalog of warehouse `{warehouse}`"
        self._rule, self._token_file, self._warehouse = rule, token_file, warehouse
        self._token = self._read_token() if token_file else rule.token or ""
        self._tls = rule.way.context() if rule.way.ca else True
        self._proxy = rule.way.proxy_to(rule.uri)
        self._config: _CatalogConfig | None = None
        self._session: aiohttp.ClientSession | None = None

    async def find(
        self, path: Sequence[str], query: Mapping[str, str] = {}, *, etag: str = "",
        may_lack: frozenset[str] = frozenset(),
    ) -> CatalogAnswer | None:  # fmt: skip
        """Return the answer about an object below the prefix; None for a missing object.

        With an `etag`, the answer may have no body. `may_lack` has more types of errors that mean a missing object.
        Raise ObjectUnreadable for an unusable answer, and Unavailable if the catalog gives no answer.
        """
        if any(part in (".", "..") or not part for part in path):
            return None  # a proxy could take such a part for another path
        config = await self._read_config()
        prefix = self._rule.prefix or config.overrides.prefix or config.defaults.prefix
        parts = [prefix, *path] if prefix else path
        answer = await self._get("/".join(("v1", *(quote(part, safe="") for part in parts))), query, etag)
        if answer.status == HTTPStatus.OK or (etag and answer.is_unchanged):
            return answer
        if answer.status == HTTPStatus.NOT_FOUND and _error_type(answer) in _MISSING:
            return None
        if may_lack and answer.status not in _NO_ANSWER and _error_type(answer) in may_lack:
            return None
        error = Unavailable if answer.status in _NO_ANSWER else ObjectUnreadable
        raise error(f"{self.name} answered {answer.status}", f" for {_shown(path, self._separator)}")

    def joined(self, namespace: Sequence[str]) -> str:
        """Return a namespace as the catalog reads it; raise ObjectUnreadable for a part that holds the separator."""
        if any(self._separator in part for part in namespace):
            raise ObjectUnreadable(f"{self.name} divides namespaces", " within one of the names")
        return self._separator.join(namespace)

    async def serves(self, endpoint: str) -> bool:
        """Tell whether the catalog has an endpoint, such as `GET /v1/{prefix}/namespaces`; true without a list."""
        endpoints = (await self._read_config()).endpoints
        return endpoints is None or endpoint in endpoints

    def forget_config(self) -> None:
        """Ask for the configuration of the catalog again before the next object."""
        self._config = None

    def decode(self, body: bytes, kind: type[T]) -> T:
        """Return a body as a type; raise ObjectUnreadable for a body outside of the specification."""
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise ObjectUnreadable(f"{self.name} sent an answer outside of the Iceberg REST specification") from None

    async def close(self) -> None:
        """Close the connections."""
        if self._session:
            await self._session.close()

    async def _read_config(self) -> _CatalogConfig:
        if self._config is None:
            answer = await self._get("v1/config", {"warehouse": self._rule.warehouse} if self._rule.warehouse else {})
            if answer.status != HTTPStatus.OK:
                raise Unavailable(f"{self.name} answered {answer.status} for its configuration")
            config = self.decode(answer.body, _CatalogConfig)
            if {config.overrides.prefix, config.defaults.prefix} & {".", ".."}:
                raise Unavailable(f"{self.name} sent a prefix that is no name")
            self._config = config
        return self._config

    async def _get(self, path: str, query: Mapping[str, str], etag: str = "") -> CatalogAnswer:
        """Return the answer. After a 401, read the token file again and retry: the token may have been renewed."""
        if query:
            path += "?" + "&".join(f"{key}={quote(value, safe='')}" for key, value in query.items())
        answer = await self._request(path, etag)
        if answer.status == HTTPStatus.UNAUTHORIZED and self._token_file:
            try:
                self._token = await asyncio.to_thread(self._read_token)
            except ConfigError as error:
                raise Unavailable(str(error)) from None
            answer = await self._request(path, etag)
        return answer

    async def _request(self, path: str, etag: str) -> CatalogAnswer:
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        if etag:
            headers["If-None-Match"] = etag
        import aiohttp  # noqa: PLC0415  loaded with the client

        url = URL(f"{self._rule.uri.rstrip('/')}/{path}", encoded=True)
        try:
            async with self._opened().get(url, headers=headers, allow_redirects=False, proxy=self._proxy) as response:
                return CatalogAnswer(response.status, await self._read(response), response.headers.get("ETag", ""))
        except TimeoutError:
            raise Unavailable(f"{self.name} did not answer within {self._rule.timeout_seconds:g} seconds") from None
        except aiohttp.ClientError as error:
            log.warning("catalog cannot be asked", catalog=self.name, cause=type(error).__name__)
            raise Unavailable(f"{self.name} cannot be asked: {type(error).__name__}") from None

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        body = bytearray()
        async for chunk in response.content.iter_chunked(_CHUNK):
            body += chunk
            if len(body) > MAX_ANSWER_BYTES:
                raise ObjectUnreadable(f"{self.name} answers with more than {MAX_ANSWER_BYTES} bytes")
        return bytes(body)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            import aiohttp  # noqa: PLC0415  loaded with the client

            timeout = aiohttp.ClientTimeout(total=self._rule.timeout_seconds)
            connector = aiohttp.TCPConnector(limit=_MOST_CONNECTIONS, ssl=self._tls)
            accept = {"Accept": "application/json"}
            self._session = aiohttp.ClientSession(connector=connector, timeout=timeout, headers=accept)
        return self._session

    def _read_token(self) -> str:
        if self._token_file is None:
            return ""
        try:
            token = self._token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            cause = getattr(error, "strerror", None) or "it is not UTF-8"
            raise self._token_error(f"the file cannot be read: {cause}") from None
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise self._token_error("no token: visible signs of ASCII, without spaces and line ends")
        return token

    def _token_error(self, cause: str) -> ConfigError:
        return ConfigError(f"`warehouses.{self._warehouse}.catalog.token_file`: {cause}")


def _error_type(answer: CatalogAnswer) -> str:
    """Return the type of an error, such as `NoSuchTableException`; empty for a body without one."""
    try:
        return msgspec.json.decode(answer.body, type=_CatalogErrorResponse).error.type
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""


def _shown(path: Sequence[str], separator: str) -> str:
    """Return the object of a path for a message: the kind and the name."""
    if len(path) < _OBJECT_PARTS:
        return f"its {path[-1]}"
    return f"{path[-2].removesuffix('s')} `{'.'.join((path[1].replace(separator, '.'), path[-1]))}`"


async def in_parallel(ask: Callable[[Q], Awaitable[A]], questions: Sequence[Q], most: int) -> AsyncIterator[A]:
    """Yield the answers in the order of the questions, `most` of them asked at once. The first error ends all."""
    for start in range(0, len(questions), most * most):
        gate = asyncio.Semaphore(most)

        async def asked(question: Q, gate: asyncio.Semaphore = gate) -> A:
            async with gate:
                return await ask(question)

        tasks = [asyncio.ensure_future(asked(question)) for question in questions[start : start + most * most]]
        try:
            for answer in await asyncio.gather(*tasks):
                yield answer
        finally:
            for task in tasks:
                task.cancel()
