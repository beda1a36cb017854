"""Reading of one record: entries to checks that can be decided again."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from pdp.audit.entry_rows import EntryError, EntryRow, entry_rows
from pdp.audit.record import LISTING
from pdp.audit.recorded import ReadReport, RecordedCheck, RecordedOutcome, RecordFilter, view_outcome
from pdp.audit.recorded_questions import (
    MASKED,
    MIXED_LISTING,
    NO_CHECK,
    UNASKABLE,
    UNENCODABLE,
    UNREADABLE,
    MaskedValues,
    ask,
    ask_about,
    check_with,
)
from pdp.audit.schema import FILTER_EVENT, Record, RecordEntry
from pdp.errors import InvalidReference
from pdp.model.question import Check

MAX_BUNDLES: Final = 1000
"""Digests of bundles that a report names."""


class RecordReader:
    """Reader of one record; `place` is `file:line`."""

    def __init__(self, record: Record, place: str, report: ReadReport, filter: RecordFilter) -> None:
        self._record = record
        self._place = place
        self._report = report
        self._filter = filter
        self._inputs = [record.inputs, *record.other_inputs] if record.inputs else []
        self._checks: dict[int, Check] = {}
        """Number of inputs -> a check with these inputs."""

    def checks(self) -> Iterator[RecordedCheck]:
        """Yield the checks of the caller: the `requests`, and the `checks` at all other positions."""
        record, report = self._record, self._report
        report.sampled += record.sampled < 1
        report.left_out += record.left_out
        if record.surface == LISTING and not self._filter.listings:
            report.listings += 1
            return
        if reason := self._undecidable():
            report.skip(reason, self._place)
            return
        rows = [entry for entry in record.checks if entry.error is None]
        report.rejected += len(record.checks) - len(rows)
        if len(report.bundles) < MAX_BUNDLES:
            report.bundles.add(record.revision.rpartition(".")[2])
        requested = {at for request in record.requests for at in request.positions}
        delegated = {at for row in rows if row.delegated and requested for at in row.positions}
        for request in record.requests:
            yield from self._entry(request, (), delegated)
        for row in rows:
            yield from self._entry(row, requested, ())

    def _undecidable(self) -> str:
        """Return the reason why the record has no check that can be decided again; empty for all other records."""
        record = self._record
        if record.unencodable:
            return UNENCODABLE
        if record.listing and record.listing.since and self._filter.at_revision:
            return MIXED_LISTING
        has_checks = record.checks or record.requests or not record.inputs
        return "" if has_checks else NO_CHECK

    def _entry(
        self, entry: RecordEntry, without: Collection[int], delegated: Collection[int]
    ) -> Iterator[RecordedCheck]:
        """Yield the checks of an entry but for the positions `without`.

        A request does not say whether its concrete checks were delegated: `delegated` has the positions of those.
        """
        try:
            items = [item for item in entry_rows(entry) if item.at not in without]
            shared = self._check(entry) if items else None
        except MaskedValues as error:
            self._report.skip(MASKED, f"{self._place}: {error}", len(items))
            return
        except (EntryError, InvalidReference) as error:
            self._report.skip(UNREADABLE, f"{self._place}: {error}")
            return
        if shared is None:
            return
        if not self._matches(shared):
            self._report.filtered += len(items)
            return
        for item in items:
            # a view chain delegates single concrete checks of a load, but not the load itself
            part_delegated = not shared.view_security and item.at in delegated
            recorded = self._recorded(shared, item, shared.delegated or part_delegated)
            if recorded:
                self._report.checks += 1
                yield recorded

    def _recorded(self, shared: Check, item: EntryRow, delegated: bool) -> RecordedCheck | None:
        try:
            check, key = ask_about(shared, item.resource, delegated=delegated)
        except (EntryError, InvalidReference) as error:
            masked = isinstance(error, MaskedValues)
            self._report.skip(MASKED if masked else UNASKABLE, f"{self._place}: {error}")
            return None
        record, outcome, masks = self._record, RecordedOutcome(item.allowed, item.by, item.errors), None
        if record.event == FILTER_EVENT:
            outcome, masks = view_outcome(outcome.allowed, outcome.by, record.masks), tuple(record.masks)
        place = record.id, item.at, record.time, record.revision, record.stale
        return RecordedCheck(check, key, outcome, *place, masks, record.sampled)

    def _check(self, entry: RecordEntry) -> Check:
        """Return a check with everything that the resources of an entry share; raise EntryError without inputs.

        The id of the query decides nothing and is left out.
        """
        check = self._checks.get(entry.inputs)
        if check is None:
            if not 0 <= entry.inputs < len(self._inputs):
                raise EntryError(f"there are no inputs {entry.inputs}")
            check = self._checks[entry.inputs] = check_with(self._inputs[entry.inputs])
        return ask(check, entry.action, entry.load, entry.change, delegated=bool(entry.delegated))

    def _matches(self, check: Check) -> bool:
        filter, time = self._filter, self._record.time
        if filter.principal and check.principal.id != filter.principal:
            return False
        return (not filter.since or time >= filter.since) and (not filter.until or time < filter.until)
