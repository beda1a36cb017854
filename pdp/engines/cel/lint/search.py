"""Search for a point where a formula is true and others are not.

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

from collections.abc import Iterable, Sequence
from itertools import chain, product
from typing import Any, Final, NamedTuple, TypeAlias

from pdp.engines.cel.lint.formula import ERROR, FALSE, TRUE, FlagTest, Formula, Key, OpaqueTest, Point, TextTest
from pdp.engines.cel.program import RULE_VARIABLES
from pdp.model.vocabulary import NESSIE_CHECKS

FRESH: Final = "~"
"""The usual fresh character."""
_MAX_VALUES: Final = 4_000
_MAX_DIMENSIONS: Final = 64
_SEARCH_STEPS: Final = 100_000
_ORDER: Final = {name: number for number, name in enumerate(RULE_VARIABLES)}
_Dimension: TypeAlias = tuple[Key, Sequence[Any]]


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
