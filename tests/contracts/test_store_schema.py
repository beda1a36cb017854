"""The tables of a store: made and brought up to date when it is opened, by what the package brings along."""

from __future__ import annotations

from importlib import resources

import pytest
import sqlalchemy as sa
from alembic.script import ScriptDirectory
from support.service.stores import added, grant

from pdp.errors import ConfigError
from pdp.facts.objects import GrantRemoved
from pdp.store import schema
from pdp.store.sql import open_store


def engine(url: str) -> sa.Engine:
    return sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"), poolclass=sa.NullPool)


def execute(url: str, *statements: str) -> None:
    with engine(url).begin() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))


def test_the_migrations_are_part_of_the_package() -> None:
    folder = resources.files("pdp.store") / "migrations"
    assert (folder / "env.py").is_file()
    names = {entry.name for entry in (folder / "versions").iterdir()}
    assert {f"v{version}.py" for version in schema.VERSIONS} <= names


def test_the_known_versions_are_those_of_the_migrations() -> None:
    with resources.as_file(resources.files("pdp.store") / "migrations") as folder:
        scripts = ScriptDirectory(str(folder))
        assert [script.revision for script in scripts.walk_revisions()][::-1] == list(schema.VERSIONS)


def test_the_migrations_make_the_tables_that_the_store_uses(url: str) -> None:
    with engine(url).begin() as connection:
        schema.migrate(connection)
    store = open_store(url)
    facts = store.load()
    (entry,) = store.write("me", facts, lambda log: added(1))
    assert store.since(facts) == [entry]
    (*_, other) = store.write("me", facts, lambda log: [GrantRemoved(grant(1))])
    assert store.load().sequence == other.sequence == 2
    store.close()


def test_new_tables_are_those_of_the_migrations(url: str) -> None:
    with engine(url).begin() as connection:
        schema.migrate(connection)
    migrated = described(url)
    with engine(url).begin() as connection:
        tables = sa.MetaData()
        tables.reflect(connection)
        tables.drop_all(connection)
    open_store(url).close()
    assert described(url) == migrated
    assert set(migrated) > {"meta", "objects", "grants", "changes", "pdp_version"}


def test_an_older_version_is_migrated_when_it_is_opened(url: str) -> None:
    """A table of versions without a row is the version before the first."""
    execute(url, schema.TABLES["pdp_version"])
    store = open_store(url)
    facts = store.load()
    assert store.write("me", facts, lambda log: added(1))[-1].sequence == 1
    store.close()
    migrated = described(url)
    assert migrated["version"] == [(schema.VERSIONS[-1],)]
    assert set(migrated) >= set(schema.TABLES)


def described(url: str) -> dict[str, object]:
    """Return every table with all that the database knows of it, and the rows of the tables that are never empty."""
    with engine(url).connect() as connection:
        inspector = sa.inspect(connection)
        tables: dict[str, object] = {}
        for table in inspector.get_table_names():
            columns = [{**column, "type": repr(column["type"])} for column in inspector.get_columns(table)]
            checks = inspector.get_check_constraints(table), inspector.get_unique_constraints(table)
            tables[table] = columns, inspector.get_pk_constraint(table), checks, inspector.get_indexes(table)
        if connection.dialect.name == "sqlite":
            statements = connection.execute(sa.text("SELECT sql FROM sqlite_master ORDER BY name")).scalars()
            tables["sql"] = [statement and statement.split() for statement in statements]
        tables["version"] = connection.execute(sa.text("SELECT * FROM pdp_version")).all()
        tables["meta row"] = connection.execute(sa.text("SELECT id, length(epoch), sequence FROM meta")).all()
        return tables


def test_a_newer_schema_is_refused(url: str) -> None:
    open_store(url).close()
    execute(url, "UPDATE pdp_version SET version_num = '9999'")
    with pytest.raises(ConfigError, match=r"newer version.*`9999`"):
        open_store(url)


def test_tables_of_another_program_are_refused_and_left_alone(url: str) -> None:
    execute(url, "CREATE TABLE grants (id integer)")
    with pytest.raises(ConfigError, match=r"another program.*`grants`"):
        open_store(url)
    with engine(url).connect() as connection:
        assert sa.inspect(connection).get_table_names() == ["grants"]


def test_a_migration_that_fails_leaves_nothing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda size: None)  # the last of what the migration writes is refused
    with pytest.raises((ConfigError, ValueError)):
        open_store(url)
    with engine(url).connect() as connection:
        assert sa.inspect(connection).get_table_names() == []
    monkeypatch.undo()
    open_store(url).close()


@pytest.mark.parametrize(
    "url", ["", "sqlite://", "sqlite:///", "sqlite:///:memory:", "mysql://h/d", "pdp.db", "file:x"]
)
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"`store\.url` must be"):
        open_store(url)
