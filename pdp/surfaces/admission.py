"""What may be in flight at once: requests and bytes, globally and per caller; beyond that, refuse at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from pdp.errors import Overloaded
from pdp.model.checks import Caller

BODIES_IN_FLIGHT = 8
"""Bodies of the largest size that may be held at once."""


class AdmittedRequest:
    """One request in flight; `grow` accounts for bytes that were not announced."""

    __slots__ = ("_admission", "size")

    def __init__(self, admission: Admission, size: int) -> None:
        self._admission = admission
        self.size = size

    def grow(self, size: int) -> None:
        """The request holds `size` bytes by now; raises Overloaded where that is too much for all together."""
        if size > self.size:
            self._admission.take(size - self.size)
            self.size = size


class Admission:
    """Counts what is in flight. `share` is the part of all requests that one caller may have."""

    def __init__(self, max_requests: int, max_bytes: int, callers: int) -> None:
        self._max_requests = max_requests
        self._max_bytes = max_bytes
        self._share = max(1, max_requests // callers)
        self._requests: Counter[str] = Counter()
        self._bytes = 0
        self._quiet: asyncio.Event | None = None

    async def idle(self) -> None:
        """Return once nothing is in flight."""
        self._quiet = asyncio.Event()
        if self._requests.total():
            await self._quiet.wait()

    @contextmanager
    def enter(self, caller: Caller, size: int) -> Iterator[AdmittedRequest]:
        """Hold a place for a request that announces `size` bytes; raises Overloaded where there is none."""
        if self._requests.total() >= self._max_requests or self._requests[caller.name] >= self._share:
            raise Overloaded(f"{self._max_requests} requests are in flight")
        self.take(size)
        admitted = AdmittedRequest(self, size)
        self._requests[caller.name] += 1
        try:
            yield admitted
        finally:
            self._requests[caller.name] -= 1
            if not self._requests[caller.name]:
                del self._requests[caller.name]  # callers are as many as there are tokens
            self._bytes -= admitted.size
            if self._quiet and not self._requests.total():
                self._quiet.set()

    def take(self, size: int) -> None:
        """Account for bytes; raises Overloaded, taking none, where they are too many."""
        if self._bytes + size > self._max_bytes:
            raise Overloaded("too many bytes are in flight")
        self._bytes += size
