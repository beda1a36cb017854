"""Generated statements on Spark answer as if hidden rows did not exist, and show nothing of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.judging import judge_seconds
from support.oracles.hidden_values import FILTERS, ROWS, SCHEMAS, Run, judge, service, statements
from support.servers.spark import plain_session
from support.servers.spark_tables import QUICK

from pdp.lake.enforce import SPARK_TESTED

pytestmark = [pytest.mark.spark, pytest.mark.process]
_EMAIL = "CASE WHEN i % 3 = 0 THEN '5' ELSE 'secret' END"
_COLUMNS = ROWS.format(struct=f"named_struct('b', {_EMAIL}) AS s", list=f"array({_EMAIL}) AS l")
_CATALOG = "spark_catalog"


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a session with the schemas of both row counts, as tables of Parquet."""
    folder = tmp_path_factory.mktemp("tables")
    found = plain_session(folder)
    found.conf.set("spark.sql.ansi.enabled", "true")
    for rows in (6, 100_000):
        for schema, where in SCHEMAS:
            _fill(found, f"{_CATALOG}.{schema}_{rows}", rows, where, folder / f"{schema}{rows}")
    return found


def _fill(session: Any, schema: str, rows: int, where: str, folder: Path) -> None:
    session.sql(f"CREATE DATABASE {schema} LOCATION '{folder}'")
    session.sql(
        f"CREATE TABLE {schema}.orders USING parquet AS SELECT {_COLUMNS} FROM (SELECT id AS i FROM range({rows})){where}"
    )
    session.sql(f"CREATE TABLE {schema}.m USING parquet AS SELECT 'alice@example.com' AS who, 'EU' AS region")
    session.sql(f"CREATE TABLE {schema}.free USING parquet AS SELECT CAST(id AS INT) AS k FROM range(5)")
    session.sql(f"CREATE VIEW {schema}.v AS SELECT * FROM {schema}.orders WHERE id IS NOT NULL")


def runner(session: Any, schema: str) -> Run:
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415  an extra
    from pyspark.errors import PySparkException  # noqa: PLC0415

    def run(sql: str) -> tuple[list[Any] | None, str]:
        session.sql(f"USE {_CATALOG}.{schema}")
        try:
            frame = session.sql(sql)
            return [tuple(row) for row in frame.collect()], frame._jdf.queryExecution().toString()
        except (PySparkException, Py4JJavaError) as error:
            return None, str(error)

    return run


def wrong(session: Any, filters: Sequence[str], rows: int, seed: object, count: int) -> list[str]:
    for name, value in QUICK.items() if rows < 100 else ():
        session.conf.set(name, value)
    by = service("spark", filters, [_CATALOG, f"every_{rows}"])
    some = statements("spark", f"{filters} {seed}", count)
    outcome = judge(by, "spark", some, runner(session, f"every_{rows}"), runner(session, f"visible_{rows}"))
    assert outcome.taken > count // 2
    return outcome.wrong


@pytest.mark.timeout(3600)  # each statement is some jobs of Spark, which take their time on a busy machine
@pytest.mark.parametrize(("rows", "count"), [(6, 12), (100_000, 5)])
def test_statements_see_no_hidden_value_on_spark(session: Any, rows: int, count: int) -> None:
    assert [line for filters in FILTERS for line in wrong(session, filters, rows, "few", count)] == []


@pytest.mark.spark_long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("rows", [6, 100_000])
def test_thousands_of_statements_see_no_hidden_value_on_spark(session: Any, rows: int) -> None:
    end, seed = time.monotonic() + judge_seconds(300), 0
    while seed == 0 or time.monotonic() < end:
        for filters in FILTERS:
            assert wrong(session, filters, rows, f"{rows} {seed}", 10) == []
        seed += 1


def test_this_version_of_spark_is_a_tested_one() -> None:
    import pyspark  # noqa: PLC0415  an extra

    assert pyspark.__version__.rpartition(".")[0] in SPARK_TESTED
