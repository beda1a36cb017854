"""Clocks of zones in DuckDB: the same as those of the service, for all zones that another engine may name."""

from __future__ import annotations

import csv
from pathlib import Path

import duckdb
from support.oracles.zones_abroad import samples

from pdp.engines.row_access.portable_times import zone_names


def test_zones_have_the_clocks_of_the_service_in_duckdb(tmp_path: Path) -> None:
    """A zone that differs belongs to those that are disputed in `portable_times`."""
    file = tmp_path / "samples.csv"
    with file.open("w", newline="") as out:
        csv.writer(out).writerows(samples())
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'")
        known = {name for (name,) in con.execute("SELECT name FROM pg_timezone_names()").fetchall()}
        assert zone_names() - known == set()
        con.execute(f"CREATE TABLE z AS SELECT * FROM read_csv('{file}', names = ['zone', 'moment', 'seconds'])")
        differing = "SELECT DISTINCT zone FROM z WHERE epoch(timezone(zone, to_timestamp(moment))) - moment <> seconds ORDER BY 1"
        found = con.execute(differing).fetchall()
        count = con.execute("SELECT count(*) FROM z").fetchall()
    assert found == []
    assert count[0][0] > 200_000
