"""Limits on requests and bytes in flight, in total and per caller. Requests beyond a limit are refused at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from pdp.errors import Overloaded
from pdp.model.checks import Caller

BODIES_IN_FLIGHT = 8
"""Bodies of the largest size that fit into memory at the same time."""


class AdmittedRequest:
    """One request in flight. `size` is in bytes: announced at first, corrected by `grow`."""

    __slots__ = ("_admission", "size")

    def __init__(self, admission: Admission, size: int) -> None:
        self._admission = admission
        self.size = size

    def grow(self, size: int) -> None:
        """Raise the request's size to `size` bytes; raise Overloaded if the total then exceeds its limit."""
        if size > self.size:
            self._admission.reserve(size - self.size)
            self.size = size


class Admission:
    """Counter of requests and bytes in flight.

    One caller may have `max_requests // callers` requests in flight, and at least one.
    """

    def __init__(self, max_requests: int, max_bytes: int, callers: int) -> None:
        self._max_requests = max_requests
        self._max_bytes = max_bytes
        self._max_per_caller = max(1, max_requests // callers)
        self._requests: Counter[str] = Counter()
        self._bytes = 0
        self._empty: asyncio.Event | None = None

    async def idle(self) -> None:
        """Return once nothing is in flight."""
        self._empty = asyncio.Event()
        if self._requests.total():
            await self._empty.wait()

    @contextmanager
    def enter(self, caller: Caller, size: int) -> Iterator[AdmittedRequest]:
        """Count a request that announces `size` bytes until the block ends; raise Overloaded beyond a limit."""
        if self._requests.total() >= self._max_requests or self._requests[caller.name] >= self._max_per_caller:
            raise Overloaded(f"{self._max_requests} requests are in flight")
        self.reserve(size)
        admitted = AdmittedRequest(self, size)
        self._requests[caller.name] += 1
        try:
            yield admitted
        finally:
            self._requests[caller.name] -= 1
            if not self._requests[caller.name]:
                del self._requests[caller.name]  # tokens name callers without bound: keep none that is idle
            self._bytes -= admitted.size
            if self._empty and not self._requests.total():
                self._empty.set()

    def reserve(self, size: int) -> None:
        """Count bytes; raise Overloaded, and count none, if the total would exceed its limit."""
        if self._bytes + size > self._max_bytes:
            raise Overloaded("too many bytes are in flight")
        self._bytes += size
