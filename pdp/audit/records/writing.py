"""JSON text of a record: one object per request, with all inputs needed to decide the request again.

Pure: writes no file and reads no clock; the record queue hands the lines to sinks. A record has one entry per concrete
check in `checks`, in the order of the plan, and in `requests` one per check of the caller that the plan split into
several. `entries` describes the forms of an entry.
"""

from __future__ import annotations

from datetime import UTC, datetime
from json import dumps
from math import modf
from typing import Final

import msgspec

from pdp.audit.records.entries import COLUMNS_FROM, EntryEncoder
from pdp.audit.records.fast_writing import OneCheckEncoder, SplitEncoder
from pdp.audit.records.inputs import InputsEncoder, InputsKey, first_by_inputs, has_inputs, json_text, quote
from pdp.audit.records.record import DecisionRecord
from pdp.audit.records.schema import DECISION_EVENT, FILTER_EVENT, SCHEMA
from pdp.model.events import Event, token_subject
from pdp.model.question import Caller
from pdp.model.redaction import DEFAULT_MASKER, Redactor

_MICROSECONDS: Final = 1_000_000
_DECISION: Final = f'{{"event":"{DECISION_EVENT}","schema":{SCHEMA},"id":'
_FILTER: Final = f'{{"event":"{FILTER_EVENT}","schema":{SCHEMA},"id":'
"""Starts of records."""
_DIGITS: Final = b"01".ljust(256)


class RecordEncoder:
    """Encoder of the records of one instance. It keeps texts that many records share: use it in one thread at a time.

    `columns_from` is the number of resources from which an entry is in columns.
    """

    def __init__(self, instance: str, columns_from: int = COLUMNS_FROM, masker: Redactor = DEFAULT_MASKER) -> None:
        self._instance = f'"instance":{quote(instance)},"seq":'
        self._name = instance
        self._columns_from = columns_from
        self._inputs = InputsEncoder(masker)
        self._plain = OneCheckEncoder(self._inputs)
        self._split = SplitEncoder(self._inputs)
        self._second = -1.0
        self._second_text = ""

    def encode(self, record: DecisionRecord, seq: int) -> bytes:
        """Return the JSON text of a record without a line end. `seq` has no gaps within an instance."""
        body = None
        if self._columns_from > 1 and len(record.checks) == 1 and not record.answer.cached:
            body = self._plain.body(record) if record.checks[0].plain else self._split.body(record)
        if body is None:
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
        if listing := record.listing:
            body = f'{body},"listing":{json_text(msgspec.to_builtins(listing))}'
        return f'{body},"masks":{json_text(record.masks)}}}' if record.masks else body + "}"

    def _time(self, seconds: float) -> str:
        """Return the same text as `timestamp`; keep the text of the newest second."""
        fraction, second = modf(seconds)
        micros = round(fraction * _MICROSECONDS)
        if micros == _MICROSECONDS:
            return timestamp(seconds)
        if second != self._second:
            self._second, self._second_text = second, timestamp(second).partition(".")[0]
        return f"{self._second_text}.{str(_MICROSECONDS + micros)[1:]}Z"


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
