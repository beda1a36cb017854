"""Compiled rules of the model, and the pure function at the heart of the engine: `evaluate`.

`evaluate` turns the privileges stored on an object and the relations on the parent into all relations on the object.
Knows the notation of `model`; must not know keys, principals or the place of grants.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from pdp.engines.grants.model import CIRCUMSTANCES, MODEL, STORED
from pdp.engines.grants.rule_parser import RelationRule, parse_rule
from pdp.facts.objects import BIT, VISIBILITY
from pdp.model.vocabulary import PRIVILEGES

PRECEDENCE: Final = (*CIRCUMSTANCES, *PRIVILEGES)
"""Circumstances and privileges, strongest first. The rank of a witness is an index here."""
CIRCUMSTANCE_BIT: Final = {name: 1 << (len(BIT) + i) for i, name in enumerate(CIRCUMSTANCES)}
"""Circumstance -> its bit in a mask, above the bits of the privileges."""
_BITS: Final = BIT | CIRCUMSTANCE_BIT


class Witness(NamedTuple):
    """Reason of a relation: the strongest stored privilege on the nearest object. The smaller witness is better.

    `distance` counts objects upward. `rank` is an index into PRECEDENCE. `below` marks a relation that rests only on
    a visible object below; such a witness names no privilege.
    """

    below: bool
    distance: int
    rank: int


class EffectiveRelations:
    """All relations of a principal on one object, with their witnesses.

    Compared by identity: `evaluate` returns the same instance for the same input.
    """

    __slots__ = ("relations",)

    def __init__(self, relations: Mapping[str, Witness]) -> None:
        self.relations = relations


Rules: TypeAlias = Mapping[str, RelationRule]


def _compile(type: str) -> Rules:
    texts = dict(MODEL[type].relations)
    for names, text in MODEL[type].actions.items():
        # an action with the name of a relation (`manage_tags`) is exactly that relation
        texts.update({name: text for name in names.split() if name != text})
    return {relation: parse_rule(relation, text) for relation, text in texts.items()}


RULES: Final[Mapping[str, Rules]] = {type: _compile(type) for type in MODEL}
"""Object type -> relation or action -> compiled rule."""


# Rules read nothing but these four arguments, so a result stays valid for ever and for every principal. The parent is
# compared by identity, which is quick. Real worlds have few combinations: most objects have no grant of their own, so
# all objects of a type in one container share a result. An evicted result costs a second evaluation, no wrong answer.
@lru_cache(maxsize=65536)
def evaluate(type: str, stored: int, parent: EffectiveRelations | None, below: bool) -> EffectiveRelations:
    """Return all relations on an object of a type.

    `stored` is the mask of the principal's privileges on the object and of the circumstances there. `parent` has the
    relations on the parent; None without a parent. `below` tells whether the principal sees an object below.
    """
    return _Evaluation(type, stored, parent, below).result()


class _Evaluation:
    """Single evaluation of all rules of a type. Evaluates each relation once, in the order of the references.

    The references between the relations of a type have no cycle, so the recursion ends.
    """

    def __init__(self, type: str, stored: int, parent: EffectiveRelations | None, below: bool) -> None:
        self._rules = RULES[type]
        self._stored = stored
        self._parent: Mapping[str, Witness] = parent.relations if parent else {}
        self._below = below
        self._witnesses: dict[str, Witness | None] = {}

    def result(self) -> EffectiveRelations:
        witnesses = {relation: self._relation(relation) for relation in self._rules}
        return EffectiveRelations({relation: witness for relation, witness in witnesses.items() if witness is not None})

    def _relation(self, name: str) -> Witness | None:
        if name not in self._witnesses:
            self._witnesses[name] = self._rule(self._rules[name])
        return self._witnesses[name]

    def _rule(self, rule: RelationRule) -> Witness | None:
        match rule.kind:
            case "stored":
                return Witness(False, 0, PRECEDENCE.index(rule.name)) if self._stored & _BITS[rule.name] else None
            case "own":
                return self._relation(rule.name)
            case "up":
                # The parent's witnesses count from the parent, which is one object further up from here.
                witness = self._parent.get(rule.name)
                return witness and witness._replace(distance=witness.distance + 1)
            case "down":
                # The index counts visible objects below, for every relation below alike: the assertion at VISIBILITY
                # checks that the model makes the same objects visible.
                return Witness(True, 0, 0) if self._below else None
        return self._combination(rule)

    def _combination(self, rule: RelationRule) -> Witness | None:
        witnesses = [self._rule(part) for part in rule.parts]
        present = [witness for witness in witnesses if witness is not None]
        if rule.kind == "-":
            # Absence has no witness: the left side alone names the grant.
            return witnesses[0] if witnesses[1] is None else None
        if rule.kind == "&" and len(present) < len(witnesses):
            return None
        # The minimum does not depend on the order of the parts, so every path to a relation names the same grant.
        return min(present, default=None)


def _is_visible_by(type: str, privilege: str) -> bool:
    return "get_metadata" in evaluate(type, BIT[privilege], None, False).relations


_BELOW_PROJECT: Final = frozenset(STORED) - {"server", "project", "role", "tag", "user"}
assert all(_is_visible_by(type, p) == bool(BIT[p] & VISIBILITY) for type in _BELOW_PROJECT for p in STORED[type]), (
    "the index of facts and the model disagree about visible objects"
)


def _names(rule: RelationRule, kind: str) -> set[str]:
    own = {rule.name} if rule.kind == kind else set()
    return own.union(*(_names(part, kind) for part in rule.parts))


def _rests_on_below(relation: str) -> bool:
    """Tell whether a relation of this name rests on objects below, in any type."""
    for rules in RULES.values():
        visited: set[str] = set()
        pending = [relation] if relation in rules else []
        while pending:
            rule = rules[pending.pop()]
            if _names(rule, "down"):
                return True
            new = _names(rule, "own") - visited
            visited |= new
            pending += new
    return False


RESTS_ON_SIBLINGS: Final = frozenset(
    type
    for type, rules in RULES.items()
    if any(_rests_on_below(up) for rule in rules.values() for up in _names(rule, "up"))
)
"""Object types with a rule about a relation of the parent that rests on objects below the parent: role and tag."""
# Relations of a container are evaluated without objects below before they pass to the content (see
# `EffectiveAccess`). That is sound only if no rule of the content reads such a relation.
assert RESTS_ON_SIBLINGS.isdisjoint(_BELOW_PROJECT), "a rule of a container's content rests on its siblings"
