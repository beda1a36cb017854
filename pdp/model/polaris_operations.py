"""Apache Polaris's operations: the kind of target of each, and the native checks that must all permit.

The table behind `pdp.dialects.polaris` and docs/polaris.md, from Polaris's main branch after 1.7. Holds no code that
decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

POLARIS_PREFIX: Final = "polaris:"
"""Beginning of the action of an operation that no check of a catalog stands for."""
TargetKind: TypeAlias = Literal[
    "table", "view", "namespace", "container", "catalog", "root", "principal", "principal_role", "any"
]
"""Kind of the targets of an operation: `container` is a namespace or a catalog, `any` is of operations without checks.

Polaris sends tables, views and generic tables alike, so that the operation says which kind a target is.
"""


class PolarisStep(NamedTuple):
    """One check on each target, or on the server or the projects of the catalogs.

    `content`: on a target where no table has rows or columns that are hidden from the principal.
    """

    action: str
    on: Literal["target", "content", "server", "project", "destination"] = "target"


class PolarisOperation(NamedTuple):
    """Targets and checks of an operation. Without steps, it is for the administrators of `polaris.admins` alone.

    `secondary` has the types of secondary objects. With `probes`, Polaris asks for less after a denial.
    """

    target: TargetKind
    steps: tuple[PolarisStep, ...] = ()
    secondary: tuple[str, ...] = ()
    probes: bool = False


def _on(target: TargetKind, *actions: str) -> PolarisOperation:
    return PolarisOperation(target, tuple(map(PolarisStep, actions)))


def _of(on: Literal["server", "project"], target: TargetKind, action: str) -> PolarisOperation:
    return PolarisOperation(target, (PolarisStep(action, on),))


def _rename(target: TargetKind, action: str) -> PolarisOperation:
    steps = PolarisStep("rename"), PolarisStep(action, "destination")
    return PolarisOperation(target, steps, ("NAMESPACE", "TABLE_LIKE"))


def _admin(*secondary: str) -> PolarisOperation:
    return PolarisOperation("any", (), secondary)


def _each(names: str, operation: PolarisOperation) -> dict[str, PolarisOperation]:
    return dict.fromkeys(names.split(), operation)


_LOAD: Final = PolarisStep("loadCredentials")
"""A load of the native API, with its rule on hidden rows and columns."""
_WRITE: Final = PolarisStep("write_data")
_DATA_COMMIT: Final = PolarisOperation("table", (_WRITE, PolarisStep("commit")))
"""A commit that may add or remove data."""
_CREATE: Final = PolarisStep("create_table")
_NEW_DATA: Final = PolarisStep("update_properties", "content")
"""The right to the data of a table that does not exist yet, and has no name: that to change its namespace.

A registration can name the files of a known table.
"""
NEW_DATA: Final = f"{POLARIS_PREFIX}NEW_DATA"
"""Action of this check. Policies see `update_properties`."""

POLARIS_OPERATIONS: Final[Mapping[str, PolarisOperation]] = {
    "LIST_NAMESPACES": _on("container", "list_namespaces"),
    "CREATE_NAMESPACE": _on("container", "create_namespace"),
    **_each("LOAD_NAMESPACE_METADATA NAMESPACE_EXISTS", _on("namespace", "get_metadata")),
    "DROP_NAMESPACE": _on("namespace", "delete"),
    "UPDATE_NAMESPACE_PROPERTIES": _on("namespace", "update_properties"),
    "LIST_TABLES": _on("namespace", "list_tables"),
    **_each(
        "CREATE_TABLE_DIRECT CREATE_TABLE_STAGED REGISTER_TABLE UPDATE_TABLE_FOR_STAGED_CREATE",
        _on("namespace", "create_table"),
    ),
    **_each(
        "CREATE_TABLE_DIRECT_WITH_WRITE_DELEGATION CREATE_TABLE_STAGED_WITH_WRITE_DELEGATION "
        "REGISTER_TABLE_WITH_READ_DELEGATION REGISTER_TABLE_WITH_WRITE_DELEGATION",
        PolarisOperation("namespace", (_CREATE, _NEW_DATA)),
    ),
    "REGISTER_TABLE_OVERWRITE": _on("table", "drop", "commit"),
    "REGISTER_TABLE_OVERWRITE_WITH_READ_DELEGATION": _on("table", "drop", "commit", _LOAD.action),
    "REGISTER_TABLE_OVERWRITE_WITH_WRITE_DELEGATION": _on("table", "drop", "commit", _LOAD.action, "write_data"),
    **_each("LOAD_TABLE TABLE_EXISTS", _on("table", "get_metadata")),
    "LOAD_TABLE_WITH_READ_DELEGATION": PolarisOperation("table", (_LOAD,)),
    "LOAD_TABLE_WITH_WRITE_DELEGATION": PolarisOperation("table", (_LOAD, _WRITE), probes=True),
    **_each("UPDATE_TABLE COMMIT_TRANSACTION", _DATA_COMMIT),
    **_each("DROP_TABLE_WITHOUT_PURGE DROP_TABLE_WITH_PURGE", _on("table", "drop")),
    "RENAME_TABLE": _rename("table", "create_table"),
    "LIST_VIEWS": _on("namespace", "list_views"),
    **_each("CREATE_VIEW REGISTER_VIEW", _on("namespace", "create_view")),
    **_each("LOAD_VIEW VIEW_EXISTS", _on("view", "get_metadata")),
    "REPLACE_VIEW": _on("view", "commit"),
    "DROP_VIEW": _on("view", "drop"),
    "RENAME_VIEW": _rename("view", "create_view"),
    "REPORT_READ_METRICS": _on("table", "read_data"),
    "REPORT_WRITE_METRICS": PolarisOperation("table", (_WRITE,)),
    **_each(
        "ASSIGN_TABLE_UUID UPGRADE_TABLE_FORMAT_VERSION ADD_TABLE_SCHEMA SET_TABLE_CURRENT_SCHEMA "
        "ADD_TABLE_PARTITION_SPEC ADD_TABLE_SORT_ORDER SET_TABLE_DEFAULT_SORT_ORDER SET_TABLE_LOCATION "
        "SET_TABLE_PROPERTIES REMOVE_TABLE_PROPERTIES REMOVE_TABLE_PARTITION_SPECS",
        _on("table", "commit"),
    ),
    **_each(
        "ADD_TABLE_SNAPSHOT SET_TABLE_SNAPSHOT_REF REMOVE_TABLE_SNAPSHOTS REMOVE_TABLE_SNAPSHOT_REF "
        "SET_TABLE_STATISTICS REMOVE_TABLE_STATISTICS",
        _DATA_COMMIT,
    ),
    **_each("SEND_NOTIFICATIONS UPDATE_CATALOG", _on("catalog", "update_storage")),
    **_each("GET_CATALOG GET_APPLICABLE_POLICIES_ON_CATALOG", _on("catalog", "get_metadata")),
    "DELETE_CATALOG": _on("catalog", "delete"),
    "GET_APPLICABLE_POLICIES_ON_NAMESPACE": _on("namespace", "get_metadata"),
    "GET_APPLICABLE_POLICIES_ON_TABLE": _on("table", "get_metadata"),
    "LIST_CATALOGS": _of("project", "root", "list_warehouses"),
    "CREATE_CATALOG": _of("project", "root", "create_warehouse"),
    "LIST_PRINCIPALS": _of("server", "root", "list_users"),
    "CREATE_PRINCIPAL": _of("server", "root", "provision_users"),
    **_each("GET_PRINCIPAL LIST_PRINCIPAL_ROLES_ASSIGNED", _of("server", "principal", "list_users")),
    **_each(
        "UPDATE_PRINCIPAL ROTATE_CREDENTIALS RESET_CREDENTIALS",
        PolarisOperation("principal", (PolarisStep("update_users", "server"), PolarisStep("update"))),
    ),
    "DELETE_PRINCIPAL": PolarisOperation("principal", (PolarisStep("delete_users", "server"), PolarisStep("delete"))),
    "LIST_PRINCIPAL_ROLES": _of("project", "root", "list_roles"),
    "CREATE_PRINCIPAL_ROLE": _of("project", "root", "create_role"),
    **_each(
        "ASSIGN_PRINCIPAL_ROLE REVOKE_PRINCIPAL_ROLE",
        PolarisOperation("principal_role", (PolarisStep("grant_assignee"),), ("PRINCIPAL",)),
    ),
    **_each("GET_PRINCIPAL_ROLE LIST_CATALOG_ROLES_FOR_PRINCIPAL_ROLE", _on("principal_role", "read")),
    "UPDATE_PRINCIPAL_ROLE": _on("principal_role", "update"),
    "DELETE_PRINCIPAL_ROLE": _on("principal_role", "delete"),
    "LIST_ASSIGNEE_PRINCIPALS_FOR_PRINCIPAL_ROLE": _on("principal_role", "read_assignments"),
    **_each(
        "ASSIGN_CATALOG_ROLE_TO_PRINCIPAL_ROLE REVOKE_CATALOG_ROLE_FROM_PRINCIPAL_ROLE "
        "ADD_ROOT_GRANT_TO_PRINCIPAL_ROLE REVOKE_ROOT_GRANT_FROM_PRINCIPAL_ROLE",
        _admin("PRINCIPAL_ROLE"),
    ),
    **_each(
        "LIST_CATALOG_ROLES CREATE_CATALOG_ROLE GET_CATALOG_ROLE UPDATE_CATALOG_ROLE DELETE_CATALOG_ROLE "
        "LIST_ASSIGNEE_PRINCIPAL_ROLES_FOR_CATALOG_ROLE LIST_GRANTS_FOR_CATALOG_ROLE CREATE_POLICY LOAD_POLICY "
        "DROP_POLICY UPDATE_POLICY LIST_POLICY CREATE_SEMANTIC_MODEL LOAD_SEMANTIC_MODEL UPDATE_SEMANTIC_MODEL "
        "DROP_SEMANTIC_MODEL LIST_SEMANTIC_MODEL",
        _admin(),
    ),
    **_each(
        "ADD_CATALOG_GRANT_TO_CATALOG_ROLE REVOKE_CATALOG_GRANT_FROM_CATALOG_ROLE ADD_NAMESPACE_GRANT_TO_CATALOG_ROLE "
        "REVOKE_NAMESPACE_GRANT_FROM_CATALOG_ROLE ADD_TABLE_GRANT_TO_CATALOG_ROLE "
        "REVOKE_TABLE_GRANT_FROM_CATALOG_ROLE ADD_VIEW_GRANT_TO_CATALOG_ROLE REVOKE_VIEW_GRANT_FROM_CATALOG_ROLE "
        "ADD_POLICY_GRANT_TO_CATALOG_ROLE REVOKE_POLICY_GRANT_FROM_CATALOG_ROLE",
        _admin("CATALOG_ROLE"),
    ),
    **_each("ATTACH_POLICY_TO_CATALOG DETACH_POLICY_FROM_CATALOG", _admin("CATALOG")),
    **_each("ATTACH_POLICY_TO_NAMESPACE DETACH_POLICY_FROM_NAMESPACE", _admin("NAMESPACE")),
    **_each("ATTACH_POLICY_TO_TABLE DETACH_POLICY_FROM_TABLE", _admin("TABLE_LIKE")),
}
"""All operations of Polaris's authorizer."""

POLARIS_ACTIONS: Final = frozenset(
    f"{POLARIS_PREFIX}{name}" for name, operation in POLARIS_OPERATIONS.items() if not operation.steps
)
"""Actions of operations for administrators alone, which no engine judges."""
