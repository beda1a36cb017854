"""Generated statements on DuckDB answer as if hidden rows did not exist, and show nothing of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import duckdb
import pytest
from support.judging import judge_seconds
from support.oracles.hidden_values import FILTERS, ROWS, SCHEMAS, Run, judge, service, statements

from pdp.rewrite.process.pool import DUCKDB_TESTED, minor_of

_EMAIL = "CASE WHEN i % 3 = 0 THEN '5' ELSE 'secret' END"
_COLUMNS = ROWS.format(struct=f"{{'b': {_EMAIL}}} AS s", list=f"[{_EMAIL}] AS l")


def database(rows: int) -> duckdb.DuckDBPyConnection:
    found = duckdb.connect()
    for schema, where in SCHEMAS:
        found.execute(
            f"""CREATE SCHEMA {schema}; CREATE TABLE {schema}.orders AS SELECT {_COLUMNS} FROM range({rows}) t(i){where};
            CREATE TABLE {schema}.m AS SELECT 'alice@example.com' AS who, 'EU' AS region;
            CREATE TABLE {schema}.free AS SELECT range::INT AS k FROM range(5);
            CREATE VIEW {schema}.v AS SELECT * FROM {schema}.orders WHERE id IS NOT NULL"""
        )
    return found


def runner(found: duckdb.DuckDBPyConnection, schema: str, *, plans: bool = False) -> Run:
    def run(sql: str) -> tuple[list[Any] | None, str]:
        found.execute(f"USE {schema}")
        try:
            rows = found.execute(sql).fetchall()
            return rows, str(found.execute(f"EXPLAIN {sql}").fetchall()) if plans else ""
        except duckdb.Error as error:
            return None, str(error)

    return run


def wrong(found: duckdb.DuckDBPyConnection, filters: Sequence[str], seed: object, count: int) -> list[str]:
    by = service("duckdb", filters, ["memory", "every"])
    some = statements("duckdb", f"{filters} {seed}", count)
    outcome = judge(by, "duckdb", some, runner(found, "every", plans=True), runner(found, "visible"))
    assert outcome.taken > count // 2
    return outcome.wrong


@pytest.mark.parametrize("filters", FILTERS)
def test_statements_see_no_hidden_value(filters: tuple[str, ...]) -> None:
    with database(6) as found:
        assert wrong(found, filters, "few", 15) == []


def test_statements_see_no_hidden_value_among_many_rows() -> None:
    with database(100_000) as found:
        assert [line for filters in FILTERS[::4] for line in wrong(found, filters, "many", 5)] == []


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("rows", [6, 100_000])
def test_thousands_of_statements_see_no_hidden_value(rows: int) -> None:
    end, seed = time.monotonic() + judge_seconds(40), 0
    with database(rows) as found:
        while seed == 0 or time.monotonic() < end:
            for filters in FILTERS:
                assert wrong(found, filters, f"{rows} {seed}", 20) == []
            seed += 1


def test_this_version_of_duckdb_is_a_tested_one() -> None:
    assert minor_of(duckdb.__version__) in DUCKDB_TESTED
