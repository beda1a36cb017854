"""Lakekeeper's authorization model v4.14 as a single table: object types, stored privileges, relations, actions.

Has every rule of the grants engine; must not know how rules are evaluated, or the place of grants.

Source: `authz/openfga/v4.14/schema.json` of https://github.com/lakekeeper/lakekeeper, described at
https://docs.lakekeeper.io/docs/latest/authorization-openfga/. `tests/recorded/lakekeeper` has decisions of OpenFGA with
the original.

Notation, with OpenFGA's words (https://openfga.dev/docs/configuration-language) in brackets:
- `+`: a stored grant of the relation on the object (direct relationship)
- bare name: another relation on the same object (computed userset)
- `up.x`: relation x on the parent (tuple to userset, `x from parent`)
- `down.x`: relation x on any object below (tuple to userset, `x from child`)
- `|`, `&`, `-`: or, and, but not (union, intersection, difference)

Bare names without a rule are circumstances: `managed_access` is the flag on the object, `self` means that the object is
the principal, `authenticated` that the principal is not anonymous.

Deviation: Lakekeeper's managed access does not bind a principal of type role; here managed access binds everybody.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

CIRCUMSTANCES: Final = ("self", "authenticated", "managed_access")


class ObjectType(NamedTuple):
    """Rules of an object type. `stored` lists the privileges for grants; `actions` groups action names by rule."""

    stored: str
    relations: Mapping[str, str]
    actions: Mapping[str, str]


_CONTAINER_STORED = "ownership pass_grants manage_grants manage_tags manage_refs describe select create modify"
_TABULAR_STORED = "ownership pass_grants manage_grants manage_tags describe select modify"

_INHERITED = {
    "ownership": "+",
    "pass_grants": "+",
    "manage_grants": "+ | (ownership - up.managed) | up.manage_grants",
    "manage_tags": "+ | up.manage_tags",
    "modify": "+ | ownership | up.modify",
    "select": "+ | ownership | modify | up.select",
}
_TABULAR_RELATIONS = _INHERITED | {"describe": "+ | ownership | select | up.describe"}

_MAY_GRANT = {
    "grant_describe": "manage_grants | (describe & pass_grants)",
    "grant_select": "manage_grants | (select & pass_grants)",
    "grant_modify": "manage_grants | (modify & pass_grants)",
    "grant_pass_grants grant_manage_grants grant_manage_tags change_ownership": "manage_grants",
    "revoke_describe revoke_select revoke_modify": "manage_grants",
    "read_assignments": "manage_grants | (describe & pass_grants)",
}
_MAY_GRANT_ON_CONTAINER = _MAY_GRANT | {
    "grant_create": "manage_grants | (create & pass_grants)",
    "grant_manage_refs set_managed_access revoke_create": "manage_grants",
    "read_subtree_assignments revoke_subtree_assignments": "manage_grants",
}
_TABULAR_ACTIONS = _MAY_GRANT | {
    "get_metadata include_in_list get_tasks": "describe",
    "drop undrop rename set_protection control_tasks": "modify",
    "manage_tags": "manage_tags",
    "move": "manage_grants & modify",
}
_READ = {"read_data": "select"}
_WRITE = {"write_data": "modify"}
_COMMIT = {"commit": "modify"}

MODEL: Final[Mapping[str, ObjectType]] = {
    "server": ObjectType(
        stored="admin operator",
        relations={"admin": "+", "operator": "+"},
        actions={
            "create_project list_all_projects list_users provision_users update_users delete_users": "admin | operator",
            "read_assignments grant_admin grant_operator": "admin | operator",
        },
    ),
    "project": ObjectType(
        stored="project_admin security_admin data_admin role_creator tag_creator describe select create modify",
        relations={
            "project_admin": "+ | up.operator",
            "security_admin": "+ | project_admin",
            "data_admin": "+ | project_admin",
            "role_creator": "+ | security_admin",
            "tag_creator": "+ | security_admin",
            "modify": "+ | project_admin",
            "create": "+ | data_admin",
            "select": "+ | modify",
            "describe": "+ | select | create | data_admin | security_admin",
        },
        actions={
            "get_metadata list_warehouses include_in_list list_roles search_roles list_tags get_task_queue_config": (
                "describe | down.get_metadata | up.admin"
            ),
            "get_endpoint_statistics": "describe",
            "create_warehouse": "create",
            "delete rename modify_task_queue_config": "modify",
            "create_role": "role_creator",
            "create_tag": "tag_creator",
            "get_project_tasks": "describe | up.admin",
            "control_project_tasks": "modify | up.admin",
            "read_assignments": "security_admin | up.admin",
            "grant_role_creator grant_tag_creator grant_create grant_describe": "security_admin | up.admin",
            "grant_modify grant_select grant_security_admin grant_data_admin": "security_admin | up.admin",
            "grant_project_admin": "project_admin | up.admin",
        },
    ),
    "warehouse": ObjectType(
        stored=_CONTAINER_STORED,
        relations={
            "ownership": "+",
            "pass_grants": "+",
            "manage_grants": "+ | ownership | up.security_admin",
            "manage_tags": "+ | up.security_admin",
            "manage_refs": "+ | ownership | up.data_admin",
            "modify": "+ | ownership | up.modify | up.data_admin",
            "create": "+ | ownership | up.create",
            "select": "+ | ownership | modify | up.select",
            "describe": "+ | ownership | select | create | up.describe",
            "managed": "managed_access",
        },
        actions=_MAY_GRANT_ON_CONTAINER
        | {
            "get_metadata get_config list_namespaces use include_in_list": "describe | down.get_metadata",
            "list_deleted_tabulars get_task_queue_config": "describe | down.get_metadata",
            "list_everything get_endpoint_statistics get_all_tasks": "describe",
            "create_namespace": "create",
            "delete update_storage update_storage_credential set_protection set_format_version_policy": "modify",
            "deactivate activate rename modify_soft_deletion control_all_tasks modify_task_queue_config": "modify",
            "manage_tags": "manage_tags",
            "accept_moved_namespace": "(create - managed) | (manage_grants & create)",
        },
    ),
    "namespace": ObjectType(
        stored=_CONTAINER_STORED,
        relations=_INHERITED
        | {
            "manage_refs": "+ | ownership | up.manage_refs",
            "create": "+ | ownership | up.create",
            "describe": "+ | ownership | select | create | up.describe",
            "managed": "managed_access | up.managed",
        },
        actions=_MAY_GRANT_ON_CONTAINER
        | {
            "get_metadata list_tables list_views list_generic_tables list_datasets": "describe | down.get_metadata",
            "list_namespaces include_in_list": "describe | down.get_metadata",
            "list_everything": "describe",
            "create_table create_view create_generic_table create_dataset create_namespace": "create",
            "delete update_properties set_protection": "modify",
            "manage_tags": "manage_tags",
            "move": "manage_grants & modify",
            "accept_moved_namespace accept_moved_tabular": "(create - managed) | (manage_grants & create)",
        },
    ),
    "table": ObjectType(_TABULAR_STORED, _TABULAR_RELATIONS, _TABULAR_ACTIONS | _READ | _WRITE | _COMMIT),
    "view": ObjectType(_TABULAR_STORED, _TABULAR_RELATIONS, _TABULAR_ACTIONS | _COMMIT | {"select": "select"}),
    "generic_table": ObjectType(_TABULAR_STORED, _TABULAR_RELATIONS, _TABULAR_ACTIONS | _READ | _WRITE),
    "dataset": ObjectType(
        stored=f"{_TABULAR_STORED} manage_refs",
        relations=_TABULAR_RELATIONS | {"manage_refs": "+ | ownership | up.manage_refs"},
        actions=_TABULAR_ACTIONS
        | _READ
        | _COMMIT
        | {
            "promote update_settings": "modify",
            "manage_refs reset": "manage_refs",
            "expire_snapshots restore_snapshots update_retention revoke_access_grants": "manage_grants",
            "grant_manage_refs": "manage_grants",
        },
    ),
    "role": ObjectType(
        stored="assignee ownership",
        relations={"assignee": "+ | ownership | self", "ownership": "+"},
        actions={
            "assume": "assignee",
            "grant_assignee change_ownership delete update update_source_system": "ownership | up.security_admin",
            "read read_assignments": "up.list_roles",
            "read_metadata": "authenticated",
        },
    ),
    "tag": ObjectType(
        stored="ownership apply",
        relations={"ownership": "+", "apply": "+ | ownership | up.security_admin"},
        actions={
            "apply": "apply",
            "read": "up.list_tags | apply",
            "update delete grant_apply change_ownership read_assignments read_attachments": (
                "ownership | up.security_admin"
            ),
        },
    ),
    "user": ObjectType(
        stored="",
        relations={},
        actions={
            "read": "self | authenticated",
            "update": "self | up.update_users",
            "delete": "self | up.delete_users",
            "read_role_assignments": "self | up.list_users",
        },
    ),
}
"""Object type -> rules. The parent of a user is the server. A visible role or tag does not show the project above."""

ACTIONS: Final[Mapping[str, frozenset[str]]] = {
    name: frozenset(action for names in rules.actions for action in names.split()) for name, rules in MODEL.items()
}
"""Object type -> canonical actions: the relations of Lakekeeper's model without the prefix `can_`."""

RENAME_AWAY: Final = "rename_away"
"""Right to give a table or its kin a name in another container. Nobody asks for it by name: `rename` there does."""
RENAME_AWAY_RULE: Final = "(modify - up.managed) | move"
"""Lakekeeper asks for `rename` alone. Under managed access an object would escape by such a name: there, `move`."""

STORED: Final[Mapping[str, frozenset[str]]] = {name: frozenset(rules.stored.split()) for name, rules in MODEL.items()}
"""Object type -> privileges for grants on objects of the type."""

_RELATION: Final = re.compile(r"(?<![.\w])[a-z_]+(?![.\w])")
"""Name of a relation to the same object in a rule."""


def granting(privilege: str) -> str:
    """Return the action that grants a privilege."""
    return "change_ownership" if privilege == "ownership" else f"grant_{privilege}"


_BELOW: Final[Mapping[str, tuple[str, ...]]] = {
    "server": ("project",),
    "project": ("warehouse", "role", "tag"),
    "warehouse": ("namespace",),
    "namespace": ("table", "view", "generic_table", "dataset"),
}
"""Type -> the types of objects below. A namespace in a namespace has the same privileges."""
_UP_RELATION: Final = re.compile(r"\bup\.([a-z_]+)")
"""Name of a relation to the object above in a rule."""


def _held(type: str, first: set[str]) -> set[str]:
    """Return the relations to an object that the first ones give."""
    giving = {name: set(_RELATION.findall(text)) for name, text in MODEL[type].relations.items()}
    held, more = set(first), set(first)
    while more:
        more = {name for name, by in giving.items() if by & held} - held
        held |= more
    return held


def _included(type: str, first: set[str]) -> set[str]:
    """Return the privileges on an object, and on objects below, that relations to the object give."""
    held = _held(type, first)
    found = held & STORED[type]
    for below in _BELOW.get(type, ()):
        relations = MODEL[below].relations.items()
        given = {name for name, text in relations if held.intersection(_UP_RELATION.findall(text))}
        found |= _included(below, given)
    return found


def _included_grants() -> dict[tuple[str, str], tuple[str, ...]]:
    found = {
        (type, granting(privilege)): {granting(name) for name in _included(type, {privilege})} - {granting(privilege)}
        for type in MODEL
        for privilege in STORED[type]
    }
    return {key: tuple(sorted(actions)) for key, actions in found.items() if actions}


INCLUDED_GRANTS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = _included_grants()
"""(type, action that grants a privilege) -> the actions that grant the included privileges, there and below."""
GRANTED_BELOW: Final = frozenset(
    action for (type, _), actions in INCLUDED_GRANTS.items() for action in actions if action not in ACTIONS[type]
)
"""Included actions that the object itself does not have."""

NESSIE: Final[Mapping[str, Mapping[str, str]]] = {
    "READ_CONTENT_KEY": {"": "include_in_list"},
    "READ_ENTITY_VALUE": {"view": "select", "namespace": "get_metadata", "": "read_data"},
    "UPDATE_ENTITY": {
        "namespace": "update_properties",
        "view": "commit",
        "dataset": "commit",
        "": "write_data",
    },
    "DELETE_ENTITY": {"namespace": "delete", "": "drop"},
    "CREATE_ENTITY": {
        "namespace": "up.create_namespace",
        "view": "up.create_view",
        "generic_table": "up.create_generic_table",
        "dataset": "up.create_dataset",
        "": "up.create_table",
    },
}
"""Nessie check type -> object type (empty: any other type) -> action in the model; `up.` means on the parent."""

CONTENT: Final[Mapping[str, str]] = {"ICEBERG_VIEW": "view", "NAMESPACE": "namespace"}
"""Nessie content type -> object type of a resource of type `content`. Every other content type counts as a table."""
