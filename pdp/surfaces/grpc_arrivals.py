"""Calls of gRPC whose request message has not arrived. Owns their deadline and their number; knows no method.

A handler of unary calls begins with the message, so a stream that never sends one would stay for ever. The handlers of
this service begin with the head of the call, and read the message here. A call that waits holds nothing that others
need: beyond the bound, the oldest call is ended, and a client that sends its message at once is never the oldest.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import grpc
from grpc.aio import AbortError

from pdp.errors import InvalidArgument

MOST_ARRIVING: Final = 1024
"""Calls of all connections that wait for their message at the same time."""
_SWEEP_SECONDS: Final = 0.5
"""Seconds between two looks for calls that wait too long."""


class Arrivals:
    """Calls that wait for their message: `most` of them, each for `seconds`."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most = most
        self._seconds = seconds
        self._waiting: dict[Any, float] = {}
        """Deadlines by the context of the call, in the order of both."""
        self._sweeper: asyncio.TimerHandle | None = None
        self._ends: set[asyncio.Task[None]] = set()

    async def receive(self, context: Any) -> bytes:
        """Return the request message of a call; raise InvalidArgument if the call ends without one.

        A call that waits too long gets its status here; then `AbortError` is raised.
        """
        loop = asyncio.get_running_loop()
        if len(self._waiting) >= self._most:
            self._end(next(iter(self._waiting)), grpc.StatusCode.RESOURCE_EXHAUSTED, "overloaded: too many calls wait")
        if self._sweeper is None:
            self._sweeper = loop.call_later(_SWEEP_SECONDS, self._sweep)
        self._waiting[context] = loop.time() + self._seconds
        try:
            message = await context.read()
        finally:
            self._waiting.pop(context, None)
        if message is grpc.aio.EOF:
            raise InvalidArgument("the call has no message")
        body: bytes = message
        return body

    def _sweep(self) -> None:
        """End the calls that wait too long, again and again while calls wait."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._waiting and next(iter(self._waiting.values())) < now:
            status = grpc.StatusCode.UNAVAILABLE
            self._end(next(iter(self._waiting)), status, "unavailable: the message did not arrive in time")
        self._sweeper = loop.call_later(_SWEEP_SECONDS, self._sweep) if self._waiting else None

    def _end(self, context: Any, status: grpc.StatusCode, details: str) -> None:
        del self._waiting[context]
        task = asyncio.get_running_loop().create_task(_abort(context, status, details))
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)


async def _abort(context: Any, status: grpc.StatusCode, details: str) -> None:
    """Send the status of a call while its handler reads. The handler then gets the same AbortError.

    The read is never cancelled: gRPC would keep its memory, because the core may still write to it.
    """
    try:
        await context.abort(status, details)
    except AbortError as error:
        error.with_traceback(None)
    except (grpc.aio.UsageError, grpc.aio.InternalError):
        return  # the call has just ended by itself
