"""Where one principal stands in one snapshot: what it holds on an object, and which grant says so.

Owns the walk from an object up to the server and the look-up of what shows from below; knows no action and no rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pdp.engines.grants.model import CIRCUMSTANCES
from pdp.engines.grants.rules import PRECEDENCE, SHOWS, Held, Witness, hold
from pdp.facts import NO_GRANTS, Facts, Grant, Key, key_text
from pdp.model import Principal

NOTHING: Final[frozenset[str]] = frozenset()
_NOTHING_BELOW: Final[Mapping[Key, Key]] = {}

Extra = Mapping[Key, frozenset[str]]
"""Privileges held without a stored grant, by object."""


class Standing:
    """One principal in one snapshot, made for one call: containers are worked out once and remembered.

    `grantees` are the ids whose grants count: the principal and the roles it belongs to, none for anonymous.
    """

    def __init__(self, facts: Facts, principal: Principal, extra: Extra) -> None:
        self.facts = facts
        self.principal = principal
        self.extra = extra
        self.grantees = grantees_of(facts, principal)
        self._own: Key = (principal.type, (principal.name,))
        self._always = frozenset({"authenticated"}) if self.grantees else NOTHING
        self._containers: dict[Key, Held] = {}
        self._reasons: dict[tuple[Key | None, Witness], str] = {}
        self._below = [index for grantee in self.grantees if (index := _visible(facts, grantee))]

    def held(self, key: Key, id: str = "") -> Held:
        """What the principal holds on an object; `id` is the one that the asked resource carries."""
        parent = self.facts.parent(key)
        above = None if parent is None else self._container(parent)
        return hold(key[0], self.stored(key, id), above, any(key in index for index in self._below))

    def stored(self, key: Key, id: str = "") -> frozenset[str]:
        """The privileges stored for the principal on this very object, and the circumstances that apply to it."""
        found = self._always
        on = self.facts.grants.get(key)
        if on:
            found = found.union(g.privilege for to in self.grantees & on.keys() for g in on[to] if counts(g, id))
        registered = self.facts.objects.get(key)
        if registered and registered.managed:
            found |= {"managed_access"}
        if key == self._own:
            found |= {"self"}
        return found | self.extra[key] if key in self.extra else found

    def reason(self, key: Key, id: str, witness: Witness) -> str:
        """The determining grant in the words of `by`."""
        if witness.distance == 0 and not witness.below:
            return self._name(key, PRECEDENCE[witness.rank], id)
        asked = (self.facts.parent(key) if witness.distance else key), witness
        known = self._reasons.get(asked)
        if known is None:
            known = self._reasons[asked] = self._distant(key, witness)
        return known

    def grantee(self, key: Key, privilege: str, id: str = "") -> str | None:
        """For whom the privilege is stored on the object: the principal itself before the smallest role."""
        on = self.facts.grants.get(key, NO_GRANTS)
        holders = (
            to for to in self.grantees & on.keys() if any(g.privilege == privilege and counts(g, id) for g in on[to])
        )
        return min(holders, key=lambda to: (to != self.principal.id, to), default=None)

    def _container(self, key: Key) -> Held:
        known = self._containers.get(key)
        if known is not None:
            return known
        missing = [key]
        for above in self.facts.ancestors(key):
            if above in self._containers:
                break
            missing.append(above)
        for container in reversed(missing):  # from the top, so that paths of any depth need no recursion
            self._containers[container] = self.held(container)
        return self._containers[key]

    def _distant(self, key: Key, witness: Witness) -> str:
        target, privilege = [key, *self.facts.ancestors(key)][witness.distance], PRECEDENCE[witness.rank]
        if witness.below:
            target = min((index[target] for index in self._below if target in index), key=key_text)
            privilege = min(self.stored(target) & SHOWS[target[0]], key=PRECEDENCE.index)
        return self._name(target, privilege, "")

    def _name(self, key: Key, privilege: str, id: str) -> str:
        if privilege in CIRCUMSTANCES:
            return f"grants:{privilege}"
        grantee = self.grantee(key, privilege, id)
        if grantee is None:
            return "config:store.bootstrap_admins"
        return f"grants:{privilege} on {key_text(key)} via {grantee}"


def grantees_of(facts: Facts, principal: Principal) -> frozenset[str]:
    """The ids whose grants count for a principal; of token roles, only what they are mapped to (`member_of`)."""
    if principal.type == "anonymous":
        return NOTHING
    return frozenset((principal.id, *(f"role:{role}" for role in facts.roles_of(principal))))


def counts(grant: Grant, id: str) -> bool:
    """Whether a grant holds for a resource that carries this id: a grant for one id never serves another."""
    return not grant.id or not id or grant.id == id


def _visible(facts: Facts, grantee: str) -> Mapping[Key, Key]:
    """Everything above what was granted to a grantee -> the smallest granted object that makes it visible.

    Costs the number of the grantee's grants once per snapshot, so that no check ever walks a tree downward.
    """
    granted = facts.objects_of.get(grantee)
    if granted is None:
        return _NOTHING_BELOW
    known: Mapping[Key, Key] | None = facts.derived.get(("visible", grantee))
    if known is not None:
        return known
    index: dict[Key, Key] = {}
    showing = [key for key in granted if any(g.privilege in SHOWS[key[0]] for g in facts.grants[key][grantee])]
    for key in sorted(showing, key=key_text, reverse=True):
        index.update(dict.fromkeys(facts.ancestors(key), key))
    facts.remember("visible", grantee, index)
    return index
