"""The databases that stores are tested on: SQLite files, and a PostgreSQL that is started once."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from support.postgres import PostgresMissing, postgres
from support.stores import Open

from pdp.store.sql import open_store
from pdp.store.store import Store


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a PostgreSQL that runs for the whole session."""
    with ExitStack() as stack:
        try:
            url = stack.enter_context(postgres(tmp_path_factory.mktemp("postgres")))
        except PostgresMissing as missing:
            if os.environ.get("CI"):
                raise
            pytest.skip(f"NOT TESTED ON POSTGRESQL: {missing}")
        yield url


@pytest.fixture
def database(server: str) -> str:
    """The address of an empty database of its own."""
    return fresh_database(server)


def fresh_database(server: str) -> str:
    name = f"pdp_{secrets.token_hex(4)}"
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
    return f"{server.rpartition('/')[0]}/{name}"


def fresh_schema(server: str) -> str:
    """The address of an empty schema, which does as well as a database and is made and removed a hundred times faster."""
    name = f"pdp_{secrets.token_hex(4)}"
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f"CREATE SCHEMA {name}")
    return f"{server}?options=-csearch_path%3D{name}"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database, of each kind in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/pdp.db"
    return fresh_schema(request.getfixturevalue("server"))


@pytest.fixture
def another(url: str) -> Iterator[Open]:
    with ExitStack() as stack:

        def opened() -> Store:
            store = open_store(url)
            stack.callback(store.close)
            return store

        yield opened


@pytest.fixture
def store(another: Open) -> Store:
    return another()
