"""Objects, grants, row policies, masks and changes: the values that facts consist of and that stores persist.

A key names an object without a ref, because a grant holds on every ref. Nobody registers the objects below a
warehouse: the path of a key gives the parent. The grants engine gives privileges their meaning, with two exceptions
for the indexes: `MEMBERSHIP` makes a grantee a member of a role, `VISIBILITY` makes an object visible.

A row policy and a mask have the name under which they cover a table. The row access engine gives them their meaning:
this module must not know SQL or principals.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Final, TypeAlias
from urllib.parse import unquote

import msgspec
from msgspec.structs import replace

from pdp.model.question import NAMED_TYPES, Resource
from pdp.model.references import VERBATIM_TYPES, format_parts
from pdp.model.vocabulary import PRIVILEGES

FoldedName: TypeAlias = tuple[str, str]
"""Warehouse and path of a table, as policies compare them: the path is one text, joined by dots, in one case."""
TablePath: TypeAlias = tuple[str, ...]
"""Parts of a table or view, warehouse first, as written."""
RuleKey: TypeAlias = tuple[TablePath, str, str]
"""Table, folded column and id of a policy. The column is empty but for a mask."""
DialectText: TypeAlias = tuple[str, str]
"""Dialect of an engine, and the text of a filter or expression in it."""
KnownColumns: TypeAlias = Mapping[FoldedName, Mapping[str, str]]
"""Table -> folded columns with their types."""


def fold_name(warehouse: str, path: Iterable[str]) -> FoldedName:
    """Return the name under which policies cover a table: engines lower names, and Trino writes `[a, b]` as `a.b`."""
    return warehouse, ".".join(path).lower()


def widen_name(name: FoldedName) -> FoldedName:
    """Return a name by full case folding, where `stra\N{LATIN SMALL LETTER SHARP S}e` and `strasse` are equal."""
    return name[0], name[1].casefold()


def fold_column(column: str) -> str:
    """Return the name under which a mask covers a column, by full case folding: in doubt a column is masked."""
    return column.casefold()


class NearNames:
    """Names that are equal to others by full case folding, and not in lower case: engines may differ on them."""

    def __init__(self, names: Iterable[FoldedName]) -> None:
        self._wide = frozenset(wide for name in names if not name[1].isascii() and (wide := widen_name(name)) != name)

    def has_near(self, name: FoldedName, others: Container[FoldedName]) -> bool:
        """Tell whether a name is near one of the names, which are `others` by lower case."""
        if not self._wide and name[1].isascii():
            return False
        wide = widen_name(name)
        return wide in self._wide or (wide != name and wide in others)


class RowPolicy(msgspec.Struct, frozen=True):
    """Row policy, or the mask of `column` if there is one: the value of every way in, and the form of the store's rows.

    Names of grantees are texts, because a row stays as written, whatever a version reads in it. Times are seconds since
    1970.

    `text` is the filter of a policy, or the expression of a mask. `others` are texts for engines of other dialects than
    `dialect`: an engine without a text of its own gets the meaning of `text`. A `tombstone` is that of a dropped table:
    without grantees, a new table of the name shows no rows. `object_id` is then the stable id of the dropped table.
    `restrictive`: the grantees need the filter for each row, beside another policy that shows the row. `ahead`: written
    before a table of the name was known, so the policy belongs to the name and not to a table. `person` is who acted as
    the `author`, a role: the role itself if nobody did. Empty in rows of older versions.
    """

    table: TablePath
    id: str
    grantees: tuple[str, ...]
    text: str = ""
    dialect: str = "trino"
    column: str = ""
    kind: str = ""
    exempt: tuple[str, ...] = ()
    author: str = ""
    created: float = 0.0
    updated: float = 0.0
    tombstone: bool = False
    object_id: str = ""
    others: tuple[DialectText, ...] = ()
    restrictive: bool = False
    ahead: bool = False
    person: str = ""

    def texts(self) -> tuple[RowPolicy, ...]:
        """Return the policy with each of its texts alone."""
        if not self.others:
            return (self,)
        given = ((self.dialect, self.text), *self.others)
        return tuple(replace(self, dialect=dialect, text=text, others=()) for dialect, text in given)

    @property
    def key(self) -> RuleKey:
        """Return the key of the policy."""
        return self.table, fold_column(self.column), self.id

    @property
    def covers(self) -> FoldedName:
        """Return the name of the table that the policy covers."""
        return fold_name(self.table[0], self.table[1:])


ObjectKey: TypeAlias = tuple[str, tuple[str, ...]]
"""Type and decoded parts of an object, warehouse first: `("table", ("lake", "sales", "orders"))`."""
ContainerPath: TypeAlias = tuple[str, ...]
"""Parts of the container of an object: the parts of the object's key without the last part."""
ObjectName: TypeAlias = tuple[str, str]
"""Type and last part of an object's key. A table and a view in one container can share the last part."""

SERVER: Final[ObjectKey] = ("server", ())
BIT: Final = {privilege: 1 << i for i, privilege in enumerate(PRIVILEGES)}
"""Privilege -> its bit in a mask. The strongest privilege has the lowest bit."""


def mask_of(*privileges: str) -> int:
    """Return the mask of the privileges."""
    return sum({BIT[privilege] for privilege in privileges})


MEMBERSHIP: Final = mask_of("assignee", "ownership")
"""Privileges on a role that make the grantee a member of the role."""
VISIBILITY: Final = mask_of("ownership", "modify", "create", "select", "describe")
"""Privileges on an object below a project that show the object, and all objects above it, to the grantee."""


class Object(msgspec.Struct, frozen=True):
    """Registration of an object: `project` of a warehouse, role or tag, managed access, stable `id`."""

    key: ObjectKey
    project: str = ""
    managed: bool = False
    id: str = ""


class Grant(msgspec.Struct, frozen=True, order=True):
    """Stored privilege of a principal (a canonical id). A grant with an `id` is only for the object of that id."""

    object: ObjectKey
    privilege: str
    principal: str
    id: str = ""


class ObjectPut(msgspec.Struct, frozen=True, tag="put"):
    """Registration of a new object, or a new registration of a known object."""

    object: Object


class ObjectDeleted(msgspec.Struct, frozen=True, tag="delete"):
    """End of an object's registration. Grants on the object end by changes of their own."""

    key: ObjectKey


class GrantAdded(msgspec.Struct, frozen=True, tag="add"):
    """Addition of a missing grant."""

    grant: Grant


class GrantRemoved(msgspec.Struct, frozen=True, tag="remove"):
    """Removal of an existing grant."""

    grant: Grant


class RowPolicyPut(msgspec.Struct, frozen=True, tag="put_rule"):
    """New row policy or mask, or new content of a known one."""

    rule: RowPolicy


class RowPolicyRemoved(msgspec.Struct, frozen=True, tag="remove_rule"):
    """End of a row policy or mask."""

    key: RuleKey


Change: TypeAlias = ObjectPut | ObjectDeleted | GrantAdded | GrantRemoved | RowPolicyPut | RowPolicyRemoved
"""Change of one row. A revision is a sequence of changes."""


def split_key(key: ObjectKey) -> tuple[ContainerPath, ObjectName]:
    """Return the path of an object's container and the object's name there."""
    type, parts = key
    return parts[:-1], (type, parts[-1] if parts else "")


def join_key(path: ContainerPath, name: ObjectName) -> ObjectKey:
    """Return the key of a name in a container: the inverse of `split_key`."""
    type, last = name
    return type, (*path, last) if last else path


def container_key(path: ContainerPath) -> ObjectKey:
    """Return the key of the warehouse or namespace at a path."""
    return ("namespace" if len(path) > 1 else "warehouse"), path


def key_of(resource: Resource, type: str = "") -> ObjectKey:
    """Return the key of a resource without the ref. The concrete `type` replaces the resource's type if given."""
    if resource.warehouse:
        return type or resource.type, (resource.warehouse, *resource.path)
    return type or resource.type, (resource.name,) if resource.name else ()


def resource_of(key: ObjectKey) -> Resource:
    """Return the resource of a key, without a ref: the inverse of `key_of`."""
    type, parts = key
    if type in NAMED_TYPES:
        return Resource(type, name=parts[0])
    return Resource(type, "".join(parts[:1]), parts[1:])


def changes_container(resource: Resource) -> bool:
    """Tell whether a rename takes an object to another container, or a creation brings one from there."""
    target = resource.arguments.destination
    if target is None:
        return resource.arguments.arriving
    return (target.warehouse, target.path[:-1]) != (resource.warehouse, resource.path[:-1])


def arrival_of(resource: Resource) -> Resource:
    """Return the destination of a rename, with a mark if it is in another container."""
    target = resource.arguments.destination or resource
    return replace(target, arguments=replace(target.arguments, arriving=changes_container(resource)))


def moved(type: str, path: Sequence[str], namespace: Resource) -> Resource:
    """Return an object below a namespace that moves, at the new path."""
    target = namespace.arguments.destination or namespace
    return Resource(type, target.warehouse, (*target.path, *path[len(namespace.path) :]), target.ref)


def key_text(key: ObjectKey) -> str:
    """Return the canonical reference string of a key: the text of `format_resource` for the resource of the key."""
    type, parts = key
    if type in VERBATIM_TYPES:
        return f"{type}:{parts[0]}"
    return f"{type}:{format_parts(parts)}" if parts else type


def key_from_text(text: str) -> ObjectKey:
    """Return the key of a canonical reference string: the inverse of `key_text`.

    Trusts the text, and so costs less than parsing a reference of a user.
    """
    type, _, rest = text.partition(":")
    if not rest:
        return type, ()
    if type in VERBATIM_TYPES:
        return type, (rest,)
    parts = tuple(rest.split("/"))
    return type, tuple(map(unquote, parts)) if "%" in rest else parts
