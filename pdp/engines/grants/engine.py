"""The grants engine: decides by stored grants under Lakekeeper's model.

Owns the mapping of a check to a relation of the model and the shape of verdicts; what a relation means stands in
`model`, who holds it in `standing`. It never forbids: without a grant it is silent.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from pdp.engines.engine import ABSTAIN, PERMIT, Group, Verdicts
from pdp.engines.grants.explain import explain_denial, trace_objects
from pdp.engines.grants.model import ACTIONS, CONTENT, MODEL, NESSIE
from pdp.engines.grants.standing import Extra, Standing, grantees_of
from pdp.facts import SERVER, Facts, Key, key_of, key_text
from pdp.model import CONTENT_TYPES, Reason, Resource, Trace

_CONCRETE_CONTENT: Final = CONTENT_TYPES - {"table_or_view"}
_BOOTSTRAP: Final[Extra] = {SERVER: frozenset({"operator"})}
_NO_EXTRA: Final[Extra] = {}


class GrantsEngine:
    """Decides by grants. `bootstrap_admins` are principal ids that hold server `operator` without a stored grant."""

    def __init__(self, bootstrap_admins: frozenset[str] = frozenset()) -> None:
        self._bootstrap_admins = bootstrap_admins
        self._digest = sha256(repr((MODEL, NESSIE, CONTENT, sorted(bootstrap_admins))).encode()).hexdigest()

    @property
    def name(self) -> str:
        """What `by` and `engines` call it."""
        return "grants"

    @property
    def digest(self) -> str:
        """Identifies the model and the configured administrators."""
        return self._digest

    def applies(self, action: str, type: str) -> bool:
        """Canonical actions of the type, and Nessie's content checks on anything with a path."""
        return action in ACTIONS.get(type, ()) or (action in NESSIE and type in _CONCRETE_CONTENT)

    def decide(self, group: Group, resources: Sequence[Resource], facts: Facts) -> Verdicts:
        """Judge every resource; what depends on the principal or on a container is worked out once."""
        effects = bytearray(len(resources))
        by: list[Reason | None] = [None] * len(resources)
        if self.applies(group.action, group.type):
            standing = self._standing(group, facts)
            for i, resource in enumerate(resources):
                relation, key, id = _question(group.action, group.type, resource)
                witness = standing.held(key, id).relations.get(relation)
                if witness is not None:
                    effects[i] = PERMIT
                    by[i] = standing.reason(key, id, witness)
        return Verdicts(bytes(effects), by)

    def explain(self, group: Group, resource: Resource, facts: Facts) -> Trace:
        """What the principal holds on the object and on all above it; on a denial, the smallest missing grant."""
        if not self.applies(group.action, group.type):
            return Trace("grants", "silent", f"does not apply to {group.action} on {group.type}")
        standing = self._standing(group, facts)
        relation, key, id = _question(group.action, group.type, resource)
        verdicts = self.decide(group, (resource,), facts)
        permitted = verdicts.effects[0] != ABSTAIN
        return Trace(
            f"grants: {relation} on {key_text(key)} for {group.principal.id}",
            "permit" if permitted else "silent",
            verdicts.by[0] or explain_denial(standing, relation, key, id),
            trace_objects(standing, key, id),
        )

    def _standing(self, group: Group, facts: Facts) -> Standing:
        bootstrap = self._bootstrap_admins & grantees_of(facts, group.principal) if self._bootstrap_admins else ()
        return Standing(facts, group.principal, _BOOTSTRAP if bootstrap else _NO_EXTRA)


def _question(action: str, of: str, resource: Resource) -> tuple[str, Key, str]:
    """The relation that a check asks, the object on which it is asked, and the id that the resource carries."""
    key = key_of(resource, of)
    nessie = NESSIE.get(action)
    if nessie is None:
        return action, key, resource.id
    type = CONTENT.get(resource.content_type, "table") if of == "content" else of
    where, _, relation = nessie.get(type, nessie[""]).rpartition(".")
    if not where:
        return relation, (type, key[1]), resource.id
    # the parent of something with a path is a namespace or its warehouse: the id of what is below says nothing of it
    parts = key[1][:-1]
    return relation, ("namespace" if len(parts) > 1 else "warehouse", parts), ""
