"""`pdp test`: places of failures, warnings, strict runs, and tests chosen by name."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from support.service.commands import run_pdp, start_pdp

from pdp.errors import InvalidArgument
from pdp.offline.cases.cases import find_cases

pytestmark = pytest.mark.process

CASES = """\
rules: {open: "role == 'alice'", boom: "roles[9] == 'x'"}
cases:
  - note: Alice reads
    checks:
      - {principal: "user:oidc~alice", action: read_data, resource: "table:lake/s/t@main"}
      - {principal: "user:oidc~bob", action: read_data, resource: "table:lake/s/t@main"}
    want: [true, true]
  - note: Bob does not
    checks: [{principal: "user:oidc~bob", action: read_data, resource: "table:lake/s/t@main"}]
    want: [false]
"""


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    (tmp_path / "cases.yaml").write_text(CASES)
    return tmp_path


def printed(folder: Path, *arguments: str, code: int) -> Sequence[str]:
    ended = run_pdp("test", "cases.yaml", *arguments, cwd=folder)
    assert (ended.returncode, ended.stderr) == (code, "")
    return ended.stdout.splitlines()


def test_a_failure_names_the_file_and_the_lines_of_case_and_check(cases: Path) -> None:
    *lines, last = printed(cases, code=1)
    assert last == "1 passed, 1 failed"
    failed = [line for line in lines if line.startswith("FAILED")]
    assert len(failed) == 1
    assert failed[0].startswith(
        "FAILED Alice reads: cases.yaml:3: check 1 (line 6): `allowed` is false by default_deny"
    )
    assert "rule open lacks `role == 'alice'` (role is 'bob')" in failed[0]


def test_a_raising_rule_is_printed_and_fails_a_strict_run(cases: Path) -> None:
    warning = "WARNING Bob does not: cases.yaml:8: check 0 (line 9): `boom` raised"
    assert any(line.startswith(warning) for line in printed(cases, "-k", "Bob", code=0))
    *failed, last = printed(cases, "-k", "Bob", "--strict", code=1)
    assert failed[0].startswith("FAILED Bob does not: cases.yaml:8: check 0 (line 9): `boom` raised")
    assert last == "0 passed, 1 failed"


@pytest.mark.parametrize(("pattern", "count"), [("Alice", 1), ("^(Alice|Bob)", 2), ("not$", 1), ("", 2)])
def test_tests_are_chosen_by_note(cases: Path, pattern: str, count: int) -> None:
    found = run_pdp("test", "cases.yaml", "--run", pattern, "--format", "json", cwd=cases)
    assert len(json.loads(found.stdout)) == count


@pytest.mark.parametrize("pattern", ["nobody", "("])
def test_a_pattern_without_tests_exits_with_2(cases: Path, pattern: str) -> None:
    ended = run_pdp("test", "cases.yaml", "-k", pattern, cwd=cases)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert f"`{pattern}`" in ended.stderr or f"`-k {pattern}`" in ended.stderr


def test_reports_for_scripts_hold_places_and_warnings(cases: Path) -> None:
    found = json.loads(run_pdp("test", "cases.yaml", "--format", "json", cwd=cases).stdout)
    assert found[0]["error"].startswith("cases.yaml:3: check 1 (line 6): ")
    assert found[1]["warnings"][0].startswith("cases.yaml:8: check 0")
    suite = ET.fromstring(run_pdp("test", "cases.yaml", "--format", "junit", cwd=cases).stdout)
    assert [(test.get("file"), test.get("line")) for test in suite] == [("cases.yaml", "3"), ("cases.yaml", "8")]


def test_places_of_json_and_jsonl_files(tmp_path: Path) -> None:
    check = {"principal": "user:oidc~bob", "action": "read_data", "resource": "table:lake/s/t@main"}
    case = {"note": "n", "rules": {}, "checks": [check], "want": [True]}
    (tmp_path / "a.jsonl").write_text(f"{json.dumps(case)}\n\n{json.dumps(case)}\n")
    (tmp_path / "b.json").write_text(json.dumps([case, case], indent=1))
    found = json.loads(run_pdp("test", "a.jsonl", "b.json", "--format", "json", cwd=tmp_path).stdout)
    lines = [line for line, text in enumerate((tmp_path / "b.json").read_text().splitlines(), 1) if text == " {"]
    places = ["a.jsonl:1:", "a.jsonl:3:", *(f"b.json:{line}:" for line in lines)]
    assert [test["error"].split()[0] for test in found] == places


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ('"principal"', '"principal": "user:oidc~eve", "principal"', "principal"),
        ('"principal"', '"princip\\u0061l": "user:oidc~eve", "principal"', "principal"),
        ('"want"', '"want": [true], "want"', "want"),
        ('"want": [false]', '"want": [true], "want": [false]', "want"),
        ('"rules": {', '"rules": {"a": "true", "a": "false"', "a"),
    ],
)
@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_a_key_that_a_test_has_twice_is_refused(tmp_path: Path, name: str, old: str, new: str, key: str) -> None:
    check = {"principal": "user:oidc~bob", "action": "read_data", "resource": "table:lake/s/t@main"}
    text = json.dumps({"note": "n", "rules": {}, "checks": [check], "want": [False]})
    (tmp_path / name).write_text(text)
    assert len(list(find_cases([tmp_path]))) == 1
    (tmp_path / name).write_text(text.replace(old, new))
    with pytest.raises(InvalidArgument, match=rf"{name}.* does not parse: duplicate key `{key}`"):
        list(find_cases([tmp_path]))


def test_coverage_names_what_no_test_reaches(cases: Path) -> None:
    lines = printed(cases, "-k", "Bob", "--coverage", code=0)
    assert lines[:3] == [
        "UNCOVERED cases.yaml: rule boom: never true",
        "UNCOVERED cases.yaml: rule open: never true",
        "coverage 25%: 1 of 4 points",
    ]
    assert lines[-1] == "1 passed, 0 failed"


@pytest.mark.parametrize(("threshold", "code"), [("25", 0), ("25.1", 1), ("100", 1), ("0", 0)])
def test_a_threshold_of_coverage_decides_the_exit_code(cases: Path, threshold: str, code: int) -> None:
    lines = printed(cases, "-k", "Bob", "--coverage-threshold", threshold, code=code)
    failure = f"FAILED coverage: 25% of the points are covered, wanted {threshold}%"
    assert (failure in lines) == bool(code)


def test_coverage_is_one_more_test_for_scripts(cases: Path) -> None:
    arguments = ("test", "cases.yaml", "-k", "Bob", "--coverage-threshold", "90", "--format")
    *tests, coverage = json.loads(run_pdp(*arguments, "json", cwd=cases).stdout)
    assert len(tests) == 1
    assert set(coverage) == {"note", "passed", "got", "error"}
    assert (coverage["note"], coverage["passed"], coverage["got"]["percent"]) == ("coverage", False, 25)
    assert coverage["got"]["uncovered"][1] == {
        "kind": "rule", "name": "open", "place": "cases.yaml", "missing": ["never true"],
    }  # fmt: skip
    suite = ET.fromstring(run_pdp(*arguments, "junit", cwd=cases).stdout)
    assert [test.get("name") for test in suite if test.find("failure") is not None] == ["coverage"]
    assert json.loads(run_pdp("test", "cases.yaml", "--coverage", "--format", "json", cwd=cases).stdout)[-1]["passed"]


@pytest.mark.parametrize("threshold", ["-1", "101", "x"])
def test_a_threshold_is_a_percentage(cases: Path, threshold: str) -> None:
    assert run_pdp("test", "cases.yaml", "--coverage-threshold", threshold, cwd=cases).returncode == 2


def test_a_watch_runs_again_after_each_change(cases: Path, tmp_path: Path) -> None:
    """The watch sees changes of tests, named files and configuration, survives a broken file and ends by a signal."""
    (cases / "rules.yaml").write_text("""rules: {open: "role == 'alice'"}""")
    text = CASES.replace("""{open: "role == 'alice'", boom: "roles[9] == 'x'"}""", "rules.yaml")
    (cases / "cases.yaml").write_text(text)
    output, errors = tmp_path / "output", tmp_path / "errors"
    with output.open("wb") as out, errors.open("wb") as err, Path(os.devnull).open("rb") as nothing:
        streams = [nothing.fileno(), out.fileno(), err.fileno()]
        watch = start_pdp("test", "cases.yaml", "--watch", streams=streams, cwd=cases)
    try:
        wait_for(output, "1 passed, 1 failed", 1)
        wait_for(errors, "watching 2 files", 1)
        (cases / "rules.yaml").write_text("""rules: {open: "true"} #""")
        wait_for(output, "1 passed, 1 failed", 2)
        (cases / "cases.yaml").write_text("cases: [")
        wait_for(errors, "`cases.yaml` does not parse", 1)
        (cases / "cases.yaml").write_text(text.replace("want: [false]", "want: [true]"))
        wait_for(output, "2 passed, 0 failed", 1)
        watch.send_signal(signal.SIGINT)
        assert watch.wait(10) == -signal.SIGINT
        assert "Traceback" not in errors.read_text()
    finally:
        watch.kill()


def wait_for(file: Path, text: str, count: int) -> None:
    deadline = time.monotonic() + 30
    while file.read_text().count(text) < count:
        assert time.monotonic() < deadline, file.read_text()
        time.sleep(0.05)
