"""Report mode: decisions of an authority compared with the answers that others gave. Changes no answer.

Comparisons with engines that are awaited run after the answer: no caller waits for an engine that decides nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import structlog

from pdp.decision.active_policies import ShadowAuthority
from pdp.decision.cached_evaluation import CachedEvaluation
from pdp.decision.evaluation import LeafVerdicts
from pdp.decision.plan import FixedDenial, Leaf
from pdp.decision.ports import DecisionSnapshot
from pdp.decision.turns import AwaitingResumable, finish_in_turns
from pdp.engines.engine import PERMIT, EngineQuestion
from pdp.model.answer import DEFAULT_DENY
from pdp.model.events import EventLog, ShadowDifference, ShadowEvent
from pdp.model.question import Batch
from pdp.model.redaction import without_text
from pdp.model.references import format_resource
from pdp.model.vocabulary import is_cluster_action
from pdp.telemetry import Telemetry

MOST_DIFFERENCES: Final = 1000
"""Differences in one event."""
_MOST_LATER: Final = 256
"""Comparisons that may wait for engines at the same time. More are left out, and counted."""
log = structlog.get_logger()


class ShadowDecision(NamedTuple):
    """Decision to compare: a batch, the id of the answer, and the concrete checks with their verdicts."""

    batch: Batch
    decision: str
    found: Sequence[Leaf | FixedDenial]
    basis: DecisionSnapshot
    verdicts_of: LeafVerdicts


class ShadowReporter:
    """Comparison of decisions with authorities in report mode. A failure changes no answer, and is counted."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._later: set[asyncio.Task[None]] = set()

    async def compare(self, decided: ShadowDecision) -> list[ShadowEvent]:
        """Return the differences from the authorities that decide without waiting."""
        reports = [report for report in decided.basis.bundle.reports if not report.bundle.has_awaited]
        events = [await self._compare(report, decided) for report in reports]
        return [event for event in events if event]

    def compare_later(self, decided: ShadowDecision, audit: EventLog) -> None:
        """Begin the comparisons with the other authorities, and let the audit have the differences."""
        for report in decided.basis.bundle.reports:
            if not report.bundle.has_awaited:
                continue
            if len(self._later) >= _MOST_LATER:
                self._count("left_out", report, decided)
                continue
            task = asyncio.create_task(self._note(report, decided, audit))
            self._later.add(task)
            task.add_done_callback(self._later.discard)

    async def settle(self, seconds: float) -> None:
        """Wait for comparisons that have begun, then give up the others."""
        if self._later:
            _, left = await asyncio.wait(self._later, timeout=seconds)
            for task in left:
                task.cancel()

    async def _note(self, report: ShadowAuthority, decided: ShadowDecision, audit: EventLog) -> None:
        try:
            event = await self._compare(report, decided)
        except asyncio.CancelledError:
            self._count("left_out", report, decided)
            raise
        if event:
            audit.note(event)

    async def _compare(self, report: ShadowAuthority, decided: ShadowDecision) -> ShadowEvent | None:
        """Return the differences from one authority; None without any, or after a failure."""
        try:
            checks = await finish_in_turns(compare(report, decided.found, decided.basis, decided.verdicts_of))
        except Exception as error:
            authority, shown = report.bundle.default.name, without_text(error)
            log.exception("comparison failed, the answer stays", authority=authority, exc_info=shown)
            self._count("failed", report, decided)
            return None
        if checks.compared:
            self._telemetry.count_reported(report.bundle.default.name, checks.compared, len(checks.differences))
        return report_event(report, decided.batch, decided.decision, checks) if checks.differences else None

    def _count(self, outcome: str, report: ShadowAuthority, decided: ShadowDecision) -> None:
        checks = sum([len(leaf.resources) for leaf in covered_leaves(report, decided.found)])
        self._telemetry.count_unreported(report.bundle.default.name, outcome, checks)


class ShadowChecks(NamedTuple):
    """Number of compared concrete checks, and the differences among them."""

    compared: int
    differences: Sequence[ShadowDifference]


def compare(
    report: ShadowAuthority, found: Sequence[Leaf | FixedDenial], basis: DecisionSnapshot, verdicts_of: LeafVerdicts
) -> AwaitingResumable[ShadowChecks]:
    """Return the differences of the concrete checks that the authority covers."""
    leaves = covered_leaves(report, found)
    if not leaves:
        return ShadowChecks(0, ())
    evaluation = CachedEvaluation(leaves, basis.under(report.bundle), None)
    yield evaluation.run()
    differences = [each for leaf in leaves for each in _differences(leaf, verdicts_of, evaluation.verdicts_of)]
    return ShadowChecks(sum([len(leaf.resources) for leaf in leaves]), differences)


def covered_leaves(report: ShadowAuthority, found: Sequence[Leaf | FixedDenial]) -> list[Leaf]:
    """Return the concrete checks that an authority in report mode compares."""
    return [leaf for leaf in found if isinstance(leaf, Leaf) and _is_compared(report, leaf.group)]


def _is_compared(report: ShadowAuthority, group: EngineQuestion) -> bool:
    """Tell whether an authority in report mode judges a question: none judges what the configuration permits."""
    return report.covers(group.warehouse) and not is_cluster_action(group.action)


def report_event(report: ShadowAuthority, batch: Batch, decision: str, comparison: ShadowChecks) -> ShadowEvent:
    """Return the event of the differences of one decision."""
    differences = comparison.differences
    return ShadowEvent(
        authority=report.bundle.default.name,
        decision=decision,
        surface=batch.surface,
        caller=batch.caller.name,
        compared=comparison.compared,
        differences=tuple(differences[:MOST_DIFFERENCES]),
        left_out=max(0, len(differences) - MOST_DIFFERENCES),
    )


def _differences(leaf: Leaf, answered: LeafVerdicts, reported: LeafVerdicts) -> Iterator[ShadowDifference]:
    ours, theirs, group = answered(leaf), reported(leaf), leaf.group
    for row, (effect, other) in enumerate(zip(ours.effects, theirs.effects, strict=True)):
        if (effect == PERMIT) == (other == PERMIT):
            continue
        yield ShadowDifference(
            action=group.action,
            resource=format_resource(leaf.resources[row], group.ref, group.type),
            principal=group.principal.id,
            delegated=group.delegated,
            allowed=effect == PERMIT,
            by=(ours.by[row] or DEFAULT_DENY,),
            report_by=(theirs.by[row] or DEFAULT_DENY,),
            errors=theirs.errors.get(row, ()),
        )
