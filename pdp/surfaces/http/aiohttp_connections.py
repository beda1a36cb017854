"""Connections of aiohttp: for requests beyond `HttpConnection`, and for diagnostics.

Alone in loading aiohttp, an eighth of the time of a start. So a listening service loads this module.
"""

from __future__ import annotations

import time
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any, Final, cast

from aiohttp import web
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from aiohttp.web_protocol import _ErrInfo

from pdp.decision.turns import TurnClock
from pdp.errors import InvalidArgument
from pdp.model.revision import new_id
from pdp.surfaces.http.answers import HttpAnswer, failure_of
from pdp.surfaces.http.handlers import response_of
from pdp.surfaces.http.requests import LONGEST_HEAD, MOST_HEADERS
from pdp.surfaces.refusals import Stranger

if TYPE_CHECKING:
    from pdp.surfaces.http.server import AiohttpServer

_LONGEST_LINE: Final = 8192
"""Bytes of a request line."""
_LONGEST_FIELD: Final = LONGEST_HEAD
"""Bytes of one header: its name, or its value. The longest token has room in it."""
_MALFORMED: Final = "the request is not valid HTTP"


class AiohttpConnection(web.RequestHandler):
    """Connection of aiohttp whose own errors have the product's form."""

    __slots__ = ("_malformed", "_parse_soon", "_refuse", "body")

    def __init__(self, server: AiohttpConnections, **settings: Any) -> None:
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


class AiohttpConnections(web.Server):
    """Connections of aiohttp of one server."""

    def __init__(self, server: AiohttpServer) -> None:
        self._server = server
        self._leaving: dict[Any, float] = {}
        """Connections that close after their present answer, and since when."""
        self._ended: set[Any] = set()
        """Closed connections, until the event loop tells so."""
        self._parsing: dict[AiohttpConnection, None] = {}
        """Connections that wait to parse more of a body, in order."""
        super().__init__(
            self._handle,
            auto_decompress=False,
            keepalive_timeout=server.idle_timeout,
            lingering_time=server.lingering,
            read_bufsize=server.read_ahead,
            timeout_ceil_threshold=3600,
            access_log=None,
            max_line_size=_LONGEST_LINE,
            max_field_size=_LONGEST_FIELD,
            max_headers=MOST_HEADERS,
        )

    def open(self) -> AiohttpConnection:
        """Return the protocol of a new connection."""
        return AiohttpConnection(self, loop=self._loop, **self._kwargs)

    def count(self) -> int:
        """Count the open connections."""
        return len(self._connections) - len(self._ended)

    def count_leaving(self) -> int:
        """Count the connections to be closed after the present answer."""
        return len(self._leaving)

    def parse_soon(self, connection: AiohttpConnection) -> None:
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

    def make_room(self, count: int) -> None:
        """Close some connections, each after its present answer."""
        staying = (one for one in self._connections if one not in self._leaving and one not in self._ended)
        for connection in [*islice(staying, count)]:  # the oldest
            connection.close()
            if connection._request_in_progress or connection._messages:  # noqa: SLF001  aiohttp does not tell
                self._leaving[connection] = time.monotonic()
            else:
                self._abort(connection)

    def end_leaving(self) -> bool:
        """Close the connection that was to leave first, if it had its time. Tell whether there was one."""
        connection, since = next(iter(self._leaving.items()), (None, inf))
        if time.monotonic() < since + self._server.patience:
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
        """Forget a connection when aiohttp does: at the end of its task."""
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
        if self._server.outcomes:
            answer = self._server.outcomes.failure(error, sender, "")
        else:
            failure = failure_of(error, "diagnostics", 0)
            answer = HttpAnswer(failure.status, failure.body, new_id())
        return _without_version(response_of(answer))

    async def _handle(self, request: web.BaseRequest) -> web.Response:
        connection = cast(AiohttpConnection, request.protocol)
        if connection.transport:
            connection.body = request.content
        try:
            response = _without_version(await self._server.route(request))
        except ConnectionError as error:  # the client is gone: no answer leaves
            error.with_traceback(None)  # its frames keep the request, which keeps the error
            if connection.transport:
                connection.transport.abort()
            return web.Response()
        if self._server.draining:
            response.force_close()
        return response


def _without_version(response: web.Response) -> web.Response:
    """Return a response that does not tell aiohttp's version, as aiohttp's own `Server` header does."""
    response.headers.setdefault("Server", "pdp")
    return response
