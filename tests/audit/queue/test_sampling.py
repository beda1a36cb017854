"""Sampling of permits: which records are left out, and how the trail tells."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.clients.http_client import HttpClient, client_of
from support.generators.generated_pdps import decide_and_record, make_pdp
from support.oracles.audit_files import all_records, file_audit, records_in
from support.service.serving import settings_of
from uuid_utils import uuid7

from pdp.audit.files.segments import segment_files
from pdp.audit.queue import queue
from pdp.audit.queue.queue import TrailOptions
from pdp.audit.queue.sampling import AllowSampler, is_kept, make_rule
from pdp.audit.reader import read_audit
from pdp.audit.records.recorded import ReadReport
from pdp.config.load import make_settings
from pdp.engines.engine import Verdicts
from pdp.errors import ConfigError
from pdp.model.events import ServiceEvent

RATE = 0.25
RULES = {"alice": "role == 'alice'", "etl": "role == 'etl-1'"}
SAMPLES = {
    "reads": {
        "rate": RATE,
        "actions": ["read_*", "trino:Select*"],
        "principals": ["user:oidc~alice", "user:oidc~etl-*"],
    },
    "etl": {"rate": 0.0001, "surfaces": ["http"], "principals": ["user:oidc~etl-*"]},
}


def check(principal: str = "alice", action: str = "read_data", table: str = "t") -> dict[str, Any]:
    return {"principal": f"user:oidc~{principal}", "action": action, "resource": f"table:lake/{table}@main"}


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[HttpClient]:
    (tmp_path / "rules.yaml").write_text(json.dumps({"rules": RULES}))
    config = {
        "policies": {"rules": ["rules.yaml"]},
        "trino": {"catalogs": {"lake": {"warehouse": "lake", "ref": "main"}}},
        "audit": {"sinks": [{"file": "audit"}], "sample_allows": SAMPLES},
    }
    async with client_of(settings_of(config, tmp_path)) as client:
        yield client


async def asked(client: HttpClient, *checks: dict[str, Any], count: int = 1) -> list[str]:
    """Ask the same batch several times; return the ids of the decisions."""
    answers = [await client.send("POST", "/v1/check", {"checks": list(checks)}) for _ in range(count)]
    return [answer.headers["X-Decision-ID"] for answer in answers]


async def test_the_trail_tells_what_was_left_out(client: HttpClient, tmp_path: Path) -> None:
    permits = await asked(client, check(), count=300)
    denials = await asked(client, check("bob"), count=20)
    others = await asked(client, check(action="write_data"), count=20)
    mixed = await asked(client, check(), check("bob"), count=20)
    two = await asked(client, check(), check(action="write_data"), count=20)
    rejected = await asked(client, check(), {"nonsense": 1}, count=20)
    refused = [await client.send("POST", "/v1/check", b"{") for _ in range(3)]
    more = await asked(client, check(), check("etl-1"), count=100)
    assert {answer.status for answer in refused} == {400}
    metrics = client.service.metrics().decode()
    await client.service.stop()

    records = all_records(tmp_path)
    lines = [
        record for record in records if "seq" in record and record["event"] not in ("segment", "segment_end", "chain")
    ]
    assert [line["seq"] for line in lines] == list(range(len(lines)))
    decided = {record["id"]: record for record in lines if record["event"] == "decision"}
    whole = {*denials, *others, *mixed, *two, *rejected}
    assert whole <= set(decided)
    assert all("sampled" not in decided[id] for id in whole)
    kept = {id for id in (*permits, *more) if id in decided}
    assert kept == {id for id in (*permits, *more) if is_kept(id, RATE)}
    assert all(decided[id]["sampled"] == RATE for id in kept)
    assert 50 <= len(kept) <= 150
    left_out = 400 - len(kept)
    told = sum(line.get("leftOut", 0) + line.get("details", {}).get("leftOut", 0) for line in lines)
    assert told == left_out
    assert f"pdp_audit_left_out_total {left_out}.0" in metrics
    assert sum(line["event"] == "refusal" for line in lines) == 3
    assert "left" not in json.dumps([line for line in lines if line["event"] == "refusal"])


@pytest.fixture
def permit() -> Any:
    return decide_and_record(make_pdp({}, {"a": "role == 'alice'"}), [check()])[1]


async def test_a_dropped_record_hands_on_what_it_would_have_told(
    tmp_path: Path, permit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "MAX_PENDING", 20)
    sampler = AllowSampler([make_rule(RATE, ["*"], ["*"], ["*"])], lambda: None)
    audit = file_audit(tmp_path, options=TrailOptions(on_full="drop", sampler=sampler))
    ids = [str(uuid7()) for _ in range(200)]
    kept, left_out = (
        replace(permit, answer=replace(permit.answer, id=next(id for id in ids if is_kept(id, RATE) is stays)))
        for stays in (True, False)
    )
    while not audit.is_full():  # nothing is written meanwhile: the event loop gets no turn
        audit.append(kept)
    for record in (left_out, left_out, kept, left_out, kept, kept):
        audit.append(record)
    assert audit._dropped.records == 3
    for _ in range(1000):
        if audit.is_full():
            await asyncio.sleep(0.01)
    audit.append(kept)
    assert audit.close(20)
    assert sum(line.get("leftOut", 0) for line in records_in(segment_files(tmp_path))) == 3


async def test_a_dry_run_sees_the_rate(client: HttpClient, tmp_path: Path) -> None:
    await asked(client, check(), count=100)
    await asked(client, check("bob"))
    await client.service.stop()
    report = ReadReport()
    checks = list(read_audit(tmp_path / "audit", report))
    permits = [recorded for recorded in checks if recorded.outcome and recorded.outcome.allowed]
    assert {recorded.rate for recorded in permits} == {RATE}
    assert [recorded.rate for recorded in checks if recorded not in permits] == [1.0]
    assert report.sampled == len(permits)
    assert report.left_out == 100 - len(permits), "the denial tells of the last ones"


@pytest.mark.parametrize("operation", ["SelectFromColumns", "DropTable"])
async def test_surfaces_are_sampled_by_their_rules(client: HttpClient, tmp_path: Path, operation: str) -> None:
    table = {"table": {"catalogName": "lake", "schemaName": "s", "tableName": "t", "columns": ["c"]}}
    body = {
        "input": {
            "context": {"identity": {"user": "etl-1"}},
            "action": {"operation": operation, "resource": table},
        }
    }
    answers = [await client.send("POST", "/v1/data/trino/allow", body) for _ in range(60)]
    assert {answer.json()["result"] for answer in answers} == {True}
    await client.service.stop()
    decided = {record["id"] for record in all_records(tmp_path) if record["event"] == "decision"}
    ids = {answer.headers["X-Decision-ID"] for answer in answers}
    assert ids & decided == ({id for id in ids if is_kept(id, RATE)} if operation == "SelectFromColumns" else ids)


def test_shares_are_as_the_rates_say() -> None:
    ids = [str(uuid7()) for _ in range(20_000)]
    for rate in (0.001, 0.1, 0.5, 0.9):
        kept = [id for id in ids if is_kept(id, rate)]
        deviation = (20_000 * rate * (1 - rate)) ** 0.5
        assert abs(len(kept) - 20_000 * rate) < 6 * deviation, rate
        assert set(kept) <= {id for id in ids if is_kept(id, rate * 1.1)}, "a higher rate keeps them, too"
    assert all(is_kept(id, 1) for id in ids)
    assert is_kept(str(UUID(int=0)), 1)


WORDS = st.text(st.sampled_from("ab.*~\n["), max_size=6)


def covers(pattern: str, text: str) -> bool:
    """Tell the same as a compiled pattern, in the plainest way."""
    if not pattern:
        return not text
    if pattern[0] == "*":
        return covers(pattern[1:], text) or (bool(text) and covers(pattern, text[1:]))
    return bool(text) and pattern[0] == text[0] and covers(pattern[1:], text[1:])


@given(st.lists(WORDS, min_size=1, max_size=3), WORDS)
def test_patterns_match_whole_texts(patterns: Sequence[str], text: str) -> None:
    rule = make_rule(0.5, ["*"], patterns, ["*"])
    assert rule.matches("trino", text, "user:x") == any(covers(pattern, text) for pattern in patterns)


def test_only_plain_permits_are_left_out() -> None:
    record: Any = decide_and_record(make_pdp({}, {"a": "role == 'Alice'"}), [check("Alice")])[1]
    assert record.answer.allowed == b"\x01"
    left_out: list[int] = []
    sampler = AllowSampler([make_rule(1e-9, ["*"], ["*"], ["*"])], lambda: left_out.append(1))
    assert sampler.sampled(record) is None
    answer, (decided,) = record.answer, record.checks
    (leaf,) = decided.concrete
    erring = replace(leaf, verdicts=Verdicts(leaf.verdicts.effects, leaf.verdicts.by, {0: ("a",)}))
    whole = [
        replace(record, answer=replace(answer, allowed=b"\x00")),
        replace(record, answer=replace(answer, errors={0: ("a",)})),
        replace(record, checks=(replace(decided, concrete=(erring,)),)),
        replace(record, masks={"c": None}),
        replace(record, batch=replace(record.batch, surface="list")),
        replace(record, batch=replace(record.batch, size=0, checks=()), answer=replace(answer, allowed=b"")),
    ]
    kept = [sampler.sampled(each) for each in whole]
    assert [(each.sampled, each.left_out) for each in kept if each] == [(1.0, 1), *[(1.0, 0)] * 5]
    assert len(left_out) == 1
    assert sampler.sampled(record) is None
    told = sampler.announced(ServiceEvent(what="stopped", details={"process": 1}))
    assert isinstance(told, ServiceEvent)
    assert told.details == {"process": 1, "leftOut": 1}
    assert sampler.announced(told) is told


@pytest.mark.parametrize(
    "rule",
    [
        {},
        {"rate": 0},
        {"rate": 1.5},
        {"rate": -0.1},
        {"rate": True},
        {"rate": 0.5, "actions": []},
        {"rate": 0.5, "x": 1},
    ],
)
def test_a_wrong_rule_stops_the_start(tmp_path: Path, rule: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"audit\.sample_allows\.r"):
        make_settings({"audit": {"sample_allows": {"r": rule}}}, tmp_path)
