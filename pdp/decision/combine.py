"""Combination of verdicts to one a leaf, and the fold of a tree of leaves to one outcome a resource. Pure.

A forbid wins; a failed engine denies; then `any` or `all` of the engines that apply must permit; silence denies.

An outcome is permit, forbid, failed or silent (ABSTAIN); silence denies.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias

from pdp.decision.active_policies import ActivePolicies, EngineStack
from pdp.decision.plan import AllOf, AnyAlone, AnyOf, FixedDenial, Leaf, Node, Split
from pdp.engines.engine import ABSTAIN, FAILED, FORBID, PERMIT, SILENT, Engine, EngineQuestion, Verdicts
from pdp.model.answer import DEFAULT_DENY, STORE_STALE, Reason
from pdp.model.question import Resource
from pdp.model.references import format_resource

EngineCall: TypeAlias = Callable[[Engine, EngineQuestion, Sequence[Resource]], Verdicts]
"""Call of an engine that returns verdicts even if the engine raises."""
PERMIT_OR_SILENT: Final = bytes((PERMIT, ABSTAIN))


def decide_group(
    leaf: Leaf, resources: Sequence[Resource], bundle: ActivePolicies, decide_by_engine: EngineCall
) -> Verdicts:
    """Return the combined verdicts of all engines of the leaf's group on `resources`, which are of the same group."""
    group = leaf.group
    stack = bundle.engines_for(group.warehouse, group.action, group.type)
    if stack.single is not None and leaf.override is None:
        return decide_by_engine(stack.single, group, resources)
    verdicts = [decide_by_engine(engine, group, resources) for engine in stack.engines]
    if leaf.override:
        return _with_override(leaf.override, verdicts, len(resources))
    if len(resources) == 1:
        return combine_one(verdicts, stack)
    silence = stack.silence
    return combine_columns(verdicts, stack.forbids, stack.combine, silence) or combine_rows(
        verdicts, stack.forbids, stack.combine, [silence] * len(resources)
    )


def _with_override(override: Reason, verdicts: Sequence[Verdicts], count: int) -> Verdicts:
    """Treat the override as one more permitting engine.

    Under `any`, the override needs no other permit. A forbid or a failure of an engine still wins.
    """
    permits = Verdicts(bytes([PERMIT]) * count, [override] * count)
    return combine_rows((permits, *verdicts), 0, "any", [None] * count)


def combine_columns(
    verdicts: Sequence[Verdicts], forbids: int, combine: Literal["any", "all"], silence: Reason | None
) -> Verdicts | None:
    """Return what `combine_rows` returns, in the usual case: columns of permits and of silence without a reason.

    None in any other case. There is then no forbid, no failure, no error and no reason of a silence but `silence`.
    """
    for column in verdicts:
        # A permit always has a reason. So nothing else has one if there are as many reasons as permits.
        if column.errors or column.effects.translate(None, PERMIT_OR_SILENT):
            return None
        if column.effects.count(PERMIT) != len(column.by) - column.by.count(None):
            return None
    permitters = verdicts[forbids:]
    active = [column for column in permitters if PERMIT in column.effects]
    count = len(verdicts[0].effects) if verdicts else 0
    if not active or (combine == "all" and len(active) < len(permitters)):
        return Verdicts(bytes(count), [silence] * count) if verdicts else None
    if len(active) == 1:
        return active[0] if silence is None else None
    return _permits_of_all(active) if combine == "all" else _permits_of_any(active)


def combine_one(verdicts: Sequence[Verdicts], stack: EngineStack) -> Verdicts:
    """Return what `combine_rows` returns for one resource, without new objects in the usual case."""
    forbids, permits, permit = stack.forbids, 0, None
    for number, column in enumerate(verdicts):
        effect = column.effects[0]
        is_usual = number >= forbids if effect else column.by[0] is None
        if effect > PERMIT or column.errors or not is_usual:
            return combine_rows(verdicts, forbids, stack.combine, [stack.silence])
        if effect:
            permits += 1
            permit = permit or column
    if permit is not None and (stack.combine == "any" or permits == len(verdicts) - forbids):
        return permit
    return SILENT if stack.silence is None else Verdicts(SILENT.effects, (stack.silence,))


def _permits_of_all(columns: Sequence[Verdicts]) -> Verdicts:
    effects = bytes(map(min, *(column.effects for column in columns)))
    return Verdicts(effects, [by if effect else None for by, effect in zip(columns[0].by, effects, strict=True)])


def _permits_of_any(columns: Sequence[Verdicts]) -> Verdicts:
    effects, by = columns[0].effects, columns[0].by
    for column in columns[1:]:
        either = _permits_of_either(effects, column.effects)
        if either != effects:  # otherwise each permit has a reason of an earlier column
            by = [first if first is not None else other for first, other in zip(by, column.by, strict=True)]
            effects = either
    return Verdicts(effects, by)


def _permits_of_either(effects: bytes, others: bytes) -> bytes:
    """Return PERMIT where one of two columns of permits and silence permits."""
    # ABSTAIN is 0 and PERMIT 1: `or` permits. One `or` of two long numbers takes a tenth of one for each row.
    both = int.from_bytes(effects, "little") | int.from_bytes(others, "little")
    return both.to_bytes(len(effects), "little")


def combine_rows(
    verdicts: Sequence[Verdicts], forbids: int, combine: Literal["any", "all"], reasons: list[Reason | None]
) -> Verdicts:
    """Return one verdict per resource. The first `forbids` of the verdicts can deny but not permit.

    `reasons` has the reasons of silence, and is changed into the reasons of the result.
    """
    effects = bytearray(len(reasons))
    errors: dict[int, tuple[str, ...]] = {}
    permitters = len(verdicts) - forbids
    needed = max(1, permitters) if combine == "all" else 1
    for at in range(len(effects)):
        given = [verdict.effects[at] for verdict in verdicts]
        raised = {rule for verdict in verdicts for rule in verdict.errors.get(at, ())}
        # From strongest to weakest. The reason is that of the first engine with the deciding effect.
        for effect in (FORBID, FAILED, PERMIT):
            if effect in given and (effect != PERMIT or given[forbids:].count(PERMIT) >= needed):
                effects[at] = effect
                reasons[at] = verdicts[given.index(effect)].by[at]
                break
        else:
            silent = (verdict.by[at] for verdict in verdicts if verdict.effects[at] == ABSTAIN and verdict.by[at])
            reasons[at] = next(silent, reasons[at])
        if raised and effects[at] != PERMIT:
            errors[at] = tuple(sorted(raised))
    return Verdicts(bytes(effects), reasons, errors)


def concatenate(columns: Sequence[Verdicts]) -> Verdicts:
    """Return the verdicts of consecutive chunks as one column."""
    if len(columns) == 1:
        return columns[0]
    by: list[Reason | None] = []
    errors: dict[int, tuple[str, ...]] = {}
    for column in columns:
        errors.update((len(by) + row, raised) for row, raised in column.errors.items())
        by.extend(column.by)
    return Verdicts(b"".join(column.effects for column in columns), by, errors)


def slice_by_leaf(verdicts: Verdicts, leaves: Sequence[Leaf]) -> dict[int, Verdicts]:
    """Return the verdicts of each leaf of a group, by `id(leaf)`. The leaves are in the order of `chunks`."""
    if len(leaves) == 1:
        return {id(leaves[0]): verdicts}
    slices = {}
    start = 0
    raising = sorted(verdicts.errors)
    for leaf in leaves:
        stop = start + len(leaf.resources)
        errors = verdicts.errors
        if errors:
            rows = raising[bisect_left(raising, start) : bisect_left(raising, stop)]
            errors = {row - start: verdicts.errors[row] for row in rows}
        slices[id(leaf)] = Verdicts(verdicts.effects[start:stop], verdicts.by[start:stop], errors)
        start = stop
    return slices


def without_permits(verdicts: Verdicts) -> Verdicts:
    """Return the verdicts of an engine with stale facts: every permit becomes silence with the reason."""
    by = [
        STORE_STALE if effect == PERMIT else reason
        for effect, reason in zip(verdicts.effects, verdicts.by, strict=True)
    ]
    return Verdicts(verdicts.effects.replace(bytes([PERMIT]), bytes([ABSTAIN])), by, verdicts.errors)


_DENIALS: Final = (FORBID, FAILED, ABSTAIN)
"""Effects that deny, from the strongest."""
_Row: TypeAlias = tuple[int, int, Reason | None, tuple[str, ...]]
"""Position, effect, reason and errors of one resource in one column."""


def fold(node: Node, verdicts_of: Callable[[Leaf], Verdicts]) -> Verdicts:
    """Return the outcome of a tree. `verdicts_of` returns the engines' verdicts on a leaf."""
    if isinstance(node, Leaf):
        return verdicts_of(node)
    if isinstance(node, FixedDenial):
        return denial_verdicts(node)
    return fold_parts(node, [fold(part, verdicts_of) for part in node.parts])


def fold_parts(node: AllOf | AnyOf | AnyAlone | Split, columns: Sequence[Verdicts]) -> Verdicts:
    """Return the outcome of a tree, given the outcomes of its parts."""
    if isinstance(node, AnyOf):
        return _any_column(columns) or _fold_rows(columns, _any_row)
    if isinstance(node, Split):
        return _rearrange(node.at, columns)
    if isinstance(node, AnyAlone):
        return _fold_rows(columns, _optional_row if node.optional else _each_row)
    # AllOf. If every part permits every resource, all columns are equal but for reasons; the first part's count.
    if all(column.effects.count(PERMIT) == len(column.effects) for column in columns):
        return columns[0]
    return _fold_rows(columns, lambda rows: _all_row(rows, node.parts, named=node.named))


def denial_verdicts(node: FixedDenial) -> Verdicts:
    """Return the outcome of a fixed denial. It counts as silence: another part may permit."""
    count = len(node.resources)
    errors = dict.fromkeys(range(count), node.errors) if node.errors else {}
    return Verdicts(bytes(count), [node.by] * count, errors)


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


def _all_row(rows: Sequence[_Row], parts: Sequence[Node], *, named: bool) -> _Row:
    """Take the first permit if all parts permit, else the denial of one part, with the part's resource in the reason.

    A forbidding part comes first: a forbid holds whatever else is granted. A part that fails comes before silence.
    """
    denials = [number for number, row in enumerate(rows) if row[1] != PERMIT]
    if not denials:
        return rows[0]
    number = min(denials, key=lambda number: _DENIALS.index(rows[number][1]))
    at, effect, reason, errors = rows[number]
    if not named:
        return rows[number]
    leaf, row = first_leaf(parts[number], at)
    name = format_resource(leaf.resources[row], leaf.group.ref, leaf.group.type)
    return (at, effect, f"{name}: {reason or DEFAULT_DENY}", errors)


def first_leaf(node: Node, row: int) -> tuple[Leaf | FixedDenial, int]:
    """Return the first leaf that decides a row of a tree, and the row within the leaf."""
    if isinstance(node, Leaf | FixedDenial):
        return node, row
    if isinstance(node, Split):
        part, row = branch(node, row)
        return first_leaf(part, row)
    return first_leaf(node.parts[0], row)


def branch(node: Split, row: int) -> tuple[Node, int]:
    """Return the part that decides a row, and the row within the part."""
    for rows, part in zip(node.at, node.parts, strict=True):
        if row in rows:
            return part, rows.index(row)
    raise IndexError(row)


def leaves(node: Node, at: Sequence[int]) -> list[tuple[Leaf | FixedDenial, Sequence[int]]]:
    """Return the leaves of a tree in order, each with the positions of its resources in the answer.

    `at[i]` is the position of the tree's resource i.
    """
    found: list[tuple[Leaf | FixedDenial, Sequence[int]]] = []
    _collect(node, at, found)
    return found


def _collect(node: Node, at: Sequence[int], found: list[tuple[Leaf | FixedDenial, Sequence[int]]]) -> None:
    kind = type(node)
    if kind is Leaf or kind is FixedDenial:
        found.append((node, at))  # type: ignore[arg-type]
    elif isinstance(node, Split):
        for rows, part in zip(node.at, node.parts, strict=True):
            _collect(part, [at[row] for row in rows], found)
    else:
        for part in node.parts:  # type: ignore[union-attr]
            _collect(part, at, found)
