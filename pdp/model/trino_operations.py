"""Trino's operations: the checks or the rule of each, and the names of Trino that need a rule of their own.

The table behind `pdp.trino` and docs/trino.md. Holds no code that decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from pdp.model.vocabulary import OperationStep

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
_TABLE_COMMITS = "AddColumn AlterColumn SetColumnComment SetTableComment SetTableProperties"

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
    "SetViewComment": _one("view", "commit", _UPDATED),
    "CreateTable": _create("create_table"),
    "CreateView": _create("create_view"),
    "CreateMaterializedView": _create("create_view"),
    "DropTable": _one("table", "drop", _DROP),
    "DropView": _one("view", "drop", _DROP),
    "DropMaterializedView": _one("view", "drop", _DROP),
    "RenameTable": _rename("table", "rename"),
    "RenameView": _rename("view", "rename"),
    "RenameMaterializedView": _rename("view", "rename"),
    "RefreshMaterializedView": _one("view", "commit", _UPDATED),
    "SetMaterializedViewProperties": _one("view", "commit", _UPDATED),
    "ExecuteTableProcedure": TrinoOperation((OperationStep("table", "write_data", _UPDATED),), rule="table_procedure"),
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

# --- names with a rule of their own ---------------------------------------------------------------------------------

METADATA_TABLES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("properties", "history", "metadata_log_entries", "snapshots", "refs"), "get_metadata"),
    **dict.fromkeys(("partitions", "files", "entries", "manifests"), "read_data"),
    **dict.fromkeys(("all_partitions", "all_files", "all_entries", "all_manifests"), "read_data"),
    **dict.fromkeys(("materialized_view_storage", "transactions"), "read_data"),
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
