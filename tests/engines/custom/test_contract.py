"""The contract of engines: engines of the product and of a separate package pass, and broken ones fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pdp.engines.allow_all import AllowAllEngine
from pdp.engines.contract import EngineContract
from pdp.engines.engine import ABSTAIN, PERMIT, Verdicts
from pdp.engines.grants.engine import GrantsEngine
from pdp.engines.scopes.engine import ScopesEngine
from pdp.engines.scopes.permissions import parse_entries
from pdp.facts.snapshot import Facts
from pdp.store.world import parse_world

RULES = [{"catalog": "lake", "schema": "sales", "tables": ["orders", "items"]}]
PERMISSIONS = [{"name": "alice", "permissions": {"Query": RULES, "Mutation": RULES[:1]}}]
WORLD = {
    "objects": ["project:p1", {"object": "warehouse:lake", "parent": "project:p1"}],
    "grants": [{"principal": "user:oidc~alice", "privilege": "modify", "object": "table:lake/sales/orders"}],
}


class TestScopes(EngineContract):
    def make_engine(self) -> Any:
        return ScopesEngine([each.entry for each in parse_entries(PERMISSIONS)], "oidc")


class TestGrants(EngineContract):
    def make_engine(self) -> Any:
        return GrantsEngine()

    def facts(self) -> Facts:
        return parse_world(WORLD)


class TestAllowAll(EngineContract):
    def make_engine(self) -> Any:
        return AllowAllEngine()


@pytest.mark.process
class TestSeparatePackage(EngineContract):
    """The engines of the package, as its own team would run the contract."""

    @pytest.fixture(autouse=True, params=["NameEngine", "RemoteEngine"])
    def engine_name(self, acme: Path, request: pytest.FixtureRequest) -> None:
        import acme_engines  # type: ignore[import-not-found]  # noqa: PLC0415  on the path from here on

        self.engine = getattr(acme_engines, request.param)

    def make_engine(self) -> Any:
        return self.engine({"prefix": "o"})


class Forgetful(ScopesEngine):
    """Engine that breaks the contract in one way."""

    fault = ""
    count = 0

    def decide(self, group: Any, resources: Any, facts: Any) -> Any:
        self.count += 1
        found = super().decide(group, resources, facts)
        by = ["scopes:x" if effect else None for effect in found.effects]
        if self.fault == "neighbours" and len(resources) > 1:
            return Verdicts(bytes([PERMIT]) * len(resources), ["scopes:x"] * len(resources))
        if self.fault == "memory" and self.count > 3:
            return Verdicts(bytes([ABSTAIN]) * len(resources), [None] * len(resources))
        if self.fault == "length":
            return Verdicts(found.effects + bytes([ABSTAIN]), [*by, None])
        if self.fault == "reason":
            return Verdicts(found.effects, ["other:x" if effect else None for effect in found.effects])
        return found

    def explain(self, group: Any, resource: Any, facts: Any) -> Any:
        trace = super().explain(group, resource, facts)
        return type(trace)(trace.what, "silent") if self.fault == "explanation" else trace

    @property
    def digest(self) -> str:
        return str(id(self)) if self.fault == "digest" else super().digest


@pytest.mark.parametrize("fault", ["neighbours", "memory", "length", "reason", "explanation", "digest", ""])
def test_a_broken_engine_fails(fault: str) -> None:
    class Contract(EngineContract):
        def make_engine(self) -> Any:
            engine = Forgetful([each.entry for each in parse_entries(PERMISSIONS)], "oidc")
            engine.fault = fault
            return engine

    contract, failed = Contract(), []
    for name in dir(contract):
        if name.startswith("test_"):
            try:
                getattr(contract, name)()
            except Exception:  # noqa: BLE001  any failure of a test counts
                failed.append(name)
    assert bool(failed) is bool(fault)
