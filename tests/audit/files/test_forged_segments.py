"""Attacks of somebody who can write the audit folder and has no key: no start signs forged records as its own."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from support.oracles.audit_trails import KEY, InstancePlan, WrittenAudit, record_line, write_audit, write_instance

from pdp.audit.files.chain import ChainHash, SegmentHead, chain_line, end_line
from pdp.audit.files.folder import AuditFolder, SegmentForm
from pdp.audit.files.locks import known_instances
from pdp.audit.files.segments import complete_path, open_name
from pdp.audit.verify.lines import AuditFinding
from pdp.audit.verify.verify import AuditVerifier, VerifyOptions
from pdp.config.audit import Compression

PLAN = InstancePlan([[2, 3], [1, 2, 2]])
COMPRESSIONS: list[Compression] = ["none", "gzip", "zstd"]


def verify(folder: Path, *, allow_recovered: bool = False) -> list[AuditFinding]:
    return list(AuditVerifier(folder, VerifyOptions((KEY,), allow_recovered=allow_recovered)).findings())


def kinds(folder: Path, *, allow_recovered: bool = False) -> set[str]:
    return {finding.kind for finding in verify(folder, allow_recovered=allow_recovered)}


def start(folder: Path, name: str, compress: Compression = "none") -> None:
    """Start a service, whose record names what it finds, and stop the service."""
    audit = AuditFolder(folder, name, SegmentForm(compress=compress, hash=ChainHash(KEY)))
    others = msgspec.to_builtins(known_instances(folder))
    audit.append([record_line(name, 0, event="service", what="started", details={"audit": others})])
    audit.rotate()
    audit.close()


def reopened(audit: WrittenAudit, writes: int) -> Path:
    """Pass the newest segment off as a left one, with its first writes alone; return its path."""
    file = audit.files()[-1]
    lines = file.path.read_bytes().splitlines(keepends=True)
    chains = [row for row, line in enumerate(lines) if line.startswith(b'{"event":"chain"')]
    file.path.unlink()
    path = file.path.with_name(open_name(file.instance, file.number))
    path.write_bytes(b"".join(lines[: ([0] + [row + 1 for row in chains])[writes] or 1]))
    return path


def append(path: Path, *lines: bytes) -> None:
    with path.open("ab") as stream:
        stream.write(b"".join(lines))


def without_marks(folder: Path) -> None:
    """Take away everything that tells that a start closed a segment."""
    for path in folder.glob("decisions-*"):
        text = path.read_bytes().replace(b',"recovered":true', b"")
        for seq in range(20):
            text = text.replace(b',"unproven":%d' % seq, b"")
        path.write_bytes(text)


@pytest.mark.parametrize("writes", [0, 1, 2, 3])
def test_a_record_behind_a_segment_that_was_opened_again_is_unproven(tmp_path: Path, writes: int) -> None:
    audit = write_audit(tmp_path, [PLAN], KEY)
    instance, first = audit.files()[-1].instance, [5, 6, 8, 10][writes]
    append(reopened(audit, writes), record_line(instance, first), record_line(instance, first + 1))
    start(tmp_path, "next")
    (finding,) = verify(tmp_path)
    assert (finding.kind, finding.seq) == ("unproven_tail", first)
    assert verify(tmp_path, allow_recovered=True) == []
    without_marks(tmp_path)
    assert "edited_chain" in kinds(tmp_path, allow_recovered=True)


@pytest.mark.parametrize("number", [1, 2])
def test_an_invented_instance_is_unproven(tmp_path: Path, number: int) -> None:
    header = SegmentHead("invented", number, 0, "2026-01-31T12:00:00.000000Z", b"", ChainHash(KEY).key_id).line()
    (tmp_path / open_name("invented", number)).write_bytes(header + record_line("invented", 0))
    start(tmp_path, "next")
    assert "unproven_tail" in kinds(tmp_path)
    without_marks(tmp_path)
    assert "edited_chain" in kinds(tmp_path, allow_recovered=True)


@pytest.mark.parametrize("other", [b"", b"another key that is long enough"])
@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("tail", [False, True])
def test_a_chain_of_somebody_else_is_not_continued_as_ones_own(
    tmp_path: Path, other: bytes, ended: bool, tail: bool
) -> None:
    hash = ChainHash(other)
    header = SegmentHead("invented", 1, 0, "2026-01-31T12:00:00.000000Z", b"", ChainHash(KEY).key_id).line()
    parts, digest = chain_line(hash, b"", header, [record_line("invented", 0)], 0)
    end, _ = end_line(hash, digest, 1, 0, "2026-01-31T12:00:01.000000Z")
    path = tmp_path / open_name("invented", 1)
    append(path, *parts, end if ended else b"", record_line("invented", 1) if tail else b"")
    start(tmp_path, "next")
    assert kinds(tmp_path) >= {"edited_chain"}
    assert ended or "unproven_tail" in kinds(tmp_path)


def test_a_line_of_an_earlier_start_proves_nothing(tmp_path: Path) -> None:
    audit = write_audit(tmp_path, [PLAN], KEY)
    path = reopened(audit, 1)
    append(path, record_line(audit.files()[-1].instance, 6))
    start(tmp_path, "a")
    complete = complete_path(path)
    text = complete.read_bytes()
    complete.unlink()
    path.write_bytes(text[: text.rindex(b'{"event":"segment_end"')])
    start(tmp_path, "b")
    assert ("unproven_tail", 6) in [(finding.kind, finding.seq) for finding in verify(tmp_path)]


@pytest.mark.parametrize("compress", COMPRESSIONS)
@pytest.mark.parametrize("writes", [1, 2])
def test_a_cut_segment_that_a_start_has_found_complete_is_found(
    tmp_path: Path, compress: Compression, writes: int
) -> None:
    audit = write_audit(tmp_path, [], KEY)
    first = AuditFolder(tmp_path, "first", SegmentForm(compress=compress, hash=ChainHash(KEY)))
    for write in range(3):
        first.append([record_line("first", 2 * write), record_line("first", 2 * write + 1)])
    whole = (tmp_path / open_name("first", 1)).read_bytes()
    first.rotate()
    first.close()
    start(tmp_path, "second", compress)
    assert verify(tmp_path) == []
    (file,) = [file for file in audit.files() if file.instance == "first"]
    file.path.unlink()
    lines = whole.splitlines(keepends=True)
    (tmp_path / open_name("first", 1)).write_bytes(b"".join(lines[: 1 + 3 * writes]))
    start(tmp_path, "third", compress)
    (finding,) = verify(tmp_path)
    assert (finding.kind, finding.line) == ("cut_tail", 2)
    assert finding.file.startswith("decisions-second-")
    assert "has another end" in finding.message


def test_a_segment_with_an_unknown_key_is_not_signed(tmp_path: Path) -> None:
    header = SegmentHead("left", 1, 0, "2026-01-31T12:00:00.000000Z", b"", "0" * 16).line()
    path = tmp_path / open_name("left", 1)
    path.write_bytes(header + record_line("left", 0))
    before = path.read_bytes()
    start(tmp_path, "next")
    assert path.read_bytes() == before
    assert kinds(tmp_path) == {"no_key"}


@pytest.mark.parametrize("torn", [b"", b'{"event":"deci', b"\0" * 100])
def test_a_killed_process_with_a_whole_chain_is_no_finding(tmp_path: Path, torn: bytes) -> None:
    audit = write_audit(tmp_path, [], KEY)
    write_instance(audit, InstancePlan([[2, 3], [1, 2]], killed=True, torn=torn))
    start(tmp_path, "next")
    verifier = AuditVerifier(tmp_path, VerifyOptions((KEY,)))
    assert list(verifier.findings()) == []
    assert verifier.counts.keyed == verifier.counts.records == 9
