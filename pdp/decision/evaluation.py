"""Evaluation: engines decide the leaves of all trees of a batch, each engine once per question.

Long work is a generator of steps: after each step the caller may give the event loop a turn (`turns`).

In an authorization path the only fallback is deny: an engine that raises has failed, and a failure denies.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Final, TypeAlias, TypeVar

import structlog
from msgspec.structs import replace

from pdp.decision.active_policies import ActivePolicies
from pdp.decision.combine import (
    concatenate,
    decide_group,
    denial_verdicts,
    slice_by_leaf,
    without_permits,
)
from pdp.decision.plan import FixedDenial, Leaf
from pdp.decision.turns import TURN_SECONDS, AwaitingResumable, Resumable, TurnClock
from pdp.engines.engine import (
    ABSTAIN,
    CHECKPOINT,
    EFFECT_NAMES,
    FAILED,
    PERMIT,
    Cost,
    Dependency,
    Engine,
    EngineQuestion,
    TurnOver,
    Verdicts,
    go_on,
)
from pdp.engines.guarded import AwaitedEngine, InvalidVerdicts, log_failure
from pdp.facts.snapshot import Facts
from pdp.model.answer import STORE_STALE, Reason, Trace
from pdp.model.arrays import PathArray
from pdp.model.question import Resource
from pdp.telemetry import Telemetry

T = TypeVar("T")
log = structlog.get_logger()

LeafVerdicts: TypeAlias = Callable[[Leaf | FixedDenial], Verdicts]
"""Lookup of the verdicts on a leaf of an evaluated tree."""
CHUNK: Final = 2000
"""Most resources that engines decide before the event loop gets a turn. A long name counts as several resources."""
FIRST_CHUNK: Final = 250
"""The same for resources whose cost nobody knows yet."""
_FIRST_SLOW_CHUNK: Final = 64
_SHRINKING: Final = 8
"""Part of a chunk that comes after a chunk that took too long."""
_FEW_LEAVES: Final = 64
"""Leaves that may be decided in one go."""
_TURNS_AT_ONCE: Final = 5
"""Steps of a small decision that may follow each other without a turn for others."""
LONGEST_STEP: Final = _TURNS_AT_ONCE * TURN_SECONDS
"""Time that a small decision may take without a turn for others."""
_LONGEST_CHUNK: Final = 2 * TURN_SECONDS
"""Time after which the engines are asked about a smaller chunk."""
_PARTS_OF_ONE: Final = 4
"""Parts of a name that cost about what a resource costs besides."""


class Evaluator:
    """Evaluator of leaves under one bundle and one snapshot of the facts."""

    def __init__(self, bundle: ActivePolicies, facts: Facts, telemetry: Telemetry, *, stale: bool) -> None:
        self._bundle = bundle
        self._facts = facts
        self._telemetry = telemetry
        self._stale = stale

    def under(self, bundle: ActivePolicies) -> Evaluator:
        """Return an evaluator under another bundle and the same facts."""
        return Evaluator(bundle, self._facts, self._telemetry, stale=self._stale)

    def evaluate(self, leaves: Iterable[Leaf | FixedDenial]) -> Resumable[LeafVerdicts]:
        """Return the verdicts on leaves. A step ends after the time of a turn, however few resources that takes.

        Leaves of one group are decided together, whatever trees they belong to.
        """
        verdicts: dict[int, Verdicts] = {}
        pace, size = TurnClock(), ChunkSize()
        checkpoint = CHECKPOINT.get()
        for members in leaves_by_group(leaves):
            columns: list[Verdicts] = []
            if self.is_slow(members[0]):
                size.begin_small()
            decide = partial(self._decide_group, members[0])
            for decided in decide_in_chunks([leaf.resources for leaf in members], size, decide):
                columns += decided
                checkpoint()
                if pace.is_over():
                    yield
                    pace.begin()
            verdicts.update(slice_by_leaf(concatenate(columns), members))
        return lookup_of(verdicts)

    def is_slow(self, leaf: Leaf | FixedDenial) -> bool:
        """Tell whether an engine takes milliseconds for a resource of a leaf."""
        group = leaf.group
        engines = self._bundle.engines_for(group.warehouse, group.action, group.type).engines
        return any(engine.cost is Cost.MILLISECONDS for engine in engines)

    def evaluate_now(self, leaves: Sequence[Leaf | FixedDenial]) -> LeafVerdicts | None:
        """Return the verdicts on few leaves; None if that may take long, and outside of `within`. Raise TurnOver."""
        if CHECKPOINT.get() is go_on or len(leaves) > _FEW_LEAVES or not self._takes_one_turn(leaves):
            return None
        return self._evaluate_at_once(leaves)

    def _takes_one_turn(self, leaves: Sequence[Leaf | FixedDenial]) -> bool:
        """Tell whether few leaves may take about a turn: their resources and names are few."""
        count = sum([len(leaf.resources) for leaf in leaves])
        if count > _FIRST_SLOW_CHUNK and any(map(self.is_slow, leaves)):
            return False
        parts = FIRST_CHUNK * _PARTS_OF_ONE
        return count <= CHUNK and all((parts := parts - _long_parts(leaf.resources)) >= 0 for leaf in leaves)

    def decide(self, leaf: Leaf, resources: Sequence[Resource]) -> Verdicts:
        """Return the verdicts on one leaf, asked about few resources. Raise TurnOver where a checkpoint does."""
        CHECKPOINT.get()()
        group = leaf.group
        if leaf.override is None:
            engine = self._bundle.engines_for(group.warehouse, group.action, group.type).single
            if engine is not None:
                return self.decide_by_engine(engine, group, resources)
        return self._decide_group(leaf, resources)

    def _decide_group(self, leaf: Leaf, resources: Sequence[Resource]) -> Verdicts:
        return decide_group(leaf, resources, self._bundle, self.decide_by_engine)

    def _evaluate_at_once(self, leaves: Sequence[Leaf | FixedDenial]) -> LeafVerdicts:
        """Return the verdicts on leaves with few resources. Raise TurnOver where a checkpoint does."""
        if len(leaves) == 1 and type(leaf := leaves[0]) is Leaf:
            only = self.decide(leaf, leaf.resources)
            return lambda _: only
        verdicts: dict[int, Verdicts] = {}
        checkpoint = CHECKPOINT.get()
        for members in leaves_by_group(leaves):
            checkpoint()
            leaf = members[0]
            resources = leaf.resources
            if len(members) > 1:
                resources = [resource for member in members for resource in member.resources]
            found = self._decide_group(leaf, resources)
            if len(members) == 1:
                verdicts[id(leaf)] = found
            else:
                verdicts.update(slice_by_leaf(found, members))
        return lookup_of(verdicts)

    def decide_by_engine(self, engine: Engine, group: EngineQuestion, resources: Sequence[Resource]) -> Verdicts:
        """Return an engine's verdicts: all failed if the engine raises, no permits from stale facts."""
        try:
            verdicts = engine.decide(self._asked(engine, group), resources, self._facts)
            if len(verdicts.effects) != len(resources) or len(verdicts.by) != len(resources):
                raise InvalidVerdicts(f"{len(verdicts.effects)} effects for {len(resources)} resources")
        except Exception as error:  # noqa: BLE001  a failure denies
            log_failure("engine failed, all denied", error, engine=engine.name, action=group.action, type=group.type)
            self._telemetry.engine_failures.labels(engine.name).inc()
            count = len(resources)
            return Verdicts(bytes([FAILED]) * count, [f"{engine.name}:failed"] * count)
        return self._permitted(engine, verdicts)

    async def ask(self, engine: AwaitedEngine, group: EngineQuestion, resources: Sequence[Resource]) -> Verdicts:
        """Return the verdicts of an engine that must be awaited, as `decide_by_engine` does."""
        verdicts = await engine.ask(self._asked(engine, group), resources, self._facts)
        if FAILED in verdicts.effects:
            self._telemetry.engine_failures.labels(engine.name).inc()
        return self._permitted(engine, verdicts)

    def explain(self, engine: Engine, group: EngineQuestion, resource: Resource) -> Trace:
        """Return an engine's explanation of the same question as `decide_by_engine`, without permits from stale facts.

        Raise what the engine raises.
        """
        trace = engine.explain(self._asked(engine, group), resource, self._facts)
        if self._stale and _rests_on_facts(engine) and trace.outcome == EFFECT_NAMES[PERMIT]:
            return replace(trace, outcome=EFFECT_NAMES[ABSTAIN], why=STORE_STALE)
        return trace

    def _asked(self, engine: Engine | AwaitedEngine, group: EngineQuestion) -> EngineQuestion:
        """Return the question for an engine: memberships of stale facts are unknown, so that forbids on them deny."""
        return _without_memberships(group) if self._stale and _rests_on_facts(engine) else group

    def _permitted(self, engine: Engine, verdicts: Verdicts) -> Verdicts:
        return without_permits(verdicts) if self._stale and _rests_on_facts(engine) else verdicts


class ChunkSize:
    """Number of resources that engines decide in about half a turn: learnt, for long names and many rules cost more.

    Counts a name of `_PARTS_OF_ONE` parts more as one resource more: engines look at each object above.
    """

    def __init__(self) -> None:
        self.now = FIRST_CHUNK
        self._taken = 0

    def begin_small(self) -> None:
        """Begin with few resources: one of a slow engine may cost as much as hundreds of others."""
        self.now = min(self.now, _FIRST_SLOW_CHUNK)

    def end_of(self, weights: Sequence[int], start: int) -> int:
        """Return where a chunk of rows ends, by the weights of all rows before each row. Takes one row at least."""
        before = weights[start - 1] if start else 0
        stop = max(start + 1, bisect_right(weights, before + self.now, start))
        self._taken = weights[stop - 1] - before
        return stop

    def learn(self, seconds: float) -> None:
        """Learn from the last chunk."""
        if seconds > TURN_SECONDS:
            self.now = max(1, int(self._taken * TURN_SECONDS / seconds / 2))
        elif seconds < TURN_SECONDS / 2 and self._taken >= self.now // 2:
            self.now = min(CHUNK, 2 * self.now)

    def shrink(self) -> None:
        """Make the next chunk much smaller than the last."""
        self.now = max(1, self._taken // _SHRINKING)


def within(seconds: float, work: Callable[..., T], *arguments: object) -> T:
    """Return the result of work of engines. Raise TurnOver at the first checkpoint after some time.

    Half of the time may pass while other processes run: a busy machine makes no work long.
    """
    now, half, own_end = time.perf_counter, seconds / 2, 0.0
    end = now() + half

    def check() -> None:
        nonlocal own_end
        if now() > end:  # cheaper than to ask for the thread's own time
            own_end = own_end or time.thread_time() + half
            if time.thread_time() > own_end:
                raise TurnOver

    token = CHECKPOINT.set(check)
    try:
        return work(*arguments)
    finally:
        CHECKPOINT.reset(token)


def finish_at_once(steps: AwaitingResumable[T]) -> T:
    """Return the result of few steps; raise TurnOver if there are more."""
    for _ in range(_TURNS_AT_ONCE):
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
    raise TurnOver


def weights_of(resources: Sequence[Resource]) -> Sequence[int]:
    """Return for each row the weight of all rows up to this one."""
    if type(resources) is PathArray:
        each = [1 + len(above) // _PARTS_OF_ONE for above in resources.parents]
        if max(each, default=1) == 1:
            return range(1, len(resources) + 1)
        return list(accumulate(map(each.__getitem__, resources.parent_at)))
    return list(accumulate([1 + len(resource.path) // _PARTS_OF_ONE for resource in resources]))


def _long_parts(resources: Sequence[Resource]) -> int:
    """Return the number of parts of names longer than usual."""
    paths = resources.parents if type(resources) is PathArray else [resource.path for resource in resources]
    return sum([len(path) for path in paths if len(path) >= _PARTS_OF_ONE])


def decide_in_chunks(
    columns: Sequence[Sequence[Resource]], size: ChunkSize, decide: Callable[[Sequence[Resource]], Verdicts]
) -> Iterator[Sequence[Verdicts]]:
    """Yield the verdicts on the resources of one group in order, with a weight of at most `size.now` at a time.

    Yield none for a chunk that takes too long: smaller ones follow. A single resource takes as long as it takes. A
    column of paths stays as it is, so that an engine can decide by container.
    """
    if len(columns) > 1 and not all(type(column) is PathArray for column in columns):
        columns = [[resource for column in columns for resource in column]]
    for resources in columns:
        start, weights = 0, weights_of(resources)
        while start < len(resources):
            stop = size.end_of(weights, start)
            chunk = resources[start:stop] if start or stop < len(resources) else resources
            started = time.perf_counter()
            try:
                verdicts = decide(chunk) if len(chunk) == 1 else within(_LONGEST_CHUNK, decide, chunk)
            except TurnOver:
                size.shrink()
                yield ()
                continue
            size.learn(time.perf_counter() - started)
            yield (verdicts,)
            start = stop


def _rests_on_facts(engine: Engine) -> bool:
    """Tell whether facts can change verdicts of an engine. Nobody knows what an engine without reads does."""
    return not engine.reads or Dependency.FACTS in engine.reads


def _without_memberships(group: EngineQuestion) -> EngineQuestion:
    """Return a question about a principal with unknown memberships, of the token and of the store."""
    principal = group.question.principal
    unknown = tuple(sorted({*principal.unknown, "member_of", "stored"}))
    return replace(group, question=replace(group.question, principal=replace(principal, unknown=unknown)))


def leaves_by_group(leaves: Iterable[Leaf | FixedDenial]) -> Iterable[list[Leaf]]:
    """Return the leaves that engines decide, in lists of one group and override."""
    asked = [leaf for leaf in leaves if type(leaf) is Leaf]
    if len(asked) == 1:
        return (asked,)
    if len(asked) == 2 and asked[0].group.type != asked[1].group.type:
        return [[leaf] for leaf in asked]
    groups: dict[tuple[EngineQuestion, Reason | None], list[Leaf]] = {}
    for leaf in asked:
        groups.setdefault((leaf.group, leaf.override), []).append(leaf)
    return groups.values()


def lookup_of(verdicts: Mapping[int, Verdicts]) -> LeafVerdicts:
    """Return the lookup of verdicts by `id(leaf)`, and of fixed decisions."""
    # Trees outlive the lookup, so the id of a leaf names the leaf.
    return lambda leaf: verdicts[id(leaf)] if type(leaf) is Leaf else denial_verdicts(leaf)  # type: ignore[arg-type]
