"""Plain check of the segments of an audit folder, written again from their description."""

from __future__ import annotations

import hashlib
import hmac
import json
import zlib
from pathlib import Path
from typing import Any

from support.oracles.audit_files import records_in

from pdp.audit.files.segments import SegmentFile, segment_files


def check_segments(folder: Path, key: bytes = b"") -> dict[str, list[dict[str, Any]]]:
    """Return all records of a folder by instance; raise AssertionError if a chain or an order does not hold.

    The newest segment of an instance may be open. Then its text ends after a chain line.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    digests: dict[str, str] = {}
    for file in segment_files(folder):
        records = found.setdefault(file.instance, [])
        previous = digests.get(file.instance, "")
        digests[file.instance] = check_segment(file, previous, len(records), key)
        records += records_in([file])
    for records in found.values():
        assert [record["seq"] for record in records] == list(range(len(records)))
    return found


def check_segment(file: SegmentFile, previous: str, seq: int, key: bytes = b"") -> str:
    """Check one segment; return the digest at its end."""
    with file.open() as stream:
        lines = stream.read().splitlines(keepends=True)
    head, *rest = lines
    header = json.loads(head)
    assert (header["event"], header["instance"], header["number"]) == ("segment", file.instance, file.number)
    assert (header["previous"], header["seq"]) == (previous, seq)
    digest, unproven, records = bytes.fromhex(previous), [head], 0
    for line in rest:
        entry = json.loads(line)
        if entry["event"] == "chain":
            text = b"".join([*unproven, line[: line.rindex(b'"digest":"') + 10]])
            digest = digest_of(digest, text, key)
            own = [one for one in unproven if one is not head]
            records += len(own)
            assert (entry["records"], entry["seq"]) == (len(own), seq + records - 1)
            assert entry["crc"] == [zlib.crc32(one) for one in own]
            assert entry["digest"] == digest.hex()
            unproven = []
        elif entry["event"] == "segment_end":
            assert not unproven
            assert line is rest[-1]
            assert (entry["records"], entry["seq"]) == (records, seq + records - 1)
            digest = digest_of(digest, line[: line.rindex(b'"digest":"') + 10], key)
            assert entry["digest"] == digest.hex()
        else:
            unproven.append(line)
    assert not unproven
    assert file.complete == (json.loads(rest[-1])["event"] == "segment_end")
    return digest.hex()


def digest_of(previous: bytes, text: bytes, key: bytes) -> bytes:
    if key:
        return hmac.new(key, previous + text, hashlib.sha256).digest()
    return hashlib.sha256(previous + text).digest()
