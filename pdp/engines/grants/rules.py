"""Parser and compiled rules of the model, and the pure function at the heart of the engine: `evaluate`.

`evaluate` turns the privileges stored on an object and the relations on the parent into all relations on the object.
Knows the notation of `model`; must not know keys, principals or the place of grants.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from pdp.engines.grants.model import CIRCUMSTANCES, MODEL, RENAME_AWAY, RENAME_AWAY_RULE, STORED
from pdp.facts.objects import BIT, VISIBILITY
from pdp.model.vocabulary import PRIVILEGES

_TOKENS: Final = re.compile(r"[\w.]+|\S")


class RelationDefinition(NamedTuple):
    """Node of a parsed rule. `kind` is `|`, `&`, `-`, `stored`, `own`, `up` or `down`. Leaves have a name."""

    kind: str
    name: str = ""
    parts: tuple[RelationDefinition, ...] = ()


def parse_rule(relation: str, text: str) -> RelationDefinition:
    """Return the tree of a relation's rule; raise ValueError if the text is not a rule."""
    return _Parser(relation, text).parse()


class _Parser:
    """Recursive descent over one rule. `|` binds loosest; `&` and `-` bind alike, and to the left."""

    def __init__(self, relation: str, text: str) -> None:
        self._relation = relation
        self._tokens: Iterator[str] = iter(_TOKENS.findall(text))
        self._next = next(self._tokens, "")

    def parse(self) -> RelationDefinition:
        rule = self._union()
        if self._next:
            raise ValueError(f"rule of `{self._relation}`: unexpected `{self._next}`")
        return rule

    def _union(self) -> RelationDefinition:
        parts = [self._term()]
        while self._accept("|"):
            parts.append(self._term())
        return parts[0] if len(parts) == 1 else RelationDefinition("|", parts=tuple(parts))

    def _term(self) -> RelationDefinition:
        rule = self._leaf()
        while self._next in {"&", "-"}:
            rule = RelationDefinition(self._take(), parts=(rule, self._leaf()))
        return rule

    def _leaf(self) -> RelationDefinition:
        word = self._take()
        if word == "(":
            rule = self._union()
            if not self._accept(")"):
                raise ValueError(f"rule of `{self._relation}`: `)` expected before `{self._next}`")
            return rule
        if word == "+":
            return RelationDefinition("stored", self._relation)
        direction, dot, name = word.rpartition(".")
        if dot:
            return RelationDefinition(direction, name)
        return RelationDefinition("stored" if word in CIRCUMSTANCES else "own", word)

    def _accept(self, token: str) -> bool:
        return self._next == token and bool(self._take())

    def _take(self) -> str:
        token, self._next = self._next, next(self._tokens, "")
        return token


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


Rules: TypeAlias = Mapping[str, RelationDefinition]


def _parse(type: str) -> Rules:
    texts = dict(MODEL[type].relations)
    for names, text in MODEL[type].actions.items():
        # an action with the name of a relation (`manage_tags`) is exactly that relation
        texts.update({name: text for name in names.split() if name != text})
    texts |= {RENAME_AWAY: RENAME_AWAY_RULE} if "rename" in texts and "move" in texts else {}
    return {relation: parse_rule(relation, text) for relation, text in texts.items()}


RULES: Final[Mapping[str, Rules]] = {type: _parse(type) for type in MODEL}
"""Object type -> relation or action -> parsed rule."""


class EffectiveRelations:
    """All relations of a principal on one object, with their witnesses. Each is evaluated when first asked for.

    `stored` is the mask of the principal's privileges on the object and of the circumstances there. `parent` has the
    relations on the parent; None without a parent. `below` tells whether the principal sees an object below.

    Compared by identity: `evaluate` returns the same instance for the same input.
    """

    __slots__ = ("_rules", "_witnesses", "below", "parent", "stored")

    def __init__(self, type: str, stored: int, parent: EffectiveRelations | None, below: bool) -> None:
        self.stored = stored
        self.parent = parent
        self.below = below
        self._rules = _COMPILED[type]
        self._witnesses: dict[str, Witness | None] = {}
        # An object of any depth asks its parent, which has the answer already: so no evaluation recurses upward.
        for relation in _INHERITED[type]:
            self.witness(relation)

    def witness(self, relation: str) -> Witness | None:
        """Return the witness of a relation; None if the principal does not have the relation."""
        try:
            return self._witnesses[relation]
        except KeyError:
            witness = None
            if relation in self._rules:
                witness = self._witnesses[relation] = self._rules[relation](self)
            return witness


# Rules read nothing but these four arguments, so a result stays valid for ever and for every principal. The parent is
# compared by identity, which is quick. Real worlds have few combinations: most objects have no grant of their own, so
# all objects of a type in one container share a result. An evicted result costs a second evaluation, no wrong answer.
@lru_cache(maxsize=65536)
def evaluate(type: str, stored: int, parent: EffectiveRelations | None, below: bool) -> EffectiveRelations:
    """Return all relations on an object of a type: the shared instance for these arguments."""
    return EffectiveRelations(type, stored, parent, below)


CompiledRule: TypeAlias = Callable[[EffectiveRelations], Witness | None]
"""Rule as a function of the object's relations. References between the relations of a type have no cycle."""


def _compile(rule: RelationDefinition) -> CompiledRule:
    name = rule.name
    match rule.kind:
        case "stored":
            bit, witness = _BITS[name], Witness(False, 0, PRECEDENCE.index(name))
            return lambda relations: witness if relations.stored & bit else None
        case "own":
            return lambda relations: relations.witness(name)
        case "up":
            return lambda relations: _from_above(relations.parent, name)
        case "down":
            # The index counts visible objects below, for every relation below alike: the assertion at VISIBILITY
            # checks that the model makes the same objects visible.
            visible = Witness(True, 0, 0)
            return lambda relations: visible if relations.below else None
    return _COMBINATIONS[rule.kind]([_compile(part) for part in rule.parts])


def _from_above(parent: EffectiveRelations | None, relation: str) -> Witness | None:
    witness = None if parent is None else parent.witness(relation)
    # The parent's witnesses count from the parent, which is one object further up from here.
    return witness and Witness(witness.below, witness.distance + 1, witness.rank)


def _union(parts: Sequence[CompiledRule]) -> CompiledRule:
    # The minimum does not depend on the order of the parts, so every path to a relation names the same grant.
    return lambda relations: min([w for part in parts if (w := part(relations)) is not None], default=None)


def _intersection(parts: Sequence[CompiledRule]) -> CompiledRule:
    def evaluate_all(relations: EffectiveRelations) -> Witness | None:
        witnesses = [witness for part in parts if (witness := part(relations)) is not None]
        return min(witnesses) if len(witnesses) == len(parts) else None

    return evaluate_all


def _difference(parts: Sequence[CompiledRule]) -> CompiledRule:
    left, right = parts
    # Absence has no witness: the left side alone names the grant.
    return lambda relations: None if right(relations) is not None else left(relations)


_COMBINATIONS: Final = {"|": _union, "&": _intersection, "-": _difference}


def _names(rule: RelationDefinition, kind: str) -> set[str]:
    own = {rule.name} if rule.kind == kind else set()
    return own.union(*(_names(part, kind) for part in rule.parts))


_COMPILED: Final = {
    type: {relation: _compile(rule) for relation, rule in rules.items()} for type, rules in RULES.items()
}
_FROM_PARENTS: Final = {up for rules in RULES.values() for rule in rules.values() for up in _names(rule, "up")}
_PARENTS: Final = frozenset({"server", "project", "warehouse", "namespace"})
_INHERITED: Final = {
    type: tuple(sorted(_FROM_PARENTS & rules.keys())) if type in _PARENTS else () for type, rules in RULES.items()
}
"""Object type -> relations that a rule of some type reads on its parent."""


def _is_visible_by(type: str, privilege: str) -> bool:
    return evaluate(type, BIT[privilege], None, False).witness("get_metadata") is not None


_BELOW_PROJECT: Final = frozenset(STORED) - {"server", "project", "role", "tag", "user"}
assert all(_is_visible_by(type, p) == bool(BIT[p] & VISIBILITY) for type in _BELOW_PROJECT for p in STORED[type]), (
    "the index of facts and the model disagree about visible objects"
)


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
