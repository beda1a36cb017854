"""Turns of the event loop during long work: by time in the decision, in a thread of their own for pure conversions.

Knows neither checks nor bodies.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import time
from collections.abc import Awaitable, Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

T = TypeVar("T")

Resumable: TypeAlias = Generator[None, None, T]
"""Work that gives up control after each step, and returns a T at the end."""
AwaitingResumable: TypeAlias = Generator[Awaitable[None] | None, None, T]
"""Such work that may wait for something: a step then yields it."""
TURN_SECONDS: Final = 0.004
"""Time of work after which other requests get a turn."""
LONGEST_IMMEDIATE: Final = 256 << 10
"""Bytes of a body that is answered without turns of the event loop."""
_LARGE_BODY: Final = 1 << 16
"""Bytes of a body that a thread converts."""
_SWITCH_SECONDS: Final = 0.0005
"""Time after which a working thread gives the interpreter to the event loop."""


class TurnClock:
    """Clock of the turns of one long work. `is_over` costs less than a tenth of a microsecond."""

    __slots__ = ("_end",)

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin a turn: call after others had theirs."""
        self._end = time.perf_counter() + TURN_SECONDS

    def is_over(self) -> bool:
        """Tell whether the work shall give up control now."""
        return time.perf_counter() > self._end


def finish(steps: Resumable[T]) -> T:
    """Return the result of work without a turn for others."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


async def finish_in_turns(steps: AwaitingResumable[T]) -> T:
    """Return the result of work, with a turn for others after each step."""
    while True:
        try:
            awaited = next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        await (asyncio.sleep(0) if awaited is None else awaited)


def each_in_turns(function: Callable[..., T], *columns: Iterable[Any]) -> Resumable[list[T]]:
    """Return the results of a function on each row of columns."""
    results, pace = list[T](), TurnClock()
    for result in map(function, *columns):
        results.append(result)
        if pace.is_over():
            yield
            pace.begin()
    return results


class _Aside:
    """One thread for the conversions of all large bodies: more threads would take more of the interpreter's time."""

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._waiting = 0
        self._usual = 0.0

    async def run(self, work: Callable[..., T], *arguments: object) -> T:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "aside")
        if not self._waiting:
            self._usual = sys.getswitchinterval()
            sys.setswitchinterval(_SWITCH_SECONDS)
        self._waiting += 1
        try:
            # as asyncio.to_thread: the work sees the context of the request
            call = partial(contextvars.copy_context().run, work, *arguments)
            return await asyncio.get_running_loop().run_in_executor(self._thread, call)
        finally:
            self._waiting -= 1
            if not self._waiting:
                sys.setswitchinterval(self._usual)


_ASIDE: Final = _Aside()


async def converted(body: bytes, work: Callable[..., T], *arguments: object) -> T:
    """Return the result of pure work on a body, beside the event loop if the body is large."""
    if len(body) < _LARGE_BODY:
        return work(body, *arguments)
    return await run_aside(work, body, *arguments)


async def run_aside(work: Callable[..., T], *arguments: object) -> T:
    """Return the result of pure work, done in a thread beside the event loop. One such work runs at a time."""
    return await _ASIDE.run(work, *arguments)
