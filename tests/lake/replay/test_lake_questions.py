"""Questions by hashes on Spark: the same as by all columns, and of one state of the lake."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from support.generators.varied_company import VariedCompany
from support.servers.lakes import decision_line, ingest, write_segment
from support.servers.spark import folder_lake

from pdp.errors import Unavailable
from pdp.lake.lake import Lake
from pdp.lake.replay.questions import QUESTION, RecordedQuestions, ReplayChoice, numbered, question_rows

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    folder = tmp_path_factory.mktemp("company")
    company = VariedCompany(folder / "audit", 5)
    company.use(12)
    lake = folder_lake(folder / "lake")
    ingest(lake, company.folder)
    return lake


def by_columns(lake: Lake, choice: ReplayChoice) -> dict[Any, int]:
    """Return the checks of each question, grouped by all columns."""
    return {
        tuple(map(str, row[:-1])): row[-1] for row in question_rows(lake, choice).groupBy(*QUESTION).count().collect()
    }


@pytest.mark.parametrize(
    "choice",
    [
        ReplayChoice(listings=True),
        ReplayChoice(by_revision=False),
        ReplayChoice(principal="user:oidc~u1", by_second=True),
    ],
)
def test_hashes_group_as_all_columns_do(lake: Lake, choice: ReplayChoice, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = by_columns(lake, choice)
    assert wanted
    for most in (1_000_000, 0):  # with and without a copy of the hashes in each worker
        monkeypatch.setattr("pdp.lake.replay.questions._MOST_BROADCAST", most)
        with RecordedQuestions(lake, choice) as questions:
            found = questions.frame().select(*QUESTION, "checks", "first", "last").collect()
            assert (questions.number, questions.checks) == (len(wanted), sum(wanted.values()))
        assert {tuple(map(str, row[: len(QUESTION)])): row.checks for row in found} == wanted
        assert len(found) == len(wanted)
        assert all(0 < row.first <= row.last for row in found)


def test_rows_that_differ_in_places_of_nulls_differ_in_hashes(lake: Lake) -> None:
    texts = [name for name in QUESTION if name not in ("stale", "delegated", "allowed", "second")]
    types = {"stale": "boolean", "delegated": "boolean", "allowed": "boolean", "second": "bigint"}
    schema = ", ".join(f"`{name}` {types.get(name, 'string')}" for name in QUESTION)
    rows: list[dict[str, Any]] = [{name: "a"} for name in texts] + [
        {one: "", other: None} for one, other in product(texts[:4], texts[4:])
    ]
    rows += [{"errors": "[]"}, {"errors": None}, {"errors": '["ab"]'}, {"errors": '["a","b"]'}, {"by": "b"}]
    distinct = {tuple(str(row.get(name)) for name in QUESTION) for row in rows}
    frame = lake.spark.createDataFrame([tuple(row.get(name) for name in QUESTION) for row in rows], schema)
    found = numbered(frame).select("question", "twin").distinct().collect()
    assert len(found) == len(distinct)
    assert len({row.question for row in found} | {row.twin for row in found}) == 2 * len(distinct)


def test_later_records_are_no_part_of_open_questions(tmp_path: Path) -> None:
    lake = folder_lake(tmp_path / "lake")
    write_segment(tmp_path / "audit", 1, [decision_line(0), decision_line(1)])
    ingest(lake, tmp_path / "audit")
    choice = ReplayChoice()
    with RecordedQuestions(lake, choice) as questions:
        write_segment(tmp_path / "audit", 2, [decision_line(2)])
        ingest(lake, tmp_path / "audit")
        assert questions.frame().count() == questions.checks == 2
        questions.require(2)
        with pytest.raises(Unavailable, match="the lake changed during the replay, 1 of 2 checks"):
            questions.require(1)
    with RecordedQuestions(lake, choice) as questions:
        assert questions.checks == 3
