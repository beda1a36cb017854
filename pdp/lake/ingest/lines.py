"""Lines of audit files, judged one by one: a record, an event, or a problem that goes to quarantine.

Takes the same lines as `pdp.audit.reader`, and names the same problems. Inputs are kept as bytes, because most records
share them. A record of a later schema may have further fields: the inputs stay as recorded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from pdp.audit.files.chain import CONTROL_STARTS
from pdp.audit.reader import TORN, TrailLine
from pdp.audit.records.rows import EntryError, entry_rows
from pdp.audit.records.schema import (
    OTHER_EVENTS,
    RECORD_EVENTS,
    SCHEMA,
    CheckEntry,
    Header,
    Inputs,
    Record,
    RecordHeader,
)
from pdp.audit.records.tables import MORE_COLUMNS, ColumnType, inputs_text, json_value
from pdp.lake.ingest.later_records import LaterRecord, read_later
from pdp.model.bounded_cache import BoundedCache

MALFORMED: Final = "malformed"
LATE: Final = "late"
DUPLICATE: Final = "duplicate"
_MOST_TEXT: Final = 2000
_KEPT: Final = 5000
_LONGEST_KEPT: Final = 20_000
_INT32: Final = 1 << 31
_INT64: Final = 1 << 63
_EPOCH: Final = date(1970, 1, 1)
_SECOND: Final = len("2026-01-31T12:00:00")
_FRACTION: Final = re.compile(r"\.[0-9]{6}Z")
"""End of a time as records write it, after the second."""


def _no_inputs() -> msgspec.Raw:
    return msgspec.Raw(b"null")


class LineRecord(RecordHeader, frozen=True, rename="camel"):
    """Record of decisions with its inputs as bytes. All other fields are those of `Record`."""

    sampled: float = 1.0
    left_out: int = 0
    latency_us: int = 0
    surface: str = ""
    caller: str = ""
    caller_principal: str = ""
    request_id: str = ""
    trace_id: str = ""
    span_id: str = ""
    revision: str = ""
    inputs: msgspec.Raw = msgspec.field(default_factory=_no_inputs)
    other_inputs: list[msgspec.Raw] = msgspec.field(default_factory=list)
    checks: list[CheckEntry] = msgspec.field(default_factory=list)
    requests: list[CheckEntry] = msgspec.field(default_factory=list)
    stale: bool = False
    listing: msgspec.Raw = msgspec.field(default_factory=_no_inputs)
    operation: str = ""
    probe: bool = False
    masks: dict[str, str | None] = msgspec.field(default_factory=dict)
    unencodable: str = ""
    allowed: str = ""


class KnownInputs(NamedTuple):
    """Inputs of many records, as values of columns."""

    inputs: Inputs | None
    text: str | None
    columns: tuple[Any, ...]
    """Query and its user, then principal, roles, groups, attributes, the acting role, and `MORE_COLUMNS`."""


NO_INPUTS: Final = KnownInputs(None, None, (None,) * (7 + len(MORE_COLUMNS)))


class RecordLine(NamedTuple):
    """Line with a record of decisions. `whole` is set if only all fields of the record tell its rows."""

    record: LineRecord
    inputs: KnownInputs
    time: str
    day: int
    whole: Record | None
    later: LaterRecord | None = None


class EventLine(NamedTuple):
    """Line with a record of management, a refusal or the service."""

    place: RecordHeader
    fields: Mapping[str, Any]
    time: str
    day: int
    text: str


class LineProblem(NamedTuple):
    """Line without a new record: the reason in one word, the problem, the id if readable, and the beginning."""

    reason: str
    problem: str
    id: str | None
    text: str


JudgedLine: TypeAlias = RecordLine | EventLine | LineProblem
_LINE: Final = msgspec.json.Decoder(LineRecord)
_RECORD: Final = msgspec.json.Decoder(Record)
_PLACE: Final = msgspec.json.Decoder(RecordHeader)
_HEADER: Final = msgspec.json.Decoder(Header)
_INPUTS: Final[msgspec.json.Decoder[Inputs | None]] = msgspec.json.Decoder(Inputs | None)
_OTHER_INPUTS: Final = msgspec.json.Decoder(Inputs)
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeError, RecursionError)


class LineJudge:
    """Judge of lines. Days before `oldest`, in days since 1970, are late."""

    def __init__(self, oldest: int | None = None) -> None:
        self._oldest = oldest
        self._inputs: BoundedCache[bytes, KnownInputs] = BoundedCache(_KEPT, _LONGEST_KEPT)
        self._days: BoundedCache[str, int] = BoundedCache(_KEPT, _LONGEST_KEPT)

    def judge(self, line: TrailLine) -> JudgedLine | None:
        """Return the meaning of a line; None for an empty line, and for lines of a segment itself."""
        data = line.data
        if line.problem and line.problem != TORN:
            return LineProblem("damaged", line.problem, None, "")
        if data.startswith(CONTROL_STARTS) or not data.strip():
            return None
        try:
            return self._record(data)
        except _BadLine as bad:
            reason, problem = bad.args
            if line.problem and reason == MALFORMED:
                reason = TORN
            return line_problem(data, reason, problem)

    def _record(self, data: bytes) -> JudgedLine:
        record: LineRecord | None = None
        inputs, problem = NO_INPUTS, ""
        try:
            record = _LINE.decode(data)
            header: Header = record
            inputs = self._all_inputs(record)
        except _UNREADABLE as error:
            header, record, problem = record or _readable_header(data), None, str(error)
        if header.event not in RECORD_EVENTS:
            raise _BadLine("event", f"event `{header.event[:50]}`")
        if header.schema < SCHEMA:
            raise _BadLine("schema", f"schema {header.schema}, this version reads {SCHEMA} and later ones")
        if header.schema >= _INT32:
            raise _BadLine("schema", f"schema {header.schema}, a number of more than 32 bits")
        if header.event in OTHER_EVENTS:
            return self._event(data)
        later = read_later(data) if record is None and header.schema > SCHEMA else None
        if record is None and later is None:
            raise _BadLine(MALFORMED, problem)
        return self._decision(data, record, inputs, later)

    def _decision(
        self, data: bytes, record: LineRecord | None, inputs: KnownInputs, later: LaterRecord | None
    ) -> RecordLine | LineProblem:
        if later is not None:
            whole: Record | None = _checked(later.record)
            record = _without_inputs(later.record)
        else:
            assert record
            whole = None if _is_plain(record) else _whole(data)
        time, day = self._time(record)
        if self._oldest is not None and day < self._oldest:
            return line_problem(data, LATE, f"of {_text_of(day)}, before {_text_of(self._oldest)}")
        return RecordLine(record, inputs, time, day, whole, later)

    def _event(self, data: bytes) -> EventLine | LineProblem:
        try:
            place = _PLACE.decode(data)
            fields = msgspec.json.decode(data)
            text = data.decode().strip()
        except _UNREADABLE as error:
            raise _BadLine(MALFORMED, str(error)) from None
        time, day = self._time(place)
        if self._oldest is not None and day < self._oldest:
            return line_problem(data, LATE, f"of {_text_of(day)}, before {_text_of(self._oldest)}")
        return EventLine(place, fields, time, day, text)

    def _all_inputs(self, record: LineRecord) -> KnownInputs:
        """Return the first inputs of a record; raise an error of _UNREADABLE if any cannot be read."""
        for other in record.other_inputs:
            self._known_inputs(bytes(other), optional=False)
        return self._known_inputs(bytes(record.inputs))

    def _known_inputs(self, raw: bytes, *, optional: bool = True) -> KnownInputs:
        known = self._inputs.get(raw)
        if known is None or not (optional or known.inputs):
            inputs = (_INPUTS if optional else _OTHER_INPUTS).decode(raw)
            known = NO_INPUTS if inputs is None else KnownInputs(inputs, inputs_text(inputs), inputs_columns(inputs))
            self._inputs.keep(raw, known, len(raw))
        return known

    def _time(self, place: RecordHeader) -> tuple[str, int]:
        """Return the time of a record in UTC, and its day in days since 1970; raise _BadLine."""
        if not place.id:
            raise _BadLine(MALFORMED, "a record without an id")
        if not 0 <= place.seq < _INT64:
            raise _BadLine(MALFORMED, f"`seq` is {place.seq}")
        text = place.time
        day = self._days.get(text[:_SECOND]) if _FRACTION.fullmatch(text, _SECOND) else None
        if day is None:
            text = _plain_time(text)
            day = self._days.keep(text[:_SECOND], (date.fromisoformat(text[:10]) - _EPOCH).days, _SECOND)
        return text, day


class _BadLine(Exception):
    """Line without a record: the reason in one word, and the problem."""


def inputs_columns(inputs: Inputs) -> tuple[Any, ...]:
    """Return the columns of inputs, in the order of the table."""
    principal, context = inputs.principal, inputs.context
    attributes = bytes(principal.attributes)
    return (
        context.query_id or None,
        context.query_user or None,
        principal.id,
        principal.roles,
        principal.groups,
        None if attributes == b"{}" else attributes.decode(),
        inputs.acting_role,
        *[_column(getattr(inputs, name), type) for name, type in MORE_COLUMNS.items()],
    )


def _column(value: Any, type: ColumnType) -> Any:
    return json_value(value) if type == "json" and value is not None else value


def line_place(line: TrailLine) -> RecordHeader | None:
    """Return the name and place in a line, empty without any; None for lines that are no record by design."""
    data = line.data
    if data.startswith(CONTROL_STARTS) or not (data.strip() or line.problem):
        return None
    try:
        return _PLACE.decode(data)
    except _UNREADABLE:
        return RecordHeader()


def line_problem(data: bytes, reason: str, problem: str) -> LineProblem:
    """Return the problem of a line, with the beginning of its text and the id if readable."""
    try:
        id = _PLACE.decode(data).id or None
    except _UNREADABLE:
        id = None
    return LineProblem(reason, problem, id, data[:_MOST_TEXT].decode(errors="replace").rstrip("\n"))


def _readable_header(data: bytes) -> Header:
    try:
        return _HEADER.decode(data)
    except msgspec.ValidationError:
        return Header()
    except _UNREADABLE as error:
        raise _BadLine(MALFORMED, f"not JSON: {error}") from None


def _is_plain(record: LineRecord) -> bool:
    """Tell whether the one entry of a record is a row, and what the caller asked."""
    if len(record.checks) != 1 or record.requests or record.unencodable:
        return False
    entry = record.checks[0]
    return (
        entry.resources is None
        and entry.error is None
        and entry.inputs == 0
        and entry.load is None
        and entry.change is None
        and len(record.listing) == 4
        and type(entry.at) is int
        and 0 <= entry.at < _INT64
        and type(entry.allowed) is bool
        and bool(entry.by)
        and not isinstance(entry.errors, dict)
        and -_INT64 <= record.latency_us < _INT64
        and 0 <= record.left_out < _INT64
    )


def _whole(data: bytes) -> Record:
    try:
        return _checked(_RECORD.decode(data))
    except _UNREADABLE as error:
        raise _BadLine(MALFORMED, str(error)) from None


def _checked(record: Record) -> Record:
    """Return a record whose entries can be read; raise _BadLine."""
    if not (-_INT64 <= record.latency_us < _INT64 and 0 <= record.left_out < _INT64):
        raise _BadLine(MALFORMED, "a number of more than 64 bits")
    try:
        for entry in (*record.checks, *record.requests):
            if not 0 <= entry.inputs <= len(record.other_inputs):
                raise _BadLine(MALFORMED, f"there are no inputs {entry.inputs}")
            if any(not 0 <= row.at < _INT64 for row in entry_rows(entry)):
                raise _BadLine(MALFORMED, "a position that is none")
    except EntryError as error:
        raise _BadLine(MALFORMED, str(error)) from None
    return record


def _without_inputs(record: Record) -> LineRecord:
    fields = {name: getattr(record, name) for name in Record.__struct_fields__}
    return LineRecord(**{**fields, "inputs": _no_inputs(), "other_inputs": [], "listing": _no_inputs()})


def _plain_time(text: str) -> str:
    """Return a time as records write it; raise _BadLine for another text."""
    try:
        time = datetime.fromisoformat(text)
        if time.tzinfo is None:
            raise _BadLine(MALFORMED, f"a time without a zone: `{text[:50]}`")
        time = time.astimezone(UTC)
    except (ValueError, OverflowError):
        raise _BadLine(MALFORMED, f"no time: `{text[:50]}`") from None
    return time.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _text_of(day: int) -> str:
    return str(_EPOCH + timedelta(days=day))
