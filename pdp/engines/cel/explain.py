"""Why a rule is true or not: its sub-expressions with their values, and among all rules the one that lacked least."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from pdp.cel.unparse import unparse_value
from pdp.cel.values import RuleError
from pdp.engines.cel.program import Part, parts_of
from pdp.engines.cel.rules import Rule
from pdp.model.checks import Trace

SHOWN: Final = 50
"""Rules that are shown of a large set: all that are true or raised, then the nearest."""
_NEAREST: Final = 3
_LONGEST: Final = 200


class RuleTrace(msgspec.Struct, frozen=True):
    """A rule looked at: its trace, and the conditions of its conjunction that did not hold."""

    trace: Trace
    lacks: tuple[str, ...]


def explain_rules(rules: Sequence[Rule], values: dict[str, Any]) -> tuple[tuple[Trace, ...], str]:
    """The rules with their sub-expressions, and the nearest miss in words, where none is true.

    `values` are all variables by name; one that is absent raises where it is used.
    """
    seen = [look_at(rule, values) for rule in rules]
    if any(found.trace.outcome == "true" for found in seen):
        return _few(seen), ""
    if not seen:
        return (), "there are no rules"
    fewest = min(_distance(found) for found in seen)
    nearest = [found for found in seen if _distance(found) == fewest][:_NEAREST]
    misses = "; ".join(f"{found.trace.what} lacks {' and '.join(found.lacks)}" for found in nearest)
    return _few(seen), f"nearest miss: {misses}"


def _distance(seen: RuleTrace) -> tuple[int, bool]:
    """How far a rule is from being true; one about another op is farther than any with as many conditions."""
    return len(seen.lacks), any(lack.startswith("`op ") for lack in seen.lacks)


def look_at(rule: Rule, values: dict[str, Any]) -> RuleTrace:
    """One rule under these values."""
    root = parts_of(rule.program.text, rule.program.extensions, "ref" not in values)
    trace = _trace(root, values)
    conjuncts = root.parts if root.conjunction else (root,)
    lacks = tuple(_lack(part, values) for part in conjuncts if _outcome(part, values)[0] != "true")
    return RuleTrace(Trace(f"rule {rule.id}", trace.outcome, trace.why, trace.parts or (trace,)), lacks)


def _trace(part: Part, values: dict[str, Any]) -> Trace:
    outcome, why = _outcome(part, values)
    if not part.parts and not why:
        why = ", ".join(f"{name} is {_short(values[name])}" for name in part.variables if name in values)
    return Trace(part.text, outcome, why, tuple(_trace(below, values) for below in part.parts))


def _outcome(part: Part, values: dict[str, Any]) -> tuple[str, str]:
    try:
        return unparse_value(part.evaluate(values)), ""
    except RuleError as error:
        return "error", str(error)


def _lack(part: Part, values: dict[str, Any]) -> str:
    known = ", ".join(f"{name} is {_short(values[name])}" for name in part.variables if name in values)
    return f"`{part.text}`" + (f" ({known})" if known else "")


def _short(value: Any) -> str:
    text = unparse_value(value) if not isinstance(value, dict) else str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _few(seen: Sequence[RuleTrace]) -> tuple[Trace, ...]:
    if len(seen) <= SHOWN:
        return tuple(found.trace for found in seen)
    telling = {id(found) for found in seen if found.trace.outcome != "false"}
    near = sorted((found for found in seen if id(found) not in telling), key=lambda found: len(found.lacks))
    kept = telling | {id(found) for found in near[:SHOWN]}
    left_out = len(seen) - len(kept)
    shown = tuple(found.trace for found in seen if id(found) in kept)
    return (*shown, Trace(f"{left_out} more rules", "false")) if left_out else shown
