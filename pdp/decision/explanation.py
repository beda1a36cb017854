"""Outcomes as answers, and their explanation: the traces of a decision.

A trace has one node per node of the decision tree and one per engine below each leaf.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from types import MappingProxyType
from typing import Final, TypeAlias

from msgspec.structs import replace

from pdp.decision.active_policies import ActivePolicies
from pdp.decision.combine import PERMIT_OR_SILENT, branch, fold, leaves
from pdp.decision.evaluation import Evaluator, LeafVerdicts
from pdp.decision.plan import INSTANCE_ADMINS, AllOf, AnyAlone, AnyOf, FixedDenial, Leaf, Node, Split
from pdp.decision.turns import Resumable, TurnClock
from pdp.engines.engine import ABSTAIN, ALLOWED_BY_EFFECT, EFFECT_NAMES, NO_ERRORS, PERMIT, Engine, Verdicts, beyond
from pdp.engines.guarded import AwaitedEngine, applying, unexplained
from pdp.facts.snapshot import Facts
from pdp.model.answer import DEFAULT_DENY, Answer, Reason, Trace
from pdp.model.question import Batch, Check
from pdp.model.references import format_resource
from pdp.model.revision import new_id

AskedVerdict: TypeAlias = Callable[[Engine, Leaf, int], tuple[int, Reason | None] | None]
"""Lookup of the effect and reason of an engine on a row of a leaf."""
_LABELS: Final = {AllOf: "all of", AnyOf: "any of", AnyAlone: "each of"}


def no_verdict(engine: Engine, leaf: Leaf, row: int) -> None:
    """Return None: no engine was awaited."""


class Explainer:
    """Explainer of evaluated trees, under the bundle and facts that decided."""

    def __init__(
        self, bundle: ActivePolicies, evaluator: Evaluator, verdicts_of: LeafVerdicts, asked: AskedVerdict
    ) -> None:
        """Prepare. `evaluator` decided; `asked` returns verdicts of engines that cannot be asked again here."""
        self._bundle = bundle
        self._evaluator = evaluator
        self._verdicts_of = verdicts_of
        self._asked = asked
        self._pace = TurnClock()

    def trace(self, node: Node, row: int) -> Resumable[Trace]:
        """Return the trace of one row of a tree."""
        if self._pace.is_over():
            yield
            self._pace.begin()
        if isinstance(node, Split):
            return (yield from self.trace(*branch(node, row)))
        verdicts = fold(node, self._verdicts_of)
        outcome, why = EFFECT_NAMES[verdicts.effects[row]], verdicts.by[row] or DEFAULT_DENY
        if isinstance(node, AllOf | AnyOf | AnyAlone):
            parts = []
            for part in node.parts:
                parts.append((yield from self.trace(part, row)))  # noqa: PERF401  a comprehension cannot yield
            return Trace(_LABELS[type(node)], outcome, why, tuple(parts))
        group, resource = node.group, node.resources[row]
        what = f"{group.action} on {format_resource(resource, group.ref, group.type)} as {group.principal.id}"
        if isinstance(node, FixedDenial):
            return Trace(what, outcome, why)
        return (yield from self._leaf_trace(node, row, Trace(what, outcome, why)))

    def _leaf_trace(self, leaf: Leaf, row: int, trace: Trace) -> Resumable[Trace]:
        """Return the trace of a row of a leaf with one part per engine."""
        group = leaf.group
        authority = self._bundle.authority(group.warehouse)
        asked = self._bundle.engines_for(group.warehouse, group.action, group.type).engines
        engines = (*self._bundle.forbids, *authority.engines)
        parts = [_override_trace(leaf.override)] if leaf.override else []
        for engine in engines:
            if self._pace.is_over():
                yield
                self._pace.begin()
            parts.append(self._engine_trace(engine, asked, leaf, row))
        combine = "any" if leaf.override else authority.combine
        return Trace(trace.what, trace.outcome, f"{trace.why} ({combine} of authority {authority.name})", tuple(parts))

    def _engine_trace(self, engine: Engine, asked: Sequence[Engine], leaf: Leaf, row: int) -> Trace:
        group, resource = leaf.group, leaf.resources[row]
        forbid = beyond(engine)
        engine = forbid if forbid is not None and forbid in asked else engine
        found = applying(engine, group.action, group.type)
        if found is None or (found is engine and engine not in asked):
            return Trace(engine.name, "does not apply")
        if isinstance(found, AwaitedEngine) and (verdict := self._asked(found, leaf, row)):
            return found.explain_verdict(group, resource, verdict)
        try:
            return self._evaluator.explain(found, group, resource)
        except Exception as error:  # noqa: BLE001  an explanation decides nothing
            return unexplained(engine.name, error)


def _override_trace(override: Reason) -> Trace:
    what = "instance admin" if override == INSTANCE_ADMINS else "configuration"
    return Trace(what, EFFECT_NAMES[PERMIT], override)


NO_TRACES: Final[Mapping[int, Trace]] = MappingProxyType({})


def revision_of(bundle: ActivePolicies, facts: Facts) -> str:
    """Return the revision of decisions under a bundle and facts, as text."""
    return str(facts.revision(bundle.digest))


def make_answer(
    batch: Batch,
    revision: str,
    allowed: bytes,
    by: Sequence[Reason | None],
    errors: Mapping[int, tuple[str, ...]] = NO_ERRORS,
    traces: Mapping[int, Trace] = NO_TRACES,
) -> Answer:
    """Return an answer with a new decision id."""
    return Answer(new_id(), revision, allowed, by, errors, batch.rejected, traces)


def fold_answer(
    batch: Batch, outcomes: Sequence[Verdicts], revision: str, traces: Mapping[int, Trace] = NO_TRACES
) -> Answer:
    """Return the answer of a batch, given the outcome of the tree of each check."""
    if len(outcomes) == 1 and not batch.rejected and _covers(batch.checks[0].at, batch.size):
        # One check is the whole batch, in order: its columns are the answer's columns.
        whole = outcomes[0]
        return make_answer(batch, revision, whole.effects.translate(ALLOWED_BY_EFFECT), whole.by, whole.errors, traces)
    columns = _Columns(batch)
    for check, outcome in zip(batch.checks, outcomes, strict=True):
        columns.put(outcome, check.at)
    return make_answer(batch, revision, bytes(columns.allowed), columns.by, columns.errors, traces)


def trace_checks(
    checks: Sequence[Check], trees: Sequence[Node], explainer: Explainer, visible: bytes | None
) -> Resumable[Mapping[int, Trace]]:
    """Return the traces of all positions that the caller may see: `visible[i]` is 1 there, None means everywhere."""
    traces: dict[int, Trace] = {}
    for check, tree in zip(checks, trees, strict=True):
        for row, at in enumerate(check.at):
            if visible is None or visible[at]:
                traces[at] = yield from explainer.trace(tree, row)
    return traces


def mark_cached(answer: Answer, checks: Sequence[Check], trees: Sequence[Node], shared: Mapping[int, bytes]) -> Answer:
    """Return the answer with a mark at each position that rests on a cached verdict.

    `shared` has the marks of leaves by `id(leaf)`; leaves without any are absent.
    """
    if not shared:
        return answer
    marks = bytearray(len(answer.allowed))
    for check, tree in zip(checks, trees, strict=True):
        for leaf, at in leaves(tree, check.at):
            for position in compress(at, shared.get(id(leaf), b"")):
                marks[position] = 1
    return replace(answer, cached=bytes(marks))


def _covers(at: Sequence[int], size: int) -> bool:
    """Tell whether positions are all positions of a batch in order."""
    return at == range(size) if type(at) is range else len(at) == size and list(at) == list(range(size))


class _Columns:
    """Columns of an answer under construction. Positions without a verdict are denied without a reason."""

    def __init__(self, batch: Batch) -> None:
        self.allowed = bytearray(batch.size)
        self.by: list[Reason | None] = [None] * batch.size
        self.errors: dict[int, tuple[str, ...]] = {}
        for at, rejected in batch.rejected.items():
            self.by[at] = rejected.by

    def put(self, verdicts: Verdicts, at: Sequence[int]) -> None:
        """Put the verdicts of one check at its positions. No position belongs to two checks or is also rejected."""
        self.errors.update((at[row], raised) for row, raised in verdicts.errors.items())
        effects, by = verdicts.effects, verdicts.by
        if not effects.translate(None, PERMIT_OR_SILENT) and by.count(None) == effects.count(ABSTAIN):
            # Only permits have reasons: the other positions are silent, as at the start.
            for position, reason in zip(compress(at, effects), compress(by, effects), strict=True):
                self.allowed[position] = 1
                self.by[position] = reason
            return
        for position, effect, reason in zip(at, verdicts.effects, verdicts.by, strict=True):
            if effect == PERMIT:
                self.allowed[position] = 1
            self.by[position] = reason
