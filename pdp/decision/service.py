"""Decision service. Every request passes here; each batch uses one bundle and one revision of the facts.

Plan (`plan`), evaluate (`evaluation`), fold (`answers`), record. The service holds the current bundle and knows the
source of facts and the audit by their protocols only.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import msgspec
from uuid_utils import uuid7

from pdp.audit.record import DecidedCheck, DecisionRecord, LeafDecision, RecordTemplate
from pdp.decision.answers import fold_answer, make_answer, revision_of
from pdp.decision.bundle import Bundle
from pdp.decision.evaluation import Evaluator, LeafVerdicts
from pdp.decision.fold import fold
from pdp.decision.inspection import guards, reduce_answer, reject_invisible, sees_all
from pdp.decision.plan import Planners, context_of, plan
from pdp.decision.tree import FixedDecision, Leaf, Node, leaves
from pdp.engines.engine import ABSTAIN, PERMIT, Verdicts
from pdp.engines.rowaccess.engine import Restriction, hide_everything
from pdp.errors import InvalidArgument
from pdp.facts.snapshot import Facts
from pdp.model.checks import DEFAULT_DENY, Answer, AtLeast, Batch, Check, Consistency, RowView, TypedColumn
from pdp.model.revision import Revision
from pdp.telemetry import Telemetry


class AuditLog(Protocol):
    """Destination of decided batches. Calls must not wait for a disk."""

    def admit(self) -> None:
        """Raise Unavailable while records cannot be taken."""
        ...

    def append(self, record: DecisionRecord) -> None:
        """Take the record of a decided batch."""
        ...


class FactsSource(Protocol):
    """Source of the facts. Reading the facts never waits."""

    @property
    def facts(self) -> Facts:
        """Return the newest snapshot that is present."""
        ...

    def is_stale(self) -> bool:
        """Tell whether the snapshot is too old to permit anything."""
        ...

    async def catch_up(self) -> None:
        """Wait until the snapshot has all commits from before the call; raise Unavailable if that cannot be known."""
        ...

    async def at_least(self, epoch: str, sequence: int) -> None:
        """Wait for a revision, within a bound; raise Unavailable."""
        ...


class BatchResult(msgspec.Struct, frozen=True, gc=False):
    """Decided batch. `visible[i]` is 1 where the caller may see reasons; None means everywhere."""

    record: DecisionRecord
    visible: bytes | None = None
    template: RecordTemplate = msgspec.field(default_factory=RecordTemplate)

    @property
    def answer(self) -> Answer:
        """Return the answer without the reasons that the caller may not see."""
        answer = self.record.answer
        return answer if self.visible is None else reduce_answer(answer, self.visible)


class _Basis(NamedTuple):
    """Everything that a batch is decided from. `stale`: the facts are too old to permit anything."""

    bundle: Bundle
    facts: Facts
    stale: bool


class Pdp:
    """Policy decision point: decides batches and records every decision."""

    def __init__(
        self, bundle: Bundle, source: FactsSource, audit: AuditLog, telemetry: Telemetry, planners: Planners
    ) -> None:
        self.planners = planners
        self.bundle = bundle
        self.source = source
        self.audit = audit
        self.telemetry = telemetry

    def revision(self) -> str:
        """Return the revision of the current bundle and facts, as text."""
        return revision_of(self.bundle, self.source.facts)

    async def check(self, batch: Batch) -> Answer:
        """Return the answer to a batch; raise Unavailable if its consistency or the audit cannot be served."""
        return (await self.decide(batch)).answer

    async def decide(self, batch: Batch) -> BatchResult:
        """Decide a batch and record the decision in full; raise as `check` does."""
        started = time.perf_counter()
        self.audit.admit()
        await self.await_consistency(batch.consistency)
        basis = self._basis()
        visible = None
        if not sees_all(batch.caller):
            visible = await self._visible(batch, basis)
            batch = reject_invisible(batch, visible)
        trees = [self._plan(check, basis) for check in batch.checks]
        verdicts_of = await self._evaluate(batch.checks, trees, basis)
        answer = await fold_answer(batch, trees, verdicts_of, basis.bundle, basis.facts)
        elapsed = time.perf_counter() - started
        checks = tuple(
            DecidedCheck(check, _is_plain(check, tree), tuple(_leaf_decisions(check, tree, verdicts_of)))
            for check, tree in zip(batch.checks, trees, strict=True)
        )
        return BatchResult(
            self._record(DecisionRecord(batch, answer, checks, *_origin(basis, elapsed)), elapsed), visible
        )

    def repeat(self, result: BatchResult) -> None:
        """Record a decision once more, for an equal request under the same bundle and facts.

        Raise Unavailable while no record can be taken.
        """
        self.audit.admit()
        answer = msgspec.structs.replace(result.record.answer, id=str(uuid7()))
        record = msgspec.structs.replace(
            result.record, answer=answer, time=time.time(), latency_us=0, template=result.template
        )
        self._record(record, 0)

    def record_failure(self, batch: Batch) -> None:
        """Record a batch that got no answer and is rejected as a whole. Record nothing if the audit is the cause."""
        with contextlib.suppress(Exception):  # the failure is in the log already, and may affect the record too
            self.audit.admit()
            basis = self._basis()
            revision = revision_of(basis.bundle, basis.facts)
            answer = make_answer(batch, revision, bytes(batch.size), [None] * batch.size)
            self.audit.append(DecisionRecord(batch, answer, (), *_origin(basis, 0)))

    async def filter(self, batch: Batch, columns: Sequence[TypedColumn]) -> RowView:
        """Return the visible rows, and values of `columns`, of the table of a batch of one check.

        A rejected check sees nothing. Raise Unavailable if the audit cannot be served.
        """
        started = time.perf_counter()
        self.audit.admit()
        basis = self._basis()
        restriction, checks = self._restriction(batch, basis)
        view, masks = restriction.row_view(columns)
        revision = revision_of(basis.bundle, basis.facts)
        answer = make_answer(batch, revision, bytes([restriction.shows_rows]), [restriction.by])
        elapsed = time.perf_counter() - started
        self._record(DecisionRecord(batch, answer, checks, *_origin(basis, elapsed), masks=masks), elapsed)
        return view

    async def await_consistency(self, consistency: Consistency) -> None:
        """Wait until the facts are as new as demanded; raise InvalidArgument or Unavailable."""
        if isinstance(consistency, AtLeast):
            revision = Revision.parse(consistency.at_least)
            await self.source.at_least(revision.epoch, revision.sequence)
        elif consistency == "full":
            await self.source.catch_up()
        elif consistency != "minimize_latency":
            raise InvalidArgument(f"consistency `{consistency}` is none of `minimize_latency`, `full`, `atLeast`")

    def _basis(self) -> _Basis:
        return _Basis(self.bundle, self.source.facts, self.source.is_stale())

    def _plan(self, check: Check, basis: _Basis) -> Node:
        context = context_of(check, basis.bundle, basis.facts, stale=basis.stale)
        return plan(check, context, self.planners.checks)

    async def _evaluate(self, checks: Sequence[Check], trees: Sequence[Node], basis: _Basis) -> LeafVerdicts:
        """Return the verdicts on all leaves of the trees of checks."""
        evaluator = Evaluator(basis.bundle, basis.facts, self.telemetry, stale=basis.stale)
        pairs = zip(checks, trees, strict=True)
        return await evaluator.evaluate(leaf for check, tree in pairs for leaf, _ in leaves(tree, check.at))

    async def _visible(self, batch: Batch, basis: _Basis) -> bytes:
        """Return 1 for each position that has guards, all of them permitted."""
        checks = guards(batch)
        trees = [self._plan(check, basis) for check in checks]
        verdicts_of = await self._evaluate(checks, trees, basis)
        guarded, refused = set[int](), set[int]()
        for check, tree in zip(checks, trees, strict=True):
            guarded.update(check.at)
            effects = fold(tree, verdicts_of).effects
            refused.update(at for at, effect in zip(check.at, effects, strict=True) if effect != PERMIT)
        return bytes(at in guarded and at not in refused for at in range(batch.size))

    def _restriction(self, batch: Batch, basis: _Basis) -> tuple[Restriction, tuple[DecidedCheck, ...]]:
        """Return the restriction of the table of a batch of one check, with the check for the record."""
        if batch.rejected:
            return hide_everything(batch.rejected[0].by), ()
        check = batch.checks[0]
        if check.inspected:
            return hide_everything("denied"), ()
        table = check.resources[0]
        context = context_of(check, basis.bundle, basis.facts, stale=basis.stale)
        restriction = self.planners.restriction(context, table)
        verdicts = Verdicts(bytes([PERMIT if restriction.shows_rows else ABSTAIN]), [restriction.by])
        group = context.group(table.type, check.action, table)
        return restriction, (DecidedCheck(check, True, (LeafDecision(group, check.resources, check.at, verdicts),)),)

    def _record(self, record: DecisionRecord, elapsed: float) -> DecisionRecord:
        """Append a record to the audit and count its decisions; `elapsed` is in seconds."""
        self.audit.append(record)
        allowed = record.answer.allowed
        permits = allowed.count(1)
        self.telemetry.count_decisions(record.batch.surface, permits, len(allowed) - permits, elapsed)
        return record


def hidden_view(columns: Sequence[TypedColumn]) -> RowView:
    """Return the view of a table without rows and values, for requests that fail."""
    return hide_everything(DEFAULT_DENY).row_view(columns)[0]


def _origin(basis: _Basis, elapsed: float) -> tuple[str, bytes, float, int]:
    """Return the bundle's digest and text, the time, and the latency in microseconds, for a record."""
    return basis.bundle.digest, basis.bundle.text, time.time(), int(elapsed * 1e6)


def _leaf_decisions(check: Check, tree: Node, verdicts_of: LeafVerdicts) -> Iterator[LeafDecision]:
    for leaf, at in leaves(tree, check.at):
        yield LeafDecision(leaf.group, leaf.resources, at, verdicts_of(leaf))


def _is_plain(check: Check, tree: Node) -> bool:
    """Tell whether the tree is a single leaf that asks the same as the check."""
    if check.view_security:
        return False
    return (
        isinstance(tree, Leaf | FixedDecision)
        and tree.group.action == check.action
        and tree.resources is check.resources
    )
