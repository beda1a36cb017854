"""Instances that a start finds in the audit folder. Its record names them, so that none can be taken away unseen.

Only complete segments count: they are on disk for good.
"""

from __future__ import annotations

import time
import zlib
from pathlib import Path
from typing import Final

import msgspec
import zstandard

from pdp.audit.chain import SEGMENT_END, EndLine
from pdp.audit.segments import SegmentFile, segment_files

MOST_NAMED: Final = 100
"""Newest instances that a start names. Older ones are named by earlier starts."""
READ_SECONDS: Final = 0.5
"""Longest time for which a start reads the ends of compressed segments. Others have no end in its record."""
_PART: Final = 1 << 20
_TAIL: Final = 1 << 12
_END: Final = msgspec.json.Decoder(EndLine)


class KnownInstance(msgspec.Struct, frozen=True):
    """An instance in an audit folder, and its newest complete segment: the number, the last `seq`, and the digest.

    The digest is empty if the end of the segment was not read.
    """

    instance: str
    number: int
    seq: int = -1
    digest: str = ""


def known_instances(folder: Path) -> list[KnownInstance]:
    """Return the newest instances with complete segments; none if nobody can tell."""
    try:
        files = segment_files(folder)
    except OSError:
        return []
    newest = {file.instance: file for file in files if file.complete and file.number}
    deadline = time.monotonic() + READ_SECONDS
    chosen = [newest[instance] for instance in sorted(newest)[-MOST_NAMED:]]
    return [_known(file, deadline) for file in reversed(chosen)][::-1]


def _known(file: SegmentFile, deadline: float) -> KnownInstance:
    try:
        end = _END.decode(_last_line(file, deadline))
    except (OSError, EOFError, ValueError, zlib.error, zstandard.ZstdError):
        return KnownInstance(file.instance, file.number)
    return KnownInstance(file.instance, file.number, end.seq, end.digest)


def _last_line(file: SegmentFile, deadline: float) -> bytes:
    """Return the last line of a file if that is an end line; raise ValueError if not, or if there is no time."""
    tail = b""
    with file.open() as stream:
        if not file.compressed:
            stream.seek(max(0, file.path.stat().st_size - _TAIL))
        while part := stream.read(_PART):
            tail = (tail + part)[-_TAIL:]
            if file.compressed and time.monotonic() > deadline:
                raise ValueError("no time")
    line = tail.rstrip(b"\n").rpartition(b"\n")[2]
    if not line.startswith(f'{{"event":"{SEGMENT_END}"'.encode()):
        raise ValueError("no end line")
    return line
