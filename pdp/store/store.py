"""Store of facts: the protocol that every database implements, and the contract of its methods.

A store holds an epoch, a sequence number, the registered objects, the grants, and a log of all changes.

1. Order. Revisions are numbered in commit order. A write holds the store's only lock from before the number is taken
   until after the commit. A reader of revision n has therefore seen revisions 1 to n, and no later commit gets a
   number of n or less.
2. Decision under the lock. `write` calls `prepare` inside the transaction, under the lock, with the log since the
   writer's snapshot. A writer therefore decides on the same facts that the write changes.
3. Atomicity. The changes from `prepare` and the log entry are committed together or not at all. If `prepare` raises,
   or returns no change, the store writes nothing and uses no number.
4. Rows only. `prepare` guarantees that every change changes a row: a grant to add is absent, a grant to remove is
   present. The store knows no hierarchy and no privileges.
5. Complete log. `since` returns every revision after a snapshot, in order, without gaps.
6. Epochs. A new history gets a new epoch: after the restore of a backup, or the promotion of a lagging replica. Then
   `since` and `write` raise `EpochChanged` for every older snapshot, even if the new history has more revisions, and
   the caller must `load` again. Revisions of different epochs cannot be compared. Every revision has a random token, so
   that a revision of a history that was lost while nobody ran differs from the namesake.
7. Loud failure. Every call has a time limit. An unreachable or silent database raises `Unavailable`. A database without
   a usable store raises `ConfigError`, with the name of the database.
8. Threads. Calls block, and any thread may make them.

A `CommitGate` lets a request and its write agree on one of two ends. A request that ran out of time is answered as not
written. The write runs in another thread and must not commit after the answer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import msgspec

from pdp.errors import PdpError
from pdp.facts.objects import Change
from pdp.facts.snapshot import Facts


class EpochChanged(PdpError):
    """Snapshot from another history than the store's. The caller must load a new snapshot."""

    code = "epoch_changed"


class LogEntry(msgspec.Struct, frozen=True):
    """One committed revision: `time` in seconds since 1970, `actor` as the writer named itself, `token` random."""

    sequence: int
    time: float
    actor: str
    changes: tuple[Change, ...]
    token: str = ""


Prepare: TypeAlias = Callable[[Sequence[LogEntry]], Sequence[Change]]
"""The log since the writer's snapshot -> the changes to write. An exception cancels the write."""


class Store(Protocol):
    """A database of facts. The module's docstring is the contract."""

    def load(self) -> Facts:
        """Return the newest snapshot, of one revision."""
        ...

    def since(self, facts: Facts) -> Sequence[LogEntry]:
        """Return the log after a snapshot; raise EpochChanged if the snapshot is from another history."""
        ...

    def token_of(self, facts: Facts, sequence: int) -> str:
        """Return the token of a revision up to a snapshot, "" for none; raise EpochChanged as `since` does."""
        ...

    def wait(self, seconds: float) -> None:
        """Return after any commit that this thread has not read yet, or after `seconds`. May return early."""
        ...

    def write(self, actor: str, facts: Facts, prepare: Prepare, gate: CommitGate | None = None) -> Sequence[LogEntry]:
        """Write the changes from `prepare`; return the log after `facts`, the new entry last if there is one.

        Commit only if the `gate` agrees; raise Unavailable for a write that its request has given up.
        """
        ...

    def close(self) -> None:
        """Release the database; make a `wait` in another thread return soon."""
        ...


class CommitGate:
    """Switch that only the first of `begin_commit` and `give_up` turns. Any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._committing = self._given_up = False

    def begin_commit(self) -> bool:
        """Return True if the write may commit; from then on the request waits for the commit."""
        with self._lock:
            self._committing = not self._given_up
            return self._committing

    def give_up(self) -> bool:
        """Return True if the write will not commit; False if a commit has begun."""
        with self._lock:
            self._given_up = not self._committing
            return self._given_up

    @property
    def is_given_up(self) -> bool:
        """Tell whether the request has given the write up."""
        return self._given_up


def apply_log(facts: Facts, log: Sequence[LogEntry]) -> Facts:
    """Return the snapshot after the entries; the first entry must follow the snapshot directly."""
    for entry in log:
        facts = facts.apply(entry.sequence, entry.changes, entry.token)
    return facts


def write_seed(store: Store, actor: str, facts: Facts, changes: Sequence[Change]) -> Facts:
    """Write the first revision of an empty store, unless another service was faster; return the facts after it.

    Do nothing for a store with revisions. Raise as `Store.write` does.
    """
    if facts.sequence:
        return facts
    return apply_log(facts, store.write(actor, facts, lambda log: () if log else changes))
