"""Month played on a real service with a clock of its own: the audit holds the month, and is sound."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from support.oracles.audit_files import all_records
from support.service.commands import run_pdp

from pdp.errors import Unavailable
from pdp.lake.demo.clock import ClockHand
from pdp.lake.demo.company import read_company, write_configuration
from pdp.lake.demo.month import MonthPlan, month
from pdp.lake.demo.player import play

pytestmark = [pytest.mark.process, pytest.mark.waits]
PLAN = MonthPlan(date(2026, 2, 2), share=0.03)

SHOW_TIME = """
import runpy, sys, time
from pathlib import Path
from pdp.lake.demo import clock
runpy.run_module = lambda *_, **__: print(time.time())
clock.run_with_clock(Path(sys.argv[1]), [])
"""


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo") / "company"
    result = play(month(read_company(), PLAN), folder, lambda _: None)
    assert result.refused == 64
    return folder


@pytest.fixture(scope="module")
def records(played: Path) -> list[dict[str, Any]]:
    return all_records(played)


@pytest.mark.long
def test_records_have_the_times_of_the_month_in_order(records: list[dict[str, Any]]) -> None:
    by_instance: dict[str, list[str]] = {}
    for record in records:
        by_instance.setdefault(record["instance"], []).append(record["time"])
    assert len(by_instance) == 2  # the policies changed
    for times in by_instance.values():
        assert times == sorted(times)
    days = {record["time"][:10] for record in records}
    assert (min(days), max(days), len(days)) == ("2026-02-02", "2026-03-04", 31)
    assert not [record for record in records if record.get("what") == "clock_jump"]


def test_every_planned_event_is_recorded(records: list[dict[str, Any]]) -> None:
    refusals = Counter(record["code"] for record in records if record["event"] == "refusal")
    assert refusals.keys() == {"invalid_argument", "unauthenticated"}
    writes = [record for record in records if record["event"] == "management"]
    assert [(record["actor"], record["allowed"]) for record in writes] == [("user:oidc~anna", True)] * 2
    assert len({record["revision"].rpartition(".")[2] for record in records if record["event"] == "decision"}) == 2
    surfaces = {(record["surface"], record["event"]) for record in records if "surface" in record}
    assert {("trino", "decision"), ("trino", "filter"), ("http", "decision")} <= surfaces
    assert any(check["delegated"] for record in records if "checks" in record for check in record["checks"])


def test_the_audit_is_sound_and_decides_again(played: Path) -> None:
    verified = run_pdp("audit", "verify", "--audit", str(played / "audit"))
    assert verified.returncode == 0, verified.stdout
    again = run_pdp("dry-run", "--audit", str(played / "audit"), "--format", "json")
    assert again.returncode == 0, again.stdout
    report = json.loads(again.stdout)
    assert report["different"] == 0
    assert report["checks"] > 5000


def test_the_folder_says_that_its_times_are_not_real(played: Path) -> None:
    assert "clock of its own" in (played / "README.txt").read_text()


def test_the_clock_goes_on_and_never_back(tmp_path: Path) -> None:
    hand_file = tmp_path / "clock"
    with ClockHand(hand_file) as hand:
        year = datetime(2031, 5, 1, tzinfo=UTC).timestamp()
        assert hand.move(year) == pytest.approx(year)
        assert hand.move(year - 1000) >= year
        script = tmp_path / "script.py"
        script.write_text(SHOW_TIME)
        started = time.monotonic()
        seen = subprocess.run([sys.executable, script, hand_file], capture_output=True, text=True, check=True).stdout
        assert year <= float(seen) < year + time.monotonic() - started + 60


def test_a_service_that_does_not_start_says_where_the_cause_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "company"

    def broken(folder: Path) -> Path:
        file = write_configuration(folder)
        file.write_text("warehouses: nonsense\n")
        return file

    monkeypatch.setattr("pdp.lake.demo.player.write_configuration", broken)
    with pytest.raises(Unavailable, match=r"does not start, see `.*service.log`"):
        play(month(read_company(), PLAN)[:3], folder, lambda _: None)
    assert "warehouses" in (folder / "service.log").read_text()
