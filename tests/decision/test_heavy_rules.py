"""Rules whose evaluation takes milliseconds: others get turns meanwhile, a request ends in time, a page makes progress."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.generators import worlds
from support.generators.generated_pdps import batch, decide, make_pdp
from support.service.caches import with_cache
from support.service.serving import settings_of

from pdp.app.facts import build_pdp
from pdp.decision import evaluation
from pdp.decision.codec import decode_call
from pdp.decision.service import Pdp
from pdp.dialects.polaris.endpoint import DENIED, PolarisSurface
from pdp.dialects.trino.endpoints import TrinoSurface
from pdp.engines.cel.program import Program
from pdp.engines.cel.rules import inline_rules
from pdp.facts.objects import key_from_text
from pdp.identity.callers import EMBEDDED_CALLER
from pdp.identity.evidence import admit
from pdp.management.requests import ObjectQuery, PageRequest, Requester
from pdp.management.service import Management
from pdp.model.question import Batch, Caller, Principal
from pdp.offline.cases.runner import MemoryAudit
from pdp.store.world import parse_world

T = TypeVar("T")
ALICE = "user:oidc~alice"
TWENTY = list(range(20))
LONG = f"{TWENTY}.exists(a, {TWENTY}.exists(b, {TWENTY}.exists(c, {{}} == 'x' + string(a + b + c))))"
"""Test of a text against 8,000 others: milliseconds on every machine."""
HEAVY = {
    "path": LONG.format("path"),
    "names of some": f"path.startsWith('s.z') && {LONG.format('path')}",
    "principal": LONG.format("role"),
    "two": LONG.format("path") + " || " + LONG.format("path + 'y'"),
}
ROWS = 60


def make(folder: Path, rule: str = HEAVY["path"], tables: int = ROWS) -> Pdp:
    """Build a PDP with a heavy forbid, whose user alice owns a warehouse with some tables."""
    world = parse_world(
        {
            "objects": [f"table:w/s/t{at:03}" for at in range(tables)],
            "grants": [{"principal": ALICE, "privilege": "ownership", "object": "warehouse:w"}],
        }
    )
    config = {
        "authorities": {"default": {"engines": ["grants"]}},
        "warehouses": {"w": {}},
        "polaris": {"catalogs": {"w": "w"}, "realms": ["r"]},
        "trino": {"catalogs": {"w": {"warehouse": "w"}}},
    }
    return build_pdp(settings_of(config, folder), world, (inline_rules({}), inline_rules({"a": rule})), MemoryAudit())


def asked(checks: Sequence[dict[str, Any]], caller: Caller = EMBEDDED_CALLER) -> Batch:
    request, _ = decode_call(json.dumps({"checks": checks}).encode(), 10_000)
    return admit(request, caller)


def check(more: dict[str, Any]) -> dict[str, Any]:
    return {"principal": ALICE, "action": "read_data", **more}


def tables(letters: str = "t") -> list[str]:
    return [f"table:w/s/{letters[at * len(letters) // ROWS]}{at:03}" for at in range(ROWS)]


REQUESTS: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "one check": ("path", [check({"resources": tables()})]),
    "many checks": ("path", [check({"resource": table}) for table in tables()]),
    "light ones first": ("names of some", [check({"resources": tables("ttz")})]),
    "two readings": ("two", [check({"resources": tables()})]),
    "many principals": (
        "principal",
        [check({"principal": f"user:oidc~u{at}", "resource": "table:w/s/t"}) for at in range(ROWS)],
    ),
}


async def beats_during(work: Callable[[], Awaitable[T]]) -> tuple[int, T]:
    """Return how often another task ran during some work, with the result of the work."""
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            beats += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(beat())
    try:
        await asyncio.sleep(0)
        before = beats
        result = await work()
        return beats - before, result
    finally:
        other.cancel()


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("name", REQUESTS)
def test_others_run_between_the_resources_of_a_heavy_rule(tmp_path: Path, name: str, cached: bool) -> None:
    rule, checks = REQUESTS[name]
    pdp = make(tmp_path, HEAVY[rule])
    pdp = with_cache(pdp) if cached else pdp
    beats, answer = asyncio.run(beats_during(lambda: pdp.check(asked(checks))))
    assert set(answer.allowed) == ({0} if rule == "principal" else {1})
    assert beats > ROWS / 8  # a third of the rows is heavy in one case, and a busy machine makes larger steps


def test_others_run_while_a_caller_s_own_rights_are_decided(tmp_path: Path) -> None:
    pdp = make(tmp_path)
    caller = Caller("alice", frozenset(), own=Principal("user", "oidc~alice"))
    beats, answer = asyncio.run(beats_during(lambda: pdp.check(asked([check({"resources": tables()})], caller))))
    assert set(answer.allowed) == {1}
    assert beats > ROWS / 2  # the tables are asked about twice


def test_a_request_ends_at_its_time(tmp_path: Path) -> None:
    pdp = make(tmp_path)

    async def check_in_time() -> None:
        async with asyncio.timeout(0.05):
            await pdp.check(asked([check({"resources": tables()})]))

    with pytest.raises(TimeoutError):
        asyncio.run(check_in_time())


def test_polaris_is_denied_in_time(tmp_path: Path) -> None:
    above = [{"type": "CATALOG", "name": "w", "parents": []}, {"type": "NAMESPACE", "name": "s", "parents": []}]
    targets = [{"type": "TABLE_LIKE", "name": f"t{at}", "parents": above} for at in range(ROWS)]
    input = {
        "actor": {"principal": "alice", "roles": []},
        "action": "UPDATE_TABLE",
        "resource": {"targets": targets},
        "context": {"realm": "r"},
    }
    pdp = make(tmp_path)
    surface = PolarisSurface(pdp, 0.05)
    body = json.dumps({"input": input}).encode()
    assert surface._now(body, EMBEDDED_CALLER) is None
    beats, answer = asyncio.run(beats_during(lambda: surface._answer(body, EMBEDDED_CALLER)))
    assert answer.body == DENIED
    assert beats < ROWS, "the decision went on behind its time"
    assert "internal_failure" in json.dumps(pdp.audit.records)  # type: ignore[attr-defined]


def test_others_run_during_a_batch_of_trino(tmp_path: Path) -> None:
    resources = [{"table": {"catalogName": "w", "schemaName": "s", "tableName": f"t{at}"}} for at in range(ROWS)]
    context = {"identity": {"user": "alice", "groups": []}, "softwareStack": {"trinoVersion": "476"}}
    input = {"context": context, "action": {"operation": "FilterTables", "filterResources": resources}}
    surface = TrinoSurface(make(tmp_path), 1_000, 60)
    body = json.dumps({"input": input}).encode()
    beats, answer = asyncio.run(beats_during(lambda: surface.batch(body, EMBEDDED_CALLER)))
    assert len(json.loads(answer)["result"]) == ROWS
    assert beats > ROWS / 4


@pytest.mark.parametrize("rule", ["path", "names of some"])
def test_a_page_ends_in_time_and_makes_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    monkeypatch.setattr("pdp.management.service.PAGE_SECONDS", 0.05)
    pdp = make(tmp_path, HEAVY[rule].replace("s.z", "s.t"))
    management = Management(pdp, None, frozenset())
    requester = Requester(EMBEDDED_CALLER, Principal("user", "oidc~alice"))
    query = ObjectQuery("read_data", "table", key_from_text("warehouse:w"))

    async def pages() -> list[list[str]]:
        found, cursor = list[list[str]](), ""
        while cursor or not found:
            page = await management.list_objects(requester, query, PageRequest.at(1_000, cursor))
            found.append(list(page.entries))
            cursor = page.next
        return found

    found = asyncio.run(pages())
    assert [name for page in found for name in page] == [f"table:w/s/t{at:03}" for at in range(ROWS)]
    assert len(found) > 1
    assert min(map(len, found[:-1])) >= 10


def test_a_batch_without_an_answer_in_time_ends_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first candidates cost little, so that the next batch has all others: none of these is skipped."""
    monkeypatch.setattr("pdp.management.service.PAGE_SECONDS", 0.1)
    pdp = make(tmp_path, f"path > 's.t009' && {LONG.format('path')}", 110)
    management = Management(pdp, None, frozenset())
    requester = Requester(EMBEDDED_CALLER, Principal("user", "oidc~alice"))
    query = ObjectQuery("read_data", "table", key_from_text("warehouse:w"))
    first = asyncio.run(management.list_objects(requester, query, PageRequest(1_000)))
    assert list(first.entries) == [f"table:w/s/t{at:03}" for at in range(10)]
    second = asyncio.run(management.list_objects(requester, query, PageRequest.at(1_000, first.next)))
    assert next(iter(second.entries)) == "table:w/s/t010"


@settings(max_examples=60)
@given(worlds.configs, worlds.rules, worlds.grants, worlds.rules, worlds.checks, st.booleans())
def test_smaller_chunks_change_no_answer(
    config: Any, rules: Any, grants: Any, forbid: Any, checks: Any, cached: bool
) -> None:
    pdp = make_pdp(config, rules, grants, forbid)
    wanted = decide(pdp, checks)
    pdp = with_cache(copy(pdp)) if cached else pdp
    with pytest.MonkeyPatch.context() as patch:
        for name in ("LONGEST_STEP", "_LONGEST_CHUNK"):
            patch.setattr(evaluation, name, -1)
        answer = asyncio.run(pdp.check(batch(checks)))
    count = len(wanted.allowed)
    assert [answer.decision(at) for at in range(count)] == [wanted.decision(at) for at in range(count)]


def test_a_rule_without_macros_is_not_looked_at_between_resources() -> None:
    rules = inline_rules({"a": "path.size() > 3", "b": "['a', 'b'].exists(p, path.startsWith(p))"}).rules
    programs: list[Program] = [rule.program for rule in rules]
    assert [program.loops for program in programs] == [False, True]
