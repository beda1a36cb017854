"""Rewritten statements on Spark: the same rows as on DuckDB, for the recorded cases and for generated queries."""

from __future__ import annotations

import pytest
from support.oracles.engine_cases import Tally, recorded, rewriting, run_case, worlds
from support.rewriting import recorded_service
from support.servers.spark_tables import SparkTables, recorded_tables

pytestmark = [pytest.mark.spark, pytest.mark.process]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> SparkTables:
    return recorded_tables(tmp_path_factory)


@pytest.mark.timeout(900)  # each case is a job of Spark or several, which takes its time on a busy machine
def test_the_recorded_cases_show_the_recorded_rows_on_spark(tables: SparkTables) -> None:
    tally, way = Tally(), rewriting(recorded_service(), "spark", tables.execute)
    for case in recorded("spark"):
        run_case(case, way, tally)
        if case.after:
            tables.restore(case.sql)
    assert not tally.wrong, "\n".join(tally.wrong)
    assert tally.outcomes["same"] > 110, (tally.outcomes, tally.notes)


@pytest.mark.spark_long
def test_generated_queries_show_the_rows_of_filtered_tables_on_spark(tables: SparkTables) -> None:
    tally = Tally()
    for world in worlds("spark", 31, 4, 12):
        way = rewriting(world.service, "spark", tables.execute)
        for case in world.cases:
            run_case(case, way, tally)
    assert not tally.wrong, "\n".join(tally.wrong)
    assert tally.outcomes["same"] > 36, (tally.outcomes, tally.notes)
