"""Limits on requests and bytes in flight, in total and per caller, and on the content of bodies.

Requests beyond a limit are refused at once; the content is bounded before a parser sees it.

A request arrives, then begins. Bytes count when they arrive, never when they are announced, and a place in flight is
taken once the body is whole. So a client that announces a body without sending one holds nothing that others need.

A parser makes an object of each value, also in unknown fields, and each part of a name costs a look. Both are counted
by signs, which takes a nanosecond for each byte. Signs inside of strings count, too.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from pdp.config.server import LimitSettings
from pdp.errors import Overloaded, PayloadTooLarge
from pdp.model.question import Caller

BODIES_IN_FLIGHT = 8
"""Bodies of the largest size that fit into memory at the same time."""


class AdmittedRequest:
    """One request that arrives or is in flight. `size` is in bytes: those that have arrived."""

    __slots__ = ("_admission", "_begun", "_caller", "size")

    def __init__(self, admission: Admission, caller: Caller) -> None:
        self._admission = admission
        self._caller = caller
        self._begun = False
        self.size = 0

    def grow(self, size: int) -> None:
        """Raise the request's size to `size` bytes; raise Overloaded if a limit of bytes is then exceeded."""
        if size > self.size:
            self._admission.reserve(self._caller.name, size - self.size)
            self.size = size

    def begin(self) -> None:
        """Count the request as in flight, now that its body is whole; raise Overloaded beyond a limit."""
        self._admission.check(self._caller, 0)
        self._admission.begin(self._caller.name)
        self._begun = True

    def release(self) -> None:
        """Count the request as answered. Call once."""
        self._admission.leave(self._caller.name, self.size, begun=self._begun)


class Admission:
    """Counter of requests and bytes in flight.

    One caller may have `max_requests // callers` requests in flight, and at least one; and `max_bytes // callers`
    bytes, and at least those of one body of the largest size.
    """

    def __init__(self, max_requests: int, max_bytes: int, callers: int) -> None:
        self._max_requests = max_requests
        self._max_bytes = max_bytes
        self._max_per_caller = max(1, max_requests // callers)
        self._few = min(max_requests, self._max_per_caller)
        self._max_bytes_per_caller = max_bytes // min(callers, BODIES_IN_FLIGHT)
        self._requests = 0
        """Requests that arrive or are in flight."""
        self._begun = 0
        self._by_caller: Counter[str] = Counter()
        self._bytes = 0
        self._bytes_by_caller: Counter[str] = Counter()
        self._empty: asyncio.Event | None = None

    async def idle(self) -> None:
        """Return once nothing arrives or is in flight."""
        self._empty = asyncio.Event()
        if self._requests:
            await self._empty.wait()

    @contextmanager
    def enter(self, caller: Caller, size: int) -> Iterator[AdmittedRequest]:
        """Count a whole request of `size` bytes until the block ends; raise Overloaded beyond a limit."""
        admitted = self.admit(caller, size)
        try:
            yield admitted
        finally:
            admitted.release()

    @contextmanager
    def arriving(self, caller: Caller) -> Iterator[AdmittedRequest]:
        """Count a request that arrives until the block ends; raise Overloaded if nothing more can begin now."""
        admitted = self.arrive(caller)
        try:
            yield admitted
        finally:
            admitted.release()

    def check(self, caller: Caller, size: int) -> None:
        """Raise Overloaded if a request of `size` bytes is beyond a limit. Count nothing."""
        if error := self.overload(caller, size):
            raise error

    def overload(self, caller: Caller, size: int) -> Overloaded | None:
        """Return the error if a request of `size` bytes is beyond a limit; None if it fits. Count nothing.

        This suffices for a request that is answered before any other can come.
        """
        # With so few requests in all, no caller has too many.
        if self._begun >= self._few and (
            self._begun >= self._max_requests or self._by_caller.get(caller.name, 0) >= self._max_per_caller
        ):
            return Overloaded(f"{self._max_requests} requests are in flight")
        if self._bytes + size <= self._max_bytes_per_caller or self._has_room(caller.name, size):
            return None
        return Overloaded("too many bytes are in flight")

    def arrive(self, caller: Caller) -> AdmittedRequest:
        """Count a request whose body arrives, until its release; raise Overloaded if nothing more can begin now."""
        self.check(caller, 0)
        self._requests += 1
        return AdmittedRequest(self, caller)

    def admit(self, caller: Caller, size: int) -> AdmittedRequest:
        """Count a whole request of `size` bytes until its release; raise Overloaded beyond a limit."""
        self.check(caller, size)
        admitted = self.arrive(caller)
        admitted.grow(size)
        admitted.begin()
        return admitted

    def begin(self, caller: str) -> None:
        """Count a request as in flight."""
        self._begun += 1
        self._by_caller[caller] += 1

    def leave(self, caller: str, size: int, *, begun: bool) -> None:
        """Stop counting a request of `size` bytes."""
        if begun:
            self._begun -= 1
            _subtract(self._by_caller, caller, 1)
        if size:
            self._bytes -= size
            _subtract(self._bytes_by_caller, caller, size)
        self._requests -= 1
        if self._empty and not self._requests:
            self._empty.set()

    def reserve(self, caller: str, size: int) -> None:
        """Count bytes that have arrived; raise Overloaded, and count none, if a limit would be exceeded."""
        if not self._has_room(caller, size):
            raise Overloaded("too many bytes are in flight")
        self._bytes += size
        self._bytes_by_caller[caller] += size

    def _has_room(self, caller: str, size: int) -> bool:
        whole = self._bytes + size
        if whole <= self._max_bytes_per_caller:
            return True
        return whole <= self._max_bytes and self._bytes_by_caller.get(caller, 0) + size <= self._max_bytes_per_caller


def _subtract(counts: Counter[str], caller: str, count: int) -> None:
    """Lower a count. Tokens name callers without bound, so keep no caller without a request."""
    counts[caller] -= count
    if not counts[caller]:
        del counts[caller]


_SIGNS: Final = b",{[/."
"""Each value follows one of the first three, or is the only one. Each part of a name follows one of the others."""
_TAGS: Final = b"\x0a\x1a\x8a\x9a/."
"""The same for protobuf: tags of fields 1 and 3, in short and long form. Each value of a list or map has such a tag."""
_SLICE: Final = 4 << 20
"""Bytes of a body that are counted before the event loop gets a turn."""
_TRINO_VALUES: Final = 10
"""Values of one resource in a body of Trino."""


class BodyLimits(NamedTuple):
    """Most bytes of a body, and most values and parts of names in a JSON body."""

    size: int
    values: int

    @classmethod
    def of_native(cls, limits: LimitSettings) -> BodyLimits:
        """Return the limits of the native bodies."""
        return cls(limits.max_body_bytes, limits.max_values)

    @classmethod
    def of_trino(cls, limits: LimitSettings) -> BodyLimits:
        """Return the limits of Trino's bodies, which have room for all resources of the largest batch."""
        values = max(limits.max_values, limits.trino_max_resources * _TRINO_VALUES)
        return cls(limits.trino_max_body_bytes, values)

    def is_below(self, body: bytes) -> bool:
        """Tell whether a body is too short for too many values."""
        return len(body) <= self.values

    async def check(self, body: bytes) -> None:
        """Raise PayloadTooLarge for a JSON body with too many values. Give the event loop turns."""
        if not self.is_below(body):
            await self._count(body, _SIGNS)

    async def check_message(self, body: bytes) -> None:
        """Raise PayloadTooLarge for a protobuf message with too many values. Give the event loop turns."""
        if not self.is_below(body):
            await self._count(body, _TAGS)

    async def _count(self, body: bytes, signs: bytes) -> None:
        count = 0
        for start in range(0, len(body), _SLICE):
            part = body[start : start + _SLICE]
            count += len(part) - len(part.translate(None, signs))
            if count > self.values:
                raise PayloadTooLarge(
                    f"the body has more than {self.values} values and parts of names, see `limits.max_values`"
                )
            await asyncio.sleep(0)
