"""Lake: a session of Spark with the tables of one catalog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from pdp.errors import InvalidArgument, Unavailable
from pdp.pipeline.catalog import LakeCatalog
from pdp.pipeline.session import start_session
from pdp.pipeline.tables import LakeTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PROPERTIES: Final = {
    "format-version": "2",
    "write.distribution-mode": "none",
    "write.spark.fanout.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "50",
}
"""Properties of every table. Writers bring rows in the order of the audit, and open a file for each partition."""


class Lake:
    """Tables of a catalog, in a session of Spark."""

    def __init__(self, spark: SparkSession, catalog: LakeCatalog) -> None:
        self.spark = spark
        self.catalog = catalog

    def name(self, table: str) -> str:
        """Return the full name of a table in SQL."""
        return self.catalog.table(table)

    def table(self, table: str) -> DataFrame:
        """Return the rows of a table; raise InvalidArgument if the lake does not have the table."""
        if not self.exists(table):
            raise InvalidArgument(f"the lake `{self.catalog.name}` has no table `{table}`: run `pdp pipeline ingest`")
        return self.spark.table(self.name(table))

    def tables(self) -> list[str]:
        """Return the names of all tables; raise InvalidArgument for a lake without any."""
        self.table("sources")
        rows = self.spark.sql(f"SHOW TABLES IN {self.catalog.table('').rstrip('.')}").collect()
        return sorted(row.tableName for row in rows)

    def exists(self, table: str) -> bool:
        """Tell whether the lake has a table; raise Unavailable if the catalog cannot be reached."""
        from pyspark.errors import PySparkException  # noqa: PLC0415  an extra

        try:
            return bool(self.spark.catalog.tableExists(self.name(table)))
        except PySparkException as error:
            raise self._unreachable(error) from None
        except Exception as error:  # errors of the virtual machine that PySpark does not translate
            if type(error).__module__.partition(".")[0] != "py4j":
                raise
            raise self._unreachable(error) from None

    def create(self, tables: Iterable[LakeTable], partitions: Mapping[str, tuple[str, ...]] | None = None) -> None:
        """Make missing tables, and add missing columns to tables of an older version.

        `partitions` replaces those of new tables.
        """
        self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {self.catalog.table('').rstrip('.')}")
        for table in tables:
            if self.exists(table.name):
                self._add_columns(table)
            else:
                chosen = (partitions or {}).get(table.name, table.partitions)
                self.spark.sql(self._definition(table, chosen))

    def append(self, table: LakeTable, frame: DataFrame, properties: Mapping[str, str] | None = None) -> None:
        """Append rows in one commit; the snapshot gets the properties. Columns of the lake alone are null."""
        from pyspark.sql import functions as sql  # noqa: PLC0415  an extra

        own = set(table.names)
        columns = [
            sql.col(field.name) if field.name in own else sql.lit(None).cast(field.dataType).alias(field.name)
            for field in self.table(table.name).schema
        ]
        writer = frame.select(columns).writeTo(self.name(table.name))
        for name, value in (properties or {}).items():
            writer = writer.option(f"snapshot-property.{name}", value)
        writer.append()

    def _definition(self, table: LakeTable, partitions: tuple[str, ...]) -> str:
        columns = ", ".join(f"{column.sql} COMMENT {_literal(column.text)}" for column in table.columns)
        properties = ", ".join(f"'{name}'='{value}'" for name, value in _PROPERTIES.items())
        by = f" PARTITIONED BY ({', '.join(partitions)})" if partitions else ""
        return (
            f"CREATE TABLE {self.name(table.name)} ({columns}) USING iceberg{by} COMMENT {_literal(table.text)} "
            f"TBLPROPERTIES ({properties})"
        )

    def _add_columns(self, table: LakeTable) -> None:
        present = set(self.spark.table(self.name(table.name)).columns)
        if missing := [column for column in table.columns if column.name not in present]:
            columns = ", ".join(f"{column.sql} COMMENT {_literal(column.text)}" for column in missing)
            self.spark.sql(f"ALTER TABLE {self.name(table.name)} ADD COLUMNS ({columns})")

    def _unreachable(self, error: Exception) -> Unavailable:
        java = getattr(error, "java_exception", None)
        text = str(java.getMessage() if java is not None else error).splitlines()
        return Unavailable(f"cannot reach the catalog of `{self.catalog.name}`: {text[0] if text else error}")


def open_lake(catalog: LakeCatalog, properties: Mapping[str, str] | None = None) -> Lake:
    """Return a lake in a session that this call starts; raise ConfigError or Unavailable."""
    lake = Lake(start_session(catalog, properties), catalog)
    lake.exists("decisions")
    return lake


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
