"""History of facts in an audit folder, read back: the facts of any revision, without the store.

Owns the search for a revision; `files` owns the form of the files. Never trusts a line whose digest is wrong.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import msgspec

from pdp.audit.facts.files import (
    CHANGES_EVENT,
    SCHEMA,
    SNAPSHOT_EVENT,
    ChangesHead,
    FactFiles,
    RecordedRevision,
    RevisionLine,
    Seal,
    SnapshotEnd,
    SnapshotHead,
    epoch_folder,
    list_files,
    read_seal,
)
from pdp.errors import MissingFacts
from pdp.facts.objects import Change, Grant, GrantAdded, ObjectKey, ObjectPut, RowPolicyPut
from pdp.facts.snapshot import Facts
from pdp.model.revision import Revision

MOST_KEPT: Final = 64
"""Facts that a reader keeps. They share all that did not change in between."""
FAR: Final = 20_000
"""Revisions from which a nearer snapshot is read in place of all changes in between."""
_BLOCK: Final = 1 << 18
_HEAD: Final = msgspec.json.Decoder(ChangesHead)
_REVISION: Final = msgspec.json.Decoder(RevisionLine)
_SNAPSHOT_HEAD: Final = msgspec.json.Decoder(SnapshotHead)
_SNAPSHOT_END: Final = msgspec.json.Decoder(SnapshotEnd)
_CHANGES: Final = msgspec.json.Decoder(list[Change])


class FactsHistory:
    """Reader of the history of facts in an audit folder. A running service may go on writing."""

    def __init__(self, audit: Path) -> None:
        self._audit = audit
        self._epochs: dict[str, _EpochHistory] = {}

    def at(self, revision: Revision) -> Facts:
        """Return the facts of a revision. The next later revision costs the changes in between.

        Raise MissingFacts if the folder does not have the facts of the revision.
        """
        facts = self._epoch(revision.epoch).at(revision.sequence)
        if revision.token and facts.token and revision.token != facts.token:
            raise MissingFacts(
                f"facts of the epoch `{revision.epoch}` are of another history",
                f"{facts.revision()} is in the folder in place of {revision._replace(digest='')}",
            )
        return facts

    def epochs(self) -> list[str]:
        """Return the epochs that the folder has, in order of their names."""
        folder = epoch_folder(self._audit, "0")
        assert folder
        if not folder.parent.is_dir():
            return []
        return sorted(path.name for path in folder.parent.iterdir() if epoch_folder(self._audit, path.name) == path)

    def revisions(self, epoch: str) -> Iterator[RecordedRevision]:
        """Yield all revisions of an epoch that the folder has, in order; raise MissingFacts for an unreadable line."""
        return self._epoch(epoch).revisions()

    def _epoch(self, epoch: str) -> _EpochHistory:
        known = self._epochs.get(epoch)
        if known is None:
            folder = epoch_folder(self._audit, epoch)
            if folder is None or not folder.is_dir():
                raise MissingFacts(f"no facts of the epoch `{epoch}`", "the folder has none")
            known = self._epochs[epoch] = _EpochHistory(folder, epoch)
        return known


class _Position(NamedTuple):
    """Facts of a revision, and the end of its line: the file by its first revision, and the bytes before the end."""

    facts: Facts
    file: int
    offset: int
    digest: str


class _EpochHistory:
    """Reader of one epoch."""

    def __init__(self, folder: Path, epoch: str) -> None:
        self._folder = folder
        self._epoch = epoch
        self._kept: OrderedDict[int, _Position] = OrderedDict()
        """Newest facts asked for, by revision."""
        self._snapshot: Facts | None = None
        """The snapshot that was read last."""

    def at(self, sequence: int) -> Facts:
        position = self._kept.get(sequence)
        if position is None:
            position = self._find(sequence)
            self._kept[sequence] = position
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(sequence)
        return position.facts

    def revisions(self) -> Iterator[RecordedRevision]:
        files = list_files(self._folder)
        last = -1
        for start in sorted(files.changes):
            for line in self._lines(files, start, 0, ""):
                if line.seal.sequence > last and line.seal.sequence > start:
                    last = line.seal.sequence
                    yield line.revision()

    def _find(self, sequence: int) -> _Position:
        """Return the facts of a revision, from the nearest kept facts or the nearest snapshot before."""
        files = list_files(self._folder)
        snapshot = max((start for start in files.snapshots if start <= sequence), default=None)
        kept = max((known for known in self._kept if known <= sequence), default=None)
        if kept is not None and (snapshot is None or snapshot - kept < FAR):
            try:
                return self._advance(self._kept[kept], sequence, files)
            except MissingFacts:
                if snapshot is None or snapshot <= kept:
                    raise
        if snapshot is None:
            raise MissingFacts(
                f"no snapshot of the epoch `{self._epoch}` is old enough", f"revision {self._epoch}.{sequence}"
            )
        if self._snapshot is None or self._snapshot.sequence != snapshot:
            self._snapshot = _read_snapshot(files.snapshots[snapshot], self._epoch, snapshot)
        return self._advance(_Position(self._snapshot, snapshot, 0, ""), sequence, files)

    def _advance(self, position: _Position, sequence: int, files: FactFiles) -> _Position:
        """Return the facts of a later revision."""
        facts, file, offset, digest = position
        changes: list[Change] = []
        now, token = facts.sequence, facts.token
        while now < sequence:
            for line in self._lines(files, file, offset, digest):
                if line.seal.sequence > now + 1:
                    break
                offset, digest = line.end, line.seal.digest
                if line.seal.sequence == now + 1:
                    changes += line.revision().changes
                    now, token = now + 1, line.seal.token
                    if now == sequence:
                        break
            if now < sequence:
                # the next file follows without a gap, or does not follow at all
                if now <= file or now not in files.changes:
                    raise MissingFacts(
                        f"changes of the epoch `{self._epoch}` are missing",
                        f"revision {self._epoch}.{now + 1} and later",
                    )
                file, offset = now, 0
        return _Position(facts.apply(sequence, changes, token) if changes else facts, file, offset, digest)

    def _lines(self, files: FactFiles, file: int, offset: int, digest: str) -> Iterator[_Line]:
        """Yield the lines of a file behind an offset. `digest` is that of the line before, if known."""
        path = files.changes.get(file)
        if path is None:
            return
        try:
            with path.open("rb") as stream:
                stream.seek(offset)
                yield from self._read(stream, path, offset, digest)
        except OSError as error:
            raise MissingFacts("changes cannot be read", f"{path.name}: {error.strerror}") from None

    def _read(self, stream: BinaryIO, path: Path, offset: int, digest: str) -> Iterator[_Line]:
        end, is_head = offset, offset == 0
        while (text := stream.readline()).endswith(b"\n"):  # a line without an end is still being written
            end += len(text)
            seal, place = read_seal(text), f"{path.name} at byte {end - len(text)}"
            if seal is None:
                raise MissingFacts("a line of changes is damaged", place)
            if is_head:
                previous = self._head(text, seal, place).previous
                if digest not in ("", previous):
                    raise MissingFacts("a line of changes is damaged", f"{place}: it does not follow the file before")
                digest = previous
            if sha256(digest.encode() + text[: seal.length]).hexdigest() != seal.digest:
                raise MissingFacts("a line of changes is damaged", f"{place}: its digest is another")
            digest = seal.digest
            yield _Line(text, seal, end, place)
            is_head = False

    def _head(self, text: bytes, seal: Seal, place: str) -> ChangesHead:
        try:
            head = _HEAD.decode(text[: seal.length] + b"}")
        except msgspec.MsgspecError as error:
            raise MissingFacts("a line of changes is damaged", f"{place}: {error}") from None
        if (head.event, head.schema) != (CHANGES_EVENT, SCHEMA):
            raise MissingFacts(f"changes of schema {head.schema}, this version reads {SCHEMA}", place)
        if head.epoch != self._epoch:
            raise MissingFacts("changes are of another epoch", f"{place}: `{head.epoch}`")
        return head


class _Line(NamedTuple):
    """Line of changes: the head of a file, or a revision. `end` is the offset behind the line."""

    text: bytes
    seal: Seal
    end: int
    place: str

    def revision(self) -> RecordedRevision:
        """Return the revision of the line; raise MissingFacts."""
        try:
            line = _REVISION.decode(self.text[: self.seal.length] + b"}")
        except msgspec.MsgspecError as error:
            raise MissingFacts("a line of changes is damaged", f"{self.place}: {error}") from None
        return RecordedRevision(self.seal.sequence, line.time, line.actor, line.changes, self.seal.token)


def _read_snapshot(path: Path, epoch: str, sequence: int) -> Facts:
    """Return the facts of a snapshot; raise MissingFacts if it is damaged."""
    try:
        with path.open("rb") as file:
            lines = _snapshot_lines(file)
            head = _SNAPSHOT_HEAD.decode(next(lines, b""))
            if (head.event, head.schema) != (SNAPSHOT_EVENT, SCHEMA):
                raise MissingFacts(f"a snapshot of schema {head.schema}, this version reads {SCHEMA}", path.name)
            if (head.epoch, head.sequence) != (epoch, sequence):
                raise MissingFacts("a snapshot is of another revision", f"{path.name}: {head.epoch}.{head.sequence}")
            changes = (change for line in lines for change in _CHANGES.decode(line))
            return replace(build_facts(epoch, sequence, changes), token=head.token)
    except OSError as error:
        raise MissingFacts("a snapshot cannot be read", f"{path.name}: {error.strerror}") from None
    except (msgspec.MsgspecError, zlib.error) as error:
        raise MissingFacts("a snapshot is damaged", f"{path.name}: {error}") from None


def _snapshot_lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a compressed snapshot but the last one; raise MissingFacts if that does not fit the others."""
    digest, pending = sha256(), b""
    for line in _decompressed_lines(file):
        if pending:
            digest.update(pending)
            yield pending
        pending = line
    end = _SNAPSHOT_END.decode(pending)
    if end.digest != digest.hexdigest():
        raise MissingFacts("a snapshot is damaged", "its digest is another")


def _decompressed_lines(file: BinaryIO) -> Iterator[bytes]:
    unpacker, rest = zlib.decompressobj(zlib.MAX_WBITS | 16), b""
    while block := file.read(_BLOCK):
        *lines, rest = (rest + unpacker.decompress(block)).split(b"\n")
        yield from (line + b"\n" for line in lines)
    if not unpacker.eof or rest:
        raise MissingFacts("a snapshot is damaged", "its end is missing")


def build_facts(epoch: str, sequence: int, changes: Iterable[Change]) -> Facts:
    """Return the facts that changes make from nothing. Equal keys and names share memory.

    Raise MissingFacts if the changes are no objects and row policies and then grants.
    """
    return Facts.from_changes(epoch, sequence, _shared(iter(changes)))


def _shared(changes: Iterator[Change]) -> Iterator[Change]:
    """Yield changes in which equal keys and names share memory; raise MissingFacts as `build_facts` does."""
    for change in changes:
        if isinstance(change, GrantAdded):
            yield from map(GrantAdded, _shared_grants(change.grant, changes))
        elif isinstance(change, ObjectPut | RowPolicyPut):
            yield change
        else:
            raise MissingFacts("a snapshot is damaged", "it removes something")


def _shared_grants(first: Grant, changes: Iterable[Change]) -> Iterator[Grant]:
    texts: dict[str, str] = {}
    last: ObjectKey = ("", ())

    def share(grant: Grant) -> Grant:
        nonlocal last
        if grant.object != last:
            last = grant.object
        share = texts.setdefault
        return Grant(last, share(grant.privilege, grant.privilege), share(grant.principal, grant.principal), grant.id)

    yield share(first)
    for change in changes:
        if not isinstance(change, GrantAdded):
            raise MissingFacts("a snapshot is damaged", "an object follows the grants")
        yield share(change.grant)
