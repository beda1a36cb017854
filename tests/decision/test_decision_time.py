"""Time of a decision: one for all checks of a batch, recorded, and given again to a replay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.generators.generated_pdps import batch, make_pdp

from pdp.audit.reader import read_audit
from pdp.audit.records.recorded import ReadReport, ReplayCheck
from pdp.decision.service import Pdp
from pdp.model.answer import Answer
from pdp.offline.cases.runner import MemoryAudit
from pdp.offline.replay.replay import replay

NEW_YEAR = 1_767_225_600
IN_2025 = {"r": "now < timestamp('2026-01-01T00:00:00Z')"}
CHECK = {"principal": "user:oidc~a", "action": "read_data", "resource": "table:lake/s/t@main"}
GRANTED = CHECK | {"resource": "table:lake/s/u@main"}


def pdp_at(rules: dict[str, str], seconds: float, forbid: dict[str, str] | None = None) -> Pdp:
    """Return a PDP with a clock that stands still."""
    pdp = make_pdp({"authorities": {"default": {"engines": ["cel"]}}}, rules, forbid=forbid)
    pdp.clock = lambda: seconds
    return pdp


async def decide_at(pdp: Pdp, seconds: float, *, at_once: bool) -> Answer:
    """Decide a check at a time, in either way of the service."""
    pdp.clock = lambda: seconds
    checks = batch([CHECK, GRANTED])
    result = pdp.decide_now(checks) if at_once else await pdp.decide(checks)
    assert result
    return result.answer


@pytest.mark.parametrize("at_once", [True, False])
async def test_one_service_decides_by_the_time_of_each_request(at_once: bool) -> None:
    pdp = pdp_at(IN_2025, 0)
    assert (await decide_at(pdp, NEW_YEAR - 0.5, at_once=at_once)).allowed == b"\1\1"
    assert (await decide_at(pdp, NEW_YEAR, at_once=at_once)).allowed == b"\0\0"
    assert (await decide_at(pdp, NEW_YEAR - 86_400, at_once=at_once)).allowed == b"\1\1"


async def test_a_forbid_begins_on_time() -> None:
    pdp = pdp_at({"all": "true"}, 0, {"f": "now >= timestamp('2026-01-01T00:00:00Z')"})
    assert (await decide_at(pdp, NEW_YEAR - 1, at_once=True)).allowed == b"\1\1"
    assert (await decide_at(pdp, NEW_YEAR, at_once=True)).by == ["cel:f", "cel:f"]


async def test_policies_without_time_record_none() -> None:
    pdp = pdp_at({"all": "true"}, NEW_YEAR)
    await pdp.check(batch([CHECK]))
    assert isinstance(pdp.audit, MemoryAudit)
    assert "now" not in json.dumps(pdp.audit.records)


def recorded(pdp: Pdp, folder: Path) -> list[ReplayCheck]:
    """Return the checks of the records, read from a file."""
    assert isinstance(pdp.audit, MemoryAudit)
    lines = [msgspec.json.encode(record) for record in pdp.audit.records]
    (folder / "decisions-1.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    found = list(read_audit(folder, report := ReadReport()))
    assert not report.skipped
    return found


async def test_a_replay_decides_at_the_time_that_the_rules_saw(tmp_path: Path) -> None:
    pdp = pdp_at(IN_2025, NEW_YEAR - 1)
    await pdp.check(batch([CHECK]))
    (check,) = recorded(pdp, tmp_path)
    assert check.check.question.context.now == NEW_YEAR - 1
    assert not await replay([check], None, pdp_at(IN_2025, NEW_YEAR + 1))
    assert (await replay([check], None, pdp_at({"r": "now > timestamp('2026-01-01T00:00:00Z')"}, 0))).totals[
        "lost"
    ] == 1


async def test_a_replay_takes_the_time_of_a_record_without_one(tmp_path: Path) -> None:
    pdp = pdp_at({"r": "true"}, NEW_YEAR)
    await pdp.check(batch([CHECK]))
    (check,) = (msgspec.structs.replace(one, time="2025-12-31T23:59:59.900000Z") for one in recorded(pdp, tmp_path))
    assert not await replay([check], None, pdp_at(IN_2025, NEW_YEAR + 1))
    late: Any = msgspec.structs.replace(check, time="2026-01-01T00:00:00.000001Z")
    assert (await replay([late], None, pdp_at(IN_2025, 0))).totals["lost"] == 1


async def test_an_explanation_shows_the_time() -> None:
    pdp = pdp_at(IN_2025, NEW_YEAR)
    answer = await pdp.check(msgspec.structs.replace(batch([CHECK]), explain=True))
    assert "now is timestamp('2026-01-01T00:00:00Z')" in str(answer.traces)
