"""Answers: evaluated trees folded into the answer of a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from pdp.decision.bundle import Bundle
from pdp.decision.explanation import Explainer
from pdp.decision.tree import Node, leaves
from pdp.decision.turns import Steps
from pdp.engines.engine import ABSTAIN, ALLOWED_BY_EFFECT, NO_ERRORS, PERMIT, Verdicts
from pdp.facts.snapshot import Facts
from pdp.model.question import Answer, Batch, Check, Reason, Trace
from pdp.model.revision import Revision, new_id

NO_TRACES: Final[Mapping[int, Trace]] = MappingProxyType({})
_PERMIT_OR_SILENT: Final = bytes((PERMIT, ABSTAIN))


def revision_of(bundle: Bundle, facts: Facts) -> str:
    """Return the revision of decisions under a bundle and facts, as text."""
    return str(Revision(facts.epoch, facts.sequence, bundle.digest))


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


def trace_checks(checks: Sequence[Check], trees: Sequence[Node], explainer: Explainer) -> Steps[Mapping[int, Trace]]:
    """Return the traces of all positions."""
    traces: dict[int, Trace] = {}
    for check, tree in zip(checks, trees, strict=True):
        for row, at in enumerate(check.at):
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
        if not effects.translate(None, _PERMIT_OR_SILENT) and by.count(None) == effects.count(ABSTAIN):
            # Only permits have reasons: the other positions are silent, as at the start.
            for position, reason in zip(compress(at, effects), compress(by, effects), strict=True):
                self.allowed[position] = 1
                self.by[position] = reason
            return
        for position, effect, reason in zip(at, verdicts.effects, verdicts.by, strict=True):
            if effect == PERMIT:
                self.allowed[position] = 1
            self.by[position] = reason
