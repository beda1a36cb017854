"""The audit on disk: batches, a disk that is full for a while, and a process that is killed."""

from __future__ import annotations

import http.client
import json
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from support.generated_pdps import decide_and_record, make_pdp
from support.serving import serve_process

from pdp.audit import log
from pdp.audit.folder import AuditFolder
from pdp.audit.log import BATCH, FileAudit
from pdp.engines.engine import Verdicts
from pdp.errors import Unavailable
from pdp.telemetry import Telemetry

CHECK = {"principal": "user:oidc~Alice", "action": "read_data", "resource": "table:lake/Foo@prod"}
BODY = json.dumps({"checks": [CHECK]}).encode()


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond a size: a write stops there, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def one_record() -> Any:
    return decide_and_record(make_pdp({}, {}), [CHECK])[1]


def lines(folder: Path) -> list[Any]:
    (file,) = folder.glob("*.jsonl")
    return [json.loads(line) for line in file.read_bytes().split(b"\n")[:-1]]


def has_lines(folder: Path, count: int) -> bool:
    return len(lines(folder)) == count


def until(happens: Callable[[], Any], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_lines_that_do_not_fit_leave_no_part_behind(tmp_path: Path) -> None:
    folder = AuditFolder(tmp_path, "i")
    file = tmp_path / "decisions-i.jsonl"
    folder.append(b"first\n")
    for limit in (6, 7, 30):
        with largest_file(limit), pytest.raises(OSError, match="too large"):
            folder.append(b"second, longer than the limit lets it be\n")
        assert file.read_bytes() == b"first\n"
    folder.append(b"third\n")
    folder.close()
    assert file.read_bytes() == b"first\nthird\n"


def test_a_record_is_on_disk_soon_without_any_other(tmp_path: Path) -> None:
    audit, record = FileAudit(tmp_path, Telemetry()), one_record()
    for count in (1, 2, 3):
        time.sleep(0.03)  # the thread sleeps now
        audit.append(record)
        until(partial(has_lines, tmp_path, count))
    assert audit.close(10)
    assert [line["seq"] for line in lines(tmp_path)] == [0, 1, 2]


def test_a_batch_ends_at_its_number_of_records_and_at_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, limit in (("BATCH", 7), ("BATCH_BYTES", 1000)):
        monkeypatch.setattr(log, name, limit)
        folder = tmp_path / name
        audit, record = FileAudit(folder, Telemetry()), one_record()
        for _ in range(50):
            audit.append(record)
        assert audit.close(10)
        assert [line["seq"] for line in lines(folder)] == list(range(50))


@pytest.mark.slow
def test_records_wait_for_a_full_disk_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "RETRY_SECONDS", 0.02)
    monkeypatch.setattr(log, "MAX_PENDING", 3 * BATCH)
    telemetry = Telemetry()
    audit, record = FileAudit(tmp_path, telemetry), one_record()
    audit.append(record)
    until(lambda: lines(tmp_path))
    assert not audit.failing
    with largest_file(4000):
        for _ in range(3 * BATCH - 1):
            audit.append(record)
        until(lambda: audit.failing)
        audit.admit()
        audit.append(record)
        with pytest.raises(Unavailable):
            audit.admit()
        time.sleep(0.1)
        assert len(lines(tmp_path)) == 1
        assert telemetry.registry.get_sample_value("pdp_audit_waiting") == 3 * BATCH
    until(lambda: not audit.failing)
    assert audit.close(10)
    audit.admit()
    assert [line["seq"] for line in lines(tmp_path)] == list(range(3 * BATCH + 1))
    assert telemetry.registry.get_sample_value("pdp_audit_waiting") == 0
    assert telemetry.registry.get_sample_value("pdp_audit_records_total") == 3 * BATCH + 1


def test_a_record_that_cannot_be_encoded_is_not_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "RETRY_SECONDS", 0.01)
    audit, record = FileAudit(tmp_path, Telemetry()), one_record()
    reasons: list[Any] = [7]
    (decided,) = record.checks
    leaf = replace(decided.concrete[0], verdicts=Verdicts(bytes(1), reasons))
    broken = replace(record, checks=(replace(decided, concrete=(leaf,)),))
    for one in (record, broken, record):
        audit.append(one)
    until(lambda: audit.failing)
    time.sleep(0.05)
    assert lines(tmp_path) == []
    reasons[0] = "cel:r"
    until(lambda: not audit.failing)
    assert audit.close(10)
    assert [(line["seq"], line["checks"][0]["by"]) for line in lines(tmp_path)] == [
        (0, ["default_deny"]),
        (1, ["cel:r"]),
        (2, ["default_deny"]),
    ]


@pytest.mark.process
def test_a_killed_process_loses_no_more_than_the_newest_records(tmp_path: Path) -> None:
    answered: list[tuple[float, str]] = []
    with (
        serve_process(tmp_path) as process,
        closing(http.client.HTTPConnection(process.addresses["http"], timeout=30)) as client,
    ):
        ended = time.monotonic() + 1
        while time.monotonic() < ended:
            client.request("POST", "/v1/check", BODY, {"Content-Type": "application/json"})
            reply = json.loads(client.getresponse().read())
            answered.append((time.monotonic(), reply["decisionId"]))
        killed = time.monotonic()
        process.process.kill()
        process.process.wait(10)
    (file,) = (tmp_path / "audit").glob("*.jsonl")
    whole = file.read_bytes().split(b"\n")[:-1]
    written = [json.loads(line)["id"] for line in whole]
    assert written == [id for _, id in answered][: len(written)]
    # the window is 10 to 20 ms; a machine under load may not run the process for much longer
    assert [at for at, id in answered[len(written) :] if at < killed - 0.5] == []
