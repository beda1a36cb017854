"""Explanations of the grants engine: the relations object by object, and the missing grant.

Contains the wording. Reads the same `EffectiveAccess` as the decision.
"""

from __future__ import annotations

from typing import Final

from pdp.engines.grants.effective_access import EffectiveAccess
from pdp.engines.grants.model import MODEL, STORED
from pdp.engines.grants.rules import CIRCUMSTANCE_BIT
from pdp.facts.objects import BIT, ObjectKey, key_text
from pdp.model.answer import Trace
from pdp.model.vocabulary import PRIVILEGES

_WEAKEST_FIRST: Final = tuple(reversed(PRIVILEGES))
_NAMES: Final = tuple((BIT | CIRCUMSTANCE_BIT).items())


def trace_objects(access: EffectiveAccess, key: ObjectKey, id: str) -> tuple[Trace, ...]:
    """Return a node for the object and for each object above: the effective relations and the stored privileges."""
    nearest = _trace_object(access, key, id)
    return (nearest, *(_trace_object(access, above, "") for above in access.grants.facts.ancestors(key)))


def explain_denial(access: EffectiveAccess, relation: str, key: ObjectKey, id: str) -> str:
    """Return a line that names the weakest privilege on the nearest object that would permit the relation."""
    who = access.grants.principal.id
    if not access.grants.grantees:
        return f"{who} has no grants"
    grant = smallest_grant(access, relation, key, id)
    if grant is None:
        return f"no single grant to {who} would permit {relation} on {key_text(key)}"
    target, privilege = grant
    return f"{privilege} on {key_text(target)} to {who} would permit it"


def _trace_object(access: EffectiveAccess, key: ObjectKey, id: str) -> Trace:
    relations = access.relations_on(key, id)
    effective = [name for name in MODEL[key[0]].relations if relations.witness(name) is not None]
    mask = access.grants.stored_mask(key, id)
    stored = sorted(name for name, bit in _NAMES if mask & bit and name != "authenticated")
    return Trace(
        key_text(key), ", ".join(effective) or "nothing", ", ".join(_source(access, key, p, id) for p in stored)
    )


def _source(access: EffectiveAccess, key: ObjectKey, privilege: str, id: str) -> str:
    if privilege in CIRCUMSTANCE_BIT:
        return privilege
    grantee = access.grants.grantee_with(key, privilege, id)
    return f"{privilege} via {grantee}" if grantee else f"{privilege} by configuration"


def smallest_grant(access: EffectiveAccess, relation: str, key: ObjectKey, id: str) -> tuple[ObjectKey, str] | None:
    """Return the nearest object and the weakest privilege on it that would permit a relation; None without any."""
    # tries each grant in turn: as an extra privilege, without a change of the facts
    facts, extra = access.grants.facts, access.grants.extra
    for target in (key, *facts.ancestors(key)):
        for privilege in _WEAKEST_FIRST:
            if privilege in STORED[target[0]]:
                more = {**extra, target: extra.get(target, 0) | BIT[privilege]}
                widened = EffectiveAccess(facts, access.grants.principal, more)
                if widened.relations_on(key, id).witness(relation) is not None:
                    return target, privilege
    return None
