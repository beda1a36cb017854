"""The plain way to ask a rule set: every rule, in the order of ids.

It explains, it decides where no ref is known, and it is what the selective way is tested against.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pdp.cel.values import RuleError
from pdp.engines.cel.explain import explain_rules
from pdp.engines.cel.program import RULE_VARIABLES
from pdp.engines.cel.questions import GroupChecks, path_of
from pdp.engines.cel.residue import Evaluate, Residue
from pdp.engines.cel.rules import Rule
from pdp.model.checks import Resource, Trace
from pdp.model.vocabulary import CelCheck


class RuleOutcome(NamedTuple):
    """The rule with the smallest id that is true; where none is, the rules that raised."""

    rule: str | None
    raised: tuple[str, ...]


class PlainEvaluator:
    """A rule set asked one check of one resource at a time."""

    def __init__(self, rules: Sequence[Rule], questions: GroupChecks) -> None:
        unbound = questions.lacks_ref
        self._rules = [(rule.id, rule.program.without_ref() if unbound else rule.program.evaluate) for rule in rules]
        self._all = rules
        self._questions = questions

    def answers(self, resource: Resource) -> list[RuleOutcome]:
        """The answer to every check of the group."""
        return [self._answer(check, resource) for check in self._questions.checks]

    def traces(self, resource: Resource) -> tuple[Trace, ...]:
        """Every check with every rule."""
        return tuple(self._trace(check, resource) for check in self._questions.checks)

    def _answer(self, check: CelCheck, resource: Resource) -> RuleOutcome:
        raised = []
        for rule, evaluate in self._rules:
            try:
                if self._evaluate(evaluate, check, resource):
                    return RuleOutcome(rule, ())
            except RuleError:
                raised.append(rule)
        return RuleOutcome(None, tuple(raised))

    def _evaluate(self, evaluate: Evaluate, check: CelCheck, resource: Resource) -> bool:
        return evaluate(*self._arguments(check, resource))

    def _arguments(self, check: CelCheck, resource: Resource) -> list[Any]:
        arguments = list(self._questions.known(check, resource).arguments())
        arguments[Residue.PATH] = path_of(check, resource)
        return arguments

    def _trace(self, check: CelCheck, resource: Resource) -> Trace:
        values = dict(zip(RULE_VARIABLES, self._arguments(check, resource), strict=True))
        if self._questions.lacks_ref:
            del values["ref"]
        parts, miss = explain_rules(self._all, values)
        what = " ".join(filter(None, (check.op, path_of(check, resource))))
        outcomes = {part.outcome for part in parts}
        return Trace(what, "permit" if "true" in outcomes else "silent", miss, parts)
