"""Identity of entities: the uid of each object, and the object of each uid."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from pdp.engines.cedar.actions import ENTITY_NAMES, NAMESPACE
from pdp.errors import InvalidReference
from pdp.model.question import Principal, Resource
from pdp.model.references import encode_part, parse_resource

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
ANONYMOUS: Final[Uid] = (USER, "anonymous")
TABULAR: Final = {f"{NAMESPACE}::{ENTITY_NAMES[type]}": type for type in ("table", "view", "generic_table")}
"""Entity type of an object inside a namespace -> its type of resource."""
_RESOURCE_TYPES: Final = {f"{NAMESPACE}::{name}": type for type, name in ENTITY_NAMES.items()}
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
