"""JSON text of a record: one object per request, with all inputs needed to decide the request again.

Pure: writes no file and reads no clock; the record queue hands the lines to sinks. A record has one entry per concrete
check in `checks`, in the order of the plan, and in `requests` one per check of the caller that the plan split into
several. `entries` describes the forms of an entry.

The records of one prepared plan differ in a few texts. A frame is what the encoder writes about a probe, cut at the
texts of the probe's own values. The encoder fills these holes by the same texts of another record, so a frame knows no
field of a record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from json import dumps
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from pdp.audit.records.entries import COLUMNS_FROM, EntryEncoder, outcome_text
from pdp.audit.records.inputs import (
    InputsEncoder,
    InputsKey,
    first_by_inputs,
    has_inputs,
    is_bare,
    json_text,
    more_than_reference,
    path_text,
    query_text,
    quote,
)
from pdp.audit.records.record import DecidedCheck, DecisionRecord, LeafDecision, PlannedRecord
from pdp.audit.records.schema import DECISION_EVENT, FILTER_EVENT, SCHEMA
from pdp.engines.engine import FORBID, PERMIT, Verdicts
from pdp.model.answer import Answer
from pdp.model.events import Event, token_subject
from pdp.model.question import Batch, Caller, Check, Principal, Resource
from pdp.model.redaction import DEFAULT_MASKER, Redactor
from pdp.model.revision import new_id
from pdp.model.vocabulary import NAMING_ACTIONS

MOST_FRAMES: Final = 4
LONGEST_FRAME: Final = 4000
_MOST_TAILS: Final = 4
"""Frames of one plan, the characters of a record with a frame, and the tails of a frame."""
KNOWN_FIELDS: Final[Mapping[type[msgspec.Struct], str]] = {
    DecisionRecord: "answer batch bundle_digest bundle_text checks latency_us left_out listing masks sampled stale "
    "time",
    PlannedRecord: "answer batch bundle_digest bundle_text found latency_us plan time",
    Batch: "caller checks consistency explain operation probes refused rejected size surface",
    Caller: "empty engines may_assert may_inspect may_write name own request_id span_id stated token trace_id",
    Check: "at query_id query_user question resources",
    Resource: "arguments content_type id name path properties ref ref_type type warehouse",
    Answer: "allowed by cached errors id rejected revision traces",
    DecidedCheck: "check concrete outcome plain",
    LeafDecision: "at group resources restrictions verdicts",
    Verdicts: "by effects errors",
}
"""Fields of values that differ between the records of one plan, by type.

A value of each field is in a hole, in the key of a frame, the same for all records of a plan, or in no record. Nobody
knows that of a field that is not here. Then there are no frames: records are as right as before, and slower.
"""


HeadTexts: TypeAlias = tuple[str, str, str, str, str, str]
"""Texts in the holes before the entries: id, seq, time, latency, ids of the sender, query."""
_HEAD_HOLES: Final = 6


class RowTexts(NamedTuple):
    """Texts in the holes of the entries: the path and what follows the reference, and the outcome of each entry."""

    path: str
    more: str
    outcomes: Sequence[str]


_PATH: Final = "\0"
MORE: Final = "\1"
"""Holes within the tail of a frame. No JSON holds these signs."""
Tail: TypeAlias = list[str]
"""Text of the entries and the end of a record, cut at each path."""
OutcomeKey: TypeAlias = tuple[Any, ...] | None


class Frame:
    """Text of records: before each hole of the head, around the holes of each entry, and the end.

    `tails` are by the outcomes of the entries.
    """

    __slots__ = ("_bare", "_end", "_rows", "head", "tails")

    def __init__(self, head: Sequence[str], rows: Sequence[tuple[str, str, str]], end: str, *, bare: bool) -> None:
        """Make a frame. A row has the texts before the path, before what follows the reference, before the outcome.

        `bare`: nothing follows the references.
        """
        self._bare = bare
        self.head = tuple(head)
        self._rows = rows
        self._end = end
        self.tails: dict[OutcomeKey, Tail] = {}

    def add_tail(self, key: OutcomeKey, outcomes: Sequence[str]) -> Tail:
        """Return the tail of some outcomes; keep the tail if it has a key."""
        rows = [
            f"{before}{_PATH}{behind}{'' if self._bare else MORE}{last}{outcome}"
            for (before, behind, last), outcome in zip(self._rows, outcomes, strict=True)
        ]
        tail = f"{''.join(rows)}{self._end}".split(_PATH)
        if key:
            if len(self.tails) >= _MOST_TAILS:
                self.tails.clear()
            self.tails[key] = tail
        return tail


def cut(text: str, head: HeadTexts, row: RowTexts) -> Frame | None:
    """Return the frame that gives a text when it is filled; None if the holes are not all there, in this order."""
    pieces, start = [], 0
    rows = [hole for outcome in row.outcomes for hole in (row.path, row.more, outcome)]
    for hole in (*head, *rows):
        at = text.find(hole, start)
        if at < 0:
            return None
        pieces.append(text[start:at])
        start = at + len(hole)
    found = iter(pieces[_HEAD_HOLES:])
    return Frame(pieces[:_HEAD_HOLES], tuple(zip(found, found, found, strict=True)), text[start:], bare=not row.more)


def outcome_key(found: Sequence[Verdicts]) -> OutcomeKey:
    """Return the key of verdicts without errors; None for any others."""
    if len(found) == 1:
        one = found[0]
        return None if one.errors else (one.effects, one.by[0])
    return None if any(one.errors for one in found) else tuple([(one.effects, one.by[0]) for one in found])


def is_known(fields: Mapping[type[msgspec.Struct], str] = KNOWN_FIELDS) -> bool:
    """Tell whether frames know of every field of the values in a record."""
    return all(sorted(type.__struct_fields__) == names.split() for type, names in fields.items())


def probe(record: PlannedRecord, *, bare: bool) -> PlannedRecord:
    """Return a record of the same plan and key with other texts in all holes. `bare`: nothing follows the reference."""
    check, caller, mark = record.batch.checks[0], record.batch.caller, new_id()  # nobody can write the mark into a name
    resource = msgspec.structs.replace(check.resources[0], path=("probe", mark))
    if not bare:
        resource = msgspec.structs.replace(resource, id=mark, properties={"probe": mark})
    found = tuple(
        [
            Verdicts(
                bytes([FORBID]) if one.effects[0] == PERMIT else bytes([PERMIT]), (f"{mark}-{number}",), {0: (mark,)}
            )
            for number, one in enumerate(record.found)
        ]
    )
    ids = {"request_id": mark, "trace_id": f"trace-{mark}", "span_id": f"span-{mark}"}
    sender = msgspec.structs.replace(caller, own=Principal("user", mark), **ids)
    asked = msgspec.structs.replace(check, resources=(resource,), query_id=mark, query_user=f"user:{mark}")
    batch = msgspec.structs.replace(record.batch, caller=sender, checks=(asked,))
    outcome = found[-1]
    allowed = bytes([outcome.effects[0] == PERMIT])
    answer = msgspec.structs.replace(record.answer, id=new_id(), allowed=allowed, by=outcome.by, errors=outcome.errors)
    other = {"answer": answer, "found": found, "time": 86_399.125, "latency_us": 123_454_321}
    return msgspec.structs.replace(record, batch=batch, **other)


_MICROSECONDS: Final = 1_000_000
_DECISION: Final = f'{{"event":"{DECISION_EVENT}","schema":{SCHEMA},"id":'
_FILTER: Final = f'{{"event":"{FILTER_EVENT}","schema":{SCHEMA},"id":'
"""Starts of records."""
_DIGITS: Final = b"01".ljust(256)
_PROBE_SEQ: Final = 987_656_789
_NO_FRAME: Final = ()
"""Mark of a key whose records have no frame."""


class RecordEncoder:
    """Encoder of the records of one instance. It keeps texts that many records share: use it in one thread at a time.

    `columns_from` is the number of resources from which an entry is in columns.
    """

    def __init__(self, instance: str, columns_from: int = COLUMNS_FROM, masker: Redactor = DEFAULT_MASKER) -> None:
        self._instance = f'"instance":{quote(instance)},"seq":'
        self._name = instance
        self._columns_from = columns_from
        self._inputs = InputsEncoder(masker)
        self._has_frames = columns_from > 1 and is_known()
        self._second = -1
        self._second_text = ""

    def encode(self, record: DecisionRecord, seq: int) -> bytes:
        """Return the JSON text of a record without a line end. `seq` has no gaps within an instance."""
        body = self._body(record)
        caller = record.batch.caller
        if caller.request_id or caller.trace_id or caller.own is not None:
            body = _ids_text(caller) + body
        if record.stale:
            body = f'"stale":true,{body}'
        if record.sampled != 1 or record.left_out:
            body = _sample_text(record) + body
        return (
            f"{_DECISION if record.masks is None else _FILTER}{quote(record.answer.id)},{self._instance}{seq},"
            f'"time":"{self._time(record.time)}","latencyUs":{record.latency_us},{body}'
        ).encode()

    def planned_line(self, record: PlannedRecord, seq: int) -> bytes:
        """Return the line of a record by the frame of its plan: the text of `encode` for the whole record."""
        batch = record.batch
        check, caller = batch.checks[0], batch.caller
        resource = check.resources[0]
        bare = is_bare(resource)
        # INVARIANT: all other values that differ between the records of a plan are in holes, see `KNOWN_FIELDS`.
        key = (self, batch.surface, batch.operation, caller.name, bare)
        frame = record.plan.frames.get(key)
        if not frame:
            if frame is None:
                return self._first(record, seq, key)
            return self.encode(record.whole(), seq) + b"\n"
        outcomes = outcome_key(record.found)
        rest = path_text(resource).join(
            frame.tails.get(outcomes) or frame.add_tail(outcomes, self._outcomes_of(record))
        )
        if not bare:
            rest = rest.replace(MORE, more_than_reference(resource, self._inputs.masker))
        before_id, before_seq, before_time, before_latency, before_ids, before_query = frame.head
        ids = _ids_text(caller) if caller.request_id or caller.trace_id or caller.own is not None else ""
        query = query_text(check) if check.query_id or check.query_user else ""
        return (
            f"{before_id}{record.answer.id}{before_seq}{seq}{before_time}{self._time(record.time)}{before_latency}"
            f"{record.latency_us}{before_ids}{ids}{before_query}{query}{rest}\n"
        ).encode()

    def _first(self, record: PlannedRecord, seq: int, key: tuple[Any, ...]) -> bytes:
        """Return the line of the first record of a key, and keep a frame that gives this very line."""
        line = self.encode(record.whole(), seq) + b"\n"
        frames = record.plan.frames
        if len(frames) >= MOST_FRAMES:
            frames.clear()
        frames[key] = (self._has_frames and self._make_frame(record, bare=key[-1])) or _NO_FRAME
        if self.planned_line(record, seq) != line:
            frames[key] = _NO_FRAME
        return line

    def _make_frame(self, record: PlannedRecord, *, bare: bool) -> Frame | None:
        """Return the frame of the records of a plan, made from one with other texts in all holes."""
        other = probe(record, bare=bare)
        whole = other.whole()
        if whole.batch.probes:  # the record tells of a denial in a place that is no hole
            return None
        actions = {leaf.group.action for decided in whole.checks for leaf in decided.concrete}
        if NAMING_ACTIONS & {*actions, other.batch.checks[0].question.action}:  # entries tell of missing names
            return None
        text = self.encode(whole, _PROBE_SEQ).decode()
        if len(text) > LONGEST_FRAME:
            return None
        resource = other.batch.checks[0].resources[0]
        more = "" if bare else more_than_reference(resource, self._inputs.masker)
        rows = RowTexts(path_text(resource), more, self._outcomes_of(other))
        return cut(text, self._head_texts(other, _PROBE_SEQ), rows)

    def _head_texts(self, record: PlannedRecord, seq: int) -> HeadTexts:
        check, caller = record.batch.checks[0], record.batch.caller
        ids = _ids_text(caller) if caller.request_id or caller.trace_id or caller.own is not None else ""
        query = query_text(check) if check.query_id or check.query_user else ""
        return record.answer.id, str(seq), self._time(record.time), str(record.latency_us), ids, query

    def _outcomes_of(self, record: PlannedRecord) -> list[str]:
        """Return the fields of the decision of each entry."""
        texts = [
            outcome_text(one.effects[0] == PERMIT, one.by[0], one.errors.get(0, ()) if one.errors else ())
            for one in record.found
        ]
        return [texts[number] for number in record.plan.numbers]

    def encode_rest(self, record: DecisionRecord, seq: int, cause: str) -> bytes:
        """Return the JSON text of a record that `encode` cannot write: the caller and the outcome, without inputs."""
        batch, answer = record.batch, record.answer
        return (
            f"{_DECISION if record.masks is None else _FILTER}{quote(answer.id)},{self._instance}{seq},"
            f'"time":"{self._time(record.time)}","latencyUs":{record.latency_us},{_ids_text(batch.caller)}'
            f'{_sample_text(record)}"surface":{quote(batch.surface)},'
            f'"caller":{quote(batch.caller.name)},"inputs":null,"revision":{quote(answer.revision)},"checks":[],'
            f'"unencodable":{quote(cause)},"allowed":"{answer.allowed.translate(_DIGITS).decode()}"}}'
        ).encode(errors="backslashreplace")

    def encode_event(self, event: Event, seq: int) -> bytes:
        """Return the JSON text of an event without a line end."""
        fields = msgspec.to_builtins(event)
        head = {"event": fields.pop("event"), "schema": SCHEMA, "id": fields.pop("id")}
        seconds = fields.pop("time")
        place = {"instance": self._name, "seq": seq, "time": timestamp(seconds)}
        text = dumps({**head, **place, **fields}, ensure_ascii=False, separators=(",", ":"))
        return text.encode(errors="backslashreplace")

    def _body(self, record: DecisionRecord) -> str:
        batch, answer = record.batch, record.answer
        numbers: dict[InputsKey, int] = {}
        checks = (*batch.checks, *filter(has_inputs, batch.refused)) if batch.refused else batch.checks
        if len(checks) == 1:
            inputs = [self._inputs.encode(checks[0])]
        else:
            first = first_by_inputs(checks)
            inputs = [self._inputs.encode(check) for check in first.values()]
            numbers = {key: number for number, key in enumerate(first)}
        entries = EntryEncoder(record, numbers, self._columns_from, self._inputs.masker)
        body = (
            f'"surface":{quote(batch.surface)},"caller":{quote(batch.caller.name)},'
            f'"inputs":{inputs[0] if inputs else "null"},"revision":{quote(answer.revision)},'
            f'"checks":[{entries.checks()}]'
        )
        if len(inputs) > 1:
            body = f'{body},"otherInputs":[{",".join(inputs[1:])}]'
        requests = entries.requests()
        if requests:
            body = f'{body},"requests":[{requests}]'
        if batch.operation:
            body = f'{body},"operation":{quote(batch.operation)}'
        if batch.probes and 0 in answer.allowed:
            body = f'{body},"probe":true'
        if listing := record.listing:
            body = f'{body},"listing":{json_text(msgspec.to_builtins(listing))}'
        return f'{body},"masks":{json_text(record.masks)}}}' if record.masks else body + "}"

    def _time(self, seconds: float) -> str:
        """Return the same text as `timestamp`; keep the text of the newest second."""
        second = int(seconds)
        micros = round((seconds - second) * _MICROSECONDS)
        if micros == _MICROSECONDS:
            return timestamp(seconds)
        if second != self._second:
            self._second, self._second_text = second, timestamp(second).partition(".")[0]
        return f"{self._second_text}.{micros:06d}Z"


def _ids_text(caller: Caller) -> str:
    """Return the ids that the sender gave the request, and the subject of its token, as JSON: a comma follows each."""
    subject = token_subject(caller)
    text = f'"callerPrincipal":{quote(subject)},' if subject else ""
    text = f'{text}"requestId":{quote(caller.request_id)},' if caller.request_id else text
    return f'{text}"traceId":{quote(caller.trace_id)},"spanId":{quote(caller.span_id)},' if caller.trace_id else text


def _sample_text(record: DecisionRecord) -> str:
    """Return the share of requests that get a record, and the number left out before, as JSON: a comma follows each."""
    text = f'"sampled":{json_text(record.sampled)},' if record.sampled != 1 else ""
    return f'{text}"leftOut":{record.left_out},' if record.left_out else text


def timestamp(seconds: float) -> str:
    """Return a time as RFC 3339 in UTC with microseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
