"""HTTP server of decisions and of all other routes, on one port.

Owns the connections: each begins as an `HttpConnection`, which hands all but plain requests to aiohttp. Closes the
connections that wait too long, and all of them at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any, Final, cast

from pdp.config.server import LimitSettings
from pdp.identity.callers import Callers
from pdp.surfaces.admission import Admission
from pdp.surfaces.http.answers import ErrorForm
from pdp.surfaces.http.connection import LINGER_SECONDS, ConnectionContext, HttpConnection
from pdp.surfaces.http.handlers import Routes, router
from pdp.surfaces.http.routes import DecisionRoute, Outcomes
from pdp.surfaces.listeners import TlsHandshake

if TYPE_CHECKING:
    from pdp.surfaces.http.aiohttp_connections import AiohttpConnections

_LONGEST_SWEEP: Final = 1.0
"""Most seconds between two looks for connections that wait too long."""
_CROWDED_SECONDS: Final = 10.0
"""Time for which a refused connection shows in readiness. Probes come seldom."""
_MOST: Final = 65_536
_DRAIN_PAUSE: Final = 0.01
"""Seconds between two looks for connections that are still open."""


class _RefusedConnection(asyncio.Protocol):
    """Connection beyond the limit."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Close the connection at once."""
        transport.close()


class _WaitingConnection(asyncio.Protocol):
    """Connection before aiohttp is loaded. Meanwhile nothing is read."""

    def __init__(self, server: AiohttpServer) -> None:
        self._server = server
        self._transport: asyncio.Transport
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.pause_reading()
        self._server.await_aiohttp(self)

    def data_received(self, data: bytes) -> None:
        """Keep the first bytes of the connection."""
        self._received += data

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._server.waiting.pop(self, None)

    def become(self, protocol: asyncio.Protocol) -> None:
        """Give the connection to a protocol of aiohttp."""
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        if self._received:
            protocol.data_received(self._received)
        self._transport.resume_reading()

    def abort(self) -> None:
        """Close the connection. From now on it does not count as open."""
        self._server.waiting.pop(self, None)
        self._transport.abort()


class AiohttpServer:
    """Server by aiohttp with the limits of the service. A call makes the protocol of a new connection.

    Beyond `most` connections, those that ask nothing are closed for new ones, the longest idle first.
    """

    patience = 0.0
    """Time for a connection that is to close after its present answer. Diagnostics are answered at once."""
    lingering = 0.0
    """Time for the rest of a body after its answer. Diagnostics take no bodies: the connection closes at once."""
    read_ahead = 2048
    """Half of the bytes of a body that are read before somebody takes them, and 16 times the number of its chunks."""

    def __init__(
        self, routes: Routes, idle_timeout: float, most: int = _MOST, *, forms: Mapping[str, ErrorForm] | None = None
    ) -> None:
        """Serve routes. `forms` are those of errors outside of all routes, by the start of the path."""
        self.route = router(routes, forms or {})
        self.idle_timeout = idle_timeout
        self._most = most
        self.outcomes: Outcomes | None = None
        """Outcomes of requests that no route sees."""
        self._refused_at = -inf
        self.handshake_timeout = idle_timeout
        self.handshakes: dict[TlsHandshake, None] = {}
        """Connections whose TLS has not begun, the oldest first."""
        self.waiting: dict[_WaitingConnection, None] = {}
        """Connections that wait for aiohttp."""
        self._aiohttp: AiohttpConnections | None = None
        self._loading: asyncio.Task[None] | None = None
        self.imports: Callable[[], AbstractContextManager[None]] = nullcontext
        """Context of the import of aiohttp."""
        self.draining = False

    def __call__(self) -> Any:
        """Return the protocol of a new connection."""
        return self.new_connection() if self.has_room() else _RefusedConnection()

    @property
    def requests_count(self) -> int:
        """Number of requests that aiohttp has answered."""
        return self._aiohttp.requests_count if self._aiohttp else 0

    async def load(self) -> None:
        """Load aiohttp in a thread. Meanwhile plain requests are answered, and other requests wait."""
        if self._loading is None:
            self._loading = asyncio.create_task(self._load())
        await asyncio.shield(self._loading)

    async def _load(self) -> None:
        try:
            self._aiohttp = (await asyncio.to_thread(_import_aiohttp, self.imports))(self)
        finally:
            if self._aiohttp is None:
                self._loading = None
            self._end_waiting()

    def _end_waiting(self) -> None:
        waiting, self.waiting = self.waiting, {}
        for connection in waiting:
            if self._aiohttp:
                connection.become(self._aiohttp.open())
            else:
                connection.abort()

    def await_aiohttp(self, connection: _WaitingConnection) -> None:
        """Let a connection wait for aiohttp. Between a protocol and its connection, aiohttp may have come."""
        self.waiting[connection] = None
        if self._aiohttp:
            asyncio.get_running_loop().call_soon(self._end_waiting)
        elif self._loading is None:
            self._loading = asyncio.create_task(self._load())

    def is_crowded(self) -> bool:
        """Tell whether connections were refused during the last ten seconds."""
        return time.monotonic() < self._refused_at + _CROWDED_SECONDS

    def _count(self) -> int:
        return (self._aiohttp.count() if self._aiohttp else 0) + len(self.handshakes) + len(self.waiting)

    def has_room(self) -> bool:
        """Tell whether a new connection has a place: others are closed for it, unless too many wait for answers."""
        aiohttp = self._aiohttp
        beyond = self._count() - (aiohttp.count_leaving() if aiohttp else 0) - self._most
        if beyond >= 0:
            # all that are beyond: a burst may come before the first of them counts
            count = max(beyond + 1, self._most // 16)
            silent = [*islice(self.handshakes, count)]
            for handshake in silent:
                handshake.abort()
            self._make_room(count - len(silent))
            if self._count() >= 2 * self._most and not (aiohttp and aiohttp.end_leaving()):
                self._refused_at = time.monotonic()
                return False
        return True

    def _make_room(self, count: int) -> None:
        """Close some connections, each after the present answer; before aiohttp is loaded, at once."""
        for connection in [*islice(self.waiting, count)]:
            connection.abort()
        if self._aiohttp:
            self._aiohttp.make_room(count)

    def new_connection(self) -> Any:
        """Return the protocol of a connection that has a place."""
        return self._aiohttp.open() if self._aiohttp else _WaitingConnection(self)

    def pre_shutdown(self) -> None:
        """Close the connections without a request under way."""
        if self._aiohttp:
            self._aiohttp.pre_shutdown()

    async def shutdown(self, timeout: float | None) -> None:  # noqa: ASYNC109  aiohttp's parameter
        """Close all connections, after `timeout` seconds at the latest."""
        for connection in [*self.waiting]:
            connection.abort()
        if self._aiohttp:
            await self._aiohttp.shutdown(timeout)


def _import_aiohttp(imports: Callable[[], AbstractContextManager[None]]) -> type[AiohttpConnections]:
    with imports():
        from pdp.surfaces.http.aiohttp_connections import AiohttpConnections  # noqa: PLC0415  aiohttp takes 60 ms
    return AiohttpConnections


class HttpServer(AiohttpServer):
    """Server of all routes."""

    lingering = LINGER_SECONDS
    read_ahead = 1 << 13

    def __init__(
        self,
        routes: Routes,
        callers: Callers,
        admission: Admission,
        limits: LimitSettings,
        most: int = _MOST,
        *,
        forms: Mapping[str, ErrorForm] | None = None,
    ) -> None:
        super().__init__(routes, limits.idle_timeout_seconds, most, forms=forms)
        self.patience = limits.idle_timeout_seconds
        self.handshake_timeout = limits.request_timeout_seconds
        decisions = {path: route for (_, path), route in routes.items() if isinstance(route, DecisionRoute)}
        check = routes.get(("POST", "/v1/check"))
        self.outcomes = check.outcomes if isinstance(check, DecisionRoute) else None
        self._shared = ConnectionContext(
            decisions, callers, admission, limits.idle_timeout_seconds, self._aiohttp_connection
        )
        self._pause = min(_LONGEST_SWEEP, limits.idle_timeout_seconds / 4, limits.request_timeout_seconds / 4)
        self._sweeper: asyncio.TimerHandle | None = None
        self._hurried = False

    def _count(self) -> int:
        return len(self._shared.open) + super()._count()

    def _make_room(self, count: int) -> None:
        """Close the longest idle connections; if there are none, those whose body has not arrived."""
        open_ = self._shared.open
        idle = heapq.nsmallest(count, filter(HttpConnection.is_idle, open_), key=_deadline)
        for connection in idle or heapq.nsmallest(count, filter(HttpConnection.is_arriving, open_), key=_deadline):
            connection.abort()
        if not idle:
            super()._make_room(count)

    def new_connection(self) -> Any:
        """Return the protocol of a connection that has a place."""
        if self._sweeper is None:
            self._sweeper = self._shared.loop.call_later(self._pause, self._sweep)
        return HttpConnection(self._shared)

    def drain(self) -> None:
        """Close every connection after its next answer, which tells the client so."""
        self.draining = self._shared.draining = True
        self._shared.heads.announce_close()

    def hurry(self) -> None:
        """Wait no longer for anything."""
        self._hurried = True

    async def drained(self, seconds: float) -> None:
        """Wait until all connections are closed, or for `seconds`."""
        end = self._shared.now() + seconds
        while self._has_open() and self._shared.now() < end and not self._hurried:  # noqa: ASYNC110  aiohttp has no event
            await asyncio.sleep(_DRAIN_PAUSE)

    def _has_open(self) -> bool:
        return bool(self._count())

    def pre_shutdown(self) -> None:
        """Close the connections without a request under way."""
        super().pre_shutdown()
        for handshake in [*self.handshakes]:
            handshake.abort()
        self._shared.closing = self._shared.draining = True
        self._shared.all_closed.clear()
        for connection in list(self._shared.open):
            connection.close_if_idle()

    async def shutdown(self, timeout: float | None) -> None:  # noqa: ASYNC109  aiohttp's parameter
        """Close all connections, after `timeout` seconds at the latest, or at once after `hurry`."""
        timeout = 0 if self._hurried else timeout
        await asyncio.gather(super().shutdown(timeout), self._close(timeout))
        if self._sweeper:
            self._sweeper.cancel()

    def _aiohttp_connection(self) -> asyncio.Protocol:
        connection: asyncio.Protocol = super().new_connection()
        return connection

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


def _deadline(connection: HttpConnection) -> float:
    return connection.deadline
