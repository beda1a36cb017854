"""Functions, times and casts of one dialect in another on a real Spark: the author's rows."""

from __future__ import annotations

import csv
import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.oracles import casts_abroad, functions_abroad, pieces_abroad, times_abroad
from support.oracles.functions_abroad import local, printed, wanted
from support.oracles.zones_abroad import samples
from support.servers.spark import plain_session
from support.servers.spark_tables import QUICK

from pdp.engines.row_access.portable_times import zone_names

pytestmark = [pytest.mark.spark, pytest.mark.process]
_CONVERTED: dict[str, Callable[[Any], Any]] = {
    "d": float, "c": Decimal, "day": dt.date.fromisoformat, "ts": dt.datetime.fromisoformat,
}  # fmt: skip


def fill(session: Any, suite: ModuleType) -> None:
    """Make the table of the rows. A moment comes as a text: Python cannot hand over the first and the last one."""
    names = getattr(suite, "COLUMNS", {}).get("spark", {})
    kinds = {name: names.get(name, kind).replace("VARCHAR", "STRING") for name, kind in suite.TYPES.items()}
    data = [
        tuple(
            _CONVERTED.get(name, lambda one: one)(value) if value is not None else None for name, value in row.items()
        )
        for row in suite.rows()
    ]
    schema = ", ".join(f"{name} {'STRING' if name == 'seen' else kind}" for name, kind in kinds.items())
    frame = session.createDataFrame(data, schema)
    if "seen" in kinds:
        frame = frame.selectExpr(
            *(f"CAST(concat(seen, '+00:00') AS {kinds['seen']}) AS seen" if name == "seen" else name for name in kinds)
        )
    frame.createOrReplaceTempView("t")
    session.createDataFrame([(text,) for text in pieces_abroad.LOOKUP], "x STRING").createOrReplaceTempView("m")


def test_zones_have_the_clocks_of_the_service_in_spark(tmp_path: Path) -> None:
    """A zone that differs belongs to those that are disputed in `portable_times`."""
    session = plain_session(tmp_path)
    known = set(session._jvm.java.time.ZoneId.getAvailableZoneIds())
    assert zone_names() - known == set()
    file = tmp_path / "samples.csv"
    with file.open("w", newline="") as out:
        csv.writer(out).writerows(samples())
    frame = session.read.csv(str(file), schema="zone STRING, moment BIGINT, seconds BIGINT")
    for zone in times_abroad.ZONES:
        session.conf.set("spark.sql.session.timeZone", zone)
        there = "unix_seconds(from_utc_timestamp(timestamp_seconds(moment), zone)) - moment"
        frame = frame.selectExpr("*", f"{there} AS found_{zone[:3]}")
        assert sorted({row.zone for row in frame.where(f"found_{zone[:3]} <> seconds").collect()}) == []


@pytest.mark.timeout(900)
def test_spark_shows_the_rows_of_the_author(tmp_path: Path) -> None:
    session = plain_session(tmp_path)
    for name, value in QUICK.items():
        session.conf.set(name, value)
    for suite in (functions_abroad, times_abroad, casts_abroad, pieces_abroad):
        session.conf.set("spark.sql.ansi.enabled", "true")
        fill(session, suite)
        data = suite.rows()
        cases = printed("spark", [*suite.FORMS, *getattr(suite, "PARTLY", [])], suite.TYPES)
        for ansi, zone in zip(("true", "false"), times_abroad.ZONES, strict=True):
            session.conf.set("spark.sql.ansi.enabled", ansi)
            session.conf.set("spark.sql.session.timeZone", zone)
            for start in range(0, len(cases), 60):
                some = cases[start : start + 60]
                columns = ", ".join(f"({local(condition)}) AS c{at}" for at, (_, _, condition) in enumerate(some))
                found = [row.asDict() for row in session.sql(f"SELECT id, {columns} FROM t").collect()]
                for at, (form, source, condition) in enumerate(some):
                    shown = sorted(row["id"] for row in found if row[f"c{at}"] is True)
                    assert shown == wanted(form, source, data), (source, condition, ansi, zone)
