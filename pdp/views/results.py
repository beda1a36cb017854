"""Results of loads and of changes of views: steps, storage access, missing views."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from pdp.audit.records.record import DecisionRecord
from pdp.decision.inspection import plain_reason
from pdp.decision.service import BatchResult
from pdp.engines.engine import PERMIT
from pdp.model.question import DEFAULT_DENY, Load, Rejection
from pdp.model.references import format_resource
from pdp.views.codec import LoadResult, LoadStep
from pdp.views.plans import NO_SUCH_VIEW, READS, WRITES


def load_result(result: BatchResult, load: Load) -> LoadResult:
    """Return the result of a decided batch of one check."""
    answer = result.answer
    steps = tuple(_steps(result.record))
    decision = answer.decision(0)
    missing = next((step.resource for step in steps if step.by == (NO_SUCH_VIEW,)), None)
    if missing:
        rejected = Rejection("NoSuchView", f"`{missing}` in `referencedBy` does not exist")
        decision = replace(decision, error=rejected)
    storage = _storage(steps, load) if decision.allowed else "none"
    visible = steps if result.visible is None or result.visible[0] else tuple(_own_steps(steps))
    if grants := result.grants:
        visible = tuple(replace(step, by=tuple(map(grants.reason, step.by))) for step in visible)
    return LoadResult(decision, visible, answer.revision, answer.id, storage, load)


def _own_steps(steps: Sequence[LoadStep]) -> Iterator[LoadStep]:
    """Yield the steps for a caller without access to grants: the steps before the first owner, without reasons.

    Such a caller could check each of these steps alone.
    """
    for step in steps:
        if not step.delegated:
            yield replace(step, by=(plain_reason(step.by[0], step.allowed),))


def _steps(record: DecisionRecord) -> Iterator[LoadStep]:
    """Yield one step per concrete check, in the order of the plan."""
    last, name = None, ""
    for check in record.checks:
        for leaf in check.concrete:
            group, verdicts = leaf.group, leaf.verdicts
            if leaf.resources[0] is not last:
                last = leaf.resources[0]
                name = format_resource(last, group.ref, group.type)
            by = (verdicts.by[0] or DEFAULT_DENY,)
            allowed = verdicts.effects[0] == PERMIT
            yield LoadStep(name, group.principal.id, group.delegated, group.action, allowed, by)


def _storage(steps: Sequence[LoadStep], load: Load) -> str:
    """Return the storage access of a permitted load: write access includes read access.

    An owner's right to write counts only where the load says so.
    """
    counted = (step for step in steps if step.action != WRITES or not step.delegated or load.owner_writes)
    permitted = {step.action for step in counted if step.allowed}
    return "read_write" if WRITES in permitted else "read" if READS in permitted else "none"
