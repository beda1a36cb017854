"""Audits with records of every kind, for tests of the commands that read them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from support.generators.generated_pdps import decide_and_record, make_pdp
from uuid_utils import uuid7

from pdp.audit.files.folder import DEFAULT_FORM, AuditFolder, SegmentForm
from pdp.audit.records.writing import RecordEncoder
from pdp.model.events import Event

RULES = {"readers": "op == 'READ_ENTITY_VALUE' && role == 'alice'"}
HOSTILE = ("\x1b[2J", "a\u2028b", "=cmd()", "<script>", "\u202etxt", "+1", "@x", "\x9b31m", 'q"\\', "😀", "-1")
"""Names that a terminal, a spreadsheet or a browser could take for more than a text."""


def check(name: str = "t", principal: Any = "user:oidc~alice", **fields: Any) -> dict[str, Any]:
    """Return a check of a table, or of `resources`."""
    table = {"resource": {"type": "table", "warehouse": "w", "path": ["s", name]}}
    return {"principal": principal, "action": "read_data", **({} if "resources" in fields else table), **fields}


class AuditWriter:
    """Writer of an audit folder with decided checks and events. Use `close` at the end."""

    def __init__(self, folder: Path, form: SegmentForm = DEFAULT_FORM) -> None:
        self.instance = uuid7().hex
        self.seq = 0
        self._folder = AuditFolder(folder, self.instance, form)
        self._encoder = RecordEncoder(self.instance)
        self._pdp = make_pdp({"warehouses": {"w": {"default_ref": "main"}}}, RULES)

    def decide(self, *checks: Mapping[str, Any]) -> dict[str, Any]:
        """Decide a batch, and write its record; return the record."""
        _, record = decide_and_record(self._pdp, list(checks))
        self._folder.archive(record.bundle_digest, record.bundle_text)
        return self._write(self._encoder.encode(record, self.seq))

    def note(self, event: Event) -> dict[str, Any]:
        """Write the record of an event; return the record."""
        return self._write(self._encoder.encode_event(event, self.seq))

    def write(self, line: bytes) -> None:
        """Write any line."""
        self._folder.append([line])

    def rotate(self) -> None:
        """Begin the next segment."""
        self._folder.rotate()

    def close(self, *, killed: bool = False) -> None:
        """End the instance."""
        if not killed:
            self._folder.rotate()
        self._folder.close()

    def _write(self, text: bytes) -> dict[str, Any]:
        self._folder.append([text + b"\n"])
        self.seq += 1
        record: dict[str, Any] = json.loads(text)
        return record


def json_lines(text: str) -> Sequence[dict[str, Any]]:
    """Return the objects of an output, one a line."""
    return [json.loads(line) for line in text.split("\n") if line]
