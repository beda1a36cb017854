"""Reading of one record: its entries to checks that can be decided again, with what was decided then.

Owns the values of a read audit folder: outcomes, filters, and the report of what gives no check.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import msgspec

from pdp.audit.records.record import LISTING
from pdp.audit.records.rows import DecisionRow, EntryError, WrittenResource, entry_rows
from pdp.audit.records.schema import (
    FILTER_EVENT,
    CheckEntry,
    EntryRest,
    Inputs,
    Record,
    RecordedPrincipal,
    check_target,
    more_inputs,
    read_view_security,
)
from pdp.errors import InvalidReference
from pdp.model.question import (
    NO_ARGUMENTS,
    Arguments,
    Check,
    Principal,
    QuerySession,
    Question,
    RequestContext,
    Resource,
    has_missing_argument,
)
from pdp.model.references import format_resource, parse_principal, parse_resource
from pdp.model.vocabulary import NAMING_ACTIONS

MAX_NAMED: Final = 20
"""Kinds of skips that are counted by name; all further kinds are counted together."""


class RecordedOutcome(msgspec.Struct, frozen=True, gc=False):
    """The decision in a record. `errors` is None if the record does not hold any."""

    allowed: bool
    by: str
    errors: tuple[str, ...] | None = ()


class ReplayCheck(msgspec.Struct, frozen=True, gc=False):
    """A check of one resource that can be decided again.

    `key` is the resource with all its inputs as text: equal keys are equal resources. `outcome` is None for a check
    that was never decided. `decision` (the record's id), `at` and `time` name the source, if that is a record.
    `revision` is the one that decided; `stale`: its facts were too old to permit anything. `masks` are the columns of
    a row view, None for a decision. `rate` is the share of such requests that got a record.
    """

    check: Check
    key: str
    outcome: RecordedOutcome | None = None
    decision: str = ""
    at: int = 0
    time: str = ""
    revision: str = ""
    stale: bool = False
    masks: tuple[str, ...] | None = None
    rate: float = 1.0


def view_outcome(allowed: bool, by: str, masks: Mapping[str, str | None]) -> RecordedOutcome:
    """Return the outcome of a row view: whether rows are shown, and the reasons of the filter and of each mask."""
    reasons = ", ".join(f"{column}: {reason or 'no mask'}" for column, reason in masks.items())
    return RecordedOutcome(allowed, f"{by} ({reasons})" if reasons else by)


class RecordFilter(msgspec.Struct, frozen=True):
    """A choice of records and checks; times as records write them, `since` inclusive, `until` exclusive.

    `listings` includes the checks behind listings, which are hypothetical and many. `at_revision`: the checks are
    decided again at their revision. Then row views are included, and listings over several revisions are not.
    """

    since: str = ""
    until: str = ""
    principal: str = ""
    listings: bool = False
    at_revision: bool = False


class ReadReport:
    """Counts of a reading: checks, and everything that gave no check, by kind with the first place of each kind."""

    def __init__(self) -> None:
        self.files = 0
        self.records = 0
        """Decision records, inside the filter or not."""
        self.checks = 0
        self.filtered = 0
        """Checks outside the filter."""
        self.listings = 0
        """Records of listings outside the filter."""
        self.row_filters = 0
        """Records of row views outside the filter."""
        self.sampled = self.left_out = 0
        """Records of sampled permits, and records that were left out before a record."""
        self.events = 0
        """Records of refusals, of management and of the service: they hold no decision."""
        self.rejected = 0
        """Positions without a check already when recorded, such as a malformed check."""
        self.torn: list[str] = []
        """Last lines that a crash left unfinished, as `file:line`."""
        self.skipped: Counter[str] = Counter()
        """Cause -> number of unusable lines and checks."""
        self.first: dict[str, str] = {}
        """Cause -> place of the first skip."""
        self.bundles: set[str] = set()
        """Digests of the bundles behind the decisions."""

    def skip(self, why: str, place: str, count: int = 1) -> None:
        """Count an unusable line or check."""
        if why not in self.skipped and len(self.skipped) >= MAX_NAMED:
            why = "other"
        self.skipped[why] += count
        self.first.setdefault(why, place)


MASKED: Final = "values are masked"
"""Why a check cannot be decided again: its record hides values that rules may read."""
UNASKABLE: Final = "check that cannot be asked now"
UNREADABLE: Final = "entry that cannot be read"
UNENCODABLE: Final = "a record that could not be written whole"
MIXED_LISTING: Final = "a listing over several revisions"
NO_CHECK: Final = "a request that was answered without a check"
"""Further causes."""


class MaskedValues(EntryError):
    """Masked values among the inputs of a check."""


_UNSPELLABLE: Final = re.compile(r"user(?::([a-z0-9-]+~))?")
"""Id of a user of LakeQL without a name, or with an empty name. No check can spell either id."""


def check_with(inputs: Inputs, question: type[Question] = Question) -> Check:
    """Return a check with inputs, without action and resource. The id of the query decides nothing and is left out.

    Raise MaskedValues or InvalidReference.
    """
    principal = _principal(inputs.principal)
    role = parse_principal(inputs.acting_role).name if inputs.acting_role is not None else None
    api = inputs.context.api
    context = RequestContext(api.name, api.version, inputs.context.actions, inputs.context.now)
    session = None if inputs.session is None else QuerySession(_user(inputs.session.user))
    more = {name: getattr(inputs, name) for name in more_inputs(type(inputs)) if name != "session"}
    return Check(question(principal, "", acting_role=role, context=context, session=session, **more), (), ())


def _user(recorded: RecordedPrincipal | None) -> Principal | None:
    return None if recorded is None else _principal(recorded)


def _principal(recorded: RecordedPrincipal) -> Principal:
    """Return a recorded principal; raise MaskedValues or InvalidReference."""
    if recorded.masked:
        raise MaskedValues("attributes are masked")
    unspellable = _UNSPELLABLE.fullmatch(recorded.id)
    name = Principal("user", unspellable[1] or "") if unspellable else parse_principal(recorded.id)
    attributes = bytes(recorded.attributes).decode()
    return Principal(
        name.type, name.name, recorded.roles, recorded.groups, attributes, recorded.member_of,
        unknown=recorded.unknown, unseen=recorded.unseen,
    )  # fmt: skip


def ask(check: Check, action: str, entry: CheckEntry | EntryRest, *, delegated: bool) -> Check:
    """Return a check with an action, still without a resource; raise InvalidReference for a load of no view."""
    security = read_view_security(action, entry.load, entry.change)
    nameless = check.question.nameless or (action in NAMING_ACTIONS and not entry.missing)
    return check.asking(action=action, delegated=delegated, view_security=security, nameless=nameless)


def ask_about(check: Check, written: WrittenResource, *, delegated: bool) -> tuple[Check, str]:
    """Return a check with a resource, and the key of the resource; raise EntryError or InvalidReference."""
    resource, key = _resource(written)
    check_target(check, resource)
    question = check.question
    if question.delegated != delegated:
        question = msgspec.structs.replace(question, delegated=delegated)
    if question.nameless and not has_missing_argument(resource.type, question.action, resource):
        question = msgspec.structs.replace(question, nameless=False)
    return msgspec.structs.replace(check, question=question, resources=(resource,), at=(0,)), key


def _resource(recorded: WrittenResource) -> tuple[Resource, str]:
    """Return a resource and its key."""
    if isinstance(recorded, str):
        return parse_resource(recorded), recorded
    if isinstance(recorded, Resource):
        return recorded, format_resource(recorded)
    if recorded.masked:
        raise MaskedValues("values are masked")
    bare = parse_resource(recorded.reference)
    resource = msgspec.structs.replace(
        bare,
        ref=recorded.ref or bare.ref,
        content_type=recorded.content_type,
        ref_type=recorded.ref_type,
        id=recorded.id,
        properties=recorded.properties,
        arguments=_arguments(recorded.arguments),
    )
    return resource, msgspec.json.encode(recorded, order="sorted").decode()


def _arguments(recorded: Mapping[str, Any]) -> Arguments:
    if not recorded:
        return NO_ARGUMENTS
    name, destination = recorded.get("name"), recorded.get("destination")
    if not isinstance(name, str | None) or not isinstance(destination, str | None):
        raise EntryError("`name` or `destination` is not a text")
    return Arguments(name, parse_resource(destination) if destination else None, recorded)


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

    def checks(self) -> Iterator[ReplayCheck]:
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

    def _entry(self, entry: CheckEntry, without: Collection[int], delegated: Collection[int]) -> Iterator[ReplayCheck]:
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
            question = shared.question
            part_delegated = not question.view_security and item.at in delegated
            recorded = self._recorded(shared, item, question.delegated or part_delegated)
            if recorded:
                self._report.checks += 1
                yield recorded

    def _recorded(self, shared: Check, item: DecisionRow, delegated: bool) -> ReplayCheck | None:
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
        return ReplayCheck(check, key, outcome, *place, masks, record.sampled)

    def _check(self, entry: CheckEntry) -> Check:
        """Return a check with everything that the resources of an entry share; raise EntryError without inputs.

        The id of the query decides nothing and is left out.
        """
        check = self._checks.get(entry.inputs)
        if check is None:
            if not 0 <= entry.inputs < len(self._inputs):
                raise EntryError(f"there are no inputs {entry.inputs}")
            check = self._checks[entry.inputs] = check_with(self._inputs[entry.inputs])
        return ask(check, entry.action, entry, delegated=bool(entry.delegated))

    def _matches(self, check: Check) -> bool:
        filter, time = self._filter, self._record.time
        if filter.principal and check.question.principal.id != filter.principal:
            return False
        return (not filter.since or time >= filter.since) and (not filter.until or time < filter.until)
