"""The facts of a store in this process: loaded once, then kept up with the store's log.

Owns when the facts are replaced and how old they may be; what a change means is the facts' business, where it is
written the store's. Decisions read `facts` and never wait; whoever must see a certain revision waits here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

import structlog

from pdp.errors import ConfigError, Unavailable
from pdp.facts.objects import Change
from pdp.facts.snapshot import Facts
from pdp.store.store import EpochChanged, Store, advanced, seeded
from pdp.store.threads import Threads

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
    """Follows a store. `facts` only ever advance, but for a store whose history changed: then they are its own anew.

    One look at the store follows the other, and only a look brings in another history: what was read or written before
    the history changed cannot come back. Who wants a look while one is under way shares the next one with all others
    who do, so that readers are few however many ask, and never wait for those who write.
    """

    def __init__(
        self, store: Store, projects: Mapping[str, str], max_staleness_seconds: float, wait_seconds: float
    ) -> None:
        self._store = store
        self._projects = projects
        self._max_staleness = max_staleness_seconds
        self._wait_seconds = wait_seconds
        self._confirmed = time.monotonic()
        self._advanced = asyncio.Event()
        self._turn = asyncio.Lock()
        self._next: asyncio.Task[None] | None = None
        """The look that has not asked the store yet."""
        self.facts = self._load()
        self._waiting = Threads("store-waiting", 1)
        self._looking = Threads("store-looking", 1)
        self._writing = Threads("store-writing", 4)

    def age(self) -> float:
        """Seconds since the store last confirmed that the facts were its newest."""
        return time.monotonic() - self._confirmed

    def is_stale(self) -> bool:
        """Whether the facts are too old to permit anything."""
        return self.age() > self._max_staleness

    async def follow(self) -> None:
        """Keep up with the store until cancelled; while it does not answer, the facts age."""
        failing: type[Exception] | None = None
        patience = min(POLL_SECONDS, self._max_staleness / 4)  # a store that is only quiet must not make facts stale
        while True:
            try:
                await self._waiting.run(partial(self._store.wait, patience))
                await self._look()
                if failing:
                    log.info("store answers again", revision=_at(self.facts))
                failing = None
            except Exception as error:
                # a defect is no reason to stop: whoever follows no more never recovers, and until then the facts age
                if failing is not type(error):
                    defect = None if isinstance(error, Unavailable) else error
                    message = "store does not answer, decisions go on from memory"
                    log.warning(message, error=str(error.__cause__ or error), exc_info=defect)
                failing = type(error)
                await asyncio.sleep(_RETRY_SECONDS)

    async def catch_up(self) -> None:
        """See all that was committed before the call; raises Unavailable where the store does not answer."""
        await self._look()

    async def at_least(self, epoch: str, sequence: int) -> None:
        """Wait until the facts are of this revision or a later one; raises Unavailable after `wait_seconds`."""
        if _check_epoch(self.facts, epoch) and self.facts.sequence < sequence:
            self._ask()  # whoever knows the revision knows that it is there: no need to wait until the follower does
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
        for _ in range(2):
            try:
                written = await self._writing.run(partial(self._write, actor, decide))
            except EpochChanged:
                await self._look()  # nothing was written: it is for the new history to decide
            else:
                if written.epoch != self.facts.epoch:
                    raise Unavailable(
                        f"{_at(written)} was written, but the store now has the history {self.facts.epoch}"
                    )
                self._publish(written)
                return written
        raise Unavailable("the store's history changed again while it was written to")

    def close(self) -> None:
        """Let go of the store; `follow` must have been cancelled. A thread that a silent store keeps is not awaited."""
        self._store.close()
        for threads in (self._waiting, self._looking, self._writing):
            threads.close()
        self._store.close()  # once more, for what a thread still had in use

    def seed(self, actor: str, changes: Sequence[Change]) -> None:
        """Write the first revision of a store that has none, before anybody else does."""
        self.facts = seeded(self._store, actor, self.facts, changes)

    async def _look(self) -> None:
        """Have the newest facts published, and the store asked for them after this call."""
        await asyncio.shield(self._ask())  # one who gives up does not take the look from the others

    def _ask(self) -> asyncio.Task[None]:
        if self._next is None:
            self._next = asyncio.create_task(self._look_in_turn())
            self._next.add_done_callback(_retrieve)
        return self._next

    async def _look_in_turn(self) -> None:
        async with self._turn:
            self._next = None  # from here on a look is too early for those who come
            asked = time.monotonic()
            self._publish(await self._looking.run(self._newest))
            self._confirmed = asked

    def _publish(self, newest: Facts) -> None:
        """Only a newer revision of its history replaces the facts: a write may have been quicker than a look."""
        if newest.epoch == self.facts.epoch and newest.sequence <= self.facts.sequence:
            return
        self.facts = newest
        self._advanced.set()
        self._advanced = asyncio.Event()

    def _load(self) -> Facts:
        return self._store.load().with_projects(self._projects)

    def _newest(self) -> Facts:
        facts = self.facts
        with _while_running():
            try:
                return advanced(facts, self._store.since(facts))
            except EpochChanged as error:
                log.warning("store has another history, loading it anew", was=_at(facts), reason=str(error))
                return self._load()

    def _write(self, actor: str, decide: Callable[[Facts], Sequence[Change]]) -> Facts:
        facts = self.facts
        with _while_running():
            return advanced(facts, self._store.write(actor, facts, lambda seen: decide(advanced(facts, seen))))


@contextmanager
def _while_running() -> Iterator[None]:
    """Whatever keeps a store from answering is one thing to those who ask a running service.

    Its address and files are for the log alone.
    """
    try:
        yield
    except (ConfigError, Unavailable) as error:
        raise Unavailable("the store cannot be used now") from error


def _retrieve(look: asyncio.Task[None]) -> None:
    """A look that failed after all who wanted it have gone is nothing to complain of."""
    if not look.cancelled():
        look.exception()


def _check_epoch(facts: Facts, epoch: str) -> bool:
    """True; raises Unavailable where a revision of another epoch is asked for: it cannot be compared."""
    if epoch != facts.epoch:
        raise Unavailable(f"a revision of epoch {epoch} is not served: the store is at {_at(facts)}")
    return True


def _at(facts: Facts) -> str:
    return f"{facts.epoch}.{facts.sequence}"
