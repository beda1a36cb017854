"""`pdp audit tail`: the newest records, filters, escapes, and following over segments and starts."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from support.oracles.audit_records import HOSTILE, AuditWriter, check, json_lines
from support.oracles.converging import until
from support.paths import ROOT
from support.service.command_line import COMPOSITION

from pdp.audit.files.chain import ChainHash
from pdp.audit.files.folder import SegmentForm
from pdp.audit.following import lines_from_end
from pdp.cli.audit.text import safe_json
from pdp.cli.main import cli
from pdp.model.events import ManagementEvent, RefusalEvent, ServiceEvent

pytestmark = pytest.mark.waits

BOB = "user:oidc~bob"


def tail(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["audit", "tail", "--audit", str(folder), *arguments], obj=COMPOSITION)


def ids(folder: Path, *arguments: str) -> list[str]:
    result = tail(folder, "--json", *arguments)
    assert result.exit_code == 0, result.stderr
    return [record["id"] for record in json_lines(result.stdout)]


@pytest.fixture
def filled(tmp_path: Path) -> tuple[Path, dict[str, dict[str, Any]]]:
    """Return an audit with one record of each kind, by name."""
    writer = AuditWriter(tmp_path)
    found = {
        "start": writer.note(ServiceEvent(what="started", details={"process": 7})),
        "alice": writer.decide(check("orders", context={"queryId": "q1"})),
        "bob": writer.decide(check("orders", BOB)),
    }
    writer.rotate()
    found["many"] = writer.decide(*(check(f"t{row}", BOB if row % 2 else "user:oidc~alice") for row in range(40)))
    found["columns"] = writer.decide(check(resources=[f"table:w/c/t{row}" for row in range(60)]))
    found["refusal"] = writer.note(
        RefusalEvent(
            surface="http", status="403", code="forbidden", caller="spark", request_id="r1", trace_id="0af7651916cd43dd"
        )
    )
    found["write"] = writer.note(
        ManagementEvent(operation="write_grants", caller="loopback", actor=BOB, allowed=False, code="forbidden")
    )
    writer.close()
    return tmp_path, found


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ([], ["start", "alice", "bob", "many", "columns", "refusal", "write"]),
        (["-n", "2"], ["refusal", "write"]),
        (["-n", "0"], []),
        (["-n", "1", "--event", "decision"], ["columns"]),
        (["--since", "2020-01-01"], ["start", "alice", "bob", "many", "columns", "refusal", "write"]),
        (["--until", "2020-01-01"], []),
        (["--principal", BOB], ["bob", "many", "write"]),
        (["--principal", "user:oidc~*"], ["alice", "bob", "many", "columns", "write"]),
        (["--resource", "table:w/s/orders"], ["alice", "bob"]),
        (["--resource", "table:w/c/*"], ["columns"]),
        (["--resource", "table:w/c/t59", "--denied"], []),
        (["--denied"], ["bob", "many", "refusal", "write"]),
        (["--denied", "--principal", "user:oidc~alice"], []),
        (["--action", "write_grants"], ["write"]),
        (["--action", "read_data", "--surface", "test"], ["alice", "bob", "many", "columns"]),
        (["--surface", "http"], ["refusal"]),
        (["--caller", "spark"], ["refusal"]),
        (["--request-id", "r1"], ["refusal"]),
        (["--query-id", "q1"], ["alice"]),
        (["--trace-id", "0af7651916cd43dd"], ["refusal"]),
        (["--event", "service"], ["start"]),
        (["--instance", "other"], []),
    ],
)
def test_options_choose_records(
    filled: tuple[Path, dict[str, dict[str, Any]]], arguments: list[str], names: list[str]
) -> None:
    folder, found = filled
    assert ids(folder, *arguments) == [found[name]["id"] for name in names]


def test_a_record_is_found_by_its_id(filled: tuple[Path, dict[str, dict[str, Any]]]) -> None:
    folder, found = filled
    for record in found.values():
        assert ids(folder, "--id", record["id"]) == [record["id"]]


def test_json_lines_are_the_records(filled: tuple[Path, dict[str, dict[str, Any]]]) -> None:
    folder, found = filled
    assert json_lines(tail(folder, "--json").stdout) == list(found.values())


def test_lines_say_who_did_what_and_why(filled: tuple[Path, dict[str, dict[str, Any]]]) -> None:
    folder, found = filled
    lines = tail(folder).stdout.splitlines()
    assert "service started process=7" in " ".join(lines[0].split())
    (alice,) = [line for line in lines if found["alice"]["id"] in line]
    assert "allow user:oidc~alice read_data table:w/s/orders@main cel:readers [test " in " ".join(alice.split())
    assert "q1" in alice
    many = next(row for row, line in enumerate(lines) if found["many"]["id"] in line)
    assert "20 of 40 allowed" in lines[many]
    assert all("deny" in line and BOB in line for line in lines[many + 1 : many + 11])
    assert lines[many + 11] == "    and 10 more"
    assert "60 of 60 allowed" in next(line for line in lines if found["columns"]["id"] in line)
    assert "refused" in lines[-2]
    assert "write_grants" in lines[-1]


def test_chosen_items_alone_are_shown(filled: tuple[Path, dict[str, dict[str, Any]]]) -> None:
    folder, found = filled
    (line,) = tail(folder, "--resource", "table:w/s/t7@main").stdout.splitlines()
    assert found["many"]["id"] in line
    assert "deny" in line
    assert "table:w/s/t7" in line


@pytest.mark.parametrize("form", ["none", "gzip", "zstd"])
def test_every_form_of_files_is_read(tmp_path: Path, form: Any) -> None:
    wanted = []
    for killed in (False, False, True):
        writer = AuditWriter(tmp_path, SegmentForm(compress=form, hash=ChainHash(b"a key that is long enough")))
        for _ in range(3):
            wanted.append(writer.decide(check())["id"])
            writer.rotate()
        wanted.append(writer.decide(check())["id"])
        writer.close(killed=killed)
    for file in tmp_path.glob("*.open"):
        with file.open("ab") as stream:
            stream.write(b'{"event":"decision","torn')
    assert ids(tmp_path, "-n", "100") == wanted
    assert ids(tmp_path, "-n", "2") == wanted[-2:]
    assert ids(tmp_path, "--since", "2020-01-01") == wanted


def test_lines_that_cannot_be_read_are_counted(tmp_path: Path) -> None:
    writer = AuditWriter(tmp_path)
    for line in (b"nonsense\n", b"\xff\xfe\n", b'{"event":"new"}\n', b'{"event":"decision","schema":9}\n'):
        writer.write(line)
    one = writer.decide(check())
    writer.close()
    result = tail(tmp_path, "--json")
    assert [record["id"] for record in json_lines(result.stdout)] == [one["id"]]
    assert "skipped 2 lines: not JSON" in result.stderr
    assert "event `new`" in result.stderr
    assert "schema 9, this version reads 1" in result.stderr


def dangerous(text: str) -> list[str]:
    """Return signs that control a terminal, a line, or the direction of writing."""
    return [
        sign for sign in text if unicodedata.category(sign) in {"Cc", "Cf", "Zl", "Zp", "Co", "Cs"} and sign != "\n"
    ]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_cannot_control_the_terminal(tmp_path: Path, name: str) -> None:
    writer = AuditWriter(tmp_path)
    writer.decide(check(name)) if name.isprintable() else None
    writer.decide(check("t", f"user:oidc~{name}"))
    writer.decide({"principal": name, "action": name, "resource": name})
    writer.note(RefusalEvent(surface=name, status="400", code=name, message=name, endpoint=name, peer=name))
    writer.note(ManagementEvent(operation=name, caller=name, allowed=True, asked={name: [name]}))
    writer.note(ServiceEvent(what=name, details={name: name}))
    writer.close()
    for arguments in ([], ["--json"], ["--since", "2020-01-01"]):
        result = tail(tmp_path, *arguments)
        assert result.exit_code == 0
        assert dangerous(result.stdout) == []
        assert len(result.stdout.splitlines()) >= 5
    (refusal,) = json_lines(tail(tmp_path, "--json", "--event", "refusal").stdout)
    assert (refusal["code"], refusal["endpoint"]) == (name, name)


@given(
    st.recursive(
        st.none() | st.text(st.characters(exclude_categories=["Cs"])),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    )
)
def test_safe_json_is_the_same_json(value: Any) -> None:
    text = safe_json(json.dumps(value, ensure_ascii=False).encode())
    assert json.loads(text) == value
    assert dangerous(text) == []


@given(st.lists(st.binary(max_size=200).map(lambda line: line.replace(b"\n", b"") + b"\n")), st.binary(max_size=5))
def test_lines_from_the_end_are_the_lines(lines: list[bytes], rest: bytes) -> None:
    text = b"".join(lines) + rest.replace(b"\n", b"")
    wanted = text.split(b"\n")
    whole = [line + b"\n" for line in wanted[:-1]] + ([wanted[-1]] if wanted[-1] else [])
    assert list(lines_from_end(io.BytesIO(text), len(text))) == whole[::-1]


def test_long_files_are_read_from_the_end(tmp_path: Path) -> None:
    writer = AuditWriter(tmp_path)
    wanted = [writer.decide(check("x" * 2000))["id"] for _ in range(100)]
    writer.close(killed=True)
    assert ids(tmp_path, "-n", "77") == wanted[-77:]


@pytest.mark.parametrize("arguments", [["--audit", "missing"], ["--since", "soon", "--audit", "."], ["--audit", "."]])
def test_a_wrong_folder_or_time_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli, ["audit", "tail", *arguments], obj=COMPOSITION)
    assert result.exit_code == 2
    assert result.stderr.startswith("pdp: ")
    assert len(result.stderr.splitlines()) == 1


def test_the_configuration_names_the_folder(tmp_path: Path) -> None:
    writer = AuditWriter(tmp_path / "trail")
    one = writer.decide(check())
    writer.close()
    (tmp_path / "pdp.yaml").write_text("audit: {sinks: [{file: trail}]}\npolicies: {rules: []}\n")
    result = CliRunner().invoke(cli, ["audit", "tail", "--json", "-c", str(tmp_path / "pdp.yaml")], obj=COMPOSITION)
    assert [record["id"] for record in json_lines(result.stdout)] == [one["id"]]


# --- following --------------------------------------------------------------------------------------------------------


def whole_lines(output: Path) -> str:
    """Return the lines of an output that have an end."""
    text = output.read_text()
    return text[: text.rfind("\n") + 1]


@contextmanager
def following(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[], list[str]]]]:
    """Run `pdp audit tail -f --json`; yield the process, and a function that returns the ids so far."""
    output = folder.parent / "output"
    command = [sys.executable, "-m", "pdp", "audit", "tail", "-f", "--json", "--audit", str(folder), *arguments]
    with output.open("wb") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
    try:
        yield process, lambda: [record["id"] for record in json_lines(whole_lines(output))]
    finally:
        process.kill()
        process.communicate()


@pytest.mark.process
@pytest.mark.parametrize("form", ["none", "zstd"])
def test_following_goes_over_segments_and_starts(tmp_path: Path, form: Any) -> None:
    folder = tmp_path / "audit"
    folder.mkdir()
    writer = AuditWriter(folder, SegmentForm(compress=form))
    wanted = [writer.decide(check())["id"] for _ in range(12)]
    with following(folder) as (process, printed):
        until(lambda: printed() == wanted[-10:])
        del wanted[:2]
        for _ in range(3):
            wanted += [writer.decide(check())["id"] for _ in range(3)]
            writer.rotate()
        until(lambda: printed() == wanted)
        second = AuditWriter(folder, SegmentForm(compress=form))
        wanted.append(second.decide(check())["id"])
        until(lambda: printed() == wanted)
        wanted += [writer.decide(check())["id"], writer.decide(check())["id"]]
        writer.close(killed=True)
        until(lambda: printed() == wanted)
        third = AuditWriter(folder, SegmentForm(compress=form))  # closes what the first one left
        wanted.append(third.decide(check())["id"])
        until(lambda: printed() == wanted)
        time.sleep(0.5)
        assert printed() == wanted
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=20)[1] == b"pdp: interrupted\n"
        assert process.returncode == -signal.SIGINT
    second.close()
    third.close()


@pytest.mark.process
def test_following_waits_for_the_first_file_and_for_whole_lines(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    folder.mkdir()
    with following(folder, "--denied") as (_, printed):
        time.sleep(0.5)
        writer = AuditWriter(folder)
        writer.decide(check())
        denied = [writer.decide(check("t", BOB))["id"]]
        until(lambda: printed() == denied)
        (file,) = folder.glob("*.open")
        line = json.dumps(
            {"event": "refusal", "schema": 1, "id": "x", "instance": writer.instance, "seq": 2, "time": ""}
        )
        with file.open("ab", buffering=0) as stream:
            stream.write(line[:20].encode())
            time.sleep(0.5)
            assert printed() == denied
            stream.write(line[20:].encode() + b"\n")
            until(lambda: printed() == [*denied, "x"])
    writer.close()


@pytest.mark.process
@pytest.mark.parametrize("follow", [[], ["-f"]])
def test_a_closed_pipe_ends_the_command(tmp_path: Path, follow: list[str]) -> None:
    writer = AuditWriter(tmp_path)
    for _ in range(300):
        writer.decide(check("x" * 1000))
    writer.close()
    command = [sys.executable, "-m", "pdp", "audit", "tail", "-n", "300", "--audit", str(tmp_path), *follow]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}
    ) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b"pdp: the reader of the output is gone\n"
        assert process.wait(20) == 2
