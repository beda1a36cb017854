"""Lines of files that grow, or are compressed, while the passes of an ingest read them."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import pytest
import zstandard

from pdp.audit.reader import TORN, TrailLine
from pdp.lake.ingest.files import AuditFile, file_lines

TEXT = b'{"a":1}\n\n{"b":"\xc3\xa4"}\n{"c":3}\n'
PACK: Mapping[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}


@pytest.mark.parametrize("form", PACK)
@pytest.mark.parametrize("end", range(1, len(TEXT) + 1))
def test_a_file_that_grows_has_the_lines_of_its_listing(tmp_path: Path, end: int, form: str) -> None:
    path = tmp_path / "decisions-a-000001.jsonl"
    file = AuditFile(f"file:{path}", f"file:{tmp_path}", path.name, end)
    path.write_bytes(TEXT[:end])
    listed = list(file_lines(file))
    assert b"".join(line.data for line in listed) == TEXT[:end]
    assert (listed[-1].problem == TORN) == (not TEXT[:end].endswith(b"\n"))
    path.unlink()
    path.with_name(path.name + form).write_bytes(PACK[form](TEXT))
    assert list(file_lines(file)) == listed
    if not form:
        assert list(file_lines(file, TEXT)) == listed


@pytest.mark.parametrize("end", range(1, len(TEXT)))
def test_the_next_batch_begins_with_the_line_that_was_cut(end: int) -> None:
    whole = AuditFile("file:/a/f", "file:/a", "f", len(TEXT))
    lines = list(file_lines(whole, TEXT))
    rest = list(file_lines(msgspec.structs.replace(whole, start=end), TEXT))
    assert rest == [line for line in lines if _end_of(line, lines) > end]


def _end_of(line: TrailLine, lines: list[TrailLine]) -> int:
    return sum(len(each.data) for each in lines if each.number <= line.number)
