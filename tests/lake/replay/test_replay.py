"""Replay of a lake on Spark against the dry run of the audit folder that the lake was made of."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support.generators.recorded_company import RULES, Company, planted_rows, planted_rules
from support.servers.lakes import decision_line, ingest, write_segment
from support.servers.spark import folder_lake, spark_options
from support.service.command_line import COMPOSITION

from pdp.app.archived_bundle import rebuild_pdp
from pdp.audit.reader import read_audit
from pdp.audit.records.recorded import ReadReport, RecordFilter
from pdp.cli.lake import pipeline
from pdp.facts.objects import Change, Grant, GrantAdded, GrantRemoved
from pdp.lake.lake import Lake
from pdp.lake.replay.archive import read_archive
from pdp.lake.replay.questions import ReplayChoice
from pdp.lake.replay.replaying import LakeReplay, ReplayResult, ReplayTotals, read_result
from pdp.offline.replay.basis import AS_RECORDED, CandidatePolicies, FolderArchive, HistoricalPdps, RecordedFacts
from pdp.offline.replay.replay import repeat_recorded, replay

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.timeout(900)]
CHECKS = 6_000


@pytest.fixture(scope="module")
def company(tmp_path_factory: pytest.TempPathFactory) -> Company:
    folder = tmp_path_factory.mktemp("company")
    found = Company(folder / "audit", per_file=400)
    found.play(CHECKS)
    return found


@pytest.fixture(scope="module")
def lake(company: Company) -> Lake:
    lake = folder_lake(company.folder.parent / "lake")
    ingest(lake, company.folder)
    return lake


def replayed(lake: Lake, candidate: CandidatePolicies = AS_RECORDED, /, **choice: Any) -> ReplayResult:
    by_revision = not candidate.is_complete
    chosen = ReplayChoice(**{"listings": candidate == AS_RECORDED, "by_revision": by_revision, **choice})
    return read_result(LakeReplay(lake, read_archive(lake), rebuild_pdp, chosen, candidate).save("test"))


def test_every_decision_is_the_recorded_one(company: Company, lake: Lake) -> None:
    reading = ReadReport()
    read = read_audit(company.folder, reading, RecordFilter(listings=True, at_revision=True))
    basis = HistoricalPdps(FolderArchive(company.folder), rebuild_pdp)
    by_folder = asyncio.run(repeat_recorded(read, basis, reading, lambda _: None))
    assert (by_folder.checks, by_folder.totals) == (company.checks, {})
    assert replayed(lake).totals == ReplayTotals(company.checks, company.checks)


def subjects(rows: Sequence[Any]) -> dict[tuple[str, str, str], int]:
    """Return the checks by principal, action and object."""
    found: Counter[tuple[str, str, str]] = Counter()
    for row in rows:
        found[row["principal"], row["action"], row["resource"]] += row["checks"]
    return dict(found)


def test_a_planted_rule_changes_exactly_what_it_was_used_for(company: Company, lake: Lake) -> None:
    result = replayed(lake, CandidatePolicies(rules=planted_rules(company.rules)))
    used, about = company.used, ("read_data", "table:lake/plant/by_rule@main")
    lost, gained = used["rule_user"], used["rule_newcomer"]
    assert result.totals == ReplayTotals(company.checks, company.checks - lost - gained, gained, lost)
    assert subjects(result.rows["lost"]) == {("user:oidc~rule_user", *about): lost}
    assert subjects(result.rows["gained"]) == {("user:oidc~rule_newcomer", *about): gained}
    (row,) = result.rows["lost"]
    assert (row["by_before"], row["by_after"]) == ("cel:planted_rule", "default_deny")
    assert_names_records(company, row)


def assert_names_records(company: Company, row: Any) -> None:
    """Check that samples are the first and the last decision, and that the times are theirs."""
    found = [
        check for check in read_audit(company.folder, ReadReport())
        if (check.check.question.principal.id, check.check.question.action) == (row["principal"], row["action"])
        and check.key in (row["resource"], row["resource"].partition("@")[0])
    ]  # fmt: skip
    places = sorted((check.time, check.decision) for check in found)
    assert row["samples"] == list(dict.fromkeys([places[0][1], places[-1][1]]))
    assert [f"{row[name]:%Y-%m-%dT%H:%M:%S.%fZ}" for name in ("first_used", "last_used")] == [
        places[0][0],
        places[-1][0],
    ]


def test_planted_grants_change_exactly_what_they_were_used_for(company: Company, lake: Lake) -> None:
    table = ("table", ("lake", "plant", "by_grant"))
    changes: list[Change] = [
        GrantRemoved(Grant(table, "select", "user:oidc~grant_user")),
        GrantAdded(Grant(table, "select", "user:oidc~grant_newcomer")),
    ]
    facts = company.facts.apply(company.facts.sequence + 1, changes)
    whole = CandidatePolicies(facts=facts)
    result = replayed(lake, whole)
    used = company.used
    by_kind = {kind: subjects(result.rows.get(kind, ())) for kind in ("gained", "lost")}
    about = ("read_data", "table:lake/plant/by_grant@main")
    assert by_kind["lost"].pop(("user:oidc~grant_user", *about)) == used["grant_user"]
    assert by_kind["gained"].pop(("user:oidc~grant_newcomer", *about)) == used["grant_newcomer"]
    # all others come from the grants of the history, which a fixed world gives from the start or takes
    assert all("/s9/t" in resource for found in by_kind.values() for _, _, resource in found), by_kind


def test_planted_row_policies_show_exactly_their_rows_and_columns(company: Company, lake: Lake) -> None:
    result = replayed(lake, CandidatePolicies(row_access=[planted_rows()]))
    assert not result.rows.get("lost")
    views = {(row["resource"].partition("@")[0], row["action"]): row for row in result.rows["gained"]}
    rows = [row for row in result.rows["gained"] if row["rows_seen"]]
    columns = [row for row in result.rows["gained"] if row["columns_seen"]]
    assert len(views) == len(result.rows["gained"])
    assert {row["principal"] for row in views.values()} == {"user:oidc~row_user"}
    assert {(row["rows_before"], row["rows_after"]) for row in rows} == {
        ("region = 'EU'", "(region = 'EU') OR (region = 'US')")
    }
    assert {tuple(row["columns_seen"]) for row in columns} == {("ssn",)}
    assert {row["resource"].partition("@")[0].rpartition("/")[2] for row in columns} == {"t2"}
    assert sum(row["checks"] for row in columns) == company.used["row_user/t2"]
    assert {row["resource"].partition("@")[0].rpartition("/")[2] for row in rows} == {"t0"}
    assert sum(row["checks"] for row in rows) == 2 * company.used["row_user/t0"]  # rows, and masks of the same table


def test_a_candidate_differs_as_in_the_dry_run_of_the_folder(company: Company, lake: Lake) -> None:
    pdp = company.pdp
    facts = company.facts.apply(company.facts.sequence + 1, [])
    rules = {
        **planted_rules(RULES),
        "analysts": "false",
        "wide": "op == 'READ_ENTITY_VALUE' && path.startsWith('s11.')",
    }
    given = CandidatePolicies(bundle=CandidatePolicies(rules=rules).text_from(pdp.bundle.text), facts=facts)
    assert given.bundle
    candidate = rebuild_pdp(given.bundle)
    candidate.source = RecordedFacts(facts.with_projects({"lake": "p1"}), stale=False)
    by_folder = asyncio.run(replay(read_audit(company.folder, ReadReport()), None, candidate))
    result = replayed(lake, given)
    kinds = Counter(dict.fromkeys(("gained", "lost", "reason", "errors"), 0))
    found: Counter[Any] = Counter()
    for kind, rows in result.rows.items():
        for row in rows:
            if row["event"] == "decision":
                kinds[kind] += row["checks"]
                found[kind, row["principal"], row["action"], row["container"]] += row["checks"]
    assert +kinds == by_folder.totals
    assert not result.further
    names = ("gained", "lost", "reason", "errors")
    assert found == {
        (names[key.kind], key.principal, key.action, key.container): group.checks
        for key, group in by_folder.groups.items()
    }


def test_choices_of_records_choose_the_same_as_in_the_folder(company: Company, lake: Lake) -> None:
    times = sorted(check.time for check in read_audit(company.folder, ReadReport()))
    since, until = times[len(times) // 3], times[len(times) // 2]
    for choice in ({"since": since}, {"until": until}, {"since": since, "until": until, "principal": "user:oidc~u1"}):
        reading = ReadReport()
        filter = RecordFilter(**choice, listings=True, at_revision=True)
        expected = sum(1 for _ in read_audit(company.folder, reading, filter))
        totals = replayed(lake, AS_RECORDED, **choice).totals
        assert (totals.decided, totals.same) == (expected, expected), choice


def test_without_facts_the_cause_is_told(company: Company, tmp_path: Path) -> None:
    other = folder_lake(tmp_path / "lake")
    ingest(other, company.folder)
    other.spark.sql(f"DELETE FROM {other.name('facts')} WHERE NOT snapshot AND sequence > 8")
    result = replayed(other)
    causes = {row["cause"] for row in result.rows["undecidable"]}
    assert causes == {"changes of the epoch `c0ffee` are missing"}
    assert result.totals.decided + result.totals.undecidable == company.checks
    assert result.totals.same == result.totals.decided > 0


def run(lake: Lake, *options: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, with a Spark of its own."""
    assert lake.catalog.folder
    command = [sys.executable, "-m", "pdp", "pipeline", "replay", "--lake", lake.catalog.folder, *spark_options()]
    return subprocess.run(
        [*map(str, command), *map(str, options)], capture_output=True, text=True, timeout=800, check=False
    )


def test_the_command_tells_gains_and_losses_of_files(company: Company, lake: Lake, tmp_path: Path) -> None:
    rules = tmp_path / "new.properties"
    prefix = "nessie.server.authorization.rules"
    rules.write_text("".join(f"{prefix}.{id}={text}\n" for id, text in planted_rules(company.rules).items()))
    done = run(lake, "--candidate", rules, "--format", "json")
    lost, gained = company.used["rule_user"], company.used["rule_newcomer"]
    assert done.returncode == 3, done.stderr
    totals = json.loads(done.stdout.splitlines()[-1])
    assert totals.pop("run")
    assert totals == {
        "decided": company.checks, "same": company.checks - lost - gained, "gained": gained, "lost": lost,
        "undecidable": 0, "reason": 0, "errors": 0,
    }  # fmt: skip
    assert {json.loads(line)["principal"] for line in done.stdout.splitlines()[:-1]} == {
        "user:oidc~rule_user", "user:oidc~rule_newcomer",
    }  # fmt: skip
    rows = tmp_path / "rows.yaml"
    rows.write_text(json.dumps(planted_rows()))
    done = run(lake, "--candidate", rows)
    assert done.returncode == 3, done.stderr
    assert "rows may be newly seen: region = 'EU' -> (region = 'EU') OR (region = 'US')" in done.stdout
    assert "columns newly seen: ssn" in done.stdout


def test_bad_options_and_files_are_one_line(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "bad.properties").write_text("nessie.server.authorization.rules.a=path ==\n")
    place = str(lake.catalog.folder)
    for options, text in (
        ([], "give either --recorded or a --candidate"),
        (["--recorded", "--candidate", "a.yaml"], "give either --recorded or a --candidate"),
        (["--candidate", str(tmp_path / "no.yaml")], "cannot read"),
        (["--candidate", str(tmp_path / "bad.properties")], "bad.properties"),
        (["--recorded", "--principal", "user:oidc~nobody"], "nothing to decide"),
        (["--recorded", "--since", "soon"], "`--since soon` is no time"),
    ):
        result = CliRunner().invoke(pipeline, ["replay", "--lake", place, *options], obj=COMPOSITION)
        assert (result.exit_code, len(result.output.splitlines())) == (2, 1), result.output
        assert text in result.output


def test_the_plan_is_shown_without_deciding(lake: Lake) -> None:
    before = lake.table("replay_differences").count()
    options = ["replay", "--lake", str(lake.catalog.folder), "--recorded", "--explain"]
    result = CliRunner().invoke(pipeline, options, obj=COMPOSITION)
    assert result.exit_code == 0
    assert "MapInArrow" in result.output
    assert lake.table("replay_differences").count() == before


def test_records_that_no_lake_can_decide_are_counted_by_cause(tmp_path: Path) -> None:
    lines = [
        decision_line(0),
        decision_line(1),
        decision_line(2).replace(b'"schema":1', b'"schema":2,"purpose":"audit"'),
    ]
    empty = decision_line(3).partition(b'"checks":')[0] + b'"checks":[]}\n'
    write_segment(tmp_path / "audit", 1, [*lines, empty])
    lake = folder_lake(tmp_path / "lake")
    ingest(lake, tmp_path / "audit")
    result = replayed(lake)
    assert result.totals == ReplayTotals(undecidable=4)
    found = {row["cause"]: row["checks"] for row in result.rows["undecidable"] if row["cause"].startswith("a re")}
    assert found == {"a request that was answered without a check": 1}
    assert sum(row["checks"] for row in result.rows["undecidable"] if row["cause"].startswith("its bundle")) == 3
    assert all(row["samples"] for row in result.rows["undecidable"])
