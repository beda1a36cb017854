"""Lines of one write, compared with what the chain line after them says: edited, missing, added or moved.

Owns the findings of a verification, and the search for ids that come twice in a long audit, in little memory.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final, Literal, TypeAlias
from zlib import crc32

import msgspec

from pdp.audit.files.chain import ChainLine

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


_MOST_COMPARED: Final = 4_000_000
"""Product of the numbers of differing lines and checksums up to which they are aligned; beyond it, by position."""


class WrittenLine(msgspec.Struct, frozen=True, gc=False):
    """Line of a record: the number in the file, the bytes, and a legible `seq`."""

    number: int
    data: bytes
    seq: int | None


class WrittenLines:
    """Lines between two chain lines of the file `file`, of which the first record should be `next`."""

    def __init__(self, file: str, lines: Sequence[WrittenLine], chain: ChainLine, next: int, at: int) -> None:
        self._file = file
        self._lines = lines
        self._chain = chain
        self._next = next
        self._at = at
        """Number of the chain line."""
        self._found = [crc32(line.data) for line in lines]
        self.first = next
        """`seq` of the first record of the write, as far as anybody can tell."""

    @property
    def next(self) -> int:
        """Return the `seq` of the record after the write."""
        return self.first + len(self._chain.crc)

    def findings(self) -> Iterator[AuditFinding]:
        """Yield the defects, in order of the lines. After them, `first` and `next` are known."""
        chain = self._chain
        stated = chain.seq - len(chain.crc) + 1
        added = len(self._lines) - len(chain.crc)
        if added > 0 and stated == self._next + added and self._found[added:] == chain.crc:
            self.first = stated
            last = self._lines[added - 1]
            text = f"the chain line after this line is missing, which proves {records_text(self._next, stated - 1)}"
            yield AuditFinding("missing_chain", self._file, text, last.number, last.seq)
            return
        yield from self._begin(stated)
        if chain.records != len(chain.crc) or stated != self.first:
            yield AuditFinding(
                "edited_chain", self._file, "the numbers of the chain line do not fit", self._at, chain.seq
            )
        yield from self._differences()

    def _begin(self, stated: int) -> Iterator[AuditFinding]:
        """Find out the `seq` of the first record: two of three say the same, or the chain goes on."""
        lines, expected = self._lines, self._next
        written = lines[0].seq if lines else None
        self.first = stated if stated != expected and written in {stated, None} else expected
        if self.first > expected:
            last, at = self.first - 1, lines[0].number if lines else self._at
            text = f"{records_text(expected, last)} and the chain line after them are missing before this line"
            yield AuditFinding("missing_line", self._file, text, at, expected)
        elif self.first < expected:
            at = lines[0].number if lines else self._at
            text = f"{records_text(self.first, self.first + len(lines) - 1)} come again"
            yield AuditFinding("duplicate_line", self._file, text, at, self.first)

    def _differences(self) -> Iterator[AuditFinding]:
        found, stated = self._found, self._chain.crc
        start = _shared(found, stated)
        if start == len(found) == len(stated):
            yield from self._wrong_numbers(0, len(found))
            return
        end = _shared(found[start:][::-1], stated[start:][::-1])
        ours, theirs = found[start : len(found) - end], stated[start : len(stated) - end]
        again = set(ours) & set(theirs)
        for tag, a, b, c, d in _differing(ours, theirs):
            yield from self._changed(tag, (start + a, start + b), (start + c, start + d), again)

    def _changed(
        self, tag: str, lines: tuple[int, int], stated: tuple[int, int], again: set[int]
    ) -> Iterator[AuditFinding]:
        """Yield the findings of differing lines and the differing checksums that the chain has in their place."""
        (a, b), (c, d) = lines, stated
        missing = [row for row in range(c, d) if self._chain.crc[row] not in again]
        for row in range(a, b):
            line, checksum = self._lines[row], self._found[row]
            if checksum in again:
                yield self._of(line, "moved_line", "is not in its place")
            elif missing and tag == "replace":
                seq = self.first + missing.pop(0)
                said = "" if line.seq in {seq, None} else f", and names itself {line.seq}"
                yield AuditFinding(
                    "edited_line", self._file, f"record {seq} is not what was written{said}", line.number, seq
                )
            elif checksum in self._chain.crc:
                yield self._of(line, "duplicate_line", "comes again")
            else:
                yield self._of(line, "added_line", "was not written by the service")
        for first, last in _runs(missing):
            at = self._lines[b].number if b < len(self._lines) else self._at
            text = f"{records_text(self.first + first, self.first + last)} missing before this line"
            yield AuditFinding("missing_line", self._file, text, at, self.first + first)

    def _of(self, line: WrittenLine, kind: FindingKind, what: str) -> AuditFinding:
        name = "a line" if line.seq is None else f"record {line.seq}"
        return AuditFinding(kind, self._file, f"{name} {what}", line.number, line.seq)

    def _wrong_numbers(self, start: int, end: int) -> Iterator[AuditFinding]:
        """Yield the lines whose `seq` is not that of their place, though the chain has their checksum."""
        for row in range(start, end):
            line = self._lines[row]
            if line.seq != self.first + row:
                text = f"the line in the place of record {self.first + row} names itself {line.seq}"
                yield AuditFinding("edited_line", self._file, text, line.number, self.first + row)


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    """Return the number of equal values at the start."""
    return next((row for row, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _differing(ours: Sequence[int], theirs: Sequence[int]) -> Iterator[tuple[str, int, int, int, int]]:
    if len(ours) * len(theirs) > _MOST_COMPARED:
        yield "replace", 0, len(ours), 0, len(theirs)
        return
    for step in SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        if step[0] != "equal":
            yield step


def _runs(rows: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last of each run of consecutive rows."""
    start = 0
    for place, row in enumerate(rows):
        if place + 1 == len(rows) or rows[place + 1] != row + 1:
            yield rows[start], row
            start = place + 1


_CHUNK: Final = 1_000_000


class DuplicateIds:
    """Hashes of ids, 8 bytes for each. Equal hashes make an id suspect; a second reading compares the ids."""

    def __init__(self) -> None:
        self._chunks: list[array[int]] = []
        self._newest: array[int] = array("q")

    def add(self, id: str) -> None:
        """Add an id."""
        self._newest.append(hash(id))
        if len(self._newest) >= _CHUNK:
            self._sort()

    def suspects(self) -> set[int]:
        """Return the hashes that came twice or more often."""
        self._sort()
        found: set[int] = set()
        last: int | None = None
        for each in heapq.merge(*self._chunks):
            if each == last:
                found.add(each)
            last = each
        return found

    def _sort(self) -> None:
        self._chunks.append(array("q", sorted(self._newest)))
        self._newest = array("q")
