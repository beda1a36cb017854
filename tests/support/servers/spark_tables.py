"""The recorded tables on Spark: an Iceberg catalog in a folder, with the names of the recorded cases.

The catalog of a folder has no views: a statement runs only where the rewriter has replaced all of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
import sqlglot
from support.oracles.engine_cases import EngineError
from support.oracles.equivalence import DATA
from support.servers.spark import spark_session

from pdp.lake.session import folder_catalog

QUICK: Final = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
}
"""Properties with which queries on few rows start soon."""


class SparkTables:
    """Session of Spark with the recorded tables."""

    def __init__(self, folder: Path) -> None:
        self.session = spark_session(folder_catalog(str(folder)), QUICK)
        for name in sorted({name.rpartition(".")[0] for name in DATA["tables"]}):
            self.session.sql(f"CREATE NAMESPACE IF NOT EXISTS {name}")
        for name in DATA["tables"]:
            self.fill(name)
        self.session.sql("USE lake.sales")

    def fill(self, name: str) -> None:
        """Make a table anew with the recorded rows."""
        table = DATA["tables"][name]
        columns = (part.strip().partition(" ") for part in table["ddl"].split(","))
        casts = ", ".join(f"CAST(c{at} AS {kind}) AS {column}" for at, (column, _, kind) in enumerate(columns))
        names = ", ".join(f"c{at}" for at in range(casts.count("CAST(")))
        query = f"SELECT {casts} FROM (VALUES {table['values']}) AS t({names})"
        text = sqlglot.transpile(query, read="duckdb", write="spark")[0]
        self.session.sql(f"CREATE OR REPLACE TABLE {name} USING iceberg AS {text}")

    def restore(self, changed: str) -> None:
        """Undo what a statement may have changed: the tables in the text."""
        for name in DATA["tables"]:
            if name in changed or name.rpartition(".")[2] in changed:
                self.fill(name)

    def execute(self, sql: str) -> list[list[Any]]:
        """Return the rows of a statement; raise EngineError if Spark cannot run the statement."""
        from pyspark.errors import PySparkException  # noqa: PLC0415  an extra

        try:
            return [list(row) for row in self.session.sql(sql).collect()]
        except PySparkException as error:
            raise EngineError(str(error)[:400]) from None


_made: list[SparkTables] = []


def recorded_tables(folders: pytest.TempPathFactory) -> SparkTables:
    """Return the tables of this process, made once."""
    if not _made:
        _made.append(SparkTables(folders.mktemp("recorded_lake")))
    return _made[0]
