"""Tables of a store, and their creation when a database is opened.

Owns tables and columns; `rows` owns the meaning of a row. An empty database gets the tables of this module. The
migrations beside this module bring the tables of older versions to the same state. Alembic runs the migrations and is
imported only if there is a migration to run, for a quick start.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from pdp.errors import ConfigError
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
