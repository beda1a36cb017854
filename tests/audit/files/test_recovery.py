"""Segments that killed processes have left: the next start closes them, whatever state they are in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Final

import pytest
from support.oracles.segment_checks import check_segments

from pdp.audit.files.chain import ChainHash
from pdp.audit.files.ended_segments import TORN, SegmentCompressor
from pdp.audit.files.folder import AuditFolder, SegmentForm
from pdp.audit.files.locks import lock_if_dead
from pdp.audit.files.segments import open_name, segment_files
from pdp.config.audit import Compression

KEY = b"a key of sixteen"


FORM: Final = ContextVar("FORM", default="")
"""Name of the left segment: as it is now, or as `earlier` versions wrote it."""


@pytest.fixture(params=["now", "earlier"])
def form(request: pytest.FixtureRequest) -> Iterator[None]:
    token = FORM.set(request.param)
    yield
    FORM.reset(token)


def line(seq: int) -> bytes:
    return json.dumps({"event": "decision", "seq": seq, "text": "x" * 50}).encode() + b"\n"


def left(folder: Path, key: bytes = b"", pieces: int = 4) -> tuple[Path, bytes]:
    """Write records as a process that is killed; return the file that it leaves, and its text."""
    audit = AuditFolder(folder, "dead", SegmentForm(hash=ChainHash(key)))
    for piece in range(pieces):
        audit.append([line(3 * piece), line(3 * piece + 1), line(3 * piece + 2)])
    kill(audit)
    path = folder / open_name("dead", 1)
    if FORM.get() == "earlier":
        path = path.rename(folder / ".decisions-dead-000001.jsonl")
    return path, path.read_bytes()


def kill(audit: AuditFolder) -> None:
    """Let go of all files as the end of a process does."""
    import os  # noqa: PLC0415

    assert audit._segment
    audit._segment.close()
    os.close(audit._lock._file)


def start(folder: Path, key: bytes = b"", compress: Compression = "none", former: tuple[bytes, ...] = ()) -> None:
    """Start and stop another instance."""
    form = SegmentForm(compress=compress, hash=ChainHash(key), former=tuple(map(ChainHash, former)))
    AuditFolder(folder, "next", form).close()


@pytest.mark.parametrize("key", [b"", KEY])
def test_every_length_of_a_left_file_is_closed(tmp_path: Path, key: bytes) -> None:
    path, text = left(tmp_path, key, pieces=2)
    ends = [at + 1 for at, byte in enumerate(text) if byte == ord("\n")]
    lengths = {0, 1, len(text), *ends, *(end - 1 for end in ends), *(end + 1 for end in ends), *range(2, len(text), 97)}
    for length in sorted(length for length in lengths if length <= len(text)):
        for file in tmp_path.glob("*decisions*"):
            file.unlink()
        path.write_bytes(text[:length])
        start(tmp_path, key)
        whole = [json.loads(one) for one in text[:length].splitlines(keepends=True) if one.endswith(b"\n")]
        wanted = [one["seq"] for one in whole if one["event"] == "decision"]
        found = check_segments(tmp_path, key).get("dead", [])
        assert [record["seq"] for record in found] == wanted, length
        kept = b"".join(file.read_bytes() for file in tmp_path.glob(f"*{TORN}"))
        rest = text[:length][text[:length].rfind(b"\n") + 1 :]
        assert kept.endswith(rest)
        assert not path.exists()


@pytest.mark.usefixtures("form")
def test_records_that_nobody_proved_are_marked(tmp_path: Path) -> None:
    path, text = left(tmp_path)
    cut = text.rindex(b'{"event":"chain"')
    path.write_bytes(text[:cut] + b'{"event":"chain","rec')
    start(tmp_path)
    (file,) = segment_files(tmp_path)
    *_, chain, end = map(json.loads, file.path.read_text().splitlines())
    assert (chain["event"], chain["recovered"], chain["records"]) == ("chain", True, 3)
    assert (end["event"], end["recovered"], end["records"]) == ("segment_end", True, 12)
    (torn,) = tmp_path.glob(f"*{TORN}")
    assert torn.read_bytes() == b'{"event":"chain","rec'


def test_damage_in_the_middle_stays_to_be_found(tmp_path: Path) -> None:
    path, text = left(tmp_path)
    lines = text.splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], b"\0garbage\n", *lines[3:]]))
    start(tmp_path)
    (file,) = segment_files(tmp_path)
    assert b"".join(file.path.read_bytes().splitlines(keepends=True)[:-1]).endswith(lines[-1])
    assert b"garbage" in file.path.read_bytes()
    with pytest.raises((AssertionError, ValueError)):
        check_segments(tmp_path)


@pytest.mark.usefixtures("form")
def test_a_hole_of_a_lost_power_supply_is_torn(tmp_path: Path) -> None:
    path, text = left(tmp_path)
    path.write_bytes(text + b"\0" * 5000)
    start(tmp_path)
    assert len(check_segments(tmp_path)["dead"]) == 12
    (torn,) = tmp_path.glob(f"*{TORN}")
    assert torn.read_bytes() == b"\0" * 5000


def test_a_running_instance_is_left_alone(tmp_path: Path) -> None:
    running = AuditFolder(tmp_path, "running")
    running.append([line(0)])
    start(tmp_path)
    assert (tmp_path / open_name("running", 1)).exists()
    running.append([line(1)])
    running.rotate()
    running.close()
    assert len(check_segments(tmp_path)["running"]) == 2


def test_two_recoveries_at_once_close_a_segment_once(tmp_path: Path) -> None:
    left(tmp_path)
    start(tmp_path)
    before = {file.path: file.path.read_bytes() for file in segment_files(tmp_path)}
    start(tmp_path)
    assert {file.path: file.path.read_bytes() for file in segment_files(tmp_path)} == before
    assert not list(tmp_path.glob(".lock-*"))


@pytest.mark.usefixtures("form")
def test_a_segment_that_was_complete_only_gets_its_name(tmp_path: Path) -> None:
    path, _ = left(tmp_path)
    start(tmp_path)
    (file,) = segment_files(tmp_path)
    text = file.path.read_bytes()
    file.path.rename(path)
    start(tmp_path, compress="zstd")
    (file,) = segment_files(tmp_path)
    with file.open() as stream:
        assert stream.read() == text
    assert file.path.suffix == ".zst"


@pytest.mark.usefixtures("form")
def test_a_compressed_segment_wins_over_the_file_that_it_came_from(tmp_path: Path) -> None:
    path, _ = left(tmp_path)
    start(tmp_path, compress="gzip")
    (file,) = segment_files(tmp_path)
    path.write_bytes(b"the old form")
    assert [one.path for one in segment_files(tmp_path)] == [file.path]
    start(tmp_path)
    assert not path.exists()


@pytest.mark.usefixtures("form")
def test_a_left_segment_goes_on_with_its_own_key(tmp_path: Path) -> None:
    left(tmp_path, KEY)
    start(tmp_path, b"another key, longer", former=(KEY,))
    assert len(check_segments(tmp_path, KEY)["dead"]) == 12


def test_a_left_segment_without_a_key_stays_without(tmp_path: Path) -> None:
    left(tmp_path)
    start(tmp_path, KEY)
    assert len(check_segments(tmp_path)["dead"]) == 12


def test_a_left_segment_is_locked_until_it_is_compressed(tmp_path: Path) -> None:
    path, _ = left(tmp_path, pieces=20_000)
    audit = AuditFolder(tmp_path, "next", SegmentForm(compress="gzip"))
    while (lock := lock_if_dead(tmp_path, "dead")) is None:
        pass
    assert not path.exists()
    lock.release()
    audit.close()
    assert len(check_segments(tmp_path)["dead"]) == 60_000


@pytest.mark.usefixtures("form")
def test_what_a_killed_process_compressed_is_removed(tmp_path: Path) -> None:
    path, _ = left(tmp_path)
    path.with_name(f".{path.name.removeprefix('.')}.draft-1").write_bytes(b"\x1f\x8b")
    start(tmp_path, compress="gzip")
    assert [file.name for file in tmp_path.glob("*decisions*")] == ["decisions-dead-000001.jsonl.gz"]


@pytest.mark.parametrize("compress", ["gzip", "zstd"])
def test_two_processes_that_compress_one_segment_do_not_mix(tmp_path: Path, compress: Compression) -> None:
    path = tmp_path / open_name("i", 1)
    text = b"".join(line(seq) for seq in range(50_000))
    for _ in range(3):
        path.write_bytes(text)
        publishers = [SegmentCompressor(compress) for _ in range(3)]
        for publisher in publishers:
            publisher.publish(path)
        for publisher in publishers:
            publisher.close()
        (file,) = segment_files(tmp_path)
        with file.open() as stream:
            assert stream.read() == text
        assert [each.name for each in tmp_path.iterdir()] == [file.path.name]
        file.path.unlink()


def test_a_segment_that_cannot_be_published_leaves_the_others_alone(tmp_path: Path) -> None:
    path = tmp_path / open_name("i", 1)
    path.write_bytes(line(0))
    publisher = SegmentCompressor("gzip")
    for wrong in (tmp_path / "\0", tmp_path / "missing", tmp_path):
        publisher.publish(wrong)
    publisher.publish(path)
    publisher.close()
    assert [file.path.name for file in segment_files(tmp_path)] == ["decisions-i-000001.jsonl.gz"]
