"""Bodies of pushed batches: JSON lines as they are, or OpenTelemetry's log records (OTLP in JSON).

Pure. The form of OTLP is https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Protocol

import msgspec

from pdp import __version__

_INFO: Final = 9
"""Severity number of INFO."""


class BodyForm(Protocol):
    """Form of the body of a batch."""

    content_type: str

    def body(self, lines: bytes) -> bytes:
        """Return the body for whole lines."""
        ...

    def refused(self, answer: bytes) -> int:
        """Return the number of records that a receiver refused in an answer of success."""
        ...


class JsonLines:
    """The lines as they are."""

    content_type = "application/x-ndjson"

    def body(self, lines: bytes) -> bytes:
        """Return the lines."""
        return lines

    def refused(self, answer: bytes) -> int:
        """Return 0: an answer of success takes the whole batch."""
        return 0


class _Head(msgspec.Struct, frozen=True, rename="camel"):
    """Fields of a record that become fields of a log record."""

    event: str = ""
    id: str = ""
    instance: str = ""
    seq: int = -1
    time: str = ""
    surface: str = ""
    trace_id: str = ""
    span_id: str = ""


class _PartialSuccess(msgspec.Struct, frozen=True, rename="camel"):
    rejected_log_records: str | int = 0


class _OtlpAnswer(msgspec.Struct, frozen=True, rename="camel"):
    partial_success: _PartialSuccess | None = None


_HEAD: Final = msgspec.json.Decoder(_Head)
_ANSWER: Final = msgspec.json.Decoder(_OtlpAnswer)


class OtlpLogs:
    """Log records of OpenTelemetry. The body of a log record is the line as text, so that nothing of it is lost."""

    content_type = "application/json"

    def __init__(self, service: str) -> None:
        self._resource = {
            "attributes": [_attribute("service.name", service), _attribute("service.version", __version__)]
        }
        self._scope = {"name": "pdp.audit", "version": __version__}

    def body(self, lines: bytes) -> bytes:
        """Return the request of OTLP for whole lines."""
        records = [_log_record(line) for line in lines.split(b"\n") if line]
        scoped = [{"scope": self._scope, "logRecords": records}]
        return msgspec.json.encode({"resourceLogs": [{"resource": self._resource, "scopeLogs": scoped}]})

    def refused(self, answer: bytes) -> int:
        """Return the number of log records that the receiver has refused for good."""
        try:
            partial = _ANSWER.decode(answer or b"{}").partial_success
            return int(partial.rejected_log_records) if partial else 0
        except (msgspec.DecodeError, ValueError):
            return 0


def _log_record(line: bytes) -> dict[str, Any]:
    try:
        head = _HEAD.decode(line)
        nanoseconds = _nanoseconds(head.time)
    except (msgspec.DecodeError, ValueError):  # a spool that somebody edited must not stop the delivery
        head, nanoseconds = _Head(), 0
    named = (("pdp.decision.id", head.id), ("service.instance.id", head.instance), ("pdp.surface", head.surface))
    attributes: Sequence[dict[str, Any]] = [_attribute(key, value) for key, value in named if value]
    if head.seq >= 0:
        attributes = [*attributes, {"key": "pdp.seq", "value": {"intValue": str(head.seq)}}]
    record: dict[str, Any] = {
        "timeUnixNano": str(nanoseconds),
        "severityNumber": _INFO,
        "severityText": "INFO",
        "eventName": f"pdp.{head.event}",
        "body": {"stringValue": line.decode(errors="replace")},
        "attributes": attributes,
    }
    return {**record, "traceId": head.trace_id, "spanId": head.span_id} if head.trace_id else record


def _nanoseconds(time: str) -> int:
    """Return the time of a record in nanoseconds since the epoch; 0, which means unknown, for no time."""
    return round(datetime.fromisoformat(time).timestamp() * 1_000_000) * 1000 if time else 0


def _attribute(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": value}}
