"""Proposals of least privilege from a lake: nothing recorded is lost, and unused rights are gone."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.lakes import ingest
from support.recorded_company import RULES, Company
from support.spark import folder_lake

from pdp.app.archived_bundle import rebuild_pdp
from pdp.errors import InvalidArgument
from pdp.facts.objects import Grant
from pdp.offline.candidates import CandidatePolicies
from pdp.pipeline.lake import Lake
from pdp.pipeline.recorded_archive import read_archive
from pdp.pipeline.replay_rows import ReplayChoice
from pdp.pipeline.replaying import LakeReplay, read_result
from pdp.pipeline.suggesting import LakeSuggestion

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
    return LakeSuggestion(lake, read_archive(lake), rebuild_pdp, lambda _: None)


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
