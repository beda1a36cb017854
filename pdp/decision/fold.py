"""The fold: outcomes of the leaves of a tree to one outcome per resource, column by column.

An outcome is permit, forbid, failed or silent (ABSTAIN); silence denies. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from pdp.decision.combine import combine_columns
from pdp.decision.tree import AllOf, AnyOf, EachOf, FixedDecision, Leaf, Node, Split, first_leaf
from pdp.engines.engine import ABSTAIN, FAILED, FORBID, PERMIT, Verdicts
from pdp.model.question import DEFAULT_DENY, Reason
from pdp.model.references import format_resource

_DENIALS: Final = (FORBID, FAILED, ABSTAIN)
"""Effects that deny, from the strongest."""
_Row: TypeAlias = tuple[int, int, Reason | None, tuple[str, ...]]
"""Position, effect, reason and errors of one resource in one column."""


def fold(node: Node, verdicts_of: Callable[[Leaf], Verdicts]) -> Verdicts:
    """Return the outcome of a tree. `verdicts_of` returns the engines' verdicts on a leaf."""
    if isinstance(node, Leaf):
        return verdicts_of(node)
    if isinstance(node, FixedDecision):
        return fixed_verdicts(node)
    return fold_parts(node, [fold(part, verdicts_of) for part in node.parts])


def fold_parts(node: AllOf | AnyOf | EachOf | Split, columns: Sequence[Verdicts]) -> Verdicts:
    """Return the outcome of a tree, given the outcomes of its parts."""
    if isinstance(node, AnyOf):
        return _any_column(columns) or _fold_rows(columns, _any_row)
    if isinstance(node, Split):
        return _rearrange(node.at, columns)
    if isinstance(node, EachOf):
        return _fold_rows(columns, _optional_row if node.optional else _each_row)
    # AllOf. If every part permits every resource, all columns are equal but for reasons; the first part's count.
    if all(column.effects.count(PERMIT) == len(column.effects) for column in columns):
        return columns[0]
    return _fold_rows(columns, lambda rows: _all_row(rows, node.parts))


def fixed_verdicts(node: FixedDecision) -> Verdicts:
    """Return the outcome of a fixed decision. A denial counts as silence: another part may permit."""
    count = len(node.resources)
    effect = PERMIT if node.allowed else ABSTAIN
    errors = dict.fromkeys(range(count), node.errors) if node.errors else {}
    return Verdicts(bytes([effect]) * count, [node.by] * count, errors)


def _rearrange(at: Sequence[Sequence[int]], columns: Sequence[Verdicts]) -> Verdicts:
    """Put the outcomes of a split's parts back into the order of the resources. Every row is in exactly one part."""
    size = sum(map(len, at))
    effects = bytearray(size)
    by: list[Reason | None] = [None] * size
    errors: dict[int, tuple[str, ...]] = {}
    for positions, column in zip(at, columns, strict=True):
        for row, position in enumerate(positions):
            effects[position] = column.effects[row]
            by[position] = column.by[row]
        errors.update((positions[row], raised) for row, raised in column.errors.items())
    return Verdicts(bytes(effects), by, errors)


def _fold_rows(columns: Sequence[Verdicts], combine: Callable[[Sequence[_Row]], _Row]) -> Verdicts:
    """Combine the outcomes of the parts for each resource on its own."""
    effects = bytearray(len(columns[0].effects))
    by: list[Reason | None] = []
    errors: dict[int, tuple[str, ...]] = {}
    for at in range(len(effects)):
        rows = [(at, column.effects[at], column.by[at], column.errors.get(at, ())) for column in columns]
        _, effects[at], reason, raised = combine(rows)
        by.append(reason)
        if raised:
            errors[at] = raised
    return Verdicts(bytes(effects), by, errors)


def _any_column(columns: Sequence[Verdicts]) -> Verdicts | None:
    """Return the fold of an AnyOf column by column; None if only the fold by rows is exact.

    The exact cases are one resource, equal columns, and parts that only permit or are silent without a reason. In the
    last case `_any_row` would take the first permit of each row, as the engines of one leaf combine under `any`.
    """
    first = columns[0]
    for column in columns:
        if column is not first:
            break
    else:
        return first
    if len(first.effects) == 1:
        return _any_one(columns)
    return combine_columns(columns, 0, "any", None)


def _any_one(columns: Sequence[Verdicts]) -> Verdicts | None:
    """Return the strongest outcome for one resource, as `_any_row` does; None if all parts are silent."""
    effects = [column.effects[0] for column in columns]
    for effect in (FORBID, FAILED, PERMIT):
        if effect in effects:
            return columns[effects.index(effect)]
    return None


def _any_row(rows: Sequence[_Row]) -> _Row:
    """Take the strongest outcome: a forbid, else a failure, else a permit, else silence with all errors."""
    for effect in (FORBID, FAILED, PERMIT):
        for row in rows:
            if row[1] == effect:
                return row
    return (rows[0][0], ABSTAIN, _shared_reason(rows), tuple(sorted({rule for row in rows for rule in row[3]})))


def _each_row(rows: Sequence[_Row]) -> _Row:
    """Take the first permit; without a permit the parts are folded like those of an AnyOf."""
    return next((row for row in rows if row[1] == PERMIT), None) or _any_row(rows)


def _optional_row(rows: Sequence[_Row]) -> _Row:
    """Permit in any case; keep the errors of the parts."""
    row = _each_row(rows)
    return row if row[1] == PERMIT else (row[0], PERMIT, "not_needed", row[3])


def _shared_reason(rows: Sequence[_Row]) -> Reason | None:
    """Return the reason that all silent parts share, such as `unknown_action`."""
    reasons = {row[2] for row in rows}
    return reasons.pop() if len(reasons) == 1 else None


def _all_row(rows: Sequence[_Row], parts: Sequence[Node]) -> _Row:
    """Take the first permit if all parts permit, else the denial of one part, with the part's resource in the reason.

    A forbidding part comes first: a forbid holds whatever else is granted. A part that fails comes before silence.
    """
    denials = [number for number, row in enumerate(rows) if row[1] != PERMIT]
    if not denials:
        return rows[0]
    number = min(denials, key=lambda number: _DENIALS.index(rows[number][1]))
    at, effect, reason, errors = rows[number]
    leaf, row = first_leaf(parts[number], at)
    name = format_resource(leaf.resources[row], leaf.group.ref, leaf.group.type)
    return (at, effect, f"{name}: {reason or DEFAULT_DENY}", errors)
