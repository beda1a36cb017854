"""Runs of the case corpus in this process, over HTTP, gRPC, Connect, Trino's endpoints and AuthZEN, and on the command line."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.paths import ROOT, TESTS
from support.servers.redis_server import redis_server
from support.service.caches import redis_cache, value_of, with_cache, written
from support.service.case_surfaces import surfaces
from support.service.commands import run_pdp

from pdp.app.assembly import read_rules
from pdp.app.facts import build_pdp
from pdp.config.load import make_settings
from pdp.decision.cache.cache import Cache
from pdp.decision.cache.local import InProcessCache
from pdp.decision.service import Pdp
from pdp.facts.snapshot import Facts
from pdp.offline.cases.cases import Case, find_cases
from pdp.offline.cases.outcomes import CaseOutcome
from pdp.offline.cases.runner import case_batch, run_case

CORPUS = list(find_cases([TESTS / "cases"]))
RECORDED = list(
    find_cases([TESTS / "recorded" / "nessie" / "golden.jsonl", TESTS / "recorded" / "lakekeeper" / "golden.jsonl"])
)
EXPRESSIBLE = {"http": 1.0, "grpc": 0.9, "connect_json": 0.9, "connect_proto": 0.9, "trino": 0.05, "authzen": 0.55}
"""Minimal share of the corpus that a surface can express. A lower share means a defect of the runner."""


def failures(outcomes: list[CaseOutcome]) -> list[str]:
    return [f"{outcome.note}: {outcome.error}" for outcome in outcomes if not outcome.passed]


def test_every_note_is_unique() -> None:
    notes = [case.note for case in CORPUS]
    assert len(notes) == len(set(notes))


def test_the_corpus_passes_in_process() -> None:
    with asyncio.Runner() as runner:
        assert failures([run_case(case, build_pdp, runner) for case in CORPUS + RECORDED]) == []


@pytest.mark.long
@pytest.mark.parametrize("kind", ["in_process", pytest.param("redis", marks=pytest.mark.process)])
def test_the_corpus_passes_with_a_cold_and_a_warm_cache(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """One cache serves all cases, so two cases that shared a key would answer for each other."""
    with ExitStack() as stack:
        runner = stack.enter_context(asyncio.Runner())
        if kind == "redis":
            cache: Cache = redis_cache(stack.enter_context(redis_server(tmp_path)).url)
            cases = CORPUS
        else:
            cache, cases = InProcessCache(1_000_000, 3600), CORPUS + RECORDED
        services: list[Pdp] = []

        def build_cached(*given: Any, **named: Any) -> Pdp:
            services.append(with_cache(build_pdp(*given, **named), cache))
            return services[-1]

        for warm in (False, True):
            hits = 0.0
            for case in cases:
                assert failures([run_case(case, build_cached, runner)]) == []
                for pdp in services:
                    runner.run(written(pdp))
                    assert pdp.cache
                    hits += value_of(pdp.cache.metrics, "pdp_cache_verdicts_total", outcome="hit")
                services.clear()
            assert hits > (len(CORPUS) if warm else 0)
        runner.run(cache.close())


@pytest.mark.long
@pytest.mark.parametrize("surface", EXPRESSIBLE)
async def test_the_corpus_passes_over(surface: str, tmp_path: Path) -> None:
    cases = CORPUS + (RECORDED if surface not in ("trino", "authzen") else [])
    async with surfaces(tmp_path) as running:
        outcomes = [outcome for case in cases if (outcome := await running.run(case, surface)) is not None]
    assert failures(outcomes) == []
    assert len(outcomes) >= EXPRESSIBLE[surface] * len(cases)


@pytest.mark.process
def test_the_corpus_passes_on_the_command_line() -> None:
    done = run_pdp("test", "tests/cases", "--format", "json", cwd=ROOT)
    results = json.loads(done.stdout)
    assert [result for result in results if not result["passed"]] == []
    assert (done.returncode, len(results)) == (0, len(CORPUS))


def test_the_runner_fails_wrong_expectations() -> None:
    """Invert every part of an expectation: the case must then fail."""
    data = {
        "rules": {"r": "op=='VIEW_REFERENCE'", "boom": "roles[9]=='x'"},
        "checks": [{"principal": "user:oidc~a", "action": "VIEW_REFERENCE", "resource": "reference:lake@main"}],
    }
    row = {
        "resource": "reference:lake@main",
        "as": "user:oidc~a",
        "delegated": False,
        "action": "VIEW_REFERENCE",
        "allowed": True,
    }
    right = {"want": [{"allowed": True, "by": "cel:r", "errors": []}], "wantAudit": [row]}
    wrong: list[Any] = [
        {"want": [False]},
        {"want": [True, True]},
        {"want": []},
        {"want": [{"by": "cel:other"}]},
        {"want": [{"errors": ["boom"]}]},
        {"want": [True], "wantError": "rule_compile_error"},
        *(
            {"wantAudit": [row | {key: value}]}
            for key, value in (
                ("allowed", False),
                ("as", "role:x"),
                ("delegated", True),
                ("action", "use"),
                ("resource", "reference:lake@dev"),
            )
        ),
        {"wantAudit": []},
        {"wantAudit": [row, row]},
        {},
    ]
    with asyncio.Runner() as runner:
        assert run_case(Case("right", TESTS, {**data, **right}), build_pdp, runner).passed
        for want in wrong:
            assert not run_case(Case("wrong", TESTS, {**data, **want}), build_pdp, runner).passed, want


@pytest.mark.process
def test_configured_rules_decide_as_in_the_service(tmp_path: Path) -> None:
    """A test with the files of the service's own configuration finds what the service would decide."""
    (tmp_path / "all.yaml").write_text("rules: {all: 'true'}")
    (tmp_path / "no.yaml").write_text("""rules: {no: "path == 's.secret'"}""")
    config = {
        "policies": {"rules": ["all.yaml"], "forbid": ["no.yaml"]},
        "warehouses": {"lake": {"default_ref": "main"}},
    }
    asked = [
        {"principal": "user:oidc~a", "action": "read_data", "resource": f"table:lake/s/{name}"}
        for name in ("open", "secret", "own")
    ]
    more = {"more": "false", "also": "path == 's.own' && false"}
    want = [{"allowed": True, "by": "cel:all"}, {"allowed": False, "by": "cel:no"}, True]
    cases = [
        {"note": "configured", "config": config, "checks": asked, "want": want},
        {"note": "with rules of the case", "config": config, "rules": more, "checks": asked, "want": want},
        {"note": "the same file", "config": config, "rules": "all.yaml", "checks": asked, "want": want},
        {
            "note": "an id twice",
            "config": config,
            "rules": {"all": "false"},
            "checks": asked,
            "wantError": "duplicate_rule",
        },
        {
            "note": "forbids add",
            "config": config,
            "forbid": {"own": "path == 's.own'"},
            "checks": asked,
            "want": [True, False, False],
        },
    ]
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    done = run_pdp("test", str(tmp_path / "cases.json"), "--format", "json")
    results = json.loads(done.stdout)
    assert [result for result in results if not result["passed"]] == []
    assert (done.returncode, len(results)) == (0, len(cases))
    settings = make_settings(config, tmp_path)
    service = build_pdp(settings, Facts.empty(), read_rules(settings))
    with asyncio.Runner() as runner:
        answer = runner.run(service.check(case_batch(Case("service", tmp_path, {"checks": asked}), settings)))
    assert [answer.decision(at).by[0] for at in range(3)] == ["cel:all", "cel:no", "cel:all"]
