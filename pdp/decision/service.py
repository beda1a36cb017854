"""Decision service. Every request passes here; each batch uses one bundle and one revision of the facts.

Plan, evaluate, fold (`combine`), record. Holds the current bundle; knows facts and audit by their protocols only.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Final, NamedTuple, TypeVar

import msgspec

from pdp.audit.records.record import AnyRecord, DecidedCheck, DecisionRecord, Listing, PlannedRecord
from pdp.decision.active_policies import ActivePolicies
from pdp.decision.cached_evaluation import CachedEvaluation, may_cache
from pdp.decision.combine import fold
from pdp.decision.evaluation import CHUNK, FIRST_CHUNK, LONGEST_STEP, LeafVerdicts, finish_at_once, within
from pdp.decision.explanation import (
    NO_TRACES,
    Explainer,
    fold_answer,
    make_answer,
    mark_cached,
    no_verdict,
    trace_checks,
)
from pdp.decision.inspection import (
    GrantVisibility,
    guards,
    reduce_answer,
    reject_invisible,
    sees_all,
    visible_positions,
)
from pdp.decision.plan import FixedDenial, Leaf, Planners
from pdp.decision.plan_cache import bound_traces, in_parts, plan_checks, takes_along
from pdp.decision.ports import AuditLog, DecisionSnapshot, FactsSource
from pdp.decision.prepared_plan import decide_check, decided_check
from pdp.decision.row_filter import DecidedAccess, explain_rows, restrict, row_view
from pdp.decision.shadow import ShadowDecision, ShadowReporter
from pdp.decision.turns import AwaitingResumable, Resumable, each_in_turns, finish, finish_in_turns
from pdp.decision.verdict_cache import VerdictCache
from pdp.engines.engine import ALLOWED_BY_EFFECT, TurnOver
from pdp.engines.grants.engine import GrantsEngine
from pdp.engines.row_access.explain import RowExplanation
from pdp.errors import AssertionNotAllowed, InvalidArgument
from pdp.facts.snapshot import Facts
from pdp.model.answer import Answer, Reason, TypedColumn
from pdp.model.question import AtLeast, Batch, Caller, Check, Consistency
from pdp.model.revision import Revision, new_id
from pdp.telemetry import Telemetry

T = TypeVar("T")
_FEW_CHECKS: Final = 256
"""Checks of a batch that may be decided in one go."""


class BatchResult(msgspec.Struct, frozen=True, gc=False):
    """Decided batch. `visible[i]` is 1 where the caller may see reasons; None means everywhere.

    `grants` tells which grants the reasons may name; None means all. `reported` is None without a report mode.
    """

    kept: AnyRecord
    visible: bytes | None = None
    grants: GrantVisibility | None = None
    reported: ShadowDecision | None = None

    @property
    def record(self) -> DecisionRecord:
        """Return the whole record."""
        return self.kept.whole()

    @property
    def answer(self) -> Answer:
        """Return the answer without the reasons that the caller may not see."""
        answer = self.kept.answer
        if self.visible is None:
            return answer
        reduced = reduce_answer(answer, self.visible)
        return self.grants.answer(reduced) if self.grants else reduced


class ListedPage(NamedTuple):
    """One page of a listing: the permitted candidates with their reasons, and the number of all candidates.

    `asked` has the question by field, `last` is the newest decision behind the page. `since` is the revision of the
    first decision, if not all of them had the same.
    """

    asked: Mapping[str, str]
    permitted: Batch
    by: Sequence[Reason | None]
    candidates: int
    last: BatchResult
    seconds: float
    since: str = ""


class Pdp:
    """Policy decision point: decides batches and records every decision."""

    def __init__(
        self,
        bundle: ActivePolicies,
        source: FactsSource,
        audit: AuditLog,
        telemetry: Telemetry,
        planners: Planners,
        cache: VerdictCache | None = None,
    ) -> None:
        self.planners = planners
        self.bundle = bundle
        self.source = source
        self.audit = audit
        self.telemetry = telemetry
        self.cache = cache
        self.clock: Callable[[], float] = time.time
        """Clock of decisions, in seconds since 1970. Policy tests set another."""
        self.reporter = ShadowReporter(telemetry)
        self._last_basis: DecisionSnapshot | None = None

    def revision(self) -> str:
        """Return the revision of the current bundle and facts, as text."""
        return self._basis().revision

    def seconds(self) -> int | None:
        """Return the time of decisions in seconds since 1970; None if no policy reads the time."""
        return int(self.clock()) if self.bundle.reads_time else None

    async def check(self, batch: Batch) -> Answer:
        """Return the answer to a batch; raise Unavailable if its consistency or the audit cannot be served."""
        result = self.decide_now(batch) or await self.decide(batch)
        return result.answer

    async def refusal(self, refused: Batch) -> AssertionNotAllowed:
        """Record a batch that the caller may not ask; return the error with the id of the record. Raise as `check`."""
        error = AssertionNotAllowed(next(iter(refused.rejected.values())).message)
        error.record_id = (await self.check(refused)).id
        return error

    def decide_now(self, batch: Batch) -> BatchResult | None:
        """Decide a small batch by the facts at hand and record the decision; None if `decide` must do this.

        Raise Unavailable if the audit cannot be served.
        """
        if batch.explain or batch.consistency != "minimize_latency" or self.bundle.must_wait:
            return None
        if batch.size > FIRST_CHUNK and (batch.size > CHUNK or self.bundle.has_slow):
            return None
        cache = self.cache
        if cache is not None and (cache.newest is not self.bundle or cache.has_engines) and cache.serves(self.bundle):
            return None
        started = time.perf_counter()
        self.audit.admit()
        if self.bundle.reads_time:
            batch = at_time(batch, int(self.clock()))
        if batch.size == 1 and not batch.rejected and sees_all(batch.caller):
            return self._decide_one(batch, started)
        if len(batch.checks) > _FEW_CHECKS or any(map(takes_along, batch.checks)):
            return None
        try:
            return self._keep(within(LONGEST_STEP, finish_at_once, self._decide(batch, started)))
        except TurnOver:
            return None  # nothing is recorded yet

    def _decide_one(self, batch: Batch, started: float) -> BatchResult | None:
        """Decide a batch of one check of one resource, whose caller sees all reasons; None if that takes too long."""
        basis = self._basis()
        check = batch.checks[0]
        template, asked = basis.plans.template(check)
        plan, outcome, decided = template.prepared, None, None
        if plan and (found := plan.verdicts(asked.resources[0])):
            outcome, decided = found[-1], None if asked is check else plan.decided(asked, found)
        if outcome is None:
            try:
                decided = within(LONGEST_STEP, decide_check, asked, template.node, basis.evaluator.decide)
            except TurnOver:
                return None
            outcome = decided.outcome
            assert outcome
        allowed = outcome.effects.translate(ALLOWED_BY_EFFECT)
        answer = Answer(new_id(), basis.revision, allowed, outcome.by, outcome.errors, batch.rejected, NO_TRACES)
        elapsed = time.perf_counter() - started
        digest, text, now, micros = basis.origin(elapsed)  # a struct of unpacked values takes 0.6 us longer
        record: AnyRecord
        if plan and found and decided is None:
            record = PlannedRecord(batch, answer, plan, found, digest, text, now, micros)
        else:
            assert decided
            if asked is not check:  # the record has the name as asked, and the object's own
                decided = msgspec.structs.replace(decided, check=check, plain=False)
            record = DecisionRecord(batch, answer, (decided,), digest, text, now, micros, stale=basis.stale)
        self.audit.append(record)
        permits = allowed[0]
        self.telemetry.count_decisions(batch.surface, permits, 1 - permits, elapsed)
        return BatchResult(record)

    async def decide(self, batch: Batch) -> BatchResult:
        """Decide a batch and record the decision in full; raise as `check` does. Give the event loop turns."""
        result = await self.decide_unrecorded(batch)
        reported = result.reported
        if reported is None:
            return self._keep(result)
        events = await self.reporter.compare(reported)
        self._keep(result)
        for event in events:
            self.audit.note(event)
        self.reporter.compare_later(reported, self.audit)
        return result

    async def decide_unrecorded(self, batch: Batch) -> BatchResult:
        """Decide a batch as `decide` does, for a caller that records the decision by `record_listing`."""
        started = time.perf_counter()
        self.audit.admit()
        await self.await_consistency(batch.consistency)
        if self.bundle.reads_time:
            batch = at_time(batch, int(self.clock()))
        parts = await finish_in_turns(in_parts(batch))
        return await finish_in_turns(self._decide(parts, started, self.cache))

    def _decide(
        self, batch: Batch, started: float, cache: VerdictCache | None = None
    ) -> AwaitingResumable[BatchResult]:
        basis = self._basis()
        if basis.stale or (cache is not None and not cache.may_answer(batch, basis.bundle)):
            cache = None
        visible = None
        if not sees_all(batch.caller):
            visible = yield from self._visible(batch, basis)
            batch = reject_invisible(batch, visible)
        trees, found = yield from plan_checks(batch.checks, basis.plans)
        if batch.explain:
            bound_traces(found)
        cached, verdicts_of = yield from self._verdicts(found, basis, cache)
        traces = NO_TRACES
        grants = None if visible is None else self.grant_visibility(batch.caller, basis.facts, basis.bundle)
        if batch.explain:
            explainer = Explainer(basis.bundle, basis.evaluator, verdicts_of, cached.verdict if cached else no_verdict)
            traces = yield from trace_checks(batch.checks, trees, explainer, visible)
            traces = (yield from grants.traces(traces)) if grants else traces
        outcomes = yield from each_in_turns(fold, trees, repeat(verdicts_of))
        answer = fold_answer(batch, outcomes, basis.revision, traces)
        if cached is not None:
            answer = mark_cached(answer, batch.checks, trees, cached.shared)
        checks = yield from each_in_turns(decided_check, batch.checks, trees, repeat(verdicts_of), outcomes)
        elapsed = time.perf_counter() - started
        record = DecisionRecord(batch, answer, tuple(checks), *basis.origin(elapsed), stale=basis.stale)
        if cached is not None:
            cached.keep()
        reported = ShadowDecision(batch, answer.id, found, basis, verdicts_of) if basis.bundle.reports else None
        return BatchResult(record, visible, grants, reported)

    def _keep(self, result: BatchResult) -> BatchResult:
        """Record a decided batch."""
        self._record(result.record, result.record.latency_us / 1e6)
        return result

    def record_listing(self, page: ListedPage) -> None:
        """Record one page of a listing."""
        permitted, newest = page.permitted, page.last.record
        checks = tuple([DecidedCheck(check, False, ()) for check in permitted.checks])
        answer = Answer(new_id(), newest.answer.revision, b"\x01" * permitted.size, page.by, {}, {}, NO_TRACES)
        listing = Listing(page.asked, page.candidates, permitted.size, page.since)
        origin = newest.bundle_digest, newest.bundle_text, time.time(), int(page.seconds * 1e6)
        self.audit.append(DecisionRecord(permitted, answer, checks, *origin, listing=listing, stale=newest.stale))
        denied = page.candidates - permitted.size
        self.telemetry.count_decisions(permitted.surface, permitted.size, denied, page.seconds)

    def record_failure(self, batch: Batch) -> str:
        """Record a batch that got no answer and is rejected as a whole; return the id of the record.

        Record nothing, and return "", if the audit is the cause.
        """
        with contextlib.suppress(Exception):  # the failure is in the log already, and may affect the record too
            self.audit.admit()
            basis = self._basis()
            answer = make_answer(batch, basis.revision, bytes(batch.size), [None] * batch.size)
            self.audit.append(DecisionRecord(batch, answer, (), *basis.origin(0), stale=basis.stale))
            return answer.id
        return ""

    def restrict(self, batch: Batch, columns: Sequence[TypedColumn]) -> DecidedAccess:
        """Return the visible rows, and values of `columns`, of the table of a batch of one check.

        A rejected check sees nothing. Raise Unavailable if the audit cannot be served. The event loop gets no turn:
        use `restrict_many` for more than FEW_COLUMNS.
        """
        return finish(self._restrict(batch, columns))

    async def restrict_many(self, batch: Batch, columns: Sequence[TypedColumn]) -> DecidedAccess:
        """Return the same as `restrict` for any number of columns. Give the event loop turns."""
        return await finish_in_turns(self._restrict(batch, columns))

    def _restrict(self, batch: Batch, columns: Sequence[TypedColumn]) -> Resumable[DecidedAccess]:
        started = time.perf_counter()
        self.audit.admit()
        basis = self._basis()
        restriction, checks = restrict(self.planners, batch, basis)
        view, masks = yield from row_view(restriction, columns)
        answer = make_answer(batch, basis.revision, bytes([restriction.shows_rows]), [restriction.by])
        elapsed = time.perf_counter() - started
        origin = basis.origin(elapsed)
        self._record(DecisionRecord(batch, answer, checks, *origin, masks=masks, stale=basis.stale), elapsed)
        return DecidedAccess(view, answer.id)

    def explain_rows(self, batch: Batch) -> RowExplanation:
        """Return the restriction of the table of a batch of one check, with every policy and mask. Record nothing.

        Raise InvalidArgument for a rejected check.
        """
        return explain_rows(batch, self._basis())

    async def await_consistency(self, consistency: Consistency) -> None:
        """Wait until the facts are as new as demanded; raise InvalidArgument or Unavailable."""
        if isinstance(consistency, AtLeast):
            revision = Revision.parse(consistency.at_least)
            await self.source.at_least(revision)
        elif consistency == "full":
            await self.source.catch_up()
        elif consistency != "minimize_latency":
            raise InvalidArgument(f"consistency `{consistency}` is none of `minimize_latency`, `full`, `atLeast`")

    def _basis(self) -> DecisionSnapshot:
        """Return the current basis. The same basis serves, with its plans, until the bundle or the facts change."""
        bundle, facts, last = self.bundle, self.source.facts, self._last_basis
        if last is None or last.bundle is not bundle or last.facts is not facts:
            last = self._last_basis = DecisionSnapshot.make(self.planners, bundle, facts, self.telemetry, stale=False)
        if self.source.is_stale():
            return DecisionSnapshot.make(self.planners, bundle, facts, self.telemetry, stale=True)
        return last

    def _verdicts(
        self, found: Sequence[Leaf | FixedDenial], basis: DecisionSnapshot, cache: VerdictCache | None
    ) -> AwaitingResumable[tuple[CachedEvaluation | None, LeafVerdicts]]:
        """Return the verdicts on all leaves, and the evaluation if verdicts had to be waited for."""
        if cache is not None and not may_cache(found, basis, cache):
            cache = None
        if cache is None and not basis.bundle.has_awaited:
            return None, (yield from self._evaluate(found, basis))
        evaluation = CachedEvaluation(found, basis, cache)
        yield evaluation.run()
        return evaluation, evaluation.verdicts_of

    def _evaluate(self, found: Sequence[Leaf | FixedDenial], basis: DecisionSnapshot) -> Resumable[LeafVerdicts]:
        """Return the verdicts on all leaves."""
        return basis.evaluator.evaluate_now(found) or (yield from basis.evaluator.evaluate(found))

    def grant_visibility(
        self, caller: Caller, facts: Facts, bundle: ActivePolicies | None = None
    ) -> GrantVisibility | None:
        """Return which grants a caller may see in reasons; None for a caller that may see all."""
        bundle = bundle or self.bundle
        if sees_all(caller) or caller.own is None:
            return None
        actor = bundle.with_mapped_roles(caller.own)
        stacks = [authority.engines for authority in (bundle.default, *bundle.authorities.values())]
        engine = next((one for stack in stacks for one in stack if isinstance(one, GrantsEngine)), None)
        if actor.id in bundle.instance_admins:
            return None
        return GrantVisibility(
            actor.id, lambda key: engine is not None and engine.may(actor, "read_assignments", key, facts)
        )

    def _visible(self, batch: Batch, basis: DecisionSnapshot) -> AwaitingResumable[bytes]:
        """Return 1 for each position that has guards, all of them permitted."""
        checks = yield from guards(batch, lambda check: self.planners.meant(check, basis.bundle, basis.facts))
        trees, found = yield from plan_checks(checks, basis.plans)
        _, verdicts_of = yield from self._verdicts(found, basis, None)
        outcomes = yield from each_in_turns(fold, trees, repeat(verdicts_of))
        return (yield from visible_positions(batch.size, checks, outcomes))

    def _record(self, record: DecisionRecord, elapsed: float) -> DecisionRecord:
        """Append a record to the audit and count its decisions; `elapsed` is in seconds."""
        self.audit.append(record)
        allowed = record.answer.allowed
        permits = allowed.count(1)
        self.telemetry.count_decisions(record.batch.surface, permits, len(allowed) - permits, elapsed)
        return record


def at_time(batch: Batch, seconds: int) -> Batch:
    """Return the batch with the time of the decision in every check that has none yet."""
    checks = [check if check.question.context.now else _check_at(check, seconds) for check in batch.checks]
    return msgspec.structs.replace(batch, checks=checks)


def _check_at(check: Check, seconds: int) -> Check:
    return check.asking(context=msgspec.structs.replace(check.question.context, now=seconds))
