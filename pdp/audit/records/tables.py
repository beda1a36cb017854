"""Rows of tables made of records, one a concrete check, for the export and for later replay. Must not know Spark.

Most inputs of a decision stand in columns. `inputs_text` and `entry_text` are the rest. `asked_text` holds the checks
of the caller that a plan split: replay decides these as a whole.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from pdp.audit.records.recorded import (
    MASKED,
    MIXED_LISTING,
    NO_CHECK,
    UNASKABLE,
    UNENCODABLE,
    UNREADABLE,
    MaskedValues,
    RecordedOutcome,
    ReplayCheck,
    ask,
    ask_about,
    check_with,
    view_outcome,
)
from pdp.audit.records.rows import DecisionRow, EntryError, entry_rows
from pdp.audit.records.schema import (
    FILTER_EVENT,
    IN_ENTRIES,
    CheckEntry,
    EntryRest,
    FullResource,
    Inputs,
    Record,
)
from pdp.audit.selection import RecordItem, RecordSelection, inputs_of, record_items, resource_text
from pdp.errors import InvalidReference
from pdp.model.bounded_cache import BoundedCache
from pdp.model.question import Check, Question

ColumnType: TypeAlias = Literal["text", "texts", "flag", "number", "ratio", "time", "json"]
_OWN_COLUMNS: Final[Mapping[str, ColumnType]] = {
    "event": "text",
    "id": "text",
    "instance": "text",
    "seq": "number",
    "time": "time",
    "latency_us": "number",
    "surface": "text",
    "caller": "text",
    "request_id": "text",
    "trace_id": "text",
    "span_id": "text",
    "query_id": "text",
    "query_user": "text",
    "revision": "text",
    "stale": "flag",
    "sampled": "ratio",
    "principal": "text",
    "roles": "texts",
    "groups": "texts",
    "attributes": "json",
    "acting_role": "text",
    "at": "number",
    "asked": "flag",
    "as": "text",
    "action": "text",
    "resource": "text",
    "resource_details": "json",
    "delegated": "flag",
    "cached": "flag",
    "allowed": "flag",
    "by": "text",
    "errors": "texts",
    "invalid": "text",
    "answer": "flag",
    "masks": "json",
}
_WITHOUT_COLUMN: Final = {"context", "inspected", "rules_follow", "session", "nameless", "unfiltered"}
"""Inputs without a column of their own: the column `inputs` of the lake has them."""
_PLAIN_TYPES: Final[Mapping[Any, ColumnType]] = {str: "text", bool: "flag", int: "number", tuple[str, ...]: "texts"}


def question_columns(question: type[Question]) -> dict[str, ColumnType]:
    """Return the columns of those inputs of a question that no other column shows, such as a new field."""
    shown = _WITHOUT_COLUMN | _OWN_COLUMNS.keys()
    return {
        field.name: _PLAIN_TYPES.get(field.type, "json")
        for field in msgspec.structs.fields(question)
        if field.name not in shown and field.name not in IN_ENTRIES
    }


MORE_COLUMNS: Final = question_columns(Question)
COLUMNS: Final[Mapping[str, ColumnType]] = {**_OWN_COLUMNS, **MORE_COLUMNS}
"""Column -> the type of its values. `docs/audit.md` says what each holds."""
ExportRow: TypeAlias = dict[str, Any]
"""Column -> value. A value that does not apply is None."""


def check_rows(record: Record, selection: RecordSelection) -> Iterator[ExportRow]:
    """Yield the chosen rows of a record: its concrete checks, and what the caller asked where there are none.

    A record that could not be encoded has a row without a check.
    """
    shared = _shared(record)
    if record.unencodable:
        yield {**dict.fromkeys(COLUMNS), **shared, "invalid": record.unencodable}
        return
    items = record_items(record)
    answers = {item.row.at: item.row.allowed for item in reversed(items)}  # what was asked comes first, and wins
    for item in concrete_items(record, items):
        if not selection.by_item or selection.takes_item(record, item):
            yield {**shared, **_inputs(inputs_of(record, item.entry)), **_item(item), "answer": answers[item.row.at]}


def concrete_items(record: Record, items: Sequence[RecordItem]) -> list[RecordItem]:
    """Return the concrete checks among the items of a record, and what the caller asked where there are none."""
    requests = {id(entry) for entry in record.requests}
    concrete = {item.row.at for item in items if id(item.entry) not in requests}
    return [item for item in items if id(item.entry) not in requests or item.row.at not in concrete]


def _shared(record: Record) -> ExportRow:
    return {
        "event": record.event,
        "id": record.id,
        "instance": record.instance,
        "seq": record.seq,
        "time": _time(record.time),
        "latency_us": record.latency_us,
        "surface": record.surface,
        "caller": record.caller,
        "request_id": record.request_id or None,
        "trace_id": record.trace_id or None,
        "span_id": record.span_id or None,
        "revision": record.revision,
        "stale": record.stale,
        "sampled": record.sampled,
        "masks": record.masks or None,
    }


def _inputs(inputs: Inputs | None) -> ExportRow:
    if inputs is None:
        names = ("query_id", "query_user", "principal", "roles", "groups", "attributes", "acting_role", *MORE_COLUMNS)
        return dict.fromkeys(names)
    principal, context = inputs.principal, inputs.context
    return {
        "query_id": context.query_id or None,
        "query_user": context.query_user or None,
        "principal": principal.id,
        "roles": principal.roles,
        "groups": principal.groups,
        "attributes": None if bytes(principal.attributes) == b"{}" else principal.attributes,
        "acting_role": inputs.acting_role,
        **{name: getattr(inputs, name) for name in MORE_COLUMNS},
    }


def _item(item: RecordItem) -> ExportRow:
    entry, row = item.entry, item.row
    return {
        "at": row.at,
        "asked": item.asked,
        "as": entry.subject or None,
        "action": entry.action or None,
        "resource": item.resource or None,
        "resource_details": row.resource if isinstance(row.resource, FullResource) else None,
        "delegated": entry.delegated,
        "cached": row.cached,
        "allowed": row.allowed,
        "by": row.by,
        "errors": row.errors or (),
        "invalid": str((entry.error or {}).get("code", "")) or None,
    }


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def json_value(value: Any) -> str:
    """Return a value of a column as JSON."""
    return msgspec.json.encode(value).decode()


_KEPT: Final = 5_000
_ENCODER: Final = msgspec.json.Encoder(order="deterministic")
_INPUTS: Final = msgspec.json.Decoder(Inputs)
_DETAILS: Final = msgspec.json.Decoder(FullResource)
_MASKS: Final = msgspec.json.Decoder(dict[str, str | None])


_REST: Final = msgspec.json.Decoder(EntryRest)


class SplitCheck(msgspec.Struct, frozen=True, omit_defaults=True):
    """Resources of one check of the caller with the same decision: resource `i` has the position `at[i]`.

    `before` counts the resources of all groups before this one. All other fields have the names of the columns of
    concrete checks.
    """

    principal: str
    inputs: str
    action: str
    allowed: bool
    by: str
    at: Sequence[int]
    resources: Sequence[str]
    before: int = 0
    resource_details: str | None = None
    delegated: bool = False
    entry: str | None = None
    errors: tuple[str, ...] | None = None


class SplitChecks(msgspec.Struct, frozen=True, omit_defaults=True):
    """Checks of the caller behind the concrete checks of a record.

    `undecidable` is the reason why replay finds no check in the record.
    """

    groups: tuple[SplitCheck, ...] = ()
    undecidable: str = ""


class _Decision(NamedTuple):
    """Decision about resources of one check, and what else tells their groups apart."""

    allowed: bool
    by: str
    errors: tuple[str, ...] | None
    resource_details: str | None
    delegated: bool


class UnusableRow(Exception):
    """An undecidable row. `cause` is one of few, `detail` is exact."""

    def __init__(self, cause: str, detail: str) -> None:
        super().__init__(f"{cause}: {detail}")
        self.cause = cause
        self.detail = detail


# --- written ------------------------------------------------------------------------------------------------------


def inputs_text(inputs: Inputs) -> str:
    """Return inputs as JSON, without the query: the query decides nothing, and equal inputs have equal texts."""
    context = msgspec.structs.replace(inputs.context, query_id="", query_user="")
    return _ENCODER.encode(msgspec.structs.replace(inputs, context=context)).decode()


def entry_text(record: Record, entry: CheckEntry) -> str | None:
    """Return the part of an entry without a column, as JSON; None for most entries."""
    own = {name: getattr(entry, name) for name in EntryRest.__struct_fields__ if name != "listing_since"}
    rest = EntryRest(**own, listing_since=record.listing.since if record.listing else "")
    return None if rest == EntryRest() else _ENCODER.encode(rest).decode()


def asked_text(record: Record) -> str | None:
    """Return the split checks of the caller, as JSON of SplitChecks; None for most records."""
    asked = SplitChecks(tuple(_asked_groups(record)), _undecidable(record))
    return None if asked == SplitChecks() else _ENCODER.encode(asked).decode()


def _undecidable(record: Record) -> str:
    if record.unencodable:
        return UNENCODABLE
    return "" if record.checks or record.requests or not record.inputs else NO_CHECK


def _asked_groups(record: Record) -> Iterator[SplitCheck]:
    """Yield the checks of the caller at positions with concrete checks. All others are rows of the table."""
    if not record.requests:
        return
    concrete = {at for entry in record.checks for at in entry.positions}
    delegated = {at for entry in record.checks if entry.delegated for at in entry.positions}
    before = 0
    for entry in record.requests:
        if (inputs := inputs_of(record, entry)) is not None:
            # a view chain delegates single concrete checks of a load, but not the load itself
            parts = frozenset[int]() if entry.load or entry.change else delegated
            rest = entry_text(record, entry)
            shared = inputs.principal.id, inputs_text(inputs), entry.action
            for same, ats, resources in _same_decisions(entry, concrete, parts):
                yield SplitCheck(*shared, at=ats, resources=resources, before=before, entry=rest, **same._asdict())
                before += len(ats)


def _same_decisions(
    entry: CheckEntry, concrete: Container[int], delegated: Container[int]
) -> Iterator[tuple[_Decision, list[int], list[str]]]:
    """Yield each decision of an entry with the concrete positions and the resources that have the decision."""
    found: dict[_Decision, tuple[list[int], list[str]]] = {}
    for row in _readable(entry):
        if row.at in concrete:
            details = _ENCODER.encode(row.resource).decode() if isinstance(row.resource, FullResource) else None
            key = _Decision(row.allowed, row.by, row.errors, details, bool(entry.delegated) or row.at in delegated)
            ats, resources = found.setdefault(key, ([], []))
            ats.append(row.at)
            resources.append(resource_text(row.resource))
    for key, columns in found.items():
        yield key, *columns


def _readable(entry: CheckEntry) -> Iterator[DecisionRow]:
    try:
        yield from entry_rows(entry)
    except EntryError:
        return


# --- read ---------------------------------------------------------------------------------------------------------


class TableRow(msgspec.Struct, frozen=True):
    """Columns with inputs of a decision, the recorded decision, and the first record of such rows."""

    event: str
    revision: str
    stale: bool
    inputs: str | None
    action: str | None
    resource: str | None
    resource_details: str | None
    delegated: bool | None
    entry: str | None
    masks: str | None
    allowed: bool
    by: str | None
    errors: tuple[str, ...] | None
    time: str = ""
    decision: str = ""
    at: int = 0


class TableRowReader:
    """Reader of rows. Most rows share their inputs and actions, so the reader keeps checks without resources."""

    def __init__(self, *, at_revision: bool) -> None:
        self._at_revision = at_revision
        self._checks: BoundedCache[tuple[str, str, bool, str | None], Check] = BoundedCache(_KEPT)

    def check(self, row: TableRow) -> ReplayCheck:
        """Return the check of a row; raise UnusableRow."""
        try:
            shared = self._shared(row)
            written = _DETAILS.decode(row.resource_details) if row.resource_details else row.resource or ""
        except MaskedValues as error:
            raise UnusableRow(MASKED, str(error)) from None
        except (InvalidReference, msgspec.MsgspecError) as error:
            raise UnusableRow(UNREADABLE, str(error)) from None
        try:
            check, key = ask_about(shared, written, delegated=bool(row.delegated))
        except MaskedValues as error:
            raise UnusableRow(MASKED, str(error)) from None
        except (EntryError, InvalidReference) as error:
            raise UnusableRow(UNASKABLE, str(error)) from None
        outcome, masks = RecordedOutcome(row.allowed, row.by or "", row.errors), None
        if row.event == FILTER_EVENT:
            reasons = _masks(row)
            outcome, masks = view_outcome(outcome.allowed, outcome.by, reasons), tuple(reasons)
        place = row.decision, row.at, row.time, row.revision, row.stale
        return ReplayCheck(check, key, outcome, *place, masks)

    def _shared(self, row: TableRow) -> Check:
        """Return the check of a row without its resource."""
        if row.inputs is None:
            raise UnusableRow(UNREADABLE, "a row without inputs")
        key = row.inputs, row.action or "", bool(row.delegated), row.entry
        check = self._checks.get(key)
        if check is None:
            rest = _REST.decode(row.entry) if row.entry else EntryRest()
            if rest.listing_since and self._at_revision:
                raise UnusableRow(MIXED_LISTING, f"from {rest.listing_since}")
            inputs = check_with(_INPUTS.decode(row.inputs))
            check = self._checks.keep(key, ask(inputs, key[1], rest, delegated=key[2]))
        return check


def _masks(row: TableRow) -> dict[str, Any]:
    return _MASKS.decode(row.masks) if row.masks else {}
