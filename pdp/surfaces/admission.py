"""Limits on requests and bytes in flight, in total and per caller. Requests beyond a limit are refused at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from pdp.errors import Overloaded
from pdp.model.checks import Caller

BODIES_IN_FLIGHT = 8
"""Bodies of the largest size that fit into memory at the same time."""


class AdmittedRequest:
    """One request in flight. `size` is in bytes: announced at first, corrected by `grow`."""

    __slots__ = ("_admission", "_caller", "size")

    def __init__(self, admission: Admission, caller: str, size: int) -> None:
        self._admission = admission
        self._caller = caller
        self.size = size

    def grow(self, size: int) -> None:
        """Raise the request's size to `size` bytes; raise Overloaded if the total then exceeds its limit."""
        if size > self.size:
            self._admission.reserve(size - self.size)
            self.size = size

    def release(self) -> None:
        """Count the request as answered. Call once."""
        self._admission.leave(self._caller, self.size)


class Admission:
    """Counter of requests and bytes in flight.

    One caller may have `max_requests // callers` requests in flight, and at least one.
    """

    def __init__(self, max_requests: int, max_bytes: int, callers: int) -> None:
        self._max_requests = max_requests
        self._max_bytes = max_bytes
        self._max_per_caller = max(1, max_requests // callers)
        self._requests = 0
        self._by_caller: dict[str, int] = {}
        self._bytes = 0
        self._empty: asyncio.Event | None = None

    async def idle(self) -> None:
        """Return once nothing is in flight."""
        self._empty = asyncio.Event()
        if self._requests:
            await self._empty.wait()

    @contextmanager
    def enter(self, caller: Caller, size: int) -> Iterator[AdmittedRequest]:
        """Count a request that announces `size` bytes until the block ends; raise Overloaded beyond a limit."""
        admitted = self.admit(caller, size)
        try:
            yield admitted
        finally:
            admitted.release()

    def check(self, caller: Caller, size: int) -> None:
        """Raise Overloaded if a request that announces `size` bytes is beyond a limit. Count nothing."""
        if error := self.overload(caller, size):
            raise error

    def overload(self, caller: Caller, size: int) -> Overloaded | None:
        """Return the error if a request that announces `size` bytes is beyond a limit; None if it fits. Count nothing.

        This suffices for a request that is answered before any other can come.
        """
        if self._requests >= self._max_requests or self._by_caller.get(caller.name, 0) >= self._max_per_caller:
            return Overloaded(f"{self._max_requests} requests are in flight")
        if self._bytes + size > self._max_bytes:
            return Overloaded("too many bytes are in flight")
        return None

    def admit(self, caller: Caller, size: int) -> AdmittedRequest:
        """Count a request that announces `size` bytes until its release; raise Overloaded beyond a limit."""
        self.check(caller, size)
        name = caller.name
        self._by_caller[name] = self._by_caller.get(name, 0) + 1
        self._requests += 1
        self._bytes += size
        return AdmittedRequest(self, name, size)

    def leave(self, caller: str, size: int) -> None:
        """Stop counting a request of `size` bytes."""
        own = self._by_caller.pop(caller) - 1  # tokens name callers without bound: keep none that is idle
        if own:
            self._by_caller[caller] = own
        self._requests -= 1
        self._bytes -= size
        if self._empty and not self._requests:
            self._empty.set()

    def reserve(self, size: int) -> None:
        """Count bytes; raise Overloaded, and count none, if the total would exceed its limit."""
        if self._bytes + size > self._max_bytes:
            raise Overloaded("too many bytes are in flight")
        self._bytes += size
