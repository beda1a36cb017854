"""Rows of a store: conversion from and to objects, grants and changes, in bulk.

Owns the stored form: canonical text for a key, JSON for the changes of a revision.
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
"""Rows in one call of the driver."""
_PRIVILEGE: Final = {privilege: privilege for privilege in BIT}
_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(tuple[Change, ...])
_GRANT: Final = ("object", "privilege", "principal", "id")
_DELETE_OBJECT: Final = delete(OBJECTS).where(OBJECTS.c.key == bindparam("_key"))
_DELETE_GRANT: Final = delete(GRANTS).where(*(GRANTS.c[name] == bindparam(f"_{name}") for name in _GRANT))


class UnreadableRow(ValueError):
    """A row that no store of this version wrote."""


def read_objects(rows: Iterable[Sequence[Any]]) -> Iterator[Object]:
    """Yield registered objects from rows of `key, project, managed, id`."""
    for key, project, managed, id in rows:
        yield Object(key_from_text(key), project, bool(managed), id)


def read_grants(rows: Iterable[Sequence[Any]]) -> Iterator[Grant]:
    """Yield grants from rows of `object, privilege, principal, id` in the order of `object`.

    Share equal keys, privileges and principals in memory. Raise UnreadableRow for an unknown privilege.
    """
    principals: dict[str, str] = {}
    last, key = "", ("", ())  # type: str, ObjectKey
    for object, privilege, principal, id in rows:
        if object != last:
            last, key = object, key_from_text(object)
        known = _PRIVILEGE.get(privilege)
        if known is None:
            raise UnreadableRow(f"a grant of `{privilege}`")
        yield Grant(key, known, principals.setdefault(principal, principal), id)


def encode_changes(changes: Sequence[Change]) -> str:
    """Return the log's text for the changes of a revision."""
    return _ENCODER.encode(changes).decode()


def decode_changes(text: str) -> tuple[Change, ...]:
    """Return the changes from a text of the log; raise UnreadableRow for any other text."""
    try:
        return _DECODER.decode(text)
    except msgspec.MsgspecError as error:
        raise UnreadableRow(f"a revision with unreadable changes: {error}") from error


def write_changes(connection: Connection, sequence: int, changes: Sequence[Change]) -> None:
    """Apply the changes of revision `sequence` to the rows; raise ValueError if a grant to remove is absent.

    A grant to add that is present breaks the primary key: the database raises.
    """
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
    _run(connection, insert(OBJECTS), (_object_row(object) for object in objects.values() if object is not None))
    # a revision may remove and add the same grant: the first change tells whether the row exists before, the last one
    # whether the row exists after
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
    """Execute a statement for each row; return the number of rows touched."""
    touched = 0
    while batch := list(islice(rows, _BATCH)):
        touched += connection.execute(statement, batch).rowcount
    return touched
