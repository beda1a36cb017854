"""Verification of an audit folder: everything that was edited, cut, moved or taken away since it was written.

Reads while services write: a segment that is being written has no end yet, and its last line may be torn. Files without
a chain, of versions before segments, are checked for order and gaps.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from pdp.audit.files.chain import ChainHash
from pdp.audit.files.locks import KnownInstance
from pdp.audit.files.segments import SegmentFile, segment_files, segment_of
from pdp.audit.reader import TORN, TrailLine, open_trail_file, read_bundle_text, trail_files, trail_lines
from pdp.audit.records.schema import DECISION_EVENT, FILTER_EVENT
from pdp.audit.verify.lines import AuditFinding, DuplicateIds, records_text
from pdp.audit.verify.segment import CheckedCounts, InstanceState, RecordHead, SegmentCheck, record_head


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


__all__ = ["AuditFinding", "AuditVerifier", "CheckedCounts", "VerifyOptions"]
_LISTINGS: Final = 5
_DIGEST: Final = re.compile(r"[0-9a-f]{16}")
_PART: Final = 1 << 20


class _StartDetails(msgspec.Struct, frozen=True):
    """Details of the record of a start."""

    audit: tuple[KnownInstance, ...] = ()


_DETAILS: Final = msgspec.json.Decoder(_StartDetails)


class VerifyOptions(msgspec.Struct, frozen=True):
    """Keys of the chain; without any, the chains have none.

    `allow_unproven`: files without a chain, and chains without a key, are no defect. `partial`: instances, and the
    first segments of an instance, may be missing. `allow_recovered`: records that a start found behind the chain of a
    killed process need no proof.
    """

    keys: tuple[bytes, ...] = ()
    allow_unproven: bool = False
    partial: bool = False
    allow_recovered: bool = False

    def hashes(self) -> dict[str, ChainHash]:
        """Return the hashes of chains by the name of the key."""
        keyed = {hash.key_id: hash for hash in map(ChainHash, self.keys)}
        return keyed if self.keys and not self.allow_unproven else {**keyed, "": ChainHash()}


WITHOUT_KEY: Final = VerifyOptions()


def _no_progress(_: int) -> None:
    pass


class AuditVerifier:
    """Verification of one folder; `counts` has its numbers. `progress` is called with the records so far."""

    def __init__(
        self, folder: Path, options: VerifyOptions = WITHOUT_KEY, progress: Callable[[int], None] = _no_progress
    ) -> None:
        self.counts = CheckedCounts()
        self._folder = folder
        self._options = options
        self._progress = progress
        self._ids = DuplicateIds()
        self._named: dict[str, tuple[KnownInstance, str, int]] = {}
        """Instance -> the newest segment that a start names, with the place of the record."""
        self._known_ends: dict[tuple[str, int, str], tuple[KnownInstance, str, int]] = {}
        """Segment and digest -> the first start that names the end of the segment."""
        self._ends: dict[tuple[str, int], str] = {}
        """Segment -> the digest at its end, empty if the end is missing."""
        self._bundles: dict[str, tuple[str, RecordHead, int]] = {}
        """Digest of a bundle -> the first record that names it, with its place."""

    def findings(self) -> Iterator[AuditFinding]:
        """Yield the defects: by file, then those of the whole folder. Raise InvalidArgument if nothing can be read."""
        files = _stable_files(self._folder)
        yield from self._second_files(files)
        for instance, some in groupby(files, lambda file: file.instance):
            self.counts.instances += 1
            yield from self._instance(list(some), instance)
        yield from self._duplicate_ids(files)
        yield from self._missing_instances()
        yield from self._other_ends()
        yield from self._wrong_bundles()

    def _instance(self, files: Sequence[SegmentFile], instance: str) -> Iterator[AuditFinding]:
        options, hashes = self._options, self._options.hashes()
        state = InstanceState(partial=options.partial, allow_recovered=options.allow_recovered)
        for place, file in enumerate(files):
            with closing(open_trail_file(file)) as stream:
                yield from self._file(file, stream, state, hashes, last=place == len(files) - 1)

    def _file(
        self, file: SegmentFile, stream: BinaryIO, state: InstanceState, hashes: Mapping[str, ChainHash], *, last: bool
    ) -> Iterator[AuditFinding]:
        lines = trail_lines(stream)
        if file.number:
            check = SegmentCheck(file, state, hashes, self.counts, self._note, must_end=not last)
            yield from check.findings(lines)
            self._ends[file.instance, file.number] = (state.digest or b"").hex()
            return
        if self._options.keys and not self._options.allow_unproven:
            yield AuditFinding("no_chain", file.path.name, "the file has no chain, so nothing proves its records")
        yield from UnnumberedFileCheck(file, state, self.counts, self._note).findings(lines)

    def _note(self, file: str, head: RecordHead, line: int) -> None:
        """Remember what other records must agree with."""
        if self.counts.records % 1000 == 0:
            self._progress(self.counts.records)
        if head.id:
            self._ids.add(head.id)
        if head.event in {DECISION_EVENT, FILTER_EVENT}:
            digest = head.revision.rpartition(".")[2]
            if digest not in self._bundles:
                self._bundles[digest] = (file, head, line)
        elif head.what == "started":
            for other in _others(head):
                known = self._named.get(other.instance)
                if known is None or known[0].number < other.number:
                    self._named[other.instance] = (other, file, line)
                if other.digest:
                    end = (other.instance, other.number, other.digest)
                    self._known_ends.setdefault(end, (other, file, line))

    # --- whole folder -----------------------------------------------------------------------------------------------

    def _duplicate_ids(self, files: Sequence[SegmentFile]) -> Iterator[AuditFinding]:
        suspects = self._ids.suspects()
        if not suspects:
            return
        first: dict[str, str] = {}
        for file in files:
            with closing(open_trail_file(file)) as stream:
                for line in trail_lines(stream):
                    head = None if line.problem else record_head(line.data)
                    if head is None or not head.id or hash(head.id) not in suspects:
                        continue
                    place = f"{file.path.name}:{line.number}"
                    if first.setdefault(head.id, place) != place:
                        text = f"the id {head.id[:80]} is that of {first[head.id]}"
                        yield AuditFinding("duplicate_id", file.path.name, text, line.number, head.seq)

    def _missing_instances(self) -> Iterator[AuditFinding]:
        """Yield what starts have found in the folder, and what is not there any more.

        The listing is a new one: a segment may have become complete since the first one.
        """
        files = segment_files(self._folder)
        newest = {file.instance: file.number for file in files}
        complete = {file.instance: file.number for file in files if file.complete}
        for other, file, line in self._named.values():
            name = f"`{other.instance[:80]}`"
            if newest.get(other.instance, 0) < other.number and self._options.partial:
                continue
            if other.instance not in newest:
                text = f"the instance {name} is missing, which this start found"
                yield AuditFinding("missing_instance", file, text, line)
            elif newest[other.instance] < other.number:
                text = f"segment {other.number} of the instance {name} is missing, which this start found"
                yield AuditFinding("missing_segment", file, text, line)
            elif complete.get(other.instance, 0) < other.number:
                text = f"segment {other.number} of the instance {name} is open, which this start found complete"
                yield AuditFinding("cut_tail", file, text, line)

    def _other_ends(self) -> Iterator[AuditFinding]:
        """Yield the segments that end otherwise than a start has found them."""
        for other, file, line in self._known_ends.values():
            if self._ends.get((other.instance, other.number)) in {None, "", other.digest}:
                continue  # a segment that is missing or has no end has a finding of its own
            text = (
                f"segment {other.number} of the instance `{other.instance[:80]}` has another end than this start found"
            )
            yield AuditFinding("cut_tail", file, f"{text}, behind record {other.seq}", line)

    def _wrong_bundles(self) -> Iterator[AuditFinding]:
        for digest, (file, head, line) in self._bundles.items():
            if not _DIGEST.fullmatch(digest):
                continue
            text = read_bundle_text(self._folder, digest)
            if text is None:
                message = f"the bundle `{digest}` is missing, on which the record was decided"
                yield AuditFinding("missing_bundle", file, message, line, head.seq)
                continue
            if hashlib.sha256(text).hexdigest()[: len(digest)] != digest:
                yield AuditFinding("edited_bundle", f"bundles/{digest}", "the bundle is not what its name says")

    def _second_files(self, files: Sequence[SegmentFile]) -> Iterator[AuditFinding]:
        """Compare all files of a segment: for a moment, a service has a compressed one beside the old one."""
        chosen = {(file.instance, file.number): file for file in files}
        for other in filter(None, map(segment_of, sorted(self._folder.iterdir()))):
            file = chosen.get((other.instance, other.number))
            if not file or file.path.name == other.path.name:
                continue
            contents = _content(other), _content(file)
            if all(contents) and contents[0] != contents[1]:  # one that is gone had the other name before
                text = f"`{file.path.name}` is the same segment with other lines"
                yield AuditFinding("second_file", other.path.name, text)


def _stable_files(folder: Path) -> list[SegmentFile]:
    """Return the files of a folder. A listing may miss a file that is renamed meanwhile: two in a row must agree."""
    files = trail_files(folder)
    for _ in range(_LISTINGS):
        again = trail_files(folder)
        if [(file.instance, file.number) for file in again] == [(file.instance, file.number) for file in files]:
            return again
        files = again
    return files


def _others(head: RecordHead) -> tuple[KnownInstance, ...]:
    try:
        return _DETAILS.decode(head.details).audit
    except msgspec.ValidationError:
        return ()


def _content(file: SegmentFile) -> bytes:
    """Return a digest of the lines of a file; empty if the file is gone."""
    digest = hashlib.sha256()
    try:
        with file.open() as stream:
            while part := stream.read(_PART):
                digest.update(part)
    except FileNotFoundError:
        return b""
    except (OSError, EOFError):
        return b"damaged"
    return digest.digest()
