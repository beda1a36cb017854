"""Records of the life of a service: start, stop and reload."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from support.oracles.audit_files import all_records
from support.oracles.converging import until
from support.service.serving import Process, serve_process

pytestmark = [pytest.mark.process, pytest.mark.waits]


def steps(process: Process) -> list[dict[str, Any]]:
    """Return the records of the service's life, of all instances, by time."""
    found = [record for record in all_records(process.folder) if record["event"] == "service"]
    return sorted(found, key=lambda record: str(record["time"]))


def test_start_and_stop_are_recorded(tmp_path: Path) -> None:
    with serve_process(tmp_path) as process:
        assert process.terminate() == 0
        started, stopping, stopped = steps(process)
    assert [one["what"] for one in (started, stopping, stopped)] == ["started", "stopping", "stopped"]
    assert started["details"]["revision"]
    assert {one["details"]["process"] for one in (started, stopped)} == {started["details"]["process"]}
    assert [one["seq"] for one in (started, stopping, stopped)] == [0, 1, 2]


def test_a_rolling_restart_is_recorded_done_or_failed(tmp_path: Path) -> None:
    config = tmp_path / "pdp.yaml"
    config.write_text(
        "policies: {rules: [rules.yaml]}\nstore: {url: 'sqlite:///pdp.db'}\naudit: {sinks: [{file: audit}]}\n"
    )
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules: {a: 'true'}\n")
    with serve_process(tmp_path, "-c", str(config), "--workers", "2") as process:
        os.kill(process.process.pid, signal.SIGUSR2)
        until(lambda: "reloaded" in [one["what"] for one in steps(process)])
        rules.write_text("rules: {a: 'nonsense('}\n")
        os.kill(process.process.pid, signal.SIGUSR2)
        until(lambda: "reload_failed" in [one["what"] for one in steps(process)])
        assert process.terminate() == 0
        found = steps(process)
    whats = [one["what"] for one in found]
    assert whats.count("started") == whats.count("stopped") == 4
    assert [what for what in whats if what.startswith("reload")] == [
        "reloading",
        "reloaded",
        "reloading",
        "reload_failed",
    ]
    failed = next(one for one in found if one["what"] == "reload_failed")
    assert "rules.yaml" in failed["details"]["cause"]
