"""Basis of a decision: one bundle, one snapshot of the facts, and the plans and engines' calls made for both."""

from __future__ import annotations

import time
from typing import NamedTuple

from pdp.decision.answers import revision_of
from pdp.decision.bundle import Bundle
from pdp.decision.evaluation import Evaluator
from pdp.decision.plan import Planners
from pdp.decision.plan_memo import PlanMemo
from pdp.facts.snapshot import Facts
from pdp.telemetry import Telemetry


class Basis(NamedTuple):
    """Everything that a batch is decided from. `stale`: the facts are too old to permit anything."""

    bundle: Bundle
    facts: Facts
    stale: bool
    revision: str
    plans: PlanMemo
    evaluator: Evaluator

    @classmethod
    def make(cls, planners: Planners, bundle: Bundle, facts: Facts, telemetry: Telemetry, *, stale: bool) -> Basis:
        """Return the basis of decisions by a bundle and a snapshot of the facts."""
        plans = PlanMemo(planners, bundle, facts, stale=stale)
        evaluator = Evaluator(bundle, facts, telemetry, stale=stale)
        return cls(bundle, facts, stale, revision_of(bundle, facts), plans, evaluator)

    def under(self, bundle: Bundle) -> Basis:
        """Return a basis for evaluations under another bundle and the same facts. Plans stay those of this basis."""
        return self._replace(bundle=bundle, evaluator=self.evaluator.under(bundle))

    def origin(self, elapsed: float) -> tuple[str, bytes, float, int]:
        """Return the bundle's digest and text, the time, and the latency in microseconds, for a record."""
        return self.bundle.digest, self.bundle.text, time.time(), int(elapsed * 1e6)
