"""Runs of real services, decided again from their audit folders after services and databases are gone."""

from __future__ import annotations

import json
import shutil
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any

import grpc
import psycopg
import pytest
from click.testing import CliRunner
from support.clients.http_client import fetch
from support.generators.mixed_load import LATER_RULES, MixedLoad, configure_mixed, write_rules
from support.oracles.audit_files import all_records
from support.oracles.converging import until
from support.servers.postgres import fresh_database
from support.service.command_line import COMPOSITION
from support.service.serving import Process, serve_process

from pdp.audit.facts.history import FactsHistory
from pdp.audit.records.rows import rows
from pdp.cli.main import cli

pytestmark = [pytest.mark.process, pytest.mark.waits, pytest.mark.long]


def repeated(folder: Path) -> dict[str, Any]:
    """Decide the audit of a service again, by the command; return its report."""
    command = ["dry-run", "--audit", str(folder / "audit"), "--format", "json"]
    done = CliRunner().invoke(cli, command, obj=COMPOSITION)
    report: dict[str, Any] = json.loads(done.stdout)
    assert done.exit_code == (3 if report["different"] else 0), done.output
    return report


def assert_repeats(folder: Path) -> None:
    """Check that every decision in an audit is decided again as it was, and that nothing is left out."""
    report = repeated(folder)
    assert report["different"] == 0, report["groups"]
    records = [record for record in all_records(folder) if record["event"] in ("decision", "filter")]
    assert report["input"]["skipped"] == []
    assert {record["event"] for record in records} == {"decision", "filter"}
    decisions = {(record["id"], row["at"]) for record in records for row in rows(record) if "error" not in row}
    listed = sum(record.get("listing", {}).get("permitted", 0) for record in records)
    assert report["checks"] == len(decisions) + listed


def assert_history_is_the_log(folder: Path, writes: int) -> None:
    """Check that the history has every write, each with the actor of the request that made it."""
    history = FactsHistory(folder / "audit")
    (epoch,) = history.epochs()
    revisions = list(history.revisions(epoch))
    assert [one.sequence for one in revisions] == list(range(revisions[0].sequence, revisions[-1].sequence + 1))
    assert len(revisions) >= writes
    actors = {one.sequence: one.actor for one in revisions}
    done = [one for one in all_records(folder) if one["event"] == "management" and one["allowed"] and one.get("asked")]
    written = [one for one in done if one["operation"].startswith("write_")]
    assert written
    for record in written:
        sequence = int(record["revision"].split(".")[1])
        # a write that changes nothing names the revision that it found
        assert actors.get(sequence, "seed") in (f"caller:{record['caller']}", "seed")


def in_parallel(work: Sequence[Callable[[], Any]]) -> None:
    """Run functions in threads; raise the first exception."""
    failures: list[BaseException] = []

    def run(one: Callable[[], Any]) -> None:
        try:
            one()
        except BaseException as error:  # noqa: BLE001  raised below
            failures.append(error)

    threads = [threading.Thread(target=run, args=(one,)) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


@pytest.mark.postgres
def test_two_services_on_one_postgresql(tmp_path: Path, postgres_server: str) -> None:
    url = fresh_database(postgres_server)
    folders = [tmp_path / "one", tmp_path / "two"]
    with ExitStack() as stack:
        processes: list[Process] = []
        for folder in folders:
            configure_mixed(folder, url)
            processes.append(stack.enter_context(serve_process(folder)))
        loads = [MixedLoad(process, seed) for seed, process in enumerate(processes)]
        in_parallel([partial(load.run, 12) for load in loads])
        assert [process.terminate() for process in processes] == [0, 0]
    writes = sum(load.writes for load in loads)
    with psycopg.connect(postgres_server, autocommit=True) as admin:
        admin.execute(f"DROP DATABASE {url.rpartition('/')[2]} WITH (FORCE)")
    (tmp_path / "kept").mkdir()
    for folder in folders:
        shutil.move(folder / "audit", tmp_path / "kept" / "audit")
        shutil.rmtree(folder)  # policies and configuration are gone, too
        assert_repeats(tmp_path / "kept")
        assert_history_is_the_log(tmp_path / "kept", writes // 2)
        shutil.rmtree(tmp_path / "kept" / "audit")


def test_two_workers_on_one_sqlite_with_a_reload(tmp_path: Path) -> None:
    folder = tmp_path / "service"
    configure_mixed(folder, "sqlite:///pdp.db")
    with serve_process(folder, "--workers", "2") as process:
        loads = [MixedLoad(process, seed) for seed in range(2)]
        in_parallel([partial(load.run, 6) for load in loads])
        bundles = {one["revision"].rpartition(".")[2] for one in process.records()}
        write_rules(folder, LATER_RULES)
        process.process.send_signal(signal.SIGUSR2)
        until(lambda: _bundle(process) not in bundles and "pdp_worker_bundles 1.0" in _metrics(process))
        in_parallel([partial(load.run, 6) for load in loads])
        assert process.terminate() == 0
    assert len({one["revision"].rpartition(".")[2] for one in process.records()}) == 2
    for file in folder.iterdir():
        if file.name != "audit":
            file.unlink()
    assert_repeats(folder)
    assert_history_is_the_log(folder, sum(load.writes for load in loads) // 2)


def _bundle(process: Process) -> str:
    answer = fetch(process.url("/v1/check"), {"checks": []}).json()
    revision: str = answer["revision"]
    return revision.rpartition(".")[2]


def _metrics(process: Process) -> str:
    return fetch(process.url("/metrics", "diagnostics")).text


def test_a_killed_service_leaves_what_its_records_need(tmp_path: Path) -> None:
    folder = tmp_path / "service"
    configure_mixed(folder, "sqlite:///pdp.db")
    for round in range(3):
        with serve_process(folder) as process:
            load = MixedLoad(process, round)
            in_parallel([partial(_run_until_killed, load), partial(_kill_after, process, load)])
    (folder / "pdp.db").unlink()
    report = repeated(folder)
    assert (report["different"], report["input"]["skipped"]) == (0, [])
    assert report["checks"] > 100


def _run_until_killed(load: MixedLoad) -> None:
    with suppress(OSError, HTTPException, grpc.RpcError):
        load.run(1000)


def _kill_after(process: Process, load: MixedLoad) -> None:
    until(lambda: load.writes > 8)
    process.process.kill()
