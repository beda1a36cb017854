"""Writer for one command of the command line: the newest facts of a store, and writes decided on them.

A running service follows its store (`replica`). A command loads the facts once, writes, and ends. The writer does not
recover from a changed history: the command fails with EpochChanged and can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pdp.facts.objects import Change
from pdp.facts.snapshot import Facts
from pdp.model.revision import Revision
from pdp.store.import_plan import ImportStep, remaining_changes
from pdp.store.store import LogEntry, Store, apply_log


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
        return str(Revision(self._facts.epoch, self._sequence))

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
    def _sequence(self) -> int:
        return self._unapplied[-1].sequence if self._unapplied else self._facts.sequence

    def _write(self, decide: Callable[[Sequence[LogEntry]], Sequence[Change]]) -> Sequence[Change]:
        changes: list[Change] = []

        def prepare(log: Sequence[LogEntry]) -> Sequence[Change]:
            changes[:] = decide(log)
            return changes

        # the store reads only the epoch and the sequence of the snapshot
        self._unapplied += self._store.write(self._actor, replace(self._facts, sequence=self._sequence), prepare)
        return changes
