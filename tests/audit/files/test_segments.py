"""Segments on disk: rotation, compression, the chain, and what happens to the folder behind the service's back."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from support.oracles.audit_files import records_in
from support.oracles.segment_checks import check_segments

from pdp.audit.files import folder as audit_folder
from pdp.audit.files.chain import ChainHash
from pdp.audit.files.folder import AuditFolder, SegmentForm
from pdp.audit.files.segments import complete_path, segment_files, segment_of
from pdp.config.audit import Compression


def line(seq: int, size: int = 10) -> bytes:
    return json.dumps({"event": "decision", "seq": seq, "text": "x" * size}).encode() + b"\n"


def write(folder: AuditFolder, first: int, count: int, size: int = 10, each: int = 3) -> None:
    """Write records in pieces of `each`, rotating as a writer does."""
    for start in range(first, first + count, each):
        folder.append([line(seq, size) for seq in range(start, min(start + each, first + count))])
        if folder.seconds_left() == 0:
            folder.rotate()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if "decisions" in path.name)


@pytest.mark.parametrize("key", [b"", b"a key of sixteen"])
@pytest.mark.parametrize("compress", ["none", "gzip", "zstd"])
@pytest.mark.parametrize(("count", "size"), [(1, 10), (2, 400), (50, 400), (50, 4000)])
def test_segments_end_at_their_size_and_chain(
    tmp_path: Path, key: bytes, compress: Compression, count: int, size: int
) -> None:
    folder = AuditFolder(tmp_path, "i", SegmentForm(4000, 3600, compress, ChainHash(key)))
    write(folder, 0, count, size)
    folder.rotate()
    folder.close()
    found = check_segments(tmp_path, key)
    assert [record["seq"] for record in found["i"]] == list(range(count))
    files = segment_files(tmp_path)
    assert [file.number for file in files] == list(range(1, len(files) + 1))
    assert all(file.complete for file in files)
    assert len(files) > 1 or count * size < 4000
    suffix = {"none": ".jsonl", "gzip": ".gz", "zstd": ".zst"}[compress]
    assert {file.path.suffix for file in files} == {suffix}
    assert len(names(tmp_path)) == len(files)


def test_a_write_that_syncs_leaves_nothing_to_sync(tmp_path: Path) -> None:
    folder = AuditFolder(tmp_path, "i")
    assert not folder.append([line(0)], sync=True)  # the name of the file is not on disk yet
    folder.sync()
    assert folder.append([line(1)], sync=True)
    assert not folder.append([line(2)])
    assert not folder.append([line(3)], sync=True)  # the line before is not on disk
    folder.sync()
    folder.rotate()
    folder.close()
    assert [record["seq"] for record in check_segments(tmp_path)["i"]] == [0, 1, 2, 3]


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EIO])
@pytest.mark.parametrize("part", [0, 50])
def test_a_write_that_cannot_sync_leaves_no_part_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, part: int
) -> None:
    folder = AuditFolder(tmp_path, "i")
    folder.append([line(0)])
    folder.sync()
    failures = [code]

    def fails(file: int, parts: list[memoryview], at: int, flags: int) -> int:
        if failures:
            os.write(file, parts[0][:part])
            raise OSError(failures.pop(), "no such sync")
        return os.writev(file, parts)

    monkeypatch.setattr(os, "pwritev", fails)
    if code == errno.EIO:
        with pytest.raises(OSError, match="no such sync"):
            folder.append([line(1)], sync=True)
        assert folder.append([line(1)], sync=True)
    else:
        assert not folder.append([line(1)], sync=True)
        folder.sync()
        assert not folder.append([line(2)], sync=True)  # the system is not asked again
        folder.sync()
    folder.rotate()
    folder.close()
    seqs = [record["seq"] for record in check_segments(tmp_path)["i"]]
    assert seqs == list(range(2 + (code != errno.EIO)))


@pytest.mark.parametrize("sync", [False, True])
@pytest.mark.parametrize("most", [1, 7, 100, 333])
def test_a_write_in_pieces_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, sync: bool) -> None:
    folder = AuditFolder(tmp_path, "i")
    folder.append([line(0)])
    folder.sync()
    write_parts = os.writev

    def write_some(file: int, parts: list[bytes | memoryview], *_: int) -> int:
        """Write `most` bytes, as a system that takes no more at once."""
        return write_parts(file, [b"".join(parts)[:most]])

    monkeypatch.setattr(os, "writev", write_some)
    monkeypatch.setattr(os, "pwritev", write_some)
    folder.append([line(seq) for seq in range(1, 5)], sync=sync)
    folder.append([line(5)], sync=sync)
    folder.rotate()
    folder.close()
    assert [record["seq"] for record in check_segments(tmp_path)["i"]] == list(range(6))


@pytest.mark.parametrize("room", [1, 100, 700, 1440, 1500])
def test_a_write_that_finds_too_little_room_leaves_nothing(tmp_path: Path, room: int) -> None:
    folder = AuditFolder(tmp_path, "i")
    folder.append([line(0)])
    size = segment_files(tmp_path)[0].path.stat().st_size
    most, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + room, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            folder.append([line(seq, 100) for seq in range(1, 10)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    assert segment_files(tmp_path)[0].path.stat().st_size == size
    folder.append([line(1)])
    folder.rotate()
    folder.close()
    assert [record["seq"] for record in check_segments(tmp_path)["i"]] == [0, 1]


def test_a_write_copies_its_lines_once(tmp_path: Path) -> None:
    folder = AuditFolder(tmp_path, "i")
    folder.append([line(0)])
    lines = [line(seq, 1000) for seq in range(1, 1001)]
    size = sum(map(len, lines))
    tracemalloc.start()
    folder.append(lines)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    folder.close()
    assert size < most < 1.5 * size


def test_a_segment_ends_at_its_age(tmp_path: Path) -> None:
    folder = AuditFolder(tmp_path, "i", SegmentForm(1 << 20, 0.05))
    assert folder.seconds_left() is None  # without a record there is nothing to complete
    write(folder, 0, 1)
    left = folder.seconds_left()
    assert left is not None
    time.sleep(left)
    assert folder.seconds_left() == 0
    folder.rotate()
    folder.rotate()
    folder.close()
    assert names(tmp_path) == ["decisions-i-000001.jsonl"]


def test_a_folder_without_a_record_has_no_segment(tmp_path: Path) -> None:
    folder = AuditFolder(tmp_path, "i")
    folder.rotate()
    folder.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bundles"]


def test_a_deleted_folder_comes_back_with_the_open_segment(tmp_path: Path) -> None:
    place = tmp_path / "audit"
    folder = AuditFolder(place, "i")
    folder.archive("ab", b"a bundle")
    write(folder, 0, 5)
    shutil.rmtree(place)
    write(folder, 5, 5)
    other = AuditFolder(place, "j")  # takes nothing of a running instance
    other.close()
    shutil.rmtree(place)
    folder.rotate()
    folder.close()
    assert [record["seq"] for record in check_segments(place)["i"]] == list(range(10))
    assert (place / "bundles" / "ab").read_bytes() == b"a bundle"


def test_the_file_that_is_written_is_seen_and_not_taken_for_a_complete_one(tmp_path: Path) -> None:
    folder = AuditFolder(tmp_path, "i")
    write(folder, 0, 5)
    visible = {path.name for path in tmp_path.iterdir() if not path.name.startswith(".")}
    assert visible == {"decisions-i-000001.open", "bundles"}
    assert not list(tmp_path.glob("decisions-*.jsonl*")), "the pattern by which ingests take complete files"
    folder.rotate()
    folder.close()
    assert {path.name for path in tmp_path.iterdir()} >= {"decisions-i-000001.jsonl"}
    assert not list(tmp_path.glob("*.open"))


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("decisions-i-000001.open", ("i", 1, False)),
        (".decisions-i-000001.jsonl", ("i", 1, False)),
        ("decisions-i-000001.jsonl", ("i", 1, True)),
        ("decisions-i-000001.jsonl.zst", ("i", 1, True)),
        ("decisions-a.open-000001.open", ("a.open", 1, False)),
        ("decisions-i.jsonl", ("i", 0, True)),
        (".decisions-i-000001.open", None),
        (".decisions-i-000001.jsonl.gz", None),
        ("decisions-i-000001.open.zst", None),
        (".decisions-i-000001.open.draft-1", None),
        ("decisions-i.open", None),
        ("decisions-i-000001.torn", None),
    ],
)
def test_names_tell_what_is_complete(name: str, found: tuple[str, int, bool] | None) -> None:
    file = segment_of(Path(name))
    assert (file and (file.instance, file.number, file.complete)) == found


def test_a_moved_segment_is_completed_where_it_is(tmp_path: Path) -> None:
    place, away = tmp_path / "audit", tmp_path / "away"
    folder = AuditFolder(place, "i")
    write(folder, 0, 5)
    place.rename(away)
    write(folder, 5, 5)
    folder.rotate()
    folder.close()
    (moved,) = segment_files(away)
    moved.path.rename(place / complete_path(moved.path).name)
    assert [record["seq"] for record in check_segments(place)["i"]] == list(range(10))


def test_a_replaced_file_does_not_get_the_records(tmp_path: Path) -> None:
    folder = AuditFolder(tmp_path, "i")
    write(folder, 0, 5)
    (tmp_path / "decisions-i-000001.open").unlink()
    (tmp_path / "decisions-i-000001.open").write_bytes(b"")
    write(folder, 5, 5)
    folder.rotate()
    folder.close()
    assert [record["seq"] for record in check_segments(tmp_path)["i"]] == list(range(10))


def test_a_segment_whose_name_is_taken_away_waits_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_folder, "LOOK_SECONDS", 0)
    place = tmp_path / "audit"
    folder = AuditFolder(place, "i")
    write(folder, 0, 5)
    place.rename(tmp_path / "away")
    place.write_text("a file in place of the folder")
    for _ in range(3):
        with pytest.raises(OSError, match="exists"):
            folder.append([line(5)])
    place.unlink()
    (tmp_path / "away").rename(place)
    write(folder, 5, 5)
    folder.rotate()
    folder.close()
    assert [record["seq"] for record in check_segments(place)["i"]] == list(range(10))


@pytest.mark.parametrize("edit", ["text", "cut", "insert", "swap", "end"])
def test_the_plain_check_finds_an_edit(tmp_path: Path, edit: str) -> None:
    folder = AuditFolder(tmp_path, "i")
    write(folder, 0, 9)
    folder.rotate()
    folder.close()
    (file,) = segment_files(tmp_path)
    lines = file.path.read_bytes().splitlines(keepends=True)
    changed: dict[str, Any] = {
        "text": [one.replace(b"x", b"y", 1) if number == 2 else one for number, one in enumerate(lines)],
        "cut": [*lines[:5], *lines[9:]],
        "insert": [*lines[:2], lines[1], *lines[2:]],
        "swap": [lines[0], lines[2], lines[1], *lines[3:]],
        "end": lines[:-2],
    }
    file.path.write_bytes(b"".join(changed[edit]))
    with pytest.raises(AssertionError):
        check_segments(tmp_path)


def test_files_of_versions_without_segments_stay_readable(tmp_path: Path) -> None:
    (tmp_path / "decisions-0199aa.jsonl").write_bytes(line(0) + line(1))
    folder = AuditFolder(tmp_path, "i")
    write(folder, 0, 1)
    folder.rotate()
    folder.close()
    old, new = segment_files(tmp_path)
    assert (old.instance, old.number, new.instance, new.number) == ("0199aa", 0, "i", 1)
    assert [record["seq"] for record in records_in([old])] == [0, 1]
