"""The cache as decisions use it: which engines it serves, look-ups, single flight, and writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from pdp.decision.active_policies import ActivePolicies
from pdp.decision.cache.cache import MOST_FIELDS, Cache, NewVerdicts
from pdp.decision.cache.keys import KeyMaker, is_cacheable, policies_digest
from pdp.decision.cache.local import Flights
from pdp.decision.cache.writer import CacheMetrics, CacheWriter
from pdp.engines.engine import Cost, Engine
from pdp.facts.snapshot import Facts
from pdp.model.question import Batch


class ServedEngines(NamedTuple):
    """Engines of a bundle whose verdicts are cached, by identity, each with its maker of keys."""

    bundle: ActivePolicies
    facts: Facts
    makers: dict[int, KeyMaker]


class VerdictCache:
    """Cache of the verdicts of some engines. `every_engine`: also of those that take microseconds.

    `timeout` is the longest time in seconds that a request waits for another one's verdicts, and `patience` the one for
    verdicts of costly engines; None for the same.
    """

    def __init__(
        self,
        cache: Cache,
        metrics: CacheMetrics,
        timeout: float,
        *,
        every_engine: bool,
        patience: float | None = None,
    ) -> None:
        self.cache = cache
        self.metrics = metrics
        self.timeout = timeout
        self.patience = patience
        self.flights: Final = Flights()
        self._every_engine = every_engine
        far = cache.far_part()
        self._writer = CacheWriter(far, metrics) if far is not None else None
        self._served: ServedEngines | None = None
        self._policies: tuple[ActivePolicies | None, bytes] = (None, b"")
        self.newest: ActivePolicies | None = None
        """Bundle that was asked about last."""
        self.has_engines = False
        """The cache keeps verdicts of an engine of this bundle."""

    def serves(self, bundle: ActivePolicies) -> bool:
        """Tell whether the cache keeps verdicts of any engine of a bundle."""
        if self.newest is not bundle:
            self.newest = bundle
            self.has_engines = bool(served_engines(bundle, every_engine=self._every_engine))
        return self.has_engines

    def may_answer(self, batch: Batch, bundle: ActivePolicies) -> bool:
        """Tell whether cached verdicts may answer a batch. Explanations and demands for a revision need fresh ones."""
        if batch.explain or batch.consistency != "minimize_latency" or batch.size > MOST_FIELDS:
            return False
        return self.serves(bundle)

    def longest_wait(self, engine: Engine) -> float:
        """Return the seconds that a request waits for another one's verdicts of an engine."""
        if self.patience is None or engine.cost is Cost.MICROSECONDS:
            return self.timeout
        return self.patience

    def makers(self, bundle: ActivePolicies, facts: Facts) -> dict[int, KeyMaker]:
        """Return the makers of keys of the cached engines, by `id(engine)`."""
        served = self._served
        if served is None or served.bundle is not bundle or served.facts is not facts:
            makers = {
                id(engine): KeyMaker(engine, self._policies_of(bundle), facts, forbids=engine in bundle.forbids)
                for engine in served_engines(bundle, every_engine=self._every_engine)
            }
            served = self._served = ServedEngines(bundle, facts, makers)
        return served.makers

    def keep(self, columns: Sequence[NewVerdicts]) -> None:
        """Keep new verdicts: at once in this process, and elsewhere after the answer has left."""
        self.cache.keep_near(columns)
        if self._writer:
            for column in columns:
                self._writer.add(column)

    def state(self) -> str:
        """Return the condition of the cache: `ok`, or what is wrong."""
        return self.cache.state()

    async def flush(self) -> None:
        """Wait until all new verdicts are written."""
        if self._writer:
            await self._writer.flush()

    async def close(self) -> None:
        """Write what waits, for a moment at most, and close the cache."""
        if self._writer:
            await self._writer.close()
        await self.cache.close()

    def _policies_of(self, bundle: ActivePolicies) -> bytes:
        """Return the digest of the policies of a bundle. A text can have megabytes, and each write needs new keys."""
        last, digest = self._policies
        if last is not bundle:
            digest = policies_digest(bundle.text)
            self._policies = bundle, digest
        return digest


def served_engines(bundle: ActivePolicies, *, every_engine: bool) -> list[Engine]:
    """Return the engines of a bundle whose verdicts are cached. `every_engine`: also those that take microseconds."""
    stacks = [authority.engines for authority in (bundle.default, *bundle.authorities.values())]
    engines = [engine for engines in (bundle.forbids, *stacks) for engine in engines]
    return [one for one in engines if is_cacheable(one) and (every_engine or one.cost is not Cost.MICROSECONDS)]
