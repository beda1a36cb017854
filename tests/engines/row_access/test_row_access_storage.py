"""Storage and row access: what a record of a load keeps of it, and what deciding it again comes to."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from support.oracles.audit_files import audit_records
from support.oracles.view_loads import load_client
from support.paths import ROOT

from pdp.app.facts import build_pdp
from pdp.audit.reader import read_audit
from pdp.audit.records.recorded import ReadReport
from pdp.audit.records.rows import requests
from pdp.decision.service import Pdp
from pdp.offline.cases.cases import Case
from pdp.offline.cases.runner import MemoryAudit, build_case_pdp
from pdp.offline.replay.differences import Differences
from pdp.offline.replay.replay import replay

POLICIES = {
    "policies": [{"id": "eu", "table": "lake.ns.t", "grantees": ["user:alice"], "filter": "region = 'EU'"}],
    "masks": [{"id": "m", "table": "lake.ns.w", "column": "c", "grantees": ["allUsers"], "kind": "null"}],
}
GRANTS = [
    {"principal": f"user:oidc~{who}", "privilege": "modify", "object": "namespace:lake/ns"} for who in ("alice", "bob")
]
WORLD: dict[str, Any] = {"objects": [], "grants": GRANTS}
IDENTITIES = {"oidc": {"audiences": ["spark"]}}
ENGINES = {"spark": {"type": "trino", "owner_property": "p", "identities": IDENTITIES, "enforces_row_access": True}}
SPARK = {"idp": "oidc", "subject": "svc", "audiences": ["spark"]}
LOADS = [
    {"principal": f"user:oidc~{who}", "action": action, "target": f"{table}", **caller}
    for who in ("alice", "bob")
    for action in ("loadTable", "loadCredentials")
    for table in ("table:lake/ns/t", "table:lake/ns/u", "table:lake/ns/w", "table:lake/ns/T@dev")
    for caller in ({}, {"caller": SPARK})
]  # fmt: skip


def service(policies: dict[str, Any] | None) -> Pdp:
    data = {"engines": ["grants"], "world": WORLD, "config": {"warehouses": {"lake": {}}}}
    case = Case("storage", ROOT, {**data, **({"policies": policies} if policies else {})})
    return build_case_pdp(case, build_pdp, MemoryAudit())[0]


async def loaded(folder: Path, *loads: dict[str, Any]) -> list[str]:
    """Return the storage access of each load over HTTP; the service has stopped afterwards."""
    (folder / "rows.json").write_text(json.dumps(POLICIES))
    config = {"policies": {"rules": [], "row_access": ["rows.json"]}, "trusted_engines": ENGINES}
    async with load_client(folder, **config) as asked:
        asked.service.pdp.source = service(None).source
        answers = [await asked.post("/v1/load", load) for load in loads]
    assert {status for status, _ in answers} == {200}
    return [answer["storageAccess"] for _, answer in answers]


def decided_again(folder: Path, policies: dict[str, Any] | None, only: int | None = None) -> Differences:
    recorded = list(read_audit(folder / "audit", ReadReport()))
    wanted = recorded if only is None else recorded[only : only + 1]
    return asyncio.run(replay(wanted, None, service(policies)))


async def test_a_record_keeps_that_the_engine_applies_filters_itself(tmp_path: Path) -> None:
    load = {"principal": "user:oidc~alice", "action": "loadTable", "target": "table:lake/ns/t"}
    assert await loaded(tmp_path, load, load | {"caller": SPARK}) == ["none", "read_write"]
    kept = [next(requests(record))["load"] for record in audit_records(tmp_path)]
    assert kept == [
        {"chain": [], "entries": 0, "ignored": ""},
        {"chain": [], "entries": 0, "ignored": "", "enforced": True},
    ]


def test_each_load_is_decided_again_as_it_was(tmp_path: Path) -> None:
    asyncio.run(loaded(tmp_path, *LOADS))
    for at in range(len(LOADS)):
        found = decided_again(tmp_path, POLICIES, at)
        assert (found.checks, dict(found.totals)) == (1, {}), LOADS[at]


def test_loads_are_decided_again_together_as_they_were(tmp_path: Path) -> None:
    """Equal but for their targets, they become one check of several tables, and each has its own restriction."""
    asyncio.run(loaded(tmp_path, *LOADS))
    found = decided_again(tmp_path, POLICIES)
    assert (found.checks, dict(found.totals)) == (len(LOADS), {})


@pytest.mark.parametrize(("policies", "gained"), [(None, 6), ({"masks": POLICIES["masks"]}, 4), (POLICIES, 0)])
def test_without_a_policy_who_was_refused_gains(tmp_path: Path, policies: Any, gained: int) -> None:
    """Credentials of the filtered table on two refs, and of the masked one, for both users."""
    asyncio.run(loaded(tmp_path, *LOADS))
    found = [decided_again(tmp_path, policies, at) for at in range(len(LOADS))]
    assert sum(one.totals["gained"] for one in found) == gained
    assert sum(one.totals["lost"] for one in found) == 0
