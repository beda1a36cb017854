"""Whatever changes are written, a store holds what following them in memory gives."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.servers.postgres import fresh_schema
from support.service.stores import content, followed

from pdp.facts.objects import Change, Grant, GrantAdded, GrantRemoved, Object, ObjectDeleted, ObjectKey, ObjectPut
from pdp.facts.snapshot import Facts
from pdp.store.sql import open_store
from pdp.store.store import LogEntry, Store

KEYS: tuple[ObjectKey, ...] = (
    ("server", ()),
    ("project", ("p",)),
    ("warehouse", ("w",)),
    ("role", ("r/%41@ é",)),
    ("namespace", ("w", "a")),
    ("namespace", ("w", "a", "b/c%2F@ ü")),
    ("table", ("w", "a", "t")),
    ("view", ("w", "a", "t")),
    ("table", ("w", "a", "b/c%2F@ ü", "'; -- \\ %s :x")),
)
keys = st.sampled_from(KEYS)
objects = st.builds(
    Object, keys, project=st.sampled_from(["", "p", "q"]), managed=st.booleans(), id=st.sampled_from(["", "1", "2"])
)
grants = st.builds(
    Grant,
    keys,
    privilege=st.sampled_from(["select", "ownership", "assignee"]),
    principal=st.sampled_from(["user:i~x", "role:r/%41@ é", "user:i~%Y 'z'"]),
    id=st.sampled_from(["", "1"]),
)


@st.composite
def histories(draw: st.DrawFn) -> list[list[Change]]:
    """Revisions, each of them changes that are changes."""
    there: set[Grant] = set()

    def change() -> Change:
        kind = draw(st.sampled_from(["grant", "grant", "put", "delete"]))
        if kind == "put":
            return ObjectPut(draw(objects))
        if kind == "delete":
            return ObjectDeleted(draw(keys))
        grant = draw(grants)
        found: Change = GrantRemoved(grant) if grant in there else GrantAdded(grant)
        there.symmetric_difference_update({grant})
        return found

    return [[change() for _ in range(draw(st.integers(1, 6)))] for _ in range(draw(st.integers(1, 5)))]


@contextmanager
def fresh(kind: str, request: pytest.FixtureRequest) -> Iterator[Store]:
    """An empty store."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/pdp.db"
        if kind == "postgresql":
            url = fresh_schema(request.getfixturevalue("postgres_server"))
        store = open_store(url)
        try:
            yield store
        finally:
            store.close()


def deciding(changes: list[Change], log: Sequence[LogEntry]) -> Sequence[Change]:
    return changes


def indexes(facts: Facts) -> Any:
    return facts.index.objects, facts.index.grantees, facts.index.memberships


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def test_a_store_holds_what_following_gives(kind: str, request: pytest.FixtureRequest) -> None:
    @settings(max_examples=60 if kind == "sqlite" else 20)
    @given(histories())
    def check(history: list[list[Change]]) -> None:
        with fresh(kind, request) as store:
            start = facts = store.load()
            for changes in history:
                facts = followed(facts, store.write("me", facts, partial(deciding, changes)))
            loaded, logged = store.load(), followed(start, store.since(start))
            built = Facts.build(facts.epoch, len(history), loaded.objects(), loaded.grants())
            for other in (loaded, logged, built):
                assert (other.epoch, other.sequence) == (facts.epoch, facts.sequence)
                assert content(other) == content(facts)
                assert indexes(other) == indexes(facts)

    check()


def test_a_path_is_a_path_whatever_stands_in_it(tmp_path: Path) -> None:
    file = tmp_path / "a b?c#d%41é.db"
    store = open_store(f"sqlite:///{file}")
    store.close()
    assert file.exists()
