"""Evaluation that may wait: for cached verdicts, and for engines that must be awaited. Then the usual combination.

Known verdicts come first, engines decide the rest. Engines that must be awaited are asked all at once.

A cached verdict is one engine's verdict on one resource. Batches with more than MOST_FIELDS verdicts do without the
cache. Combination, overrides, folds, visibility and the audit come after the cache, and are the same with and
without a cache. Verdicts with errors and failures are never kept.

Of two requests with the same question the first leads a flight, and the second waits for the verdicts (`Flights`). A
request lands all of its own flights before it waits for others, so that no two requests wait for each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from pdp.decision.cache.cache import KEPT_EFFECTS, MOST_FIELDS, CachedVerdict, FoundVerdicts, Lookup, NewVerdicts
from pdp.decision.cache.keys import resource_fields
from pdp.decision.cache.local import Flight, await_landings
from pdp.decision.combine import concatenate, decide_group, slice_by_leaf
from pdp.decision.evaluation import ChunkSize, LeafVerdicts, decide_in_chunks, leaves_by_group, lookup_of
from pdp.decision.plan import FixedDenial, Leaf
from pdp.decision.ports import DecisionSnapshot
from pdp.decision.turns import TurnClock
from pdp.decision.verdict_cache import VerdictCache
from pdp.engines.engine import Cost, Engine, EngineQuestion, Verdicts
from pdp.engines.guarded import AwaitedEngine
from pdp.model.answer import Reason
from pdp.model.question import Resource


class PendingVerdicts:
    """Question to one engine about the resources of a group, and the verdicts as they come in."""

    __slots__ = (
        "engine", "fields", "flight", "followed", "group", "is_cached", "key", "known", "raised", "resources", "shared",
    )  # fmt: skip

    def __init__(
        self, engine: Engine, group: EngineQuestion, resources: Sequence[Resource], lookup: Lookup | None
    ) -> None:
        """Make a question without verdicts. `lookup` is None for a question that is not cached."""
        self.engine = engine
        self.group = group
        self.resources = resources
        self.is_cached = lookup is not None
        self.key, self.fields = (lookup.key, lookup.fields) if lookup else (b"", ())
        self.known: list[tuple[int, Reason | None] | None] = [None] * len(resources)
        """Effect and reason of each resource."""
        self.raised: dict[int, tuple[str, ...]] = {}
        self.shared = bytearray(len(resources))
        """1 where the verdict comes from the cache or from another request."""
        self.flight: Flight | None = None
        self.followed: dict[int, Flight] = {}

    def take(self, rows: Sequence[int], found: FoundVerdicts) -> None:
        """Take the verdicts that a cache or another request has for some rows."""
        for row, verdict in zip(rows, found, strict=True):
            if verdict is not None:
                self.known[row] = verdict
                self.shared[row] = 1

    def take_own(self, row: int, verdict: CachedVerdict | None) -> None:
        """Take the verdict of another question of the same request."""
        self.known[row] = verdict

    def put(self, rows: Sequence[int], verdicts: Verdicts) -> None:
        """Put the engine's own verdicts on some rows."""
        for at, row in enumerate(rows):
            self.known[row] = verdicts.effects[at], verdicts.by[at]
            if at in verdicts.errors:
                self.raised[row] = verdicts.errors[at]

    def own_verdicts(self) -> dict[bytes, CachedVerdict]:
        """Return the engine's new verdicts that may be kept: those without a failure and without errors."""
        return {
            self.fields[row]: CachedVerdict(*verdict)
            for row, verdict in enumerate(self.known)
            if verdict is not None and not self.shared[row] and verdict[0] in KEPT_EFFECTS and row not in self.raised
        }

    def verdicts(self, start: int, stop: int) -> Verdicts:
        """Return the verdicts on consecutive resources, all of which are known."""
        found = [verdict for verdict in self.known[start:stop] if verdict is not None]
        raised = self.raised
        errors = {row - start: raised[row] for row in range(start, stop) if row in raised} if raised else {}
        return Verdicts(bytes([effect for effect, _ in found]), [by for _, by in found], errors)


_FIELDS_AT_ONCE: Final = 100
"""Resources whose digests are made before others may have a turn. A resource can have kilobytes of properties."""


class _Members(msgspec.Struct, frozen=True):
    """Leaves of one group and override, their resources in order, and the questions to cached engines."""

    leaves: list[Leaf]
    resources: list[Resource]
    questions: dict[int, PendingVerdicts]


def may_cache(leaves: Iterable[Leaf | FixedDenial], basis: DecisionSnapshot, cache: VerdictCache) -> bool:
    """Tell whether some verdicts on leaves, and not too many, are cached. Each row and each cached engine is one."""
    makers = cache.makers(basis.bundle, basis.facts)
    served: dict[tuple[str, str, str], int] = {}
    count = 0
    for leaf in leaves:
        if type(leaf) is Leaf:
            place = leaf.group.warehouse, leaf.group.action, leaf.group.type
            if place not in served:
                engines = basis.bundle.engines_for(*place).engines
                served[place] = sum([id(engine) in makers for engine in engines])
            count += served[place] * len(leaf.resources)
            if count > MOST_FIELDS:
                return False
    return count > 0


class CachedEvaluation:
    """Evaluation of the leaves of one batch. `run` it once, then read the results.

    `cache` is None without a cache; leaves with one must be such that `may_cache` permits.
    """

    def __init__(
        self, leaves: Sequence[Leaf | FixedDenial], basis: DecisionSnapshot, cache: VerdictCache | None
    ) -> None:
        self._leaves = leaves
        self._places: dict[int, tuple[_Members, int]] = {}
        """For leaves by `id(leaf)`: their group, and the row of their first resource in it."""
        self._basis = basis
        self._cache = cache
        self._pace = TurnClock()
        self.shared: dict[int, bytes] = {}
        """For leaves by `id(leaf)`: 1 for each resource with a verdict of the cache. Other leaves have none."""
        self._new: list[NewVerdicts] = []
        self.verdicts_of: LeafVerdicts
        """Verdicts on a leaf."""

    async def run(self) -> None:
        """Evaluate. Give the event loop turns."""
        members = await self._members()
        questions = [question for each in members for question in each.questions.values()]
        try:
            if self._cache is not None:
                await self._find(self._cache, [question for question in questions if question.is_cached])
            awaited = [question for question in questions if isinstance(question.engine, AwaitedEngine)]
            if awaited:
                await asyncio.gather(*[self._decide(question, _unknown(question)) for question in awaited])
            for question in questions:
                await self._decide(question, _unknown(question))
                if self._cache is not None and question.flight is not None:
                    self._land(self._cache, question, question.flight)
                await self._turn()
            if self._cache is not None:
                await self._follow(self._cache, [question for question in questions if question.is_cached])
        finally:
            for question in questions:
                if self._cache is not None and question.flight is not None:
                    self._cache.flights.land(question.flight, {})
        verdicts: dict[int, Verdicts] = {}
        for each in members:
            combined = await self._combine(each)
            verdicts.update(slice_by_leaf(combined, each.leaves))
            self._mark(each)
        self.verdicts_of = lookup_of(verdicts)

    def keep(self) -> None:
        """Let the cache keep the new verdicts."""
        if self._cache is not None:
            self._cache.keep(self._new)

    def verdict(self, engine: Engine, leaf: Leaf, row: int) -> tuple[int, Reason | None] | None:
        """Return the effect and reason of an engine that was asked before the combination; None for another engine."""
        members, start = self._places[id(leaf)]
        question = members.questions.get(id(engine))
        return None if question is None else question.known[start + row]

    async def _members(self) -> list[_Members]:
        bundle = self._basis.bundle
        makers = {} if self._cache is None else self._cache.makers(bundle, self._basis.facts)
        found = []
        for leaves in leaves_by_group(self._leaves):
            group = leaves[0].group
            resources = [resource for leaf in leaves for resource in leaf.resources]
            engines = bundle.engines_for(group.warehouse, group.action, group.type).engines
            keys = {id(engine): makers[id(engine)].key(group) for engine in engines if id(engine) in makers}
            fields = await self._fields(resources) if any(key is not None for key in keys.values()) else None
            questions: dict[int, PendingVerdicts] = {}
            for engine in engines:
                key = keys.get(id(engine))
                lookup = Lookup(key, fields) if fields and key is not None else None
                if lookup or isinstance(engine, AwaitedEngine):
                    questions[id(engine)] = PendingVerdicts(engine, group, resources, lookup)
            found.append(_Members(leaves, resources, questions))
            self._place(found[-1])
        return found

    def _place(self, members: _Members) -> None:
        start = 0
        for leaf in members.leaves:
            self._places[id(leaf)] = members, start
            start += len(leaf.resources)

    async def _fields(self, resources: Sequence[Resource]) -> list[bytes] | None:
        """Return the digests of resources, made once for all engines; None if one of them cannot be cached."""
        fields: list[bytes] = []
        for start in range(0, len(resources), _FIELDS_AT_ONCE):
            part = resource_fields(resources[start : start + _FIELDS_AT_ONCE])
            if part is None:
                return None
            fields += part
            await self._turn()
        return fields

    async def _find(self, cache: VerdictCache, questions: Sequence[PendingVerdicts]) -> None:
        """Join the flights of others, and look the rest up: all questions in one round trip."""
        rows_of: list[list[int]] = []
        for question in questions:
            question.flight, question.followed = cache.flights.begin(question.key, question.fields)
            rows_of.append([row for row in range(len(question.fields)) if row not in question.followed])
            await self._turn()
        asked = [(question, rows) for question, rows in zip(questions, rows_of, strict=True) if rows]
        if not asked:
            return
        lookups = [Lookup(question.key, [question.fields[row] for row in rows]) for question, rows in asked]
        for (question, rows), found in zip(asked, await cache.cache.find(lookups), strict=True):
            question.take(rows, found)
            hits = len(found) - found.count(None)
            cache.metrics.hits.inc(hits)
            cache.metrics.misses.inc(len(found) - hits)
            await self._turn()

    def _land(self, cache: VerdictCache, question: PendingVerdicts, flight: Flight) -> None:
        """Give the verdicts of a question to all that wait for it, and keep the engine's own."""
        own = question.own_verdicts()
        if own:
            self._new.append(NewVerdicts(question.key, own))
        found = dict(own)
        for row, verdict in enumerate(question.known):
            if verdict is not None and question.shared[row]:
                found[question.fields[row]] = CachedVerdict(*verdict)
        cache.flights.land(flight, found)

    async def _follow(self, cache: VerdictCache, questions: Sequence[PendingVerdicts]) -> None:
        """Take the verdicts of others' flights, and decide what they do not bring in time."""
        own = {id(question.flight) for question in questions}
        others: dict[float, dict[int, Flight]] = {}
        for question in questions:
            waited = others.setdefault(cache.longest_wait(question.engine), {})
            waited.update((id(flight), flight) for flight in question.followed.values())
        for seconds in sorted(others):
            await await_landings(list(others[seconds].values()), seconds)
        for question in questions:
            for row, flight in question.followed.items():
                verdict = flight.verdicts.get(question.fields[row])
                if id(flight) in own:
                    question.take_own(row, verdict)
                elif verdict is not None:
                    question.take((row,), (verdict,))
                    cache.metrics.joined.inc()
            await self._decide(question, [row for row in question.followed if question.known[row] is None])

    async def _decide(self, question: PendingVerdicts, rows: Sequence[int]) -> None:
        """Let the engine decide some rows: in chunks, or all at once if the engine must be awaited."""
        if rows and isinstance(question.engine, AwaitedEngine):
            resources = [question.resources[row] for row in rows]
            question.put(rows, await self._basis.evaluator.ask(question.engine, question.group, resources))
            return
        size = ChunkSize()
        if question.engine.cost is Cost.MILLISECONDS:
            size.begin_small()
        start = 0
        decide = partial(self._basis.evaluator.decide_by_engine, question.engine, question.group)
        for found in decide_in_chunks([[question.resources[row] for row in rows]], size, decide):
            for verdicts in found:
                part = rows[start : start + len(verdicts.effects)]
                question.put(part, verdicts)
                start += len(part)
            await self._turn()

    async def _combine(self, members: _Members) -> Verdicts:
        """Return the combined verdicts of all engines on the resources of a group."""
        columns: list[Verdicts] = []
        size, start = ChunkSize(), 0
        if self._basis.evaluator.is_slow(members.leaves[0]):
            size.begin_small()

        def decide(resources: Sequence[Resource]) -> Verdicts:
            by_engine = partial(self._by_engine, members.questions, start)
            return decide_group(members.leaves[0], resources, self._basis.bundle, by_engine)

        for found in decide_in_chunks([members.resources], size, decide):
            columns += found
            start += sum([len(verdicts.effects) for verdicts in found])
            await self._turn()
        return concatenate(columns)

    def _by_engine(
        self,
        questions: Mapping[int, PendingVerdicts],
        start: int,
        engine: Engine,
        group: EngineQuestion,
        resources: Sequence[Resource],
    ) -> Verdicts:
        question = questions.get(id(engine))
        if question is None:
            return self._basis.evaluator.decide_by_engine(engine, group, resources)
        return question.verdicts(start, start + len(resources))

    def _mark(self, members: _Members) -> None:
        """Mark the resources of each leaf whose verdict rests on a cached one."""
        marks = bytearray(len(members.resources))
        for question in members.questions.values():
            if 1 in question.shared:
                marks = bytearray(map(max, marks, question.shared))
        start = 0
        for leaf in members.leaves if 1 in marks else ():
            stop = start + len(leaf.resources)
            self.shared[id(leaf)] = bytes(marks[start:stop])
            start = stop

    async def _turn(self) -> None:
        if self._pace.is_over():
            await asyncio.sleep(0)
            self._pace.begin()


def _unknown(question: PendingVerdicts) -> list[int]:
    """Return the rows that neither the cache nor another request answers."""
    return [row for row, verdict in enumerate(question.known) if verdict is None and row not in question.followed]
