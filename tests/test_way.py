"""The way of a warm check (`make way`): few files, each known to whoever follows a decision."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.paths import ROOT

sys.path.append(str(ROOT / "bench"))

import way


def test_a_warm_check_runs_through_few_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert way.main([]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    files = [file for _, file in rows[:-1]]
    assert files[0] == "pdp/surfaces/http/connection.py"
    assert "pdp/decision/service.py" in files
    assert files.index("pdp/decision/service.py") < files.index("pdp/audit/records/writing.py")
    total = sum(int(functions) for functions, _ in rows[:-1])
    assert " ".join(rows[-1]) == f"{total} functions in {len(files)} files; at most {way.MOST_FILES} files"


def test_a_longer_way_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert way.main(["3"]) == 1
    assert capsys.readouterr().out.endswith("at most 3 files\n")


def test_functions_are_recorded_once_in_order_of_their_first_call(tmp_path: Path) -> None:
    names: dict[str, object] = {}
    for file, text in {"a.py": "def f(): g(); g()\ndef h(): pass", "b.py": "def g(): return [i for i in (1,)]"}.items():
        exec(compile(text, tmp_path / file, "exec"), names)
    with way.recording(tmp_path) as calls:
        eval("f()", names)
        sorted([2, 1])
    eval("h()", names)
    assert [(Path(code.co_filename).name, code.co_name) for code in calls] == [("a.py", "f"), ("b.py", "g")]
