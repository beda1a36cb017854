"""HTTP server of decisions and of all other routes, on one port.

Owns the connections: each begins as an `HttpConnection`, which hands all but plain requests to aiohttp. Closes the
connections that wait too long, and all of them at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import time
from itertools import islice
from math import inf
from typing import Any, Final, cast

from aiohttp import web
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from aiohttp.web_protocol import _ErrInfo

from pdp.config.server import LimitSettings
from pdp.decision.turns import TurnClock
from pdp.errors import InvalidArgument
from pdp.identity.callers import Callers
from pdp.model.revision import new_id
from pdp.surfaces.admission import Admission
from pdp.surfaces.http.answers import HttpAnswer, failure_of
from pdp.surfaces.http.connection import LINGER_SECONDS, ConnectionContext, HttpConnection
from pdp.surfaces.http.handlers import Routes, response_of, router
from pdp.surfaces.http.requests import LONGEST_HEAD, MOST_HEADERS
from pdp.surfaces.http.routes import DecisionRoute, Outcomes
from pdp.surfaces.listeners import TlsHandshake
from pdp.surfaces.refusals import Stranger

_LONGEST_LINE: Final = 8192
"""Bytes of a request line."""
_LONGEST_FIELD: Final = LONGEST_HEAD
"""Bytes of one header: its name, or its value. The longest token has room in it."""
_LONGEST_SWEEP: Final = 1.0
"""Most seconds between two looks for connections that wait too long."""
_CROWDED_SECONDS: Final = 10.0
"""Time for which a refused connection shows in readiness. Probes come seldom."""
_MOST: Final = 65_536
_MALFORMED: Final = "the request is not valid HTTP"
_DRAIN_PAUSE: Final = 0.01
"""Seconds between two looks for connections that are still open."""


class _RefusedConnection(asyncio.Protocol):
    """Connection beyond the limit."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Close the connection at once."""
        transport.close()


class _AiohttpConnection(web.RequestHandler):
    """Connection of aiohttp whose own errors have the product's form."""

    __slots__ = ("_malformed", "_parse_soon", "_refuse", "body")

    def __init__(self, server: AiohttpServer, **settings: Any) -> None:
        super().__init__(server, **settings)
        self._refuse = server.refuse
        self._parse_soon = server.parse_soon
        self._malformed = False
        """True after bytes that are no HTTP. Nothing more is taken."""
        self.body: StreamReader = EMPTY_PAYLOAD
        """Body of the newest request that was handled."""

    def data_received(self, data: bytes) -> None:
        """Take bytes. A body with bytes that are no HTTP fails at once, and its request is the last one."""
        if self._malformed:
            return
        super().data_received(data)
        messages = self._messages
        newest = messages[-1][0] if messages else None
        if not isinstance(newest, _ErrInfo):
            return
        self._malformed = True
        newest.exc.with_traceback(None)  # its frames keep the bytes and the error itself
        error = messages.pop()
        request = self._current_request
        body = messages[-1][1] if messages else request.content if request else EMPTY_PAYLOAD
        if body.is_eof():
            messages.append(error)
        else:
            body.set_exception(InvalidArgument(_MALFORMED))
            self._lingering_time = 0
            self.close()

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Read on in a turn of the event loop. aiohttp alone would parse all bytes of a body at hand."""
        if resume_parser and not self._upgraded:
            self._parse_soon(self)
        else:
            super().resume_reading(resume_parser)

    def parse(self) -> None:
        """Parse bytes at hand, until aiohttp has enough of them; then read on."""
        if self.transport is not None:
            super().resume_reading()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget the connection. Nothing waits for the rest of a body whose request is answered."""
        is_answered = self._current_request is None
        super().connection_lost(exc)
        if is_answered:
            self.body.feed_eof()
        self.body = EMPTY_PAYLOAD

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return the answer to bytes that are no request, or to a failure. The connection closes after the answer."""
        if request.writer.output_size > 0:
            raise ConnectionError("a part of another answer was sent")
        error = exc if status != 400 and isinstance(exc, Exception) else InvalidArgument(_MALFORMED)
        response = self._refuse(request, error)
        response.force_close()
        return response


class AiohttpServer(web.Server):
    """aiohttp's server with the limits of the service. A call makes the protocol of a new connection.

    Beyond `most` connections, those that ask nothing are closed for new ones, the longest idle first.
    """

    _patience = 0.0
    """Time for a connection that is to close after its present answer. Diagnostics are answered at once."""
    _lingering = 0.0
    """Time for the rest of a body after its answer. Diagnostics take no bodies: the connection closes at once."""
    _read_ahead = 2048
    """Half of the bytes of a body that are read before somebody takes them, and 16 times the number of its chunks."""

    def __init__(self, routes: Routes, idle_timeout: float, most: int = _MOST) -> None:
        self._route = router(routes)
        self._most = most
        self._outcomes: Outcomes | None = None
        """Outcomes of requests that no route sees."""
        self._refused_at = -inf
        self.handshake_timeout = idle_timeout
        self.handshakes: dict[TlsHandshake, None] = {}
        """Connections whose TLS has not begun, the oldest first."""
        self._leaving: dict[Any, float] = {}
        """Connections of aiohttp that close after their present answer, and since when."""
        self._ended: set[Any] = set()
        """Closed connections of aiohttp, until the event loop tells so."""
        self._parsing: dict[_AiohttpConnection, None] = {}
        """Connections that wait to parse more of a body, in order."""
        self.draining = False
        super().__init__(
            self._handle,
            auto_decompress=False,
            keepalive_timeout=idle_timeout,
            lingering_time=self._lingering,
            read_bufsize=self._read_ahead,
            timeout_ceil_threshold=3600,
            access_log=None,
            max_line_size=_LONGEST_LINE,
            max_field_size=_LONGEST_FIELD,
            max_headers=MOST_HEADERS,
        )

    def __call__(self) -> Any:
        """Return the protocol of a new connection."""
        return self.new_connection() if self.has_room() else _RefusedConnection()

    def is_crowded(self) -> bool:
        """Tell whether connections were refused during the last ten seconds."""
        return time.monotonic() < self._refused_at + _CROWDED_SECONDS

    def parse_soon(self, connection: _AiohttpConnection) -> None:
        """Let a connection parse more in a later turn. Bodies in tiny chunks take long, so all connections share."""
        if not self._parsing:
            self._loop.call_soon(self._parse)
        self._parsing[connection] = None

    def _parse(self) -> None:
        pace = TurnClock()
        while self._parsing and not pace.is_over():
            connection = next(iter(self._parsing))
            del self._parsing[connection]
            connection.parse()
        if self._parsing:
            self._loop.call_soon(self._parse)

    def _count(self) -> int:
        return len(self._connections) - len(self._ended) + len(self.handshakes)

    def has_room(self) -> bool:
        """Tell whether a new connection has a place: others are closed for it, unless too many wait for answers."""
        beyond = self._count() - len(self._leaving) - self._most
        if beyond >= 0:
            # all that are beyond: a burst may come before the first of them counts
            count = max(beyond + 1, self._most // 16)
            silent = [*islice(self.handshakes, count)]
            for handshake in silent:
                handshake.abort()
            self._make_room(count - len(silent))
            if self._count() >= 2 * self._most and not self._end_leaving():
                self._refused_at = time.monotonic()
                return False
        return True

    def _make_room(self, count: int) -> None:
        """Close some connections, each after its present answer."""
        staying = (one for one in self._connections if one not in self._leaving and one not in self._ended)
        for connection in [*islice(staying, count)]:  # the oldest
            connection.close()
            if connection._request_in_progress or connection._messages:  # noqa: SLF001  aiohttp does not tell
                self._leaving[connection] = time.monotonic()
            else:
                self._abort(connection)

    def _end_leaving(self) -> bool:
        """Close the connection that was to leave first, if it had its time. Tell whether there was one."""
        connection, since = next(iter(self._leaving.items()), (None, inf))
        if time.monotonic() < since + self._patience:
            return False
        del self._leaving[connection]
        self._abort(connection)
        return True

    def _abort(self, connection: Any) -> None:
        """Close a connection of aiohttp, also if its client does not read."""
        transport = connection.transport
        connection.force_close()
        if transport:
            transport.abort()
        self._ended.add(connection)

    def connection_lost(self, handler: Any, exc: BaseException | None = None) -> None:
        """Forget a connection of aiohttp, when the server does: at the end of its task."""
        super().connection_lost(handler, exc)
        task = handler._task_handler  # noqa: SLF001  aiohttp does not tell
        if task:
            task.add_done_callback(lambda _: self._forget(handler))
        else:
            self._forget(handler)

    def _forget(self, handler: Any) -> None:
        self._leaving.pop(handler, None)
        self._ended.discard(handler)
        handler._messages.clear()  # noqa: SLF001  bodies of requests that nobody began would keep the connection

    def refuse(self, request: web.BaseRequest, error: Exception) -> web.Response:
        """Return the answer to an error outside of all routes, and record the refusal if there is an audit."""
        sender = Stranger(request.remote or "")  # aiohttp keeps no headers of such bytes
        if self._outcomes:
            answer = self._outcomes.failure(error, sender, "")
        else:
            failure = failure_of(error, "diagnostics", 0)
            answer = HttpAnswer(failure.status, failure.body, new_id())
        return _without_version(response_of(answer))

    def new_connection(self) -> Any:
        """Return the protocol of a connection that has a place."""
        return _AiohttpConnection(self, loop=self._loop, **self._kwargs)

    async def _handle(self, request: web.BaseRequest) -> web.Response:
        connection = cast(_AiohttpConnection, request.protocol)
        if connection.transport:
            connection.body = request.content
        try:
            response = _without_version(await self._route(request))
        except ConnectionError as error:  # the client is gone: no answer leaves
            error.with_traceback(None)  # its frames keep the request, which keeps the error
            if connection.transport:
                connection.transport.abort()
            return web.Response()
        if self.draining:
            response.force_close()
        return response


class HttpServer(AiohttpServer):
    """Server of all routes."""

    _lingering = LINGER_SECONDS
    _read_ahead = 1 << 13

    def __init__(
        self, routes: Routes, callers: Callers, admission: Admission, limits: LimitSettings, most: int = _MOST
    ) -> None:
        super().__init__(routes, limits.idle_timeout_seconds, most)
        self._patience = limits.idle_timeout_seconds
        self.handshake_timeout = limits.request_timeout_seconds
        decisions = {path: route for (_, path), route in routes.items() if isinstance(route, DecisionRoute)}
        check = routes.get(("POST", "/v1/check"))
        self._outcomes = check.outcomes if isinstance(check, DecisionRoute) else None
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
        return bool(self._shared.open or self.connections or self.handshakes)

    def pre_shutdown(self) -> None:
        """Close the connections without a request under way."""
        super().pre_shutdown()
        for handshake in [*self.handshakes]:
            handshake.abort()
        self._shared.closing = self._shared.draining = True
        self._shared.all_closed.clear()
        for connection in list(self._shared.open):
            connection.close_if_idle()

    async def shutdown(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  aiohttp's parameter
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


def _without_version(response: web.Response) -> web.Response:
    """Return a response that does not tell aiohttp's version, as aiohttp's own `Server` header does."""
    response.headers.setdefault("Server", "pdp")
    return response


def _deadline(connection: HttpConnection) -> float:
    return connection.deadline
