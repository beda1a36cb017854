"""Explanation: the traces of answers, one node per node of the decision tree and one per engine below each leaf."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from pdp.decision.bundle import Bundle
from pdp.decision.evaluation import LeafVerdicts
from pdp.decision.fold import fold
from pdp.decision.tree import AllOf, AnyOf, EachOf, FixedDecision, Leaf, Node, Split, branch
from pdp.decision.turns import Pace, Steps
from pdp.engines.engine import EFFECT_NAMES, PERMIT, Engine
from pdp.engines.guarded import AwaitedEngine, applying
from pdp.facts.snapshot import Facts
from pdp.model.question import DEFAULT_DENY, Reason, Trace
from pdp.model.references import format_resource

AskedVerdict: TypeAlias = Callable[[Engine, Leaf, int], tuple[int, Reason | None] | None]
"""Lookup of the effect and reason of an engine on a row of a leaf."""
_LABELS: Final = {AllOf: "all of", AnyOf: "any of", EachOf: "each of"}


def no_verdict(engine: Engine, leaf: Leaf, row: int) -> None:
    """Return None: no engine was awaited."""


class Explainer:
    """Explainer of evaluated trees, under the bundle and facts that decided."""

    def __init__(self, bundle: Bundle, facts: Facts, verdicts_of: LeafVerdicts, asked: AskedVerdict) -> None:
        """Prepare. `asked` returns verdicts of engines that cannot be asked again here."""
        self._bundle = bundle
        self._facts = facts
        self._verdicts_of = verdicts_of
        self._asked = asked
        self._pace = Pace()

    def trace(self, node: Node, row: int) -> Steps[Trace]:
        """Return the trace of one row of a tree."""
        if self._pace.is_over():
            yield
            self._pace.begin()
        if isinstance(node, Split):
            return (yield from self.trace(*branch(node, row)))
        verdicts = fold(node, self._verdicts_of)
        outcome, why = EFFECT_NAMES[verdicts.effects[row]], verdicts.by[row] or DEFAULT_DENY
        if isinstance(node, AllOf | AnyOf | EachOf):
            parts = []
            for part in node.parts:
                parts.append((yield from self.trace(part, row)))  # noqa: PERF401  a comprehension cannot yield
            return Trace(_LABELS[type(node)], outcome, why, tuple(parts))
        group, resource = node.group, node.resources[row]
        what = f"{group.action} on {format_resource(resource, group.ref, group.type)} as {group.principal.id}"
        if isinstance(node, FixedDecision):
            return Trace(what, outcome, why)
        return self._leaf_trace(node, row, Trace(what, outcome, why))

    def _leaf_trace(self, leaf: Leaf, row: int, trace: Trace) -> Trace:
        """Return the trace of a row of a leaf with one part per engine."""
        authority = self._bundle.authority(leaf.group.warehouse)
        engines = (*self._bundle.forbids, *authority.engines)
        parts = tuple(self._engine_trace(engine, leaf, row) for engine in engines)
        combine = authority.combine
        if leaf.override:
            parts, combine = (_override_trace(leaf.override), *parts), "any"
        return Trace(trace.what, trace.outcome, f"{trace.why} ({combine} of authority {authority.name})", parts)

    def _engine_trace(self, engine: Engine, leaf: Leaf, row: int) -> Trace:
        group, resource = leaf.group, leaf.resources[row]
        found = applying(engine, group.action, group.type)
        if found is None:
            return Trace(engine.name, "does not apply")
        if found is not engine:
            return found.explain(group, resource, self._facts)
        if isinstance(engine, AwaitedEngine) and (verdict := self._asked(engine, leaf, row)):
            return engine.explain_verdict(group, resource, verdict)
        return engine.explain(group, resource, self._facts)


def _override_trace(override: Reason) -> Trace:
    return Trace("instance admin", EFFECT_NAMES[PERMIT], override)
