"""Redis cache: verdicts that a fleet of services shares, behind a circuit breaker.

A question is a hash, and its fields are resources: a question about 1,000 tables is one HMGET, and several questions of
a batch are one pipeline. Redis is never trusted: every value is sealed (`VerdictSeal`). Redis is never waited for
longer than the timeout: a command that is late goes on without the request, so that its connection stays in step.

Hashes live for one window of time. The number of the window is part of the name of a hash, and windows of different
questions begin at different times.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from hashlib import blake2b
from random import uniform
from typing import Any, Final, Literal, TypeVar

import structlog
from redis.exceptions import MaxConnectionsError, RedisError, ResponseError

from pdp.decision.cache.cache import (
    MOST_FIELDS,
    CachedVerdict,
    FoundVerdicts,
    LivingVerdicts,
    Lookup,
    NewVerdicts,
    misses,
)
from pdp.decision.cache.keys import KEY_BYTES, join_parts
from pdp.decision.cache.redis_client import ForgedVerdict, RedisClient, VerdictSeal
from pdp.decision.cache.writer import STATES, CacheMetrics

BreakerState = Literal["closed", "half_open", "open"]
_FAILURES: Final = 3
"""Failures in a row that open the breaker."""
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 15.0
_JITTER: Final = 0.2


class CircuitBreaker:
    """Breaker that opens after three failures in a row. Each failed probe doubles the pause before the next one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures = 0
        self._pause = _FIRST_PAUSE
        self._next_probe = 0.0
        self._probing = False

    @property
    def state(self) -> BreakerState:
        """Return the state: `half_open` while a probe is under way."""
        if self._failures < _FAILURES:
            return "closed"
        return "half_open" if self._probing else "open"

    def allows(self) -> bool:
        """Tell whether a call may be made. An open breaker allows one probe after each pause.

        Every allowed call must end with `succeed`, `fail` or `abandon`.
        """
        if self._failures < _FAILURES:
            return True
        if self._probing or self._clock() < self._next_probe:
            return False
        self._probing = True
        return True

    def succeed(self) -> None:
        """Note a call that succeeded: the breaker closes."""
        self._failures = 0
        self._pause = _FIRST_PAUSE
        self._probing = False

    def fail(self) -> None:
        """Note a call that failed."""
        was_open = self._failures >= _FAILURES
        self._failures = min(self._failures + 1, _FAILURES)
        if self._failures < _FAILURES or (was_open and not self._probing):
            return  # a call from before the breaker opened says nothing new
        if was_open:
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        self._next_probe = self._clock() + self._pause * uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311  no secret
        self._probing = False

    def abandon(self) -> None:
        """Note a call without a result: another call may be the probe."""
        self._probing = False


T = TypeVar("T")
_FIELDS_AT_ONCE: Final = 250
"""Seals that are checked or made before others have a turn."""
_MOST_LATE: Final = 64
"""Commands that requests no longer wait for. While there are as many, nothing is asked."""
_WRITE_SECONDS: Final = 1.0
_LATE_SECONDS: Final = 5.0
"""Time after which a late command ends, with its connection."""
_SPARE_MS: Final = 1_000
"""Time that a hash outlives its window."""
_PREFIX: Final = b"pdp:"
log = structlog.get_logger()


class RedisCache:
    """Cache in Redis. `timeout` is the longest time in seconds that `find` waits."""

    def __init__(
        self, client: RedisClient, seal: VerdictSeal, metrics: CacheMetrics, ttl_seconds: float, timeout: float
    ) -> None:
        self._client = client
        self._seal = seal
        self._metrics = metrics
        self._window_ms = max(1, int(ttl_seconds * 1000))
        self._timeout = timeout
        self._reads, self._writes = CircuitBreaker(), CircuitBreaker()
        self._late: set[asyncio.Task[Any]] = set()
        self._last_cause = ""

    async def find(self, lookups: Sequence[Lookup]) -> Sequence[FoundVerdicts]:
        """Return the verdicts with a valid seal, within the timeout."""
        return [column.verdicts for column in await self.find_living(lookups)]

    async def find_living(self, lookups: Sequence[Lookup]) -> Sequence[LivingVerdicts]:
        """Return what `find` returns, with the time to the end of each window."""
        now = _now()
        places = [self._name(lookup.key, now) for lookup in lookups]
        found = await self._find([name for name, _ in places], lookups)
        now = _now()
        return [LivingVerdicts(column, (end - now) / 1000) for column, (_, end) in zip(found, places, strict=True)]

    async def _find(self, names: Sequence[bytes], lookups: Sequence[Lookup]) -> Sequence[FoundVerdicts]:
        if sum([len(lookup.fields) for lookup in lookups]) > MOST_FIELDS or len(self._late) >= _MOST_LATE:
            return misses(lookups)
        if not self._reads.allows():
            return misses(lookups)
        started = time.perf_counter()
        try:
            columns = await self._within_timeout(self._fetch(names, lookups))
        except asyncio.CancelledError:
            self._reads.abandon()
            raise
        except Exception as error:  # noqa: BLE001  whatever an answer does to the client: engines decide
            self._note_failure("find", self._reads, error)
            return misses(lookups)
        self._note_success("find", self._reads)
        self._metrics.seconds.observe(time.perf_counter() - started)
        return [
            await self._opened(name, lookup, column)
            for name, lookup, column in zip(names, lookups, columns, strict=True)
        ]

    async def keep(self, columns: Sequence[NewVerdicts]) -> None:
        """Write sealed verdicts. Failures are counted."""
        if not columns or not self._writes.allows():
            return
        try:
            async with asyncio.timeout(_WRITE_SECONDS):
                await self._write(columns)
        except asyncio.CancelledError:
            self._writes.abandon()
            raise
        except Exception as error:  # noqa: BLE001  likewise: the verdicts are not kept
            self._note_failure("keep", self._writes, error)
        else:
            self._note_success("keep", self._writes)

    def keep_near(self, columns: Sequence[NewVerdicts]) -> None:
        """Keep nothing: Redis is another process."""

    def far_part(self) -> RedisCache:
        """Return this cache."""
        return self

    def state(self) -> str:
        """Return `ok`, or what fails and the last cause."""
        failing = [what for what, one in (("reads", self._reads), ("writes", self._writes)) if one.state != "closed"]
        return f"{' and '.join(failing)} fail: {self._last_cause}" if failing else "ok"

    async def close(self) -> None:
        """Close all connections."""
        for task in self._late:
            task.cancel()
        with contextlib.suppress(RedisError, OSError):
            await self._client.close()

    async def _within_timeout(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of work that comes in time; raise TimeoutError. Late work goes on by itself.

        A cancelled command would break its connection, and a new connection may take longer than the timeout.
        """
        task = asyncio.ensure_future(work)
        self._late.add(task)
        task.add_done_callback(self._forget)
        await asyncio.wait((task,), timeout=self._timeout)
        for _ in range(3):  # an event loop that was busy sees the end of the wait before the answer that is there
            if task.done():
                break
            await asyncio.sleep(0)
        if not task.done():
            raise TimeoutError
        return task.result()

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._late.discard(task)
        if not task.cancelled():
            task.exception()  # read, so that no warning follows

    async def _fetch(self, names: Sequence[bytes], lookups: Sequence[Lookup]) -> list[list[bytes | None]]:
        pipeline = self._client.pipeline()
        for name, lookup in zip(names, lookups, strict=True):
            # a look-up without fields is an error to Redis
            pipeline.hmget(name, list(lookup.fields) or [b""])
        async with asyncio.timeout(_LATE_SECONDS):
            columns = await pipeline.execute(raise_on_error=False)
        return [_column(column, len(lookup.fields)) for column, lookup in zip(columns, lookups, strict=True)]

    async def _opened(self, name: bytes, lookup: Lookup, column: Sequence[bytes | None]) -> FoundVerdicts:
        now, refused = _now(), 0
        found: list[CachedVerdict | None] = []
        for row, (field, value) in enumerate(zip(lookup.fields, column, strict=True)):
            if row % _FIELDS_AT_ONCE == _FIELDS_AT_ONCE - 1:
                await asyncio.sleep(0)
            verdict = None
            if value is not None:
                try:
                    verdict = self._seal.open(name, field, value, now)
                except ForgedVerdict:
                    refused += 1
            found.append(verdict)
        if refused:
            self._metrics.refused.inc(refused)
        return found

    async def _write(self, columns: Sequence[NewVerdicts]) -> None:
        pipeline, now = self._client.pipeline(), _now()
        left = MOST_FIELDS
        for column in columns:
            if len(column.verdicts) > left:
                self._metrics.dropped.inc(len(column.verdicts))
                continue
            left -= len(column.verdicts)
            name, end = self._name(column.key, now)
            if mapping := await self._sealed(name, end, column.verdicts):
                pipeline.hset(name, mapping=mapping)
                pipeline.pexpire(name, end - now + _SPARE_MS)
        if errors := [one for one in await pipeline.execute(raise_on_error=False) if isinstance(one, Exception)]:
            raise errors[0]

    async def _sealed(self, name: bytes, end: int, verdicts: Mapping[bytes, CachedVerdict]) -> dict[bytes, bytes]:
        """Return sealed verdicts by field, without those of long reasons."""
        sealed: dict[bytes, bytes] = {}
        for row, (field, verdict) in enumerate(verdicts.items()):
            if row % _FIELDS_AT_ONCE == _FIELDS_AT_ONCE - 1:
                await asyncio.sleep(0)
            value = self._seal.close(name, field, verdict, end)
            if value is not None:
                sealed[field] = value
        return sealed

    def _name(self, key: bytes, now: int) -> tuple[bytes, int]:
        """Return the name of the hash of a question in the window of a time, and the end of the window."""
        offset = int.from_bytes(key[:4], "big") % self._window_ms
        window = (now + offset) // self._window_ms
        name = blake2b(join_parts((key, window.to_bytes(8, "big"))), digest_size=KEY_BYTES).hexdigest()
        return _PREFIX + name.encode(), (window + 1) * self._window_ms - offset

    def _note_failure(self, call: str, breaker: CircuitBreaker, error: BaseException) -> None:
        if isinstance(error, MaxConnectionsError):  # our own bound
            breaker.abandon()
            self._metrics.errors.labels(call, "busy").inc()
            return
        before = breaker.state
        breaker.fail()
        cause = _cause(error)
        self._last_cause = cause
        self._metrics.errors.labels(call, cause).inc()
        self._metrics.breaker.labels(call).set(STATES[breaker.state])
        if before == "closed" and breaker.state != "closed":
            log.warning("the cache fails, decisions go on without it", call=call, cause=cause)

    def _note_success(self, call: str, breaker: CircuitBreaker) -> None:
        if breaker.state != "closed":
            log.info("the cache works again", call=call)
        breaker.succeed()
        self._metrics.breaker.labels(call).set(0)


def _column(column: Any, length: int) -> list[bytes | None]:
    """Return the values of a look-up. A hash that somebody replaced by something else has none.

    Raise the server's error if it concerns more than this hash, ValueError for an answer to another question.
    """
    if isinstance(column, ResponseError) and str(column).startswith("WRONGTYPE"):
        return [None] * length
    if isinstance(column, Exception):
        raise column
    if not isinstance(column, list) or len(column) != (length or 1):
        raise ValueError("not the values that were asked for")
    return [value if isinstance(value, bytes) else None for value in column[:length]]


def _cause(error: BaseException) -> str:
    """Return the cause of a failure, from a closed set. The texts of errors may hold addresses."""
    if isinstance(error, (asyncio.TimeoutError, TimeoutError)) or "Timeout" in type(error).__name__:
        return "timeout"
    if isinstance(error, ResponseError):
        return "refused"
    if isinstance(error, RedisError) and type(error).__name__ == "InvalidResponse":
        return "protocol"
    return "connection" if isinstance(error, (RedisError, OSError, EOFError)) else "protocol"


def _now() -> int:
    """Return the time in milliseconds since 1970."""
    return int(time.time() * 1000)
