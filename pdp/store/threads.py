"""Threads in which a store blocks, beside the loop.

The interpreter waits at the end for threads of concurrent.futures, even if a silent database holds a thread for long.
Threads of this module do not delay the end of the process.
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
_CLOSE_SECONDS: Final = 1.0
"""Time for running calls to end at `close`."""


class Threads:
    """Pool of `width` daemon threads. Calls start in order of arrival."""

    def __init__(self, name: str, width: int) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._threads = [Thread(target=self._work, name=f"{name}-{n}", daemon=True) for n in range(width)]
        self._closed = False
        for thread in self._threads:
            thread.start()

    async def run(self, call: Callable[[], T]) -> T:
        """Return or raise the result of the call; raise Unavailable if the threads are closed.

        A running call goes on after a cancellation, and its result is lost.
        """
        if self._closed:
            raise Unavailable("the store is closed")
        future: Future[T] = Future()
        self._calls.put((future, call))
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """End all threads after the queued calls; abandon a thread that takes more than a second."""
        self._closed = True
        for _ in self._threads:
            self._calls.put(None)
        deadline = time.monotonic() + _CLOSE_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _work(self) -> None:
        while (job := self._calls.get()) is not None:
            future, call = job
            if future.set_running_or_notify_cancel():
                _settle(future, call)
            del job, future, call  # an idle thread would keep a whole snapshot alive


def _settle(future: Future[T], call: Callable[[], T]) -> None:
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001  the caller of `run` gets every exception
        future.set_exception(error)
    else:
        future.set_result(result)
