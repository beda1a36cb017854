"""The verdicts of engines on a group of concrete checks, put together: one verdict for each resource.

A forbid wins, a failed engine denies, then `any` or `all` of the engines that apply permit; silence denies. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal

from pdp.decision.bundle import Bundle
from pdp.decision.plan import Leaf
from pdp.engines.engine import ABSTAIN, FAILED, FORBID, PERMIT, Engine, Group, Verdicts
from pdp.model.checks import STORE_STALE, Reason, Resource, Siblings

CHUNK: Final = 2000
"""Resources judged before the event loop gets a turn."""
Judge = Callable[[Engine, Group, Sequence[Resource]], Verdicts]


def portions(members: Sequence[Leaf]) -> Iterator[Sequence[Resource]]:
    """The resources of some leaves in order, in portions of at most CHUNK; columns of siblings stay what they are."""
    if len(members) > 1 and not all(isinstance(leaf.resources, Siblings) for leaf in members):
        columns: Sequence[Sequence[Resource]] = [[resource for leaf in members for resource in leaf.resources]]
    else:
        columns = [leaf.resources for leaf in members]
    for resources in columns:
        for start in range(0, len(resources), CHUNK):
            yield resources[start : start + CHUNK] if len(resources) > CHUNK else resources


def decide(asked: Leaf, bundle: Bundle, judge: Judge) -> Verdicts:
    """What the engines of a group's authority, and the forbids, say together."""
    group, resources = asked.group, asked.resources
    authority = bundle.authority(group.warehouse)
    engines = [engine for engine in authority.engines if engine.applies(group.action, group.type)]
    forbids = [engine for engine in bundle.forbids if engine.applies(group.action, group.type)]
    verdicts = [judge(engine, group, resources) for engine in (*forbids, *engines)]
    if asked.passed:
        return _passing(asked.passed, verdicts, len(resources))
    if len(verdicts) == 1 and engines:
        return verdicts[0]
    silence: Reason | None = None if engines else "unknown_action"
    return _combine(verdicts, len(forbids), authority.combine, [silence] * len(resources))


def _passing(by: Reason, verdicts: Sequence[Verdicts], count: int) -> Verdicts:
    """A pass as the first of what may permit: it takes no other permit, and gives way to a forbid or a failure."""
    passed = Verdicts(bytes([PERMIT]) * count, [by] * count)
    return _combine((passed, *verdicts), 0, "any", [None] * count)


def _combine(
    verdicts: Sequence[Verdicts], forbids: int, combine: Literal["any", "all"], silence: list[Reason | None]
) -> Verdicts:
    """One verdict per resource: a forbid wins, a failure denies, then any or all of the engines that apply."""
    effects = bytearray(len(silence))
    by = silence
    errors: dict[int, tuple[str, ...]] = {}
    engines = verdicts[forbids:]
    wanted = max(1, len(engines)) if combine == "all" else 1
    for at in range(len(effects)):
        found = [verdict.effects[at] for verdict in verdicts]
        raised = {rule for verdict in verdicts for rule in verdict.errors.get(at, ())}
        for effect in (FORBID, FAILED, PERMIT):
            if effect in found and (effect != PERMIT or found[forbids:].count(PERMIT) >= wanted):
                effects[at] = effect
                by[at] = verdicts[found.index(effect)].by[at]
                break
        else:
            by[at] = next((v.by[at] for v in verdicts if v.effects[at] == ABSTAIN and v.by[at]), by[at])
        if raised and effects[at] != PERMIT:
            errors[at] = tuple(sorted(raised))
    return Verdicts(bytes(effects), by, errors)


def joined(columns: Sequence[Verdicts]) -> Verdicts:
    if len(columns) == 1:
        return columns[0]
    by: list[Reason | None] = []
    errors: dict[int, tuple[str, ...]] = {}
    for column in columns:
        errors.update((len(by) + row, raised) for row, raised in column.errors.items())
        by.extend(column.by)
    return Verdicts(b"".join(column.effects for column in columns), by, errors)


def shared_out(verdicts: Verdicts, members: Sequence[Leaf]) -> dict[int, Verdicts]:
    """The verdicts of a group, handed back to the leaves it was made of."""
    if len(members) == 1:
        return {id(members[0]): verdicts}
    shares = {}
    start = 0
    for leaf in members:
        stop = start + len(leaf.resources)
        errors = verdicts.errors
        if errors:
            errors = {row - start: raised for row, raised in errors.items() if start <= row < stop}
        shares[id(leaf)] = Verdicts(verdicts.effects[start:stop], verdicts.by[start:stop], errors)
        start = stop
    return shares


def without_permits(verdicts: Verdicts) -> Verdicts:
    """The verdicts of an engine whose facts are too old: silence, and why, in place of every permit."""
    by = [
        STORE_STALE if effect == PERMIT else reason
        for effect, reason in zip(verdicts.effects, verdicts.by, strict=True)
    ]
    return Verdicts(verdicts.effects.replace(bytes([PERMIT]), bytes([ABSTAIN])), by, verdicts.errors)
