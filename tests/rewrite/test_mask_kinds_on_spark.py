"""Kinds of masks on a real Spark: the results of plain Python, whatever the session's zone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.oracles.mask_kinds import COLUMNS, ROWS, Pair, pairs, rewritten, spelled, wanted
from support.servers.spark import plain_session
from support.servers.spark_tables import QUICK

from pdp.engines.row_access.mask_kinds import Family, kind_sql

OLD_DAYS = {f"spark.sql.parquet.datetimeRebaseMode{way}": "CORRECTED" for way in ("InWrite", "InRead")}
"""Properties by which Spark 3.5 writes old days."""
TYPES: tuple[tuple[Family, str], ...] = (("date", "DATE"), ("timestamp", "TIMESTAMP_NTZ"), ("instant", "TIMESTAMP"))
pytestmark = [pytest.mark.spark, pytest.mark.process]


def read(pair: Pair) -> str:
    return f"CAST(UNIX_MICROS({pair.name}) AS STRING) AS {pair.name}" if pair.column == "instant" else pair.name


def plain(pair: Pair, value: Any) -> Any:
    """Return a value of Spark as the oracle writes it: an instant in microseconds, a struct as its values."""
    from pyspark.sql import Row  # noqa: PLC0415  an extra

    if isinstance(value, Row):
        return [plain(pair, part) for part in value]
    return bytes(value) if isinstance(value, bytearray) else value


def micros(pair: Pair, row: int) -> Any:
    found = wanted(pair, row)
    if found is None or pair.column != "instant":
        return found
    days = found.date().toordinal() - 719_163
    return str(days * 86_400_000_000)


@pytest.mark.timeout(900)
def test_spark_shows_what_python_does(tmp_path: Path) -> None:
    session = plain_session(tmp_path)
    for name, value in {**QUICK, **OLD_DAYS}.items():
        session.conf.set(name, value)
    some = list(pairs("spark"))
    schema = ", ".join(f"{pair.name} STRING" for pair in some)
    session.createDataFrame(
        [(row, *(spelled(pair, row) for pair in some)) for row in range(ROWS)], f"id INT, {schema}"
    ).createOrReplaceTempView("texts")
    casts = ", ".join(f"{cast(pair)} AS {pair.name}" for pair in some)
    session.sql(f"CREATE DATABASE s LOCATION '{tmp_path / 's'}'")
    session.sql(f"CREATE TABLE s.t USING parquet AS SELECT id, {casts} FROM texts")
    sql = rewritten(tmp_path, "spark").replace("`lake`.`s`.`t`", "s.t").replace("lake.s.t", "s.t")
    for zone, ansi in (("UTC", "true"), ("America/St_Johns", "false"), ("Pacific/Kiritimati", "true")):
        session.conf.set("spark.sql.session.timeZone", zone)
        session.conf.set("spark.sql.ansi.enabled", ansi)
        shown = session.sql(sql)
        stored = dict(session.table("s.t").dtypes)
        assert dict(shown.dtypes) == stored
        shown.createOrReplaceTempView("shown")
        found = session.sql(f"SELECT id, {', '.join(map(read, some))} FROM shown ORDER BY id").collect()
        for pair in some:
            values = [plain(pair, row[pair.name]) for row in found]
            assert values == [micros(pair, row) for row in range(ROWS)], (pair, zone)

    for family, kind in TYPES:
        masked = kind_sql("truncate-to-year", "c", family, kind, "spark")
        stale = session.sql(f"SELECT {masked} AS c FROM VALUES ('secret-1'), ('x') AS t(c)")
        assert [row.c for row in stale.collect()] == [None, None], "an error would show the text"


def cast(pair: Pair) -> str:
    """Return the value of a column from its text. Lists, maps and structs are NULL there."""
    kind = COLUMNS[pair.column].type("spark").replace("VARCHAR(3)", "STRING")
    if kind.partition("<")[0] in ("ARRAY", "MAP", "STRUCT"):
        return f"CAST(NULL AS {kind})"
    return f"CAST({pair.name} AS {kind})"
