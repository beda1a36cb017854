"""Tests of the command line: output, exit codes and unusable input."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import click
import pytest
from support.paths import RECORDED, ROOT
from support.service.commands import run_pdp, start_pdp
from support.service.serving import Process, serve_process

from pdp.cli.main import cli

pytestmark = pytest.mark.process

MANUAL = RECORDED / "nessie" / "manual-as-printed.properties"
STORIES = str(ROOT / "rules" / "stories.properties")
WORLD = str(ROOT / "rules" / "world.yaml")
READ = {"action": "READ_ENTITY_VALUE", "resource": "table:lake/Foo@prod"}
ALICE = {"principal": "user:oidc~Alice", **READ}
BOB = {"principal": "user:oidc~Bob", **READ}
DANGEROUS = "\x1b]0;owned\x07\x9b31m\u202e"
"""Text that sets a terminal's title, colour and writing direction."""


def lines(*checks: Any) -> str:
    return "".join((check if isinstance(check, str) else json.dumps(check)) + "\n" for check in checks)


def decisions(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def one_line(text: str) -> str:
    assert text.startswith("pdp: ")
    assert text.count("\n") == 1, text
    return text


# --- pdp ----------------------------------------------------------------------------------------------------------


def test_the_version_is_that_of_the_package(tmp_path: Path) -> None:
    ended = run_pdp("--version", cwd=tmp_path, fresh=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("pdp ")
    assert ended.stdout.split()[1][0].isdigit()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("", ["lakehouse", "serve", "check", "test", "lint", "explain", "healthcheck", "trino-config", "Exit codes"]),
        ("serve", ["Serve decisions", "HTTP", "gRPC", "--config", "--set"]),
        ("check", ["stdin", "one JSON object a line", "in order", "--rules", "--world", "--explain", "Exits with 1"]),
        ("test", ["policy tests", "YAML", "JSONL", "json", "junit"]),
        ("lint", ["rule files", "severity and code", "--format", "Exits with 1"]),
        ("explain", ["allowed or denied", "--principal", "--action", "--resource", "--code", "--vocabulary"]),
        ("grants", ["operator of the deployment", "import", "export", "list", "add", "remove", "move"]),
        ("grants import", ["missing", "--prune", "--dry-run", "--format"]),
        ("healthcheck", ["ready", "exits with 1", "--address", "--timeout"]),
        ("trino-config", ["access-control.properties", "--url", "--check", "Exit with 1", "warning"]),
    ],
)
def test_help_says_what_a_command_does(tmp_path: Path, command: str, words: list[str]) -> None:
    ended = run_pdp(*command.split(), "--help", cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    text = " ".join(ended.stdout.split())
    for word in words:
        assert word in text


def test_the_help_names_every_command_with_the_command_s_own_words() -> None:
    context = click.Context(cli, info_name="pdp")
    assert list_of_commands(context) == {
        name: command.get_short_help_str(limit=200)
        for name in cli.list_commands(context)
        if (command := cli.get_command(context, name))
    }


def list_of_commands(context: click.Context) -> dict[str, str]:
    """Return the commands of the help with their texts."""
    listed = cli.get_help(context).partition("Commands:\n")[2].strip().splitlines()
    return dict(line.strip().split(maxsplit=1) for line in listed)


def test_the_help_imports_no_service() -> None:
    script = "import sys; sys.argv = ['pdp', '--help']\ntry:\n    from pdp.app import main; main()\nfinally:\n    print(*sys.modules)"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=ROOT)
    modules = set(ended.stdout.splitlines()[-1].split())
    assert "click" in modules
    assert modules.isdisjoint({"aiohttp", "grpc", "pydantic", "yaml", "pdp.cli.serve", "pdp.decision.service"})


@pytest.mark.parametrize(
    "arguments",
    [
        ["chekc"], ["check", "--nope"], ["test"], ["lint", "--format", "xml", "x"], ["init"], ["init", "--model", "x"],
        ["init", "--model"], ["rewrite"], ["dry-run"], ["explain"], ["pipeline", "ingest"], ["migrate", "nessie"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_wrong_usage_exits_with_2(tmp_path: Path, arguments: list[str]) -> None:
    ended = run_pdp(*arguments, cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("pdp: ")
    assert ended.stderr.count("\n") == 1
    assert "\\u00" not in ended.stderr  # no control character, also not as an escape
    if arguments == ["init"]:
        assert "choose from: cedar, cel, custom, grants, scopes, see" in ended.stderr


# --- pdp check ----------------------------------------------------------------------------------------------------


def test_checks_are_decided_in_order(tmp_path: Path) -> None:
    ended = run_pdp("check", "--rules", STORIES, stdin=lines(ALICE, BOB, "", ALICE, BOB), cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert [decision["allowed"] for decision in decisions(ended.stdout)] == [True, False, True, False]
    assert decisions(ended.stdout)[0] == {
        "allowed": True,
        "by": ["cel:reading_foo_on_prod"],
        "errors": [],
        "cached": False,
    }
    assert not (tmp_path / "audit").exists()


def test_no_checks_give_no_decisions(tmp_path: Path) -> None:
    ended = run_pdp("check", "--example", cwd=tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_more_lines_than_are_decided_at_once_keep_their_order(tmp_path: Path) -> None:
    asked = [ALICE if at % 3 else BOB for at in range(2500)]
    ended = run_pdp("check", "--rules", STORIES, stdin=lines(*asked), cwd=tmp_path)
    assert [decision["allowed"] for decision in decisions(ended.stdout)] == [bool(at % 3) for at in range(2500)]


def test_answers_stream_while_checks_still_come(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pdp", "check", "--rules", STORIES]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=env
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        patience = threading.Timer(30, process.kill)
        patience.start()
        process.stdin.write(lines(*[ALICE] * 1000))
        process.stdin.flush()
        assert [json.loads(process.stdout.readline())["allowed"] for _ in range(1000)] == [True] * 1000
        process.stdin.write(lines(BOB))
        process.stdin.close()
        assert json.loads(process.stdout.readline())["allowed"] is False
        assert process.wait(30) == 0
        patience.cancel()


MALFORMED: list[Any] = [
    "garbage",
    "[]",
    "{}",
    '{"principal":',
    {**ALICE, "acton": "x"},
    {**ALICE, "principal": "Alice"},
    {**ALICE, "resource": "table:lake//Foo"},
    {**ALICE, "actingRole": ""},
    "[" * 100_000,
    '{"principal":NaN,"action":"a","resource":"server"}',
]


def test_a_malformed_line_is_denied_at_its_place_and_exits_with_1(tmp_path: Path) -> None:
    ended = run_pdp("check", "--rules", STORIES, stdin=lines(ALICE, *MALFORMED, ALICE), cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (1, "")
    found = decisions(ended.stdout)
    assert [decision["allowed"] for decision in found] == [True, *[False] * len(MALFORMED), True]
    for decision in found[1:-1]:
        assert decision["by"] == ["invalid_check"]
        assert decision["error"]["code"] == "invalid_argument"


def test_a_line_that_is_no_utf8_is_malformed(tmp_path: Path) -> None:
    text = (
        lines(ALICE).encode()
        + lines(ALICE).encode().replace(b"Alice", b"Al\xffice")
        + b"\xff\n"
        + lines(ALICE).encode()
    )
    ended = run_pdp("check", "--rules", STORIES, stdin=text, cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (1, "")
    assert [decision["allowed"] for decision in decisions(ended.stdout)] == [True, False, False, True]


def test_a_duplicate_key_is_malformed(tmp_path: Path) -> None:
    twice = json.dumps(BOB)[:-1] + ', "principal": "user:oidc~Alice"}'
    inside = json.dumps({**ALICE, "context": {"arguments": {"a": 1}}}).replace('{"a": 1}', '{"a": 1, "a": 2}')
    ended = run_pdp("check", "--rules", STORIES, stdin=lines(twice, inside), cwd=tmp_path)
    assert ended.returncode == 1
    assert [decision["by"] for decision in decisions(ended.stdout)] == [["invalid_check"]] * 2


def test_a_list_of_resources_gives_a_line_for_each(tmp_path: Path) -> None:
    listed: dict[str, Any] = {key: value for key, value in ALICE.items() if key != "resource"}
    listed["resources"] = [ALICE["resource"], "?", ALICE["resource"]]
    ended = run_pdp("check", "--rules", STORIES, stdin=lines(listed, BOB, ALICE), cwd=tmp_path)
    assert [decision["allowed"] for decision in decisions(ended.stdout)] == [True, False, True, False, True]
    assert ended.returncode == 1


def test_explain_adds_a_trace(tmp_path: Path) -> None:
    ended = run_pdp("check", "--rules", STORIES, "--explain", stdin=lines(ALICE, BOB), cwd=tmp_path)
    for decision in decisions(ended.stdout):
        assert decision["trace"]["what"].startswith("READ_ENTITY_VALUE on table:lake/Foo@prod as user:oidc~")
        assert decision["trace"]["parts"]


def test_options_choose_rules_and_worlds(tmp_path: Path) -> None:
    owner = {"principal": "user:oidc~Dave", "action": "drop", "resource": "table:lake/sales/orders@prod"}
    both = lines(ALICE, owner)
    for arguments, allowed in (
        (["--rules", STORIES], [True, False]),
        (["--world", WORLD], [False, True]),
        (["--rules", STORIES, "--world", WORLD], [True, True]),
    ):
        ended = run_pdp("check", *arguments, stdin=both, cwd=tmp_path)
        assert [decision["allowed"] for decision in decisions(ended.stdout)] == allowed, arguments


def test_several_rule_files_merge_and_a_configuration_is_found(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.properties").write_text(f"nessie.server.authorization.rules.{name}=role=='{name}'\n")
    asked = lines(*({**ALICE, "principal": f"user:oidc~{name}"} for name in ("one", "two", "three")))
    ended = run_pdp("check", "--rules", "one.properties", "--rules", "two.properties", stdin=asked, cwd=tmp_path)
    assert [decision["allowed"] for decision in decisions(ended.stdout)] == [True, True, False]
    (tmp_path / "pdp.yaml").write_text("policies: {rules: [one.properties]}")
    (tmp_path / "other.yaml").write_text("policies: {rules: [two.properties]}")
    for arguments, allowed in (([], [True, False, False]), (["-c", "other.yaml"], [False, True, False])):
        ended = run_pdp("check", *arguments, stdin=asked, cwd=tmp_path)
        assert [decision["allowed"] for decision in decisions(ended.stdout)] == allowed


@pytest.mark.parametrize(
    "arguments", [["--rules", "none.properties"], ["--world", "none.yaml"], ["-c", "none.yaml"], ["--set", "a=1"]]
)
def test_unreadable_input_exits_with_2(tmp_path: Path, arguments: list[str]) -> None:
    ended = run_pdp("check", *arguments, stdin=lines(ALICE), cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert arguments[1].partition("=")[0] in one_line(ended.stderr)


# --- pdp test -----------------------------------------------------------------------------------------------------

RULE = {"open": "role=='Alice'"}
CASES: list[dict[str, Any]] = [
    {"note": "right", "rules": RULE, "checks": [ALICE, BOB], "want": [True, {"allowed": False}]},
    {"note": "wrong", "rules": RULE, "checks": [ALICE], "want": [{"allowed": True, "by": ["cel:closed"]}]},
    {"note": "does not compile", "rules": {"bad": "role =="}, "checks": [], "wantError": {"code": "rule_compile_error", "rule": "bad"}},
    {"note": "compiles after all", "rules": RULE, "checks": [], "wantError": "rule_compile_error"},
    {"note": "unknown key", "ruels": RULE, "checks": [ALICE], "want": [True]},
    {"note": "too few wanted", "rules": RULE, "checks": [ALICE, BOB], "want": [True]},
    {"note": "wants nothing", "rules": RULE, "checks": [ALICE]},
    {"note": "checks nothing", "rules": RULE, "checks": [], "want": []},
    {"note": "has no checks", "rules": RULE, "want": []},
]  # fmt: skip
PASSING = ["right", "does not compile"]


@pytest.fixture
def cases(tmp_path: Path) -> str:
    (tmp_path / "cases.jsonl").write_text(lines(*CASES))
    return "cases.jsonl"


def test_failed_tests_are_printed_as_text(tmp_path: Path, cases: str) -> None:
    ended = run_pdp("test", cases, cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (1, "")
    *failed, last = ended.stdout.splitlines()
    assert last == f"{len(PASSING)} passed, {len(CASES) - len(PASSING)} failed"
    assert [line.partition(":")[0] for line in failed] == [
        f"FAILED {case['note']}" for case in CASES if case["note"] not in PASSING
    ]
    assert "cel:closed" in failed[0]
    assert "`ruels`" in failed[2]


def test_tests_are_printed_as_json(tmp_path: Path, cases: str) -> None:
    ended = run_pdp("test", cases, "--format", "json", cwd=tmp_path)
    found = json.loads(ended.stdout)
    assert ended.returncode == 1
    assert [outcome["note"] for outcome in found] == [case["note"] for case in CASES]
    assert [outcome["note"] for outcome in found if outcome["passed"]] == PASSING
    for outcome in found:
        assert set(outcome) == {"note", "passed", "got", "error"}
        assert outcome["passed"] or outcome["error"]
    assert found[0]["got"][0]["by"] == ["cel:open"]
    assert found[2]["got"]["error"] == {"code": "rule_compile_error", "rule": "bad"}


def test_tests_are_printed_as_junit(tmp_path: Path, cases: str) -> None:
    ended = run_pdp("test", cases, "--format", "junit", cwd=tmp_path)
    suite = ET.fromstring(ended.stdout)
    assert ended.returncode == 1
    assert (suite.get("tests"), suite.get("failures")) == (str(len(CASES)), str(len(CASES) - len(PASSING)))
    assert [case.get("name") for case in suite if case.find("failure") is None] == PASSING


def test_junit_stays_xml_whatever_a_note_holds(tmp_path: Path) -> None:
    (tmp_path / "odd.jsonl").write_text(lines({**CASES[1], "note": f"<&]]>{DANGEROUS}\x00\ufffe"}))
    ended = run_pdp("test", "odd.jsonl", "--format", "junit", cwd=tmp_path)
    assert len(ET.fromstring(ended.stdout)) == 1


def test_passing_tests_of_a_folder_exit_with_0(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "ignored.txt").write_text("no test")
    (tmp_path / "deep" / "one.json").write_text(json.dumps(CASES[0]))
    (tmp_path / "deep" / "two.json").write_text(json.dumps([CASES[0], CASES[2]]))
    shared = (
        f"rules: {json.dumps(RULE)}\ncases:\n- {json.dumps({'note': 'shared', 'checks': [ALICE], 'want': [True]})}\n"
    )
    (tmp_path / "deep" / "er" / "three.yaml").write_text(shared)
    ended = run_pdp("test", "deep", cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (0, "4 passed, 0 failed\n")


@pytest.mark.parametrize("text", ["", "{", "5", '"x"', "[1]"])
def test_a_file_without_tests_exits_with_2(tmp_path: Path, text: str) -> None:
    (tmp_path / "broken.json").write_text(text)
    ended = run_pdp("test", "broken.json", cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "broken.json" in one_line(ended.stderr)


@pytest.mark.parametrize("line", ["{", "[1, }", '{"note": "x"} y', "[" * 100_000, '{"note": ' + "9" * 5000 + "}"])
def test_a_malformed_line_is_named_by_file_and_number(tmp_path: Path, line: str) -> None:
    first = json.dumps({**CASES[0], "note": "ends\u2028no\u0085line"}, ensure_ascii=False)
    (tmp_path / "broken.jsonl").write_text(f"{first}\n\n{line}\n{first}\n")
    ended = run_pdp("test", "broken.jsonl", cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert one_line(ended.stderr).startswith("pdp: `broken.jsonl:3` does not parse: ")
    assert "line 1" not in ended.stderr


def test_missing_tests_exit_with_2(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path in ("none.yaml", "empty"):
        ended = run_pdp("test", path, cwd=tmp_path)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert "Traceback" not in ended.stderr


ILL_TYPED: dict[str, dict[str, Any]] = {
    "rules": {"rules": 5},
    "rule": {"rules": {"open": 5}},
    "world": {"world": 5},
    "config": {"config": 5},
    "engines": {"engines": 5},
    "checks": {"checks": 5},
    "want": {"want": 5},
    "wanted": {"want": [5]},
    "audit": {"wantAudit": 5},
    "error": {"wantError": 5},
}


def test_a_case_of_the_wrong_form_fails_and_the_next_one_runs(tmp_path: Path) -> None:
    (tmp_path / "odd.jsonl").write_text(
        lines(*({**CASES[0], **odd, "note": name} for name, odd in ILL_TYPED.items()), CASES[0])
    )
    ended = run_pdp("test", "odd.jsonl", "--format", "json", cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (1, "")
    assert [outcome["passed"] for outcome in json.loads(ended.stdout)] == [*[False] * len(ILL_TYPED), True]


# --- pdp lint -----------------------------------------------------------------------------------------------------


def test_the_broken_examples_are_found_with_their_places(tmp_path: Path) -> None:
    ended = run_pdp("lint", str(MANUAL), cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (1, "")
    errors = [line for line in ended.stdout.splitlines() if ": error: " in line]
    assert [line.split(": ")[0] for line in errors] == [f"{MANUAL}:{place}" for place in ("41:94", "45:99", "49:99")]
    for line, rule in zip(errors, ("bob", "carol", "dave"), strict=True):
        assert f": error: [syntax] rule `{rule}`: syntax error" in line


def test_the_broken_examples_are_found_as_json(tmp_path: Path) -> None:
    ended = run_pdp("lint", str(MANUAL), "--format", "json", cwd=tmp_path)
    found = [finding for finding in json.loads(ended.stdout) if finding["severity"] == "error"]
    assert ended.returncode == 1
    assert [(finding["rule"], finding["line"], finding["column"]) for finding in found] == [
        ("bob", 41, 94),
        ("carol", 45, 99),
        ("dave", 49, 99),
    ]
    assert {(finding["file"], finding["code"]) for finding in found} == {(str(MANUAL), "syntax")}


def test_clean_rules_exit_with_0(tmp_path: Path) -> None:
    for form, printed in (("text", ""), ("json", "[]\n")):
        ended = run_pdp("lint", STORIES, "--format", form, cwd=tmp_path)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, printed, "")


def test_a_rule_in_two_files_is_an_error_and_an_ignored_key_a_warning(tmp_path: Path) -> None:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "a.properties").write_text("nessie.server.authorization.rules.x=true\nother=1\n")
    ended = run_pdp("lint", "rules", cwd=tmp_path)
    assert ended.returncode == 0
    assert "rules/a.properties:2:1: warning: [ignored-key] ignored key `other`\n" in ended.stdout
    (tmp_path / "rules" / "b.properties").write_text("nessie.server.authorization.rules.x=true\n")
    ended = run_pdp("lint", "rules", cwd=tmp_path)
    assert ended.returncode == 1
    assert "rules/b.properties:1:37: error: [duplicate-id] rule `x`" in ended.stdout


@pytest.mark.parametrize("text", ["foo\\:\\ bar=1\n", "a\\:1\\:2\\:\\ b=1\n"])
def test_an_ignored_key_may_look_like_a_place(tmp_path: Path, text: str) -> None:
    (tmp_path / "odd.properties").write_text(text)
    ended = run_pdp("lint", "odd.properties", cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("odd.properties:1:1: warning: [ignored-key] ignored key `")


def test_unusable_rule_files_are_reported(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "latin.properties").write_bytes(b"# caf\xe9\n")
    for name in ("notes.txt", "latin.properties"):
        ended = run_pdp("lint", name, cwd=tmp_path)
        assert ended.returncode == 1
        assert ended.stdout.startswith(f"{name}:1:1: error: ")
    ended = run_pdp("lint", "none.properties", cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "none.properties" in one_line(ended.stderr)


# --- pdp explain --------------------------------------------------------------------------------------------------


def explain(folder: Path, **options: str) -> subprocess.CompletedProcess[str]:
    given = {"principal": "user:oidc~Alice", "action": "read_data", "resource": "table:lake/Foo@prod", **options}
    return run_pdp(
        "explain",
        "--example",
        *(part for name, value in given.items() for part in (f"--{name.replace('_', '-')}", value)),
        cwd=folder,
    )


def test_an_explanation_names_the_decision_and_every_engine(tmp_path: Path) -> None:
    allowed, denied = explain(tmp_path), explain(tmp_path, principal="user:oidc~Bob")
    assert (allowed.returncode, denied.returncode) == (0, 0)
    assert allowed.stdout.startswith("allowed by cel:reading_foo_on_prod\n")
    assert denied.stdout.startswith("denied by default_deny\n")
    for text in (allowed.stdout, denied.stdout):
        assert "table:lake/Foo@prod" in text
        assert "cel" in text
        assert "grants" in text


def test_an_explanation_as_json_is_a_decision_with_its_trace(tmp_path: Path) -> None:
    decision = json.loads(explain(tmp_path, format="json").stdout)
    assert (decision["allowed"], decision["by"]) == (True, ["cel:reading_foo_on_prod"])
    assert decision["trace"]["parts"]


def test_the_code_of_a_rule_is_shown(tmp_path: Path) -> None:
    ended = run_pdp("explain", "--example", "--code", "carol", cwd=tmp_path)
    assert ended.returncode == 0
    assert "CarolsSecret" in ended.stdout
    ended = run_pdp("explain", "--example", "--code", "nobody", cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "`nobody`" in one_line(ended.stderr)


def test_the_vocabulary_is_shown(tmp_path: Path) -> None:
    ended = run_pdp("explain", "--vocabulary", cwd=tmp_path, env={"COLUMNS": "200"})
    assert ended.returncode == 0
    for word in ("read_data", "READ_ENTITY_VALUE", "SelectFromColumns", "trino operations"):
        assert word in ended.stdout


@pytest.mark.parametrize(
    "given", [[], ["--principal", "anonymous", "--action", "read_data"], ["--action", "a", "--resource", "server"]]
)
def test_an_explanation_needs_principal_action_and_resource(tmp_path: Path, given: list[str]) -> None:
    ended = run_pdp("explain", "--example", *given, cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "--principal, --action and --resource" in ended.stderr


def on_a_terminal(folder: Path, *arguments: str) -> str:
    """Run a command with a terminal as stdout and stderr; return the output."""
    ours, theirs = pty.openpty()
    with Path(os.devnull).open() as none:
        streams = (none.fileno(), theirs, theirs)
        process = start_pdp(*arguments, streams=streams, cwd=folder, env={"TERM": "dumb", "NO_COLOR": "1"})
    os.close(theirs)
    written = b""
    try:
        while some := os.read(ours, 65536):
            written += some
    except OSError:  # how a terminal ends
        pass
    process.wait(30)
    os.close(ours)
    return written.decode()


def assert_harmless(text: str) -> None:
    assert text
    for sign in ("\x1b]", "\x07", "\x9b", "\u202e"):
        assert sign not in text, repr(text)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--resource", f"table:lake/{DANGEROUS}@prod"),
        ("--resource", f"tabel{DANGEROUS}:lake/x"),
        ("--resource", "table:lake/\u202eoof@prod"),
        ("--principal", f"nobody{DANGEROUS}"),
        ("--principal", "user:oidc~\u202eecilA"),
        ("--acting-role", f"user:{DANGEROUS}"),
        ("--action", f"read{DANGEROUS}"),
        ("--code", f"rule{DANGEROUS}"),
        ("--rules", f"none{DANGEROUS}.properties"),
        ("--set", f"limits.{DANGEROUS}=1"),
    ],
)  # fmt: skip
def test_nothing_dangerous_is_echoed_to_a_terminal(tmp_path: Path, option: str, value: str) -> None:
    usual = {
        "--principal": "user:oidc~Alice",
        "--action": "read_data",
        "--resource": "table:lake/Foo@prod",
        option: value,
    }
    assert_harmless(on_a_terminal(tmp_path, "explain", "--example", *(part for pair in usual.items() for part in pair)))


def test_no_name_from_the_store_is_echoed_raw(tmp_path: Path) -> None:
    name = "sales\u202e"
    world = {"grants": [{"principal": "user:oidc~Alice", "privilege": "select", "object": f"namespace:lake/{name}"}]}
    (tmp_path / "world.json").write_text(json.dumps(world))
    asked = ["--principal", "user:oidc~Alice", "--action", "read_data", "--resource", f"table:lake/{name}/t@prod"]
    text = on_a_terminal(tmp_path, "explain", "--world", "world.json", *asked)
    assert text.startswith("allowed by grants:")
    assert_harmless(text)


# --- pdp healthcheck ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with serve_process(tmp_path_factory.mktemp("serving")) as process:
        yield process


def test_a_ready_service_exits_with_0(tmp_path: Path, process: Process) -> None:
    address = process.addresses["diagnostics"]
    ended = run_pdp("healthcheck", "--address", address, cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert json.loads(ended.stdout) == {"status": "ready"}
    (tmp_path / "pdp.yaml").write_text(f"server: {{diagnostics: '{address}'}}")
    assert run_pdp("healthcheck", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize("listener", ["dead", "grpc", "http"])
def test_an_unready_or_other_service_exits_with_1(tmp_path: Path, process: Process, listener: str) -> None:
    address = process.addresses.get(listener, "127.0.0.1:1")
    ended = run_pdp("healthcheck", "--address", address, cwd=tmp_path)
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert listener == "http" or address in one_line(ended.stderr)


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:x", ":1", "127.0.0.1:99999"])
def test_an_invalid_address_exits_with_2(tmp_path: Path, address: str) -> None:
    ended = run_pdp("healthcheck", "--address", address, cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert address in ended.stderr
