"""Explanations of the grants engine: what was looked at, object by object, and what is missing.

Owns the wording; asks the same `EffectiveAccess` that decides.
"""

from __future__ import annotations

from typing import Final

from pdp.engines.grants.effective_access import EffectiveAccess
from pdp.engines.grants.model import MODEL, STORED
from pdp.engines.grants.rules import CIRCUMSTANCE
from pdp.facts.objects import BIT, ObjectKey, key_text
from pdp.model.checks import Trace
from pdp.model.vocabulary import PRIVILEGES

_WEAKEST_FIRST: Final = tuple(reversed(PRIVILEGES))
_NAMES: Final = tuple((BIT | CIRCUMSTANCE).items())


def trace_objects(standing: EffectiveAccess, key: ObjectKey, id: str) -> tuple[Trace, ...]:
    """One node per object, from the asked one upward: what is effective there, and what was stored for whom."""
    nearest = _trace_object(standing, key, id)
    return (nearest, *(_trace_object(standing, above, "") for above in standing.facts.ancestors(key)))


def explain_denial(standing: EffectiveAccess, relation: str, key: ObjectKey, id: str) -> str:
    """The weakest privilege on the nearest object that would turn a denial, in one line."""
    who = standing.principal.id
    if not standing.grantees:
        return f"{who} has no grants"
    found = _smallest_grant(standing, relation, key, id)
    if found is None:
        return f"no single grant to {who} would permit {relation} on {key_text(key)}"
    at, privilege = found
    return f"{privilege} on {key_text(at)} to {who} would permit it"


def _trace_object(standing: EffectiveAccess, key: ObjectKey, id: str) -> Trace:
    held = standing.held(key, id).relations
    effective = [name for name in MODEL[key[0]].relations if name in held]
    mask = standing.stored(key, id)
    stored = sorted(name for name, bit in _NAMES if mask & bit and name != "authenticated")
    return Trace(
        key_text(key), ", ".join(effective) or "nothing", ", ".join(_stored(standing, key, p, id) for p in stored)
    )


def _stored(standing: EffectiveAccess, key: ObjectKey, privilege: str, id: str) -> str:
    if privilege in CIRCUMSTANCE:
        return privilege
    grantee = standing.grantee(key, privilege, id)
    return f"{privilege} via {grantee}" if grantee else f"{privilege} by configuration"


def _smallest_grant(standing: EffectiveAccess, relation: str, key: ObjectKey, id: str) -> tuple[ObjectKey, str] | None:
    for at in (key, *standing.facts.ancestors(key)):
        for privilege in _WEAKEST_FIRST:
            if privilege in STORED[at[0]]:
                extra = {**standing.extra, at: standing.extra.get(at, 0) | BIT[privilege]}
                if relation in EffectiveAccess(standing.facts, standing.principal, extra).held(key, id).relations:
                    return at, privilege
    return None
