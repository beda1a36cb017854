"""Reach of a rule: an input where the rule decides, a proof that no such input exists, or neither.

A true rule decides if no rule with a smaller id is true. A proof comes from a search over formulas: for a point where
one is true and others are not. An input counts only if the compiled rules agree.

A search finds a point, proves that no point exists, or gives up. Every variable gets a finite list of values that stand
for all values.

Formulas test a string variable in three ways: equal to a text of a set E, starting with a text of P, or ending with a
text of S. Take a value outside E, the longest prefix p in P, the longest suffix s in S (both may be empty), and a fresh
character "~" that occurs in no text. Then `p~s` passes exactly the same tests as the value. Every prefix of `p~s` in P
is a prefix of p, since no text contains the fresh character. The same holds for suffixes, and `p~s` is not in E. So the
texts of E, with every prefix joined to every suffix by the fresh character, stand for all values.

Membership of a text in a list is true or false, and an opaque test is true, false or raises, both independently of all
else. This allows more than real inputs do. So "no point" is proven for real inputs, while a point may have no input.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, product
from typing import Any, Final, NamedTuple, TypeAlias

from pdp.cel.values import RuleError, Timestamp
from pdp.engines.cel.lint.formula import ERROR, FALSE, TRUE, FlagTest, Formula, Key, OpaqueTest, Point, TextTest
from pdp.engines.cel.program import RULE_VARIABLES, Program
from pdp.engines.cel.selection import ConditionIndex, texts_of
from pdp.model.vocabulary import CONTENT_CHECKS, NESSIE_CHECKS

FRESH: Final = "~"
"""The usual fresh character."""
_MAX_VALUES: Final = 4_000
_MAX_DIMENSIONS: Final = 64
_SEARCH_STEPS: Final = 100_000
_ORDER: Final = {name: number for number, name in enumerate(RULE_VARIABLES)}
_Dimension: TypeAlias = tuple[Key, Sequence[Any]]
_MAX_COVERS: Final = 8
_USUAL: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("role", "ref", "path", "warehouse", "action"), FRESH),
    **dict.fromkeys(("roles", "actions", "groups"), ()),
    "attributes": {},
    "properties": {},
    **dict.fromkeys(("contentType", "type"), ""),
    "op": "READ_ENTITY_VALUE",
    "delegated": False,
    "api": {"apiName": "Nessie", "apiVersion": 2},
    "now": Timestamp(0),
    "arguments": {},
}
"""Values of an input for the variables that a point leaves open."""
_NO_TEXTS: Final[Mapping[str, Any]] = {name: () for name, value in _USUAL.items() if isinstance(value, (str, tuple))}

Input: TypeAlias = Mapping[str, Any]
"""A value for each of RULE_VARIABLES."""


class RuleModel(NamedTuple):
    """A compiled rule with a formula. `exact`: the rule is true wherever the formula is.

    A rule with a macro is not exact, since evaluation may run out of steps and raise.
    """

    id: str
    program: Program
    formula: Formula
    exact: bool

    def is_true_for(self, arguments: Sequence[Any]) -> bool:
        """Evaluate the compiled rule. A raising rule is not true."""
        try:
            return self.program.evaluate(*arguments)
        except RuleError:
            return False


SmallerRules: TypeAlias = ConditionIndex[RuleModel]
"""The rules with smaller ids."""


class Unreachable(NamedTuple):
    """Proof that no input makes the rule true."""


class Shadowed(NamedTuple):
    """Proof: wherever the rule is true, a rule of `by` is true. The proof needs each of `by`."""

    by: tuple[RuleModel, ...]


class Reachable(NamedTuple):
    """An input where the rule is true and no rule with a smaller id is."""

    witness: Input


class Undetermined(NamedTuple):
    """Neither a proof nor an input."""


Reach: TypeAlias = Unreachable | Shadowed | Reachable | Undetermined


def determine_reach(subject: RuleModel, smaller: SmallerRules, budget: SearchBudget) -> Reach:
    """Determine the reach of `subject`.

    Search for a point where `subject` is true and no cover is, beginning without covers. A smaller rule that is true
    at the point becomes a further cover. In the end there is no such point, and the covers shadow the rule, or there is
    no cover for the point. Only exact rules become covers: another rule may raise where its formula is true.
    """
    covers: list[RuleModel] = []
    try:
        while len(covers) <= _MAX_COVERS:
            point = satisfy(subject.formula, [cover.formula for cover in covers], budget)
            if point is None:
                return Shadowed(_needed_covers(subject, covers, budget)) if covers else Unreachable()
            cover = _cover(subject, smaller, point)
            if not isinstance(cover, RuleModel):
                return cover
            # A known cover comes again if the point chooses outcomes of opaque tests that its input does not have.
            if not cover.exact or any(cover is known for known in covers):
                return Undetermined()
            covers.append(cover)
    except SearchExhausted:
        pass
    return Undetermined()


def _cover(subject: RuleModel, smaller: SmallerRules, point: Point) -> RuleModel | Reachable | Undetermined:
    """Return a smaller rule that is true at `point`, or the result if there is none."""
    witness = _input_at(point)
    arguments = tuple(witness.values())
    if subject.is_true_for(arguments):
        # The point is a real input, so the compiled rules decide.
        cover = next((rule for rule in smaller.find(texts_of(witness)) if rule.is_true_for(arguments)), None)
        return cover or Reachable(witness)
    # The input does not have the outcomes that the point chose for opaque tests. A formula that is true at the point
    # covers the point all the same. A formula with a condition on an open variable is never certain to be true, so
    # such rules are left out.
    chosen = {name: witness[name] for name, _ in point if name}
    near = smaller.find({**_NO_TEXTS, **texts_of(chosen)})
    certain = (rule for rule in near if rule.exact and rule.formula.outcomes(point) == TRUE)
    return next(certain, None) or Undetermined()


def _needed_covers(subject: RuleModel, covers: Sequence[RuleModel], budget: SearchBudget) -> tuple[RuleModel, ...]:
    """Leave out covers in turn, as long as the rest still covers the subject."""
    needed = list(covers)
    for cover in covers:
        others = [rule for rule in needed if rule is not cover]
        if others and satisfy(subject.formula, [rule.formula for rule in others], budget) is None:
            needed = others
    return tuple(needed)


def _input_at(point: Point) -> Input:
    """Return the input of a point, with usual values for open variables."""
    values = dict(_USUAL)
    if point.get(("op", "")) in NESSIE_CHECKS - CONTENT_CHECKS:
        values["path"] = ""
    for (name, text), value in point.items():
        if isinstance(values.get(name), tuple):
            values[name] += (text,) if value else ()
        elif name:
            values[name] = value
    return {name: values[name] for name in RULE_VARIABLES}


class SearchExhausted(Exception):
    """A search above the limits."""


class SearchBudget:
    """Steps that all searches for a rule set may take together."""

    def __init__(self, steps: int = 20_000_000) -> None:
        self.left = steps

    def share(self) -> SearchBudget:
        """Return the budget of a single search. The caller subtracts the used steps."""
        return SearchBudget(min(self.left, _SEARCH_STEPS))

    def spend(self, steps: int) -> None:
        """Take steps from the budget.

        Raise SearchExhausted if there are not as many left.
        """
        self.left -= steps
        if self.left < 0:
            raise SearchExhausted


def satisfy(wanted: Formula, unwanted: Sequence[Formula], budget: SearchBudget) -> Point | None:
    """Return a point where `wanted` is true and none of `unwanted` is, or None if there is none.

    The values of open keys do not matter. Raise SearchExhausted if the search is too large.
    """
    leaves = [leaf for formula in (wanted, *unwanted) for leaf in formula.leaves()]
    search = _Search(wanted, unwanted, len(leaves), budget.share())
    before = search.budget.left
    try:
        return search.run({}, _dimensions(leaves))
    finally:
        budget.left -= before - max(search.budget.left, 0)


class _Search(NamedTuple):
    """A depth-first search. `size`: the steps for an evaluation of all formulas."""

    wanted: Formula
    unwanted: Sequence[Formula]
    size: int
    budget: SearchBudget

    def run(self, point: dict[Key, Any], open: Sequence[_Dimension]) -> Point | None:
        """Return an extension of `point` in the `open` dimensions, or None."""
        self.budget.spend(self.size)
        wanted = self.wanted.outcomes(point)
        unwanted = [formula.outcomes(point) for formula in self.unwanted]
        # Outcomes only shrink as values are chosen, so both tests below stay valid for every extension of the point.
        if not wanted & TRUE or TRUE in unwanted:
            return None
        if wanted == TRUE and not any(outcome & TRUE for outcome in unwanted):
            return point
        # With all values chosen each formula has one outcome, and one of the tests above holds. So `open` is not empty.
        (key, values), *rest = open
        points = (self.run({**point, key: value}, rest) for value in values)
        return next((point for point in points if point is not None), None)


def _dimensions(leaves: Sequence[Formula]) -> list[_Dimension]:
    """Return all keys of the tests, each with values that stand for all values.

    Raise SearchExhausted if there are too many keys or values.
    """
    texts = [leaf for leaf in leaves if isinstance(leaf, TextTest)]
    fresh = _fresh_character(text for leaf in texts for text in leaf.texts)
    names = sorted({leaf.variable for leaf in texts}, key=_ORDER.__getitem__)
    flags = dict.fromkeys((leaf.variable, leaf.text) for leaf in leaves if isinstance(leaf, FlagTest))
    opaque = dict.fromkeys(("", leaf.text) for leaf in leaves if isinstance(leaf, OpaqueTest))
    dimensions: list[_Dimension] = [((name, ""), _values(name, texts, fresh)) for name in names]
    dimensions += [(key, (False, True)) for key in flags]
    dimensions += [(key, (TRUE, FALSE, ERROR)) for key in opaque]
    if len(dimensions) > _MAX_DIMENSIONS:
        raise SearchExhausted
    return dimensions


def _fresh_character(texts: Iterable[str]) -> str:
    """Return a character that occurs in none of `texts`."""
    used = set(chain.from_iterable(texts))
    candidates = chain(FRESH, "*+^", map(chr, range(0xE000, 0xF8FF)))
    return next(character for character in candidates if character not in used)


def _values(name: str, tests: Sequence[TextTest], fresh: str) -> Sequence[str]:
    """Return values of a string variable that stand for all values under `tests`.

    Texts with the fresh character come before the texts of tests, so that a point says no more than needed. Real check
    types come first for `op`, to make an input for the point likely.
    """
    texts: dict[str, set[str]] = {"equals": set(), "starts": {""}, "ends": {""}}
    for test in tests:
        if test.variable == name:
            texts[test.kind] |= test.texts
    if len(texts["starts"]) * len(texts["ends"]) + len(texts["equals"]) > _MAX_VALUES:
        raise SearchExhausted
    free = [fresh.join(ends) for ends in product(sorted(texts["starts"]), sorted(texts["ends"]))]
    real = sorted(NESSIE_CHECKS - texts["equals"]) if name == "op" else []
    return [*real, *free, *sorted(texts["equals"])]
