"""The rules compiled, and the pure function at the heart: what is stored on an object and held above it -> what holds.

Owns the notation of `model` and its meaning; must not know objects, principals or where grants are kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from pdp.engines.grants.model import CIRCUMSTANCES, MODEL, STORED
from pdp.facts.objects import BIT, VISIBILITY
from pdp.model.vocabulary import PRIVILEGES

PRECEDENCE: Final = (*CIRCUMSTANCES, *PRIVILEGES)
CIRCUMSTANCE: Final = {name: 1 << (len(BIT) + i) for i, name in enumerate(CIRCUMSTANCES)}
"""Circumstance -> its bit, in the masks that `hold` takes beside those of privileges."""
_BITS: Final = BIT | CIRCUMSTANCE


class Witness(NamedTuple):
    """Why a relation holds: the strongest stored privilege on the nearest object. The smaller witness is the better.

    `distance` counts objects upward; `below` is set where nothing but something visible below that object speaks
    for it, and then no privilege is named; `rank` is an index into PRECEDENCE.
    """

    below: bool
    distance: int
    rank: int


class EffectiveRelations:
    """All relations that hold on an object, with their witnesses; compared by identity, because `hold` remembers."""

    __slots__ = ("relations",)

    def __init__(self, relations: Mapping[str, Witness]) -> None:
        self.relations = relations


class RelationRule(NamedTuple):
    """One node of a parsed rule: `kind` is `|`, `&`, `-`, `stored`, `own`, `up` or `down`; leaves carry a name."""

    kind: str
    name: str = ""
    parts: tuple[RelationRule, ...] = ()


Rules: TypeAlias = Mapping[str, RelationRule]

_TOKENS: Final = re.compile(r"[\w.]+|\S")


class _Parser:
    """Recursive descent over one rule: `|` binds loosest, `&` and `-` alike and to the left."""

    def __init__(self, relation: str, text: str) -> None:
        self._relation = relation
        self._tokens: Iterator[str] = iter(_TOKENS.findall(text))
        self._next = next(self._tokens, "")

    def parse(self) -> RelationRule:
        rule = self._either()
        if self._next:
            raise ValueError(f"rule of `{self._relation}`: unexpected `{self._next}`")
        return rule

    def _either(self) -> RelationRule:
        parts = [self._term()]
        while self._accept("|"):
            parts.append(self._term())
        return parts[0] if len(parts) == 1 else RelationRule("|", parts=tuple(parts))

    def _term(self) -> RelationRule:
        rule = self._leaf()
        while self._next in {"&", "-"}:
            rule = RelationRule(self._take(), parts=(rule, self._leaf()))
        return rule

    def _leaf(self) -> RelationRule:
        word = self._take()
        if word == "(":
            rule = self._either()
            if not self._accept(")"):
                raise ValueError(f"rule of `{self._relation}`: `)` expected before `{self._next}`")
            return rule
        if word == "+":
            return RelationRule("stored", self._relation)
        where, dot, name = word.rpartition(".")
        if dot:
            return RelationRule(where, name)
        return RelationRule("stored" if word in CIRCUMSTANCES else "own", word)

    def _accept(self, token: str) -> bool:
        return self._next == token and bool(self._take())

    def _take(self) -> str:
        token, self._next = self._next, next(self._tokens, "")
        return token


def _compile(type: str) -> Rules:
    texts = dict(MODEL[type].relations)
    for names, text in MODEL[type].actions.items():
        # an action named like a relation (`manage_tags`) asks exactly that relation
        texts.update({name: text for name in names.split() if name != text})
    return {relation: _Parser(relation, text).parse() for relation, text in texts.items()}


RULES: Final[Mapping[str, Rules]] = {type: _compile(type) for type in MODEL}


@lru_cache(maxsize=65536)
def evaluate(type: str, stored: int, above: EffectiveRelations | None, below: bool) -> EffectiveRelations:
    """What holds on an object of a type.

    `stored` is the mask of the privileges stored on it for the principal and of the circumstances that apply; `above`
    is what holds on the parent, None without one; `below` says that something below shows upward. Worked out once for
    each combination: between any two grants there are few.
    """
    return _Evaluation(type, stored, above, below).result()


class _Evaluation:
    """One run over the rules of a type: each relation once, in whatever order they refer to one another."""

    def __init__(self, type: str, stored: int, above: EffectiveRelations | None, below: bool) -> None:
        self._rules = RULES[type]
        self._stored = stored
        self._above: Mapping[str, Witness] = above.relations if above else {}
        self._below = below
        self._known: dict[str, Witness | None] = {}

    def result(self) -> EffectiveRelations:
        found = {relation: self._relation(relation) for relation in self._rules}
        return EffectiveRelations({relation: witness for relation, witness in found.items() if witness is not None})

    def _relation(self, name: str) -> Witness | None:
        if name not in self._known:
            self._known[name] = self._rule(self._rules[name])
        return self._known[name]

    def _rule(self, rule: RelationRule) -> Witness | None:
        match rule.kind:
            case "stored":
                return Witness(False, 0, PRECEDENCE.index(rule.name)) if self._stored & _BITS[rule.name] else None
            case "own":
                return self._relation(rule.name)
            case "up":
                witness = self._above.get(rule.name)
                return witness and witness._replace(distance=witness.distance + 1)
            case "down":
                return Witness(True, 0, 0) if self._below else None
        return self._combination(rule)

    def _combination(self, rule: RelationRule) -> Witness | None:
        witnesses = [self._rule(part) for part in rule.parts]
        found = [witness for witness in witnesses if witness is not None]
        if rule.kind == "-":
            return witnesses[0] if witnesses[1] is None else None
        if rule.kind == "&" and len(found) < len(witnesses):
            return None
        return min(found, default=None)


def _shows(type: str, privilege: str) -> bool:
    return "get_metadata" in evaluate(type, BIT[privilege], None, False).relations


_BELOW_PROJECT: Final = frozenset(STORED) - {"server", "project", "role", "tag", "user"}
assert all(_shows(type, p) == bool(BIT[p] & VISIBILITY) for type in _BELOW_PROJECT for p in STORED[type]), (
    "what facts index as showing is not what the model shows"
)


def _names(rule: RelationRule, kind: str) -> set[str]:
    own = {rule.name} if rule.kind == kind else set()
    return own.union(*(_names(part, kind) for part in rule.parts))


def _rests_on_below(relation: str) -> bool:
    """Whether a relation of this name rests on what is below, in any type."""
    for rules in RULES.values():
        seen: set[str] = set()
        fringe = [relation] if relation in rules else []
        while fringe:
            rule = rules[fringe.pop()]
            if _names(rule, "down"):
                return True
            new = _names(rule, "own") - seen
            seen |= new
            fringe += new
    return False


ASKS_BELOW: Final = frozenset(
    type
    for type, rules in RULES.items()
    if any(_rests_on_below(up) for rule in rules.values() for up in _names(rule, "up"))
)
"""Object types whose rules ask a relation of the parent that rests on what is below the parent."""
assert ASKS_BELOW.isdisjoint(_BELOW_PROJECT), "what is in a container must not ask what else is below it"
