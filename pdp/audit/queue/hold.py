"""Gate between requests and the audit: requests wait for room, and answers for their records.

Knows numbers of records, and neither records nor sinks. Use in the event loop only, but for `wake`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from pdp.config.audit import Durability, OnFull
from pdp.errors import Unavailable

ROOM_SECONDS: Final = 0.01
"""Time between two looks for room while requests wait."""
SettledCall: TypeAlias = Callable[[Exception | None], None]
"""Call for an answer whose record is safe, or that may not leave because of an error."""
UNWRITTEN: Final = "the audit cannot be written, so nothing is decided"


class TrailState(Protocol):
    """State of a trail, as far as requests wait for it."""

    def taken(self) -> int:
        """Return the number of all records so far."""
        ...

    def durable(self) -> int:
        """Return the number of records that are safe on disk."""
        ...

    def is_failing(self) -> bool:
        """Tell whether records cannot be made safe at present."""
        ...

    def is_crowded(self) -> bool:
        """Tell whether so many records wait that requests have to."""
        ...

    def hurry(self) -> None:
        """Give all records to the sinks after the present turn of the event loop, and call `release` then."""
        ...


class AuditHold:
    """Gate of one trail. `holds`: answers have to wait for `durable`. `crowded`: requests have to wait for `room`."""

    def __init__(self, state: TrailState, durability: Durability, on_full: OnFull) -> None:
        self.holds = durability == "request"
        self.crowded = False
        self._blocks = on_full == "block"
        self._on_full = on_full
        self._state = state
        self._held: dict[SettledCall, int] = {}
        """Answers that wait, in order, each with the number of records that must be safe."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._room: asyncio.Event | None = None

    def look(self) -> None:
        """Look whether requests have to wait."""
        self.crowded = self._blocks and self._state.is_crowded()

    async def room(self) -> None:
        """Wait until requests need not wait any more."""
        while self.crowded:
            if self._room is None:
                self._room = asyncio.Event()
                asyncio.get_running_loop().call_later(ROOM_SECONDS, self._look_for_room)
            await self._room.wait()

    async def durable(self) -> None:
        """Wait until all records so far are safe on disk.

        While they cannot be made safe: raise Unavailable at once (`deny`), return at once (`drop`), or wait (`block`).
        """
        if self._is_safe():
            return
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settle(error: Exception | None) -> None:
            if waiting.done():
                return
            if error:
                waiting.set_exception(error)
            else:
                waiting.set_result(None)

        self._hold(settle)
        try:
            await waiting
        finally:
            self.forget(settle)

    def when_durable(self, settled: SettledCall) -> None:
        """Do the same as `durable` without waiting: call back later, with the error or None. Raise nothing."""
        self._hold(settled)

    def forget(self, settled: SettledCall) -> None:
        """Do not call back any more."""
        self._held.pop(settled, None)

    def _is_safe(self) -> bool:
        """Tell whether answers may leave now; raise Unavailable if no answer may leave."""
        return self._state.durable() >= self._state.taken() or self._gives_up()

    def _hold(self, settled: SettledCall) -> None:
        """Hold an answer until the trail has handed all records over, and then until they are safe."""
        self._loop = self._loop or asyncio.get_running_loop()
        self._held[settled] = self._state.taken()
        self._state.hurry()

    def wake(self) -> None:
        """Let go of answers whose records are safe. Call from any thread."""
        if self._held and self._loop:
            with contextlib.suppress(RuntimeError):  # the event loop has ended, and with it every request
                self._loop.call_soon_threadsafe(self.release)

    def _gives_up(self) -> bool:
        """Tell whether answers leave without a record on disk; raise Unavailable if no answer may leave."""
        if not self._state.is_failing():
            return False
        if self._on_full == "deny":
            raise Unavailable(UNWRITTEN)
        return self._on_full == "drop"

    def release(self) -> None:
        """Let go of answers whose records are safe, and of all if records cannot be made safe."""
        if not self._held:
            return
        safe, due = self._state.durable(), deque[tuple[SettledCall, bool]]()
        refused = False
        try:
            everybody = self._gives_up()
        except Unavailable:
            everybody = refused = True
        for settled, taken in self._held.items():
            if taken > safe and not everybody:
                break
            due.append((settled, refused and taken > safe))
        for settled, _ in due:
            del self._held[settled]
        self._settle(due)

    def _settle(self, due: deque[tuple[SettledCall, bool]]) -> None:
        """Call back in order. A call that raises does not hold up the others."""
        try:
            while due:
                settled, refused = due.popleft()
                settled(Unavailable(UNWRITTEN) if refused else None)
        finally:
            if due:
                asyncio.get_running_loop().call_soon(self._settle, due)

    def _look_for_room(self) -> None:
        self.look()
        if self.crowded:
            asyncio.get_running_loop().call_later(ROOM_SECONDS, self._look_for_room)
        elif self._room:
            self._room.set()
            self._room = None
