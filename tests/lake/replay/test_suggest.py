"""Proposals of least privilege from a lake: nothing recorded is lost, and unused rights are gone."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support.generators.recorded_company import ROWS, RULES, Company, world
from support.generators.varied_company import VariedCompany
from support.servers.lakes import event_line, ingest, write_segment
from support.servers.spark import folder_lake
from support.service.command_line import COMPOSITION

from pdp.app.archived_bundle import rebuild_pdp
from pdp.cli.dry_run.command import DIFFERENT
from pdp.cli.lake import pipeline
from pdp.errors import InvalidArgument
from pdp.facts.objects import Grant
from pdp.lake.lake import Lake
from pdp.lake.replay.archive import read_archive
from pdp.lake.replay.questions import ReplayChoice
from pdp.lake.replay.replaying import LakeReplay, read_result
from pdp.lake.replay.suggesting import LakeSuggestion
from pdp.offline.replay.basis import CandidatePolicies

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def company(tmp_path_factory: pytest.TempPathFactory) -> Company:
    found = Company(tmp_path_factory.mktemp("company") / "audit", seed=7, per_file=400)
    found.play(4_000, writes=0)
    return found


@pytest.fixture(scope="module")
def lake(company: Company) -> Lake:
    lake = folder_lake(company.folder.parent / "lake")
    ingest(lake, company.folder)
    return lake


def search(lake: Lake) -> LakeSuggestion:
    return LakeSuggestion(lake, read_archive(lake), rebuild_pdp)


def changes(lake: Lake, candidate: CandidatePolicies) -> tuple[int, int]:
    choice = ReplayChoice(by_revision=not candidate.is_complete)
    result = read_result(LakeReplay(lake, read_archive(lake), rebuild_pdp, choice, candidate).save("test"))
    assert not result.totals.undecidable
    return result.totals.gained, result.totals.lost


def test_grants_without_a_use_go_and_nothing_recorded_is_lost(company: Company, lake: Lake) -> None:
    found = search(lake).grants()
    assert found.facts
    grants = set(found.facts.grants())
    assert (found.before, found.after) == (len(set(company.facts.grants())), len(grants))
    assert found.dropped > 0
    assert found.rights_after < found.rights_before
    assert changes(lake, CandidatePolicies(facts=found.facts)) == (0, 0)
    assert not any(grant.principal == "user:oidc~idle" for grant in grants)
    # read through a view of another owner, who holds a right on the whole namespace
    owner = [grant for grant in grants if grant.principal == "user:oidc~owner"]
    assert owner
    assert Grant(("namespace", ("lake", "s7")), "select", "user:oidc~owner") not in owner
    assert {grant.object[0] for grant in owner} == {"table"}


def test_rules_without_a_use_go_and_nothing_recorded_is_lost(lake: Lake) -> None:
    found = search(lake).rules()
    assert found.rules
    assert set(found.rules) <= set(RULES)
    assert "planted_rule" in found.rules
    assert changes(lake, CandidatePolicies(rules=found.rules)) == (0, 0)


def test_a_lake_of_sampled_permits_is_refused(company: Company, tmp_path: Path) -> None:
    other = folder_lake(tmp_path / "lake")
    ingest(other, company.folder)
    for column, value in (("sampled", "0.5"), ("left_out", "3")):
        name = other.name("requests")
        other.spark.sql(f"UPDATE {name} SET {column} = {value} WHERE seq = 1")
        with pytest.raises(InvalidArgument, match="were sampled"):
            search(other)
        other.spark.sql(f"UPDATE {name} SET sampled = 1, left_out = 0")


def invoke(lake: Lake, command: str, *options: str | Path) -> list[str]:
    """Run a command of the pipeline in the session of this process, and return its lines."""
    result = CliRunner().invoke(
        pipeline, [command, "--lake", str(lake.catalog.folder), *map(str, options)], obj=COMPOSITION
    )
    assert result.exit_code in (0, DIFFERENT), result.output  # a narrowed grant is another reason
    return result.stdout.splitlines()


@pytest.mark.spark_long
@pytest.mark.parametrize("seed", range(2))
def test_proposals_for_varied_companies_read_back_and_lose_nothing(seed: int, tmp_path: Path) -> None:
    company = VariedCompany(tmp_path / "audit", seed)
    company.use(15)
    lake = folder_lake(tmp_path / "lake")
    ingest(lake, company.folder)
    for name in ("less.yaml", "less.properties"):
        said = json.loads(invoke(lake, "suggest", "--out", tmp_path / name, "--format", "json")[-1])
        assert (said["decided"], said["undecidable"], said["changedBefore"]) == (company.checks, 0, 0)
        assert said["after"] < said["before"] or said["narrowed"] or name == "less.properties"
        listed = "--candidate", tmp_path / name, "--listings", "--format", "json"
        totals = json.loads(invoke(lake, "replay", *listed)[-1])
        assert (totals["decided"], totals["gained"], totals["lost"]) == (company.checks, 0, 0)


def recorded(company: Company, *checks: tuple[str, dict[str, Any]], views: tuple[tuple[str, str], ...] = ()) -> Lake:
    """Return a lake of a company with reads of tables by principals with further fields, and row views by users."""

    async def ask() -> None:
        for table, principal in checks:
            (allowed,) = await company.check(
                [{"principal": principal, "action": "read_data", "resource": f"table:lake/{table}"}]
            )
            assert allowed, (table, principal)
        for user, table in views:
            await company.row_view(user, table)

    asyncio.run(ask())
    company.close()
    lake = folder_lake(company.folder.parent / "lake")
    ingest(lake, company.folder)
    return lake


@pytest.mark.spark_long
def test_a_membership_that_row_views_alone_need_is_kept(tmp_path: Path) -> None:
    company = Company(tmp_path / "audit")
    lake = recorded(company, ("s5/t5", {"id": "user:oidc~u5"}), views=(("u33", "t1"), ("u34", "t1")))
    assert lake.table("decisions").where("event = 'filter' AND `by` = 'row_access:own'").count() == 2  # rows and masks
    found = search(lake).grants()
    assert found.facts
    kept = {(grant.principal, grant.object[0]) for grant in found.facts.grants()}
    assert ("user:oidc~u33", "role") in kept
    assert ("user:oidc~u36", "role") not in kept  # the same membership without a use
    assert found.gaps.checks == 0


@pytest.mark.spark_long
def test_undecidable_checks_come_first_and_keep_their_rights(tmp_path: Path) -> None:
    grants = [
        {"principal": "user:oidc~hidden", "privilege": "select", "object": f"table:lake/s18/{name}"} for name in "ab"
    ]
    rules = {**RULES, "sealed": "role == 'nobody' || role == 'sealed' && path.startsWith('s17.')"}
    company = Company(
        tmp_path / "audit", policies=(rules, ROWS), start={**world(), "grants": [*world()["grants"], *grants]}
    )
    secret = {"attributes": {"password": "p"}}
    lake = recorded(
        company,
        ("s5/t5", {"id": "user:oidc~u5"}),
        ("s18/a", {"id": "user:oidc~hidden", **secret}),
        ("s17/t1", {"id": "user:oidc~sealed", **secret}),
    )
    write_segment(tmp_path / "more", 1, [b"no record\n"])
    ingest(lake, tmp_path / "more")
    for name in ("less.json", "less.properties"):
        output = invoke(lake, "suggest", "--out", tmp_path / name)
        assert output[:3] == [
            "not proven, because not decided again: 2 checks",
            "  values are masked: 2 checks",
            "not proven, because in quarantine: 1 line",
        ]
    kept = {
        (grant["principal"], grant["object"]) for grant in json.loads((tmp_path / "less.json").read_text())["grants"]
    }
    assert {each for each in kept if each[0] == "user:oidc~hidden"} == {
        ("user:oidc~hidden", "table:lake/s18/a"),
        ("user:oidc~hidden", "table:lake/s18/b"),
    }
    assert not any(principal == "user:oidc~idle" for principal, _ in kept)
    assert "rules.sealed" in (tmp_path / "less.properties").read_text()


@pytest.mark.spark_long
def test_a_lake_of_dropped_records_is_refused_but_for_later_ones(tmp_path: Path) -> None:
    lake = recorded(Company(tmp_path / "audit"), ("s5/t5", {"id": "user:oidc~u5"}))
    lost = event_line(1).replace(b'"started","details":{}', b'"records_dropped","details":{"records":7,"decisions":9}')
    write_segment(tmp_path / "more", 1, [lost])
    ingest(lake, tmp_path / "more")
    with pytest.raises(
        InvalidArgument, match=r"^7 records of this lake were dropped, the last before 2026-01-05 10:00"
    ):
        search(lake)
    assert invoke(lake, "suggest", "--out", tmp_path / "less.yaml", "--since", "2026-01-06")[-3].startswith("rights on")


def test_a_complete_candidate_is_replayed_for_row_views(tmp_path: Path) -> None:
    company = Company(tmp_path / "audit")
    lake = recorded(company, views=(("u33", "t1"), ("u34", "t1")))
    other = {**ROWS, "policies": [{**ROWS["policies"][2], "filter": "region = 'EU'"}]}
    text = CandidatePolicies(row_access=[other]).text_from(company.pdp.bundle.text)
    candidate = CandidatePolicies(bundle=text, facts=company.facts)
    choice = ReplayChoice(by_revision=not candidate.is_complete)
    result = read_result(LakeReplay(lake, read_archive(lake), rebuild_pdp, choice, candidate).save("test"))
    assert (result.totals.decided, result.totals.undecidable) == (4, 0)
    assert {(row["principal"], row["rows_before"], row["rows_after"]) for row in result.rows["gained"]} == {
        ("user:oidc~u33", "region = 'US'", "region = 'EU'")
    }
