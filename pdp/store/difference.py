"""What turns the facts of a store into what a world file says, as changes.

Pure. Owns what an import does and in which order; where the world comes from and how much of the work goes into one
revision is not known here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from pdp.engines.grants.administration import check_configured_project
from pdp.engines.grants.edits import ObjectPatch
from pdp.facts.objects import Change, GrantAdded, GrantRemoved, ObjectDeleted, ObjectPut
from pdp.facts.snapshot import Facts
from pdp.store.world import World

Step: TypeAlias = GrantRemoved | ObjectDeleted | ObjectPatch | GrantAdded
"""A part of the work that can be done, or be found done, on any later snapshot."""


def difference(facts: Facts, world: World, *, prune: bool = False) -> list[Change]:
    """The changes after which the facts say what the world says; without any, they do.

    What an object of the world leaves out stays as it is, and so does everything that the world does not name; with
    `prune`, that is taken away, and what is left out is at its default. InvalidArgument where a warehouse is
    configured in another project.
    """
    return changes_of(facts, steps(facts, world, prune=prune))


def steps(facts: Facts, world: World, *, prune: bool = False) -> list[Step]:
    """The same, not yet bound to this snapshot: `changes_of` says what a step comes to.

    Grants are taken before others are given: whoever sees the work half done sees no access that neither the state
    before nor the one after gives by its grants.
    """
    return [step for step in _candidates(facts, world, prune) if _change(facts, step) is not None]


def changes_of(facts: Facts, some: Sequence[Step]) -> list[Change]:
    """What is left to be done of some steps, where others may have written since they were found."""
    return [change for step in some if (change := _change(facts, step)) is not None]


def _candidates(facts: Facts, world: World, prune: bool) -> Iterator[Step]:
    if prune:
        grants, keys = set(world.grants), {patch.key for patch in world.objects}
        yield from map(GrantRemoved, sorted(grant for grant in facts.grants() if grant not in grants))
        yield from map(ObjectDeleted, sorted(known.key for known in facts.objects() if known.key not in keys))
    yield from map(_completed, world.objects) if prune else world.objects
    yield from map(GrantAdded, world.grants)


def _completed(patch: ObjectPatch) -> ObjectPatch:
    return ObjectPatch(patch.key, patch.project or "", patch.managed or False, patch.id or "")


def _change(facts: Facts, step: Step) -> Change | None:
    """The change that a step is on a snapshot; None where it is done."""
    if isinstance(step, GrantAdded):
        return None if facts.has(step.grant) else step
    if isinstance(step, GrantRemoved):
        return step if facts.has(step.grant) else None
    if isinstance(step, ObjectDeleted):
        return step if facts.is_registered(step.key) else None
    after = step.apply_to(facts.object(step.key))
    check_configured_project(facts, after)
    return None if facts.is_registered(step.key) and facts.object(step.key) == after else ObjectPut(after)
