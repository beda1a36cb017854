"""Report on a lake of Iceberg tables: the command from beginning to end, its tables, and the SQL of its page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.pages.report_lake import LakeRows, check
from support.paths import ROOT
from support.servers.spark import folder_lake, spark_options
from support.service.commands import run_pdp

from pdp.errors import InvalidArgument
from pdp.lake.lake import Lake
from pdp.lake.report.report import QUESTIONS, SOURCES, make_report

pytestmark = [pytest.mark.spark, pytest.mark.process]
BLOCKS = re.findall("```sql\n(.*?)```", (ROOT / "docs" / "report.md").read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = folder_lake(tmp_path_factory.mktemp("reported") / "lake")
    rows = LakeRows()
    rows.policies("bundle1", rules={"idle": "true"})
    rows.grant("user:oidc~alice", "select", "namespace:lake/hr")
    for day in range(20):
        rows.request(check("user:oidc~alice", "read_data", "table:lake/hr/people", "grants:x on y via z"), days=day)
    rows.request(check("user:oidc~eve<b>", "read_data", "table:lake/hr/people"), days=1)
    rows.write(lake)
    return lake


def test_answers_are_tables_of_the_lake(lake: Lake) -> None:
    report = make_report(lake, 10, lambda _: None, "a note")
    assert report.answers.keys() == set(QUESTIONS)
    for name, answer in report.answers.items():
        table = lake.spark.table(lake.name(f"report_{name}"))
        assert table.columns == [column.name for column in answer.columns], name
        assert table.count() == len(answer.rows), name
    make_report(lake, 10, lambda _: None)  # replaces, and adds nothing
    rows = lake.spark.table(lake.name("report_principals")).collect()
    assert {row.principal: row.reads for row in rows} == {"user:oidc~alice": 20, "user:oidc~eve<b>": 0}


@pytest.mark.parametrize("sql", BLOCKS, ids=range(len(BLOCKS)))
def test_the_sql_of_the_page_runs(lake: Lake, sql: str) -> None:
    assert len(BLOCKS) >= 3
    lake.spark.sql(sql).collect()


def test_a_lake_without_tables_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="pdp pipeline ingest"):
        make_report(folder_lake(tmp_path / "nothing"), 10, lambda _: None)


def test_the_command_writes_page_and_files(lake: Lake, tmp_path: Path) -> None:
    page, answers = tmp_path / "report.html", tmp_path / "answers"
    place = str(lake.catalog.folder)
    files = ["--out", str(page), "--csv", str(answers), "--json", str(answers)]
    ended = run_pdp(
        "pipeline", "report", "--lake", place, *files, *spark_options(), "--format", "json", fresh=True, timeout=800
    )
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout.splitlines()[-1])
    wanted = {"requests": 21, "permits": 20, "denials": 1, "out": str(page), "files": 1 + 2 * len(QUESTIONS)}
    assert said == wanted
    assert "eve&lt;b&gt;" in page.read_text()
    assert page.stat().st_mode & 0o077 == 0
    assert {path.name for path in answers.iterdir()} == {
        f"{name}.{end}" for name in QUESTIONS for end in ("csv", "json")
    }


def test_sources_are_the_tables_of_the_ingest() -> None:
    from pdp.lake.tables import TABLES  # noqa: PLC0415  beside the list that it is compared with

    assert set(SOURCES) <= TABLES.keys()
