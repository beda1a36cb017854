"""Questions of tables decided again: rows with equal inputs, each with the number of its checks.

Owns comparison and causes, also of row views: filters are sets of predicates, of which any one suffices, so a further
one may show rows, a missing one may hide rows, and a changed one may do both. Evaluates no SQL. Knows neither Spark nor
where the rows are: an executor hands in one batch after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from pdp.audit.records.recorded import RecordedOutcome, ReplayCheck
from pdp.audit.records.tables import TableRow, TableRowReader, UnusableRow
from pdp.decision.service import Pdp
from pdp.engines.row_access.engine import NO_ROWS, REASON_PREFIX
from pdp.engines.row_access.trino import FALSE, join_filters, null_sql
from pdp.model.answer import Predicate
from pdp.model.question import Check
from pdp.offline.replay.basis import AS_RECORDED, CandidatePolicies, HistoricalPdps, PolicyArchive, UndecidableCheck
from pdp.offline.replay.differences import KINDS, DifferenceKind, check_object, check_subject
from pdp.offline.replay.replay import (
    CapturingAudit,
    EqualChecks,
    RecordedPlace,
    RepeatedAccess,
    by_place,
    change_from_record,
    decide_again,
    view_again,
)

EVERY_ROW: Final = "every row"
NO_ROW: Final = "no row"
_NULL: Final = null_sql("varchar")


class AccessChange(NamedTuple):
    """Change of a row view. `seen` and `hidden` are columns. `rows_seen`: further rows may be visible."""

    kind: DifferenceKind
    rows_before: str
    rows_after: str
    rows_seen: bool
    rows_hidden: bool
    seen: tuple[str, ...]
    hidden: tuple[str, ...]


class PolicyAccess(NamedTuple):
    """Row view with the predicates of its filter: None for every row, none for no row."""

    repeated: RepeatedAccess
    predicates: frozenset[str] | None


def policy_view(pdp: Pdp, check: Check, repeated: RepeatedAccess) -> PolicyAccess:
    """Return a row view with the predicates of its policies."""
    rows = repeated.view.rows
    if rows is None:
        return PolicyAccess(repeated, None)
    if rows == NO_ROWS:
        return PolicyAccess(repeated, frozenset())
    return PolicyAccess(repeated, _parts(pdp, check, rows, repeated.outcome.by))


def _parts(pdp: Pdp, check: Check, rows: Predicate, by: str) -> frozenset[str]:
    """Return the predicates of a filter; the filter as one predicate if the policies do not explain it."""
    ids = set(by.partition(" (")[0].removeprefix(REASON_PREFIX).split(","))
    policies = pdp.bundle.row_access.policies_of(check.resources[0], pdp.source.facts).policies
    texts = [policy.text for policy in policies if policy.id in ids and not policy.is_open]
    bind, principal = pdp.bundle.row_access.members.bind, check.question.principal
    parts = [bind(text, principal, pdp.source.facts) or FALSE for text in texts]
    if not parts or join_filters(parts) != rows.expression:
        parts = [rows.expression]
    return frozenset(f"{part} (as {rows.identity})" if rows.identity else part for part in parts)


def compare_views(columns: Sequence[str], before: PolicyAccess, after: PolicyAccess) -> AccessChange | None:
    """Return the change between two row views of the same columns; None if nothing changes, reasons included."""
    old, new = before.predicates, after.predicates
    rows_seen = old is not None and (new is None or bool(new - old))
    rows_hidden = new is not None and (old is None or bool(old - new))
    was, now = before.repeated.view.more_rows, after.repeated.view.more_rows
    if was != now:  # visible rows pass both filters: another one of the query's user may show more, and hide more
        rows_seen, rows_hidden = rows_seen or was is not None, rows_hidden or now is not None
    masks = list(zip(columns, before.repeated.view.masks, after.repeated.view.masks, strict=True))
    seen = tuple(name for name, was, now in masks if _may_show(was, now))
    hidden = tuple(name for name, was, now in masks if _may_show(now, was))
    kind: DifferenceKind = "reason"
    if rows_seen or seen:
        kind = "gained"
    elif rows_hidden or hidden:
        kind = "lost"
    elif before.repeated.outcome == after.repeated.outcome:
        return None
    return AccessChange(kind, _text(old, was), _text(new, now), rows_seen, rows_hidden, seen, hidden)


def _may_show(was: Predicate | None, now: Predicate | None) -> bool:
    """Tell whether the new mask of a column may show more values than the old mask."""
    return was is not None and was != now and (now is None or now.expression != _NULL)


def _text(predicates: frozenset[str] | None, more: Predicate | None) -> str:
    text = EVERY_ROW if predicates is None else join_filters(sorted(predicates)) if predicates else NO_ROW
    return text if more is None else f"{text}, and {more.expression} (as {more.identity or 'the user'})"


ReplayKind: TypeAlias = Literal["same", "gained", "lost", "reason", "errors", "undecidable"]
REPLAY_KINDS: Final[tuple[ReplayKind, ...]] = ("undecidable", *KINDS, "same")


class _NamedPrincipal(msgspec.Struct, frozen=True):
    """Principal of inputs, whatever else the inputs hold."""

    id: str = ""


class _NamedInputs(msgspec.Struct, frozen=True):
    """Inputs of which the principal alone is read."""

    principal: _NamedPrincipal = _NamedPrincipal()


_NAMED: Final = msgspec.json.Decoder(_NamedInputs)


class RowQuestion(msgspec.Struct, frozen=True):
    """Equal rows: the first row, the number of rows, a name of the question as a number, and both ends of the times.

    Times are microseconds since 1970. The row itself has a time only if a rule may read the time.
    """

    row: TableRow
    checks: int
    id: int = 0
    first: int | None = None
    last: int | None = None


class ReplayedQuestion(msgspec.Struct, frozen=True):
    """Result of a question, or of all questions of a batch with the same decision as before.

    `cause` and `detail` tell why a question is undecidable; `by_before` is the recorded reason then, too. A row view
    has its filters and the changed columns.
    """

    kind: ReplayKind
    checks: int
    questions: int = 1
    id: int = 0
    event: str = ""
    principal: str = ""
    acting_role: str = ""
    action: str = ""
    container: str = ""
    resource: str = ""
    destination: str = ""
    delegated: bool = False
    by_before: str = ""
    by_after: str = ""
    errors_before: tuple[str, ...] = ()
    errors_after: tuple[str, ...] = ()
    rows_before: str = ""
    rows_after: str = ""
    rows_seen: bool = False
    rows_hidden: bool = False
    columns_seen: tuple[str, ...] = ()
    columns_hidden: tuple[str, ...] = ()
    cause: str = ""
    detail: str = ""
    first_used: int | None = None
    last_used: int | None = None


class _ReadQuestion(EqualChecks):
    """Question whose row was read as a check."""

    __slots__ = ("question",)

    def __init__(self, recorded: ReplayCheck, question: RowQuestion) -> None:
        super().__init__(recorded)
        self.question = question
        self.count = question.checks


class _Compared(NamedTuple):
    """Result about one question; None for the same decision."""

    question: _ReadQuestion
    result: ReplayedQuestion | None


class TableReplay:
    """Replay of questions at their recorded revision, or under a candidate. Used by one thread at a time."""

    def __init__(
        self, archive: PolicyArchive, rebuild: Callable[[bytes], Pdp], candidate: CandidatePolicies = AS_RECORDED
    ) -> None:
        self._repeats = candidate == AS_RECORDED
        self._candidate = HistoricalPdps(archive, rebuild, candidate)
        self._recorded = HistoricalPdps(archive, rebuild)
        self._reader = TableRowReader(at_revision=self._repeats)

    def decide(self, questions: Iterable[RowQuestion]) -> list[ReplayedQuestion]:
        """Return the result of each question with another decision, and one result for all others."""
        found, results = list[_ReadQuestion](), list[ReplayedQuestion]()
        for question in questions:
            try:
                found.append(_ReadQuestion(self._reader.check(question.row), question))
            except UnusableRow as error:
                results.append(_unread(question, error))
        same = same_checks = 0
        for compared in asyncio.run(self._compare(found)):
            if compared.result is None:
                same += 1
                same_checks += compared.question.count
            else:
                results.append(compared.result)
        if same:
            results.append(ReplayedQuestion("same", same_checks, same))
        return results

    async def _compare(self, found: Sequence[_ReadQuestion]) -> list[_Compared]:
        compared: list[_Compared] = []
        for place, equals in by_place(found):
            questions = [equal for equal in equals if isinstance(equal, _ReadQuestion)]
            try:
                compared += await self._compare_at(place, questions)
            except UndecidableCheck as error:
                compared += (_Compared(each, _undecidable(each, error)) for each in questions)
        return compared

    async def _compare_at(self, place: RecordedPlace, questions: Sequence[_ReadQuestion]) -> list[_Compared]:
        """Return the results about questions of one revision; raise UndecidableCheck."""
        audit = CapturingAudit()
        pdp = self._candidate.pdp(place.revision, audit, stale=place.stale)
        views = [] if self._repeats else [each for each in questions if each.first.masks is not None]
        checks = questions if self._repeats else [each for each in questions if each.first.masks is None]
        compared = [
            _Compared(each, _compare_check(each, after))
            for each, after in zip(checks, await decide_again(pdp, audit, checks), strict=True)
        ]
        return compared + [_Compared(each, self._compare_view(pdp, audit, place, each)) for each in views]

    def _compare_view(
        self, pdp: Pdp, audit: CapturingAudit, place: RecordedPlace, question: _ReadQuestion
    ) -> ReplayedQuestion | None:
        """Return the change from the view at the recorded revision: a record has reasons but no filters."""
        recorded, old_audit = question.first, CapturingAudit()
        try:
            old_pdp = self._recorded.pdp(place.revision, old_audit, stale=place.stale)
        except UndecidableCheck as error:
            return _undecidable(question, error)
        old, new = view_again(old_pdp, old_audit, recorded), view_again(pdp, audit, recorded)
        before, after = policy_view(old_pdp, recorded.check, old), policy_view(pdp, recorded.check, new)
        change = compare_views(recorded.masks or (), before, after)
        return _view_result(question, change, old.outcome, new.outcome) if change else None


def _compare_check(question: _ReadQuestion, after: RecordedOutcome) -> ReplayedQuestion | None:
    change = change_from_record(question, after)
    return _difference(question, change.kind, change.before, after) if change else None


def _view_result(
    question: _ReadQuestion, change: AccessChange, before: RecordedOutcome, after: RecordedOutcome
) -> ReplayedQuestion:
    return msgspec.structs.replace(
        _difference(question, change.kind, before, after),
        rows_before=change.rows_before,
        rows_after=change.rows_after,
        rows_seen=change.rows_seen,
        rows_hidden=change.rows_hidden,
        columns_seen=change.seen,
        columns_hidden=change.hidden,
    )


def _difference(
    question: _ReadQuestion, kind: ReplayKind, before: RecordedOutcome, after: RecordedOutcome
) -> ReplayedQuestion:
    return msgspec.structs.replace(
        _about(question.question, question.first),
        kind=kind,
        by_before=before.by,
        by_after=after.by,
        errors_before=before.errors or (),
        errors_after=after.errors or (),
    )


def _undecidable(question: _ReadQuestion, error: UndecidableCheck) -> ReplayedQuestion:
    about = _about(question.question, question.first)
    return msgspec.structs.replace(
        about, by_before=question.question.row.by or "", cause=error.cause, detail=error.place
    )


def _about(question: RowQuestion, recorded: ReplayCheck) -> ReplayedQuestion:
    """Return a result with the subject and the object of a question."""
    check = recorded.check
    subject, object = check_subject(check), check_object(check)
    return ReplayedQuestion(
        "undecidable",
        question.checks,
        id=question.id,
        event=question.row.event,
        principal=subject.principal,
        acting_role=subject.acting_role,
        action=subject.action,
        container=subject.container,
        resource=object.resource,
        destination=object.destination,
        delegated=check.question.delegated,
        first_used=question.first,
        last_used=question.last,
    )


def _unread(question: RowQuestion, error: UnusableRow) -> ReplayedQuestion:
    row = question.row
    return ReplayedQuestion(
        "undecidable",
        question.checks,
        id=question.id,
        event=row.event,
        principal=_principal(row.inputs),
        action=row.action or "",
        resource=row.resource or "",
        by_before=row.by or "",
        cause=error.cause,
        detail=error.detail,
        first_used=question.first,
        last_used=question.last,
    )


def _principal(inputs: str | None) -> str:
    """Return the principal of inputs that cannot be read as a whole; empty if there is none."""
    try:
        return _NAMED.decode(inputs or "{}").principal.id
    except msgspec.MsgspecError:
        return ""
