"""Hash chain of an audit: the lines of a segment that are no records, and the digests in them.

Pure: knows texts and digests, and no file. A segment begins with a header, has a chain line after each write, and ends
with an end line:

- The digest of a chain line is that of the digest before, as 32 bytes (nothing for the first segment of an instance),
  of the bytes of all lines since the line with that digest (records, and the header in the first write), and of the
  text of the chain line up to its own digest. So no mark of a chain line can be taken away.
- The digest of an end line covers the digest before and the text of the end line up to its own digest. So no chain line
  can be passed off as an end. An end line directly follows a chain line.
- The header of the next segment names the digest of the end line before. Its first chain line starts from there.

With a key, each digest is an HMAC-SHA-256, else a SHA-256.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import Final
from zlib import crc32

import msgspec

from pdp.audit.records.inputs import quote
from pdp.audit.records.schema import SCHEMA

SEGMENT: Final = "segment"
CHAIN: Final = "chain"
SEGMENT_END: Final = "segment_end"
CONTROL_EVENTS: Final = frozenset({SEGMENT, CHAIN, SEGMENT_END})
"""`event` of the lines that are no records."""
CONTROL_STARTS: Final = tuple(f'{{"event":"{event}"'.encode() for event in sorted(CONTROL_EVENTS))
"""Starts of these lines."""
_KEY_ID: Final = 16
_PIECE: Final = 2047
"""Most bytes that are hashed without a release of the interpreter."""
_LONG: Final = 64 << 10


class ChainHash:
    """Hash function of a chain, with or without a key."""

    def __init__(self, key: bytes = b"") -> None:
        self._key = key
        self.key_id = hashlib.sha256(b"pdp audit chain " + key).hexdigest()[:_KEY_ID] if key else ""
        """Name of the key in the header of a segment: tells a reader which key to take, and nothing of the key."""

    def of(self, previous: bytes, text: bytes) -> bytes:
        """Return the digest of a text behind the digest of everything before. Long texts release the interpreter."""
        state = hmac.new(self._key, previous, hashlib.sha256) if self._key else hashlib.sha256(previous)
        if len(text) < _LONG:
            # to release the interpreter and to get it back takes longer than to hash so little
            for at in range(0, len(text), _PIECE):
                state.update(text[at : at + _PIECE])
        else:
            state.update(text)
        return state.digest()


class SegmentHead(msgspec.Struct, frozen=True):
    """Header of a segment. `seq` is that of its first record; `previous` is the digest of the segment before."""

    instance: str
    number: int
    seq: int
    time: str
    previous: bytes = b""
    key_id: str = ""

    def line(self) -> bytes:
        """Return the line of the header."""
        key = f',"key":"{self.key_id}"' if self.key_id else ""
        return (
            f'{{"event":"{SEGMENT}","schema":{SCHEMA},"instance":{quote(self.instance)},"number":{self.number},'
            f'"seq":{self.seq},"time":"{self.time}","previous":"{self.previous.hex()}"{key}}}\n'
        ).encode()


class ChainLine(msgspec.Struct, frozen=True):
    """Chain line as read. `seq` is that of the last record before, `crc` has the CRC-32 of each record's line.

    `recovered`: a later start wrote the line. Anybody can have written the records.
    """

    records: int
    seq: int
    digest: str
    crc: list[int] = []
    recovered: bool = False


class EndLine(msgspec.Struct, frozen=True):
    """End line as read. `recovered`: a later start closed the segment of a process that was killed.

    `unproven`: from this record on, the later start found no proof.
    """

    records: int
    seq: int
    time: str
    digest: str
    recovered: bool = False
    unproven: int | None = None


class SegmentClosing(msgspec.Struct, frozen=True):
    """Closing of a segment by a later start. `unproven` is the first record without a proof, None without any."""

    unproven: int | None = None

    def marks(self) -> str:
        """Return the fields of an end line."""
        return ',"recovered":true' + ("" if self.unproven is None else f',"unproven":{self.unproven}')


def chain_line(
    hash: ChainHash, previous: bytes, header: bytes, lines: Sequence[bytes], seq: int, *, recovered: bool = False
) -> tuple[tuple[bytes, bytes], bytes]:
    """Return the text of a write with its chain line, and the digest. `seq` is that of the last record.

    The text has two parts, since one text would copy all lines again: what the digest covers, and the rest.
    """
    checksums = ",".join(map(str, map(crc32, lines)))
    mark = ',"recovered":true' if recovered else ""
    start = f'{{"event":"{CHAIN}","records":{len(lines)},"seq":{seq},"crc":[{checksums}]{mark},"digest":"'
    text = b"".join([header, *lines, start.encode()])
    digest = hash.of(previous, text)
    return (text, digest.hex().encode() + b'"}\n'), digest


def end_line(
    hash: ChainHash, previous: bytes, records: int, seq: int, time: str, closing: SegmentClosing | None = None
) -> tuple[bytes, bytes]:
    """Return the end line of a segment of so many records, and its digest. `seq` is that of the last record."""
    marks = closing.marks() if closing else ""
    text = f'{{"event":"{SEGMENT_END}","records":{records},"seq":{seq},"time":"{time}"{marks},"digest":"'.encode()
    digest = hash.of(previous, text)
    return text + digest.hex().encode() + b'"}\n', digest


def line_digest(hash: ChainHash, previous: bytes, text: bytes) -> bytes:
    """Return the digest that the last line of a text must have: a chain line behind its lines, or an end line."""
    before, mark, _ = text.rpartition(b'"digest":"')
    return hash.of(previous, before + mark)
