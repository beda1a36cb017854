"""Objects, grants, and changes to them: the values of which facts are made and that stores keep.

Objects are known by keys without a ref, because a grant holds on every ref. What lies below a warehouse is not
registered: where it stands follows from its path. What a privilege means is the grants engine's to say, with two
exceptions that indexes rest on: a member of a role (`MEMBERSHIP`), and what makes an object visible (`VISIBILITY`).
"""

from __future__ import annotations

from typing import Final, TypeAlias
from urllib.parse import unquote

import msgspec

from pdp.model.checks import NAMED_TYPES, Resource
from pdp.model.references import format_resource
from pdp.model.vocabulary import PRIVILEGES

ObjectKey: TypeAlias = tuple[str, tuple[str, ...]]
"""An object: its type and decoded parts, warehouse first (`("table", ("lake", "sales", "orders"))`)."""
ContainerPath: TypeAlias = tuple[str, ...]
"""Where an object stands: the parts of its key without the last, which are the container's parts."""
ObjectName: TypeAlias = tuple[str, str]
"""What an object is called there: its type and last part; one name can be a table's and a view's."""

SERVER: Final[ObjectKey] = ("server", ())
BIT: Final = {privilege: 1 << i for i, privilege in enumerate(PRIVILEGES)}
"""Privilege -> its bit in a mask; the strongest has the lowest."""


def mask_of(*privileges: str) -> int:
    """The mask of some privileges."""
    return sum({BIT[privilege] for privilege in privileges})


MEMBERSHIP: Final = mask_of("assignee", "ownership")
"""Stored on a role, these make the grantee its member."""
VISIBILITY: Final = mask_of("ownership", "modify", "create", "select", "describe")
"""Stored on anything below a project, these make it, and so all above it, visible to the grantee."""


class Object(msgspec.Struct, frozen=True):
    """What is registered about an object: the `project` of a warehouse, role or tag, managed access, the stable id."""

    key: ObjectKey
    project: str = ""
    managed: bool = False
    id: str = ""


class Grant(msgspec.Struct, frozen=True, order=True):
    """A stored privilege. `principal` is a canonical id; a grant with an `id` is for the object with that id alone."""

    object: ObjectKey
    privilege: str
    principal: str
    id: str = ""


class ObjectPut(msgspec.Struct, frozen=True, tag="put"):
    """An object is registered, or what is registered about it changes."""

    object: Object


class ObjectDeleted(msgspec.Struct, frozen=True, tag="delete"):
    """An object is no longer registered; what was granted on it goes by changes of its own."""

    key: ObjectKey


class GrantAdded(msgspec.Struct, frozen=True, tag="add"):
    """A grant that was not there."""

    grant: Grant


class GrantRemoved(msgspec.Struct, frozen=True, tag="remove"):
    """A grant that was there."""

    grant: Grant


Change: TypeAlias = ObjectPut | ObjectDeleted | GrantAdded | GrantRemoved
"""One row's change; a revision is a sequence of them."""


def split_key(key: ObjectKey) -> tuple[ContainerPath, ObjectName]:
    """Where an object stands, and what it is called there."""
    type, parts = key
    return parts[:-1], (type, parts[-1] if parts else "")


def join_key(place: ContainerPath, leaf: ObjectName) -> ObjectKey:
    """The object that stands at a place; the inverse of `split_key`."""
    type, name = leaf
    return type, (*place, name) if name else place


def container_key(place: ContainerPath) -> ObjectKey:
    """The warehouse or namespace whose inside a place is."""
    return ("namespace" if len(place) > 1 else "warehouse"), place


def key_of(resource: Resource, type: str = "") -> ObjectKey:
    """The key of a resource, as the concrete `type` that is asked about; its ref does not matter."""
    if resource.warehouse:
        return type or resource.type, (resource.warehouse, *resource.path)
    return type or resource.type, (resource.name,) if resource.name else ()


def resource_of(key: ObjectKey) -> Resource:
    """The resource of a key, on no ref; `key_of` undone."""
    type, parts = key
    if type in NAMED_TYPES:
        return Resource(type, name=parts[0])
    return Resource(type, "".join(parts[:1]), parts[1:])


def key_text(key: ObjectKey) -> str:
    """The canonical reference string of a key."""
    return format_resource(resource_of(key))


def key_from_text(text: str) -> ObjectKey:
    """The key of a canonical reference string: `key_text` undone, faster than parsing what anybody wrote."""
    type, _, rest = text.partition(":")
    if not rest:
        return type, ()
    if type in ("role", "user"):
        return type, (rest,)
    parts = tuple(rest.split("/"))
    return type, tuple(map(unquote, parts)) if "%" in rest else parts
