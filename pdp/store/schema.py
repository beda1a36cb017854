"""Tables of a store, and their creation when a database is opened.

Owns tables and columns; `rows` owns the meaning of a row. An empty database gets the tables of this module. The
migrations beside this module bring the tables of older versions to the same state. Alembic runs the migrations and is
imported only if there is a migration to run, for a quick start.
"""

from __future__ import annotations

import secrets
from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Connection,
    Float,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    insert,
    inspect,
    select,
)

from pdp.errors import ConfigError
from pdp.store.database import Database

VERSIONS: Final = ("0001",)
"""Versions of the schema, oldest first: the revision ids of the migrations."""
VERSION_TABLE: Final = "pdp_version"

# compared byte by byte, as in SQLite: independent of locales, and sorted fast
NAME: Final = Text().with_variant(Text(collation="C"), "postgresql")

_metadata: Final = MetaData()
META: Final = Table(
    "meta",
    _metadata,
    Column("id", Integer, CheckConstraint("id = 1"), primary_key=True),  # there is one row
    Column("epoch", Text, nullable=False),
    Column("sequence", BigInteger, nullable=False),
)
OBJECTS: Final = Table(
    "objects",
    _metadata,
    Column("key", NAME, primary_key=True),
    Column("project", Text, nullable=False),
    Column("managed", Boolean, nullable=False),
    Column("id", Text, nullable=False),
)
GRANTS: Final = Table(
    "grants",
    _metadata,
    Column("object", NAME, primary_key=True),
    Column("privilege", NAME, primary_key=True),
    Column("principal", NAME, primary_key=True),
    Column("id", NAME, primary_key=True),
    Column("added", BigInteger, nullable=False),  # the revision that added it
    sqlite_with_rowid=False,
)
CHANGES: Final = Table(
    "changes",
    _metadata,
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("token", Text, nullable=False),  # random: tells this revision from one of the same number elsewhere
    Column("time", Float, nullable=False),
    Column("actor", Text, nullable=False),
    Column("changes", Text, nullable=False),
)
_VERSION: Final = Table(
    VERSION_TABLE,
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
)
"""Table of Alembic: the version of the schema."""


def prepare(database: Database) -> None:
    """Create the tables of this version, or migrate older ones.

    Raise ConfigError if the database holds tables of another program or of a newer version.
    """
    with database.read_transaction() as connection:
        if _version(connection, database.name) == VERSIONS[-1]:
            return
    with database.schema_transaction() as connection:
        version = _version(connection, database.name)
        if version is None:
            create(connection)
        elif version != VERSIONS[-1]:  # another service that started at the same time may have been faster
            migrate(connection)


def _version(connection: Connection, name: str) -> str | None:
    """Return the version of the existing tables, "" for the first; raise ConfigError as `prepare` does.

    Return None if there are no tables.
    """
    tables = set(inspect(connection).get_table_names())
    if VERSION_TABLE not in tables:
        # any other table makes an SQLite file another program's; a schema of PostgreSQL can be shared if no names clash
        foreign = tables if connection.dialect.name == "sqlite" else tables & set(_metadata.tables)
        if foreign:
            raise ConfigError(f"{name} belongs to another program: it has a table `{min(foreign)}`")
        return None
    version = connection.scalar(select(_VERSION.c.version_num))
    if version is not None and version not in VERSIONS:
        raise ConfigError(f"{name} was made by a newer version of pdp: its schema is `{version}`, not {VERSIONS[-1]}")
    return version or ""


def create(connection: Connection) -> None:
    """Create the tables of the newest version in an empty database, with a first epoch."""
    _metadata.create_all(connection)
    _VERSION.create(connection)
    connection.execute(insert(META).values(id=1, epoch=secrets.token_hex(6), sequence=0))
    connection.execute(insert(_VERSION).values(version_num=VERSIONS[-1]))


def migrate(connection: Connection) -> None:
    """Bring the tables to the newest version. An empty database gets all tables."""
    from alembic import command  # noqa: PLC0415  slow to import, seldom needed
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", "pdp.store:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
