"""Import of a world file: the steps that make the facts of a store match the file.

Pure. Owns the steps and their order. The caller reads the world and decides how many steps go into one revision.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from pdp.engines.grants.administration import check_configured_project
from pdp.engines.grants.edits import ObjectPatch
from pdp.facts.objects import Change, GrantAdded, GrantRemoved, ObjectDeleted, ObjectPut
from pdp.facts.snapshot import Facts
from pdp.store.world import World

ImportStep: TypeAlias = GrantRemoved | ObjectDeleted | ObjectPatch | GrantAdded
"""One target of an import, valid on any later snapshot: the change depends on the snapshot and may be none."""


def import_changes(facts: Facts, world: World, *, prune: bool = False) -> list[Change]:
    """Return the changes that make the facts match the world; empty if the facts already match.

    An entry leaves unmentioned properties of its object as they are, and the import leaves unmentioned objects and
    grants. With `prune`, the import resets such properties to their defaults and removes such objects and grants.
    Raise InvalidArgument if configuration puts a warehouse into another project.
    """
    return remaining_changes(facts, plan_import(facts, world, prune=prune))


def plan_import(facts: Facts, world: World, *, prune: bool = False) -> list[ImportStep]:
    """Return the steps of an import that are not yet done on a snapshot. Arguments and errors: `import_changes`.

    Removals come first. A reader of a partial import then sees no access beyond the grants before and after it.
    """
    return [step for step in _candidates(facts, world, prune) if _change(facts, step) is not None]


def remaining_changes(facts: Facts, steps: Sequence[ImportStep]) -> list[Change]:
    """Return the changes for the steps that are not yet done on a snapshot; other writers may have done the rest."""
    return [change for step in steps if (change := _change(facts, step)) is not None]


def _candidates(facts: Facts, world: World, prune: bool) -> Iterator[ImportStep]:
    if prune:
        grants, keys = set(world.grants), {patch.key for patch in world.objects}
        yield from map(GrantRemoved, sorted(grant for grant in facts.grants() if grant not in grants))
        yield from map(ObjectDeleted, sorted(known.key for known in facts.objects() if known.key not in keys))
    yield from map(_with_defaults, world.objects) if prune else world.objects
    yield from map(GrantAdded, world.grants)


def _with_defaults(patch: ObjectPatch) -> ObjectPatch:
    return ObjectPatch(patch.key, patch.project or "", patch.managed or False, patch.id or "")


def _change(facts: Facts, step: ImportStep) -> Change | None:
    """Return the change of a step on a snapshot; None if the step is done."""
    if isinstance(step, GrantAdded):
        return None if facts.has(step.grant) else step
    if isinstance(step, GrantRemoved):
        return step if facts.has(step.grant) else None
    if isinstance(step, ObjectDeleted):
        return step if facts.is_registered(step.key) else None
    after = step.apply_to(facts.object(step.key))
    check_configured_project(facts, after)
    return None if facts.is_registered(step.key) and facts.object(step.key) == after else ObjectPut(after)
