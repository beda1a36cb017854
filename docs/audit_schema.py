"""JSON Schema of the lines of an audit, from the types that read them and the events that the service writes.

The types are lenient, so that old records stay readable. The schema is what this version writes: the fields of `_FIRST`
are in every line of a kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from pdp.audit.files.chain import CHAIN, SEGMENT, SEGMENT_END, ChainLine, EndLine
from pdp.audit.records.schema import DECISION_EVENT, FILTER_EVENT, SCHEMA, Record, RecordHeader
from pdp.model.events import ManagementEvent, RefusalEvent, RewriteEvent, ServiceEvent, ShadowEvent


class SegmentLine(msgspec.Struct, frozen=True):
    """First line of a segment. `seq` is that of its first record.

    `previous` is the digest at the end of the segment before, empty for number 1; `key` names the key of the chain.
    """

    schema: int
    instance: str
    number: int
    seq: int
    time: str
    previous: str
    key: str = ""


_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_KINDS: Final[Mapping[type[msgspec.Struct], tuple[str, ...]]] = {
    Record: (DECISION_EVENT, FILTER_EVENT),
    RefusalEvent: ("refusal",),
    ManagementEvent: ("management",),
    RewriteEvent: ("rewrite",),
    ServiceEvent: ("service",),
    ShadowEvent: ("report",),
    SegmentLine: (SEGMENT,),
    ChainLine: (CHAIN,),
    EndLine: (SEGMENT_END,),
}
"""Type of a line -> the values of its `event`."""
_EVERY_RECORD: Final = ("event", "schema", "id", "instance", "seq", "time")
_FIRST: Final[Mapping[str, tuple[str, ...]]] = {
    "Record": (*_EVERY_RECORD, "latencyUs", "surface", "caller", "inputs", "revision", "checks"),
    "RefusalEvent": (*_EVERY_RECORD, "surface", "status", "code"),
    "ManagementEvent": (*_EVERY_RECORD, "operation", "caller", "allowed"),
    "RewriteEvent": (*_EVERY_RECORD, "surface", "caller", "principal", "dialect", "length", "allowed"),
    "ServiceEvent": (*_EVERY_RECORD, "what"),
    "ShadowEvent": (*_EVERY_RECORD, "authority", "decision", "surface", "caller", "compared", "differences"),
    "SegmentLine": ("event", "schema", "instance", "number", "seq", "time", "previous"),
    "ChainLine": ("event", "records", "seq", "digest", "crc"),
    "EndLine": ("event", "records", "seq", "digest", "time"),
    "CheckEntry": ("at", "allowed", "by", "errors", "cached"),
    "Inputs": ("principal", "actingRole", "context"),
    "RecordedPrincipal": ("id", "roles", "groups", "attributes"),
    "RecordedContext": ("actions",),
}
"""Name of a type -> the fields that are always there."""
_FORMS: Final[Mapping[str, Mapping[str, Any]]] = {
    "id": {"type": "string", "format": "uuid"},
    "time": {"type": "string", "format": "date-time", "pattern": r"^[0-9-]{10}T[0-9:]{8}\.[0-9]{6}Z$"},
    "seq": {"type": "integer", "minimum": 0},
    "digest": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
    "previous": {"type": "string", "pattern": "^([0-9a-f]{64})?$"},
}
"""Name of a field of a line -> its form, where the types do not say it."""
_LINES: Final = {type.__name__: events for type, events in _KINDS.items()}
_PLACE_FIELDS: Final[Mapping[str, Any]] = msgspec.json.schema(RecordHeader)["$defs"]["RecordHeader"]["properties"]


def audit_schema() -> dict[str, Any]:
    """Return the schema of one line of an audit."""
    (*refs,), definitions = msgspec.json.schema_components(list(_KINDS), ref_template="#/$defs/{name}")
    for name, definition in definitions.items():
        _complete(name, definition)
    return {
        "$schema": _DIALECT,
        "title": f"A line of the audit of pdp, schema {SCHEMA}",
        "description": "A record (`decision`, `filter`, `refusal`, `management`, `rewrite`, `service`, `report`) or a "
        "line that holds a segment together (`segment`, `chain`, `segment_end`). Further fields may come in later "
        "versions.",
        "oneOf": refs,
        "$defs": dict(sorted(definitions.items())),
    }


def _complete(name: str, definition: dict[str, Any]) -> None:
    """Add to a definition what the types do not say: the place of every record, fixed values, fields always there."""
    fields = definition["properties"]
    if name.endswith("Event"):
        fields = definition["properties"] = {**_PLACE_FIELDS, **fields}
    if "schema" in fields:
        fields["schema"] = {"const": SCHEMA}
    if name in _LINES:
        fields["event"] = {"enum": list(_LINES[name])}
        fields.update({field: dict(form) for field, form in _FORMS.items() if field in fields})
    if name == "RecordedPrincipal":
        fields["attributes"] = {"type": "object"}
    required = _FIRST.get(name, tuple(definition.get("required", ())))
    for field in required:
        fields[field] = {key: value for key, value in fields[field].items() if key != "default"}
    definition["required"] = list(required)
    if "description" in definition:
        definition["description"] = " ".join(definition["description"].split())
