"""Reach of a rule: an input where the rule decides, a proof that no such input exists, or neither.

A true rule decides if no rule with a smaller id is true. A proof comes from a search over formulas. An input counts
only if the compiled rules agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from pdp.cel.values import RuleError, Timestamp
from pdp.engines.cel.condition_index import ConditionIndex, texts_of
from pdp.engines.cel.lint.formula import TRUE, Formula, Point
from pdp.engines.cel.lint.search import FRESH, SearchBudget, SearchExhausted, satisfy
from pdp.engines.cel.program import RULE_VARIABLES, Program
from pdp.model.vocabulary import CONTENT_CHECKS, NESSIE_CHECKS

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
