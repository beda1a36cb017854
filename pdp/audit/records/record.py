"""Values that a decided batch hands to the audit: the batch, its answer and every concrete check behind the answer.

Holds no JSON (`writing`) and no file. Decisions build a record whether or not anybody writes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from pdp.engines.engine import FAILED, PERMIT, EngineQuestion, Verdicts
from pdp.model.answer import Answer, ReadRestrictions, Reason
from pdp.model.question import Batch, Check, Resource

LISTING: Final = "list"
"""Surface of the checks behind a listing: hypothetical questions, which let nobody in."""


class LeafDecision(msgspec.Struct, frozen=True, gc=False):
    """One concrete check of many resources, decided; `at[i]` is the position in the answer of resource i.

    `restrictions` go with a permit. Closed restrictions need no permit.
    """

    group: EngineQuestion
    resources: Sequence[Resource]
    at: Sequence[int]
    verdicts: Verdicts
    restrictions: ReadRestrictions | None = None


class DecidedCheck(msgspec.Struct, frozen=True, gc=False):
    """A check of the request with its concrete checks.

    `plain`: the concrete checks are the check of the request itself, so nothing was folded. `outcome` is the result of
    the fold, a row for each resource; None where only the answer has the result.
    """

    check: Check
    plain: bool
    concrete: tuple[LeafDecision, ...]
    outcome: Verdicts | None = None

    @property
    def restrictions(self) -> ReadRestrictions | None:
        """Return the read restrictions in the answer about one resource; None without restrictions."""
        if self.outcome is None or self.outcome.effects[0] != PERMIT:
            return None
        given = ((leaf.restrictions, leaf.verdicts.effects[0] == PERMIT) for leaf in self.concrete)
        return next((one for one, is_permitted in given if one and (is_permitted or one.closed)), None)


class Listing(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Question of one page of a listing, and the numbers of candidates that were checked and permitted.

    `asked` has the question in words of world files, by field. `since` is the revision of the first candidates, if the
    page was decided at several revisions: the record has the last of them.
    """

    asked: Mapping[str, str]
    candidates: int
    permitted: int
    since: str = ""


class DecisionRecord(msgspec.Struct, frozen=True, gc=False):
    """A batch, its answer and the checks behind the answer. `time` is in seconds since the epoch.

    `masks` is set when the caller asked for the row view of a table, not for a decision: column -> the reason of its
    mask, None for an unmasked column. `listing` is set for a page of a listing: then the batch has the permitted
    candidates alone, without concrete checks. `stale`: the facts were too old to permit anything. `sampled` is the
    share of such requests that get a record, and `left_out` the number of records left out since the record before.
    """

    batch: Batch
    answer: Answer
    checks: tuple[DecidedCheck, ...]
    bundle_digest: str
    bundle_text: bytes
    time: float
    latency_us: int
    masks: Mapping[str, Reason | None] | None = None
    listing: Listing | None = None
    stale: bool = False
    sampled: float = 1.0
    left_out: int = 0

    @property
    def failed(self) -> bool:
        """Tell whether an engine failed on any concrete check."""
        return any(FAILED in leaf.verdicts.effects for check in self.checks for leaf in check.concrete)

    def whole(self) -> DecisionRecord:
        """Return the record itself."""
        return self


class RecordedPlan(Protocol):
    """Prepared plan of one check of one resource, as its records see it.

    `numbers` has, for each entry of a record, the number of its verdicts among those of the plan: concrete checks, then
    the check of the request unless it is plain. `frames` is a place for texts of encoders: they live as long as the
    plan.
    """

    numbers: tuple[int, ...]
    frames: dict[Any, Any]

    def decided(self, check: Check, found: Sequence[Verdicts]) -> DecidedCheck:
        """Return the decided check with these verdicts of the plan. The last of them is the outcome."""
        ...


class PlannedRecord(msgspec.Struct, frozen=True, gc=False):
    """Record of one check of one resource by a prepared plan. `found` has the verdicts of the plan, the outcome last.

    The values of a `DecisionRecord` are made where somebody reads them.
    """

    batch: Batch
    answer: Answer
    plan: RecordedPlan
    found: Sequence[Verdicts]
    bundle_digest: str
    bundle_text: bytes
    time: float
    latency_us: int

    def whole(self) -> DecisionRecord:
        """Return the record in full."""
        checks = (self.plan.decided(self.batch.checks[0], self.found),)
        origin = self.bundle_digest, self.bundle_text, self.time, self.latency_us
        return DecisionRecord(self.batch, self.answer, checks, *origin)


AnyRecord: TypeAlias = DecisionRecord | PlannedRecord
"""Record of a decided batch, in either form."""
