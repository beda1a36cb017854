"""HTTP connections that answer decisions. Plain requests are answered here; aiohttp answers all others.

Owns the order of requests and answers on a connection, the arrival of bodies, and deadlines. From the first byte of a
request that is not plain on, the connection belongs to aiohttp. So nothing is taken here that aiohttp would refuse.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from math import inf
from typing import Any, Final, cast

from pdp.errors import Overloaded
from pdp.identity.callers import Callers
from pdp.model.question import Caller
from pdp.surfaces.admission import Admission, AdmittedRequest
from pdp.surfaces.http.answers import HttpAnswer, ResponseHeads
from pdp.surfaces.http.requests import LONGEST_LENGTH, NoRequest, RequestReader, SimpleRequest, UnknownSender
from pdp.surfaces.http.routes import FAILURES, DecisionRoute, HeldAnswer
from pdp.surfaces.refusals import DECISION_ID, REQUEST_ID, Sender

LINGER_SECONDS: Final = 10.0
"""Time for the rest of a refused body, as aiohttp gives it. A client must be able to read the refusal."""
_MOST_PER_TURN: Final = 16
"""Most pipelined requests that are answered before the event loop gets a turn."""
FEW_OPEN: Final = 1
"""Open connections up to which each answer is sent at once. More clients may have sent requests at the same time."""
_MOST_UNSENT: Final = 1 << 16
"""Bytes of answers of one connection that wait to be sent together."""


class ConnectionContext:
    """All that the connections of one server share. Times are in seconds."""

    def __init__(
        self,
        routes: Mapping[str, DecisionRoute],
        callers: Callers,
        admission: Admission,
        idle_timeout: float,
        other: Callable[[], asyncio.Protocol],
    ) -> None:
        self.routes = {f"POST {path} HTTP/1.1": route for path, route in routes.items()}
        for path, route in routes.items():
            route.path = path
        self.callers = callers
        self.admission = admission
        self.idle_timeout = idle_timeout
        self.other = other
        """Factory of aiohttp's protocol."""
        self.loop = asyncio.get_running_loop()
        self.now = self.loop.time
        self.heads = ResponseHeads()
        self.open: set[HttpConnection] = set()
        self.draining = False
        """Tells whether connections close after the next answer."""
        self.closing = False
        self.all_closed = asyncio.Event()
        """Set when the last connection ends."""
        self._unsent: list[HttpConnection] = []

    def send_soon(self, connection: HttpConnection) -> None:
        """Send the answers of a connection when all requests that have arrived are answered.

        Each answer wakes a client. On a busy machine, this client then takes the processor from the requests behind.
        """
        if not self._unsent:
            self.loop.call_soon(self._flush)
        self._unsent.append(connection)

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        for connection in unsent:
            connection.flush()


class _ArrivingBody:
    """A body that comes in several packets."""

    __slots__ = ("caller", "content", "missing", "route")

    def __init__(self, route: DecisionRoute, caller: Caller, size: int) -> None:
        self.route = route
        self.caller = caller
        self.missing = size
        self.content = bytearray()


class HttpConnection(asyncio.Protocol):
    """One connection. Its requests are answered one at a time, in order.

    While `_busy`, received bytes wait, and nothing more is read: an answer is awaited, the client does not read, or the
    connection ends here.
    """

    __slots__ = (
        "_admitted", "_at", "_blocked", "_body", "_busy", "_gone", "_held", "_reader", "_reading_paused", "_shared",
        "_task", "_transport", "_unread", "_unsent", "_waiting", "deadline",
    )  # fmt: skip

    def __init__(self, shared: ConnectionContext) -> None:
        self._shared = shared
        self._transport: asyncio.Transport
        self._reader: RequestReader
        self._body: _ArrivingBody | None = None
        self._unread = 0
        """Bytes that are still to come of a refused body."""
        self._admitted: AdmittedRequest | None = None
        self._task: asyncio.Task[None] | None = None
        self._held: HeldAnswer | None = None
        self._unsent = b""
        self._waiting = b""
        self._at = 0
        """From here on, the waiting bytes are not yet looked at, or are the start of a head."""
        self._busy = self._blocked = self._gone = self._reading_paused = False
        self.deadline = shared.now() + shared.idle_timeout
        """Time of the event loop after which `expire` ends the state of the connection."""

    # --- called by the transport -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin a connection."""
        shared = self._shared
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        self._reader = RequestReader(shared.routes, shared.callers, self._transport)
        shared.open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection. Nobody waits for an answer any more, so none is made."""
        self._unsent = b""
        self._leave()
        self._release()
        if self._task:
            self._task.cancel()
        if self._held:
            self._held.forget()

    def eof_received(self) -> None:
        """Send the answers that wait. Then the transport closes."""
        self.flush()

    def pause_writing(self) -> None:
        """Answer no further request until the client reads."""
        self._blocked = self._busy = True

    def resume_writing(self) -> None:
        """Go on with the requests that wait."""
        self._blocked = False
        self._go_on()

    def data_received(self, data: bytes) -> None:
        """Answer the requests that are complete."""
        if self._busy:
            self._keep_waiting(data, 0)
            return
        if self._waiting:
            data, self._waiting = self._waiting[self._at :] + data, b""
        elif self._body is None and not self._unread and self._is_answered(data):
            return
        self._take(data, 0)

    # --- called by the server --------------------------------------------------------------------------------------

    def expire(self) -> None:
        """End a state that lasts too long: refuse a body that does not arrive, close in any other state."""
        if self._transport.is_closing():
            self._transport.abort()  # the client does not even read the last answer
        elif self._held:
            self._held.fail(TimeoutError())
        elif self._body:
            body = self._body
            self._fail(body.route, TimeoutError(), body.caller, body.missing)
        else:
            self._close()

    def close_if_idle(self) -> None:
        """Close the connection, unless a request is under way: then the connection closes after the answer."""
        if self.is_idle():
            self._close()

    def is_idle(self) -> bool:
        """Tell whether no request is under way. A part of a head is no request."""
        return self._body is None and self._task is None and self._held is None and not self._gone

    def is_arriving(self) -> bool:
        """Tell whether the body of a request has not arrived whole."""
        return self._body is not None

    def abort(self) -> None:
        """Close the connection in any state. From now on it does not count as open."""
        self._unsent = b""
        self._leave()
        self._transport.abort()

    # --- the order of requests -------------------------------------------------------------------------------------

    def _take(self, data: bytes, at: int) -> None:
        """Answer the requests in `data` from `at` on, in order, until one must wait."""
        end = len(data)
        for _ in range(_MOST_PER_TURN):
            at = self._request(data, at) if self._body is None and not self._unread else self._rest(data, at)
            if at >= end:
                return
            if self._busy:
                self._keep_waiting(data, at)
                return
        self._busy = True
        self._keep_waiting(data, at)
        self._shared.loop.call_soon(self._go_on)

    def _keep_waiting(self, data: bytes, at: int) -> None:
        """Keep bytes until the request before them is answered, and read no more: so the bytes are bounded."""
        if self._gone:
            return
        if self._waiting:
            self._waiting, self._at = self._waiting[self._at :] + data[at:], 0
        else:
            self._waiting, self._at = data, at
        if not self._reading_paused:
            self._reading_paused = True
            self._transport.pause_reading()

    def _go_on(self) -> None:
        """Look at the bytes that wait, and read again."""
        if self._task or self._held or self._blocked or self._gone:
            return
        self._busy = False
        data, self._waiting = self._waiting, b""
        if data:
            self._take(data, self._at)
        if not self._busy:
            self._resume_reading()

    def _resume_reading(self) -> None:
        if self._reading_paused:
            self._reading_paused = False
            self._transport.resume_reading()

    def _wait_for(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task. No deadline of the connection ends it."""
        self._task = self._shared.loop.create_task(work)
        self._busy = True
        self.deadline = inf

    # --- one request -----------------------------------------------------------------------------------------------

    def _is_answered(self, data: bytes) -> bool:
        """Answer a packet that is one whole request with the head of the one before; return False for any other.

        Most packets are such requests. The way of all others, `_take`, gives the same answer, in 1 us more.
        """
        reader = self._reader
        last = reader.last
        if last is None or not data.startswith(last.before):
            return False
        at = len(last.before)
        end = data.find(b"\r\n", at, at + LONGEST_LENGTH + 2)
        length, start = data[at:end], end + len(last.after)
        if not length.isdigit() or not data.startswith(last.after, end):
            return False
        size, route, caller = len(data) - start, last.route, last.known.caller
        if int(length) != size or size > route.max_body or not reader.is_still_known(last.known):
            return False
        if self._shared.admission.overload(caller, size):
            return False
        self._answer(route, data[start:], caller)
        return True

    def _request(self, data: bytes, at: int) -> int:
        """Begin the request at `at`; return the position after it."""
        request = self._reader.read(data, at)
        if type(request) is SimpleRequest:
            return self._begin(request, data)
        if request is NoRequest.FOREIGN:
            self._hand_over(data, at)
        elif request is NoRequest.INCOMPLETE:
            self._waiting, self._at = data, at
        else:
            self._wait_for(self._verify())
            self._keep_waiting(data, at)
        return len(data)

    async def _verify(self) -> None:
        """Verify the token of the request that waits, then begin the request again."""
        try:
            await self._reader.verify()
        finally:
            self._task = None
        self.deadline = self._shared.now() + self._shared.idle_timeout
        self._go_on()

    def _begin(self, request: SimpleRequest, data: bytes) -> int:
        """Answer a request, or await the rest of its body; return the position after it."""
        route, start, size, caller = request.route, request.start, request.size, request.caller
        end = start + size
        missing = end - len(data) if end > len(data) else 0
        if isinstance(caller, UnknownSender):
            self._fail(route, caller.error, caller.sender, missing)
            return end - missing
        # only bytes that have arrived count: an announced body may never come
        if overload := self._shared.admission.overload(caller, size - missing):
            self._fail(route, overload, caller, missing)
            return end - missing
        if not missing:
            self._answer(route, data[start:end], caller)
            return end
        self._admitted = self._shared.admission.arrive(caller)
        self._body = _ArrivingBody(route, caller, size)
        self.deadline = self._shared.now() + route.outcomes.timeout
        return self._rest(data, start)

    def _rest(self, data: bytes, at: int) -> int:
        """Take more of a body that arrives, or skip more of a refused body; return the position after it."""
        body = self._body
        if body is None:
            end = min(at + self._unread, len(data))
            self._unread -= end - at
            if not self._unread:
                self._end_request()
            return end
        end = min(at + body.missing, len(data))
        body.content += memoryview(data)[at:end]
        body.missing -= end - at
        if overload := self._count(body):
            self._fail(body.route, overload, body.caller, body.missing)
        elif not body.missing:
            self._body = None
            self._answer(body.route, bytes(body.content), body.caller, self.deadline)
        return end

    def _count(self, body: _ArrivingBody) -> Overloaded | None:
        """Count what has arrived of a body; return the error beyond a limit."""
        admitted = self._admitted
        assert admitted
        try:
            admitted.grow(len(body.content))
            if not body.missing:
                admitted.begin()
        except Overloaded as error:
            return error.with_traceback(None)  # its frames would keep the body
        return None

    def _answer(self, route: DecisionRoute, body: bytes, caller: Caller, deadline: float | None = None) -> None:
        answer = route.now(body, caller)
        if answer and not route.gate.holds:
            self._write(answer)
            return
        if self._admitted is None:
            self._admitted = self._shared.admission.admit(caller, len(body))
        if answer:
            self._send(route, answer, caller)
            return
        if deadline is None:
            deadline = self._shared.now() + route.outcomes.timeout
        self._wait_for(self._answer_later(route, body, caller, deadline))

    async def _answer_later(self, route: DecisionRoute, body: bytes, caller: Caller, deadline: float) -> None:
        try:
            answer = await route.later(body, caller, deadline)
            answer = await route.outcomes.settled(answer, caller, route.path, deadline)
        finally:
            self._task = None
        self._write(answer)
        self._go_on()

    def _send(self, route: DecisionRoute, answer: HttpAnswer, sender: Sender) -> None:
        """Write an answer, once its record is safe if answers have to wait for that."""
        if not route.gate.holds or answer.status >= FAILURES:
            self._write(answer)
            return
        self._busy = True
        self.deadline = self._shared.now() + route.outcomes.timeout
        self._held = HeldAnswer(route, answer, sender, self._send_held)

    def _send_held(self, answer: HttpAnswer) -> None:
        self._held = None
        self._write(answer)
        self._go_on()

    def _fail(self, route: DecisionRoute, error: Exception, sender: Sender, missing: int) -> None:
        """Refuse a request of whose body `missing` bytes have not arrived, and skip these."""
        self._body = None
        self._unread = missing
        self._send(route, route.outcomes.failure(error, sender, route.path), sender)

    def _write(self, answer: HttpAnswer) -> None:
        """Write an answer: soon, or at once if no other client can have sent a request, or if much waits.

        The connection is idle from then on, or skips the rest of the body.
        """
        shared, body, id = self._shared, answer.body, answer.decision_id
        now, heads = shared.now(), shared.heads
        if now >= heads.until:
            heads.begin_second(now)
        decision = f"{DECISION_ID}: {id}\r\n" if id else ""
        head = f"{heads[answer.status]}{len(body)}\r\n{REQUEST_ID}: {answer.request_id}\r\n{decision}\r\n"
        sent = head.encode() + body
        if self._unsent:
            self._unsent += sent
            if len(self._unsent) > _MOST_UNSENT:
                self.flush()
        elif len(shared.open) <= FEW_OPEN or len(sent) > _MOST_UNSENT:
            self._transport.write(sent)
        else:
            self._unsent = sent
            shared.send_soon(self)
        if self._admitted:
            self._release()
        if self._unread:
            self.deadline = now + LINGER_SECONDS
        else:
            self.deadline = now + shared.idle_timeout
            if shared.draining:
                self._close()

    def flush(self) -> None:
        """Send the answers that wait, unless the client has reset the connection."""
        if self._unsent:
            unsent, self._unsent = self._unsent, b""
            if not self._transport.is_closing():
                self._transport.write(unsent)

    def _end_request(self) -> None:
        """Wait for the next request; close the connection if the service stops."""
        self.deadline = self._shared.now() + self._shared.idle_timeout
        if self._shared.draining:
            self._close()

    def _release(self) -> None:
        if self._admitted:
            self._admitted.release()
            self._admitted = None

    # --- the end here ----------------------------------------------------------------------------------------------

    def _hand_over(self, data: bytes, at: int) -> None:
        """Give the connection to aiohttp, from the request at `at` on."""
        if self._shared.closing:
            self._close()
            return
        self.flush()
        self._leave()
        self._resume_reading()
        other = self._shared.other()
        self._transport.set_protocol(other)
        other.connection_made(self._transport)
        other.data_received(data[at:])

    def _close(self) -> None:
        """Close the connection once the client has read all answers, or after the idle timeout."""
        self.flush()
        self._gone = self._busy = True
        self.deadline = self._shared.now() + self._shared.idle_timeout
        self._transport.close()

    def _leave(self) -> None:
        self._gone = self._busy = True
        shared = self._shared
        shared.open.discard(self)
        if not shared.open:
            shared.all_closed.set()
