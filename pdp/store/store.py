"""The store: where facts are kept, and the one protocol that every database behind it follows.

**The contract.** A store keeps an epoch, a sequence, the registered objects, the grants, and a log of changes.

- *Revisions are assigned in commit order.* A write holds the store's one lock from before it takes its number until
  it is committed, so whoever sees revision n sees all of 1 to n, and nothing numbered n or less appears later.
- *A write is decided on what it changes.* `write` calls `prepare` inside the transaction, under the lock, with the log
  since the writer's snapshot; what `prepare` returns is written with its log row, all or nothing. If it raises, or
  returns no change, nothing is written and no number is used.
- *Rows only.* `prepare` has made sure that each change is one: a `GrantAdded` was not there, a `GrantRemoved` was.
  The store understands no hierarchy and no privilege.
- *The log is complete.* `since` returns every revision after a snapshot, in order, without gaps.
- *The epoch changes with history.* When a backup is restored, or a replica that lags is promoted, `since` raises
  `EpochChanged` for any snapshot from before, even if the new history has grown past its sequence: the snapshot must
  be loaded anew. A revision of another epoch is never comparable.
- *Failure is loud.* A database that cannot be reached, or does not answer in time, raises `Unavailable`; one that
  holds no usable store raises `ConfigError`, naming it. Every call has a time limit.

Calls block and may come from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import msgspec

from pdp.errors import PdpError
from pdp.facts.objects import Change
from pdp.facts.snapshot import Facts


class EpochChanged(PdpError):
    """The store's history is not the one that a snapshot came from: load it anew."""

    code = "epoch_changed"


class Revision(msgspec.Struct, frozen=True):
    """One committed write: `time` in seconds since 1970, `actor` who wrote, as the writer said."""

    sequence: int
    time: float
    actor: str
    changes: tuple[Change, ...]


def advanced(facts: Facts, log: Sequence[Revision]) -> Facts:
    """The snapshot after some revisions that follow it."""
    for revision in log:
        facts = facts.apply(revision.sequence, revision.changes)
    return facts


Prepare: TypeAlias = Callable[[Sequence[Revision]], Sequence[Change]]
"""The log since the writer's snapshot -> the changes to write; whatever it raises undoes the write."""


class Store(Protocol):
    """A database of facts; the module's text is the contract."""

    def load(self) -> Facts:
        """The newest snapshot, at one revision."""
        ...

    def since(self, facts: Facts) -> Sequence[Revision]:
        """What was committed after a snapshot; raises EpochChanged where its history is no longer the store's."""
        ...

    def wait(self, seconds: float) -> None:
        """Return when something may have been committed by anybody, at the latest after so long."""
        ...

    def write(self, actor: str, facts: Facts, prepare: Prepare) -> Sequence[Revision]:
        """Write what `prepare` returns; all revisions after `facts`, the new one last if there is one."""
        ...

    def close(self) -> None:
        """Let go of the database; a `wait` in another thread returns soon."""
        ...


def seeded(store: Store, actor: str, facts: Facts, changes: Sequence[Change]) -> Facts:
    """The facts of a store that has its first revision: this one, if nobody was quicker. Raises as `write` does."""
    if facts.sequence:
        return facts
    return advanced(facts, store.write(actor, facts, lambda log: () if log else changes))
