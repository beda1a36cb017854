"""Tables of a store, and their creation when a database is opened.

Owns tables and columns; `rows` owns the meaning of a row. The migrations beside this module create and change the
tables. Alembic runs the migrations and is imported only if there is a migration to run, for a quick start.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Float,
    Integer,
    MetaData,
    Table,
    Text,
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
    Column("id", Integer, primary_key=True),  # always 1: there is one row
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
_VERSION: Final = Table(VERSION_TABLE, MetaData(), Column("version_num", Text))


def prepare(database: Database) -> None:
    """Create the tables of this version, or migrate older ones.

    Raise ConfigError if the database holds tables of another program or of a newer version.
    """
    with database.read_transaction() as connection:
        if _version(connection, database.name) == VERSIONS[-1]:
            return
    with database.schema_transaction() as connection:
        # another service that started at the same time may have been faster
        if _version(connection, database.name) != VERSIONS[-1]:
            _migrate(connection)


def _version(connection: Connection, name: str) -> str:
    """Return the version of the existing tables, "" if there are none; raise ConfigError as `prepare` does."""
    tables = set(inspect(connection).get_table_names())
    if VERSION_TABLE not in tables:
        # any other table makes an SQLite file another program's; a schema of PostgreSQL can be shared if no names clash
        foreign = tables if connection.dialect.name == "sqlite" else tables & set(_metadata.tables)
        if foreign:
            raise ConfigError(f"{name} belongs to another program: it has a table `{min(foreign)}`")
        return ""
    version = connection.scalar(select(_VERSION.c.version_num))
    if version is not None and version not in VERSIONS:
        raise ConfigError(f"{name} was made by a newer version of pdp: its schema is `{version}`, not {VERSIONS[-1]}")
    return version or ""


def _migrate(connection: Connection) -> None:
    from alembic import command  # noqa: PLC0415  slow to import, seldom needed
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", "pdp.store:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
