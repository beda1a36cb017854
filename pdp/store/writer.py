"""A store that one command works on: its newest facts, and writes that are decided on them.

A running service follows a store (`replica`); a command reads it once, writes, and ends. It has no use for a store
whose history changes under it: EpochChanged comes out, and the command can be given again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pdp.facts import Facts
from pdp.objects import Change
from pdp.store.store import Revision, Store, advanced


class Writer:
    """`facts` are those after the last write, with all that others wrote before it. `actor` goes into the log."""

    def __init__(self, store: Store, facts: Facts, actor: str) -> None:
        self._store = store
        self._actor = actor
        self.facts = facts

    def write(self, decide: Callable[[Facts], Sequence[Change]]) -> Sequence[Change]:
        """Write what `decide` makes of the store's newest facts, all or nothing; what was written.

        What `decide` raises undoes the write. Raises Unavailable, EpochChanged, ConfigError as the store does.
        """
        made: list[Change] = []

        def prepare(log: Sequence[Revision]) -> Sequence[Change]:
            made[:] = decide(advanced(self.facts, log))
            return made

        log = self._store.write(self._actor, self.facts, prepare)
        self.facts = advanced(self.facts, log)
        return made
