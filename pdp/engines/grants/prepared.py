"""Prepared questions: a relation that a principal may have on one resource after another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pdp.engines.engine import PERMIT, SILENT, Verdicts
from pdp.engines.grants.container_access import CacheBudget
from pdp.engines.grants.effective_access import EffectiveAccess
from pdp.engines.grants.questions import RelationQuestion
from pdp.facts.snapshot import Facts
from pdp.model.question import Reason, Resource

_PERMITTED: Final = bytes([PERMIT])


class AccessQuestion:
    """Question about the access of one principal in one snapshot of the facts. Compared by identity."""

    __slots__ = ("_access", "_budget", "_facts", "_find_access", "_question")

    def __init__(
        self, question: RelationQuestion, facts: Facts, budget: CacheBudget, find_access: Callable[[], EffectiveAccess]
    ) -> None:
        """Find the access of the principal. `find_access` finds it again after a change of the engine's cache."""
        self._question = question
        self._facts = facts
        self._budget = budget
        self._find_access = find_access
        self._access = find_access()

    def __call__(self, resource: Resource) -> Verdicts:
        """Return the verdicts on a resource."""
        access = self._access
        # The engine retires accesses when the budget is used up, and moves the others to newer facts.
        if access.retired or access.grants.facts is not self._facts or self._budget.left <= 0:
            access = self._access = self._find_access()
        reason = decide_one(access, self._question, resource)
        return SILENT if reason is None else Verdicts(_PERMITTED, [reason])


def decide_one(access: EffectiveAccess, question: RelationQuestion, resource: Resource) -> Reason | None:
    """Return the reason that permits a resource; None for no permit."""
    if question.is_inside:
        return access.reason_inside(question, (resource.warehouse, *resource.path), resource.id)
    relation, key, id = question.target_of(resource)
    witness = access.relations_on(key, id).witness(relation)
    return None if witness is None else access.reason(key, id, witness)
