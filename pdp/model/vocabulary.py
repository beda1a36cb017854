"""Vocabulary of actions: catalog action <-> Nessie check type <-> Trino operation.

Owns the names and their mappings. Must not know engines, configuration, or the decisions on a mapping. The grants
engine has its own table of the relations behind catalog actions; a test compares the two tables.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

TABULAR_TYPES: Final = ("table", "view", "generic_table", "dataset")
_STRONGEST_FIRST = (
    "operator admin project_admin security_admin data_admin ownership manage_grants modify create select describe "
    "manage_tags manage_refs pass_grants role_creator tag_creator apply assignee"
)
PRIVILEGES: Final = tuple(_STRONGEST_FIRST.split())
"""All privileges, strongest first. Of several privileges on one object, `by` names the strongest."""

# --- Nessie check types -------------------------------------------------------------------------------------------

REFERENCE_CHECKS: Final = frozenset(
    {
        "VIEW_REFERENCE",
        "CREATE_REFERENCE",
        "ASSIGN_REFERENCE_TO_HASH",
        "DELETE_REFERENCE",
        "READ_ENTRIES",
        "LIST_COMMIT_LOG",
        "COMMIT_CHANGE_AGAINST_REFERENCE",
    }
)
CONTENT_CHECKS: Final = frozenset(
    {"READ_CONTENT_KEY", "READ_ENTITY_VALUE", "CREATE_ENTITY", "UPDATE_ENTITY", "DELETE_ENTITY"}
)
CONFIG_CHECKS: Final = frozenset({"READ_REPOSITORY_CONFIG", "UPDATE_REPOSITORY_CONFIG"})
NESSIE_CHECKS: Final = REFERENCE_CHECKS | CONTENT_CHECKS | CONFIG_CHECKS
"""All 14 check types of Nessie's BatchAccessChecker."""

NESSIE_TARGETS: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(REFERENCE_CHECKS, frozenset({"reference"})),
    **dict.fromkeys(CONTENT_CHECKS, frozenset({"content", "namespace", *TABULAR_TYPES})),
    **dict.fromkeys(CONFIG_CHECKS, frozenset({"repository_config"})),
}
"""Check type -> the concrete resource types of the check."""

_CATALOG_OPS = "CREATE_ENTITY UPDATE_ENTITY DROP_ENTITY RENAME_ENTITY_FROM RENAME_ENTITY_TO REGISTER_ENTITY "
_CATALOG_OPS += "UPDATE_MULTIPLE S3_SIGN"
_META_OPS = "ADD_VIEW_VERSION SET_CURRENT_VIEW_VERSION SET_STATISTICS REMOVE_STATISTICS SET_PARTITION_STATISTICS "
_META_OPS += "REMOVE_PARTITION_STATISTICS ASSIGN_UUID ADD_SCHEMA REMOVE_SCHEMAS SET_CURRENT_SCHEMA ADD_PARTITION_SPEC "
_META_OPS += (
    "SET_DEFAULT_PARTITION_SPEC ADD_SNAPSHOT ADD_SORT_ORDER SET_DEFAULT_SORT_ORDER SET_LOCATION SET_PROPERTIES "
)
_META_OPS += "REMOVE_PROPERTIES REMOVE_LOCATION_PROPERTY SET_SNAPSHOT_REF REMOVE_SNAPSHOT_REF UPGRADE_FORMAT_VERSION"
_SNAP_OPS = "ADD_DATA_FILES DELETE_DATA_FILES ADD_DELETE_FILES ADD_EQUALITY_DELETE_FILES ADD_POSITION_DELETE_FILES "
_SNAP_OPS += (
    "REMOVE_DELETE_FILES REMOVE_EQUALITY_DELETE_FILES REMOVE_POSITION_DELETE_FILES ADDED_RECORDS DELETED_RECORDS "
)
_SNAP_OPS += "ADDED_POSITION_DELETES DELETED_POSITION_DELETES ADDED_EQUALITY_DELETES DELETED_EQUALITY_DELETES "
_SNAP_OPS += "REPLACE_PARTITIONS OP_APPEND OP_REPLACE OP_OVERWRITE OP_DELETE"
OPERATIONS: Final = frozenset(
    f"{kind}_{name}"
    for kind, names in (("CATALOG", _CATALOG_OPS), ("META", _META_OPS), ("SNAP", _SNAP_OPS))
    for name in names.split()
)
"""Words of `actions`: names of Nessie's CatalogOps."""


# --- catalog actions, per object type -----------------------------------------------------------------------------

_LISTS: Final = "list_namespaces list_tables list_views list_generic_tables list_datasets"
"""Actions that READ_ENTRIES decides. Not list_everything: READ_ENTRIES shows only the names of readable keys."""
_GRANTS = "grant_describe grant_select grant_modify grant_pass_grants grant_manage_grants grant_manage_tags"
_REVOKES = "revoke_describe revoke_select revoke_modify"
_CONTAINER = (
    f"list_everything include_in_list get_metadata list_namespaces create_namespace delete set_protection manage_tags "
    f"accept_moved_namespace read_subtree_assignments revoke_subtree_assignments {_GRANTS} grant_create "
    f"grant_manage_refs {_REVOKES} revoke_create change_ownership set_managed_access read_assignments"
)
_TABULAR = (
    f"get_metadata include_in_list get_tasks drop undrop rename set_protection control_tasks manage_tags move "
    f"{_GRANTS} {_REVOKES} change_ownership read_assignments"
)
_ACTIONS: Final[Mapping[str, str]] = {
    "server": "create_project list_all_projects list_users provision_users update_users delete_users read_assignments "
    "grant_admin grant_operator",
    "project": "get_metadata list_warehouses include_in_list list_roles search_roles list_tags get_task_queue_config "
    "get_endpoint_statistics create_warehouse delete rename modify_task_queue_config create_role create_tag "
    "get_project_tasks control_project_tasks read_assignments grant_role_creator grant_tag_creator grant_create "
    "grant_describe grant_modify grant_select grant_security_admin grant_data_admin grant_project_admin",
    "warehouse": f"{_CONTAINER} get_config use list_deleted_tabulars get_task_queue_config get_endpoint_statistics "
    "get_all_tasks update_storage update_storage_credential set_format_version_policy deactivate activate rename "
    "modify_soft_deletion control_all_tasks modify_task_queue_config",
    "namespace": f"{_CONTAINER} list_tables list_views list_generic_tables list_datasets create_table create_view "
    "create_generic_table create_dataset update_properties move accept_moved_tabular",
    "table": f"{_TABULAR} read_data write_data commit",
    "view": f"{_TABULAR} select commit",
    "generic_table": f"{_TABULAR} read_data write_data",
    "dataset": f"{_TABULAR} read_data commit promote update_settings manage_refs reset expire_snapshots "
    "restore_snapshots update_retention revoke_access_grants grant_manage_refs",
    "role": "assume grant_assignee change_ownership delete update update_source_system read read_assignments "
    "read_metadata",
    "tag": "apply read update delete grant_apply change_ownership read_assignments read_attachments",
    "user": "read update delete read_role_assignments",
}
CATALOG_ACTIONS: Final[Mapping[str, frozenset[str]]] = {
    type: frozenset(actions.split()) for type, actions in _ACTIONS.items()
}
"""Object type -> its catalog actions: the relations of Lakekeeper's model v4.14 without `can_`."""

DATA_ACTIONS: Final = frozenset({"read_data", "write_data", "select"})
"""Catalog actions of the data plane, which read or write rows. All others belong to the control plane."""

_CHANGES: Final = "promote update_settings manage_refs reset expire_snapshots restore_snapshots update_retention"
DATASET_CHANGES: Final = tuple(_CHANGES.split())
"""Actions that change the history or the settings of a dataset."""
USER_RIGHTS: Final = {
    "delete": "delete_users",
    "update": "update_users",
    **dict.fromkeys(("read", "read_role_assignments"), "list_users"),
}
"""Action on a user -> the right of the server to all users."""

ROW_ACTIONS: Final = DATA_ACTIONS | {"READ_ENTITY_VALUE", "UPDATE_ENTITY"}
"""Rights to rows, under the names of catalogs and of Nessie."""

_READ_GRANTS = {"read_grants": "read_assignments"}
ALIASES: Final[Mapping[str, Mapping[str, str]]] = {
    **{type: _READ_GRANTS for type in CATALOG_ACTIONS if type != "user"},
    "role": _READ_GRANTS | {"manage_role_assignments": "grant_assignee", "read_role_assignments": "read_assignments"},
    "tag": _READ_GRANTS | {"remove": "apply"},
}
"""Object type -> Lakekeeper API name -> catalog action, if the names differ."""

TABLE_OR_VIEW: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    **{
        action: tuple((type, action) for type in ("table", "view") if action in CATALOG_ACTIONS[type])
        for action in sorted(CATALOG_ACTIONS["table"] | CATALOG_ACTIONS["view"])
    },
    "read_data": (("table", "read_data"), ("view", "select")),
    "select": (("table", "read_data"), ("view", "select")),
    **{check: (("table", check), ("view", check)) for check in sorted(CONTENT_CHECKS)},
}
"""Action on `table_or_view` -> the concrete (type, action) pairs. A permit for one pair suffices."""

# --- catalog action -> what a CEL rule set is asked ---------------------------------------------------------------


class NessieCheck(NamedTuple):
    """Question to a rule set. `path` names the path that rules see: none, self, new (argument name) or destination.

    `action` is the value of that variable, if not the asked action. `kind` is the only type of content that the check
    is about; empty for every type.
    """

    op: str
    path: str = "none"
    content_type: str = ""
    actions: tuple[str, ...] = ()
    action: str = ""
    kind: str = ""

    @property
    def creates(self) -> bool:
        """Tell whether the check is about a new object, with the `content_type` of the object."""
        return self.path == "new" or self.action in _CREATES


CONTENT_TYPE: Final[Mapping[str, str]] = {
    "table": "ICEBERG_TABLE",
    "view": "ICEBERG_VIEW",
    "namespace": "NAMESPACE",
}
"""Concrete type -> Nessie's contentType if the caller gives none. Other types have an empty contentType."""

_VIEW = NessieCheck("VIEW_REFERENCE")
_COMMIT = NessieCheck("COMMIT_CHANGE_AGAINST_REFERENCE")
_KEY = NessieCheck("READ_CONTENT_KEY", "self")
_READ = NessieCheck("READ_ENTITY_VALUE", "self")
_UPDATE = NessieCheck("UPDATE_ENTITY", "self")
_CREATES: Final[Mapping[str, str]] = {
    "create_table": "table",
    "create_view": "view",
    "create_generic_table": "generic_table",
    "create_dataset": "dataset",
    "create_namespace": "namespace",
}
CREATE_ACTION: Final[Mapping[str, str]] = {type: action for action, type in _CREATES.items()}
"""Type -> the action on a container that creates an object of the type."""
RENAMES: Final = frozenset({"rename", "move"})
"""Actions that need a right at both ends if the destination is known."""


def _cel_table() -> dict[tuple[str, str], tuple[NessieCheck, ...]]:
    table: dict[tuple[str, str], tuple[NessieCheck, ...]] = {}

    def put(types: tuple[str, ...], actions: str, *checks: NessieCheck) -> None:
        table.update({(type, action): checks for type in types for action in actions.split()})

    content = ("namespace", *TABULAR_TYPES)
    put(("warehouse",), "use get_config get_metadata include_in_list", _VIEW)
    put(("warehouse", "namespace"), _LISTS, _VIEW, NessieCheck("READ_ENTRIES"))
    put(content, "include_in_list", _VIEW, _KEY)
    put(content, "get_metadata", _VIEW, _READ)
    put(("table", "generic_table", "dataset"), "read_data", _VIEW, _READ)
    put(("view",), "select", _VIEW, _READ)
    put(("table", "generic_table"), "write_data", _VIEW, _COMMIT, _READ, _UPDATE)
    put(("table", "view", "dataset"), "commit", _VIEW, _COMMIT, _UPDATE)
    put(("namespace",), "update_properties", _VIEW, _COMMIT, _UPDATE)
    put(content, "set_protection", _VIEW, _COMMIT, _UPDATE)
    for action, created in _CREATES.items():
        create = NessieCheck("CREATE_ENTITY", "new", CONTENT_TYPE.get(created, ""))
        put(("warehouse", "namespace"), action, _VIEW, _COMMIT, create)
    put(TABULAR_TYPES, "drop", _VIEW, _COMMIT, NessieCheck("DELETE_ENTITY", "self"))
    put(("namespace",), "delete", _VIEW, _COMMIT, NessieCheck("DELETE_ENTITY", "self"))
    put(TABULAR_TYPES, "undrop", _VIEW, _COMMIT, NessieCheck("CREATE_ENTITY", "self"))
    source = NessieCheck("DELETE_ENTITY", "self", actions=("CATALOG_RENAME_ENTITY_FROM",))
    target = NessieCheck("CREATE_ENTITY", "destination", actions=("CATALOG_RENAME_ENTITY_TO",))
    put(TABULAR_TYPES, "rename move", _VIEW, _COMMIT, source, target)
    put(("namespace",), "move", _VIEW, _COMMIT, source, target)
    for check, types in NESSIE_TARGETS.items():
        path = "self" if check in CONTENT_CHECKS else "none"
        put(tuple(sorted(types)), check, NessieCheck(check, path))
    return table


CEL_CHECKS: Final[Mapping[tuple[str, str], tuple[NessieCheck, ...]]] = _cel_table()
"""(concrete type, action) -> the checks that a rule set must all permit. A raw Nessie check type is its own check."""


def _arguments_table() -> dict[tuple[str, str], str]:
    created = (("server", "create_project"), *(("project", f"create_{type}") for type in ("warehouse", "role", "tag")))
    table = dict.fromkeys(created, "name")
    for key, checks in CEL_CHECKS.items():
        for check in checks:
            if check.path in ("new", "destination"):
                table[key] = "name" if check.path == "new" else "destination"
    return table | dict.fromkeys((("table_or_view", action) for action in RENAMES), "destination")


ARGUMENTS: Final[Mapping[tuple[str, str], str]] = _arguments_table()
"""(type, action) -> the argument that names what the action makes or moves: `name` or `destination`."""
NAMING_ACTIONS: Final = frozenset(action for _, action in ARGUMENTS)
"""Actions that take such an argument on any type."""

VIEW_ONLY: Final = frozenset(key for key, checks in CEL_CHECKS.items() if key[0] == "warehouse" and checks == (_VIEW,))
"""(warehouse, action) pairs with VIEW_REFERENCE as the only check. Under the implicit rule READ_ENTRIES is another."""

LAKEQL_ACTIONS: Final = frozenset({"lakeql_authorized", "lakeql_public", "lakeql_empty"})
"""Questions of a LakeQL server that name no table."""
CLUSTER_PREFIXES: Final = ("trino:", "polaris:", "lakeql_")
"""Beginnings of actions on a cluster or a server, which no engine judges: only forbids are asked."""
_PATH_TYPES: Final = frozenset({*CONTENT_TYPE, "generic_table", "dataset"})


def is_cluster_action(action: str) -> bool:
    """Tell whether the configuration decides an action that no engine knows."""
    return action.startswith(CLUSTER_PREFIXES)


def rule_checks(type: str, action: str) -> tuple[NessieCheck, ...]:
    """Return the checks of an action: those of CEL_CHECKS, else one with an op of the action's name, for forbids.

    The op of an action on a cluster is the action itself. Any other has the prefix `catalog:`.
    """
    checks = CEL_CHECKS.get((type, action))
    if checks is not None:
        return checks
    if is_cluster_action(action):
        return (NessieCheck(action),)
    return (NessieCheck(f"catalog:{action}", "self" if type in _PATH_TYPES else "none"),)


_WORDS: Final = {
    "CREATE_ENTITY": "CATALOG_CREATE_ENTITY",
    "UPDATE_ENTITY": "CATALOG_UPDATE_ENTITY",
    "DELETE_ENTITY": "CATALOG_DROP_ENTITY",
}
"""Check -> the word of `actions` that the check implies, unless it is an end of a rename."""
_ENDS: Final = {"DELETE_ENTITY": "CATALOG_RENAME_ENTITY_FROM", "CREATE_ENTITY": "CATALOG_RENAME_ENTITY_TO"}
"""Check -> the word of `actions` that marks an end of a rename."""
RENAME_ENDS: Final = frozenset(_ENDS.values())
"""Words of `actions` that mark the ends of a rename."""
_DETAILS: Final = ("META_", "SNAP_")
"""Beginnings of the words of `actions` that tell what an update changes."""
_NOT_IN_NESSIE: Final = frozenset({"set_protection", "undrop"})
"""Catalog actions that no content check of Nessie carries out."""


def _kin_table() -> dict[tuple[str, str], tuple[str, ...]]:
    kin: dict[tuple[str, str], set[str]] = {}
    for (type, action), checks in CEL_CHECKS.items():
        op = checks[-1].op
        if op in CONTENT_CHECKS and action not in {op, *_NOT_IN_NESSIE, *RENAMES}:
            kin.setdefault((_CREATES.get(action, type), op), set()).add(action)
    return {key: tuple(sorted(actions)) for key, actions in kin.items()}


KIN: Final[Mapping[tuple[str, str], tuple[str, ...]]] = _kin_table()
"""(concrete type, content check of Nessie) -> the catalog actions that do the same to such an object."""


def kin_of(type: str, action: str, sent: Collection[str] = ()) -> tuple[str, ...]:
    """Return the catalog actions behind a raw content check. `sent` are the words of `actions`."""
    is_end = _ENDS.get(action) in sent
    renames = [name for name in sorted(RENAMES) if is_end and (type, name) in CEL_CHECKS]
    return (*KIN.get((type, action), ()), *renames)


def forbid_checks(type: str, action: str, sent: Collection[str], reads: Collection[str]) -> tuple[NessieCheck, ...]:
    """Return the checks of an action for forbids, which read the variables of `reads`. `sent` are the given `actions`.

    A forbid also sees the words of `actions` implied by the action, and each catalog action behind a raw content
    check.
    """
    asked = rule_checks(type, action)
    found = [*asked, *(_with_words(asked, sent) if "actions" in reads else ())]
    if "action" in reads and action in CONTENT_CHECKS:
        kinds = CONTENT_TYPE if type == "content" else (type,)
        found += [
            _as_kin(check, kin, sent, kind if type == "content" else "")
            for check in asked
            for kind in kinds
            for kin in kin_of(kind, action, sent)
        ]
    return tuple(found)


def content_kind(content_type: str) -> str:
    """Return the type of an object of a content type. All types but views and namespaces count as tables."""
    return next((type for type, known in CONTENT_TYPE.items() if known == content_type), "table")


def lacks_details(type: str, action: str, sent: Collection[str]) -> bool:
    """Tell whether an action updates an object, without words of `actions` about the change."""
    updates = any(check.op == "UPDATE_ENTITY" for check in CEL_CHECKS.get((type, action), ()))
    return updates and not any(map(is_detail, sent))


def is_detail(word: str) -> bool:
    """Tell whether a word of `actions` is about the change of an update."""
    return word.startswith(_DETAILS)


def _as_kin(check: NessieCheck, kin: str, sent: Collection[str], kind: str) -> NessieCheck:
    """Return a raw check as the catalog action asks it."""
    content_type = CONTENT_TYPE.get(_CREATES.get(kin, ""), "")
    return check._replace(action=kin, actions=_word(check.op, sent), kind=kind, content_type=content_type)


def _with_words(asked: tuple[NessieCheck, ...], sent: Collection[str]) -> list[NessieCheck]:
    """Return checks with the words implied by the action; none if the sender names the operation."""
    words = [word for check in asked for word in check.actions or _word(check.op, sent)]
    implied = tuple(dict.fromkeys(words))
    return [check._replace(actions=implied) for check in asked if not check.actions] if implied else []


def _word(op: str, sent: Collection[str]) -> tuple[str, ...]:
    """Return the word of `actions` implied by a check; none if `sent` names the operation, such as a rename."""
    return (_WORDS[op],) if op in _WORDS and not any(word.startswith("CATALOG_") for word in sent) else ()


# --- loads and changes of views -----------------------------------------------------------------------------------


class OperationStep(NamedTuple):
    """Check of an operation on a mapped catalog.

    `on` is given (the named resource), table, view, table_or_view (what a name may be), namespace, parent (with the
    name as argument) or function_schema.
    `also` is added to the `actions` that rules see. A rename also needs the right at the other end.
    """

    on: str
    action: str
    also: tuple[str, ...] = ()


_CREATE = ("CATALOG_CREATE_ENTITY",)
_UPDATED = ("CATALOG_UPDATE_ENTITY",)


LOADS: Final[Mapping[str, frozenset[str]]] = {
    "loadTable": frozenset({"table", "generic_table"}),
    "loadView": frozenset({"view"}),
    "loadCredentials": frozenset({"table", "generic_table"}),
}
"""Load action of a catalog -> the types of the loaded object."""

VIEW_CHANGES: Final[Mapping[str, tuple[str, OperationStep]]] = {
    "create": ("createView", OperationStep("parent", "create_view", _CREATE)),
    "commit": ("commitView", OperationStep("view", "commit", _UPDATED)),
    "replace": ("replaceView", OperationStep("view", "commit", _UPDATED)),
}
"""Operation that changes a view -> the name of the action, and the needed right."""
