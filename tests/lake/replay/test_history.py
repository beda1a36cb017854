"""Time travel on a lake: who could, through what, and who did."""

from __future__ import annotations

import asyncio
import json
import re
import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.generators.recorded_company import ROWS, Company
from support.paths import ROOT
from support.servers.lakes import ingest
from support.servers.spark import folder_lake
from support.service.command_line import COMPOSITION

from pdp.cli.lake import pipeline
from pdp.facts.objects import Grant, GrantAdded, GrantRemoved

PAGE = ROOT / "docs" / "pipeline.md"
pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.timeout(900)]


def assert_the_sql_of_the_page_tells_uses(folder: Path, day: date) -> None:
    """Run the statement of docs/pipeline.md for a day."""
    lake = folder_lake(folder)
    (statement,) = [
        text for text in re.findall(r"```sql\n(WITH.*?)```", PAGE.read_text(), re.DOTALL) if "max_by(kind" in text
    ]
    for written, wanted in (("2026-02-01", day + timedelta(days=1)), ("2026-01-31", day)):
        assert written in statement
        statement = statement.replace(written, str(wanted))
    found = {(row.principal, row.privilege, row.object): row.uses for row in lake.spark.sql(statement).collect()}
    assert found["user:oidc~grant_user", "select", "table:lake/plant/by_grant"] == 0
    assert ("user:oidc~new", "select", "table:lake/plant/by_grant") not in found  # it was taken in the end


def test_a_right_of_a_part_of_the_day_and_its_use(tmp_path: Path) -> None:
    company = Company(tmp_path / "audit")
    check = {"principal": "user:oidc~new", "action": "read_data", "resource": "table:lake/plant/by_grant"}
    grant = Grant(("table", ("lake", "plant", "by_grant")), "select", "user:oidc~new")
    assert asyncio.run(company.check([check])) == [False]
    given = time.time()
    company.change([GrantAdded(grant)], given)
    assert asyncio.run(company.check([check, check])) == [True, True]
    taken = time.time()
    company.change([GrantRemoved(grant)], taken)
    assert asyncio.run(company.check([check])) == [False]
    company.close()
    ingest(folder_lake(tmp_path / "lake"), company.folder)
    day = datetime.now(UTC).date()

    def history(*options: str) -> tuple[int, str]:
        options = ("--lake", str(tmp_path / "lake"), "--resource", "table:lake/plant/by_grant", *options)
        result = CliRunner().invoke(pipeline, ["history", *options], obj=COMPOSITION)
        return result.exit_code, result.output

    code, output = history("--principal", "user:oidc~new", "--on", str(day), "--format", "json")
    assert code == 0, output
    found = json.loads(output.splitlines()[-1])
    assert (found["could"], found["did"]) == (True, 2)
    assert [each["allowed"] for each in found["intervals"]] == [False, True, False]
    could = found["intervals"][1]
    assert could["by"] == "grants:select on table:lake/plant/by_grant via user:oidc~new"
    assert could["actor"] == "admin"
    for text, seconds in ((could["since"], given), (could["until"], taken)):
        assert abs(datetime.fromisoformat(text).timestamp() - seconds) < 0.001
    assert [(use["action"], use["allowed"], use["checks"]) for use in found["uses"]] == [
        ("read_data", True, 2),
        ("read_data", False, 2),
    ]
    code, output = history("--principal", "user:oidc~grant_user", "--on", str(day))
    assert code == 0
    assert "could, by grants:select on table:lake/plant/by_grant via user:oidc~grant_user" in output
    assert "no recorded check of that day" in output
    assert_the_sql_of_the_page_tells_uses(tmp_path / "lake", day)
    before = str(day - timedelta(days=1))
    code, output = history("--principal", "user:oidc~new", "--on", before)
    assert (code, output) == (2, f"pdp: the lake has no facts or no policies of {before} or earlier\n")


def test_policies_that_come_back_are_a_part_of_the_day(tmp_path: Path) -> None:
    reads = "op in ['READ_CONTENT_KEY', 'READ_ENTITY_VALUE']"
    given = {"refs": "op == 'VIEW_REFERENCE'", "readers": f"{reads} && role == 'pia'"}
    company = Company(tmp_path / "audit", policies=(given, ROWS))
    check = {"principal": "user:oidc~pia", "action": "read_data", "resource": "table:lake/s/t"}
    # grants of others are written in between: no part of the day begins with them
    for rules, allowed in ((given, True), ({"refs": given["refs"]}, False), (given, True)):
        company.use_rules(rules)
        assert asyncio.run(company.check([check])) == [allowed]
        company.change([GrantAdded(Grant(("table", ("lake", "s", "x")), "select", "user:oidc~other"))], time.time())
    company.close()
    lake = folder_lake(tmp_path / "lake")
    ingest(lake, company.folder)
    day = str(datetime.now(UTC).date())
    options = ["--lake", str(tmp_path / "lake"), "--resource", "table:lake/s/t", "--principal", "user:oidc~pia"]
    result = CliRunner().invoke(pipeline, ["history", *options, "--on", day, "--format", "json"], obj=COMPOSITION)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout.splitlines()[-1])
    parts = [(each["allowed"], each["by"], each["actor"]) for each in found["intervals"]]
    assert parts == [(True, "cel:readers", ""), (False, "default_deny", ""), (True, "cel:readers", "")]
    result = CliRunner().invoke(pipeline, ["history", *options, "--on", day, "--explain"], obj=COMPOSITION)
    assert (result.exit_code, "HashAggregate" in result.stdout) == (0, True), result.output
