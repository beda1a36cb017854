"""Verification of a file without a chain, from versions before segments: order and gaps of its records."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pdp.audit.files.segments import SegmentFile
from pdp.audit.reader import TORN, TrailLine
from pdp.audit.verify.lines import AuditFinding, records_text
from pdp.audit.verify.segment import CheckedCounts, InstanceState, RecordHead, record_head


class UnnumberedFileCheck:
    """Check of one file without a chain. `note_record` is that of `SegmentCheck`."""

    def __init__(
        self, file: SegmentFile, state: InstanceState, counts: CheckedCounts,
        note_record: Callable[[str, RecordHead, int], None],
    ) -> None:  # fmt: skip
        self._file = file
        self._name = file.path.name
        self._state = state
        self._counts = counts
        self._note_record = note_record
        self._missing: set[int] = set()

    def findings(self, lines: Iterator[TrailLine]) -> Iterator[AuditFinding]:
        """Yield the defects of the file, in order of its lines."""
        self._counts.files += 1
        for line in lines:
            if line.problem == TORN:
                continue  # a killed process leaves one
            head = None if line.problem else record_head(line.data)
            if head is None or head.seq < 0:
                cause = line.problem or "the line cannot be read"
                yield AuditFinding("unreadable_line", self._name, cause, line.number)
                continue
            self._counts.records += 1
            self._counts.unchained += 1
            self._note_record(self._name, head, line.number)
            if head.instance != self._file.instance:
                text = f"a record of the instance `{head.instance[:80]}`"
                yield AuditFinding("foreign_line", self._name, text, line.number, head.seq)
            yield from self._place(head.seq, line.number)

    def _place(self, seq: int, line: int) -> Iterator[AuditFinding]:
        """Yield the defect of a record's place."""
        expected = self._state.next
        if seq > expected:
            text = f"{records_text(expected, seq - 1)} missing before this line"
            yield AuditFinding("missing_line", self._name, text, line, expected)
            if seq - expected < 1_000_000:  # a forged number must not fill the memory
                self._missing.update(range(expected, seq))
        elif seq < expected:
            moved = seq in self._missing
            self._missing.discard(seq)
            what = "is not in its place" if moved else "comes again"
            yield AuditFinding(
                "moved_line" if moved else "duplicate_line", self._name, f"record {seq} {what}", line, seq
            )
        self._state.next = max(expected, seq + 1)
