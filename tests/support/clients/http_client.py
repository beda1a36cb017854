"""HTTP clients: one for a service in this process, and one request to a service in a process of its own."""

from __future__ import annotations

import io
import json
import re
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from multidict import CIMultiDict
from support.service.serving import serving
from yarl import URL

from pdp.app.service import Service
from pdp.config.settings import Settings

INNER_DETAILS = ("Traceback", 'File "', ".py", "/root", "/usr", "site-packages", "pdp.", "msgspec", "Exception")
"""Texts that show the inside of the product: a stack trace, a file, a class."""

_ICEBERG_ERROR = re.compile(r'"type":"[A-Za-z]+Exception","code":\d+')


def assert_discreet(text: str) -> None:
    """Check that an answer shows no inner detail of the product. Errors of Iceberg have types of the specification."""
    text = _ICEBERG_ERROR.sub("", text)
    for mark in INNER_DETAILS:
        assert mark not in text, text


@dataclass(frozen=True)
class Response:
    """Answer of a service: the status, the headers, and the body's bytes."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def media_type(self) -> str:
        """Return the media type without parameters."""
        return self.headers.get("Content-Type", "").partition(";")[0]

    @property
    def text(self) -> str:
        """Return the body as text."""
        return self.content.decode()

    def json(self) -> Any:
        """Parse the body."""
        return json.loads(self.content)


class HttpClient:
    """Client of a service in this process. The client checks every answer for inner details of the product."""

    def __init__(self, service: Service, session: aiohttp.ClientSession) -> None:
        self.service = service
        self._session = session

    def url(self, path: str, listener: str = "http") -> str:
        """Return the address of a path."""
        scheme = self.service.scheme if listener == "http" else "http"
        return f"{scheme}://{self.service.addresses[listener]}{path}"

    async def send(
        self, method: str, path: str, body: Any = None, headers: Any = None, listener: str = "http", **options: Any
    ) -> Response:
        """Send a request with a JSON body; `bytes` and `str` are sent as they are. `options` go to aiohttp."""
        data = None if body is None else io.BytesIO(body if isinstance(body, bytes) else _text(body).encode())
        named = [] if data is None else [("Content-Type", "application/json")]
        given = list(headers.items() if isinstance(headers, Mapping) else headers or ())
        replaced = {name.lower() for name, _ in given}
        named = [(name, value) for name, value in named if name.lower() not in replaced]
        url = URL(self.url(path, listener), encoded=True)
        async with self._session.request(method, url, data=data, headers=[*named, *given], **options) as response:
            content = await response.read()
        if listener == "http":
            assert_discreet(content.decode(errors="replace"))
        return Response(response.status, response.headers, content)

    async def post(self, path: str, body: Any, headers: Any = None, **options: Any) -> tuple[int, Any]:
        """Post a body; return the status and the parsed answer, which must be JSON."""
        response = await self.send("POST", path, body, headers, **options)
        assert response.media_type == "application/json"
        return response.status, response.json()

    async def check(self, *checks: Any, **fields: Any) -> tuple[int, Any]:
        """Post checks to `/v1/check`."""
        return await self.post("/v1/check", {"checks": checks, **fields})

    async def trino(self, endpoint: str, body: Any, **options: Any) -> tuple[int, Any]:
        """Post a body to one of Trino's endpoints."""
        return await self.post(f"/v1/data/trino/{endpoint}", body, **options)


@asynccontextmanager
async def http_client(service: Service, **options: Any) -> AsyncIterator[HttpClient]:
    """Yield a client of a running service; `options` go to the aiohttp session."""
    async with aiohttp.ClientSession(**options) as session:
        yield HttpClient(service, session)


@asynccontextmanager
async def client_of(settings: Settings) -> AsyncIterator[HttpClient]:
    """Start a service in this process and yield a client of it."""
    async with serving(settings) as service, http_client(service) as client:
        yield client


def fetch(
    url: str, body: Any = None, method: str | None = None, headers: Mapping[str, str] | None = None, timeout: float = 30
) -> Response:
    """Send one request with a JSON body and wait for the answer, whatever its status."""
    data = None if body is None else body if isinstance(body, bytes) else _text(body).encode()
    named = {**({} if data is None else {"Content-Type": "application/json"}), **(headers or {})}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, data, named, method=method), timeout=timeout
        ) as response:
            return Response(response.status, CIMultiDict(response.headers.items()), response.read())
    except urllib.error.HTTPError as error:
        with error:
            return Response(error.code, CIMultiDict(error.headers.items()), error.read())


def _text(body: Any) -> str:
    return body if isinstance(body, str) else json.dumps(body)
