"""Rows of a store and the values of facts: each way, in bulk.

Owns the form in which objects, grants and changes are stored. Canonical text stands for a key, JSON for a revision's
changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from sqlalchemy import Connection, delete, insert
from sqlalchemy.sql.dml import Delete, Insert
from sqlalchemy.sql.expression import bindparam

from pdp.facts.objects import (
    BIT,
    Change,
    Grant,
    GrantAdded,
    GrantRemoved,
    Object,
    ObjectKey,
    ObjectPut,
    key_from_text,
    key_text,
)
from pdp.store.schema import GRANTS, OBJECTS

Values: TypeAlias = dict[str, Any]
T = TypeVar("T")

_BATCH: Final = 5_000
"""Rows that travel together."""
_PRIVILEGE: Final = {privilege: privilege for privilege in BIT}
_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(tuple[Change, ...])
_GRANT: Final = ("object", "privilege", "principal", "id")
_DELETE_OBJECT: Final = delete(OBJECTS).where(OBJECTS.c.key == bindparam("_key"))
_DELETE_GRANT: Final = delete(GRANTS).where(*(GRANTS.c[name] == bindparam(f"_{name}") for name in _GRANT))


class Unreadable(ValueError):
    """Rows that no store of this version wrote."""


def objects_of(rows: Iterable[Sequence[Any]]) -> Iterator[Object]:
    """Registered objects, from rows of `key, project, managed, id`."""
    for key, project, managed, id in rows:
        yield Object(key_from_text(key), project, bool(managed), id)


def grants_of(rows: Iterable[Sequence[Any]]) -> Iterator[Grant]:
    """Grants, from rows of `object, privilege, principal, id` in the order of `object`.

    What is equal in many grants is one value in memory. Unreadable where a privilege is unknown.
    """
    principals: dict[str, str] = {}
    last, key = "", ("", ())  # type: str, ObjectKey
    for object, privilege, principal, id in rows:
        if object != last:
            last, key = object, key_from_text(object)
        known = _PRIVILEGE.get(privilege)
        if known is None:
            raise Unreadable(f"a grant of `{privilege}`")
        yield Grant(key, known, principals.setdefault(principal, principal), id)


def encoded(changes: Sequence[Change]) -> str:
    """Changes as the log keeps them."""
    return _ENCODER.encode(changes).decode()


def decoded(text: str) -> tuple[Change, ...]:
    """Changes from the log; Unreadable where the text holds none."""
    try:
        return _DECODER.decode(text)
    except msgspec.MsgspecError as error:
        raise Unreadable(f"a revision of which it is said: {error}") from error


def write(connection: Connection, sequence: int, changes: Sequence[Change]) -> None:
    """Make the rows follow the changes of revision `sequence`; ValueError where one of them is none."""
    grants: dict[Grant, list[bool]] = {}
    objects: dict[ObjectKey, Object | None] = {}
    for change in changes:
        if isinstance(change, GrantAdded | GrantRemoved):
            grants.setdefault(change.grant, []).append(isinstance(change, GrantAdded))
        elif isinstance(change, ObjectPut):
            objects[change.object.key] = change.object
        else:
            objects[change.key] = None
    _run(connection, _DELETE_OBJECT, ({"_key": key_text(key)} for key in objects))
    _run(connection, insert(OBJECTS), (_object_row(found) for found in objects.values() if found is not None))
    # a revision may take and give the same grant: its first change says whether the row is there, its last whether
    # it shall be
    gone = [grant for grant, steps in grants.items() if not steps[0]]
    if _run(connection, _DELETE_GRANT, (_grant_row(grant, "_") for grant in gone)) != len(gone):
        raise ValueError("a grant that is to be removed is not there")
    added = (_grant_row(grant) | {"added": sequence} for grant, steps in grants.items() if steps[-1])
    _run(connection, insert(GRANTS), added)


def _object_row(registered: Object) -> Values:
    return {
        "key": key_text(registered.key),
        "project": registered.project,
        "managed": registered.managed,
        "id": registered.id,
    }


def _grant_row(grant: Grant, prefix: str = "") -> Values:
    values = (key_text(grant.object), grant.privilege, grant.principal, grant.id)
    return {f"{prefix}{name}": value for name, value in zip(_GRANT, values, strict=True)}


def _run(connection: Connection, statement: Insert | Delete, rows: Iterator[Values]) -> int:
    """Execute a statement for each row; how many rows of the table it touched."""
    touched = 0
    while batch := list(islice(rows, _BATCH)):
        touched += connection.execute(statement, batch).rowcount
    return touched
