"""Frames of records: the text of the records of one prepared plan, with holes for what differs between them.

Knows no field of a record and no text between the holes: a frame is what the encoder writes about a probe, cut at the
texts of the probe's own values. The encoder fills a frame by the same texts of another record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from pdp.audit.records.record import DecidedCheck, DecisionRecord, LeafDecision, PlannedRecord
from pdp.engines.engine import FORBID, PERMIT, Verdicts
from pdp.model.answer import Answer
from pdp.model.question import Batch, Caller, Check, Principal, Resource
from pdp.model.revision import new_id

MOST_FRAMES: Final = 4
LONGEST_FRAME: Final = 4000
_MOST_TAILS: Final = 4
"""Frames of one plan, the characters of a record with a frame, and the tails of a frame."""
KNOWN_FIELDS: Final[Mapping[type[msgspec.Struct], str]] = {
    DecisionRecord: "answer batch bundle_digest bundle_text checks latency_us left_out listing masks sampled stale "
    "time",
    PlannedRecord: "answer batch bundle_digest bundle_text found latency_us plan time",
    Batch: "caller checks consistency explain refused rejected size surface",
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
