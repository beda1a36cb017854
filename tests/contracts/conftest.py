"""Stores that the contract tests run on: SQLite files, and PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.servers.postgres import fresh_schema
from support.service.stores import Open

from pdp.store.sql import open_store
from pdp.store.store import Store


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the address of an empty database, of each kind in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/pdp.db"
    return fresh_schema(request.getfixturevalue("postgres_server"))


@pytest.fixture
def another(url: str) -> Iterator[Open]:
    """Yield a function that opens one more store on the same database."""
    with ExitStack() as stack:

        def opened() -> Store:
            store = open_store(url)
            stack.callback(store.close)
            return store

        yield opened


@pytest.fixture
def store(another: Open) -> Store:
    """Return a store on an empty database."""
    return another()
