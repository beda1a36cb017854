"""Rows of a store: conversion from and to objects, grants and changes, in bulk.

Owns the stored form: canonical text for a key, JSON for the changes of a revision.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from pdp.facts.objects import (
    BIT,
    Change,
    Grant,
    GrantAdded,
    GrantRemoved,
    Object,
    ObjectKey,
    ObjectPut,
    RowPolicyPut,
    RowPolicyRemoved,
    key_from_text,
    key_text,
)
from pdp.facts.row_policies import RowPolicy, RuleKey
from pdp.store.database import Connection, Database

Values: TypeAlias = dict[str, Any]
T = TypeVar("T")

_BATCH: Final = 5_000
"""Rows in one call of the driver."""
_PRIVILEGE: Final = {privilege: privilege for privilege in BIT}
_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(tuple[Change, ...])
_RULE_DECODER: Final = msgspec.json.Decoder(RowPolicy)
_DELETE_RULE: Final = "DELETE FROM row_rules WHERE object = :object AND masked_column = :masked_column AND id = :id"
_INSERT_RULE: Final = (
    "INSERT INTO row_rules (object, masked_column, id, body) VALUES (:object, :masked_column, :id, :body)"
)
_DELETE_OBJECT: Final = 'DELETE FROM objects WHERE "key" = :key'
_INSERT_OBJECT: Final = 'INSERT INTO objects ("key", project, managed, id) VALUES (:key, :project, :managed, :id)'
_DELETE_GRANT: Final = (
    "DELETE FROM grants WHERE object = :object AND privilege = :privilege AND principal = :principal AND id = :id"
)
_INSERT_GRANT: Final = (
    "INSERT INTO grants (object, privilege, principal, id, added) VALUES (:object, :privilege, :principal, :id, :added)"
)


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


def read_rules(rows: Iterable[Sequence[Any]]) -> Iterator[RowPolicy]:
    """Yield row policies from rows of `body`; raise UnreadableRow for any other text."""
    for (body,) in rows:
        try:
            yield _RULE_DECODER.decode(body)
        except msgspec.MsgspecError as error:
            raise UnreadableRow(f"an unreadable row rule: {error}") from error


def encode_changes(changes: Sequence[Change]) -> str:
    """Return the log's text for the changes of a revision."""
    return _ENCODER.encode(changes).decode()


def decode_changes(text: str) -> tuple[Change, ...]:
    """Return the changes from a text of the log; raise UnreadableRow for any other text."""
    try:
        return _DECODER.decode(text)
    except msgspec.MsgspecError as error:
        raise UnreadableRow(f"a revision with unreadable changes: {error}") from error


def write_changes(database: Database, connection: Connection, sequence: int, changes: Sequence[Change]) -> None:
    """Apply the changes of revision `sequence` to the rows; raise ValueError if a grant to remove is absent.

    A grant to add that is present breaks the primary key: the database raises.
    """
    grants: dict[Grant, list[bool]] = {}
    objects: dict[ObjectKey, Object | None] = {}
    rules: dict[RuleKey, RowPolicy | None] = {}
    for change in changes:
        if isinstance(change, GrantAdded | GrantRemoved):
            grants.setdefault(change.grant, []).append(isinstance(change, GrantAdded))
        elif isinstance(change, ObjectPut):
            objects[change.object.key] = change.object
        elif isinstance(change, RowPolicyPut):
            rules[change.rule.key] = change.rule
        elif isinstance(change, RowPolicyRemoved):
            rules[change.key] = None
        else:
            objects[change.key] = None
    run = partial(_run, database, connection)
    run(_DELETE_RULE, map(_rule_key_row, rules))
    run(_INSERT_RULE, (_rule_row(rule) for rule in rules.values() if rule is not None))
    run(_DELETE_OBJECT, ({"key": key_text(key)} for key in objects))
    run(_INSERT_OBJECT, (_object_row(object) for object in objects.values() if object is not None))
    # a revision may remove and add the same grant: the first change tells whether the row exists before, the last one
    # whether the row exists after
    gone = [grant for grant, steps in grants.items() if not steps[0]]
    if run(_DELETE_GRANT, map(_grant_row, gone)) != len(gone):
        raise ValueError("a grant that is to be removed is not there")
    added = (_grant_row(grant) | {"added": sequence} for grant, steps in grants.items() if steps[-1])
    run(_INSERT_GRANT, added)


def _object_row(registered: Object) -> Values:
    return {
        "key": key_text(registered.key),
        "project": registered.project,
        "managed": registered.managed,
        "id": registered.id,
    }


def _grant_row(grant: Grant) -> Values:
    return {
        "object": key_text(grant.object),
        "privilege": grant.privilege,
        "principal": grant.principal,
        "id": grant.id,
    }


def _rule_key_row(key: RuleKey) -> Values:
    table, column, id = key
    return {"object": key_text(("table", table)), "masked_column": column, "id": id}


def _rule_row(rule: RowPolicy) -> Values:
    return _rule_key_row(rule.key) | {"body": _ENCODER.encode(rule).decode()}


def _run(database: Database, connection: Connection, statement: str, rows: Iterable[Values]) -> int:
    """Execute a statement for each row; return the number of rows touched."""
    touched, left = 0, iter(rows)
    while batch := list(islice(left, _BATCH)):
        touched += database.execute(connection, statement, batch)
    return touched
