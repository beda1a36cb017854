"""Disks that are full, folders that are removed, and rights that are lost, under a running service."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from support.clients.http_client import fetch
from support.faults.rightless_writer import NOBODY
from support.oracles.audit_files import all_records, audit_files
from support.oracles.segment_checks import check_segments
from support.paths import ROOT, TESTS
from support.service.serving import Process, serve_process
from support.untested import not_tested

from pdp.audit.files.segments import complete_path

pytestmark = [pytest.mark.process, pytest.mark.waits]
CHECK = {"principal": "user:oidc~Alice", "action": "read_data", "resource": "table:lake/Foo@prod"}
ONE = json.dumps({"checks": [CHECK]}).encode()
MANY = json.dumps({"checks": [CHECK | {"resource": f"table:lake/{'a' * 300}{at}@prod"} for at in range(500)]}).encode()
SECONDS = 1.0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """The audit folder on a file system of 4 MiB."""
    if os.geteuid():
        not_tested("on a full disk", "only root can mount a file system", "")
    place = tmp_path / "audit"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,mode=0700", "tmpfs", str(place)], check=True)
    yield place
    subprocess.run(["umount", str(place)], check=True)


def options(on_full: str, durability: str) -> list[str]:
    sets = {
        "audit.on_full": on_full, "audit.durability": durability, "audit.max_waiting_bytes": 1 << 20,
        "limits.request_timeout_seconds": SECONDS,
    }  # fmt: skip
    return [part for key, value in sets.items() for part in ("--set", f"{key}={value}")]


def until(happens: Callable[[], Any], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def fill_disk(place: Path) -> Path:
    """Take all room of a file system; return the file that has it."""
    filler = place / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(b"\0" * 4096):
                pass
        except OSError:
            pass
    return filler


def post(process: Process, body: bytes = ONE) -> tuple[int, str, float]:
    """Return the status, the id of the decision, and the seconds that the answer took."""
    begun = time.monotonic()
    answer = fetch(process.url("/v1/check"), body)
    seconds = time.monotonic() - begun
    return answer.status, answer.json().get("decisionId", ""), seconds


def ready(process: Process) -> bool:
    return fetch(process.url("/health/ready", "diagnostics")).status == 200


def fill_memory(process: Process) -> list[str]:
    """Ask until no answer comes, or until records are dropped; return the ids of the answers."""
    ids = []
    for _ in range(40):
        status, id, _ = post(process, MANY)
        if status == 503:
            break
        ids.append(id)
    return ids


def recorded(process: Process) -> list[str]:
    found = check_segments(process.folder / "audit")
    return [record["id"] for records in found.values() for record in records if record["event"] == "decision"]


@pytest.mark.parametrize("durability", ["batch", "request"])
def test_block_on_a_full_disk(tmp_path: Path, small_disk: Path, durability: str) -> None:
    with serve_process(tmp_path, *options("block", durability)) as process:
        ids = [post(process)[1]]
        filler = fill_disk(small_disk)
        ids += fill_memory(process)
        status, _, seconds = post(process)
        assert status == 503
        assert seconds >= SECONDS * 0.9
        assert not ready(process)
        waiting: list[tuple[int, str, float]] = []
        asked = threading.Thread(target=lambda: waiting.append(post(process)))
        threading.Timer(SECONDS / 5, filler.unlink).start()
        until(lambda: not filler.exists())
        asked.start()
        asked.join()
        until(lambda: ready(process))
        ids += [id for status, id, _ in waiting if status == 200]
        ids.append(post(process)[1])
        assert process.terminate() == 0
    found = recorded(process)
    assert len(found) == len(set(found))
    assert set(ids) <= set(found)
    if durability == "batch":
        assert found == ids


@pytest.mark.parametrize("durability", ["batch", "request"])
def test_deny_on_a_full_disk(tmp_path: Path, small_disk: Path, durability: str) -> None:
    with serve_process(tmp_path, *options("deny", durability)) as process:
        ids = [post(process)[1]]
        filler = fill_disk(small_disk)
        ids += fill_memory(process)
        until(lambda: post(process)[0] == 503)
        for _ in range(5):
            status, _, seconds = post(process)
            assert status == 503
            assert seconds < SECONDS * 0.9
        filler.unlink()
        until(lambda: ready(process))
        ids.append(post(process)[1])
        assert process.terminate() == 0
    found = recorded(process)
    assert set(ids) <= set(found)
    assert len(found) == len(set(found))


@pytest.mark.parametrize("durability", ["batch", "request"])
def test_drop_on_a_full_disk(tmp_path: Path, small_disk: Path, durability: str) -> None:
    with serve_process(tmp_path, *options("drop", durability)) as process:
        ids = [post(process)[1]]
        filler = fill_disk(small_disk)
        for _ in range(40):
            status, id, seconds = post(process, MANY)
            assert status == 200
            assert seconds < SECONDS
            ids.append(id)
        assert not ready(process)
        filler.unlink()
        until(lambda: ready(process))
        until(lambda: any(one.get("what") == "records_dropped" for one in all_records(tmp_path, running=True)))
        ids.append(post(process)[1])
        metrics = fetch(process.url("/metrics", "diagnostics")).text
        assert process.terminate() == 0
    found = recorded(process)
    missing = [id for id in ids if id not in found]
    dropped = [one for one in all_records(tmp_path) if one.get("what") == "records_dropped"]
    assert sum(one["details"]["records"] for one in dropped) == len(missing) > 0
    assert f"pdp_audit_dropped_total {len(missing)}.0" in metrics
    assert found == [id for id in ids if id not in missing]


@pytest.mark.parametrize("durability", ["none", "batch", "request"])
def test_a_removed_folder_comes_back_whole(tmp_path: Path, durability: str) -> None:
    with serve_process(tmp_path, *options("block", durability)) as process:
        ids = [post(process)[1] for _ in range(20)]
        until(lambda: len(all_records(tmp_path, running=True)) == 21)
        shutil.rmtree(tmp_path / "audit")
        ids += [post(process)[1] for _ in range(20)]
        assert process.terminate() == 0
    assert recorded(process) == ids
    assert len(list((tmp_path / "audit" / "bundles").iterdir())) == 1


def test_a_moved_folder_gets_a_successor(tmp_path: Path) -> None:
    with serve_process(tmp_path, *options("block", "request")) as process:
        ids = [post(process)[1] for _ in range(20)]
        (tmp_path / "audit").rename(tmp_path / "away")
        ids += [post(process)[1] for _ in range(20)]
        assert process.terminate() == 0
    for file in (tmp_path / "away").glob("*.open"):
        file.rename(tmp_path / "audit" / complete_path(file).name)
    assert recorded(process) == ids


@pytest.mark.parametrize("workers", [1, 2])
def test_hangup_begins_new_files_and_ends_nothing(tmp_path: Path, workers: int) -> None:
    with serve_process(tmp_path, "--workers", str(workers)) as process:
        ids = []
        for count in (1, 2, 3):
            ids.append(post(process)[1])
            until(
                lambda: (
                    len([one for one in all_records(tmp_path, running=True) if one["event"] == "decision"]) == len(ids)
                )
            )
            process.process.send_signal(signal.SIGHUP)
            until(lambda count=count: complete(tmp_path) >= count)  # type: ignore[misc]
        assert process.terminate() == 0
    assert sorted(recorded(process)) == sorted(ids)
    assert complete(tmp_path) >= 3 + workers


def complete(folder: Path) -> int:
    return len([file for file in audit_files(folder) if file.complete])


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Yield a folder that every user may enter. Each start of pytest closes the one above `tmp_path` to others."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


def test_lost_rights_let_the_open_file_grow_and_the_next_one_wait(open_folder: Path) -> None:
    place = open_folder / "audit"
    place.mkdir(mode=0o700)
    if os.geteuid() == 0:
        os.chown(place, NOBODY, -1)
    command = [sys.executable, "-m", "support.faults.rightless_writer", str(place)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, TESTS)))}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as writer:
        stdin, stdout = writer.stdin, writer.stdout
        assert stdin
        assert stdout

        def order(text: str) -> str:
            stdin.write(f"{text}\n")
            stdin.flush()
            return stdout.readline().strip()

        assert order("write") == "done"
        place.chmod(0)
        assert order("write") == "done"
        assert order("rotate") == "Permission denied"
        assert order("write") == "Permission denied"
        place.chmod(0o700)
        assert order("write") == "done"
        stdin.close()
        assert writer.wait(10) == 0
    assert [record["seq"] for record in check_segments(place)["i"]] == [0, 1, 2]
