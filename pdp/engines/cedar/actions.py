"""Actions and uids of Cedar: the name behind each catalog action, the form of each context, the ids of entities.

The names are those of Lakekeeper's schema. `lakekeeper.cedarschema` declares the same actions; a test compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from pdp.config.references import unknown_warehouse
from pdp.errors import InvalidReference
from pdp.model.question import Arguments, Principal, Resource
from pdp.model.references import encode_part, parse_resource
from pdp.model.vocabulary import (
    CONTENT_CHECKS,
    DATASET_CHANGES,
    RENAMES,
    TABULAR_TYPES,
    content_kind,
    kin_of,
)

NAMESPACE: Final = "Lakekeeper"
ACTION: Final = f"{NAMESPACE}::Action"
"""Entity type of actions."""
ENTITY_NAMES: Final[Mapping[str, str]] = {
    "server": "Server",
    "project": "Project",
    "warehouse": "Warehouse",
    "namespace": "Namespace",
    "table": "Table",
    "view": "View",
    "generic_table": "GenericTable",
    "role": "Role",
    "tag": "Tag",
}
"""Type of a resource -> name of the entity type, without the namespace. A check on a user asks about the server."""

_EVERYWHERE: Final = "get_metadata include_in_list read_assignments"
_IN_WAREHOUSE: Final = f"{_EVERYWHERE} set_protection manage_tags"
_TABULAR: Final = f"{_IN_WAREHOUSE} get_tasks rename undrop drop control_tasks"
_ASKED: Final[Mapping[str, str]] = {
    "table": f"{_TABULAR} read_data write_data commit",
    "view": f"{_TABULAR} select commit",
    "generic_table": f"{_TABULAR} read_data write_data",
    "namespace": f"{_IN_WAREHOUSE} list_tables list_views list_generic_tables list_everything list_namespaces delete "
    "create_table create_view create_namespace create_generic_table update_properties",
    "warehouse": f"{_IN_WAREHOUSE} get_endpoint_statistics get_config list_deleted_tabulars get_task_queue_config "
    "get_all_tasks use list_namespaces list_everything delete rename activate deactivate update_storage "
    "update_storage_credential modify_soft_deletion modify_task_queue_config control_all_tasks create_namespace "
    "set_format_version_policy",
    "project": f"{_EVERYWHERE} get_endpoint_statistics list_warehouses list_roles search_roles list_tags "
    "get_project_tasks get_task_queue_config delete rename create_warehouse create_role create_tag "
    "control_project_tasks modify_task_queue_config",
    "server": "create_project list_users provision_users update_users delete_users read_assignments",
    "user": "update delete read_role_assignments",
    "role": "assume read update delete read_assignments grant_assignee update_source_system read_metadata",
    "tag": "apply read update delete read_assignments read_attachments",
}
_IRREGULAR: Final[Mapping[tuple[str, str], str]] = {
    ("update", "user"): "UpdateUsers",
    ("delete", "user"): "DeleteUsers",
    ("read_role_assignments", "user"): "ReadUserRoleAssignments",
    ("grant_assignee", "role"): "ManageRoleAssignments",
    ("update_source_system", "role"): "UpdateRoleSourceSystem",
    ("read_metadata", "role"): "ReadRoleMetadata",
    ("read_attachments", "tag"): "ReadTagAttachments",
    ("create_generic_table", "namespace"): "CreateGenericTableInNamespace",
    ("update_properties", "namespace"): "UpdateNamespaceProperties",
    ("select", "view"): "SelectView",
    ("get_task_queue_config", "project"): "GetProjectTaskQueueConfig",
    ("modify_task_queue_config", "project"): "ModifyProjectTaskQueueConfig",
    ("include_in_list", ""): "Include{T}InList",
    ("read_assignments", ""): "Introspect{T}Authorization",
    ("read_data", ""): "Read{T}Data",
    ("write_data", ""): "Write{T}Data",
}
"""Names outside the rules. With an empty type: a pattern for all types, where `{T}` is the entity type."""
_BEHIND_VERB: Final = frozenset(
    {
        "get_metadata",
        "get_tasks",
        "get_endpoint_statistics",
        "control_tasks",
        "set_protection",
        "manage_tags",
        "set_format_version_policy",
    }
)
"""Words with the entity type behind the verb: `GetTableTasks`."""
_VERB_WORDS: Final = "rename drop undrop delete commit use activate deactivate assume read update apply"
_VERBS: Final = frozenset(_VERB_WORDS.split())
"""Words that are a verb before the entity type: `DropTable`."""
_INSIDE: Final = frozenset({"list_everything", "list_namespaces", "create_namespace"})
"""Words with the container at the end: `ListEverythingInNamespace`."""


def _name(action: str, type: str) -> str:
    entity, words = ENTITY_NAMES.get(type, ""), [word.capitalize() for word in action.split("_")]
    irregular = _IRREGULAR.get((action, type)) or _IRREGULAR.get((action, ""))
    if irregular:
        return irregular.replace("{T}", entity)
    if action in _BEHIND_VERB:
        return words[0] + entity + "".join(words[1:])
    if action in _VERBS:
        return words[0] + entity
    return "".join(words) + (f"In{entity}" if action in _INSIDE else "")


CEDAR_ACTIONS: Final[Mapping[tuple[str, str], str]] = {
    (action, type): _name(action, type) for type, actions in _ASKED.items() for action in actions.split()
}
"""(catalog action, concrete type) -> id of the action in Cedar. Cedar does not apply to any other pair."""
_STANDS_FOR: Final[Mapping[tuple[str, str], str]] = {
    **{(action, "dataset"): "commit" for action in DATASET_CHANGES},
    ("create_dataset", "namespace"): "create_table",
    ("list_datasets", "namespace"): "list_tables",
    ("move", "namespace"): "delete",
    **{("move", type): "rename" for type in TABULAR_TYPES},
}
"""(catalog action, type) outside of Cedar's vocabulary -> the action that forbids are asked about in its place."""


class CedarQuestion(NamedTuple):
    """Question of Cedar's vocabulary: a catalog action on a resource, as an object of a type.

    An action that is not in CEDAR_ACTIONS has no group, so only policies on every action concern it.
    """

    action: str
    type: str
    resource: Resource


def has_counterpart(action: str, type: str) -> bool:
    """Tell whether an action outside of Cedar's vocabulary has a counterpart there."""
    place = "table" if type == "dataset" else type
    return (
        action in CONTENT_CHECKS
        or (action, type) in _STANDS_FOR
        or (type == "dataset" and (action, place) in CEDAR_ACTIONS)
    )


def counterparts(action: str, type: str, resource: Resource, sent: Sequence[str]) -> Iterator[CedarQuestion]:
    """Yield the questions of Cedar's vocabulary about the deed of an action without a name there.

    `sent` are the words of `actions`. A dataset counts as a table. An object without a type in Cedar is judged on the
    warehouse, and a cluster stands alone.
    """
    if action in CONTENT_CHECKS:
        kinds: Sequence[str] = (type,)
        if type == "content":
            kinds = (content_kind(resource.content_type),) if resource.content_type else ("table", "view", "namespace")
        for kind in kinds:
            for kin in kin_of(kind, action, sent):
                creates = action == "CREATE_ENTITY" and kin not in RENAMES
                yield _creation(kin, resource) if creates else _counterpart(kin, kind, resource)
    else:
        yield _counterpart(action, type, resource)


def _creation(action: str, resource: Resource) -> CedarQuestion:
    """Return the question about a creation by a raw check: in the container, with the name as an argument."""
    *path, name = resource.path
    arguments = Arguments(name, given={**resource.arguments.given, "name": name})
    type = "warehouse" if action == "create_namespace" and not path else "namespace"
    container = Resource("namespace", resource.warehouse, tuple(path), resource.ref, arguments=arguments)
    return _counterpart(action, type, container)


def _counterpart(action: str, type: str, resource: Resource) -> CedarQuestion:
    action = _STANDS_FOR.get((action, type), action)
    if type == "dataset":
        return CedarQuestion(action, "table", resource)
    if type in ENTITY_NAMES or type == "user":
        return CedarQuestion(action, type, resource)
    if type in ("reference", "repository_config", "content"):
        return CedarQuestion(action, "warehouse", Resource("warehouse", resource.warehouse))
    return CedarQuestion(action, CLUSTER[0], resource)


class ContextForm(msgspec.Struct, frozen=True):
    """Attributes of a context beside `delegated`.

    `texts` and `flags` map an attribute to the argument behind. `initial`, `updates` and `removal` are the attributes
    with properties of a new object, with changed properties and with the keys of removed ones; empty for none.
    """

    texts: Mapping[str, str] = {}
    flags: tuple[str, ...] = ()
    initial: str = ""
    updates: str = ""
    removal: str = ""


NO_CONTEXT: Final = ContextForm()


def _creation_form(name: str, *same: str, initial: str = "", **others: str) -> ContextForm:
    return ContextForm({name: "name", **{each: each for each in same}, **others}, initial=initial)


def _change(kind: str) -> ContextForm:
    return ContextForm(updates=f"{kind}_properties_updates", removal=f"{kind}_properties_removal")


_NAMESPACE_FORM: Final = _creation_form("namespace_name", initial="initial_namespace_properties")
_DROP_FORM: Final = ContextForm(flags=("force", "purge"))
CONTEXTS: Final[Mapping[str, ContextForm]] = {
    "CreateProject": _creation_form("project_name", "project_id"),
    "CreateWarehouse": _creation_form("warehouse_name"),
    "CreateRole": _creation_form("role_name"),
    "CreateTag": _creation_form("tag_name"),
    "UpdateRoleSourceSystem": ContextForm({"requested_provider_id": "provider_id", "requested_source_id": "source_id"}),
    "CreateNamespaceInWarehouse": _NAMESPACE_FORM,
    "CreateNamespaceInNamespace": _NAMESPACE_FORM,
    "CreateTable": _creation_form("table_name", "table_id", initial="initial_table_properties"),
    "CreateView": _creation_form("view_name", initial="initial_view_properties"),
    "CreateGenericTableInNamespace": _creation_form(
        "generic_table_name",
        "format",
        "base_location",
        initial="initial_generic_table_properties",
        generic_table_id="id",
    ),
    "UpdateNamespaceProperties": _change("namespace"),
    "CommitTable": _change("table"),
    "CommitView": _change("view"),
    "DropTable": _DROP_FORM,
    "DropView": _DROP_FORM,
    "DeleteNamespace": ContextForm(flags=("force", "purge", "recursive")),
}
"""Id of an action -> form of the context; all other actions have `NO_CONTEXT`."""
NAME_ATTRIBUTES: Final = frozenset(
    attribute for form in CONTEXTS.values() for attribute, argument in form.texts.items() if argument == "name"
)
"""Attributes of contexts with the name of a new object."""


Uid: TypeAlias = tuple[str, str]
"""Type, with the namespace, and id of an entity."""

USER: Final = f"{NAMESPACE}::User"
ROLE: Final = f"{NAMESPACE}::Role"
PROJECT: Final = f"{NAMESPACE}::Project"
TAG: Final = f"{NAMESPACE}::Tag"
WAREHOUSE: Final = f"{NAMESPACE}::Warehouse"
NAMESPACE_TYPE: Final = f"{NAMESPACE}::Namespace"
PROPERTIES: Final = f"{NAMESPACE}::ResourceProperties"
SERVER: Final[Uid] = (f"{NAMESPACE}::Server", "server")
CLUSTER: Final[Uid] = (f"{NAMESPACE}::Cluster", "cluster")
"""Resource of questions on a query engine, in no container and without attributes. No schema has the type."""
ANONYMOUS: Final[Uid] = (USER, "anonymous")
TABULAR: Final = {f"{NAMESPACE}::{ENTITY_NAMES[type]}": type for type in ("table", "view", "generic_table")}
"""Entity type of an object inside a namespace -> its type of resource."""
_RESOURCE_TYPES: Final = {f"{NAMESPACE}::{name}": type for type, name in ENTITY_NAMES.items()}
_USER_ID: Final = re.compile(r"[a-z0-9-]+~.+", re.DOTALL)
_ROLE_ID: Final = re.compile(r"(?:([^/~]+)/)?([a-z0-9-]+)~(.+)", re.DOTALL)


class RoleName(NamedTuple):
    """Parts of a role id `[<project>/]<provider>~<source>`. Any other id is all source."""

    project: str
    provider: str
    source: str


def uid_of_resource(resource: Resource, type: str) -> Uid:
    """Return the uid of a resource, as an object of the concrete type. A user is judged on the server."""
    if type in ("server", "user"):
        return SERVER
    if type == CLUSTER[0]:
        return CLUSTER
    entity_type = f"{NAMESPACE}::{ENTITY_NAMES[type]}"
    if type == "role":
        return entity_type, resource.name
    if resource.warehouse:
        return entity_type, path_id((resource.warehouse, *resource.path))
    return entity_type, encode_part(resource.name)


def uid_of_principal(principal: Principal) -> Uid:
    """Return the uid of a principal."""
    if principal.type == "anonymous":
        return ANONYMOUS
    return (ROLE if principal.type == "role" else USER), principal.name


def path_id(parts: Sequence[str]) -> str:
    """Return the id of an object at a path, warehouse first."""
    return "/".join(map(encode_part, parts))


def path_of(uid: Uid) -> tuple[str, ...]:
    """Return the parts of the path of an object, warehouse first, or the name; empty for an id that is neither."""
    type, id = uid
    known = _RESOURCE_TYPES.get(type, "")
    kind = "warehouse" if known == "namespace" and "/" not in id else known
    try:
        resource = parse_resource(f"{kind}:{id}")
    except InvalidReference:
        return ()
    parts = (resource.warehouse, *resource.path) if resource.warehouse else (resource.name,)
    return parts if resource.ref is None and path_id(parts) == id else ()


def object_of(uid: Uid) -> tuple[str, tuple[str, ...]] | None:
    """Return the type and parts of an object below a warehouse, or of the object of properties; None for others."""
    type, id = uid
    if type == PROPERTIES:
        kind, _, id = id.partition(":")
        type = f"{NAMESPACE}::{ENTITY_NAMES.get(kind, '')}"
    if type != NAMESPACE_TYPE and type not in TABULAR:
        return None
    parts = path_of((type, id))
    return (_RESOURCE_TYPES[type], parts) if len(parts) > 1 else None


_ONE_SERVER: Final = 'there is one server: write `Lakekeeper::Server::"server"`'
_NO_PATTERN: Final = (
    "`*` is no wildcard in an id: ask for the container by `in`, or for an attribute by `like`, such as "
    '`resource.name like "a*"`'
)
_FORMS: Final = {
    USER: "the id of a user is `<idp>~<subject>`, such as `oidc~alice`",
    PROJECT: "the id of a project is its name, with `/`, `@` and `%` as escapes",
    TAG: "the id of a tag is its name, with `/`, `@` and `%` as escapes",
    WAREHOUSE: "the id of a warehouse is its name, with `/`, `@` and `%` as escapes",
    NAMESPACE_TYPE: "the id of a namespace begins with the warehouse and all namespaces above, such as `lake/sales/eu`",
    **dict.fromkeys(TABULAR, "the id begins with the warehouse and all namespaces, such as `lake/sales/orders`"),
}
"""Entity type -> form of the ids. Ids of roles have no form."""
_SINGLE: Final = frozenset({PROJECT, TAG, WAREHOUSE})
_ROOT: Final = "; a warehouse's root has the name of one in `warehouses`"


def id_problem(uid: Uid, warehouses: frozenset[str] | None) -> str:
    """Return why no check has an entity of this id, with the form to write; empty for the id of an entity.

    `warehouses` are the warehouses of the configuration, if any. None: any name may be a warehouse. Then
    `Namespace::"lake"` may be the root of a warehouse, where tables without a namespace stand.
    """
    type, id = uid
    if type != ROLE and type not in _FORMS:
        return "" if type != SERVER[0] or uid == SERVER else _ONE_SERVER
    if "*" in id:
        return _NO_PATTERN
    if type == ROLE:
        return ""
    if type == USER:
        return "" if uid == ANONYMOUS or _USER_ID.fullmatch(id) else _FORMS[type]
    parts = path_of(uid)
    if not parts or (len(parts) > 1 if type in _SINGLE else len(parts) < 2 and type != NAMESPACE_TYPE):
        return _FORMS[type]
    if type in (PROJECT, TAG):
        return ""
    if type == NAMESPACE_TYPE and len(parts) == 1:
        return "" if warehouses is None or id in warehouses else _FORMS[type] + _ROOT
    return unknown_warehouse(parts[0], warehouses or ())


def has_properties(uid: Uid) -> bool:
    """Tell whether an entity is of a type with properties."""
    return uid[0] == NAMESPACE_TYPE or uid[0] in TABULAR


def properties_uid(uid: Uid) -> Uid:
    """Return the uid of the properties of an object."""
    return PROPERTIES, f"{_RESOURCE_TYPES[uid[0]]}:{uid[1]}"


def role_name(id: str) -> RoleName:
    """Return the parts of a role id."""
    match = _ROLE_ID.fullmatch(id)
    return RoleName(match[1] or "", match[2], match[3]) if match else RoleName("", "", id)


def as_json(uid: Uid) -> dict[str, str]:
    """Return a uid in Cedar's JSON form of parents and requests."""
    return {"type": uid[0], "id": uid[1]}


def as_value(uid: Uid) -> dict[str, Any]:
    """Return a uid in Cedar's JSON form of attributes."""
    return {"__entity": as_json(uid)}


def as_text(uid: Uid) -> str:
    """Return a uid as policies write it, with the quotes and backslashes of the id escaped."""
    quoted = uid[1].replace("\\", "\\\\").replace('"', '\\"')
    return f'{uid[0]}::"{quoted}"'
