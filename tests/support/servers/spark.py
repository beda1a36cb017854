"""Spark for tests: one session in each process of tests, small and without a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.untested import SETUP, not_tested

from pdp.errors import ConfigError, Unavailable
from pdp.lake.lake import Lake
from pdp.lake.session import LakeCatalog, folder_catalog, start_session

PROPERTIES = {
    "spark.master": "local[2]",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
"""Properties of a session of tests; commands take them by `--spark`."""


def spark_session(catalog: LakeCatalog, properties: dict[str, str] | None = None) -> Any:
    """A session with the catalog. Without Spark, Java or the jar, skip the test."""
    try:
        return start_session(catalog, {**PROPERTIES, **(properties or {})})
    except (ConfigError, Unavailable) as error:
        not_tested("on Spark", str(error), f"{SETUP}, then make test-spark with a network")


def folder_lake(folder: Path) -> Lake:
    """An empty lake in a folder, in the session of this process. The lake before it is out of use then."""
    catalog = folder_catalog(str(folder))
    return Lake(spark_session(catalog), catalog)


def spark_options() -> list[str]:
    """Options of a command that runs on a Spark of its own."""
    return [part for name, value in PROPERTIES.items() for part in ("--spark", f"{name}={value}")]


def plain_session(folder: Path) -> Any:
    """Return a session for tables of Spark's own catalog. Other versions of Spark than the pinned one get no Iceberg."""
    import pyspark  # noqa: PLC0415  an extra
    from pyspark.sql import SparkSession  # noqa: PLC0415

    if pyspark.__version__.startswith("4.1."):
        return spark_session(folder_catalog(str(folder)))
    builder: Any = SparkSession.builder
    for name, value in {**PROPERTIES, "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
