"""Audit folders for tests: written by the product from a plan, and corrupted in every way that an attacker has."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from random import Random
from zlib import crc32

from hypothesis import strategies as st
from uuid_utils import uuid7

from pdp.audit.files.chain import ChainHash
from pdp.audit.files.folder import AuditFolder, SegmentForm
from pdp.audit.files.segments import SegmentFile, segment_files

KEY = b"a key of the chain of audits"


@dataclass
class InstancePlan:
    """One start of a service: for each segment, the number of records of each write."""

    segments: Sequence[Sequence[int]]
    killed: bool = False
    torn: bytes = b""
    """What a killed process left of its last line."""


def _segments(least: int) -> st.SearchStrategy[list[list[int]]]:
    return st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=4), min_size=least, max_size=3)


plans = st.lists(
    st.builds(
        InstancePlan, _segments(1), st.booleans(), st.sampled_from([b"", b'{"event":"decision","sch', b"\xff\0", b"{}"])
    ),
    min_size=1,
    max_size=3,
)


@dataclass
class WrittenAudit:
    """Audit that was written to `folder`."""

    folder: Path
    key: bytes = b""
    ids: list[str] = field(default_factory=list)

    def files(self) -> list[SegmentFile]:
        return segment_files(self.folder)

    def complete(self) -> list[SegmentFile]:
        return [file for file in self.files() if file.complete]


def record_line(instance: str, seq: int, **fields: object) -> bytes:
    """Return the line of a record."""
    record = {
        "event": "refusal", "schema": 1, "id": str(uuid7()), "instance": instance, "seq": seq,
        "time": f"2026-01-31T12:00:{seq % 60:02}.000000Z", "surface": "http", "status": "403", "code": "forbidden",
    }  # fmt: skip
    return json.dumps(record | fields, separators=(",", ":")).encode() + b"\n"


def write_audit(folder: Path, plans: Sequence[InstancePlan], key: bytes = b"") -> WrittenAudit:
    """Write the audit of several starts; no start closes what a killed one has left."""
    audit = WrittenAudit(folder, key)
    for plan in plans:
        write_instance(audit, plan)
    return audit


def write_instance(audit: WrittenAudit, plan: InstancePlan) -> str:
    """Write the audit of one start; return its name."""
    elsewhere = audit.folder / "new"
    instance, seq = uuid7().hex, 0
    folder = AuditFolder(elsewhere, instance, SegmentForm(hash=ChainHash(audit.key)))
    for place, writes in enumerate(plan.segments):
        for count in writes:
            lines = [record_line(instance, seq + row) for row in range(count)]
            audit.ids += [json.loads(line)["id"] for line in lines]
            folder.append(lines)
            seq += count
        if place < len(plan.segments) - 1 or not plan.killed:
            folder.rotate()
    folder.close()
    for file in segment_files(elsewhere):
        if not file.complete:
            with file.path.open("ab") as stream:
                stream.write(plan.torn)
        file.path.rename(audit.folder / file.path.name)
    return instance


@dataclass
class Corruption:
    """A change of an audit: the file, and the line and `seq` that a verification must name, if there is one."""

    file: SegmentFile
    kind: str = ""
    line: int = 0
    seq: int | None = None


class Corruptor:
    """Changes of one complete segment."""

    def __init__(self, audit: WrittenAudit, random: Random) -> None:
        self.audit = audit
        self.random = random
        self.file = random.choice(audit.complete())
        self.lines = self.file.path.read_bytes().splitlines(keepends=True)
        events = [json.loads(line)["event"] for line in self.lines]
        self.records = [row for row, event in enumerate(events) if event == "refusal"]
        self.chains = [row for row, event in enumerate(events) if event == "chain"]

    def put(self) -> None:
        self.file.path.write_bytes(b"".join(self.lines))

    def seq(self, row: int) -> int:
        return int(json.loads(self.lines[row])["seq"])

    def edited(self, line: bytes) -> bytes:
        """Return a line with another byte, in any place but the end."""
        at = self.random.randrange(len(line) - 1)
        byte = self.random.choice([each for each in range(256) if each not in {line[at], 10}])
        return line[:at] + bytes([byte]) + line[at + 1 :]


def edit_line(it: Corruptor) -> Corruption:
    row = it.random.choice(it.records)
    found = Corruption(it.file, "edited_line", row + 1, it.seq(row))
    it.lines[row] = it.edited(it.lines[row])
    it.put()
    return found


def edit_field(it: Corruptor) -> Corruption:
    row = it.random.choice(it.records)
    found = Corruption(it.file, "edited_line", row + 1, it.seq(row))
    it.lines[row] = it.lines[row].replace(b'"403"', b'"200"')
    it.put()
    return found


def edit_line_with_checksum(it: Corruptor) -> Corruption:
    """The attacker knows the format, but computes no digest."""
    row = it.random.choice(it.records)
    chain = next(place for place in it.chains if place > row)
    fields = json.loads(it.lines[chain])
    new = it.lines[row].replace(b"forbidden", b"permitted")
    old = crc32(it.lines[row])
    fields["crc"] = [crc32(new) if each == old else each for each in fields["crc"]]
    it.lines[row], it.lines[chain] = new, json.dumps(fields, separators=(",", ":")).encode() + b"\n"
    it.put()
    return Corruption(it.file, "edited_chain", chain + 1, fields["seq"])


def drop_line(it: Corruptor) -> Corruption:
    row = it.random.choice(it.records)
    found = Corruption(it.file, "missing_line", row + 1, it.seq(row))
    del it.lines[row]
    it.put()
    return found


def drop_write(it: Corruptor) -> Corruption:
    """Take away the lines of a write with their chain line."""
    at = it.random.randrange(len(it.chains))
    start = it.chains[at - 1] + 1 if at else 1
    found = Corruption(it.file, seq=it.seq(start))
    del it.lines[start : it.chains[at] + 1]
    it.put()
    return found


def drop_chain(it: Corruptor) -> Corruption:
    row = it.random.choice(it.chains)
    del it.lines[row]
    it.put()
    return Corruption(it.file)


def drop_header(it: Corruptor) -> Corruption:
    del it.lines[0]
    it.put()
    return Corruption(it.file, line=1)


def drop_end(it: Corruptor) -> Corruption:
    del it.lines[-1]
    it.put()
    return Corruption(it.file, "cut_tail")


def cut(it: Corruptor) -> Corruption:
    text = b"".join(it.lines)
    it.file.path.write_bytes(text[: it.random.randrange(len(text))])
    return Corruption(it.file)


def swap_lines(it: Corruptor) -> Corruption:
    if len(it.records) < 2:
        return drop_line(it)
    one, other = it.random.sample(it.records, 2)
    it.lines[one], it.lines[other] = it.lines[other], it.lines[one]
    it.put()
    return Corruption(it.file)


def repeat_line(it: Corruptor) -> Corruption:
    row = it.random.choice(it.records)
    at = it.random.choice(it.records)
    it.lines.insert(at, it.lines[row])
    it.put()
    return Corruption(it.file)


def add_line(it: Corruptor) -> Corruption:
    row = it.random.randrange(1, len(it.lines) + 1)
    it.lines.insert(row, record_line(it.file.instance, it.random.randrange(100), code="added"))
    it.put()
    return Corruption(it.file, "added_line", row + 1)


def edit_chain(it: Corruptor) -> Corruption:
    """Change a digest, or a number in a chain line or the end line."""
    row = it.random.choice([*it.chains, len(it.lines) - 1])
    fields = json.loads(it.lines[row])
    name = it.random.choice(["digest", "records", "seq", "crc"] if row in it.chains else ["digest", "records", "seq"])
    if name == "digest":
        fields["digest"] = sha256(fields["digest"].encode()).hexdigest()
    elif name == "crc":
        fields["crc"][it.random.randrange(len(fields["crc"]))] ^= 1
    else:
        fields[name] += it.random.choice([-1, 1, 1000])
    it.lines[row] = json.dumps(fields, separators=(",", ":")).encode() + b"\n"
    it.put()
    return Corruption(it.file)


def edit_header(it: Corruptor) -> Corruption:
    it.lines[0] = it.edited(it.lines[0])
    it.put()
    return Corruption(it.file, line=1)


def move_line(it: Corruptor) -> Corruption:
    """Move a record to another write, or to another place of its write."""
    if len(it.records) < 2:
        return drop_line(it)
    row, at = it.random.sample(it.records, 2)
    it.lines.insert(at, it.lines.pop(row))
    it.put()
    return Corruption(it.file)


def open_names(file: SegmentFile) -> list[str]:
    """Return the name of a segment that is being written, and the one of earlier versions."""
    complete = f"decisions-{file.instance}-{file.number:06d}"
    return [f"{complete}.open", f".{complete}.jsonl"]


def reopen(it: Corruptor) -> Corruption:
    """Cut a complete segment behind a chain line, and pass it off as one that a killed process left."""
    it.lines = it.lines[: it.random.choice(it.chains) + 1]
    it.file.path.unlink()
    it.file = SegmentFile(
        it.file.path.with_name(it.random.choice(open_names(it.file))), it.file.instance, it.file.number, False
    )
    it.put()
    return Corruption(it.file)


CORRUPTIONS: Sequence[Callable[[Corruptor], Corruption]] = (
    edit_line, edit_field, edit_line_with_checksum, drop_line, drop_write, drop_chain, drop_header, drop_end, cut,
    swap_lines, repeat_line, add_line, edit_chain, edit_header, move_line,
)  # fmt: skip
"""Changes that are found without a key, and without another record that names the segment."""


def recompute(it: Corruptor, hash: ChainHash) -> Corruption:
    """Edit a record, and compute the chain of the segment again."""
    row = it.random.choice(it.records)
    it.lines[row] = it.lines[row].replace(b"forbidden", b"permitted")
    digest = bytes.fromhex(json.loads(it.lines[0])["previous"])
    start = 0
    for place, line in enumerate(it.lines):
        fields = json.loads(line)
        if fields["event"] == "chain":
            first = 1 if start == 0 else start
            fields["crc"] = [crc32(each) for each in it.lines[first:place]]
            text = json.dumps(fields, separators=(",", ":")).encode().rpartition(b'"digest":"')[0] + b'"digest":"'
            digest = hash.of(digest, b"".join([*it.lines[start:place], text]))
            it.lines[place] = text + digest.hex().encode() + b'"}\n'
            start = place + 1
        elif fields["event"] == "segment_end":
            text = line.rpartition(b'"digest":"')[0] + b'"digest":"'
            it.lines[place] = text + hash.of(digest, text).hex().encode() + b'"}\n'
    it.put()
    return Corruption(it.file)
