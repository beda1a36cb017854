"""Replay of recorded decisions of Cedar and of LakeQL's permissions on Spark, as recorded and under candidates."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from support.clients.http_client import client_of
from support.servers.lakes import ingest
from support.servers.spark import folder_lake
from support.service.command_line import COMPOSITION
from support.service.serving import settings_of

from pdp.app.archived_bundle import rebuild_pdp
from pdp.cli.lake.replay import read_candidate
from pdp.lake.lake import Lake
from pdp.lake.replay.archive import read_archive
from pdp.lake.replay.questions import ReplayChoice
from pdp.lake.replay.replaying import LakeReplay, ReplayTotals, read_result
from pdp.offline.replay.basis import AS_RECORDED, CandidatePolicies

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.timeout(900)]

USERS, TABLES, CATALOGS = ("ann", "bob", "eve"), ("t", "u"), ("cedar", "lakeql")
PERMIT = """@id("%s") permit (principal == Lakekeeper::User::"oidc~%s", action, resource);"""


def permissions(user: str) -> str:
    query = [{"catalog": "lakeql", "schema": "s", "tables": ["t"]}]
    return json.dumps([{"name": user, "permissions": {"Query": query}}])


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Lake of decisions of a real service: bob reads all of Cedar's warehouse, and one table of LakeQL's."""
    folder = tmp_path_factory.mktemp("engines")
    (folder / "old.cedar").write_text(PERMIT % ("old", "bob"))
    (folder / "old.json").write_text(permissions("bob"))
    (folder / "world.json").write_text("{}")
    config = {
        "authorities": {
            "default": {"engines": ["cedar"]},
            "lakeql": {"engines": ["scopes"], "warehouses": ["lakeql"]},
        },
        "warehouses": {name: {"project": "p"} for name in CATALOGS},
        "policies": {
            "rules": [], "cedar": {"policies": ["old.cedar"]},
            "scopes": {"permissions": ["old.json"], "strict": True},
        },
        "store": {"url": "file:world.json"},
    }  # fmt: skip
    asyncio.run(play(folder, config))
    made = folder_lake(folder / "lake")
    ingest(made, folder / "audit")
    return made


async def play(folder: Path, config: dict[str, object]) -> None:
    checks = [
        {"principal": f"user:oidc~{user}", "action": "read_data", "resource": f"table:{catalog}/s/{table}"}
        for user in USERS
        for catalog in CATALOGS
        for table in TABLES
    ]
    async with client_of(settings_of(config, folder)) as client:
        status, answer = await client.check(*checks)
        assert (status, sum(each["allowed"] for each in answer["decisions"])) == (200, 3)
        field = {"currentUser": {"userName": "bob"}, "scopes": {"authorized": True}}
        assert await client.post("/v1/scopes", field) == (200, {"allowed": True})


def totals(lake: Lake, candidate: CandidatePolicies = AS_RECORDED) -> ReplayTotals:
    replay = LakeReplay(lake, read_archive(lake), rebuild_pdp, ReplayChoice(by_revision=True), candidate)
    return read_result(replay.save("test")).totals


def test_every_decision_is_the_recorded_one(lake: Lake) -> None:
    """Also the answer to a scope without a table."""
    assert totals(lake) == ReplayTotals(13, 13)


@pytest.mark.parametrize(
    ("file", "text", "gained", "lost"),
    [("new.cedar", PERMIT % ("new", "ann"), 2, 2), ("new.json", permissions("ann"), 1, 1)],
)
def test_a_candidate_changes_what_its_engine_decided(
    lake: Lake, tmp_path: Path, file: str, text: str, gained: int, lost: int
) -> None:
    (tmp_path / file).write_text(text)
    candidate = read_candidate(COMPOSITION, [str(tmp_path / file)], (), read_archive(lake).bundles)
    assert totals(lake, candidate) == ReplayTotals(13, 13 - gained - lost, gained, lost)
