"""HTTP server of decisions and of all other routes, on one port.

Owns the connections: each begins as an `HttpConnection`, which hands all but plain requests to aiohttp. Closes the
connections that wait too long, and all of them at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

from aiohttp import web

from pdp.config.server import LimitSettings
from pdp.identity.callers import Callers
from pdp.identity.tokens import MAX_TOKEN
from pdp.surfaces.admission import Admission
from pdp.surfaces.http_connection import ConnectionContext, HttpConnection
from pdp.surfaces.http_handlers import Routes, router
from pdp.surfaces.http_head import MOST_HEADERS
from pdp.surfaces.http_routes import DecisionRoute

_LONGEST_LINE: Final = 8192
"""Bytes of a request line."""
_LONGEST_FIELD: Final = MAX_TOKEN + 1024
"""Bytes of one header: its name, or its value. The longest token has room in it."""
_LONGEST_SWEEP: Final = 1.0
"""Most seconds between two looks for connections that wait too long."""
_DRAIN_PAUSE: Final = 0.01
"""Seconds between two looks for connections that are still open."""


class AiohttpServer(web.Server):
    """aiohttp's server with the limits of the service."""

    def __init__(self, routes: Routes, idle_timeout: float) -> None:
        self._route = router(routes)
        self.draining = False
        super().__init__(
            self._handle,
            auto_decompress=False,
            keepalive_timeout=idle_timeout,
            timeout_ceil_threshold=3600,
            access_log=None,
            max_line_size=_LONGEST_LINE,
            max_field_size=_LONGEST_FIELD,
            max_headers=MOST_HEADERS,
        )

    async def _handle(self, request: web.BaseRequest) -> web.Response:
        response = await self._route(request)
        if self.draining:
            response.force_close()
        return response


class HttpServer(AiohttpServer):
    """Server of all routes. A call makes the protocol of a new connection."""

    def __init__(self, routes: Routes, callers: Callers, admission: Admission, limits: LimitSettings) -> None:
        super().__init__(routes, limits.idle_timeout_seconds)
        decisions = {path: route for (_, path), route in routes.items() if isinstance(route, DecisionRoute)}
        self._shared = ConnectionContext(
            decisions, callers, admission, limits.idle_timeout_seconds, self._aiohttp_connection
        )
        self._pause = min(_LONGEST_SWEEP, limits.idle_timeout_seconds / 4, limits.request_timeout_seconds / 4)
        self._sweeper: asyncio.TimerHandle | None = None

    def __call__(self) -> Any:
        """Return the protocol of a new connection."""
        if self._sweeper is None:
            self._sweeper = self._shared.loop.call_later(self._pause, self._sweep)
        return HttpConnection(self._shared)

    def drain(self) -> None:
        """Close every connection after its next answer, which tells the client so."""
        self.draining = self._shared.draining = True
        self._shared.heads.announce_close()

    async def drained(self, seconds: float) -> None:
        """Wait until all connections are closed, or for `seconds`."""
        end = self._shared.now() + seconds
        while (self._shared.open or self.connections) and self._shared.now() < end:  # noqa: ASYNC110  aiohttp has no event
            await asyncio.sleep(_DRAIN_PAUSE)

    def pre_shutdown(self) -> None:
        """Close the connections without a request under way."""
        super().pre_shutdown()
        self._shared.closing = self._shared.draining = True
        self._shared.all_closed.clear()
        for connection in list(self._shared.open):
            connection.close_if_idle()

    async def shutdown(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  aiohttp's parameter
        """Close all connections, after `timeout` seconds at the latest."""
        await asyncio.gather(super().shutdown(timeout), self._close(timeout))
        if self._sweeper:
            self._sweeper.cancel()

    def _aiohttp_connection(self) -> asyncio.Protocol:
        return super().__call__()

    async def _close(self, seconds: float | None) -> None:
        shared = self._shared
        if shared.open:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(shared.all_closed.wait(), seconds)
        for connection in list(shared.open):
            connection.abort()

    def _sweep(self) -> None:
        """Look for connections that wait too long, again and again while there are connections."""
        now = self._shared.now()
        for connection in list(self._shared.open):
            if connection.deadline < now:
                connection.expire()
        self._sweeper = self._shared.loop.call_later(self._pause, self._sweep) if self._shared.open else None
