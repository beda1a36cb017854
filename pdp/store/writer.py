"""Writer for one command of the command line: the newest facts of a store, and writes decided on them.

A running service follows its store (`replica`). A command, such as the import of a world file, loads the facts once,
writes, and ends. The writer does not recover from a changed history: the command fails with EpochChanged and can be
repeated.

The steps of an import make the facts match the file. The caller decides how many steps go into one revision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from pdp.engines.grants.administration import check_configured_project
from pdp.engines.grants.edits import ObjectPatch
from pdp.facts.objects import Change, GrantAdded, GrantRemoved, ObjectDeleted, ObjectPut
from pdp.facts.snapshot import Facts
from pdp.store.store import LogEntry, Store, apply_log
from pdp.store.world import World

ImportStep: TypeAlias = GrantRemoved | ObjectDeleted | ObjectPatch | GrantAdded
"""One target of an import, valid on any later snapshot: the change depends on the snapshot and may be none."""


class Writer:
    """Writer of one command, named `actor` in the log.

    Every method raises Unavailable, EpochChanged and ConfigError as the store does.
    """

    def __init__(self, store: Store, facts: Facts, actor: str) -> None:
        self._store = store
        self._actor = actor
        self._facts = facts
        self._unapplied: list[LogEntry] = []
        """Log after `_facts`. To apply the log after each chunk of a large import would double the time of it."""

    @property
    def facts(self) -> Facts:
        """Return the facts after the last write, including earlier writes by others."""
        self._apply_log()
        return self._facts

    @property
    def revision(self) -> str:
        """Return the store's part of the revision of `facts`."""
        return str(self._newest.revision())

    def write(self, decide: Callable[[Facts], Sequence[Change]]) -> Sequence[Change]:
        """Write the changes that `decide` makes from the newest facts, all or none; return them.

        An exception from `decide` cancels the write.
        """
        facts = self.facts
        return self._write(lambda log: decide(apply_log(facts, log)))

    def write_steps(self, steps: Sequence[ImportStep]) -> Sequence[Change]:
        """Write the remaining changes of some steps, all or none; return them.

        The steps must be of one plan. No two steps of a plan concern the same grant or object. The steps that this
        writer has written before therefore do not matter here, and only writes by others need to be applied.
        """
        others: list[LogEntry] = []

        def prepare(log: Sequence[LogEntry]) -> Sequence[Change]:
            others[:] = log
            return remaining_changes(apply_log(self.facts, log) if log else self._facts, steps)

        changes = self._write(prepare)
        if others:
            self._apply_log()
        return changes

    def _apply_log(self) -> None:
        self._facts, self._unapplied = apply_log(self._facts, self._unapplied), []

    @property
    def _newest(self) -> Facts:
        """Return the facts under the name of the newest revision. The store reads only the name of a snapshot."""
        if not self._unapplied:
            return self._facts
        last = self._unapplied[-1]
        return replace(self._facts, sequence=last.sequence, token=last.token)

    def _write(self, decide: Callable[[Sequence[LogEntry]], Sequence[Change]]) -> Sequence[Change]:
        changes: list[Change] = []

        def prepare(log: Sequence[LogEntry]) -> Sequence[Change]:
            changes[:] = decide(log)
            return changes

        self._unapplied += self._store.write(self._actor, self._newest, prepare)
        return changes


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
