"""Protocols of the service's neighbours: the destination of records, and the source of facts."""

from __future__ import annotations

from typing import Protocol

from pdp.audit.records.record import DecisionRecord
from pdp.facts.snapshot import Facts
from pdp.model.events import EventLog


class AuditLog(EventLog, Protocol):
    """Destination of decided batches and of events. Calls must not wait for a disk."""

    def admit(self) -> None:
        """Raise Unavailable while records cannot be taken."""
        ...

    def append(self, record: DecisionRecord) -> None:
        """Take the record of a decided batch."""
        ...


class FactsSource(Protocol):
    """Source of the facts. Reading the facts never waits."""

    @property
    def facts(self) -> Facts:
        """Return the newest snapshot that is present."""
        ...

    def is_stale(self) -> bool:
        """Tell whether the snapshot is too old to permit anything."""
        ...

    async def catch_up(self) -> None:
        """Wait until the snapshot has all commits from before the call; raise Unavailable if that cannot be known."""
        ...

    async def at_least(self, epoch: str, sequence: int) -> None:
        """Wait for a revision, within a bound; raise Unavailable."""
        ...
