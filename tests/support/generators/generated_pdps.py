"""PDPs with generated policies, and decisions of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec
from support.paths import TESTS

from pdp.app.facts import build_pdp
from pdp.config.load import make_settings
from pdp.config.settings import Settings
from pdp.decision.codec import decode_checks
from pdp.decision.service import Pdp
from pdp.identity.callers import EMBEDDED_CALLER
from pdp.identity.evidence import admit
from pdp.model.answer import Answer
from pdp.model.events import OPEN_GATE, AnswerHold
from pdp.model.question import Batch
from pdp.offline.cases.cases import Case
from pdp.offline.cases.runner import MemoryAudit, build_case_pdp, case_batch


def make_pdp(
    config: dict[str, Any], rules: dict[str, str], grants: Sequence[Any] = (), forbid: dict[str, str] | None = None
) -> Pdp:
    """Build a PDP in memory from a configuration, rules and grants."""
    world = {"objects": [], "grants": list(grants)}
    data = {"config": config, "rules": rules, "forbid": forbid or {}, "world": world}
    pdp, _ = build_case_pdp(Case("generated", TESTS, data), build_pdp, MemoryAudit())
    return pdp


def batch(checks: Sequence[Any]) -> Batch:
    """Return the batch of some checks in their JSON form."""
    return case_batch(Case("generated", TESTS, {"checks": checks}), _plain_settings())


@cache
def _plain_settings() -> Settings:
    return make_settings({}, TESTS)


def decide(pdp: Pdp, checks: Sequence[Any]) -> Answer:
    """Decide checks in their JSON form."""
    return asyncio.run(pdp.check(batch(checks)))


class LastRecord:
    """Audit that keeps the newest record alone."""

    gate: AnswerHold = OPEN_GATE

    def __init__(self) -> None:
        self.record: Any = None

    def admit(self) -> None:
        """Accept every request."""

    def append(self, record: Any) -> None:
        """Keep a record in place of the one before."""
        self.record = record.whole()

    def note(self, event: Any) -> bool:
        """Drop an event."""
        return True


def decide_and_record(pdp: Pdp, checks: list[Any]) -> tuple[Answer, Any]:
    """Decide checks as their bytes arrive over HTTP; return the answer and its audit record."""
    pdp.audit = audit = LastRecord()
    request = decode_checks([msgspec.json.encode(check) for check in checks]).request("test")
    return asyncio.run(pdp.check(admit(request, EMBEDDED_CALLER))), audit.record
