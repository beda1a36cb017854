"""Protocols of the service's neighbours, the audit and the source of facts, and the snapshot that a batch rests on."""

from __future__ import annotations

import time
from typing import NamedTuple, Protocol

from pdp.audit.records.record import AnyRecord
from pdp.decision.active_policies import ActivePolicies
from pdp.decision.evaluation import Evaluator
from pdp.decision.explanation import revision_of
from pdp.decision.plan import Planners
from pdp.decision.plan_cache import PlanCache
from pdp.facts.snapshot import Facts
from pdp.model.events import AnswerHold, EventLog
from pdp.model.revision import Revision
from pdp.telemetry import Telemetry


class AuditLog(EventLog, Protocol):
    """Destination of decided batches and of events. Calls must not wait for a disk."""

    @property
    def gate(self) -> AnswerHold:
        """Return the gate that tells when records are safe."""
        ...

    def admit(self) -> None:
        """Raise Unavailable while records cannot be taken."""
        ...

    def append(self, record: AnyRecord) -> None:
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

    async def at_least(self, revision: Revision) -> None:
        """Wait for a revision, within a bound; raise Unavailable, also for a revision of another history."""
        ...


class DecisionSnapshot(NamedTuple):
    """Everything that a batch is decided from. `stale`: the facts are too old to permit anything."""

    bundle: ActivePolicies
    facts: Facts
    stale: bool
    revision: str
    plans: PlanCache
    evaluator: Evaluator

    @classmethod
    def make(
        cls, planners: Planners, bundle: ActivePolicies, facts: Facts, telemetry: Telemetry, *, stale: bool
    ) -> DecisionSnapshot:
        """Return the basis of decisions by a bundle and a snapshot of the facts."""
        plans = PlanCache(planners, bundle, facts, stale=stale)
        evaluator = Evaluator(bundle, facts, telemetry, stale=stale)
        return cls(bundle, facts, stale, revision_of(bundle, facts), plans, evaluator)

    def under(self, bundle: ActivePolicies) -> DecisionSnapshot:
        """Return a basis for evaluations under another bundle and the same facts. Plans stay those of this basis."""
        return self._replace(bundle=bundle, evaluator=self.evaluator.under(bundle))

    def origin(self, elapsed: float) -> tuple[str, bytes, float, int]:
        """Return the bundle's digest and text, the time, and the latency in microseconds, for a record."""
        return self.bundle.digest, self.bundle.text, time.time(), int(elapsed * 1e6)
