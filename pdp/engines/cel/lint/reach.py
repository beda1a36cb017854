"""Can a rule be true, and is it ever the first that is? Answered by enumeration, or not at all.

Of a string variable only its tests matter, so these values stand for all: every text that it is compared with, and
every prefix followed by every suffix with a character between them that stands in no text. A search over them that
finds nothing proves that there is nothing, as parts that are no such tests may be true, false or raise at will. What it
finds is a witness only if the compiled rules say so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, product
from typing import Any, Final, NamedTuple

from pdp.cel.values import RuleError
from pdp.engines.cel.condition_index import ConditionIndex, texts_of
from pdp.engines.cel.lint.formula import ERROR, FALSE, TRUE, Flag, Formula, Key, Opaque, Point, Text
from pdp.engines.cel.program import RULE_VARIABLES, Program
from pdp.model.vocabulary import CONTENT_CHECKS, NESSIE_CHECKS

_MAX_VALUES: Final = 4_000
_MAX_DIMENSIONS: Final = 64
_MAX_COVERS: Final = 8
_QUERY_STEPS: Final = 100_000
_FRESH: Final = "~"
_ORDER: Final = {name: number for number, name in enumerate(RULE_VARIABLES)}
_USUAL: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("role", "ref", "path", "warehouse"), _FRESH),
    **dict.fromkeys(("roles", "actions"), ()),
    **dict.fromkeys(("contentType", "type"), ""),
    "op": "READ_ENTITY_VALUE",
    "delegated": False,
    "api": {"apiName": "Nessie", "apiVersion": 2},
}
"""What a witness has where no test asks."""

Input = Mapping[str, Any]
"""A value for each of RULE_VARIABLES."""
_Dimension = tuple[Key, Sequence[Any]]
_NOTHING: Final[Mapping[str, Any]] = {name: () for name, value in _USUAL.items() if isinstance(value, (str, tuple))}


class SearchExhausted(Exception):
    """Too large to be searched."""


class SearchBudget:
    """Steps that a whole rule set may take: beyond them nothing is claimed any more."""

    def __init__(self, steps: int = 20_000_000) -> None:
        self.left = steps

    def query(self) -> SearchBudget:
        """The share of one search; what it takes is taken from the whole by `settle`."""
        return SearchBudget(min(self.left, _QUERY_STEPS))

    def spend(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise SearchExhausted


class StudiedRule(NamedTuple):
    """A rule under study. `covers`: whether where its formula is true the rule is: a macro may exhaust its steps."""

    id: str
    program: Program
    formula: Formula
    covers: bool

    def true_at(self, arguments: Sequence[Any]) -> bool:
        try:
            return self.program.evaluate(*arguments)
        except RuleError:
            return False


Smaller = ConditionIndex[StudiedRule]
"""The rules with smaller ids."""


class Unreachable(NamedTuple):
    """Proven: no input makes the rule true."""


class Shadowed(NamedTuple):
    """Proven: wherever the rule is true, one of these is, and each of them is needed for that."""

    by: tuple[StudiedRule, ...]


class Reachable(NamedTuple):
    """Shown: here the rule is true, and none with a smaller id is."""

    witness: Input


class Undetermined(NamedTuple):
    """Neither proven nor shown."""


def judge(
    subject: StudiedRule, smaller: Smaller, budget: SearchBudget
) -> Unreachable | Shadowed | Reachable | Undetermined:
    """Collects rules that cover the points found so far, until no point is left or nothing covers the last one."""
    covers: list[StudiedRule] = []
    try:
        while len(covers) <= _MAX_COVERS:
            point = satisfy(subject.formula, [cover.formula for cover in covers], budget)
            if point is None:
                return Shadowed(_needed(subject, covers, budget)) if covers else Unreachable()
            found = _cover(subject, smaller, point)
            if not isinstance(found, StudiedRule):
                return found
            if not found.covers or any(found is cover for cover in covers):
                return Undetermined()
            covers.append(found)
    except SearchExhausted:
        pass
    return Undetermined()


def _cover(subject: StudiedRule, smaller: Smaller, point: Point) -> StudiedRule | Reachable | Undetermined:
    """A smaller rule that is true at `point`; at a real input all are asked, else those that must be."""
    witness = input_at(point)
    arguments = tuple(witness.values())
    if subject.true_at(arguments):
        cover = next((rule for rule in smaller.find(texts_of(witness)) if rule.true_at(arguments)), None)
        return cover or Reachable(witness)
    chosen = {name: witness[name] for name, _ in point if name}
    near = smaller.find({**_NOTHING, **texts_of(chosen)})
    certain = (rule for rule in near if rule.covers and rule.formula.outcomes(point) == TRUE)
    return next(certain, None) or Undetermined()


def _needed(subject: StudiedRule, covers: Sequence[StudiedRule], budget: SearchBudget) -> tuple[StudiedRule, ...]:
    needed = list(covers)
    for cover in covers:
        others = [rule for rule in needed if rule is not cover]
        if others and satisfy(subject.formula, [rule.formula for rule in others], budget) is None:
            needed = others
    return tuple(needed)


def satisfy(wanted: Formula, unwanted: Sequence[Formula], budget: SearchBudget) -> Point | None:
    """A point, maybe partial, where `wanted` is true and none of `unwanted` is; None if there is none.

    Raises GaveUp.
    """
    leaves = [leaf for formula in (wanted, *unwanted) for leaf in formula.leaves()]
    search = _Search(wanted, unwanted, len(leaves), budget.query())
    before = search.budget.left
    try:
        return search.run({}, dimensions(leaves))
    finally:
        budget.left -= before - max(search.budget.left, 0)


class _Search(NamedTuple):
    """Depth first, leaving off where `wanted` cannot be true any more or something unwanted must be."""

    wanted: Formula
    unwanted: Sequence[Formula]
    size: int
    budget: SearchBudget

    def run(self, point: dict[Key, Any], open: Sequence[_Dimension]) -> Point | None:
        self.budget.spend(self.size)
        wanted = self.wanted.outcomes(point)
        unwanted = [formula.outcomes(point) for formula in self.unwanted]
        if not wanted & TRUE or TRUE in unwanted:
            return None
        if wanted == TRUE and not any(outcome & TRUE for outcome in unwanted):
            return point
        (key, values), *rest = open
        found = (self.run({**point, key: value}, rest) for value in values)
        return next((point for point in found if point is not None), None)


def dimensions(leaves: Sequence[Formula]) -> list[_Dimension]:
    """Every variable and opaque part of `leaves`, with values that stand for all; raises GaveUp."""
    texts = [leaf for leaf in leaves if isinstance(leaf, Text)]
    fresh = _fresh(text for leaf in texts for text in leaf.texts)
    names = sorted({leaf.variable for leaf in texts}, key=_ORDER.__getitem__)
    found: list[_Dimension] = [((name, ""), _values(name, texts, fresh)) for name in names]
    flags = dict.fromkeys((leaf.variable, leaf.text) for leaf in leaves if isinstance(leaf, Flag))
    opaque = dict.fromkeys(("", leaf.text) for leaf in leaves if isinstance(leaf, Opaque))
    found += [(key, (False, True)) for key in flags]
    found += [(key, (TRUE, FALSE, ERROR)) for key in opaque]
    if len(found) > _MAX_DIMENSIONS:
        raise SearchExhausted
    return found


def _fresh(texts: Iterator[str]) -> str:
    """A character that stands in none of `texts`."""
    used = set(chain.from_iterable(texts))
    return next(one for one in chain(_FRESH, "*+^", map(chr, range(0xE000, 0xF8FF))) if one not in used)


def _values(name: str, leaves: Sequence[Text], fresh: str) -> Sequence[str]:
    """Fresh texts first, so that what is found says no more than it must; an op is a real one where that will do."""
    texts: dict[str, set[str]] = {"equals": set(), "starts": {""}, "ends": {""}}
    for leaf in leaves:
        if leaf.variable == name:
            texts[leaf.test] |= leaf.texts
    if len(texts["starts"]) * len(texts["ends"]) + len(texts["equals"]) > _MAX_VALUES:
        raise SearchExhausted
    free = [fresh.join(ends) for ends in product(sorted(texts["starts"]), sorted(texts["ends"]))]
    real = sorted(NESSIE_CHECKS - texts["equals"]) if name == "op" else []
    return [*real, *free, *sorted(texts["equals"])]


def input_at(point: Point) -> Input:
    """The input that a point means, with what is usual where it says nothing."""
    values = dict(_USUAL)
    if point.get(("op", "")) in NESSIE_CHECKS - CONTENT_CHECKS:
        values["path"] = ""
    for (name, text), value in point.items():
        if isinstance(values.get(name), tuple):
            values[name] += (text,) if value else ()
        elif name:
            values[name] = value
    return {name: values[name] for name in RULE_VARIABLES}
