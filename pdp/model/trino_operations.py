"""Trino's operations, its procedures and table functions: the checks or the rule of each, and who may use it.

The table behind `pdp.dialects.trino` and docs/trino.md; the procedures are those of the connectors that ship with
Trino 476. Holds no code that decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final, NamedTuple

from pdp.model.polaris_operations import POLARIS_ACTIONS
from pdp.model.vocabulary import CATALOG_ACTIONS, LAKEQL_ACTIONS, NESSIE_CHECKS, OperationStep, rule_checks

TRINO_PREFIX: Final = "trino:"


class TrinoOperation(NamedTuple):
    """Requirements of a Trino operation: `steps`, which must all be permitted, or the named `rule`."""

    steps: tuple[OperationStep, ...] = ()
    rule: str = ""
    delegated: bool = False


_CREATE = ("CATALOG_CREATE_ENTITY",)
_UPDATED = ("CATALOG_UPDATE_ENTITY",)
_DROP = ("CATALOG_DROP_ENTITY",)


def _one(on: str, action: str, also: tuple[str, ...] = ()) -> TrinoOperation:
    return TrinoOperation((OperationStep(on, action, also),))


def _create(action: str) -> TrinoOperation:
    return TrinoOperation((OperationStep("parent", action, _CREATE),), rule="creation")


def _rename(type: str, action: str) -> TrinoOperation:
    return TrinoOperation((OperationStep(type, action),), rule="rename")


_SELECT = OperationStep("given", "read_data")
_TABLE_WRITES = "InsertIntoTable DeleteFromTable UpdateTableColumns"
_TABLE_COMMITS = "AddColumn AlterColumn SetTableComment SetTableProperties"
_VIEW_COMMITS = "SetViewComment SetMaterializedViewComment SetMaterializedViewProperties"

TRINO_OPERATIONS: Final[Mapping[str, TrinoOperation]] = {
    "AccessCatalog": _one("given", "use"),
    "FilterCatalogs": _one("given", "use"),
    "CreateCatalog": TrinoOperation(rule="catalog"),
    "DropCatalog": TrinoOperation(rule="catalog"),
    "ShowSchemas": _one("given", "list_namespaces"),
    "FilterSchemas": _one("given", "include_in_list"),
    "ShowTables": _one("given", "list_tables"),
    "ShowFunctions": _one("given", "list_tables"),
    "ShowCreateSchema": _one("given", "get_metadata"),
    "CreateSchema": _one("parent", "create_namespace", _CREATE),
    "DropSchema": TrinoOperation((OperationStep("namespace", "delete", _DROP),), rule="content"),
    "RenameSchema": _rename("namespace", "move"),
    "SetSchemaAuthorization": _one("given", "change_ownership"),
    "SetTableAuthorization": _one("table", "change_ownership"),
    "SetViewAuthorization": TrinoOperation((OperationStep("view", "change_ownership"),), rule="view_owner"),
    "FilterTables": _one("given", "include_in_list"),
    "FilterColumns": _one("given", "get_metadata"),
    "ShowColumns": _one("given", "get_metadata"),
    "ShowCreateTable": _one("given", "get_metadata"),
    "SelectFromColumns": TrinoOperation((_SELECT,)),
    "CreateViewWithSelectFromColumns": TrinoOperation((_SELECT,), delegated=True),
    **{name: _one("table", "write_data", _UPDATED) for name in _TABLE_WRITES.split()},
    **{name: _one("table", "commit", _UPDATED) for name in _TABLE_COMMITS.split()},
    "TruncateTable": TrinoOperation((OperationStep("table", "write_data", _UPDATED),), rule="whole_table"),
    "DropColumn": TrinoOperation((OperationStep("table", "commit", _UPDATED),), rule="whole_table"),
    "RenameColumn": TrinoOperation((OperationStep("table", "commit", _UPDATED),), rule="whole_table"),
    "SetColumnComment": _one("table_or_view", "commit", _UPDATED),
    **{name: _one("view", "commit", _UPDATED) for name in _VIEW_COMMITS.split()},
    "CreateTable": _create("create_table"),
    "CreateView": _create("create_view"),
    "CreateMaterializedView": _create("create_view"),
    "DropTable": _one("table", "drop", _DROP),
    "DropView": _one("view", "drop", _DROP),
    "DropMaterializedView": _one("view", "drop", _DROP),
    "RenameTable": _rename("table", "rename"),
    "RenameView": _rename("view", "rename"),
    "RenameMaterializedView": _rename("view", "rename"),
    "RefreshMaterializedView": TrinoOperation((OperationStep("view", "commit", _UPDATED),), rule="refresh"),
    "ExecuteTableProcedure": TrinoOperation(
        (OperationStep("table_or_view", "write_data", _UPDATED),), rule="table_procedure"
    ),
    "ExecuteProcedure": TrinoOperation(rule="procedure"),
    "CreateFunction": TrinoOperation(
        (OperationStep("function_schema", "update_properties", _CREATE),), rule="function"
    ),
    "DropFunction": TrinoOperation((OperationStep("function_schema", "update_properties", _DROP),), rule="function"),
    "ExecuteFunction": TrinoOperation((OperationStep("function_schema", "get_metadata"),), rule="function"),
    "FilterFunctions": TrinoOperation((OperationStep("function_schema", "get_metadata"),), rule="function"),
    "ShowCreateFunction": TrinoOperation((OperationStep("function_schema", "get_metadata"),), rule="function"),
    "CreateViewWithExecuteFunction": TrinoOperation(
        (OperationStep("function_schema", "get_metadata"),), rule="function", delegated=True
    ),
    "ExecuteQuery": TrinoOperation(rule="execute_query"),
    "ReadSystemInformation": TrinoOperation(rule="execute_query"),
    "WriteSystemInformation": TrinoOperation(rule="admin"),
    "ViewQueryOwnedBy": TrinoOperation(rule="own_query"),
    "FilterViewQueryOwnedBy": TrinoOperation(rule="own_query"),
    "KillQueryOwnedBy": TrinoOperation(rule="own_query"),
    "ImpersonateUser": TrinoOperation(rule="impersonation"),
    "SetSystemSessionProperty": TrinoOperation(rule="session_property"),
    "SetCatalogSessionProperty": TrinoOperation(rule="session_property"),
    "GetRowFilters": TrinoOperation(rule="filter"),
    "GetColumnMask": TrinoOperation(rule="filter"),
}
"""All operations of Trino's OPA plugin."""

SAME_RIGHT: Final[Mapping[str, str]] = {
    "FilterCatalogs": "AccessCatalog",
    "FilterColumns": "ShowColumns",
    "FilterFunctions": "ExecuteFunction",
    "FilterViewQueryOwnedBy": "ViewQueryOwnedBy",
    "CreateViewWithSelectFromColumns": "SelectFromColumns",
    "CreateViewWithExecuteFunction": "ExecuteFunction",
}
"""Filter of a list, or use through a view -> the operation with the same right.

Other filters have a right of their own: to see a name."""
_KINDS: Final = ("Table", "View", "MaterializedView")
TAKEN_WITH: Final[Mapping[str, tuple[str, ...]]] = {
    **{f"{verb}{kind}": (f"Drop{kind}",) for verb in ("Create", "Rename") for kind in _KINDS},
    "CreateFunction": ("DropFunction",),
    "DropSchema": tuple(f"Drop{kind}" for kind in _KINDS),
    "RenameSchema": ("DropSchema", *(f"{verb}{kind}" for verb in ("Rename", "Drop") for kind in _KINDS)),
}
"""Operation -> operations with the same loss of a name, or of names in a schema: CREATE may replace."""
MADE_WITH: Final[Mapping[str, tuple[str, ...]]] = {
    **{f"Rename{kind}": (f"Create{kind}",) for kind in _KINDS},
    "RenameSchema": ("CreateSchema", *(f"{verb}{kind}" for verb in ("Rename", "Create") for kind in _KINDS)),
}
"""Rename -> operations with the same gain of the new name, or of names in the new schema."""

OBJECT_KEYS: Final = ("catalog", "schema", "table")
"""Keys of `arguments` in questions about catalogs without a warehouse, and what is in them."""
_SHOWS: Final = {"ShowSchemas": 1, "ShowTables": 2, "ShowFunctions": 2}
"""Operation that lists what is in the named object -> the number of its keys."""
_RULE_ARGUMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("execute_query", "admin", "filter"), ()),
    **dict.fromkeys(("own_query", "impersonation"), ("user",)),
    **dict.fromkeys(("function", "procedure"), ("catalog", "function")),
    "session_property": ("property",),
    "catalog": ("catalog",),
}
"""Rule of an operation -> the keys of `arguments` in forbids. Operations with other rules are on objects."""


def operation_of(op: str) -> TrinoOperation | None:
    """Return the operation that an op of rules names; None for another op."""
    return TRINO_OPERATIONS.get(op.removeprefix(TRINO_PREFIX)) if op.startswith(TRINO_PREFIX) else None


def is_asked_mapped(op: str) -> bool:
    """Tell whether forbids see an op of Trino also for a catalog with a warehouse behind: of functions, by name.

    Only functions of Trino itself are asked so there, and nobody may change these.
    """
    operation = operation_of(op)
    if operation is None:
        return False
    uses = operation.rule == "function" and operation.steps[0].action == "get_metadata"
    return uses or operation.rule == "procedure"


def argument_keys(op: str) -> frozenset[str]:
    """Return the keys that `arguments` may have where rules see an op."""
    if operation := operation_of(op):
        return frozenset(_RULE_ARGUMENTS.get(operation.rule, OBJECT_KEYS))
    return frozenset({"name", "project"}) if op.startswith("catalog:") else frozenset()


@cache
def object_keys(op: str) -> tuple[str, ...]:
    """Return the keys of `arguments` that an operation on a catalog, schema or table takes; none for another op."""
    if operation_of(op) is None or not argument_keys(op) or not argument_keys(op).issubset(OBJECT_KEYS):
        return ()
    name = op.removeprefix(TRINO_PREFIX)
    count = 1 if "Catalog" in name else 2 if "Schema" in name else 3
    return OBJECT_KEYS[: _SHOWS.get(name, count)]


CLUSTER_ACTIONS: Final = frozenset(
    {f"{TRINO_PREFIX}{name}" for name in TRINO_OPERATIONS} | LAKEQL_ACTIONS | POLARIS_ACTIONS
)
"""Actions on a cluster or a server."""
_ASKED: Final = frozenset((type, action) for type, actions in CATALOG_ACTIONS.items() for action in actions)
RULE_OPS: Final = NESSIE_CHECKS | CLUSTER_ACTIONS | {check.op for asked in _ASKED for check in rule_checks(*asked)}
"""Values of `op` in forbids."""
RULE_ACTIONS: Final = frozenset({action for _, action in _ASKED} | NESSIE_CHECKS | CLUSTER_ACTIONS)
"""Values of `action` in forbids."""

# --- names with a rule of their own ---------------------------------------------------------------------------------

VIEW_STORAGE: Final = "materialized_view_storage"
"""Suffix of the table that keeps the rows of a materialized view."""
METADATA_TABLES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("properties", "history", "metadata_log_entries", "snapshots", "refs"), "get_metadata"),
    **dict.fromkeys(("partitions", "files", "entries", "manifests"), "read_data"),
    **dict.fromkeys(("all_partitions", "all_files", "all_entries", "all_manifests"), "read_data"),
    **dict.fromkeys((VIEW_STORAGE, "transactions"), "read_data"),
    "timeline": "get_metadata",
}
"""Suffix of `t$suffix` -> the action that a SELECT needs on t. Metadata tables with values need `read_data`."""

PLACE_PROPERTIES: Final = frozenset({"external_location", "avro_schema_url"})
"""Properties of a new table that name files outside of the table: the table then shows the files of others."""

SYSTEM_TABLES: Final[Mapping[str, frozenset[str]]] = {
    "information_schema": frozenset({"columns", "schemata", "tables", "views"}),
    "schema_discovery": frozenset({"discovery", "shallow_discovery"}),
    "system": frozenset({"iceberg_tables"}),
}
"""System schema in a mapped catalog -> the tables that `get_config` on the warehouse permits."""

SYSTEM_CATALOG: Final[Mapping[str, frozenset[str] | None]] = {
    "jdbc": None,
    "metadata": frozenset(
        {
            "analyze_properties",
            "catalogs",
            "column_properties",
            "materialized_views",
            "schema_properties",
            "table_comments",
            "table_properties",
        }
    ),
    "information_schema": frozenset({"columns", "schemata", "tables", "views"}),
    "runtime": frozenset({"queries"}),
}
"""Schema of Trino's `system` catalog -> the tables that every user may read; None means all tables."""

SYSTEM_READS: Final = frozenset(
    {
        "AccessCatalog",
        "FilterCatalogs",
        "ShowSchemas",
        "FilterSchemas",
        "ShowTables",
        "FilterTables",
        "ShowColumns",
        "FilterColumns",
        "SelectFromColumns",
        "CreateViewWithSelectFromColumns",
        "ShowCreateTable",
    }
)
"""Operations on system schemas and the system catalog. All others are denied there."""


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
