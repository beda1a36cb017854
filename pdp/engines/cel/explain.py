"""Explanations of rules: the sub-expressions with their values, and the nearest miss of a rule set.

Rests on an evaluation of every rule in order, in the plainest way.

The engines explain with the plain evaluator, and decide by the same where no ref is known. Tests compare the fast path
(selection and residues) with its outcomes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from pdp.cel.unparse import unparse_value
from pdp.cel.values import RuleError, require_bool
from pdp.engines.cel.conditions import EVERY_ROLE
from pdp.engines.cel.group_checks import GroupChecks
from pdp.engines.cel.path_tables import path_of
from pdp.engines.cel.program import PATH, RULE_VARIABLES
from pdp.engines.cel.residue import PATH_ARGUMENT
from pdp.engines.cel.rules import Rule, RulePart, split_rule
from pdp.model.answer import Trace
from pdp.model.question import Resource
from pdp.model.redaction import DEFAULT_MASKER, Redactor
from pdp.model.vocabulary import NessieCheck

MAX_FALSE_RULES: Final = 50
"""Rules of a large set that an explanation includes beside those that are true or raised: the nearest misses."""
_MAX_MISSES: Final = 3
_MAX_VALUE_LENGTH: Final = 200
_OUTCOMES: Final = ("true", "error", "false")
"""Outcomes of the readings of a rule: the first that a reading has is that of the rule."""


class RuleTrace(msgspec.Struct, frozen=True):
    """The trace of a rule, and the conditions of the conjunction that do not hold."""

    trace: Trace
    unmet: tuple[str, ...]


def explain_rules(
    rules: Sequence[Rule], values: dict[str, Any], masker: Redactor = DEFAULT_MASKER, unknown: tuple[str, ...] = ()
) -> tuple[tuple[Trace, ...], str]:
    """Return the traces of the rules, and the nearest miss in words if no rule is true.

    `values` are the variables by name. Using a missing variable or `unknown` evidence raises. Secrets in the values are
    masked.
    """
    rule_traces = [explain_rule(rule, _known_to(rule, values, unknown), masker) for rule in rules]
    if any(rule.trace.outcome == "true" for rule in rule_traces):
        return _limit_traces(rule_traces), ""
    if not rule_traces:
        return (), "there are no rules"
    fewest = min(_distance(rule) for rule in rule_traces)
    nearest = [rule for rule in rule_traces if _distance(rule) == fewest][:_MAX_MISSES]
    misses = "; ".join(f"{rule.trace.what} lacks {' and '.join(rule.unmet)}" for rule in nearest)
    return _limit_traces(rule_traces), f"nearest miss: {misses}"


def _known_to(rule: Rule, values: dict[str, Any], unknown: tuple[str, ...]) -> dict[str, Any]:
    """Return the variables with a value for a rule."""
    lacking = rule.program.lacking(unknown)
    return {name: value for name, value in values.items() if name not in lacking} if lacking else values


def explain_rule(rule: Rule, values: dict[str, Any], masker: Redactor = DEFAULT_MASKER) -> RuleTrace:
    """Return the trace of the rule for these values."""
    roots = split_rule(rule.program, rule.program.variables.difference(values))
    traces = [_trace(root, values, masker) for root in roots]
    trace = min(traces, key=lambda found: _OUTCOMES.index(found.outcome))
    root = roots[traces.index(trace)]
    conjuncts = root.parts if root.conjunction else (root,)
    unmet = tuple(_unmet(part, values, masker) for part in conjuncts if _outcome(part, values)[0] != "true")
    parts = (trace.parts or (trace,)) if len(traces) == 1 else tuple(traces)
    return RuleTrace(Trace(f"rule {rule.id}", trace.outcome, trace.why, parts), unmet)


def _distance(rule: RuleTrace) -> tuple[int, bool]:
    """Return a sort key for nearness: the number of unmet conditions. Among equals, rules for another op come last."""
    return len(rule.unmet), any(condition.startswith("`op ") for condition in rule.unmet)


def _trace(part: RulePart, values: dict[str, Any], masker: Redactor) -> Trace:
    outcome, why = _outcome(part, values)
    if not part.parts and not why:
        why = _bindings(part, values, masker)
    return Trace(part.text, outcome, why, tuple(_trace(below, values, masker) for below in part.parts))


def _outcome(part: RulePart, values: dict[str, Any]) -> tuple[str, str]:
    try:
        return unparse_value(require_bool(part.evaluate(values))), ""
    except RuleError as error:
        return "error", str(error)


def _unmet(part: RulePart, values: dict[str, Any], masker: Redactor) -> str:
    bindings = _bindings(part, values, masker)
    return f"`{part.text}`" + (f" ({bindings})" if bindings else "")


def _bindings(part: RulePart, values: dict[str, Any], masker: Redactor) -> str:
    shown = ((name, values[name]) for name in part.variables if name in values)
    return ", ".join(f"{name} is {_value_text(value, masker)}" for name, value in shown)


def _value_text(value: Any, masker: Redactor) -> str:
    value = _shortened(value)
    text = unparse_value(masker.masked(value) if isinstance(value, Mapping) else value)
    return text if len(text) <= _MAX_VALUE_LENGTH else f"{text[:_MAX_VALUE_LENGTH]}..."


def _shortened(value: Any) -> Any:
    """Return a value without items that stand behind the longest text: a principal may have thousands of roles."""
    if isinstance(value, Mapping):
        return {key: _shortened(member) for key, member in islice(value.items(), _MAX_VALUE_LENGTH)}
    if isinstance(value, list | tuple):
        return tuple(map(_shortened, value[:_MAX_VALUE_LENGTH]))
    return value


def _limit_traces(rules: Sequence[RuleTrace]) -> tuple[Trace, ...]:
    """Return the traces in order. Of a large set, include all true and raising rules and the nearest false rules."""
    if len(rules) <= MAX_FALSE_RULES:
        return tuple(rule.trace for rule in rules)
    telling = {id(rule) for rule in rules if rule.trace.outcome != "false"}
    false = sorted((rule for rule in rules if id(rule) not in telling), key=lambda rule: len(rule.unmet))
    included = telling | {id(rule) for rule in false[:MAX_FALSE_RULES]}
    left_out = len(rules) - len(included)
    traces = tuple(rule.trace for rule in rules if id(rule) in included)
    return (*traces, Trace(f"{left_out} more rules", "false")) if left_out else traces


class RuleOutcome(NamedTuple):
    """The id of the first true rule; without a true rule, None and the ids of raising rules."""

    rule: str | None
    raised: tuple[str, ...]


class ReferenceEvaluator:
    """Evaluator of single checks of single resources, for the checks of a group."""

    def __init__(self, rules: Sequence[Rule], group_checks: GroupChecks, masker: Redactor = DEFAULT_MASKER) -> None:
        self._masker = masker
        self._rules = rules
        self._group_checks = group_checks
        self._functions: dict[tuple[str, ...], list[tuple[str, Callable[..., bool]]]] = {}
        """The functions of the rules, by what nobody knows."""

    def outcomes(self, resource: Resource) -> list[RuleOutcome]:
        """Return the outcome of every check of the group; no rule where a check does not concern the resource."""
        return [self._outcome(check, resource) for check in self._group_checks.checks]

    def not_false(self, resource: Resource) -> tuple[str, ...]:
        """Return the ids of all rules that are true or raise in any check, in order."""
        found = set[str]()
        for check in self._concerning(resource):
            arguments = self._arguments(check, resource)
            for rule, evaluate in self._functions_for(check, resource):
                try:
                    holds = evaluate(*arguments)
                except RuleError:
                    holds = True
                if holds:
                    found.add(rule)
        return tuple(sorted(found))

    def traces(self, resource: Resource) -> tuple[Trace, ...]:
        """Return a trace of every check, with every rule."""
        return tuple(self._trace(check, resource) for check in self._concerning(resource))

    def forbid_traces(self, resource: Resource) -> tuple[Trace, ...]:
        """Return a trace of every check against rules that forbid, with every rule: a rule that raises forbids."""
        return tuple(map(_forbid_trace, self.traces(resource)))

    def values(self, resource: Resource) -> list[dict[str, Any]]:
        """Return the variables by name, with their values, for every check of the group; `ref` and `path` if known."""
        return [self._by_name(check, resource) for check in self._concerning(resource)]

    def _concerning(self, resource: Resource) -> list[NessieCheck]:
        return [check for check in self._group_checks.checks if self._group_checks.concerns(check, resource)]

    def _by_name(self, check: NessieCheck, resource: Resource) -> dict[str, Any]:
        values = dict(zip(RULE_VARIABLES, self._arguments(check, resource), strict=True))
        values[EVERY_ROLE] = self._group_checks.every_role
        if self._group_checks.lacks_ref:
            del values["ref"]
        if PATH in self._group_checks.unknown_of(check, resource):
            del values[PATH]
        return values

    def _outcome(self, check: NessieCheck, resource: Resource) -> RuleOutcome:
        if not self._group_checks.concerns(check, resource):
            return RuleOutcome(None, ())
        arguments = self._arguments(check, resource)
        raised = []
        for rule, evaluate in self._functions_for(check, resource):
            try:
                if evaluate(*arguments):
                    return RuleOutcome(rule, ())
            except RuleError:
                raised.append(rule)
        return RuleOutcome(None, tuple(raised))

    def _functions_for(self, check: NessieCheck, resource: Resource) -> list[tuple[str, Callable[..., bool]]]:
        unknown = self._group_checks.unknown_of(check, resource)
        found = self._functions.get(unknown)
        if found is None:
            programs = [(rule.id, rule.program) for rule in self._rules]
            every_role = self._group_checks.every_role
            found = [(id, each.bound(every_role, each.lacking(unknown))) for id, each in programs]
            self._functions[unknown] = found
        return found

    def _arguments(self, check: NessieCheck, resource: Resource) -> list[Any]:
        arguments = list(self._group_checks.values(check, resource).in_order())
        arguments[PATH_ARGUMENT] = path_of(check, resource)
        return arguments

    def _trace(self, check: NessieCheck, resource: Resource) -> Trace:
        values = self._by_name(check, resource)
        unknown = self._group_checks.unknown_of(check, resource)
        parts, miss = explain_rules(self._rules, values, self._masker, unknown)
        kin = f"as {check.action}" if check.action else ""
        subject = " ".join(filter(None, (check.op, "" if PATH in unknown else path_of(check, resource), kin)))
        outcomes = {part.outcome for part in parts}
        return Trace(subject, "permit" if "true" in outcomes else "silent", miss, parts)


def _forbid_trace(check: Trace) -> Trace:
    outcomes = {part.outcome for part in check.parts}
    if outcomes <= {"false"}:
        return Trace(check.what, "silent", parts=check.parts)
    why = "" if "true" in outcomes else "no rule is true, and a forbid that raises denies"
    return Trace(check.what, "forbid", why, check.parts)
