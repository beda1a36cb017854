"""`pdp audit verify`: its output and exit codes, and the audits of real services that were killed."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from support.clients.http_client import fetch
from support.oracles.audit_files import audit_files
from support.oracles.audit_records import AuditWriter, check, json_lines
from support.service.command_line import COMPOSITION
from support.service.serving import Process, serve_process

from pdp.audit.files.chain import ChainHash
from pdp.audit.files.folder import SegmentForm
from pdp.cli.main import cli

KEY = "a key of the chain of audits"


def verify(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["audit", "verify", "--audit", str(folder), *arguments], obj=COMPOSITION)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    writer = AuditWriter(tmp_path / "audit")
    for _ in range(3):
        writer.decide(check())
    writer.close()
    return tmp_path / "audit"


def test_a_good_audit_ends_with_0(folder: Path) -> None:
    result = verify(folder)
    assert result.exit_code == 0
    assert result.stdout == "no finding: 1 instance, 1 file, 3 records; 3 under a chain\n"
    assert result.stderr == ""


def test_each_finding_is_a_line_with_its_place(folder: Path) -> None:
    (file,) = folder.glob("decisions-*")
    text = file.read_bytes()
    file.write_bytes(text.replace(b"user:oidc~alice", b"user:oidc~mally", 1))
    result = verify(folder)
    assert result.exit_code == 1
    assert result.stdout == (
        f"{file.name}:2: record 0 is not what was written (edited_line)\n"
        "1 finding: 1 instance, 1 file, 3 records; 2 under a chain\n"
    )
    finding, summary = json_lines(verify(folder, "--json").stdout)
    assert finding == {
        "kind": "edited_line", "file": file.name, "message": "record 0 is not what was written", "line": 2, "seq": 0,
    }  # fmt: skip
    assert (summary["kind"], summary["findings"], summary["counts"]["records"]) == ("summary", 1, 3)


def test_names_of_forged_files_are_escaped(folder: Path) -> None:
    (folder / "decisions-\x1b[2J.jsonl").write_text("\u202ex\n")
    result = verify(folder)
    assert result.exit_code == 1
    assert "\x1b" not in result.stdout
    assert "\x1b" not in verify(folder, "--json").stdout


def test_the_key_comes_from_a_file_or_from_the_configuration(tmp_path: Path) -> None:
    writer = AuditWriter(tmp_path / "audit", SegmentForm(hash=ChainHash(KEY.encode())))
    writer.decide(check())
    writer.close()
    (tmp_path / "keys").write_text(f"another key, newer than the other\n{KEY}\n")
    assert verify(tmp_path / "audit").exit_code == 1
    result = verify(tmp_path / "audit", "--key-file", str(tmp_path / "keys"))
    assert result.stdout == "no finding: 1 instance, 1 file, 1 record; 1 under a chain with a key\n"
    config = tmp_path / "pdp.yaml"
    config.write_text("policies: {rules: []}\naudit: {sinks: [{file: audit}], hmac_key_file: keys}\n")
    configured = CliRunner().invoke(cli, ["audit", "verify", "-c", str(config)], obj=COMPOSITION)
    assert (configured.exit_code, configured.stdout) == (0, result.stdout)
    missing = verify(tmp_path / "audit", "--key-file", str(tmp_path / "nothing"))
    assert (missing.exit_code, len(missing.stderr.splitlines())) == (2, 1)


def test_options_accept_a_part_and_what_proves_nothing(tmp_path: Path) -> None:
    writer = AuditWriter(tmp_path / "audit")
    for _ in range(2):
        writer.decide(check())
        writer.rotate()
    writer.close()
    (tmp_path / "key").write_text(KEY)
    keys = ["--key-file", str(tmp_path / "key")]
    assert verify(tmp_path / "audit", *keys).exit_code == 1
    assert verify(tmp_path / "audit", *keys, "--allow-unproven").exit_code == 0
    min((tmp_path / "audit").glob("decisions-*")).unlink()
    assert verify(tmp_path / "audit").exit_code == 1
    assert verify(tmp_path / "audit", "--partial").exit_code == 0


def test_an_option_accepts_records_that_a_start_found_without_a_proof(tmp_path: Path) -> None:
    form = SegmentForm(hash=ChainHash(KEY.encode()))
    writer = AuditWriter(tmp_path / "audit", form)
    for _ in range(3):
        writer.decide(check())
    writer.close()
    (file,) = (tmp_path / "audit").glob("decisions-*")
    text = file.read_bytes()
    file.unlink()
    file.with_name(f".{file.name}").write_bytes(text[: text.rindex(b'{"event":"chain"')])
    AuditWriter(tmp_path / "audit", form).close()
    (tmp_path / "key").write_text(KEY)
    keys = ["--key-file", str(tmp_path / "key")]
    result = verify(tmp_path / "audit", *keys)
    assert (result.exit_code, result.stdout.count("(unproven_tail)")) == (1, 1)
    accepted = verify(tmp_path / "audit", *keys, "--allow-recovered")
    assert (accepted.exit_code, accepted.stdout.startswith("no finding")) == (0, True)
    assert " that a start found behind the chain of a killed process" in accepted.stdout


# --- real services ----------------------------------------------------------------------------------------------------

CHECKS: dict[str, Any] = {
    "checks": [
        {"principal": "user:oidc~Alice", "action": "read_data", "resource": f"table:lake/t{row}"} for row in range(5)
    ]
}


def ask(process: Process, ended: threading.Event) -> None:
    """Send checks until the service is gone."""
    while not ended.is_set():
        try:
            fetch(process.url("/v1/check"), CHECKS, timeout=5)
        except OSError:
            return


@pytest.mark.process
@pytest.mark.parametrize("key", [False, True])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_service_that_is_killed_and_started_again_leaves_a_good_audit(
    tmp_path: Path, workers: int, key: bool
) -> None:
    (tmp_path / "key").write_text(KEY)
    options = ["--set", f"audit.sinks=[{{file: {tmp_path / 'audit'}}}]", "--workers", str(workers)]
    options += ["--set", f"audit.hmac_key_file={tmp_path / 'key'}"] if key else []
    keys = ["--key-file", str(tmp_path / "key")] if key else []
    for turn in range(3):
        with serve_process(tmp_path, *options) as process:
            ended = threading.Event()
            asking = threading.Thread(target=ask, args=(process, ended))
            asking.start()
            try:
                threading.Event().wait(0.3 + turn * 0.1)
                running = verify(tmp_path / "audit", *keys)
                assert running.exit_code == 0, running.stdout
                if turn < 2:
                    kill_all(process)
                else:
                    assert process.terminate() == 0
            finally:
                ended.set()
                asking.join(20)
        left = verify(tmp_path / "audit", *keys)
        assert left.exit_code == 0, left.stdout
    assert not [file for file in audit_files(tmp_path) if not file.complete]


def kill_all(process: Process) -> None:
    """Kill a service with its workers."""
    children = Path(f"/proc/{process.process.pid}/task/{process.process.pid}/children").read_text().split()
    for pid in (process.process.pid, *map(int, children)):
        os.kill(pid, signal.SIGKILL)
    process.process.wait(20)


@pytest.mark.process
def test_a_lost_instance_is_named_by_the_next_start(tmp_path: Path) -> None:
    for _ in range(2):
        with serve_process(tmp_path) as process:
            fetch(process.url("/v1/check"), CHECKS)
            assert process.terminate() == 0
    folder = tmp_path / "audit"
    assert verify(folder).exit_code == 0
    first, second = sorted(folder.glob("decisions-*"))
    first.unlink()
    result = verify(folder)
    assert result.exit_code == 1
    assert f"{second.name}:2: the instance" in result.stdout
    assert json.loads(verify(folder, "--json").stdout.splitlines()[0])["kind"] == "missing_instance"
