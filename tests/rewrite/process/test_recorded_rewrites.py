"""The recorded cases: rewritten SQL runs on the full tables and gives the rows of physically filtered tables."""

from __future__ import annotations

import re
from typing import Any

import pytest
from support.rewriting import full_database, on_duckdb, recorded_cases, recorded_data, recorded_service, rows_of

from pdp.rewrite.errors import RewriteRefused
from pdp.rewrite.process.local import RewriteRequest

CASES = recorded_cases()
DATA = recorded_data()
SERVICE = recorded_service()
DATABASE = full_database(DATA)


def request_of(case: dict[str, Any]) -> RewriteRequest:
    who = DATA["callers"][case["caller"]]
    return RewriteRequest(
        case["sql"], case["dialect"], who["principal"], tuple(who["groups"]), authenticated=who["authenticated"]
    )


def patterns(wanted: dict[str, Any], key: str) -> list[str]:
    found = wanted.get(key, [])
    return [found] if isinstance(found, str) else found


def test_the_cases_are_all_there() -> None:
    assert len(CASES) == 217


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_a_recorded_case(case: dict[str, Any]) -> None:
    wanted = case["expect"]
    if "error" in wanted:
        with pytest.raises(RewriteRefused) as refused:
            SERVICE.rewrite(request_of(case))
        assert refused.value.rap in wanted.get("error_accept", [wanted["error"]])
        return
    sql = SERVICE.rewrite(request_of(case))
    assert all(re.search(pattern, sql) for pattern in patterns(wanted, "must_match")), sql
    assert not any(re.search(pattern, sql) for pattern in patterns(wanted, "must_not_match")), sql
    if "rows" in wanted:
        runnable = on_duckdb(sql, case["dialect"])
        columns, rows = rows_of(DATABASE, runnable, case.get("after", ""), ordered=wanted["ordered"])
        assert rows == wanted["rows"], sql
        assert not wanted.get("columns") or columns == wanted["columns"], sql
