"""Verification of one file of an audit: its header, the chain over its lines, and its end.

Streams: holds the lines of one write. After a defect, the check goes on from what the file says, so that one edit gives
one finding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from pdp.audit.files.chain import CHAIN, SEGMENT, SEGMENT_END, ChainHash, ChainLine, EndLine, line_digest
from pdp.audit.files.segments import SegmentFile
from pdp.audit.reader import TOO_LONG, TORN, TrailLine
from pdp.audit.verify.lines import AuditFinding, WrittenLine, WrittenLines, records_text


class RecordHead(msgspec.Struct, frozen=True):
    """Fields of any line that the verification reads."""

    event: str = ""
    id: str = ""
    instance: str = ""
    seq: int = -1
    number: int = 0
    previous: str = ""
    key: str = ""
    revision: str = ""
    what: str = ""
    details: msgspec.Raw = msgspec.Raw(b"{}")


_LINE: Final = msgspec.json.Decoder(RecordHead)
_CHAIN: Final = msgspec.json.Decoder(ChainLine)
_END: Final = msgspec.json.Decoder(EndLine)
_NONE: Final = RecordHead()


class InstanceState(msgspec.Struct):
    """State of the verification of an instance after its files so far.

    `digest` is the digest at the end of the last file, None if that file does not tell.
    """

    next: int = 0
    number: int = 0
    digest: bytes | None = b""
    partial: bool = False
    """True as long as segments may be missing: before the first one, if older ones were taken away on purpose."""
    allow_recovered: bool = False
    """True if records may be without a proof that a start has found behind the chain of a killed process."""


class CheckedCounts(msgspec.Struct):
    """Numbers of a verification: what was read, and what nothing proves."""

    instances: int = 0
    files: int = 0
    records: int = 0
    proven: int = 0
    """Records under a digest that was computed again and is right."""
    keyed: int = 0
    """Those among them under a digest with a key."""
    unproven: int = 0
    """Records that no chain line covers, at the end of a segment that is not complete."""
    unchained: int = 0
    """Records in files of versions without a chain."""
    recovered: int = 0
    """Records that a later start found behind the last chain line of a killed instance."""


class SegmentCheck:
    """Check of one file. `note_record` gets the name of the file, each record's head, and its line.

    `must_end`: a later segment exists, so this one has an end whatever its name.

    `hashes` are those of the known keys by the name of the key; the name of none is empty.
    """

    def __init__(
        self, file: SegmentFile, state: InstanceState, hashes: Mapping[str, ChainHash], counts: CheckedCounts,
        note_record: Callable[[str, RecordHead, int], None], *, must_end: bool,
    ) -> None:  # fmt: skip
        self._file = file
        self._must_end = must_end or file.complete
        self._name = file.path.name
        self._state = state
        self._hashes = hashes
        self._hash: ChainHash | None = None
        self._counts = counts
        self._note_record = note_record
        self._previous: bytes | None = None
        """Digest that the next one starts from; None without the key."""
        self._other: bytes | None = None
        """Digest that was computed, if the last chain line states another one."""
        self._wrong = 0
        """Digests in a row that do not fit."""
        self._head = b""
        """Header, until the first chain line."""
        self._lines: list[WrittenLine] = []
        self._foreign: list[AuditFinding] = []
        """Records of other instances since the last chain line: only those whose checksum is right are findings."""
        self._records = 0
        self._ended = self._tail_told = False
        self._last_line = 0

    def findings(self, lines: Iterator[TrailLine]) -> Iterator[AuditFinding]:
        """Yield the defects of the file, in order of its lines; bring the state of the instance up to date."""
        self._counts.files += 1
        for line in lines:
            self._last_line = line.number
            if line.problem:
                yield from self._damaged(line)
            elif self._ended:
                yield self._finding("added_line", "a line after the end of the segment")
            else:
                yield from self._line(line, record_head(line.data))
        yield from self._finish()
        self._state.number, self._state.partial = self._file.number, False

    def _line(self, line: TrailLine, head: RecordHead | None) -> Iterator[AuditFinding]:
        fields = head or _NONE
        if line.number == 1:
            yield from self._begin(line, fields)
            if fields.event == SEGMENT:
                return
        if fields.event == CHAIN:
            yield from self._chain(line)
        elif fields.event == SEGMENT_END:
            yield from self._end(line)
        else:
            seq = fields.seq if fields.seq >= 0 else None
            self._lines.append(WrittenLine(line.number, line.data, seq))
            self._counts.records += 1
            if head is not None:
                self._note_record(self._name, fields, line.number)
            if fields.instance and fields.instance != self._file.instance:
                text = f"a record of the instance `{fields.instance[:80]}`"
                self._foreign.append(self._finding("foreign_line", text, seq))

    # --- header -----------------------------------------------------------------------------------------------------

    def _begin(self, line: TrailLine, fields: RecordHead) -> Iterator[AuditFinding]:
        """Check the header against the name of the file and against the segment before."""
        state, file = self._state, self._file
        if file.number > state.number + 1 and state.partial:
            state.number, state.digest, state.next = file.number - 1, None, max(fields.seq, 0)
        elif file.number > state.number + 1:
            first = fields.seq if fields.event == SEGMENT else None
            yield self._missing_segments(first)
            state.digest = None
        if fields.event != SEGMENT:
            yield self._finding("missing_line", "the header is missing before this line")
            self._previous, self._hash = None, None
            return
        self._head = line.data
        if (fields.instance, fields.number) != (file.instance, file.number):
            text = f"the header is that of segment {fields.number} of the instance `{fields.instance[:80]}`"
            yield self._finding("foreign_line", text)
        stated = _bytes(fields.previous)
        if state.digest is not None and stated != state.digest:
            yield self._finding("edited_chain", "the header names another end of the segment before")
        elif fields.seq != state.next and file.number == state.number + 1:
            yield self._finding(
                "missing_line", f"the header begins with record {fields.seq}, not {state.next}", state.next
            )
        state.next = max(fields.seq, 0)
        self._previous = stated
        yield from self._choose(fields.key)

    def _missing_segments(self, first: int | None) -> AuditFinding:
        state, last = self._state, self._file.number - 1
        which = f"segment {last} is" if last == state.number + 1 else f"segments {state.number + 1} to {last} are"
        gap = f", with {records_text(state.next, first - 1)}" if first is not None and first > state.next else ""
        return AuditFinding(
            "missing_segment", self._name, f"{which} missing before this file{gap}", seq=state.next if gap else None
        )

    def _choose(self, key: str) -> Iterator[AuditFinding]:
        """Choose the hash of the segment. Without its key, nothing is proven."""
        self._hash = self._hashes.get(key)
        if self._hash is not None:
            return
        if key:
            yield self._finding("no_key", f"the chain has the key `{key[:80]}`, which is not given")
        else:
            yield self._finding("no_key", "the chain has no key, so anybody could have computed it")

    # --- chain ------------------------------------------------------------------------------------------------------

    def _chain(self, line: TrailLine) -> Iterator[AuditFinding]:
        try:
            chain = _CHAIN.decode(line.data)
        except msgspec.ValidationError:
            yield self._finding("edited_chain", "the chain line cannot be read")
            self._forget()
            return
        written = WrittenLines(self._name, self._lines, chain, self._state.next, line.number)
        found = list(written.findings())
        lines = {finding.line for finding in found}
        found += [finding for finding in self._foreign if finding.line not in lines]
        self._foreign = []
        yield from found
        self._state.next = written.next
        self._records += len(chain.crc)
        self._counts.recovered += len(chain.crc) if chain.recovered else 0
        text = self._head + b"".join([one.data for one in self._lines]) + line.data
        self._head, self._lines = b"", []
        yield from self._compare(text, chain, defective=bool(found))
        if chain.recovered and self._hash and self._hash.key_id:
            yield from self._unproven_tail(chain.seq - len(chain.crc) + 1)

    def _compare(self, text: bytes, chain: ChainLine, *, defective: bool) -> Iterator[AuditFinding]:
        """Compare the digest of a write with that of its chain line."""
        stated = _bytes(chain.digest)
        if self._hash is None or self._previous is None:
            self._previous = stated if self._hash else None
            self._other = None
            return
        computed = line_digest(self._hash, self._previous, text)
        if self._fits(stated, text):
            self._counts.proven += len(chain.crc)
            self._counts.keyed += len(chain.crc) if self._hash.key_id and not chain.recovered else 0
            yield from self._wrong_digests()
            self._other = None
        elif not defective:
            self._wrong += 1
            if self._wrong == 1:
                what = records_text(chain.seq - len(chain.crc) + 1, chain.seq)
                header = "the header, " if text.startswith(b'{"event":"segment"') else ""
                message = f"the digest is not that of {header}{what} and of all before: one of them was changed"
                yield self._finding("edited_chain", message, chain.seq)
            self._other = computed
        self._previous = stated

    def _fits(self, stated: bytes, text: bytes) -> bool:
        """Tell whether the digest in a text is right behind the digest before, as stated or as computed."""
        starts = [start for start in (self._previous, self._other) if start is not None]
        return any(self._hash is not None and line_digest(self._hash, start, text) == stated for start in starts)

    def _wrong_digests(self) -> Iterator[AuditFinding]:
        """Yield one finding for all wrong digests in a row but the first."""
        if self._wrong > 1:
            text = f"{self._wrong - 1} more digests before this line do not fit: the chain was computed without the key"
            yield self._finding("edited_chain", text)
        self._wrong = 0

    def _forget(self) -> None:
        """Go on behind a chain line that cannot be read: nothing proves the lines before it."""
        self._counts.unproven += len(self._lines)
        if self._lines and (last := self._lines[-1].seq) is not None:
            self._state.next = last + 1
        self._records += len(self._lines)
        self._head, self._lines, self._previous = b"", [], None

    # --- end --------------------------------------------------------------------------------------------------------

    def _end(self, line: TrailLine) -> Iterator[AuditFinding]:
        self._ended = True
        yield from self._unproven("behind the last chain line of a complete segment")
        try:
            end = _END.decode(line.data)
        except msgspec.ValidationError:
            yield self._finding("edited_chain", "the end line cannot be read")
            self._state.digest = None
            return
        stated = _bytes(end.digest)
        proven = self._hash is not None and self._previous is not None
        fits = self._fits(stated, line.data)
        if end.seq >= self._state.next:
            text = f"{records_text(self._state.next, end.seq)} missing before the end line, or the end line was changed"
            yield self._finding("missing_line", text, self._state.next)
        elif end.seq != self._state.next - 1 or (proven and not fits):
            yield self._finding("edited_chain", "the end line does not fit to the lines before", end.seq)
        elif end.records != self._records:
            yield self._finding("edited_chain", f"the end line counts {end.records} records", end.seq)
        yield from self._wrong_digests()
        if end.unproven is not None and self._hash and self._hash.key_id:
            yield from self._unproven_tail(end.unproven)
        self._state.digest = stated

    def _unproven_tail(self, first: int) -> Iterator[AuditFinding]:
        """Yield one finding for all records that a later start found without a proof, unless that is accepted."""
        if not self._tail_told and not self._state.allow_recovered:
            self._tail_told = True
            text = f"nothing proves the records from {first} on: a later start found them behind the chain"
            yield self._finding("unproven_tail", text, first)

    def _damaged(self, line: TrailLine) -> Iterator[AuditFinding]:
        if line.problem == TORN:
            if self._must_end and not self._ended:
                yield self._finding("cut_tail", "the last line is cut off", self._state.next + len(self._lines))
            elif self._ended:
                yield self._finding("added_line", "a line after the end of the segment")
        elif line.problem == TOO_LONG:
            yield self._finding("unreadable_line", "the line is too long")
        else:
            yield self._finding("damaged_file", line.problem)

    def _finish(self) -> Iterator[AuditFinding]:
        if self._ended:
            return
        yield from self._wrong_digests()
        self._state.digest = None
        yield from self._foreign
        if self._must_end:
            after = self._state.next + len(self._lines)
            text = f"the end of the segment is missing, with all records from {after} on"
            yield self._finding("cut_tail", text, after)
        for line in self._lines:
            if line.seq is None:
                yield AuditFinding("unreadable_line", self._name, "the line cannot be read", line.number)
            elif line.seq != self._state.next:
                yield AuditFinding(
                    "missing_line", self._name, f"the line in the place of record {self._state.next} names itself "
                    f"{line.seq}", line.number, self._state.next,
                )  # fmt: skip
            self._state.next = self._state.next + 1 if line.seq is None else line.seq + 1
        self._counts.unproven += len(self._lines)

    def _unproven(self, where: str) -> Iterator[AuditFinding]:
        for line in self._lines:
            name = "a line" if line.seq is None else f"record {line.seq}"
            yield AuditFinding("added_line", self._name, f"{name} is {where}", line.number, line.seq)
        self._lines = []

    def _finding(self, kind: str, message: str, seq: int | None = None) -> AuditFinding:
        return AuditFinding(kind, self._name, message, self._last_line, seq)  # type: ignore[arg-type]


def record_head(line: bytes) -> RecordHead | None:
    """Return the fields that the verification reads; None for a line that cannot be read."""
    try:
        return _LINE.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _bytes(digest: str) -> bytes:
    try:
        return bytes.fromhex(digest)
    except ValueError:
        return b""
