"""Verification of audits: every corruption is found and named, and nothing else is."""

from __future__ import annotations

import gzip
import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
import zstandard
from hypothesis import assume, given
from hypothesis import strategies as st
from support.oracles.audit_trails import (
    CORRUPTIONS,
    KEY,
    Corruption,
    Corruptor,
    InstancePlan,
    WrittenAudit,
    plans,
    recompute,
    record_line,
    reopen,
    write_audit,
    write_instance,
)

from pdp.audit.files.chain import ChainHash
from pdp.audit.files.segments import complete_path
from pdp.audit.verify.lines import AuditFinding
from pdp.audit.verify.verify import AuditVerifier, VerifyOptions

keys = st.sampled_from([b"", KEY])
randoms = st.integers(0, 2**32).map(Random)  # by a seed: the length of a line depends on its time
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Folder in memory: an audit waits for the disk at the end of each segment."""
THREE = InstancePlan([[2, 3], [1, 2, 2], [4]])


def verify(folder: Path, key: bytes = b"", **options: Any) -> list[AuditFinding]:
    return list(AuditVerifier(folder, VerifyOptions((key,) if key else (), **options)).findings())


def in_new_folder(plans: Sequence[InstancePlan], key: bytes, use: Callable[[WrittenAudit], None]) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        use(write_audit(Path(folder), plans, key))


@given(plans, keys)
def test_an_untouched_audit_has_no_finding(plans: list[InstancePlan], key: bytes) -> None:
    def use(audit: WrittenAudit) -> None:
        verifier = AuditVerifier(audit.folder, VerifyOptions((key,) if key else ()))
        assert list(verifier.findings()) == []
        counts = verifier.counts
        assert counts.records == len(audit.ids) == counts.proven
        assert counts.keyed == (counts.records if key else 0)
        assert counts.instances == len(plans)

    in_new_folder(plans, key, use)


def corrupted(audit: WrittenAudit, random: Random, corrupt: Callable[[Corruptor], Corruption]) -> Corruption:
    assume(audit.complete())
    it = Corruptor(audit, random)
    before = b"".join(it.lines)
    done = corrupt(it)
    assume(not done.file.path.exists() or done.file.path.read_bytes() != before)
    return done


def named(finding: AuditFinding, file: Path) -> bool:
    """Tell whether a finding is in a file, or in the next one of the same instance."""
    return finding.file.removeprefix(".").startswith(file.name.removeprefix(".")[:42])


@pytest.mark.parametrize("corrupt", CORRUPTIONS, ids=lambda corrupt: corrupt.__name__)
@given(plans, keys, randoms)
def test_each_corruption_is_found_and_named(
    corrupt: Callable[[Corruptor], Corruption], plans: list[InstancePlan], key: bytes, random: Random
) -> None:
    def use(audit: WrittenAudit) -> None:
        done = corrupted(audit, random, corrupt)
        findings = verify(audit.folder, key)
        assert findings
        assert all(named(finding, done.file.path) for finding in findings), findings
        if done.kind:
            places = [
                (one.kind, one.line if done.line else 0, one.seq if done.seq is not None else None) for one in findings
            ]
            assert (done.kind, done.line, done.seq) in places, findings
        elif done.seq is not None:
            assert done.seq in [one.seq for one in findings], findings

    in_new_folder(plans, key, use)


@given(plans, randoms)
def test_one_edited_line_is_one_finding(plans: list[InstancePlan], random: Random) -> None:
    def use(audit: WrittenAudit) -> None:
        done = corrupted(audit, random, CORRUPTIONS[0])
        (finding,) = verify(audit.folder)
        assert (finding.kind, finding.line, finding.seq) == ("edited_line", done.line, done.seq)
        assert finding.file == done.file.path.name

    in_new_folder(plans, b"", use)


@given(plans, randoms, st.sampled_from([b"", b"another key that is long enough"]))
def test_a_chain_computed_again_without_the_key_is_found(
    plans: list[InstancePlan], random: Random, other: bytes
) -> None:
    def use(audit: WrittenAudit) -> None:
        done = corrupted(audit, random, lambda it: recompute(it, ChainHash(other)))
        findings = verify(audit.folder, KEY)
        assert "edited_chain" in [finding.kind for finding in findings]
        assert all(named(finding, done.file.path) for finding in findings), findings

    in_new_folder(plans, KEY, use)


@given(plans, randoms)
def test_with_the_key_of_the_chain_anything_can_be_written(plans: list[InstancePlan], random: Random) -> None:
    """The last segment of an instance has no segment behind it: nothing but the key protects it."""

    def use(audit: WrittenAudit) -> None:
        corrupted(audit, random, lambda it: recompute(it, ChainHash(KEY)))
        assert all("names another end" in finding.message for finding in verify(audit.folder, KEY))

    in_new_folder(plans, KEY, use)


@given(plans, keys, randoms)
def test_a_missing_segment_is_named(plans: list[InstancePlan], key: bytes, random: Random) -> None:
    def use(audit: WrittenAudit) -> None:
        files = audit.files()
        followed = [one for one, after in pairwise(files) if one.instance == after.instance]
        if not followed:
            return
        gone = random.choice(followed)
        first = json.loads(gone.path.read_bytes().split(b"\n")[0])["seq"]
        gone.path.unlink()
        (finding,) = verify(audit.folder, key)
        assert (finding.kind, finding.seq) == ("missing_segment", first)
        assert f"segment {gone.number} is missing" in finding.message
        assert finding.file.rpartition(".")[0] == f"decisions-{gone.instance}-{gone.number + 1:06d}"

    in_new_folder(plans, key, use)


@given(plans, keys, randoms)
def test_a_segment_passed_off_as_one_of_a_killed_process_is_found_before_another(
    plans: list[InstancePlan], key: bytes, random: Random
) -> None:
    def use(audit: WrittenAudit) -> None:
        done = corrupted(audit, random, reopen)
        last = max(file.number for file in audit.files() if file.instance == done.file.instance)
        findings = verify(audit.folder, key)
        if done.file.number < last:
            assert "cut_tail" in [finding.kind for finding in findings]
        else:
            assert findings == []  # only another record can tell: the start of a later instance

    in_new_folder(plans, key, use)


@pytest.mark.parametrize("form", ["gz", "zst"])
@given(plans, keys, randoms)
def test_compressed_segments_are_verified_alike(
    form: str, plans: list[InstancePlan], key: bytes, random: Random
) -> None:
    def use(audit: WrittenAudit) -> None:
        for file in audit.complete():
            compress(file.path, form)
        assert verify(audit.folder, key) == []
        assume(audit.complete())
        packed = random.choice(audit.complete()).path
        data = bytearray(packed.read_bytes())
        data[random.randrange(1 << 30) % len(data)] ^= 1 << random.randrange(8)
        packed.write_bytes(data)
        plain = read_compressed(bytes(data), form)
        assume(plain is None)  # some bits of a header mean nothing
        findings = verify(audit.folder, key)
        assert findings
        assert all(named(finding, packed) for finding in findings), findings

    in_new_folder(plans, key, use)


def compress(path: Path, form: str) -> None:
    text = path.read_bytes()
    packed = gzip.compress(text) if form == "gz" else zstandard.ZstdCompressor(write_checksum=True).compress(text)
    path.with_name(f"{path.name}.{form}").write_bytes(packed)
    path.unlink()


def read_compressed(data: bytes, form: str) -> bytes | None:
    try:
        return gzip.decompress(data) if form == "gz" else zstandard.ZstdDecompressor().decompress(data)
    except Exception:  # noqa: BLE001  whatever a decoder raises
        return None


@given(plans, keys, randoms)
def test_in_a_part_of_an_audit_only_older_segments_may_be_missing(
    plans: list[InstancePlan], key: bytes, random: Random
) -> None:
    def use(audit: WrittenAudit) -> None:
        files = audit.files()
        instance = random.choice(files).instance
        some = [file for file in files if file.instance == instance]
        gone = random.randrange(len(some) + 1)
        for file in some[:gone]:
            file.path.unlink()
        if not audit.files():
            return
        assert verify(audit.folder, key, partial=True) == []
        assert bool(verify(audit.folder, key)) == (0 < gone < len(some))
        if len(some) - gone > 2:
            some[gone + 1].path.unlink()
            assert "missing_segment" in [finding.kind for finding in verify(audit.folder, key, partial=True)]

    in_new_folder(plans, key, use)


# --- single cases -----------------------------------------------------------------------------------------------------


def test_a_key_is_needed_where_the_chain_has_one(tmp_path: Path) -> None:
    write_audit(tmp_path, [THREE], KEY)
    assert {finding.kind for finding in verify(tmp_path)} == {"no_key"}
    assert {finding.kind for finding in verify(tmp_path, b"another key that is long enough")} == {"no_key"}
    assert list(AuditVerifier(tmp_path, VerifyOptions((b"a former key, long enough", KEY))).findings()) == []


def test_with_a_key_files_without_one_are_found_unless_they_are_accepted(tmp_path: Path) -> None:
    write_audit(tmp_path, [THREE])
    assert {finding.kind for finding in verify(tmp_path, KEY)} == {"no_key"}
    assert verify(tmp_path, KEY, allow_unproven=True) == []
    (tmp_path / "decisions-old.jsonl").write_bytes(b"".join(record_line("old", seq) for seq in range(3)) + b'{"torn')
    assert verify(tmp_path) == []
    assert "no_chain" in {finding.kind for finding in verify(tmp_path, KEY)}
    assert verify(tmp_path, KEY, allow_unproven=True) == []


@pytest.mark.parametrize(
    ("order", "kinds"),
    [
        ([0, 1, 2, 3], []),
        ([0, 2, 3], ["missing_line"]),
        ([1, 2], ["missing_line"]),
        ([0, 1, 1, 2], ["duplicate_line", "duplicate_id"]),
        ([0, 2, 1, 3], ["missing_line", "moved_line"]),
    ],
)
def test_records_of_old_files_are_in_order(tmp_path: Path, order: list[int], kinds: list[str]) -> None:
    lines = [record_line("old", seq) for seq in range(4)]
    (tmp_path / "decisions-old.jsonl").write_bytes(b"".join(lines[seq] for seq in order))
    assert [finding.kind for finding in verify(tmp_path)] == kinds


def test_lines_that_no_service_wrote_are_found_in_old_files(tmp_path: Path) -> None:
    lines = [record_line("old", 0), b"not JSON\n", b"\xff\n", b"[]\n", b"{}\n", record_line("other", 1)]
    (tmp_path / "decisions-old.jsonl").write_bytes(b"".join(lines))
    kinds = [(finding.kind, finding.line) for finding in verify(tmp_path)]
    assert kinds == [*(("unreadable_line", line) for line in (2, 3, 4, 5)), ("foreign_line", 6)]


def test_an_id_that_comes_twice_is_named_with_both_places(tmp_path: Path) -> None:
    one, other = record_line("a", 0, id="same"), record_line("b", 0, id="same")
    (tmp_path / "decisions-a.jsonl").write_bytes(one)
    (tmp_path / "decisions-b.jsonl").write_bytes(other)
    (finding,) = verify(tmp_path)
    assert (finding.kind, finding.file, finding.line) == ("duplicate_id", "decisions-b.jsonl", 1)
    assert "decisions-a.jsonl:1" in finding.message


def start_line(instance: str, others: list[dict[str, object]]) -> bytes:
    return record_line(instance, 0, event="service", what="started", details={"audit": others})


def test_an_instance_that_a_start_names_must_be_there(tmp_path: Path) -> None:
    audit = write_audit(tmp_path, [THREE])
    instance = audit.files()[0].instance
    named = [{"instance": instance, "number": 3}, {"instance": "gone", "number": 1}]
    (tmp_path / "decisions-new.jsonl").write_bytes(start_line("new", named))
    (finding,) = verify(tmp_path)
    assert (finding.kind, finding.file, finding.line) == ("missing_instance", "decisions-new.jsonl", 1)
    assert "`gone`" in finding.message
    last = audit.files()[2].path
    last.rename(last.with_name(f".{last.name}"))
    assert [finding.kind for finding in verify(tmp_path)] == ["cut_tail", "missing_instance"]
    last.with_name(f".{last.name}").unlink()
    assert [finding.kind for finding in verify(tmp_path)] == ["missing_segment", "missing_instance"]
    assert verify(tmp_path, partial=True) == []


def test_two_files_of_a_segment_must_have_the_same_lines(tmp_path: Path) -> None:
    audit = write_audit(tmp_path, [THREE])
    path = audit.complete()[0].path
    text = path.read_bytes()
    compress(path, "zst")
    path.write_bytes(text)
    assert verify(tmp_path) == []
    path.write_bytes(text.replace(b"forbidden", b"permitted"))
    assert "second_file" in [finding.kind for finding in verify(tmp_path)]


def test_a_segment_that_gets_its_name_during_the_verification_is_no_second_file(tmp_path: Path) -> None:
    audit = write_audit(tmp_path, [InstancePlan([[2], [2]], killed=True)])
    before = audit.files()
    last = before[-1].path
    last.rename(complete_path(last))
    assert list(AuditVerifier(tmp_path)._second_files(before)) == []


def test_bundles_are_there_and_are_what_their_names_say(tmp_path: Path) -> None:
    digest = "0" * 16
    (tmp_path / "decisions-a.jsonl").write_bytes(record_line("a", 0, event="decision", revision=f"e.1.{digest}"))
    assert [finding.kind for finding in verify(tmp_path)] == ["missing_bundle"]
    (tmp_path / "bundles").mkdir()
    (tmp_path / "bundles" / digest).write_text("{}")
    assert [finding.kind for finding in verify(tmp_path)] == ["edited_bundle"]


def test_files_of_another_instance_or_number_are_found(tmp_path: Path) -> None:
    audit = write_audit(tmp_path, [THREE])
    other = write_instance(audit, THREE)
    first = next(file.path for file in audit.files() if file.instance != other)
    mine = [file.path for file in audit.files() if file.instance == other]
    shutil.copy(first, mine[0])
    assert "foreign_line" in [finding.kind for finding in verify(tmp_path)]
