"""Files of the history of facts: their names, and the bytes of their lines. Knows no thread and no lock.

`<audit>/facts/<epoch>/snapshot-<sequence>.jsonl.gz` has all facts of one revision, as changes from nothing:

    {"event": "facts_snapshot", "schema": 1, "epoch": ..., "sequence": 7, "instance": ..., "time": ...}
    [{"type": "put", "object": {...}}, {"type": "add", "grant": {...}}, ...]
    {"changes": 3, "digest": "..."}

`changes-<sequence>.jsonl` has the revisions after that one. Its first line is a head, each further line a revision:

    {"event": "facts_changes", "schema": 1, "epoch": ..., "previous": "...", "digest": "...", "sequence": 7}
    {"time": ..., "actor": "user:oidc~alice", "changes": [...], "token": "...", "digest": "...", "sequence": 8}

`token` is the random token of the revision in the store's log; lines of older versions have none. `digest` is the
SHA-256 of the digest before and of the line up to its own digest. A file that follows another without a gap names the
last digest of the other as `previous`: an edited, moved or missing line breaks the chain.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import msgspec

from pdp.audit.records.writing import timestamp
from pdp.facts.objects import Change
from pdp.facts.snapshot import Facts

FOLDER: Final = "facts"
"""Folder of the history inside an audit folder."""
SCHEMA: Final = 1
SNAPSHOT_EVENT: Final = "facts_snapshot"
CHANGES_EVENT: Final = "facts_changes"
CHANGES_PER_LINE: Final = 500
"""Changes of a line of a snapshot, and those that are encoded in one go: a long call holds up all other threads."""
_EPOCH: Final = re.compile(r"[0-9a-z]{1,64}")
_NAME: Final = re.compile(r"(snapshot|changes)-(\d{12,19})\.jsonl(\.gz)?")
_TAIL: Final = re.compile(rb'(?:,"token":"([0-9a-f]{0,64})")?(,"digest":"([0-9a-f]{64})","sequence":(\d{1,19})\}\n)\Z')
TAIL_BYTES: Final = 256
"""Bytes that hold the token, the digest and the sequence at the end of any line of changes."""
_ENCODER: Final = msgspec.json.Encoder()


class Seal(NamedTuple):
    """End of a line of changes: its digest, its revision, the bytes before the two, and the token before those."""

    digest: str
    sequence: int
    length: int
    token: str


class SnapshotHead(msgspec.Struct, frozen=True):
    """First line of a snapshot."""

    event: str
    schema: int
    epoch: str
    sequence: int
    instance: str
    time: str
    token: str = ""


class SnapshotEnd(msgspec.Struct, frozen=True):
    """Last line of a snapshot: the number of changes, and the digest of all bytes before."""

    changes: int
    digest: str


class ChangesHead(msgspec.Struct, frozen=True):
    """First line of a file of changes, without its seal. `previous` is empty after a gap."""

    event: str
    schema: int
    epoch: str
    instance: str
    time: str
    previous: str
    token: str = ""


class RecordedRevision(msgspec.Struct, frozen=True):
    """One revision of the history, as `StoredRevision` has it. An unknown `token` is empty."""

    sequence: int
    time: float
    actor: str
    changes: tuple[Change, ...]
    token: str = ""


class StoredRevision(Protocol):
    """Revision in the log of a store, with the same fields."""

    @property
    def sequence(self) -> int:
        """Return the number of the revision."""

    @property
    def time(self) -> float:
        """Return the time in seconds since 1970."""

    @property
    def actor(self) -> str:
        """Return the writer, as it named itself."""

    @property
    def changes(self) -> tuple[Change, ...]:
        """Return the changes, in order."""

    @property
    def token(self) -> str:
        """Return the random token."""


class RevisionLine(msgspec.Struct, frozen=True):
    """Line of a revision, without its seal."""

    time: float
    actor: str
    changes: tuple[Change, ...]


class FactFiles(NamedTuple):
    """Files of one epoch: snapshots and changes by the revision that their names have, in order."""

    snapshots: dict[int, Path]
    changes: dict[int, Path]


def epoch_folder(audit: Path, epoch: str) -> Path | None:
    """Return the folder of an epoch inside an audit folder; None for a text that names no epoch."""
    return audit / FOLDER / epoch if _EPOCH.fullmatch(epoch) else None


def snapshot_name(sequence: int) -> str:
    """Return the name of the snapshot of a revision."""
    return f"snapshot-{sequence:012}.jsonl.gz"


def changes_name(sequence: int) -> str:
    """Return the name of the changes after a revision."""
    return f"changes-{sequence:012}.jsonl"


def list_files(folder: Path) -> FactFiles:
    """Return the files of an epoch; none if there is no folder. Raise OSError for an unreadable one."""
    found = FactFiles({}, {})
    if folder.is_dir():
        matches = [(match, path) for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))]
        for match, path in sorted(matches, key=lambda each: int(each[0][2])):
            if (match[1] == "snapshot") == bool(match[3]):
                (found.snapshots if match[3] else found.changes)[int(match[2])] = path
    return found


def seal(body: bytes, previous: str, sequence: int) -> tuple[bytes, str]:
    """Return a line from its bytes without the closing brace, and the digest of the line."""
    digest = sha256(previous.encode() + body).hexdigest()
    return b'%s,"digest":"%s","sequence":%d}\n' % (body, digest.encode(), sequence), digest


def read_seal(line: bytes) -> Seal | None:
    """Return the seal of a line, or of the last bytes of a line; None for a line without."""
    match = _TAIL.search(line, max(0, len(line) - TAIL_BYTES))
    return Seal(match[3].decode(), int(match[4]), match.start(2), (match[1] or b"").decode()) if match else None


def encode_head(head: ChangesHead, sequence: int) -> tuple[bytes, str]:
    """Return the first line of a file of changes, and its digest."""
    return seal(_ENCODER.encode(head)[:-1], head.previous, sequence)


def encode_revision(revision: StoredRevision, previous: str) -> tuple[bytes, str]:
    """Return the line of a revision, and its digest."""
    head = _ENCODER.encode({"time": revision.time, "actor": revision.actor})[:-1]
    parts = [_ENCODER.encode(part)[1:-1] for part in _slices(revision.changes)]
    token = b',"token":"%s"' % revision.token.encode() if revision.token else b""
    return seal(b'%s,"changes":[%s]%s' % (head, b",".join(parts), token), previous, revision.sequence)


def encode_snapshot(facts: Facts, instance: str, seconds: float) -> Iterator[bytes]:
    """Yield the compressed bytes of a snapshot piece by piece, so that no more than a piece is in memory."""
    packer, digest, count = zlib.compressobj(1, zlib.DEFLATED, zlib.MAX_WBITS | 16), sha256(), 0
    named = facts.epoch, facts.sequence, instance, timestamp(seconds), facts.token
    head = SnapshotHead(SNAPSHOT_EVENT, SCHEMA, *named)
    line = _ENCODER.encode(head) + b"\n"
    for part in _slices(facts.as_changes()):
        digest.update(line)
        yield packer.compress(line)
        count += len(part)
        line = _ENCODER.encode(part) + b"\n"
    digest.update(line)
    yield packer.compress(line)
    yield packer.compress(_ENCODER.encode(SnapshotEnd(count, digest.hexdigest())) + b"\n") + packer.flush()


def _slices(changes: Iterable[Change]) -> Iterator[Sequence[Change]]:
    left = iter(changes)
    while part := list(islice(left, CHANGES_PER_LINE)):
        yield part
