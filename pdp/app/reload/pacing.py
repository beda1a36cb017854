"""Work beside an event loop: a thread with so many rests that no request waits.

Threads of an interpreter take turns. A computing thread takes half of all turns, and every wait for a turn costs a
request time. So the thread works for a moment and then sleeps for a longer moment.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

WORK_SECONDS: Final = 0.0005
REST_SECONDS: Final = 0.0015
"""Longest work in one go, and the rest afterwards."""
SMALL_COLLECTIONS: Final = (2_000, 20, 500)
"""Thresholds of the garbage collector during the work. No rest is possible in a collection, so each must be short."""
T = TypeVar("T")


async def run_paced(work: Callable[[], T]) -> T:
    """Return the result of work in a resting thread; raise the errors of the work.

    The thread rests at calls of functions anywhere in the work.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is None:
            done.set_result(result)  # type: ignore[arg-type]
        else:
            done.set_exception(error)

    def run() -> None:
        result, failure = None, None
        sys.setprofile(_Pace())
        try:
            with _COLLECTIONS.small():
                result = work()
        except Exception as error:  # noqa: BLE001  raised where the work is awaited
            failure = error
        finally:
            sys.setprofile(None)
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=run, name="paced", daemon=True).start()
    return await done


class _Collections:
    """Thresholds of the garbage collector, which all threads share."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._usual = SMALL_COLLECTIONS

    @contextmanager
    def small(self) -> Iterator[None]:
        """Let collections be small meanwhile, until the last of several users ends."""
        with self._lock:
            if not self._users:
                self._usual = gc.get_threshold()
                gc.set_threshold(*SMALL_COLLECTIONS)
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    gc.set_threshold(*self._usual)


_COLLECTIONS: Final = _Collections()


class _Pace:
    """Function for the interpreter to call at each call of a function in the thread."""

    def __init__(self) -> None:
        self._clock = time.perf_counter
        self._until = self._clock() + WORK_SECONDS

    def __call__(self, frame: Any, event: str, argument: Any) -> None:
        if self._clock() > self._until:
            time.sleep(REST_SECONDS)
            self._until = self._clock() + WORK_SECONDS
