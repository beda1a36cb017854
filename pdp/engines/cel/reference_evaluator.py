"""Evaluation of a rule set in the plainest way: every rule, in the order of ids.

The engines explain with this evaluator, and decide with this evaluator where no ref is known. Tests compare the fast
path (selection and residues) with the outcomes here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pdp.cel.values import RuleError
from pdp.engines.cel.check_values import PATH_ARGUMENT
from pdp.engines.cel.explain import explain_rules
from pdp.engines.cel.group_checks import GroupChecks
from pdp.engines.cel.paths import path_of
from pdp.engines.cel.program import RULE_VARIABLES
from pdp.engines.cel.rules import Rule
from pdp.model.masking import DEFAULT_MASKER, Masker
from pdp.model.question import Resource, Trace
from pdp.model.vocabulary import CelCheck


class RuleOutcome(NamedTuple):
    """The id of the first true rule; without a true rule, None and the ids of raising rules."""

    rule: str | None
    raised: tuple[str, ...]


class ReferenceEvaluator:
    """Evaluator of single checks of single resources, for the checks of a group."""

    def __init__(self, rules: Sequence[Rule], group_checks: GroupChecks, masker: Masker = DEFAULT_MASKER) -> None:
        self._masker = masker
        self._rules = rules
        self._group_checks = group_checks
        self._functions = [
            (rule.id, rule.program.without_ref() if group_checks.lacks_ref else rule.program.evaluate) for rule in rules
        ]

    def outcomes(self, resource: Resource) -> list[RuleOutcome]:
        """Return the outcome of every check of the group."""
        return [self._outcome(check, resource) for check in self._group_checks.checks]

    def traces(self, resource: Resource) -> tuple[Trace, ...]:
        """Return a trace of every check, with every rule."""
        return tuple(self._trace(check, resource) for check in self._group_checks.checks)

    def values(self, resource: Resource) -> list[dict[str, Any]]:
        """Return the variables by name, with their values, for every check of the group; without `ref` if unknown."""
        return [self._by_name(check, resource) for check in self._group_checks.checks]

    def _by_name(self, check: CelCheck, resource: Resource) -> dict[str, Any]:
        values = dict(zip(RULE_VARIABLES, self._arguments(check, resource), strict=True))
        if self._group_checks.lacks_ref:
            del values["ref"]
        return values

    def _outcome(self, check: CelCheck, resource: Resource) -> RuleOutcome:
        arguments = self._arguments(check, resource)
        raised = []
        for rule, evaluate in self._functions:
            try:
                if evaluate(*arguments):
                    return RuleOutcome(rule, ())
            except RuleError:
                raised.append(rule)
        return RuleOutcome(None, tuple(raised))

    def _arguments(self, check: CelCheck, resource: Resource) -> list[Any]:
        arguments = list(self._group_checks.values(check, resource).arguments())
        arguments[PATH_ARGUMENT] = path_of(check, resource)
        return arguments

    def _trace(self, check: CelCheck, resource: Resource) -> Trace:
        parts, miss = explain_rules(self._rules, self._by_name(check, resource), self._masker)
        subject = " ".join(filter(None, (check.op, path_of(check, resource))))
        outcomes = {part.outcome for part in parts}
        return Trace(subject, "permit" if "true" in outcomes else "silent", miss, parts)
