"""Threads for calls that block: a fixed number of them, and none that keeps the process from ending.

The threads of concurrent.futures are waited for when the interpreter ends, however long a silent database keeps one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, TypeVar

from pdp.errors import Unavailable

T = TypeVar("T")
_FAREWELL_SECONDS: Final = 1.0
"""How long what still runs may take to end in order."""


class Threads:
    """At most `width` calls at once, the others in the order in which they came."""

    def __init__(self, name: str, width: int) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._threads = [Thread(target=self._work, name=f"{name}-{n}", daemon=True) for n in range(width)]
        self._closed = False
        for thread in self._threads:
            thread.start()

    async def run(self, call: Callable[[], T]) -> T:
        """What the call returns or raises. Cancelled, a call that has begun goes on, and nobody learns how it ends."""
        if self._closed:
            raise Unavailable("the store is closed")
        future: Future[T] = Future()
        self._calls.put((future, call))
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """End once all calls are done; a thread that takes longer than a moment is left to itself."""
        self._closed = True
        for _ in self._threads:
            self._calls.put(None)
        deadline = time.monotonic() + _FAREWELL_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _work(self) -> None:
        while (asked := self._calls.get()) is not None:
            future, call = asked
            if future.set_running_or_notify_cancel():
                _settle(future, call)
            del asked, future, call  # what they hold can be as large as the world


def _settle(future: Future[T], call: Callable[[], T]) -> None:
    try:
        found = call()
    except BaseException as error:  # noqa: BLE001  whoever waits for the call gets it
        future.set_exception(error)
    else:
        future.set_result(found)
