"""Procedures and table functions of the connectors that ship with Trino 476, and who may use each.

The table behind the decisions on procedures and behind docs/trino.md. Holds no code that decides.
"""

from __future__ import annotations

from typing import Final, NamedTuple

TABLE_PROCEDURE: Final = "table procedure"
PROCEDURE: Final = "procedure"
TABLE_FUNCTION: Final = "table function"


class TrinoProcedure(NamedTuple):
    """Procedure or table function, with its effect. `maintains`: it reads and writes its own table alone."""

    kind: str
    name: str
    connectors: str
    effect: str
    maintains: bool = False


_JDBC: Final = "PostgreSQL, MySQL and other JDBC connectors"

TRINO_PROCEDURES: Final = (
    TrinoProcedure(TABLE_PROCEDURE, "OPTIMIZE", "Iceberg, Delta Lake, Hive", "rewrites the table's files", True),
    TrinoProcedure(TABLE_PROCEDURE, "OPTIMIZE_MANIFESTS", "Iceberg", "rewrites the table's manifests", True),
    TrinoProcedure(TABLE_PROCEDURE, "EXPIRE_SNAPSHOTS", "Iceberg", "deletes old snapshots", True),
    TrinoProcedure(TABLE_PROCEDURE, "DROP_EXTENDED_STATS", "Iceberg", "deletes statistics", True),
    TrinoProcedure(
        TABLE_PROCEDURE, "REMOVE_ORPHAN_FILES", "Iceberg", "deletes unused files below the table's location", True
    ),
    TrinoProcedure(TABLE_PROCEDURE, "ROLLBACK_TO_SNAPSHOT", "Iceberg", "brings back rows that were deleted"),
    TrinoProcedure(TABLE_PROCEDURE, "ADD_FILES", "Iceberg", "reads any files that Trino can read, by location"),
    TrinoProcedure(TABLE_PROCEDURE, "ADD_FILES_FROM_TABLE", "Iceberg", "reads the files of any Hive table, by name"),
    TrinoProcedure(PROCEDURE, "register_table", "Iceberg, Delta Lake", "makes a table of any files, by location"),
    TrinoProcedure(PROCEDURE, "unregister_table", "Iceberg, Delta Lake", "drops any table, by name"),
    TrinoProcedure(PROCEDURE, "migrate", "Iceberg", "turns any Hive table into an Iceberg table, by name"),
    TrinoProcedure(PROCEDURE, "rollback_to_snapshot", "Iceberg", "brings back rows of any table, by name"),
    TrinoProcedure(PROCEDURE, "vacuum", "Delta Lake", "deletes old files of any table, by name"),
    TrinoProcedure(PROCEDURE, "drop_extended_stats", "Delta Lake", "deletes statistics of any table, by name"),
    TrinoProcedure(PROCEDURE, "register_partition", "Hive", "makes a partition of any files, by location"),
    TrinoProcedure(PROCEDURE, "unregister_partition", "Hive", "removes a partition of any table, by name"),
    TrinoProcedure(PROCEDURE, "create_empty_partition", "Hive", "adds a partition to any table, by name"),
    TrinoProcedure(PROCEDURE, "sync_partition_metadata", "Hive", "adds and removes partitions of any table, by name"),
    TrinoProcedure(PROCEDURE, "drop_stats", "Hive", "deletes statistics of any table, by name"),
    TrinoProcedure(PROCEDURE, "flush_metadata_cache", f"Hive, Delta Lake, {_JDBC}", "empties a cache"),
    TrinoProcedure(PROCEDURE, "execute", f"BigQuery, {_JDBC}", "runs any statement as Trino's own user"),
    TrinoProcedure(PROCEDURE, "add_range_partition", "Kudu", "adds a partition to any table, by name"),
    TrinoProcedure(PROCEDURE, "drop_range_partition", "Kudu", "deletes rows of any table, by name"),
    TrinoProcedure(PROCEDURE, "kill_query", "Trino's catalog `system`", "ends a query of any user"),
    TrinoProcedure(TABLE_FUNCTION, "table_changes", "Iceberg, Delta Lake", "reads changed rows of any table, by name"),
    TrinoProcedure(
        TABLE_FUNCTION, "query", f"BigQuery, Cassandra, MongoDB, {_JDBC}", "runs any query as Trino's own user"
    ),
    TrinoProcedure(TABLE_FUNCTION, "procedure", "SQL Server", "runs any stored procedure as Trino's own user"),
    TrinoProcedure(TABLE_FUNCTION, "raw_query", "Elasticsearch, OpenSearch", "reads any index as Trino's own user"),
    TrinoProcedure(TABLE_FUNCTION, "query_range", "Loki", "reads any log as Trino's own user"),
    TrinoProcedure(TABLE_FUNCTION, "sheet", "Google Sheets", "reads any sheet, by id"),
    TrinoProcedure(TABLE_FUNCTION, "exclude_columns", "Trino's catalog `system`", "leaves out columns of its argument"),
    TrinoProcedure(TABLE_FUNCTION, "sequence", "Trino's catalog `system`", "makes numbers"),
)
"""All procedures and table functions. Connectors without any: Hudi, Kafka, memory, TPC-H and others."""

MAINTENANCE: Final = frozenset(
    procedure.name for procedure in TRINO_PROCEDURES if procedure.kind == TABLE_PROCEDURE and procedure.maintains
)
"""Table procedures for which the right to write suffices. All others need the configuration, too."""
