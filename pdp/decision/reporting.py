"""Report mode: decisions of an authority compared with the answers that others gave. Changes no answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from pdp.decision.basis import Basis
from pdp.decision.bundle import ReportingAuthority
from pdp.decision.cached_evaluation import CachedEvaluation
from pdp.decision.evaluation import LeafVerdicts
from pdp.decision.tree import FixedDecision, Leaf
from pdp.decision.turns import WaitingSteps
from pdp.engines.engine import PERMIT
from pdp.model.checks import DEFAULT_DENY, Batch
from pdp.model.events import ReportedDifference, ReportEvent
from pdp.model.references import format_resource

MOST_DIFFERENCES: Final = 1000
"""Differences in one event."""


class ReportedChecks(NamedTuple):
    """Number of compared concrete checks, and the differences among them."""

    compared: int
    differences: Sequence[ReportedDifference]


def compare(
    report: ReportingAuthority, found: Sequence[Leaf | FixedDecision], basis: Basis, verdicts_of: LeafVerdicts
) -> WaitingSteps[ReportedChecks]:
    """Return the differences of the concrete checks that the authority covers."""
    leaves = [leaf for leaf in found if isinstance(leaf, Leaf) and report.covers(leaf.group.warehouse)]
    if not leaves:
        return ReportedChecks(0, ())
    evaluation = CachedEvaluation(leaves, basis.under(report.bundle), None)
    yield evaluation.run()
    differences = [each for leaf in leaves for each in _differences(leaf, verdicts_of, evaluation.verdicts_of)]
    return ReportedChecks(sum([len(leaf.resources) for leaf in leaves]), differences)


def report_event(report: ReportingAuthority, batch: Batch, decision: str, comparison: ReportedChecks) -> ReportEvent:
    """Return the event of the differences of one decision."""
    differences = comparison.differences
    return ReportEvent(
        authority=report.bundle.default.name,
        decision=decision,
        surface=batch.surface,
        caller=batch.caller.name,
        compared=comparison.compared,
        differences=tuple(differences[:MOST_DIFFERENCES]),
        left_out=max(0, len(differences) - MOST_DIFFERENCES),
    )


def _differences(leaf: Leaf, answered: LeafVerdicts, reported: LeafVerdicts) -> Iterator[ReportedDifference]:
    ours, theirs, group = answered(leaf), reported(leaf), leaf.group
    for row, (effect, other) in enumerate(zip(ours.effects, theirs.effects, strict=True)):
        if (effect == PERMIT) == (other == PERMIT):
            continue
        yield ReportedDifference(
            action=group.action,
            resource=format_resource(leaf.resources[row], group.ref, group.type),
            principal=group.principal.id,
            delegated=group.delegated,
            allowed=effect == PERMIT,
            by=(ours.by[row] or DEFAULT_DENY,),
            report_by=(theirs.by[row] or DEFAULT_DENY,),
            errors=theirs.errors.get(row, ()),
        )
