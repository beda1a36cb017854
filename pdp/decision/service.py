"""The one path of a request: one bundle and one revision for the whole batch, plan, decide, fold, audit.

Holds what is current and nothing else; engines decide, plans say what to ask. In an authorization path the only
fallback is deny: an engine that raises has failed, and a failure denies.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final, Protocol

import msgspec
import structlog
from uuid6 import uuid7

from pdp.audit.record import DecidedCheck, DecisionRecord, LeafDecision, RecordTemplate
from pdp.decision.bundle import Bundle
from pdp.decision.combine import CHUNK, Judge, decide, joined, portions, shared_out, without_permits
from pdp.decision.inspection import guards, permitted, reduced, sees_all
from pdp.decision.plan import (
    AllOf,
    AnyOf,
    EachOf,
    FixedDecision,
    Leaf,
    Node,
    Planners,
    Split,
    asker_of,
    fold,
    leaves,
    plan,
)
from pdp.engines.engine import ABSTAIN, EFFECT_NAMES, FAILED, NO_ERRORS, PERMIT, Engine, Group, Verdicts
from pdp.engines.rowaccess.engine import Restriction, hide_everything
from pdp.errors import InvalidArgument
from pdp.facts.snapshot import Facts
from pdp.model.checks import (
    DEFAULT_DENY,
    Answer,
    AtLeast,
    Batch,
    Check,
    Consistency,
    Reason,
    Resource,
    RowView,
    Trace,
    TypedColumn,
)
from pdp.model.references import format_resource
from pdp.telemetry import Telemetry

_ALLOWED: Final = bytes(effect == PERMIT for effect in range(256))
"""Effects to what an answer says."""
log = structlog.get_logger()


Decisions = Callable[[Leaf | FixedDecision], Verdicts]
_NO_TRACES: Final[Mapping[int, Trace]] = MappingProxyType({})


class AuditLog(Protocol):
    """Where decided batches go; it must not wait for a disk."""

    def admit(self) -> None:
        """Raise Unavailable while records cannot be taken."""
        ...

    def append(self, record: DecisionRecord) -> None:
        """Take a decided batch."""
        ...


class FactsSource(Protocol):
    """Where the facts of a decision come from; reading them never waits."""

    @property
    def facts(self) -> Facts:
        """The newest snapshot that is here."""
        ...

    def is_stale(self) -> bool:
        """Whether the snapshot is too old to permit anything."""
        ...

    async def catch_up(self) -> None:
        """See all that was committed before the call; raises Unavailable where that cannot be known."""
        ...

    async def at_least(self, epoch: str, sequence: int) -> None:
        """Wait for a revision, within a bound; raises Unavailable."""
        ...


class BatchResult(msgspec.Struct, frozen=True, gc=False):
    """A decided batch and what its caller may see of it: reasons at the positions in `visible`, everything for None."""

    decided: DecisionRecord
    visible: bytes | None = None
    again: RecordTemplate = msgspec.field(default_factory=RecordTemplate)

    @property
    def answer(self) -> Answer:
        """The answer as the caller gets it."""
        answer = self.decided.answer
        return answer if self.visible is None else reduced(answer, self.visible)


class Pdp:
    """The decision service."""

    def __init__(
        self, bundle: Bundle, source: FactsSource, audit: AuditLog, telemetry: Telemetry, planners: Planners
    ) -> None:
        self.planners = planners
        self.bundle = bundle
        self.source = source
        self.audit = audit
        self.telemetry = telemetry

    def revision(self) -> str:
        """`<store epoch>.<sequence>.<bundle digest>` of what decides now."""
        return _revision(self.bundle, self.source.facts)

    async def check(self, batch: Batch) -> Answer:
        """The answer to a batch; raises Unavailable where its consistency or its audit cannot be served."""
        return (await self.decide(batch)).answer

    async def decide(self, batch: Batch) -> BatchResult:
        """The answer to a batch with all that led to it, which is recorded in full; raises as `check` does."""
        started = time.perf_counter()
        self.audit.admit()
        await self.consistent(batch.consistency)
        bundle, facts = self.bundle, self.source.facts
        stale = self.source.is_stale()
        judge = partial(self._judge, facts=facts, stale=stale)
        visible = None
        if not sees_all(batch.caller):
            guarded = [(check, self._plan(check, bundle, facts, stale)) for check in guards(batch)]
            visible = await self._visible(batch.size, guarded, bundle, judge)
            batch = permitted(batch, visible)
        trees = [self._plan(check, bundle, facts, stale) for check in batch.checks]
        concrete = [list(leaves(tree, check.at)) for check, tree in zip(batch.checks, trees, strict=True)]
        decided = await self._decide_leaves([leaf for found in concrete for leaf, _ in found], bundle, judge)
        answer = await _Fold(bundle, facts, decided).answer(batch, trees)
        elapsed = time.perf_counter() - started
        asked = tuple(
            DecidedCheck(
                check,
                _is_plain(check, tree),
                tuple(LeafDecision(leaf.group, leaf.resources, at, decided(leaf)) for leaf, at in found),
            )
            for check, tree, found in zip(batch.checks, trees, concrete, strict=True)
        )
        recorded = DecisionRecord(batch, answer, asked, bundle.digest, bundle.text, time.time(), int(elapsed * 1e6))
        self._record(recorded, elapsed)
        return BatchResult(recorded, visible)

    def repeat(self, shown: BatchResult) -> None:
        """Decide a batch as it was decided before, of the same bundle and facts: only its record is new.

        Raises Unavailable while no record can be taken.
        """
        self.audit.admit()
        before = shown.decided
        answer = msgspec.structs.replace(before.answer, id=str(uuid7()))
        now = time.time()
        self._record(msgspec.structs.replace(before, answer=answer, time=now, latency_us=0, template=shown.again), 0)

    def record_failure(self, batch: Batch) -> None:
        """Record a batch, rejected as a whole, that no answer could be made for; not where the audit is why."""
        with contextlib.suppress(Exception):  # what failed, and is in the log, may be what a record takes
            self.audit.admit()
            bundle, facts = self.bundle, self.source.facts
            answer = _answer(batch, _revision(bundle, facts), bytes(batch.size), [None] * batch.size)
            self.audit.append(DecisionRecord(batch, answer, (), bundle.digest, bundle.text, time.time(), 0))

    async def filter(self, batch: Batch, columns: Sequence[TypedColumn]) -> RowView:
        """What the principal of a batch of one check sees of its table, and of `columns` of that.

        What cannot be asked shows nothing. Raises Unavailable where its audit cannot be served.
        """
        started = time.perf_counter()
        self.audit.admit()
        bundle, facts = self.bundle, self.source.facts
        found, asked = self._restriction(batch, bundle, facts)
        seen, masked = found.row_view(columns)
        answer = _answer(batch, _revision(bundle, facts), bytes([found.shows_rows]), [found.by])
        elapsed = time.perf_counter() - started
        recorded = DecisionRecord(
            batch, answer, asked, bundle.digest, bundle.text, time.time(), int(elapsed * 1e6), masks=masked
        )
        self._record(recorded, elapsed)
        return seen

    def _plan(self, check: Check, bundle: Bundle, facts: Facts, stale: bool) -> Node:
        return plan(check, asker_of(check, bundle, facts, stale=stale), self.planners.checks)

    def _restriction(self, batch: Batch, bundle: Bundle, facts: Facts) -> tuple[Restriction, tuple[DecidedCheck, ...]]:
        if batch.rejected:
            return hide_everything(batch.rejected[0].by), ()
        check = batch.checks[0]
        if check.inspected:
            return hide_everything("denied"), ()
        table = check.resources[0]
        asker = asker_of(check, bundle, facts, stale=self.source.is_stale())
        found = self.planners.restriction(asker, table)
        verdicts = Verdicts(bytes([PERMIT if found.shows_rows else ABSTAIN]), [found.by])
        group = asker.group(table.type, check.action, table)
        return found, (DecidedCheck(check, True, (LeafDecision(group, check.resources, check.at, verdicts),)),)

    async def _visible(self, size: int, guarded: Sequence[tuple[Check, Node]], bundle: Bundle, judge: Judge) -> bytes:
        """1 for each position all of whose guards, which are checks with their trees, are permitted."""
        concrete = [leaf for check, tree in guarded for leaf, _ in leaves(tree, check.at)]
        decided = await self._decide_leaves(concrete, bundle, judge)
        asked, refused = set[int](), set[int]()
        for check, tree in guarded:
            asked.update(check.at)
            effects = fold(tree, decided).effects
            refused.update(at for at, effect in zip(check.at, effects, strict=True) if effect != PERMIT)
        return bytes(at in asked and at not in refused for at in range(size))

    async def consistent(self, wanted: Consistency) -> None:
        """Wait until the facts are as new as demanded; raises InvalidArgument, Unavailable."""
        if isinstance(wanted, AtLeast):
            await self.source.at_least(*_store_part(wanted.at_least))
        elif wanted == "full":
            await self.source.catch_up()
        elif wanted != "minimize_latency":
            raise InvalidArgument(f"consistency `{wanted}` is none of `minimize_latency`, `full`, `atLeast`")

    async def _decide_leaves(self, asked: Sequence[Leaf | FixedDecision], bundle: Bundle, judge: Judge) -> Decisions:
        """Every leaf's verdicts: each engine is asked once per group, whatever tree a leaf stands in."""
        groups: dict[tuple[Group, Reason | None], list[Leaf]] = {}
        for leaf in asked:
            if isinstance(leaf, Leaf):
                groups.setdefault((leaf.group, leaf.passed), []).append(leaf)
        found: dict[int, Verdicts] = {}
        turn = 0
        for (group, passed), members in groups.items():
            parts = []
            for some in portions(members):
                parts.append(decide(Leaf(group, some, passed), bundle, judge))
                turn += len(some)
                if turn >= CHUNK:
                    turn = 0
                    await asyncio.sleep(0)
            found.update(shared_out(joined(parts), members))
        return lambda leaf: found[id(leaf)] if isinstance(leaf, Leaf) else fold(leaf, _no_leaf)

    def _judge(
        self, engine: Engine, group: Group, resources: Sequence[Resource], facts: Facts, stale: bool
    ) -> Verdicts:
        try:
            verdicts = engine.decide(group, resources, facts)
            if len(verdicts.effects) != len(resources) or len(verdicts.by) != len(resources):
                raise ValueError(f"{len(verdicts.effects)} effects for {len(resources)} resources")
        except Exception:
            log.exception("engine failed, all denied", engine=engine.name, action=group.action, type=group.type)
            self.telemetry.engine_failures.labels(engine.name).inc()
            count = len(resources)
            return Verdicts(bytes([FAILED]) * count, [f"{engine.name}:failed"] * count)
        return without_permits(verdicts) if stale and engine.reads_facts else verdicts

    def _record(self, decided: DecisionRecord, elapsed: float) -> None:
        """Append to the audit, and count; `elapsed` in seconds."""
        self.audit.append(decided)
        allowed = decided.answer.allowed
        permits = allowed.count(1)
        self.telemetry.decided(decided.batch.surface, permits, len(allowed) - permits, elapsed)


def unseen(columns: Sequence[TypedColumn]) -> RowView:
    """What is seen of a table where nobody can tell what may be: no rows, and no values."""
    return hide_everything(DEFAULT_DENY).row_view(columns)[0]


def _answer(
    batch: Batch,
    revision: str,
    allowed: bytes,
    by: Sequence[Reason | None],
    errors: Mapping[int, tuple[str, ...]] = NO_ERRORS,
    traces: Mapping[int, Trace] = _NO_TRACES,
) -> Answer:
    """An answer under an id of its own."""
    return Answer(str(uuid7()), revision, allowed, by, errors, batch.rejected, traces)


class _Fold:
    """Decided leaves folded into the answer of a batch."""

    def __init__(self, bundle: Bundle, facts: Facts, decided: Decisions) -> None:
        self._bundle = bundle
        self._facts = facts
        self._decided = decided

    async def answer(self, batch: Batch, trees: Sequence[Node]) -> Answer:
        if len(trees) == 1 and batch.checks[0].at == range(batch.size) and not batch.explain:
            return self._whole(batch, fold(trees[0], self._decided))
        allowed = bytearray(batch.size)
        by: list[Reason | None] = [None] * batch.size
        errors: dict[int, tuple[str, ...]] = {}
        traces: dict[int, Trace] = {}
        for check, tree in zip(batch.checks, trees, strict=True):
            verdicts = fold(tree, self._decided)
            silent = PERMIT not in verdicts.effects and verdicts.by.count(None) == len(verdicts.by)
            for at, effect, reason in () if silent else zip(check.at, verdicts.effects, verdicts.by, strict=True):
                if effect == PERMIT:
                    allowed[at] = 1
                by[at] = reason
            errors.update((check.at[row], raised) for row, raised in verdicts.errors.items())
            if batch.explain:
                for row, at in enumerate(check.at):
                    traces[at] = self._trace(tree, row)
                    await asyncio.sleep(0)
        for at, rejected in batch.rejected.items():
            by[at] = rejected.by
        return self._made(batch, bytes(allowed), by, errors, traces)

    def _whole(self, batch: Batch, verdicts: Verdicts) -> Answer:
        """One check that is the whole batch, in order: its columns are the answer's."""
        return self._made(batch, verdicts.effects.translate(_ALLOWED), verdicts.by, verdicts.errors, {})

    def _made(
        self,
        batch: Batch,
        allowed: bytes,
        by: Sequence[Reason | None],
        errors: Mapping[int, tuple[str, ...]],
        traces: Mapping[int, Trace],
    ) -> Answer:
        return _answer(batch, _revision(self._bundle, self._facts), allowed, by, errors, traces)

    def _trace(self, node: Node, row: int) -> Trace:
        if isinstance(node, Split):
            part = next(part for part, at in enumerate(node.at) if row in at)
            return self._trace(node.parts[part], node.at[part].index(row))
        verdicts = fold(node, self._decided)
        outcome, why = EFFECT_NAMES[verdicts.effects[row]], verdicts.by[row] or DEFAULT_DENY
        if isinstance(node, AllOf | AnyOf | EachOf):
            what = "all of" if isinstance(node, AllOf) else "each of" if isinstance(node, EachOf) else "any of"
            return Trace(what, outcome, why, tuple(self._trace(part, row) for part in node.parts))
        group, resource = node.group, node.resources[row]
        what = f"{group.action} on {format_resource(resource, group.ref, group.type)} as {group.principal.id}"
        if isinstance(node, FixedDecision):
            return Trace(what, outcome, why)
        authority = self._bundle.authority(group.warehouse)
        parts = tuple(self._explain(engine, group, resource) for engine in (*self._bundle.forbids, *authority.engines))
        combine = authority.combine
        if node.passed:
            parts, combine = (Trace("instance admin", EFFECT_NAMES[PERMIT], node.passed), *parts), "any"
        return Trace(what, outcome, f"{why} ({combine} of authority {authority.name})", parts)

    def _explain(self, engine: Engine, group: Group, resource: Resource) -> Trace:
        if not engine.applies(group.action, group.type):
            return Trace(engine.name, "does not apply")
        return engine.explain(group, resource, self._facts)


def _no_leaf(leaf: Leaf) -> Verdicts:
    raise AssertionError("a fixed answer has no leaves")


def _is_plain(check: Check, tree: Node) -> bool:
    """Whether the concrete checks of a tree are the request itself."""
    if check.view_security:
        return False
    return (
        isinstance(tree, Leaf | FixedDecision)
        and tree.group.action == check.action
        and tree.resources is check.resources
    )


def _revision(bundle: Bundle, facts: Facts) -> str:
    return f"{facts.epoch}.{facts.sequence}.{bundle.digest}"


def _store_part(revision: str) -> tuple[str, int]:
    """The epoch and sequence of `<epoch>.<sequence>.<digest>`; InvalidArgument on anything else."""
    epoch, _, rest = revision.partition(".")
    sequence = rest.partition(".")[0]
    if not (epoch and sequence.isascii() and sequence.isdecimal() and len(sequence) < 20):
        raise InvalidArgument(f"revision `{revision}` is not `<epoch>.<sequence>.<digest>`")
    return epoch, int(sequence)
