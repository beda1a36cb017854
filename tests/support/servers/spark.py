"""Spark for tests: one session in each process of tests, small and without a page."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pdp.errors import ConfigError, Unavailable
from pdp.lake.catalog import LakeCatalog, folder_catalog
from pdp.lake.lake import Lake
from pdp.lake.session import start_session

PROPERTIES = {
    "spark.master": "local[2]",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
}
"""Properties of a session of tests; commands take them by `--spark`."""


def spark_session(catalog: LakeCatalog, properties: dict[str, str] | None = None) -> Any:
    """A session with the catalog. Without Spark, Java or the jar, skip the test, but fail in CI."""
    try:
        return start_session(catalog, {**PROPERTIES, **(properties or {})})
    except (ConfigError, Unavailable) as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"NOT TESTED ON SPARK: {error}")


def folder_lake(folder: Path) -> Lake:
    """An empty lake in a folder, in the session of this process. The lake before it is out of use then."""
    catalog = folder_catalog(str(folder))
    return Lake(spark_session(catalog), catalog)


def spark_options() -> list[str]:
    """Options of a command that runs on a Spark of its own."""
    return [part for name, value in PROPERTIES.items() for part in ("--spark", f"{name}={value}")]
