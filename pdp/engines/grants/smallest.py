"""Smallest grants: the one grant that a question needs, and the privileges that a grant conveys."""

from __future__ import annotations

from collections.abc import Iterator

from pdp.engines.grants.effective_access import EffectiveAccess
from pdp.engines.grants.explain import smallest_grant
from pdp.engines.grants.model import MODEL
from pdp.engines.grants.questions import QUESTIONS
from pdp.facts.objects import BIT, Grant, ObjectKey
from pdp.facts.snapshot import Facts
from pdp.model.question import Principal, Resource


def grant_for(facts: Facts, grantee: Principal, action: str, resource: Resource) -> Grant | None:
    """Return the weakest grant on the nearest object that permits a question to a grantee; None without one.

    The facts have objects alone: a grant among them would permit the question already.
    """
    question = QUESTIONS.get((action, resource.type))
    if question is None:
        return None
    relation, key, id = question.target_of(resource)
    found = smallest_grant(EffectiveAccess(facts, grantee, {}), relation, key, id)
    return Grant(found[0], found[1], grantee.id) if found else None


def conveyed(facts: Facts, grant: Grant, keys: Iterator[ObjectKey]) -> int:
    """Return the number of pairs of relation and object that a grant alone conveys, for some objects."""
    access = EffectiveAccess(facts, Principal("user", "x"), {grant.object: BIT[grant.privilege]})
    return sum(
        access.relations_on(key).witness(relation) is not None for key in keys for relation in MODEL[key[0]].relations
    )
