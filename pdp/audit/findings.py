"""Findings of a verification: each names a defect of an audit with file, line and `seq`, as far as there are any."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

FindingKind: TypeAlias = Literal[
    "edited_line",
    "missing_line",
    "added_line",
    "moved_line",
    "duplicate_line",
    "duplicate_id",
    "foreign_line",
    "unreadable_line",
    "unproven_line",
    "edited_chain",
    "missing_chain",
    "missing_segment",
    "missing_instance",
    "cut_tail",
    "unproven_tail",
    "damaged_file",
    "second_file",
    "no_key",
    "no_chain",
    "edited_bundle",
    "missing_bundle",
]
"""Kind of a defect."""


class AuditFinding(msgspec.Struct, frozen=True, omit_defaults=True):
    """A defect. `line` is 0 if the defect has no line, `seq` None if it has no record."""

    kind: FindingKind
    file: str
    message: str
    line: int = 0
    seq: int | None = None

    @property
    def place(self) -> str:
        """Return the file with the line."""
        return f"{self.file}:{self.line}" if self.line else self.file


def records_text(first: int, last: int) -> str:
    """Return records by their `seq` in words."""
    return f"record {first}" if first == last else f"records {first} to {last}"
