"""Files of a report: CSV without formulas, JSON with the sums of the rows that are left out."""

from __future__ import annotations

import csv
import io
import json

import pytest
from support.pages.reports import answer, report

from pdp.lake.report.report import QUESTIONS, csv_text, file_texts, json_text


def test_each_answer_is_a_file() -> None:
    for suffix in ("csv", "json"):
        names = [name for name, _ in file_texts(report(), suffix)]
        assert names == [f"{question}.{suffix}" for question in (*QUESTIONS, "candidate")]


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@x", "\t=1", "\uff1d1", "\r\n=1"])
def test_no_cell_is_a_formula(name: str) -> None:
    rows = list(csv.reader(io.StringIO(csv_text(report(name, name, name).answers["denials"]).decode())))
    assert rows[1][0].startswith("'")
    assert all(cell.isprintable() for row in rows for cell in row)


def test_json_has_rows_and_the_sums_of_the_others() -> None:
    made = json.loads(json_text(answer("principals", [["user:a~b", 1, 2, 3, 4, 5, 6, 7, None, None]], 2, {"reads": 9})))
    assert made["rows"][0]["principal"] == "user:a~b"
    assert made["rows"][0]["writes"] == 2
    assert (made["others"], made["rest"]) == (2, {"reads": 9})
    assert made["title"] == "Principals"
