"""Tables of a store, their creation when a database is opened, and the rows of facts in them.

Owns tables and columns, and the stored form of facts: canonical text for a key, JSON for the changes of a revision.
Conversion goes in bulk. An empty database gets the tables of this module. The migrations beside this module bring the
tables of older versions to the same state. Alembic runs the migrations and is imported only if there is a migration to
run, for a quick start.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import msgspec

from pdp.errors import ConfigError
from pdp.facts.objects import (
    BIT,
    Change,
    Grant,
    GrantAdded,
    GrantRemoved,
    Object,
    ObjectKey,
    ObjectPut,
    RowPolicy,
    RowPolicyPut,
    RowPolicyRemoved,
    RuleKey,
    key_from_text,
    key_text,
)
from pdp.store.database import Connection, Database

if TYPE_CHECKING:
    import sqlalchemy


VERSIONS: Final = ("0001", "0002")
"""Versions of the schema, oldest first: the revision ids of the migrations."""
VERSION_TABLE: Final = "pdp_version"
"""Table of Alembic: the version of the schema."""
TABLES: Final = {
    "meta": """
        CREATE TABLE meta (
            id {number} NOT NULL CHECK (id = 1),
            epoch TEXT NOT NULL,
            sequence BIGINT NOT NULL,
            PRIMARY KEY (id)
        )""",
    "objects": """
        CREATE TABLE objects (
            "key" {name} NOT NULL,
            project TEXT NOT NULL,
            managed BOOLEAN NOT NULL,
            id TEXT NOT NULL,
            PRIMARY KEY ("key")
        )""",
    "grants": """
        CREATE TABLE grants (
            object {name} NOT NULL,
            privilege {name} NOT NULL,
            principal {name} NOT NULL,
            id {name} NOT NULL,
            added BIGINT NOT NULL,
            PRIMARY KEY (object, privilege, principal, id)
        ){without_rowid}""",
    "row_rules": """
        CREATE TABLE row_rules (
            object {name} NOT NULL,
            masked_column {name} NOT NULL,
            id {name} NOT NULL,
            body TEXT NOT NULL,
            PRIMARY KEY (object, masked_column, id)
        ){without_rowid}""",
    "changes": """
        CREATE TABLE changes (
            sequence BIGINT NOT NULL,
            token TEXT NOT NULL,
            time FLOAT NOT NULL,
            actor TEXT NOT NULL,
            changes TEXT NOT NULL,
            PRIMARY KEY (sequence)
        )""",
    "pdp_version": """
        CREATE TABLE pdp_version (
            version_num VARCHAR(32) NOT NULL,
            CONSTRAINT pdp_version_pkc PRIMARY KEY (version_num)
        )""",
}
"""Statements that create the tables. `meta` has one row. `grants.added` is the revision that added the grant.

`row_rules.masked_column` is empty for a row policy; `body` is the JSON of the whole rule.

`changes.token` is random: it tells a revision from one of the same number elsewhere.
"""
_DIALECTS: Final = {
    "sqlite": {"number": "INTEGER", "name": "TEXT", "without_rowid": " WITHOUT ROWID"},
    # names are compared byte by byte, as in SQLite: independent of locales, and sorted fast
    "postgresql": {"number": "SERIAL", "name": 'TEXT COLLATE "C"', "without_rowid": ""},
}


def prepare(database: Database) -> None:
    """Create the tables of this version, or migrate older ones.

    Raise ConfigError if the database holds tables of another program or of a newer version.
    """
    with database.read_transaction() as connection:
        if _version(database, connection) == VERSIONS[-1]:
            return
    with database.schema_transaction() as connection:
        version = _version(database, connection)
        if version is None:
            _create(database, connection)
        elif version != VERSIONS[-1]:  # another service that started at the same time may have been faster
            with database.migration_connection(connection) as migrating:
                migrate(migrating)


def is_new(database: Database) -> bool:
    """Tell whether a database has no tables yet; raise ConfigError for those of another version. Change nothing."""
    with database.read_transaction() as connection:
        version = _version(database, connection)
    if version is None:
        return True
    if version != VERSIONS[-1]:
        raise ConfigError(f"{database.name} is of an older version of pdp: the start of the service migrates it")
    return False


def _version(database: Database, connection: Connection) -> str | None:
    """Return the version of the existing tables, "" for the first; raise ConfigError as `prepare` does.

    Return None if there are no tables.
    """
    tables, name = database.tables(connection), database.name
    if VERSION_TABLE not in tables:
        # any other table makes an SQLite file another program's; a schema of PostgreSQL can be shared if no names clash
        foreign = tables if database.dialect == "sqlite" else tables & TABLES.keys()
        if foreign:
            raise ConfigError(f"{name} belongs to another program: it has a table `{min(foreign)}`")
        return None
    versions = [version for (version,) in database.query(connection, "SELECT version_num FROM pdp_version")]
    if versions and versions[0] not in VERSIONS:
        newer = f"its schema is `{versions[0]}`, not {VERSIONS[-1]}"
        raise ConfigError(f"{name} was made by a newer version of pdp: {newer}")
    return versions[0] if versions else ""


def _create(database: Database, connection: Connection) -> None:
    """Create the tables of the newest version in an empty database, with a first epoch."""
    for statement in TABLES.values():
        database.execute(connection, statement.format_map(_DIALECTS[database.dialect]))
    epoch = {"epoch": secrets.token_hex(6)}
    database.execute(connection, "INSERT INTO meta (id, epoch, sequence) VALUES (1, :epoch, 0)", [epoch])
    version = {"version": VERSIONS[-1]}
    database.execute(connection, "INSERT INTO pdp_version (version_num) VALUES (:version)", [version])


def migrate(connection: sqlalchemy.Connection) -> None:
    """Bring the tables to the newest version. An empty database gets all tables."""
    from alembic import command  # noqa: PLC0415  slow to import, seldom needed
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", "pdp.store:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


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
