"""A store that one command works on: its newest facts, and writes that are decided on them.

A running service follows a store (`replica`); a command reads it once, writes, and ends. It has no use for a store
whose history changes under it: EpochChanged comes out, and the command can be given again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pdp.facts.objects import Change
from pdp.facts.snapshot import Facts
from pdp.store.difference import Step, changes_of
from pdp.store.store import Revision, Store, advanced


class Writer:
    """Writes as `actor`. Both verbs raise Unavailable, EpochChanged and ConfigError as the store does."""

    def __init__(self, store: Store, facts: Facts, actor: str) -> None:
        self._store = store
        self._actor = actor
        self._known = facts
        self._since: list[Revision] = []
        """What this writer committed after `_known`: following a large import would take as long as writing it."""

    @property
    def facts(self) -> Facts:
        """The facts after the last write, with all that others wrote before it."""
        self._catch_up()
        return self._known

    @property
    def revision(self) -> str:
        """The store's part of the revision of `facts`."""
        return f"{self._known.epoch}.{self._sequence}"

    def write(self, decide: Callable[[Facts], Sequence[Change]]) -> Sequence[Change]:
        """Write what `decide` makes of the store's newest facts, all or nothing; what was written.

        What `decide` raises undoes the write.
        """
        facts = self.facts
        return self._write(lambda log: decide(advanced(facts, log)))

    def carry_out(self, some: Sequence[Step]) -> Sequence[Change]:
        """Write what is left to be done of some steps, all or nothing; what was written.

        No two steps of one difference touch the same grant or object, so what was written of the others makes no
        difference to these; what somebody else wrote does.
        """
        others: list[Revision] = []

        def prepare(log: Sequence[Revision]) -> Sequence[Change]:
            others[:] = log
            return changes_of(advanced(self.facts, log) if log else self._known, some)

        made = self._write(prepare)
        if others:
            self._catch_up()
        return made

    def _catch_up(self) -> None:
        self._known, self._since = advanced(self._known, self._since), []

    @property
    def _sequence(self) -> int:
        return self._since[-1].sequence if self._since else self._known.sequence

    def _write(self, decide: Callable[[Sequence[Revision]], Sequence[Change]]) -> Sequence[Change]:
        made: list[Change] = []

        def prepare(log: Sequence[Revision]) -> Sequence[Change]:
            made[:] = decide(log)
            return made

        # the store looks only at where the snapshot stands
        self._since += self._store.write(self._actor, replace(self._known, sequence=self._sequence), prepare)
        return made
