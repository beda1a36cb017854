"""Replica: the facts of a store in this process, loaded once and then advanced with the store's log.

Owns the replacement of the facts and their age. Decisions read `facts` and never wait; only a caller that demands a
certain revision waits here. A large world stops no thread for long: no garbage is collected during the load, and
replaced facts are released in steps.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from threading import Thread
from typing import Final, Protocol

import structlog

from pdp.errors import ConfigError, Unavailable
from pdp.facts.objects import Change
from pdp.facts.snapshot import Facts, release_in_steps, without_collection
from pdp.model.bounded_cache import BoundedCache
from pdp.model.revision import Revision
from pdp.store.store import CommitGate, EpochChanged, LogEntry, Store, apply_log, write_seed
from pdp.store.threads import Threads

POLL_SECONDS: Final = 1.0
"""Longest time between two refreshes."""
_RETRY_SECONDS: Final = 0.5
_WRITE_ATTEMPTS: Final = 2
_KNOWN_TOKENS: Final = 10_000
_MANY_CHANGES: Final = 1_000
"""Changes after which the facts leave the collections of garbage: facts have no cycles, and each search visits all."""
_MOST_CHANGES: Final = 20_000
"""Changes after which the memory of the facts before is released in steps."""
MOST_MISSED: Final = 10_000
"""Revisions that a history gets from the log of the store when the service starts."""
log = structlog.get_logger()


class FactsRecorder(Protocol):
    """Destination of all facts that decide. Calls come from several threads, and wait for a bounded time."""

    def newest(self, epoch: str) -> Revision | None:
        """Return the newest revision of an epoch that was taken before; None without any."""
        ...

    def begin(self, facts: Facts, before: Sequence[LogEntry] = ()) -> None:
        """Take the first facts of an epoch, with the revisions since `newest` if they are known."""
        ...

    def follow(self, facts: Facts, revisions: Sequence[LogEntry]) -> None:
        """Take newer facts and the revisions that lead to them, before the facts decide."""
        ...


class FixedFacts:
    """Facts of a world file, which never change."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    def record_to(self, recorder: FactsRecorder) -> None:
        """Hand the facts to a recorder."""
        recorder.begin(self.facts)

    def age(self) -> float:
        """Return 0: fixed facts do not age."""
        return 0.0

    def is_stale(self) -> bool:
        """Return False: fixed facts are never stale."""
        return False

    async def catch_up(self) -> None:
        """Do nothing: there is no newer revision."""

    async def at_least(self, revision: Revision) -> None:
        """Raise Unavailable unless the facts are of this revision or a later one."""
        _check_epoch(self.facts, revision)
        if revision.sequence > self.facts.sequence or revision.token:
            raise Unavailable(f"revision {_shown(revision)} is not served: the world is {self.facts.revision()}")


class Replica:
    """Follower of a store. Within an epoch `facts` only ever advance; a changed epoch replaces `facts` as a whole.

    A refresh asks the store for its log and publishes newer facts. Refreshes run one after the other, and a refresh
    alone changes the epoch: a slow read or write from before the change cannot bring the old history back. A caller
    that needs a refresh during another one shares the next refresh with all other such callers, so that reads of the
    store stay few under any load. Refreshes and writes have threads of their own, so that neither waits for the other.
    """

    def __init__(
        self, store: Store, projects: Mapping[str, str], max_staleness_seconds: float, wait_seconds: float
    ) -> None:
        self._store = store
        self._projects = projects
        self._max_staleness = max_staleness_seconds
        self._wait_seconds = wait_seconds
        self._confirmed = time.monotonic()
        """Time at which `facts` were certainly the newest."""
        self._advanced = asyncio.Event()
        """Set and replaced at each publication."""
        self._refresh_lock = asyncio.Lock()
        self._next_refresh: asyncio.Task[None] | None = None
        """The refresh that has not begun to read the store, so that more callers can join."""
        self._recorder: FactsRecorder | None = None
        self.facts = self._load()
        self._wait_threads = Threads("store-waiting", 1)
        self._refresh_threads = Threads("store-looking", 1)
        self._write_threads = Threads("store-writing", 4)
        self._token_threads = Threads("store-tokens", 1)
        self._tokens: BoundedCache[tuple[str, int], str] = BoundedCache(_KNOWN_TOKENS)
        """Tokens by epoch and sequence, of revisions that callers demanded or that were published."""

    def age(self) -> float:
        """Return the seconds since the store last confirmed that the facts were the newest."""
        return time.monotonic() - self._confirmed

    def is_stale(self) -> bool:
        """Tell whether the facts are too old to permit anything."""
        return time.monotonic() - self._confirmed > self._max_staleness

    def record_to(self, recorder: FactsRecorder) -> None:
        """Hand the facts, and all later ones before they decide, to a recorder. Call before `follow`."""
        newest = recorder.newest(self.facts.epoch)
        missed: Sequence[LogEntry] = ()
        if newest is not None:
            try:
                missed = self._missed(newest)
            except EpochChanged as error:
                # The store was restored to an earlier revision while no service ran. Only the recorder knew of later
                # revisions, and the store has renewed its epoch by now: no revision names two states of the facts.
                log.warning("store has lost revisions, loading it anew", recorded=str(newest), cause=str(error))
                self.facts = self._load()
            except Unavailable:
                pass  # a snapshot takes the place of the revisions
        self._recorder = recorder
        recorder.begin(self.facts, missed)

    def _missed(self, newest: Revision) -> Sequence[LogEntry]:
        """Return the log after a recorded revision, nothing for a long one; raise EpochChanged if it is a lost one."""
        recorded = replace(self.facts, sequence=newest.sequence, token=newest.token)
        is_near = self.facts.sequence - newest.sequence <= MOST_MISSED
        if is_near or (newest.token and self._store.token_of(self.facts, newest.sequence) != newest.token):
            return self._store.since(recorded)
        return ()

    async def follow(self) -> None:
        """Refresh after each commit until cancelled; while the store does not answer, log once and let the facts age.

        Retry after every kind of exception, even a defect: without a follower the facts would never recover.
        """
        failing: type[Exception] | None = None
        # refresh well within the limit, so that facts of a store without commits do not become stale
        interval = min(POLL_SECONDS, self._max_staleness / 4)
        while True:
            try:
                await self._wait_threads.run(partial(self._store.wait, interval))
                await self._refresh()
                if failing:
                    log.info("store answers again", revision=str(self.facts.revision()))
                failing = None
            except Exception as error:
                if failing is not type(error):
                    defect = None if isinstance(error, Unavailable) else error
                    message = "store does not answer, decisions go on from memory"
                    log.warning(message, cause=str(error.__cause__ or error), exc_info=defect)
                failing = type(error)
                await asyncio.sleep(_RETRY_SECONDS)

    async def catch_up(self) -> None:
        """Wait until `facts` include all commits before the call; raise Unavailable if the store does not answer."""
        await self._refresh()

    async def at_least(self, revision: Revision) -> None:
        """Wait until `facts` are of this revision or a later one.

        Raise Unavailable after `wait_seconds`, and for a revision that is not in the history of the facts.
        """
        sequence = revision.sequence
        if _check_epoch(self.facts, revision) and self.facts.sequence < sequence:
            self._request_refresh()  # the revision is known to the caller, so committed: do not wait for the follower
        try:
            async with asyncio.timeout(self._wait_seconds):
                while _check_epoch(self.facts, revision) and self.facts.sequence < sequence:
                    await self._advanced.wait()
                await self._require_history(revision)
        except TimeoutError:
            waited = f"waited {self._wait_seconds:g} seconds for revision {_shown(revision)}"
            raise Unavailable(f"{waited}, the store is at {self.facts.revision()}") from None

    async def _require_history(self, revision: Revision) -> None:
        """Raise Unavailable unless the facts follow from a revision. Without a token, the number alone counts."""
        facts = self.facts
        if not revision.token or revision == facts.revision(revision.digest):
            return
        key = revision.epoch, revision.sequence
        token = self._tokens.get(key)
        if token is None:
            try:
                token = await self._token_threads.run(partial(self._read_token, facts, revision.sequence))
                self._tokens.keep(key, token)
            except EpochChanged:
                await self._refresh()
        if token != revision.token:
            lost = f"revision {_shown(revision)} is of a history that the store has lost"
            raise Unavailable(f"{lost}: the store is at {self.facts.revision()}")

    def _read_token(self, facts: Facts, sequence: int) -> str:
        with _hide_store_errors():
            return self._store.token_of(facts, sequence)

    async def write(self, actor: str, decide: Callable[[Facts], Sequence[Change]]) -> Facts:
        """Write the changes that `decide` makes from the store's newest facts; publish and return the facts after it.

        `decide` runs inside the transaction, in another thread. An exception from `decide` cancels the write and is
        raised here. Raise Unavailable if the store does not answer: then all of the write happened, or none.

        A cancellation, by the time limit of the request for example, is final: nothing is committed after it. If the
        commit has begun, the cancellation is too late, and the write is finished.
        """
        for _ in range(_WRITE_ATTEMPTS):
            try:
                written = await self._write_or_give_up(actor, decide)
            except EpochChanged:
                await self._refresh()  # nothing was written: load the new history, and let `decide` decide on that
            else:
                # the epoch may have changed between the commit and this line: the write may then be lost
                if written.epoch != self.facts.epoch:
                    raise Unavailable(
                        f"{written.revision()} was written, but the store now has the history {self.facts.epoch}"
                    )
                self._publish(written)
                return written
        raise Unavailable("the store's history changed again while it was written to")

    async def _write_or_give_up(self, actor: str, decide: Callable[[Facts], Sequence[Change]]) -> Facts:
        gate = CommitGate()
        writing = asyncio.ensure_future(self._write_threads.run(partial(self._write, actor, decide, gate)))
        while True:
            try:
                return await asyncio.shield(writing)
            except asyncio.CancelledError:
                if gate.give_up():
                    writing.cancel()
                    raise

    def close(self) -> None:
        """Release the store. Cancel `follow` before; abandon a thread that waits for a silent store."""
        self._store.close()
        for threads in (self._wait_threads, self._refresh_threads, self._write_threads, self._token_threads):
            threads.close()
        self._store.close()  # again, for connections that the threads had in use

    def seed(self, actor: str, changes: Sequence[Change]) -> None:
        """Write the first revision of an empty store. Call before `follow`."""
        self.facts = write_seed(self._store, actor, self.facts, changes)

    async def _refresh(self) -> None:
        """Wait for a refresh that begins after this call."""
        await asyncio.shield(self._request_refresh())  # a cancelled caller must not end what others share

    def _request_refresh(self) -> asyncio.Task[None]:
        if self._next_refresh is None:
            self._next_refresh = asyncio.create_task(self._refresh_in_turn())
            self._next_refresh.add_done_callback(_retrieve_exception)
        return self._next_refresh

    async def _refresh_in_turn(self) -> None:
        async with self._refresh_lock:
            # The read begins now. A caller from here on may know of a later commit and needs the next refresh.
            self._next_refresh = None
            begun = time.monotonic()
            self._publish(await self._refresh_threads.run(self._read_newest))
            # the facts were the newest when the read began; at its end newer ones may exist
            self._confirmed = begun

    def _publish(self, newest: Facts) -> None:
        """Replace the facts by newer ones or by those of a new epoch; ignore older ones.

        A refresh and writes run at the same time: a refresh can return facts from before a write already published.
        """
        if newest.epoch == self.facts.epoch and newest.sequence <= self.facts.sequence:
            return
        self.facts = newest
        self._tokens.keep((newest.epoch, newest.sequence), newest.token)
        self._advanced.set()
        self._advanced = asyncio.Event()

    def _load(self) -> Facts:
        return self._store.load().with_projects(self._projects)

    def _read_newest(self) -> Facts:
        facts = self.facts
        with _hide_store_errors(), without_collection():
            try:
                return self._follow_log(facts, list(self._store.since(facts)))
            except EpochChanged as error:
                log.warning("store has another history, loading it anew", was=str(facts.revision()), cause=str(error))
                loaded = self._load()
                gc.freeze()
        _release_in_steps(facts)
        if self._recorder:
            self._recorder.begin(loaded)
        return loaded

    def _follow_log(self, facts: Facts, log: list[LogEntry]) -> Facts:
        """Return the facts after a log, and empty the log: a long one, released at once, stops all threads."""
        newest = self._after(facts, log)
        changes = sum(len(entry.changes) for entry in log)
        if changes > _MANY_CHANGES:
            gc.freeze()
        if changes > _MOST_CHANGES:
            _release_in_steps(facts)
        while log:
            log.pop()
        return newest

    def _after(self, facts: Facts, log: Sequence[LogEntry]) -> Facts:
        """Return the facts after a log. The recorder has them before anybody decides on them."""
        newest = apply_log(facts, log)
        if log and self._recorder:
            self._recorder.follow(newest, log)
        return newest

    def _write(self, actor: str, decide: Callable[[Facts], Sequence[Change]], gate: CommitGate) -> Facts:
        facts = self.facts

        def prepare(log: Sequence[LogEntry]) -> Sequence[Change]:
            return decide(apply_log(facts, log))

        with _hide_store_errors():
            return self._after(facts, self._store.write(actor, facts, prepare, gate))


def _release_in_steps(facts: Facts) -> None:
    Thread(target=release_in_steps, args=([facts],), name="store-releasing", daemon=True).start()


@contextmanager
def _hide_store_errors() -> Iterator[None]:
    """Raise Unavailable for any failure of the store: addresses and files are for the log, not for clients."""
    try:
        yield
    except (ConfigError, Unavailable) as error:
        raise Unavailable("the store cannot be used now") from error


def _retrieve_exception(refresh: asyncio.Task[None]) -> None:
    """Mark the exception as retrieved: asyncio would log the exception if all callers have been cancelled."""
    if not refresh.cancelled():
        refresh.exception()


def _check_epoch(facts: Facts, revision: Revision) -> bool:
    """Return True; raise Unavailable if a revision is of another epoch than the facts, and so cannot be compared."""
    if revision.epoch != facts.epoch:
        raise Unavailable(f"a revision of epoch {revision.epoch} is not served: the store is at {facts.revision()}")
    return True


def _shown(revision: Revision) -> str:
    """Return the part of the store."""
    return str(revision._replace(digest=""))
