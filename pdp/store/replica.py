"""The facts of a store in this process: loaded once, then kept up with the store's log.

Owns when the facts are replaced and how old they may be; what a change means is the facts' business, where it is
written the store's. Decisions read `facts` and never wait; whoever must see a certain revision waits here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import structlog

from pdp.errors import ConfigError, Unavailable
from pdp.facts import Facts
from pdp.objects import Change
from pdp.store.store import EpochChanged, Store, advanced

T = TypeVar("T")
POLL_SECONDS: Final = 1.0
"""The longest wait for news; the store is asked at least so often."""
_RETRY_SECONDS: Final = 0.5
log = structlog.get_logger()


class FixedFacts:
    """Facts that nothing changes: those of a world file."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    def age(self) -> float:
        """They are never old."""
        return 0.0

    def is_stale(self) -> bool:
        """They never are."""
        return False

    async def catch_up(self) -> None:
        """There is nothing to catch up with."""

    async def at_least(self, epoch: str, sequence: int) -> None:
        """Raise Unavailable where the facts are not of this revision or a later one."""
        _check_epoch(self.facts, epoch)
        if sequence > self.facts.sequence:
            raise Unavailable(f"revision {epoch}.{sequence} is not served: the world is {_at(self.facts)}")


class Replica:
    """Follows a store. `facts` only ever advance, but for a store whose history changed: then they are its own anew."""

    def __init__(
        self, store: Store, projects: Mapping[str, str], max_staleness_seconds: float, wait_seconds: float
    ) -> None:
        self._store = store
        self._projects = projects
        self._max_staleness = max_staleness_seconds
        self._wait_seconds = wait_seconds
        self._threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="store")
        self._follower = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store-follower")
        self._confirmed = time.monotonic()
        self._advanced = asyncio.Event()
        self.facts = self._load()

    def age(self) -> float:
        """Seconds since the store last confirmed that the facts were its newest."""
        return time.monotonic() - self._confirmed

    def is_stale(self) -> bool:
        """Whether the facts are too old to permit anything."""
        return self.age() > self._max_staleness

    async def follow(self) -> None:
        """Keep up with the store until cancelled; while it does not answer, the facts age."""
        failing = False
        while True:
            try:
                asked, newest = await asyncio.get_running_loop().run_in_executor(self._follower, self._news)
                self._confirm(asked, newest)
                if failing:
                    log.info("store answers again", revision=_at(self.facts))
                failing = False
            except (Unavailable, ConfigError) as error:
                if not failing:
                    log.warning("store does not answer, decisions go on from memory", error=str(error))
                failing = True
                await asyncio.sleep(_RETRY_SECONDS)

    async def catch_up(self) -> None:
        """See all that was committed before the call; raises Unavailable where the store does not answer."""
        asked = time.monotonic()
        self._confirm(asked, await self._in_thread(self._newest))

    async def at_least(self, epoch: str, sequence: int) -> None:
        """Wait until the facts are of this revision or a later one; raises Unavailable after `wait_seconds`."""
        try:
            async with asyncio.timeout(self._wait_seconds):
                while _check_epoch(self.facts, epoch) and self.facts.sequence < sequence:
                    await self._advanced.wait()
        except TimeoutError:
            waited = f"waited {self._wait_seconds:g} seconds for revision {epoch}.{sequence}"
            raise Unavailable(f"{waited}, the store is at {_at(self.facts)}") from None

    async def write(self, actor: str, decide: Callable[[Facts], Sequence[Change]]) -> Facts:
        """Write the changes that `decide` makes of the store's newest facts; the facts after it.

        `decide` runs inside the transaction, in another thread; what it raises undoes all and comes back from here.
        Raises Unavailable where the store does not answer: then nothing, or the whole of it, was written.
        """
        written = await self._in_thread(lambda: self._write(actor, decide))
        self._publish(written)
        return written

    def close(self) -> None:
        """Let go of the store; `follow` must have been cancelled."""
        self._store.close()
        for threads in (self._threads, self._follower):
            threads.shutdown(wait=True, cancel_futures=True)

    def seed(self, actor: str, changes: Sequence[Change]) -> None:
        """Write the first revision of a store that has none, before anybody else does."""
        if self.facts.sequence == 0:
            log = self._store.write(actor, self.facts, lambda log: () if log else changes)
            self.facts = advanced(self.facts, log)

    def _news(self) -> tuple[float, Facts]:
        """Wait until there may be news; the newest facts, and when the store was asked for them."""
        self._store.wait(POLL_SECONDS)
        asked = time.monotonic()
        return asked, self._newest()

    def _confirm(self, asked: float, newest: Facts) -> None:
        self._publish(newest)
        self._confirmed = max(self._confirmed, asked)

    def _publish(self, newest: Facts) -> None:
        """Only a newer revision replaces the facts: two threads may have read the log at once."""
        if newest.epoch == self.facts.epoch and newest.sequence <= self.facts.sequence:
            return
        self.facts = newest
        self._advanced.set()
        self._advanced = asyncio.Event()

    def _load(self) -> Facts:
        facts = self._store.load()
        try:
            return facts.with_projects(self._projects)
        except ValueError as error:
            raise ConfigError(f"`warehouses` contradicts the store: {error}") from None

    def _newest(self) -> Facts:
        facts = self.facts
        try:
            return advanced(facts, self._store.since(facts))
        except EpochChanged as error:
            log.warning("store has another history, loading it anew", was=_at(facts), reason=str(error))
            return self._load()

    def _write(self, actor: str, decide: Callable[[Facts], Sequence[Change]]) -> Facts:
        facts = self.facts
        try:
            return advanced(facts, self._store.write(actor, facts, lambda log: decide(advanced(facts, log))))
        except EpochChanged:
            anew = self._load()
            return advanced(anew, self._store.write(actor, anew, lambda log: decide(advanced(anew, log))))

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)


def _check_epoch(facts: Facts, epoch: str) -> bool:
    """True; raises Unavailable where a revision of another epoch is asked for: it cannot be compared."""
    if epoch != facts.epoch:
        raise Unavailable(f"a revision of epoch {epoch} is not served: the store is at {_at(facts)}")
    return True


def _at(facts: Facts) -> str:
    return f"{facts.epoch}.{facts.sequence}"
