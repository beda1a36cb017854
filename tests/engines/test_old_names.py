"""Old names, for one release: an engine written by the page of the release before decides as it did, and warns."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
from support.clients.http_client import client_of
from support.service.serving import settings_of

from pdp.engines.engine import Dependency, EngineQuestion
from pdp.engines.engine_types import EngineType
from pdp.model.answer import Trace
from pdp.model.question import Principal, Question, RequestContext, Resource

ENGINE = """
from pdp.engines.engine import ABSTAIN, FORBID, PERMIT, Cost, Group, Source, Verdicts
from pdp.facts.snapshot import Facts
from pdp.model.checks import Env, Principal, Resource, Trace

class OldNames:
    name, digest, cost = "old_names", "1", Cost.MICROSECONDS
    reads = frozenset({Source.POLICIES})
    def __init__(self, options): self.prefix = options.get("prefix", "public_")
    def applies(self, action, type): return (action, type) == ("read_data", "table")
    def decide(self, group: Group | None, resources: list[Resource], facts: Facts) -> Verdicts:
        assert isinstance(group, Group) and isinstance(group.env, Env) and isinstance(group.principal, Principal)
        hits = [resource.path[-1].startswith(self.prefix) for resource in resources]
        reasons = [f"old_names:{group.action}" if hit else None for hit in hits]
        return Verdicts(bytes([PERMIT if hit else ABSTAIN for hit in hits]), reasons)
    def explain(self, group, resource, facts):
        return Trace("old_names", "permit" if self.decide(group, [resource], facts).effects[0] else "silent")
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package with the engine."""
    site = tmp_path / "site"
    info = site / "old_names-1.dist-info"
    info.mkdir(parents=True)
    (site / "old_names_engine.py").write_text(ENGINE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: old-names\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[pdp.engines]\nold_names = old_names_engine:OldNames\n")
    monkeypatch.syspath_prepend(site)
    return tmp_path


async def decisions(package: Path) -> list[dict[str, Any]]:
    """The answers of a service whose only engine is the package's."""
    config = {
        "warehouses": {"lake": {"project": "p1", "default_ref": "main"}},
        "authorities": {"default": {"engines": ["old_names"]}},
        "policies": {"rules": [], "engines": {"old_names": {"options": {"prefix": "open_"}}}},
    }
    check = {"principal": "user:oidc~alice", "action": "read_data"}
    async with client_of(settings_of(config, package)) as client:
        checks = [check | {"resource": f"table:lake/s/{name}"} for name in ("open_a", "closed")]
        status, body = await client.check(*checks, explain=True)
    assert status == 200
    found: list[dict[str, Any]] = body["decisions"]
    return found


async def test_an_engine_with_old_names_decides_and_warns(package: Path) -> None:
    with pytest.warns(DeprecationWarning, match="goes with the next release") as warned:
        answers = await decisions(package)
    assert [answer["allowed"] for answer in answers] == [True, False]
    assert answers[0]["by"] == ["old_names:read_data"]
    texts = {str(warning.message) for warning in warned}
    new = ("EngineQuestion", "Dependency", "RequestContext", "Principal", "Resource", "Trace", "EngineQuestion.context")
    for name in new:
        assert any(text.endswith((f".{name}`", f"use `{name}`")) for text in texts), name
    assert {Path(warning.filename).name for warning in warned} == {"old_names_engine.py"}


def old(module: str, name: str) -> Any:
    with pytest.warns(DeprecationWarning, match="goes with the next release: use `pdp"):
        return getattr(importlib.import_module(module), name)


ALICE, CONTEXT = Principal("user", "oidc~alice"), RequestContext("api", 1)


def test_a_group_is_a_question_for_engines() -> None:
    group = old("pdp.engines.engine", "Group")
    wanted = EngineQuestion(Question(ALICE, "drop", delegated=True, context=CONTEXT), "table", "lake", None)
    assert group(ALICE, "drop", "table", "lake", None, True, CONTEXT) == wanted
    fields = {"principal": ALICE, "action": "drop", "type": "table", "warehouse": "lake", "ref": None}
    assert group(**fields, delegated=True, env=CONTEXT) == wanted
    assert isinstance(wanted, group)
    assert not isinstance(ALICE, group)
    with pytest.warns(DeprecationWarning, match=r"`EngineQuestion.env` goes .* use `EngineQuestion.context`"):
        assert wanted.env is CONTEXT


@pytest.mark.parametrize(
    ("module", "name", "new"),
    [
        ("pdp.engines.engine", "Source", Dependency),
        ("pdp.engines.kinds", "EngineKind", EngineType),
        ("pdp.model.checks", "Env", RequestContext),
        ("pdp.model.checks", "Principal", Principal),
        ("pdp.model.checks", "Resource", Resource),
        ("pdp.model.checks", "Trace", Trace),
    ],
)
def test_an_old_name_is_the_new_thing(module: str, name: str, new: object) -> None:
    assert old(module, name) is new


@pytest.mark.parametrize("module", ["pdp.engines.engine", "pdp.engines.kinds", "pdp.model.checks"])
@pytest.mark.parametrize("name", ["Nothing", "_walk", "__path__"])
def test_other_names_are_unknown(module: str, name: str) -> None:
    with pytest.raises(AttributeError, match=f"`{name}`"):
        getattr(importlib.import_module(module), name)
