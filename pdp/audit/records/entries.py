"""JSON text of the entries of a record: concrete checks, rejected positions and requests.

An entry comes in two forms, which `rows` reads alike. Below `COLUMNS_FROM` resources, each resource is a row:

    {"action", "as", ..., "at": 7, "resource": "table:w/a/b", "allowed": true, "by": ["cel:r"], "errors": []}

From `COLUMNS_FROM` on, all resources of a concrete check are one entry of columns of equal length:

    {"action", "as", ..., "at": 0, "resources": {..., "path": ["n"], "names": ["a", "b", "c", "d"]}, "allowed": "1101",
     "reasons": ["cel:r", "default_deny"], "by": [0, 0, 1, 0], "errors": {"2": ["rule"]}}

There `resources` of several containers have `parents` and, one index per resource, `parentAt` instead of `path`.
Later entries with the same paths have `"like": n` instead: the paths of the n-th column of the record with `names`.
`allowed` has one digit per resource, `by` indexes `reasons`, `errors` is by row and holds denials only, and `at` is the
first position where the positions are consecutive, otherwise a list. `cached` is true or false for all resources, or
has one digit per resource.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import UNSET

from pdp.audit.records.inputs import (
    FLAGS,
    InputsKey,
    has_inputs,
    inputs_key,
    is_bare,
    json_text,
    more_than_reference,
    path_text,
    quote,
    quote_all,
    reference_text,
)
from pdp.audit.records.record import DecidedCheck, DecisionRecord, LeafDecision
from pdp.audit.records.schema import (
    RecordedChainView,
    RecordedLoad,
    RecordedRestrictions,
    RecordedRoles,
    RecordedViewCommit,
)
from pdp.engines.engine import ALLOWED_BY_EFFECT, PERMIT, EngineQuestion
from pdp.model.answer import DEFAULT_DENY, Answer, Reason, Rejection
from pdp.model.arrays import PathArray
from pdp.model.question import ChainView, Check, Load, Principal, Question, Resource, has_missing_argument
from pdp.model.redaction import Redactor
from pdp.model.references import format_resource
from pdp.model.vocabulary import NAMING_ACTIONS

COLUMNS_FROM: Final = 32
"""Resources of one concrete check from which its entry is in columns."""
_DIGITS: Final = b"01".ljust(256)
"""Translation of 0 and 1 to their digits."""


_CACHED: Final = (',"cached":false', ',"cached":true')


class _Columns(msgspec.Struct, frozen=True, gc=False):
    """Resources and their decisions: `allowed[i]` is 0 or 1; `type` and `ref` are those that were decided on."""

    resources: Sequence[Resource]
    allowed: bytes
    by: Sequence[Reason | None]
    errors: Mapping[int, tuple[str, ...]]
    type: str
    ref: str | None

    @classmethod
    def of_leaf(cls, leaf: LeafDecision) -> _Columns:
        verdicts, group = leaf.verdicts, leaf.group
        allowed = verdicts.effects.translate(ALLOWED_BY_EFFECT)
        return cls(leaf.resources, allowed, verdicts.by, verdicts.errors, group.type, group.ref)

    @classmethod
    def of_request(cls, decided: DecidedCheck, answer: Answer) -> _Columns:
        check, outcome = decided.check, decided.outcome
        first = check.resources[0]
        if outcome is not None:
            allowed = outcome.effects.translate(ALLOWED_BY_EFFECT)
            return cls(check.resources, allowed, outcome.by, outcome.errors, first.type, first.ref)
        at, allowed, by, errors = check.at, answer.allowed, answer.by, answer.errors
        if len(at) != len(allowed):
            rows = itemgetter(*at, at[0])  # one position more: of a single position, the result would be no tuple
            allowed, by = bytes(rows(allowed)[:-1]), rows(by)[:-1]
        if errors:
            errors = {row: errors[place] for row, place in enumerate(at) if place in errors}
        return cls(check.resources, allowed, by, errors, first.type, first.ref)


_Entry: TypeAlias = tuple[int, str]
"""First position of an entry in the answer, and the JSON of the entry."""


class _ReasonNumbers(dict[Reason | None, int]):
    """Numbers of reasons: a new reason gets the next number."""

    def __missing__(self, reason: Reason | None) -> int:
        number = self[reason] = len(self)
        return number


class EntryEncoder:
    """Encoder of the entries of one record.

    `numbers` gives each distinct inputs their place in the record; empty if all checks share the first inputs.
    """

    __slots__ = (
        "_as",
        "_at",
        "_columns_from",
        "_masker",
        "_numbers",
        "_paths",
        "_principal",
        "_reasons",
        "_record",
        "_resources",
    )

    def __init__(
        self, record: DecisionRecord, numbers: Mapping[InputsKey, int], columns_from: int, masker: Redactor
    ) -> None:
        self._record = record
        self._numbers = numbers
        self._columns_from = columns_from
        self._masker = masker
        # The concrete checks of one split check often share their resources and columns, which can have 100,000 rows.
        # So the texts are kept by identity, never by content. Each entry holds its object: no other gets the same id.
        self._reasons: dict[int, tuple[Sequence[Reason | None], str]] = {}
        self._at: dict[int, tuple[Sequence[int], str]] = {}
        self._paths: dict[tuple[int, int, int], tuple[PathArray, str]] = {}
        self._resources: dict[int, tuple[Resource, str, str]] = {}
        self._principal: Principal | None = None
        self._as = ""  # JSON of the id of `_principal`, the newest subject

    def checks(self) -> str:
        """Return the entries of all concrete checks, then those of rejected positions."""
        entries: list[_Entry] = []
        columns = False
        for decided in self._record.checks:
            number = self._number(decided.check)
            for leaf in decided.concrete:
                if len(leaf.resources) < self._columns_from:
                    self._put_leaf(entries, leaf, number)
                else:
                    columns = True
                    group = leaf.group
                    shared = self._shared(group.action, group.principal, group.delegated, number)
                    shared += roles_text(group) + missing_text(group.question, group.type, leaf.resources)
                    shared += self._cached_column(leaf.at)
                    entries.append((leaf.at[0], self._columns(shared, leaf.at, _Columns.of_leaf(leaf))))
        if self._record.batch.rejected:
            entries += self._rejected_rows()
        if len(entries) == 1:
            return entries[0][1]
        # columns hold many positions, so that only rows can be sorted by position; readers sort both forms
        if not columns:
            entries.sort(key=itemgetter(0))
        return ",".join([text for _, text in entries])

    def requests(self) -> str:
        """Return the entries of the checks that the plan split, as the caller sent them, with the folded outcome."""
        entries: list[_Entry] = []
        for decided in self._record.checks:
            if not decided.plain:
                self._put_request(entries, decided)
        return ",".join([text for _, text in entries])

    def _rejected_rows(self) -> Iterator[_Entry]:
        """Yield the rows of rejected positions, with what was asked there if that was readable."""
        asked = dict(self._refused())
        for at, rejected in self._record.batch.rejected.items():
            yield at, _rejected_row(at, rejected, asked.get(at, ""))

    def _refused(self) -> Iterator[_Entry]:
        """Yield the fields of what was asked at rejected positions. A comma follows each field."""
        for check in self._record.batch.refused:
            question, resources = check.question, check.resources
            shared = f'"action":{quote(question.action)},"delegated":{FLAGS[question.delegated]}'
            if has_inputs(check):
                number = self._number(check)
                shared = self._shared(question.action, question.principal, question.delegated, number)
            for row, at in enumerate(check.at):
                if not resources:
                    yield at, f"{shared},"
                    continue
                resource = resources[row]
                reference = self._resource(resource, resource.type, resource.ref)
                yield at, f'{shared},"resource":{reference},'

    def _put_leaf(self, entries: list[_Entry], leaf: LeafDecision, number: int) -> None:
        """Add the rows of a concrete check."""
        group, verdicts = leaf.group, leaf.verdicts
        effects, by, errors = verdicts.effects, verdicts.by, verdicts.errors
        shared = self._shared(group.action, group.principal, group.delegated, number) + roles_text(group)
        for row, resource in enumerate(leaf.resources):
            at = leaf.at[row]
            outcome = outcome_text(effects[row] == PERMIT, by[row], errors.get(row, ()) if errors else ())
            reference = self._resource(resource, group.type, group.ref)
            missing = missing_text(group.question, group.type, (resource,))
            text = f'{{{shared}{missing}{self._cached(at)},"at":{at},"resource":{reference},{outcome}}}'
            entries.append((at, text))

    def _put_request(self, entries: list[_Entry], decided: DecidedCheck) -> None:
        """Add the rows or the columns of a check of the request."""
        answer, check = self._record.answer, decided.check
        resources = check.resources
        allowed, by, errors = answer.allowed, answer.by, answer.errors
        shared = self._shared(
            check.question.action, check.question.principal, check.question.delegated, self._number(check)
        )
        if check.question.view_security:
            shared = f"{shared},{json_text(view_security(decided))[1:-1]}"
        if len(resources) >= self._columns_from:
            shared += missing_text(check.question, resources[0].type, resources) + self._cached_column(check.at)
            entries.append((check.at[0], self._columns(shared, check.at, _Columns.of_request(decided, answer))))
            return
        type, ref = resources[0].type, resources[0].ref
        for row, resource in enumerate(resources):
            at = check.at[row]
            outcome = outcome_text(allowed[at], by[at], errors.get(at, ()) if errors else ())
            reference = self._resource(resource, type, ref)
            missing = missing_text(check.question, type, (resource,))
            text = f'{{{shared}{missing}{self._cached(at)},"at":{at},"resource":{reference},{outcome}}}'
            entries.append((at, text))

    def _number(self, check: Check) -> int:
        return self._numbers[inputs_key(check)] if self._numbers else 0

    def _shared(self, action: str, principal: Principal, delegated: bool, number: int) -> str:
        """Return the fields that all rows of a concrete check share; without a number, the first inputs hold."""
        if principal is not self._principal:
            self._principal, self._as = principal, quote(principal.id)
        shared = question_text(action, self._as, delegated=delegated)
        return f'{shared},"inputs":{number}' if number else shared

    def _cached(self, at: int) -> str:
        """Return the field that tells whether a position rests on a cached verdict."""
        cached = self._record.answer.cached
        return _CACHED[bool(cached and cached[at])]

    def _cached_column(self, at: Sequence[int]) -> str:
        """Return the same for many positions: one value if all are alike, otherwise a digit for each."""
        cached = self._record.answer.cached
        digits = bytes([cached[each] for each in at]) if cached else b""
        if 0 in digits and 1 in digits:
            return f',"cached":"{digits.translate(_DIGITS).decode()}"'
        return _CACHED[1 in digits]

    def _resource(self, resource: Resource, type: str, ref: str | None) -> str:
        """Return a resource: its reference, or an object if more decides.

        `type` and `ref` replace those of the resource: a plan may decide on others than the caller named.
        """
        if is_bare(resource):
            return reference_text(resource, type, ref, path_text(resource))
        kept = self._resources.get(id(resource))
        if kept is None:
            kept = self._resources[id(resource)] = (
                resource,
                path_text(resource),
                more_than_reference(resource, self._masker),
            )
        _, path, more = kept
        return f'{{"reference":{reference_text(resource, type, ref, path)}{more}}}'

    def _columns(self, shared: str, at: Sequence[int], outcome: _Columns) -> str:
        denied = {str(row): errors for row, errors in outcome.errors.items() if not outcome.allowed[row]}
        return (
            f'{{{shared},"at":{self._positions(at)},'
            f'"resources":{self._resource_column(outcome)},"allowed":"{outcome.allowed.translate(_DIGITS).decode()}",'
            f'{self._reason_column(outcome.by)},"errors":{json_text(denied)}}}'
        )

    def _positions(self, at: Sequence[int]) -> str:
        """Return the first of consecutive positions, otherwise all positions."""
        if isinstance(at, range):
            return str(at.start)
        kept = self._at.get(id(at))
        if kept is None:
            kept = self._at[id(at)] = (at, json_text(list(at)))
        return kept[1]

    def _resource_column(self, outcome: _Columns) -> str:
        """Return the column of resources: containers and names of a column of paths, otherwise each resource."""
        column = outcome.resources
        if type(column) is not PathArray:
            return f"[{','.join([self._resource(resource, outcome.type, outcome.ref) for resource in column])}]"
        key = (id(column.names), id(column.parents), id(column.parent_at))
        kept = self._paths.get(key)
        if kept is None:
            paths = _paths_text(column)
            self._paths[key] = (column, f'"like":{len(self._paths)}')
        else:
            paths = kept[1]
        ref = column.ref or outcome.ref
        return (
            f'{{"type":{quote(outcome.type)},"warehouse":{quote(column.warehouse)},'
            f'"ref":{"null" if ref is None else quote(ref)},{paths}}}'
        )

    def _reason_column(self, by: Sequence[Reason | None]) -> str:
        """Return `reasons`, the distinct ones, and `by`, an index into them for each row."""
        kept = self._reasons.get(id(by))
        if kept is None:
            numbers = _ReasonNumbers()
            column = list(map(numbers.__getitem__, by))
            reasons = quote_all(reason or DEFAULT_DENY for reason in numbers)
            kept = self._reasons[id(by)] = (by, f'"reasons":{reasons},"by":{json_text(column)}')
        return kept[1]


def view_security(decided: DecidedCheck) -> dict[str, Any]:
    """Return the `load` or `change` field of a check; empty for every other check."""
    check, given = decided.check, decided.restrictions
    about = check.question.view_security
    if not isinstance(about, Load):
        return {"change": RecordedViewCommit(about.touched)} if about else {}
    load = RecordedLoad(
        tuple([_chain_view(view, check.resources[0]) for view in about.views]),
        about.entries,
        about.ignored,
        about.enforced or UNSET,
        about.owner_writes or UNSET,
        about.columns or UNSET,
        RecordedRestrictions(given.by, dict(given.masks)) if given else UNSET,
    )
    return {"load": load}


def _chain_view(view: ChainView, target: Resource) -> RecordedChainView:
    name = format_resource(view.resource(target))
    return RecordedChainView(name, view.exists, f"user:{view.owner}" if view.owner else "", view.engine, view.property)


def missing_text(question: Question, type: str, resources: Sequence[Resource]) -> str:
    """Return the field of an entry without the name of a new object; empty for all other entries."""
    if question.action not in NAMING_ACTIONS or question.nameless:
        return ""
    return ',"missing":true' if any(has_missing_argument(type, question.action, each) for each in resources) else ""


def question_text(action: str, subject: str, *, delegated: bool) -> str:
    """Return the fields that all rows of a concrete check share. `subject` is the JSON of the principal's id."""
    return f'"action":{quote(action)},"as":{subject},"delegated":{FLAGS[delegated]}'


def roles_text(group: EngineQuestion) -> str:
    """Return the roles of the subject by other evidence, behind a comma; empty without such roles."""
    stored, person = group.stored_roles, group.person_roles
    if stored == () and not person:
        return ""
    return f',"otherRoles":{json_text(RecordedRoles(stored or (), person, stored is None))}'


def shared_text(action: str, subject: str, *, delegated: bool, roles: str = "") -> str:
    """Return the fields of rows that rest on no cached verdict. `roles` is the result of `roles_text`."""
    return question_text(action, subject, delegated=delegated) + roles + _CACHED[False]


def outcome_text(allowed: int, reason: Reason | None, errors: Sequence[str]) -> str:
    """Return the fields of a decision in a row. A permit shows no errors."""
    shown = "[]" if allowed or not errors else quote_all(errors)
    return f'"allowed":{FLAGS[allowed]},"by":[{quote(reason or DEFAULT_DENY)}],"errors":{shown}'


def _paths_text(column: PathArray) -> str:
    names = json_text(column.names)
    if len(column.parents) == 1:
        return f'"path":{quote_all(column.parents[0])},"names":{names}'
    return f'"parents":{json_text(column.parents)},"parentAt":{json_text(list(column.parent_at))},"names":{names}'


def _rejected_row(at: int, rejected: Rejection, asked: str) -> str:
    return (
        f'{{{asked}"at":{at},"allowed":false,"by":[{quote(rejected.by)}],"errors":[],"cached":false,'
        f'"error":{{"code":{quote(rejected.code)},"message":{quote(rejected.message)}}}}}'
    )
