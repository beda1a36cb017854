"""Functions of one dialect in another on a real Spark: the author's rows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from support.oracles.functions_abroad import TYPES, printed, rows, wanted
from support.servers.spark import plain_session
from support.servers.spark_tables import QUICK

pytestmark = [pytest.mark.spark, pytest.mark.process]
DATA = rows()
_CONVERTED: dict[str, Callable[[Any], Any]] = {"d": float, "c": Decimal, "day": dt.date.fromisoformat}
_SCHEMA = ", ".join(f"{name} {kind.replace('VARCHAR', 'STRING')}" for name, kind in TYPES.items())


@pytest.mark.timeout(900)
def test_spark_shows_the_rows_of_the_author(tmp_path: Path) -> None:
    session = plain_session(tmp_path)
    for name, value in QUICK.items():
        session.conf.set(name, value)
    data = [
        tuple(
            _CONVERTED.get(name, lambda one: one)(value) if value is not None else None for name, value in row.items()
        )
        for row in DATA
    ]
    session.createDataFrame(data, _SCHEMA).createOrReplaceTempView("t")
    cases = printed("spark")
    for ansi in ("true", "false"):
        session.conf.set("spark.sql.ansi.enabled", ansi)
        for start in range(0, len(cases), 60):
            some = cases[start : start + 60]
            columns = ", ".join(f"({condition}) AS c{at}" for at, (_, _, condition) in enumerate(some))
            found = [row.asDict() for row in session.sql(f"SELECT id, {columns} FROM t").collect()]
            for at, (form, source, condition) in enumerate(some):
                shown = sorted(row["id"] for row in found if row[f"c{at}"] is True)
                assert shown == wanted(form, source, DATA), (source, condition, ansi)
