"""Lake at one state: every table is read at the snapshot that its first reader found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pdp.pipeline.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class PinnedLake(Lake):
    """Lake whose tables stay as they are, whatever an ingest or a compaction commits meanwhile.

    Several readings of a table then agree, and the places of rows within files are true for all of them.
    """

    def __init__(self, lake: Lake) -> None:
        super().__init__(lake.spark, lake.catalog)
        self._snapshots: dict[str, int | None] = {}

    def table(self, table: str) -> DataFrame:
        """Return the rows of a table; raise InvalidArgument if the lake does not have the table."""
        current = super().table(table)
        if table not in self._snapshots:
            refs = self.spark.sql(f"SELECT snapshot_id FROM {self.name(table)}.refs WHERE name = 'main'").collect()  # noqa: S608  a name of the catalog
            self._snapshots[table] = refs[0][0] if refs else None
        snapshot = self._snapshots[table]
        if snapshot is None:
            return current
        return self.spark.read.option("versionAsOf", str(snapshot)).table(self.name(table))


def pinned(lake: Lake) -> PinnedLake:
    """Return a lake at its present state; a pinned lake stays the same."""
    return lake if isinstance(lake, PinnedLake) else PinnedLake(lake)
