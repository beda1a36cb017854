"""The ingest on a real Spark: what is in the audit is in the lake, once, whatever happens in between."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.servers.lakes import (
    control_lines,
    decision_line,
    event_line,
    ids_of,
    ingest,
    rows,
    snapshots,
    write_segment,
)
from support.servers.spark import folder_lake

from pdp.errors import InvalidArgument, PdpError
from pdp.lake.ingest.batches import BatchCounts, read_ranges, write_ranges
from pdp.lake.ingest.files import AuditFile, file_lines
from pdp.lake.ingest.passes import IngestBatch, record_batches, request_rows
from pdp.lake.lake import Lake
from pdp.lake.tables import REQUESTS

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.timeout(600)]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return folder_lake(tmp_path / "lake")


def ids(lake: Lake, table: str = "decisions") -> list[str]:
    return [id for (id,) in rows(lake, table, "id")]


def test_all_forms_of_files_in_folders_with_odd_names(lake: Lake, tmp_path: Path) -> None:
    one, two = tmp_path / "a b, [c]{d}*", tmp_path / "ä"
    lines = [decision_line(seq) for seq in range(6)]
    write_segment(one, 1, [event_line(0), *lines[:2]])
    write_segment(one, 2, lines[2:3], end=".zst")
    write_segment(two, 1, lines[3:4], instance="b2", end=".gz")
    (two / "decisions-old.jsonl").write_bytes(b"".join(lines[4:]))
    (two / ".decisions-b2-000002.jsonl").write_bytes(decision_line(9))
    (two / "decisions-b2-000003.open").write_bytes(decision_line(9))
    (two / ".decisions-b2-000001.jsonl.zst").write_bytes(b"half")
    (two / "decisions-b2-000003.torn").write_bytes(b'{"ev')
    assert ingest(lake, one, two) == BatchCounts(4, 6, 0, 0)
    assert ids(lake) == ids(lake, "requests") == sorted(ids_of(lines))
    assert {source for (source,) in rows(lake, "decisions", "source")} == {
        "decisions-a1-000001.jsonl",
        "decisions-a1-000002.jsonl",
        "decisions-b2-000001.jsonl",
        "decisions-old.jsonl",
    }
    assert len(ids(lake, "events")) == 1
    before = snapshots(lake)
    assert ingest(lake, one, two) == BatchCounts()
    assert snapshots(lake) == before


@pytest.mark.parametrize("others", [0, 1])
def test_requests_of_single_checks_are_those_of_their_records(lake: Lake, tmp_path: Path, others: int) -> None:
    """Spark makes most rows of `requests` from `decisions`; a worker makes each of them from its line."""
    lines = [decision_line(seq, day=5 + seq % 2) for seq in range(4)]
    lines[1] = (
        lines[1].replace(b'"allowed":true', b'"allowed":false').replace(b'"surface"', b'"requestId":"r","surface"')
    )
    more = [decision_line(8).replace(b'"latencyUs"', b'"leftOut":9,"latencyUs"'), decision_line(9), b"broken\n"]
    file = write_segment(tmp_path / "a", 1, [*lines, *(more * others)])
    ingest(lake, tmp_path / "a")
    found = lake.table("requests").orderBy("id").toArrow().to_pylist()
    batch = IngestBatch("k", (AuditFile(f"file:{file}", f"file:{file.parent}", file.name, file.stat().st_size),))
    made = request_rows(batch, 0, file_lines(batch.files[0]), frozenset())
    expected = pa.Table.from_batches(record_batches(made, REQUESTS)).sort_by("id").to_pylist()
    assert found == expected
    assert len(found) == len(lines) + 2 * others


def test_lines_that_are_no_new_record_go_to_quarantine(lake: Lake, tmp_path: Path) -> None:
    lines = [decision_line(seq) for seq in range(4)]
    write_segment(tmp_path / "a", 1, [lines[0], b"{broken\n", lines[1], lines[0], lines[2][:90]])
    assert ingest(lake, tmp_path / "a") == BatchCounts(1, 2, 1, 3)
    write_segment(tmp_path / "a", 2, [lines[3], lines[1]])
    write_segment(tmp_path / "copy", 1, [lines[0], lines[1]])
    assert ingest(lake, tmp_path / "a", tmp_path / "copy") == BatchCounts(2, 1, 3, 3)
    assert ids(lake) == sorted([*ids_of([lines[0], lines[1], lines[3]])])
    found = rows(lake, "quarantine", "folder", "source", "line_number", "reason", "id")
    name = "decisions-a1-{:06}.jsonl".format
    first, second, *_ = ids_of(lines)
    assert [(Path(folder).name, *rest) for folder, *rest in found] == [
        ("a", name(1), 3, "malformed", None),
        ("a", name(1), 5, "duplicate", first),
        ("a", name(1), 6, "malformed", None),
        ("a", name(2), 3, "duplicate", second),
        ("copy", name(1), 2, "duplicate", first),
        ("copy", name(1), 3, "duplicate", second),
    ]
    texts = rows(lake, "quarantine", "text")
    assert ("{broken",) in texts


def test_a_malformed_line_does_not_make_a_good_one_a_duplicate(lake: Lake, tmp_path: Path) -> None:
    good = decision_line(1)
    write_segment(tmp_path / "a", 1, [good.replace(b'"by":["cel:r"]', b'"by":[]'), good, good])
    assert ingest(lake, tmp_path / "a") == BatchCounts(1, 1, 1, 2)
    assert [reason for (reason,) in rows(lake, "quarantine", "reason")] == ["duplicate", "malformed"]


def test_a_segment_that_is_compressed_later_is_no_new_file(lake: Lake, tmp_path: Path) -> None:
    lines = [decision_line(seq) for seq in range(3)]
    write_segment(tmp_path / "a", 1, lines)
    ingest(lake, tmp_path / "a")
    write_segment(tmp_path / "a", 1, lines, end=".zst")
    before = snapshots(lake)
    assert ingest(lake, tmp_path / "a") == BatchCounts()
    (tmp_path / "a" / "decisions-a1-000001.jsonl").unlink()
    assert ingest(lake, tmp_path / "a") == BatchCounts()
    assert snapshots(lake) == before


def test_lines_that_a_file_gets_later_are_taken(lake: Lake, tmp_path: Path) -> None:
    lines = [decision_line(seq) for seq in range(3)]
    file = tmp_path / "a" / "decisions-old.jsonl"
    file.parent.mkdir()
    file.write_bytes(b"".join(lines[:2]))
    ingest(lake, tmp_path / "a")
    with file.open("ab") as more:
        more.write(lines[2] + lines[0] + b"broken\n")
    assert ingest(lake, tmp_path / "a") == BatchCounts(1, 1, 1, 2)
    assert ids(lake) == sorted(ids_of(lines))
    assert rows(lake, "quarantine", "line_number", "reason") == [(4, "duplicate"), (5, "malformed")]
    assert ingest(lake, tmp_path / "a") == BatchCounts()


@pytest.mark.parametrize("end", [".zst", ".gz"])
def test_lines_that_a_file_gets_before_it_is_compressed_are_taken(lake: Lake, tmp_path: Path, end: str) -> None:
    lines = [decision_line(seq) for seq in range(4)]
    file = tmp_path / "a" / "decisions-a1-000001.jsonl"
    file.parent.mkdir()
    file.write_bytes(b"".join([control_lines()[0], *lines[:2]]))
    assert ingest(lake, tmp_path / "a") == BatchCounts(1, 2, 0, 0)
    write_segment(tmp_path / "a", 1, lines, end=end)  # a compressed form is whole, and both are there for a moment
    assert ingest(lake, tmp_path / "a") == BatchCounts(1, 2, 0, 0)
    assert ids(lake) == sorted(ids_of(lines))
    before = snapshots(lake)
    assert ingest(lake, tmp_path / "a") == BatchCounts()
    file.unlink()
    assert ingest(lake, tmp_path / "a") == BatchCounts()
    assert snapshots(lake) == before


def test_a_file_without_an_end_may_have_grown_before_it_is_compressed(lake: Lake, tmp_path: Path) -> None:
    file = tmp_path / "a" / "decisions-old.jsonl"
    file.parent.mkdir()
    file.write_bytes(decision_line(1))
    ingest(lake, tmp_path / "a")
    file.with_name(file.name + ".gz").write_bytes(gzip.compress(file.read_bytes()))
    file.unlink()
    assert ingest(lake, tmp_path / "a") == BatchCounts(1, 0, 0, 0)
    before = snapshots(lake)
    assert ingest(lake, tmp_path / "a") == BatchCounts()
    assert snapshots(lake) == before


def test_late_records_go_to_quarantine_by_the_newest_day(lake: Lake, tmp_path: Path) -> None:
    write_segment(tmp_path / "a", 1, [decision_line(1, day=20)])
    assert ingest(lake, tmp_path / "a", late_days=3) == BatchCounts(1, 1, 0, 0)
    write_segment(tmp_path / "a", 2, [decision_line(2, day=17), decision_line(3, day=16), event_line(4, day=16)])
    assert ingest(lake, tmp_path / "a", late_days=3) == BatchCounts(1, 1, 0, 2)
    assert rows(lake, "quarantine", "line_number", "reason") == [(3, "late"), (4, "late")]
    write_segment(tmp_path / "a", 3, [decision_line(5, day=1)])
    assert ingest(lake, tmp_path / "a") == BatchCounts(1, 1, 0, 0)


def test_a_table_may_have_columns_of_a_later_version(lake: Lake, tmp_path: Path) -> None:
    write_segment(tmp_path / "a", 1, [decision_line(1)])
    ingest(lake, tmp_path / "a")
    lake.spark.sql(f"ALTER TABLE {lake.name('decisions')} ADD COLUMNS (purpose string)")
    later = decision_line(2).replace(b'"schema":1', b'"schema":2,"purpose":"audit"')
    write_segment(tmp_path / "a", 2, [later])
    assert ingest(lake, tmp_path / "a") == BatchCounts(1, 1, 0, 0)
    assert rows(lake, "decisions", "record_version", "purpose") == [(1, None), (2, None)]


class Killed(PdpError):
    """A process that ends between two commits."""


@contextmanager
def killing(lake: Lake, at: int) -> Iterator[None]:
    """Let the lake take `at` commits, then end."""
    append, left = lake.append, [at]

    def limited(*arguments: Any) -> None:
        if not left[0]:
            raise Killed
        left[0] -= 1
        append(*arguments)

    lake.append = limited  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        lake.append = append  # type: ignore[method-assign]


def test_a_run_that_ends_after_any_commit_is_finished_by_the_next(lake: Lake, tmp_path: Path) -> None:
    folder, kept, doubles = tmp_path / "a", [], 0
    first = decision_line(0)
    write_segment(folder, 1, [first])
    ingest(lake, folder)
    for commits in range(7):
        lines = [decision_line(seq) for seq in range(100 * commits, 100 * commits + 3)]
        kept += lines
        write_segment(folder, 2 + commits, [event_line(9), *lines, first, b"broken\n", lines[0]])
        doubles += 2
        with killing(lake, commits), suppress(Killed):
            ingest(lake, folder)
    total = ingest(lake, folder)
    assert total.files in (0, 1)
    assert ids(lake) == ids(lake, "requests") == sorted(ids_of([first, *kept]))
    assert len(ids(lake, "events")) == 7
    reasons = [reason for (reason,) in rows(lake, "quarantine", "reason")]
    assert (reasons.count("duplicate"), reasons.count("malformed")) == (doubles, 7)
    before = snapshots(lake)
    assert ingest(lake, folder) == BatchCounts()
    assert snapshots(lake) == before


@pytest.mark.parametrize("commits", range(1, 4))
def test_a_file_that_was_removed_does_not_hold_up_the_next_runs(lake: Lake, tmp_path: Path, commits: int) -> None:
    """The batch ends without the file, and the quarantine names it. A file that only was compressed is whole."""
    folder, lines = tmp_path / "a", [decision_line(seq) for seq in range(4)]
    gone, packed = write_segment(folder, 1, lines[:2]), write_segment(folder, 2, lines[2:])
    with killing(lake, commits), suppress(Killed):
        ingest(lake, folder)
    gone.unlink()
    packed.with_name(f"{packed.name}.gz").write_bytes(gzip.compress(packed.read_bytes()))
    packed.unlink()
    ingest(lake, folder)
    written = set(ids(lake))
    assert written in ({*ids_of(lines)}, {*ids_of(lines[2:])})
    problems = [row for row in rows(lake, "quarantine", "source", "reason", "problem") if row[0] == gone.name]
    assert problems == [(gone.name, "damaged", "the file was removed before its batch ended")]
    before = snapshots(lake)
    assert ingest(lake, folder) == BatchCounts()
    assert snapshots(lake) == before


def test_files_that_spark_brings_give_the_same_rows(tmp_path: Path) -> None:
    """A mount of Hadoop's own stands for HDFS and S3: Python cannot read its addresses."""
    lines = [event_line(9), *(decision_line(seq) for seq in range(3)), b"broken\n"]
    write_segment(tmp_path / "audit", 1, lines)
    write_segment(tmp_path / "audit", 2, [decision_line(7)], end=".zst")
    (tmp_path / "audit" / "bundles").mkdir()
    (tmp_path / "audit" / "bundles" / "0123456789abcdef").write_text("{}")
    lake = folder_lake(tmp_path / "lake")
    hadoop = lake.spark._jsc.hadoopConfiguration()
    hadoop.set("fs.viewfs.mounttable.far.link./audit", (tmp_path / "audit").as_uri())
    assert ingest(lake, "viewfs://far/audit") == BatchCounts(2, 4, 0, 1)
    assert ingest(lake, "viewfs://far/audit") == BatchCounts()
    assert rows(lake, "bundles", "digest", "text") == [("0123456789abcdef", "{}")]
    with pytest.raises(InvalidArgument, match="there is no audit folder `viewfs://far/audit/none`"):
        ingest(lake, "viewfs://far/audit/none")


def test_folders_without_an_audit_are_errors(lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="there is no audit folder"):
        ingest(lake, tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidArgument, match=r"no audit in `.*/empty`: it has no complete file"):
        ingest(lake, tmp_path / "empty")


@pytest.mark.parametrize("lines", [set(), {1}, {1, 2, 3}, {1, 3, 4, 9}])
def test_ranges_of_lines(lines: set[int]) -> None:
    assert read_ranges(write_ranges(frozenset(lines))) == lines
